#!/usr/bin/env python3
"""Figures of a results folder for papers: PDF or PNG, by matplotlib.

examples:
  /usr/bin/python3 scripts/plot.py curves results/policy-ab-1f3c -o curves.pdf --trace gpt_small
  /usr/bin/python3 scripts/plot.py pairs results/policy-ab-1f3c -o pairs.pdf --baseline lru --candidate size
  /usr/bin/python3 scripts/plot.py stalls results/policy-ab-1f3c -o stalls.png --trace gpt_small --budget 0.6x
  /usr/bin/python3 scripts/plot.py bands results/sensitivity-5b21 -o bands.pdf
"""

import argparse
import json
import math
import pathlib
import sys

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    sys.exit("error: matplotlib is missing; apt-get install python3-matplotlib (and use /usr/bin/python3)")

# Okabe and Ito's palette and three more, told apart by colour-blind readers; seven markers (no common factor with ten)
# and dashes from the eleventh on keep 70 policies apart, in print, too.
COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7a5c10", "#7f7f7f", "#7b4fb5", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "X", "P"]
DASHES = ["-", "--", ":", "-."]


def read_records(folder):
    path = pathlib.Path(folder)
    path = path / "results.jsonl" if path.is_dir() else path
    if not path.exists():
        sys.exit(f"error: {path} does not exist; is the sweep finished?")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if record.get("schema") != "swaplab/result@1":
            sys.exit(f"error: {path}: schema {record.get('schema')!r}, expected swaplab/result@1")
    return records


def short(trace):
    name = trace.rsplit("/", 1)[-1]
    for end in (".gz", ".zst", ".jsonl", ".swt"):
        name = name.removesuffix(end)
    return name


def choose(records, arguments):
    """Runs of the nominal machine that the command line asks for."""
    kept = []
    for record in records:
        factors = record["factors"]
        if factors.get("sample", "nominal") != "nominal":
            continue
        if arguments.trace and arguments.trace not in (factors["trace"], short(factors["trace"])):
            continue
        if arguments.machine and arguments.machine != factors["machine"]:
            continue
        if arguments.budget and arguments.budget != factors["budget"]:
            continue
        kept.append(record)
    if not kept:
        sys.exit("error: no run is left after --trace, --machine and --budget")
    return kept


def policies(records):
    return list(dict.fromkeys(r["factors"]["policy"] for r in records))


