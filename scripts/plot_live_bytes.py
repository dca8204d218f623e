#!/usr/bin/env python3
"""Plots live bytes over a trace, by role, from `swaplab trace analyze FILE --plot-data CSV`.

example:
  swaplab trace analyze configs/traces/gpt_varied.jsonl.gz --plot-data live.csv
  python3 scripts/plot_live_bytes.py live.csv -o live.png        (or live.svg)

needs: python3-matplotlib
"""
import argparse
import csv
import os
import sys
import tempfile

ROLES = ["parameters", "optimizer_state", "buffers", "data", "gradients", "activations", "temporaries"]
# Colours that stay apart for colour-blind readers (Okabe and Ito).
COLOURS = ["#0072B2", "#56B4E9", "#000000", "#999999", "#D55E00", "#009E73", "#E69F00"]
PHASES = {"F": "forward", "B": "backward", "R": "recompute", "O": "optimizer", "E": "evaluation"}


def read_rows(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = ["op", "iteration", "phase", "start_ns", "live_bytes"] + [f"{role}_bytes" for role in ROLES]
    missing = [name for name in wanted if not rows or name not in rows[0]]
    if missing:
        sys.exit(f"error: {path}: expected the CSV of 'swaplab trace analyze --plot-data', missing {', '.join(missing)}")
    return rows


def unit_of(largest):
    for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if largest >= size:
            return name, size
    return "B", 1


def spans(rows, key):
    """(value, first, end) of maximal runs of equal values."""
    first = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i][key] != rows[first][key]:
            yield rows[first][key], first, i
            first = i


def plot(rows, output, by_time, title):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "swaplab"  # the same bytes for the same data
    import matplotlib.pyplot as plt

    x = [int(row["start_ns"]) / 1e6 if by_time else int(row["op"]) for row in rows]
    total = [int(row["live_bytes"]) for row in rows]
    name, size = unit_of(max(total))
    present = [role for role in ROLES if any(int(row[f"{role}_bytes"]) for row in rows)]
    layers = [[int(row[f"{role}_bytes"]) / size for row in rows] for role in present]
    figure, axes = plt.subplots(figsize=(12, 5))
    axes.stackplot(x, layers, labels=[role.replace("_", " ") for role in present],
                   colors=[COLOURS[ROLES.index(role)] for role in present], step="post", linewidth=0)
    peak = max(range(len(total)), key=total.__getitem__)
    top = total[peak] / size
    axes.annotate(f"peak {top:.2f} {name}", (x[peak], top), xytext=(0, 6), textcoords="offset points", ha="center")
    axes.plot([x[peak]], [top], marker="v", color="black", markersize=5)
    axes.set_ylim(0, top * 1.18)
    axes.set_xlim(x[0], x[-1])
    for number, first, end in spans(rows, "iteration"):
        if first > 0:
            axes.axvline(x[first], color="black", linewidth=0.8)
        middle = (x[first] + x[end - 1]) / 2
        kind = "validation" if any(row["phase"] == "E" for row in rows[first:end]) else "iteration"
        wide = (x[end - 1] - x[first]) > 0.06 * (x[-1] - x[0])
        axes.text(middle, top * 1.15, f"{kind} {number}" if wide else f"{'v' if kind == 'validation' else ''}{number}",
                  ha="center", va="top", fontsize=8)
        for phase, begin, stop in spans(rows[first:end], "phase"):
            if phase in PHASES and stop - begin > 0.015 * len(rows):
                axes.text((x[first + begin] + x[first + stop - 1]) / 2, top * 0.01, phase, ha="center", va="bottom",
                          fontsize=8, color="white")
    axes.set_xlabel("device time, operators back to back (ms)" if by_time else "operator")
    axes.set_ylabel(f"live device bytes ({name})")
    axes.set_title(title)
    # Reading order from top to bottom is that of the layers.
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.tight_layout()
    metadata = {"Date": None} if output.endswith(".svg") else None
    # Whole or not at all.
    extension = os.path.splitext(output)[1]
    handle, temporary = tempfile.mkstemp(suffix=extension, dir=os.path.dirname(os.path.abspath(output)))
    os.close(handle)
    try:
        figure.savefig(temporary, dpi=130, metadata=metadata)
        os.chmod(temporary, 0o644)
        os.replace(temporary, output)
    except BaseException:
        os.unlink(temporary)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", help="file that --plot-data wrote")
    parser.add_argument("-o", "--output", required=True, help="picture to write (.png, .svg, .pdf)")
    parser.add_argument("--x", choices=["operator", "time"], default="operator", help="horizontal axis")
    parser.add_argument("--title", default="Live bytes by role")
    arguments = parser.parse_args()
    if not arguments.output.endswith((".png", ".svg", ".pdf")):
        parser.error(f"--output {arguments.output}: expected .png, .svg or .pdf")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        sys.exit("error: matplotlib is missing; install it: apt-get install --no-install-recommends python3-matplotlib")
    plot(read_rows(arguments.csv), arguments.output, arguments.x == "time", arguments.title)


if __name__ == "__main__":
    main()
