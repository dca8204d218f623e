#!/usr/bin/env python3
"""Tables and figures of the experiments, from the results folders of their sweeps.

usage: tables.py a|b|c|e|f RESULTS [RESULTS of the second sweep] [--json FILE] [--figure FILE.png]
"""

import argparse
import json
import math
import pathlib

from tables_common import COLORS, GIB, legend_above, parameter, percent, plots, print_table, read, setting, short


# ---- (a) profiling overhead

MODES = {"none": "none", "light": "lightweight", "detailed": "detailed", "system": "the whole system",
         "conventional": "conventional, our code", "torch": "conventional, torch.profiler"}


def mode(policy):
    if policy == "none":
        return "none"
    if parameter(policy, "profiler") == "conventional":
        return "torch" if parameter(policy, "conventional_ns") else "conventional"
    if parameter(policy, "warmup_step") == "1000000":
        return "light"
    return "detailed" if parameter(policy, "stable_step") == "1000000" else "system"


def experiment_a(records, _):
    times = {}
    for r in records:
        f = r["factors"]
        times.setdefault((f["machine"], short(f["trace"])), {})[mode(f["policy"])] = r["metrics"]["iter_time_ns"]
    rows, ratios = [], {m: [] for m in MODES}
    for (machine, trace), by_mode in times.items():
        extra = {m: by_mode[m] / by_mode["none"] - 1 for m in MODES if m in by_mode}
        for m, e in extra.items():
            ratios[m].append(e)
        rows.append({"machine": machine, "trace": trace, "iter_time_ns": by_mode["none"], "overhead": extra})
    mean = {m: sum(v) / len(v) for m, v in ratios.items() if v}
    print_table(["machine", "program", "iteration", *[MODES[m] for m in MODES if m != "none"]],
                [[r["machine"], r["trace"], f"{r['iter_time_ns'] / 1e6:.2f} ms",
                  *[percent(r["overhead"][m]) for m in MODES if m != "none"]] for r in rows]
                + [["mean", "", "", *[percent(mean[m]) for m in MODES if m != "none"]]])
    reductions = {}
    for baseline in ("conventional", "torch"):
        for ours in ("light", "detailed", "system"):
            if mean[baseline] > 0:
                reductions[f"{ours} against {baseline}"] = 1 - mean[ours] / mean[baseline]
    print("\nreduction of the mean overhead (the paper: 84.25 %, baseline not stated):")
    for name, value in reductions.items():
        print(f"  {name}: {100 * value:.2f} %")

    def draw(plt):
        figure, axes = plt.subplots(figsize=(6.4, 3.4))
        shown = [m for m in MODES if m != "none"]
        labels = [f"{r['trace']}\n{r['machine'].split('-')[0]}" for r in rows]
        least = min((100 * r["overhead"][m] for r in rows for m in shown if r["overhead"][m] > 0), default=1e-3)
        floor = 10.0 ** math.floor(math.log10(max(least, 1e-3)))
        for i, m in enumerate(shown):
            axes.bar([x + (i - 2) * 0.16 for x in range(len(rows))],
                     [max(100 * r["overhead"][m], floor) for r in rows], 0.16, label=MODES[m], color=COLORS[i])
        axes.set_yscale("log")
        axes.set_ylim(floor, max(1000, 3 * max(100 * max(r["overhead"].values()) for r in rows)))
        axes.set_xlim(-0.6, len(rows) - 0.4)
        for percentage, line, text in ((0.9, "--", "paper, light-\nweight: 0.9 %"),
                                       (219, ":", "paper, existing\nprofilers: up\nto 219 %")):
            axes.axhline(percentage, color="0.3", linewidth=0.8, linestyle=line)
            axes.text(1.01, percentage, text, fontsize=6, va="center", transform=axes.get_yaxis_transform())
        axes.set_ylabel("overhead, % of the iteration")
        axes.yaxis.set_major_formatter(lambda v, _: f"{v:g} %")
        crowded = len(rows) > 5
        axes.set_xticks(range(len(rows)), labels, fontsize=5.5 if crowded else 7, rotation=30 if crowded else 0,
                        ha="right" if crowded else "center", rotation_mode="anchor" if crowded else "default")
        legend_above(axes, 5)
        return figure

    return {"rows": rows, "mean": mean, "reductions": reductions}, draw


# ---- (b) largest model

