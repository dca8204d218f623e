"""A sweep through a real Slurm array gives the very results of a local one.

usage: test_slurm.py PROGRAM SOURCE_FOLDER. Starts a Slurm of one node by scripts/slurm_loopback.sh and skips,
with the reason, where that cannot start.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

SWEEP = """schema: swaplab/sweep@1
name: arrayed
parameters:
  trace: {{values: [{source}/configs/traces/gpt_small.jsonl.gz, {source}/configs/traces/resnet50_b256.jsonl.gz]}}
  machine: a100-40g-pcie4
  budget: {{range: {{start: 0.3x, stop: 0.9x, points: 13}}}}
  policy: {{values: [none, lru, size]}}
baseline: lru
"""


def run(*arguments, **keywords):
    result = subprocess.run(arguments, capture_output=True, text=True, **keywords)
    if result.returncode != 0:
        print(result.stdout, result.stderr, sep="\n")
    return result


def only_folder(path):
    (folder,) = [p for p in path.iterdir() if p.is_dir()]
    return folder


def main():
    program, source = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="swaplab-slurm-") as folder:
        base = pathlib.Path(folder)
        sweep = base / "arrayed.yaml"
        sweep.write_text(SWEEP.format(source=source))
        local = run(program, "sweep", str(sweep), "-o", str(base / "local"), "--json", cwd=folder)
        assert local.returncode == 0, "the local sweep failed"
        script = base / "inside.sh"
        # First a submission that is cancelled half way, then its continuation.
        script.write_text(
            f"""set -e
{program} sweep {sweep} -o {base}/slurm --executor slurm --shards 3 --partition batch --detach
job=$(cat {base}/slurm/*/slurm/1/job)
for i in $(seq 100); do [ -n "$(cat {base}/slurm/*/shards/*.jsonl 2>/dev/null)" ] && break; sleep 0.1; done
scancel $job
for i in $(seq 100); do [ -z "$(squeue -h -j $job 2>/dev/null)" ] && break; sleep 0.2; done
cat {base}/slurm/*/shards/*.jsonl | wc -l > {base}/before
{program} sweep {sweep} -o {base}/slurm --executor slurm --shards 4 --partition batch --resume --json \
  --slurm-option=--time=10 > {base}/slurm.json
"""
        )
        loopback = os.path.join(source, "scripts", "slurm_loopback.sh")
        inside = run(loopback, "bash", str(script), cwd=folder)
        if inside.returncode == 77:
            print(inside.stderr.strip().splitlines()[-1])
            sys.exit(77)
        assert inside.returncode == 0, "the Slurm sweep failed"
        outcome = json.loads((base / "slurm.json").read_text())
        assert outcome["finished"] == outcome["runs"] == 78, outcome
        a, b = only_folder(base / "local"), only_folder(base / "slurm")
        assert a.name == b.name
        for name in ("results.jsonl", "results.csv", "failures.jsonl", "summary.json", "metrics.json"):
            assert (a / name).read_bytes() == (b / name).read_bytes(), name + " differs"
        shards = sorted(p.name for p in (b / "shards").iterdir())
        print(f"78 runs equal byte for byte; {(base / 'before').read_text().strip()} were there when the first job was "
              f"cancelled; logs {', '.join(shards)}")


main()
