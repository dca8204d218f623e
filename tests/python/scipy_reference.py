"""Reference values of the statistics in experiments/stats, by SciPy.

Prints JSON: the cases and what SciPy says about them. tests/experiments/scipy_reference.json is its
output; test_stats.cpp compares with that file and, where SciPy is installed, with a fresh run.
"""

import json
import random
import sys

try:
    import scipy
    from scipy import stats
except ImportError:
    print("skip: scipy is not installed")
    sys.exit(77)


def wilcoxon_cases():
    source = random.Random(20240607)
    for n in (2, 3, 5, 6, 8, 10, 13, 20, 25, 35, 50):
        for shift in (0.0, 0.3, -0.8):
            yield [round(source.gauss(shift, 1.0), 6) for _ in range(n)]
    for n in (8, 12, 30, 60, 120):  # ties and zeros: small integers
        yield [float(source.randint(-3, 5)) for _ in range(n)]
    for n in (51, 80, 200):  # too many for the exact test
        yield [round(source.gauss(0.1, 1.0), 6) for _ in range(n)]


def main():
    out = {"scipy": scipy.__version__, "wilcoxon": [], "holm": [], "clopper_pearson": [], "quantile": []}
    for values in wilcoxon_cases():
        nonzero = [v for v in values if v != 0]
        if not nonzero:
            continue
        tied = len({abs(v) for v in nonzero}) < len(nonzero)
        exact = len(nonzero) <= 50 and not tied
        result = stats.wilcoxon(nonzero, correction=True, mode="exact" if exact else "approx")
        out["wilcoxon"].append(
            {"values": values, "statistic": float(result.statistic), "p": float(result.pvalue), "exact": exact}
        )
    for k, n, confidence in ((0, 10, 0.95), (10, 10, 0.95), (3, 40, 0.95), (37, 40, 0.9), (500, 1000, 0.99)):
        interval = stats.binomtest(k, n).proportion_ci(confidence_level=confidence, method="exact")
        out["clopper_pearson"].append(
            {"k": k, "n": n, "confidence": confidence, "low": float(interval.low), "high": float(interval.high)}
        )
    # Holm is not in SciPy; this is the textbook definition, written independently of the C++.
    for p in ([0.01, 0.04, 0.03, 0.005], [0.5], [0.2, 0.2, 0.9], [0.001, 0.0004, 0.7, 0.02, 0.04]):
        m = len(p)
        adjusted = [
            min(1.0, max(p[j] * (m - sorted(p).index(p[j])) for j in range(m) if p[j] <= p[i])) for i in range(m)
        ]
        out["holm"].append({"p": p, "adjusted": adjusted})
    values = sorted([0.3, 1.7, 2.2, 5.0, 9.5, 11.0, 40.0])
    for q in (0.0, 0.025, 0.1, 0.5, 0.77, 0.975, 1.0):
        out["quantile"].append(
            {"values": values, "q": q, "result": float(stats.mstats.mquantiles(values, [q], alphap=1, betap=1)[0])}
        )
    json.dump(out, sys.stdout, indent=0)
    print()


main()
