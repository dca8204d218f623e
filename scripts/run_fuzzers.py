#!/usr/bin/env python3
"""Runs built fuzz targets, one on each processor, and prints a table; called by scripts/fuzz.sh."""
import concurrent.futures
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
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          errors="replace") as process:
        log = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    good = process.returncode == 0
    stat = {key: int(value) for key, value in re.findall(r"stat::(\w+):\s+(\d+)", log)}
    covered = re.findall(r"cov: (\d+)", log)
    executed = stat.get("number_of_executed_units", 0)
    print(f"{target:24} {seconds:7} {used.ru_utime + used.ru_stime:7.1f} {executed:11} "
          f"{covered[-1] if covered else '-':>8} {stat.get('peak_rss_mb', 0):8} {'ok' if good else 'FINDING'}",
          flush=True)
    if not good:
        print(f"{target}: exit {process.returncode}; inputs in {findings}\n{log[-4000:]}", file=sys.stderr)
    return good


def main():
    seconds, targets = int(sys.argv[1]), sys.argv[2:]
    print(f"{'target':24} {'seconds':>7} {'cpu s':>7} {'executions':>11} {'covered':>8} {'peak MB':>8} outcome")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        good = list(pool.map(lambda target: run(target, seconds), targets))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