def experiment_b(records, recompute):
    runs = {}
    for r in records + (recompute or []):
        f, m = r["factors"], r["metrics"]
        kind = "mixed" if " | " in f["trace"] else "plain"
        name = "none" if f["policy"] == "none" else f["policy"].split(":")[0]
        if setting(f["trace"], "training.recompute", "none") == "full":
            name = "full recomputation"
        point = {"layers": int(setting(f["trace"], "model.layers")), "status": r["status"],
                 "demand": m["trace_peak_bytes"], "budget": m["budget_bytes"],
                 "slowdown": m["slowdown_ppm"] / 1e6 if r["status"] == "ok" else None, "unlimited": m["unconstrained_iter_time_ns"]}
        runs.setdefault(kind, {}).setdefault(name, []).append(point)
    plain_demand = {p["layers"]: p["demand"] for p in runs["plain"]["none"]}
    plain_time = {p["layers"]: p["unlimited"] for p in runs["plain"]["none"]}
    result, rows = [], []
    for kind, by_policy in runs.items():
        for name, points in by_policy.items():
            points.sort(key=lambda p: p["layers"])
            if name == "full recomputation":  # against the same model without it
                for p in points:
                    if p["slowdown"] and p["layers"] in plain_time:
                        p["slowdown"] *= p["unlimited"] / plain_time[p["layers"]]
                    elif p["slowdown"]:
                        p["slowdown"] *= points[0]["unlimited"] / plain_time[points[0]["layers"]]

            def largest(limit):
                ok = [p for p in points if p["slowdown"] and p["slowdown"] <= limit]
                return ok[-1] if ok else None

            row = {"sequence": kind, "policy": name, "points": points}
            cells = [kind, name]
            for limit in (1.05, 1.10, math.inf):
                p = largest(limit)
                key = "any" if limit == math.inf else f"{limit:.2f}"
                row[key] = None if p is None else {"layers": p["layers"], "slowdown": p["slowdown"], "times_memory": (
                    plain_demand.get(p["layers"], 0) / p["budget"])}
                if p is None:
                    cells.append("-")
                    continue
                times = row[key]["times_memory"]
                cells.append(f"{p['layers']} layers" + (f" = {times:.2f}x" if times else "")
                             + (f" at {p['slowdown']:.3f}x" if limit == math.inf else ""))
            result.append(row)
            rows.append(cells)
    print_table(["sequence", "policy", "within 5 % of unlimited memory", "within 10 %", "at all"], rows)
    print("\nlayers = what the model would need without swapping, in units of the device's memory (the paper: up to 4x)")

    def draw(plt):
        figure, panels = plt.subplots(1, len(runs), figsize=(3.4 * len(runs), 3.1), sharex=True, sharey=True, squeeze=False)
        end = 4.4  # past the paper's 4x
        for axes, kind in zip(panels[0], runs):
            for i, (name, points) in enumerate(runs[kind].items()):
                xy = [(plain_demand[p["layers"]] / p["budget"], p["slowdown"]) for p in points
                      if p["slowdown"] and p["layers"] in plain_demand]
                if xy:  # several curves begin in one point: the first marks are the largest, and hollow
                    axes.plot(*zip(*xy), marker="os^Dv"[i % 5], markersize=6.5 - i if i < 4 else 3.5, linewidth=1.1,
                              markerfacecolor="none" if i < 2 else None, color=COLORS[i], label=name)
                    end = max(end, 1.08 * max(x for x, _ in xy))
            axes.axvline(4, color="0.3", linewidth=0.8, linestyle="--")
            axes.text(3.93, 0.02, "paper: 4x", fontsize=6, ha="right", va="bottom", transform=axes.get_xaxis_transform())
            axes.axvline(1, color="0.7", linewidth=0.8, linestyle=":")
            axes.axhline(1, color="0.7", linewidth=0.8, linestyle=":")
            axes.set_title("sequence: " + kind, fontsize=8)
            axes.set_xlabel("memory needed / device memory")
        panels[0][0].set_xlim(0, end)
        panels[0][0].set_ylim(1 - 0.12 * (panels[0][0].get_ylim()[1] - 1), None)
        panels[0][0].set_ylabel("slowdown against unlimited memory")
        handles = {}
        for axes in panels[0]:
            for handle, name in zip(*axes.get_legend_handles_labels()):
                handles.setdefault(name, handle)
        figure.legend(handles.values(), handles.keys(), fontsize=6.5, frameon=False, loc="lower center", ncol=len(handles))
        return figure

    return {"rows": result}, draw


# ---- (c) iteration time

