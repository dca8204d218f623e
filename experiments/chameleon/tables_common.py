"""What the tables share: reading results, printing, plotting."""

import json
import pathlib
import re
import sys

GIB = 2**30


def read(folder):
    path = pathlib.Path(folder) / "results.jsonl"
    if not path.exists():
        sys.exit(f"error: {path} does not exist; is the sweep finished?")
    return [json.loads(line) for line in path.read_text().splitlines()]


def setting(trace, key, fallback=None):
    found = re.search(re.escape(key) + r"=([^ |]+)", trace)
    if found is None and fallback is None:
        sys.exit(f"error: the trace '{trace}' does not set {key}")
    return found.group(1) if found else fallback


def short(trace):
    name = trace.rsplit("/", 1)[-1].replace(".jsonl.gz", "").replace("synth:", "")
    name, _, changes = name.partition(" | ")
    return name.split(" ")[0] + (" + " + changes.replace(" | ", ", ") if changes else "")


def parameter(policy, key):
    found = re.search(r"[:,]" + key + r"=([^,]+)", policy)
    return found.group(1) if found else None


def print_table(header, rows):
    cells = [[str(c) for c in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    print("\n".join(lines))


def plots():
    """Matplotlib's pyplot, or None with the reason printed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        matplotlib.rcParams.update({"font.size": 7, "axes.titlesize": 8})
        import matplotlib.pyplot as plt

        return plt
    except ImportError:
        print("no figure: matplotlib is missing (apt-get install python3-matplotlib)")
        return None


def legend_above(axes, columns):
    """A legend that covers no data."""
    axes.legend(fontsize=6, frameon=False, ncol=columns, loc="lower center", bbox_to_anchor=(0.5, 1.0),
                columnspacing=1.2, handletextpad=0.5)


COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "0.3"]


def percent(ratio, digits=2):
    return f"{100 * ratio:+.{digits}f} %"
