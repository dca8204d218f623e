"""Every figure of scripts/plot.py from a small sweep. usage: test_plot.py PROGRAM SOURCE_FOLDER"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import matplotlib  # noqa: F401
except ImportError:
    print("skip: matplotlib is not installed for this Python")
    sys.exit(77)

program, source = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SWEEP = f"""schema: swaplab/sweep@1
name: plot
parameters:
  trace: {{values: [{source}/configs/traces/gpt_small.jsonl.gz, {source}/configs/traces/resnet50_b256.jsonl.gz]}}
  machine: a100-40g-pcie4
  budget: {{values: [0.4x, 0.6x, 0.8x]}}
  policy: {{values: [none, lru, size]}}
uncertainty: {{samples: 4, figures: {{machine.links.bandwidth: {{distribution: uniform, low: 0.8x, high: 1.2x}}}}}}
"""
with tempfile.TemporaryDirectory(prefix="swaplab-plot-") as folder:
    base = pathlib.Path(folder)
    (base / "plot.yaml").write_text(SWEEP)
    out = subprocess.run([program, "sweep", str(base / "plot.yaml"), "-o", folder, "--json"], check=True, capture_output=True)
    results = json.loads(out.stdout)["folder"]
    for arguments, begins in (
        (["curves", "--trace", "gpt_small", "-o", "curves.pdf"], b"%PDF"),
        (["pairs", "--candidate", "size", "-o", "pairs.png"], b"\x89PNG"),
        (["stalls", "--budget", "0.6x", "-o", "stalls.pdf"], b"%PDF"),
        (["bands", "-o", "bands.png"], b"\x89PNG"),
    ):
        path = base / arguments[-1]
        for _ in range(2):
            previous = path.read_bytes() if path.exists() else None
            subprocess.run([sys.executable, os.path.join(source, "scripts/plot.py"), arguments[0], results,
                            *arguments[1:-1], str(path)], check=True, capture_output=True)
            data = path.read_bytes()
            assert data.startswith(begins) and len(data) > 5000, path
            assert previous is None or previous == data, f"{path.name}: equal data, other file"
    failed = subprocess.run([sys.executable, os.path.join(source, "scripts/plot.py"), "curves", results, "-o",
                             str(base / "x.pdf")], capture_output=True, text=True)
    assert failed.returncode != 0 and "choose one with --trace" in failed.stderr
    print("four figures, each twice with the same bytes")