STRATEGIES = {"none": "nothing (does it fit?)", "full2": "recomputation, every 2nd block", "full": "recomputation, every block",
              "tp2": "TP 2", "tp4": "TP 4", "tp8": "TP 8", "tp8sp": "TP 8 + SP", "pp4": "PP 4", "pp4full": "PP 4 + recomputation"}
PIPELINE = {"pp4": (4, 8), "pp4full": (4, 8)}  # stages, micro-batches


def experiment_c(records, _):
    groups = {}
    for r in records:
        f, m = r["factors"], r["metrics"]
        group, _, name = short(f["trace"]).partition("_")
        ok = r["status"] == "ok"
        if f["policy"] != "none":
            name = f["policy"].split(":")[0]
        entry = {"strategy": name, "ok": ok, "needs_bytes": m["trace_peak_bytes"], "budget": m["budget_bytes"],
                 "time_ns": m["iter_time_ns"] if ok else m["unconstrained_iter_time_ns"], "machine": f["machine"]}
        if name in PIPELINE:  # the other stages' share of 1F1B: (p - 1) / m more
            stages, batches = PIPELINE[name]
            entry["time_ns"] += entry["time_ns"] * (stages - 1) // batches
        groups.setdefault(group, []).append(entry)
    result, tables = {}, []
    for group, entries in groups.items():
        ours = {e["strategy"]: e["time_ns"] for e in entries if e["strategy"] not in STRATEGIES and e["ok"]}
        print(f"\n{group}: {entries[0]['machine']}, {entries[0]['budget'] / GIB:.0f} GiB")
        rows = []
        for e in entries:
            name = STRATEGIES.get(e["strategy"], "swapping: " + e["strategy"])
            gains = {p: e["time_ns"] / t - 1 for p, t in ours.items()} if e["ok"] and e["strategy"] in STRATEGIES else {}
            e["gain_of"] = gains
            rows.append([name, f"{e['needs_bytes'] / GIB:.1f} GiB", "yes" if e["ok"] else "no",
                         f"{e['time_ns'] / 1e9:.2f} s", *[percent(gains[p], 1) if p in gains else "" for p in ours]])
        print_table(["strategy", "needs", "runs", "iteration", *[f"{p} is faster by" for p in ours]], rows)
        # The pipelines' bubble follows from the number of micro-batches chosen here: not counted.
        best = {p: max((e["gain_of"][p], e["strategy"]) for e in entries if p in e["gain_of"] and e["strategy"] not in PIPELINE)
                for p in ours if any(p in e["gain_of"] and e["strategy"] not in PIPELINE for e in entries)}
        for p, (gain, against) in best.items():
            print(f"  {p}: up to {100 * gain:.2f} % (against {STRATEGIES[against]}, pipelines left out); the paper: up to 38.94 %")
        result[group] = {"entries": entries, "best": {p: {"gain": g, "against": a} for p, (g, a) in best.items()}}
        tables.append((group, entries))

    def draw(plt):
        figure, panels = plt.subplots(1, len(tables), figsize=(3.6 * len(tables), 3.0), squeeze=False)
        for axes, (group, entries) in zip(panels[0], tables):
            names = [STRATEGIES.get(e["strategy"], e["strategy"]) for e in entries]
            colors = ["0.85" if not e["ok"] else "0.55" if e["strategy"] in STRATEGIES else COLORS[0] for e in entries]
            bars = axes.barh(range(len(entries)), [e["time_ns"] / 1e9 for e in entries], color=colors)
            axes.bar_label(bars, [f"{e['time_ns'] / 1e9:.2f}" + ("" if e["ok"] else ", does not fit") for e in entries],
                           fontsize=5.5, padding=2)
            axes.margins(x=0.16 if all(e["ok"] for e in entries) else 0.32)
            axes.set_yticks(range(len(entries)), names, fontsize=6)
            axes.invert_yaxis()
            axes.set_xlabel("iteration, s (blue: swapping)", fontsize=7)
            axes.set_title(f"{group}: {entries[0]['machine']}, {entries[0]['budget'] / GIB:.0f} GiB", fontsize=8)
        return figure

    return result, draw


# ---- (e) ablations

