"""Every experiment's command in its small version. usage: test_chameleon_experiments.py PROGRAM SOURCE_FOLDER"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

program, source = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
RUN = os.path.join(source, "experiments/chameleon/run.sh")
try:
    import matplotlib  # noqa: F401

    figures = True
except ImportError:
    figures = False
    print("no figures are tested: matplotlib is not installed for this Python")


def run(letter, folder):
    out = os.path.join(folder, letter)
    done = subprocess.run([RUN, letter, "--quick", "--swaplab", program, "--out", out, "--jobs", "2"],
                          capture_output=True, text=True)
    assert done.returncode == 0, (letter, done.stdout, done.stderr)
    assert "| " in done.stdout, done.stdout  # a table
    picture = pathlib.Path(out, "figure.png")
    assert picture.exists() == figures, done.stdout
    assert not figures or picture.read_bytes().startswith(b"\x89PNG")
    assert pathlib.Path(out, "report.html").stat().st_size > 10_000
    return json.loads(pathlib.Path(out, "table.json").read_text()), done.stdout


def check_a(table, _):
    mean = table["mean"]
    assert 0 < mean["light"] < mean["detailed"] < mean["conventional"] < mean["torch"], mean
    assert mean["system"] < mean["detailed"] + 0.01, mean
    assert table["reductions"]["light against torch"] > 0.8425, table["reductions"]


def check_b(table, _):
    rows = {(r["sequence"], r["policy"]): r for r in table["rows"]}
    assert rows["plain", "none"]["any"]["layers"] == 4
    assert rows["plain", "full recomputation"]["any"]["layers"] == 16
    for policy in ("chameleon", "adaptive"):
        for sequence in ("plain", "mixed"):
            any_size = rows[sequence, policy]["any"]
            assert any_size["layers"] == 16 and any_size["slowdown"] > 1, any_size


def check_c(table, _):
    for group in ("wide", "narrow"):
        entries = {e["strategy"]: e for e in table[group]["entries"]}
        assert {"full", "tp8", "tp8sp", "pp4full", "chameleon", "adaptive"} <= set(entries)
        time = {name: e["time_ns"] for name, e in entries.items()}
        assert time["none"] < time["full2"] < time["full"], time
        assert time["tp2"] < time["tp4"] < time["tp8"] and time["none"] < time["tp4"], time
        need = {name: e["needs_bytes"] for name, e in entries.items()}
        assert need["none"] > need["tp2"] > need["tp4"] > need["tp8"] > need["tp8sp"], need
        assert need["none"] > need["full2"] > need["full"], need


def check_e(table, _):
    variants = {v["variant"]: v["ratio"] for v in table["variants"]}
    assert variants["default"]["0.6x caching"]["mean"] == 1
    assert variants["swap_out=off"]["0.6x caching"]["mean"] > 0
    assert {"0.6x caching", "0.6x stitching", "0.85x ideal"} <= set(table["allocators"]["adaptive"])
    # The price of a mapping is all that tells the two stitching columns apart.
    stitching = table["allocators"]["chameleon:n_layers=12"]
    assert stitching["0.6x stitching, maps at 0.05x"] < stitching["0.6x stitching"], stitching


def check_f(table, _):
    for cell in table["cells"]:
        for policy in ("foresight", "adaptive", "chameleon"):
            # The bound counts operators and links only, so it may fall below 1 where the host is the limit.
            assert cell[policy] is None or cell[policy] > 0.999 * cell["bound"], cell
    by_link = {}
    for cell in table["cells"]:
        by_link.setdefault((cell["hidden"], cell["sequence"]), {})[cell["link"]] = cell["foresight"]
    for links in by_link.values():
        assert links["350 GB/s"] < links["25 GB/s"], links


with tempfile.TemporaryDirectory(prefix="swaplab-chameleon-") as folder:
    for letter, check in (("a", check_a), ("b", check_b), ("c", check_c), ("e", check_e), ("f", check_f)):
        check(*run(letter, folder))
        print(letter, "ok")
    # What is there already is used again.
    table, _ = run("a", folder)
    check_a(table, None)

wrong = subprocess.run([RUN, "z"], capture_output=True, text=True)
assert wrong.returncode == 2 and "unknown argument 'z'" in wrong.stderr, wrong

# Ring formulas of the collectives, by hand: 8 ranks, 1 GB, 100 GB/s, 5 us a step.
sys.path.insert(0, os.path.join(source, "experiments/chameleon"))
from collective_times import ring_time  # noqa: E402

assert ring_time("c10d.allreduce_.default", 10**9, 8, 100e9, 5e-6) == 14 * (5_000 + 1_250_000)
assert ring_time("c10d._allgather_base_.default", 10**9, 8, 100e9, 5e-6) == 7 * (5_000 + 1_250_000)
assert ring_time("c10d.send.default", 10**9, 2, 100e9, 5e-6) == 10_005_000
print("ok")
