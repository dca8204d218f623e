#!/usr/bin/env python3
"""The table of experiment (d), in Markdown: lost time, outcome and iterations without a plan.

usage: /usr/bin/python3 experiments/chameleon/d_adaptation/table.py results/chameleon-adaptation-HASH

Lost time: of all iterations, the first ones included, beyond that of the same trace without a memory limit.
Iterations without a plan: those of WARMUP (chameleon), those that ended with none in force (adaptive).
"""

import json
import math
import pathlib
import sys

STATIC, LENGTH, COSINE, ADAPTIVE = "static-plan", "detector=length", "chameleon", "adaptive"
COLUMNS = [STATIC, LENGTH, COSINE, ADAPTIVE]
WITHOUT_PLAN = {LENGTH: "policy.iterations_warmup", COSINE: "policy.iterations_warmup",
                ADAPTIVE: "policy.iterations_without_plan"}


def column(policy):
    if policy.startswith("static-plan"):
        return STATIC
    if policy.startswith("adaptive"):
        return ADAPTIVE
    return LENGTH if "detector=length" in policy else COSINE


def name(trace):
    origin, *changes = trace.split(" | ")
    origin = origin.rsplit("/", 1)[-1].removesuffix(".jsonl.gz")
    return origin, ", ".join(changes) or "as recorded"


def lost(run):
    return run["metrics"]["lost_ns"] if run["status"] == "ok" else None


def cell(run):
    return f"{lost(run) / 1e6:.1f}" if run["status"] == "ok" else run["status"].replace("_", " ")


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = pathlib.Path(sys.argv[1]) / "results.jsonl"
    if not path.exists():
        sys.exit(f"error: {path} does not exist; is the sweep finished?")
    rows = {}
    for line in path.read_text().splitlines():
        run = json.loads(line)
        factors = run["factors"]
        rows.setdefault((factors["trace"], factors["budget"]), {})[column(factors["policy"])] = run
    print("lost time in ms; in brackets iterations without a plan, of", end=" ")
    print(next(iter(rows.values()))[ADAPTIVE]["factors"].get("iterations", "all"))
    print()
    print("| recording | change | budget | " + " | ".join(COLUMNS) + " | chameleon / adaptive |")
    print("|---|---|---|" + "---:|" * (len(COLUMNS) + 1))
    by_recording, worse, outcomes = {}, [], {c: {} for c in COLUMNS}
    without = {LENGTH: 0, COSINE: 0, ADAPTIVE: 0}
    for (trace, budget), runs in rows.items():
        origin, changes = name(trace)
        cells = []
        for c in COLUMNS:
            text = cell(runs[c])
            outcomes[c][runs[c]["status"]] = outcomes[c].get(runs[c]["status"], 0) + 1
            if c in WITHOUT_PLAN and runs[c]["status"] == "ok":
                count = runs[c]["metrics"][WITHOUT_PLAN[c]]
                without[c] += count
                text += f" ({count})"
            cells.append(text)
        ratio = ""
        if lost(runs[COSINE]) and lost(runs[ADAPTIVE]):
            value = max(1, lost(runs[COSINE])) / max(1, lost(runs[ADAPTIVE]))
            by_recording.setdefault(origin, []).append(value)
            ratio = f"{value:.2f}"
            if value < 1:
                worse.append(f"{origin} {changes} {budget}: {value:.3f}")
        print(f"| {origin} | {changes} | {budget} | " + " | ".join(cells) + f" | {ratio} |")
    everything = [v for values in by_recording.values() for v in values]
    print()
    print(f"chameleon / adaptive, geometric mean of {len(everything)} cells: {geometric_mean(everything):.2f}; "
          + ", ".join(f"{k} {geometric_mean(v):.2f}" for k, v in by_recording.items())
          + f"; mean of the recordings' means {geometric_mean([geometric_mean(v) for v in by_recording.values()]):.2f}")
    print("cells in which adaptive lost more:", "; ".join(worse) or "none")
    print("iterations without a plan:", ", ".join(f"{k} {v}" for k, v in without.items()))
    print("outcomes:", "; ".join(f"{c} " + ", ".join(f"{n} {s.replace('_', ' ')}" for s, n in sorted(o.items()))
                                for c, o in outcomes.items()))


main()
