#!/usr/bin/env python3
"""Runs built fuzz targets one after another and prints a table; called by scripts/fuzz.sh."""
import glob
import gzip
import os
import pathlib
import re
import subprocess
import sys

LONGEST = 256 << 10  # bytes of an input: longer ones find nothing more, only slower
MEMORY_MB = 2048
ONE_INPUT_S = 20
# Where the shared corpus holds files of a target's format.
SHARED = {
    "import_kineto": ["kineto/*", "awkward/*.json", "awkward/*.gz"],
    "import_execution_trace": ["et/*"],
    "import_chakra": ["chakra_pb/*.et"],
    "import_chakra_json": ["chakra_pb/*.json"],
    "import_snapshot": ["torch_snapshot/*", "awkward/*.pickle"],
    "import_dtr": ["dtr_simrd/*.log*"],
    "import_g10_table": ["g10/*cudnn*"],
    "import_g10_tensors": ["g10/*tensors.config"],
    "import_lifetimes": ["memplan/*"],
    "import_pipedream": ["optrace/pipedream*"],
    "import_simai": ["optrace/simai*"],
    "import_memory_timeline": ["optrace/*timeline_raw*"],
}


def shared_seeds(target, folder):
    root = pathlib.Path(os.environ.get("SWAPLAB_SHARED", "../shared")) / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in SHARED.get(target, []):
        for path in sorted(glob.glob(str(root / pattern))):
            data = pathlib.Path(path).read_bytes()
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            if len(data) <= LONGEST:
                (folder / pathlib.Path(path).name).write_bytes(data)
    return folder


def run(target, seconds):
    build = pathlib.Path("build/fuzz")
    corpus, findings = build / "corpus" / target, build / "findings" / target
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    folders = [corpus, shared_seeds(target, build / "shared" / target)]
    seeds = pathlib.Path("tests/fuzz/seeds") / target
    if seeds.is_dir():
        folders.append(seeds)
    command = [f"./{build}/fuzz_{target}", f"-max_total_time={seconds}", f"-max_len={LONGEST}",
               f"-rss_limit_mb={MEMORY_MB}", f"-timeout={ONE_INPUT_S}", f"-artifact_prefix={findings}/",
               "-print_final_stats=1", *map(str, folders)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                          check=False)
    stat = {key: int(value) for key, value in re.findall(r"stat::(\w+):\s+(\d+)", done.stderr)}
    covered = re.findall(r"cov: (\d+)", done.stderr)
    executed = stat.get("number_of_executed_units", 0)
    print(f"{target:24} {seconds:7} {executed:11} {executed // max(seconds, 1):7} {covered[-1] if covered else '-':>8} "
          f"{stat.get('peak_rss_mb', 0):8} {'ok' if done.returncode == 0 else 'FINDING'}", flush=True)
    if done.returncode != 0:
        print(done.stderr[-4000:], file=sys.stderr)
    return done.returncode == 0


def main():
    seconds, targets = int(sys.argv[1]), sys.argv[2:]
    print(f"{'target':24} {'seconds':>7} {'executions':>11} {'per s':>7} {'covered':>8} {'peak MB':>8} outcome")
    good = [run(target, seconds) for target in targets]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