def experiment_e(records, _):
    value, policies, columns, traces = {}, [], [], []
    for r in records:
        f = r["factors"]
        column = f["budget"] + " " + f["allocator"] + ("" if f["machine.host.map_page"] == "1x" else ", maps at " + f["machine.host.map_page"])
        for item, into in ((f["policy"], policies), (column, columns), (f["trace"], traces)):
            if item not in into:
                into.append(item)
        value[f["policy"], column, f["trace"]] = r["metrics"]["iter_time_ns"] if r["status"] == "ok" else None
    base = policies[0]
    rows, result = [], []
    for policy in policies:
        name = policy[len(base) + 1:] if policy.startswith(base + ",") else "default" if policy == base else policy
        cells, entry = [name], {"variant": name, "ratio": {}}
        for column in columns:
            pairs = [(value.get((policy, column, t)), value.get((base, column, t))) for t in traces]
            if all(p[0] is None and (policy, column, t) not in value for p, t in zip(pairs, traces)):
                cells.append("")
                continue
            logs = [math.log(a / b) for a, b in pairs if a and b]
            failed = sum(1 for a, b in pairs if not a)
            if not logs:
                cells.append(f"{failed} failed")
                continue
            mean = math.exp(sum(logs) / len(logs))
            entry["ratio"][column] = {"mean": mean, "low": math.exp(min(logs)), "high": math.exp(max(logs)), "failed": failed}
            cells.append(f"{mean:.3f} ({math.exp(min(logs)):.2f}-{math.exp(max(logs)):.2f})" + (f", {failed} failed" if failed else ""))
        rows.append(cells)
        result.append(entry)
    budgets = list(dict.fromkeys(c.split(" ")[0] for c in columns))
    allocators = {}
    for budget in budgets:
        here = [c for c in columns if c.startswith(budget + " ")]
        print(f"\n{budget}: iteration time of each variant / default, on the same allocator: geometric mean (range) over programs")
        print_table(["variant", *[c.split(" ", 1)[1] for c in here]],
                    [[row[0], *[row[1 + columns.index(c)] for c in here]] for row in rows])
        for policy in (base, "passive-swap", "adaptive"):
            for column in here:
                logs = [math.log(value[policy, column, t] / value[policy, here[0], t]) for t in traces
                        if value.get((policy, column, t)) and value.get((policy, here[0], t))]
                if logs:
                    allocators.setdefault(policy, {})[column] = math.exp(sum(logs) / len(logs))
        print(f"\n{budget}: iteration time on each allocator / on PyTorch's, of the same policy")
        print_table(["policy", *[c.split(" ", 1)[1] for c in here]],
                    [[p, *[f"{v[c]:.3f}" if c in v else "" for c in here]] for p, v in allocators.items()])

    def draw(plt):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.6), gridspec_kw={"width_ratios": [3, 2]})
        labels = []
        for i, column in enumerate([c for c in columns if c.endswith(" caching")]):
            shown = [e for e in result if column in e["ratio"] and e["variant"] not in ("default", "adaptive")]
            left.errorbar([e["ratio"][column]["mean"] for e in shown], [y + (i - 0.5) * 0.3 for y in range(len(shown))],
                          xerr=[[e["ratio"][column]["mean"] - e["ratio"][column]["low"] for e in shown],
                                [e["ratio"][column]["high"] - e["ratio"][column]["mean"] for e in shown]],
                          fmt="osD^"[i], markersize=3, linewidth=0.8, color=COLORS[i], label=column)
            labels = [e["variant"] for e in shown] if i == 0 else labels
        left.set_yticks(range(len(labels)), labels, fontsize=6)
        left.axvline(1, color="0.4", linewidth=0.8)
        left.invert_yaxis()
        left.set_xlabel("time / default (mean, range over programs)", fontsize=7)
        left.grid(axis="y", color="0.9", linewidth=0.6)
        left.set_axisbelow(True)
        legend_above(left, 2)
        shown = [c for c in columns if c.startswith(budgets[0] + " ")]
        for i, (policy, by_column) in enumerate(allocators.items()):
            right.bar([x + (i - 1) * 0.25 for x in range(len(shown))], [by_column.get(c, 0) for c in shown], 0.25,
                      label=policy.split(":")[0], color=COLORS[i])
        right.set_xticks(range(len(shown)), [c.split(" ", 1)[1].replace(", ", "\n").replace("maps at", "maps\nat") for c in shown],
                         fontsize=6)
        right.axhline(1, color="0.4", linewidth=0.8)
        right.set_xlabel(f"allocator, at {budgets[0]}", fontsize=7)
        right.set_ylabel("time / PyTorch's allocator (caching)", fontsize=7)
        legend_above(right, 3)
        return figure

    return {"variants": result, "allocators": allocators}, draw


# ---- (f) where swapping pays