def style(names, name):
    at = names.index(name)
    return {"color": COLORS[at % len(COLORS)], "marker": MARKERS[at % len(MARKERS)],
            "linestyle": DASHES[at // len(COLORS) % len(DASHES)]}


def draw_curves(records, arguments, axes):
    traces = list(dict.fromkeys(r["factors"]["trace"] for r in records))
    if len(traces) > 1:
        sys.exit("error: several traces; choose one with --trace: " + ", ".join(map(short, traces)))
    names, bound = policies(records), {}
    for name in names:
        points = sorted(
            (r["metrics"]["budget_bytes"] / r["metrics"]["trace_peak_bytes"], r["metrics"]["slowdown_ppm"] / 1e6)
            for r in records
            if r["factors"]["policy"] == name and r["status"] == "ok"
        )
        if points:
            axes.plot(*zip(*points), label=name, markersize=4, linewidth=1.2, **style(names, name))
    for r in records:
        m = r["metrics"]
        if "bound_iter_time_ns" in m:
            bound[m["budget_bytes"] / m["trace_peak_bytes"]] = m["bound_iter_time_ns"] / m["unconstrained_iter_time_ns"]
    if bound:
        axes.plot(*zip(*sorted(bound.items())), "--", color="0.4", linewidth=1.2, label="bound (swap only)")
    axes.set_xlabel("budget / peak of live bytes")
    axes.set_ylabel("slowdown")
    axes.set_title(short(traces[0]), fontsize=9)
    axes.legend(fontsize=7, frameon=False)


def draw_pairs(records, arguments, axes):
    names = policies(records)
    for needed in ("baseline", "candidate"):
        if getattr(arguments, needed) not in names:
            sys.exit(f"error: --{needed} must be one of: " + ", ".join(names))

    def where(record):
        return tuple((k, v) for k, v in record["factors"].items() if k != "policy")

    metric = arguments.metric
    side = {
        policy: {where(r): r["metrics"][metric] for r in records
                 if r["factors"]["policy"] == policy and r["status"] == "ok" and r["metrics"].get(metric, 0) > 0}
        for policy in (arguments.baseline, arguments.candidate)
    }
    ratios = {}
    for key, base in side[arguments.baseline].items():
        if key in side[arguments.candidate]:
            ratios.setdefault(short(dict(key)["trace"]), []).append(side[arguments.candidate][key] / base)
    if not ratios:
        sys.exit("error: no pair in which both ran")
    for row, (trace, values) in enumerate(ratios.items()):
        axes.plot(values, [row] * len(values), "o", color=COLORS[0], alpha=0.5, markersize=4)
        axes.plot(math.exp(sum(map(math.log, values)) / len(values)), row, "D", color="black", markersize=5)
    axes.axvline(1, color="0.4", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda v, _: f"{v:g}x"))
    axes.xaxis.set_minor_formatter(matplotlib.ticker.FuncFormatter(lambda v, _: f"{v:g}x"))
    axes.tick_params(axis="x", which="both", labelsize=7)
    axes.set_yticks(range(len(ratios)), list(ratios))
    axes.invert_yaxis()
    axes.set_xlabel(f"{metric}: {arguments.candidate} / {arguments.baseline}\n(diamonds: geometric mean)")


def draw_stalls(records, arguments, axes):
    rows = [r for r in records if r["status"] == "ok"]
    if not rows:
        sys.exit("error: no run ended")
    parts = ["compute_busy_ns"] + [k for k in rows[0]["metrics"] if k.startswith("stall_")]
    parts = [p for p in parts if any(r["metrics"][p] > 0 for r in rows)]
    left = [0.0] * len(rows)
    for at, part in enumerate(parts):
        values = [r["metrics"][part] / 1e6 for r in rows]
        label = part.removesuffix("_ns").removeprefix("stall_").replace("_", " ")
        axes.barh(range(len(rows)), values, left=left, label=label, color="0.7" if at == 0 else COLORS[(at - 1) % len(COLORS)])
        left = [a + b for a, b in zip(left, values)]
    varying = [f for f in rows[0]["factors"] if len({r["factors"][f] for r in rows}) > 1] or ["policy"]
    labels = [" ".join(short(r["factors"][f]) if f == "trace" else r["factors"][f] for f in varying) for r in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("iteration time, ms")
    axes.legend(fontsize=7, frameon=False)


def draw_bands(records, arguments, axes):
    """Of every policy: the metric over the Monte-Carlo draws, relative to its own nominal value."""
    nominal, draws = {}, {}
    for r in records:
        factors = dict(r["factors"])
        sample, policy = factors.pop("sample"), factors["policy"]
        value = r["metrics"].get(arguments.metric)
        if r["status"] != "ok" or not value:
            continue
        key = tuple(factors.items())
        if sample == "nominal":
            nominal[key] = value
        elif sample.startswith("draw-"):
            draws.setdefault((policy, sample), {})[key] = value
    by_policy = {}
    for (policy, _), values in draws.items():
        common = [math.log(v / nominal[k]) for k, v in values.items() if k in nominal]
        if common:
            by_policy.setdefault(policy, []).append(math.exp(sum(common) / len(common)))
    if not by_policy:
        sys.exit("error: these results have no Monte-Carlo draws")
    axes.boxplot(list(by_policy.values()), vert=False, labels=list(by_policy), widths=0.6, whis=(2.5, 97.5))
    axes.axvline(1, color="0.4", linewidth=0.8)
    axes.set_xlabel(f"{arguments.metric}, relative to the machine as described (whiskers: 95 % of draws)")


DRAW = {"curves": draw_curves, "pairs": draw_pairs, "stalls": draw_stalls, "bands": draw_bands}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=sorted(DRAW))
    parser.add_argument("results", help="results folder of a finished sweep")
    parser.add_argument("-o", "--output", required=True, help=".pdf, .png or .svg")
    parser.add_argument("--trace", help="path or short name")
    parser.add_argument("--machine")
    parser.add_argument("--budget")
    parser.add_argument("--baseline", default="lru")
    parser.add_argument("--candidate", default="")
    parser.add_argument("--metric", default="iter_time_ns")
    parser.add_argument("--width", type=float, default=4.8, help="inches")
    parser.add_argument("--dpi", type=int, default=200, help="of .png")
    parser.add_argument("--height", type=float, default=3.2, help="inches")
    arguments = parser.parse_args()
    records = read_records(arguments.results)
    if arguments.figure != "bands":
        records = choose(records, arguments)
    # Fonts as outlines of TrueType, which journals ask for; no date, so that equal data give equal files.
    matplotlib.rcParams.update({"pdf.fonttype": 42, "font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(arguments.width, arguments.height), layout="constrained")
    DRAW[arguments.figure](records, arguments, axes)
    metadata = {"CreationDate": None} if arguments.output.endswith(".pdf") else None
    figure.savefig(arguments.output, dpi=arguments.dpi, metadata=metadata)
    print("wrote", arguments.output)


main()