def experiment_f(records, _):
    cells, axes_values = {}, [[], [], [], []]
    for r in records:
        f, m = r["factors"], r["metrics"]
        key = (f["machine.links.bandwidth"], int(setting(f["trace"], "training.batch")),
               int(setting(f["trace"], "model.hidden")), int(setting(f["trace"], "training.sequence")))
        for item, into in zip(key, axes_values):
            if item not in into:
                into.append(item)
        cell = cells.setdefault(key, {"bound": m["bound_iter_time_ns"] / m["unconstrained_iter_time_ns"]})
        name = f["policy"].split(":")[0]
        cell[name] = m["slowdown_ppm"] / 1e6 if r["status"] == "ok" else None
        if r["status"] != "ok":
            cell["why " + name] = "host full" if "host memory is full" in r.get("explanation", "") else r["status"]
    links, batches, widths, sequences = axes_values
    names = [n for n in ("bound", "foresight", "adaptive", "chameleon") if any(n in c for c in cells.values())]
    for batch in batches:
        for link in links:
            print(f"\nslowdown at half the memory, batch {batch}, link {link}: " + " / ".join(names))
            print_table(["hidden \\ sequence", *sequences], [
                [h, *[" / ".join("-" if cells[link, batch, h, s].get(n) is None else f"{cells[link, batch, h, s][n]:.2f}"
                                 for n in names) for s in sequences]] for h in widths])
    hidden = {link: {n: sum(1 for k, c in cells.items() if k[0] == link and c.get(n) and c[n] <= 1.05) for n in names}
              for link in links}
    total = len(batches) * len(widths) * len(sequences)
    print(f"\nprograms of {total} that lose at most 5 %:")
    print_table(["link", *names], [[link, *[hidden[link][n] for n in names]] for link in links])

    def draw(plt):
        shown = [n for n in ("bound", "adaptive", "chameleon") if n in names]
        batch = batches[-1]
        figure, panels = plt.subplots(len(shown), len(links), figsize=(1.75 * len(links) + 0.8, 1.55 * len(shown) + 0.5),
                                      sharex=True, sharey=True, squeeze=False)
        for row, name in zip(panels, shown):
            for axes, link in zip(row, links):
                grid = [[cells[link, batch, h, s].get(name) or math.nan for s in sequences] for h in widths]
                axes.imshow([[math.log2(max(v, 1)) if not math.isnan(v) else v for v in line] for line in grid],
                            cmap="YlOrRd", vmin=0, vmax=3.5, origin="lower", aspect="auto")
                for y, line in enumerate(grid):
                    for x, v in enumerate(line):
                        why = cells[link, batch, widths[y], sequences[x]].get("why " + name, "")
                        text = why.replace(" ", "\n").replace("_", "\n") if math.isnan(v) else f"{v:.2f}" if v < 10 else f"{v:.0f}"
                        axes.text(x, y, text, ha="center", va="center", fontsize=5.5,
                                  color="white" if not math.isnan(v) and v > 6 else "black")
                axes.set_xticks(range(len(sequences)), [f"{s // 1024}k" for s in sequences], fontsize=6)
                axes.set_yticks(range(len(widths)), widths, fontsize=6)
                if name == shown[0]:
                    axes.set_title(link, fontsize=7)
            row[0].set_ylabel(f"{name}\nhidden size", fontsize=7)
        figure.supxlabel("sequence length, tokens", fontsize=7)
        figure.suptitle(f"slowdown at half the memory, batch {batch}, by link bandwidth (columns)", fontsize=8)
        return figure

    return {"cells": [{"link": k[0], "batch": k[1], "hidden": k[2], "sequence": k[3], **c} for k, c in cells.items()],
            "within_5_percent": hidden}, draw


EXPERIMENTS = {"a": experiment_a, "b": experiment_b, "c": experiment_c, "e": experiment_e, "f": experiment_f}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=sorted(EXPERIMENTS))
    parser.add_argument("results")
    parser.add_argument("second", nargs="?")
    parser.add_argument("--json", help="the table as JSON")
    parser.add_argument("--figure", help=".png, .pdf or .svg")
    arguments = parser.parse_args()
    document, draw = EXPERIMENTS[arguments.experiment](
        read(arguments.results), read(arguments.second) if arguments.second else None)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n")
    plt = plots() if arguments.figure else None
    if plt is not None:
        figure = draw(plt)
        figure.tight_layout(rect=(0, 0.07 if figure.legends else 0, 1, 1))
        figure.savefig(arguments.figure, dpi=170)


if __name__ == "__main__":
    main()
