#!/usr/bin/env python3
"""Imports every file of a folder and prints what each is: format, studies, operators, storages; where the folder has
reference counts (oracle.json), how many of them the import found. Fails when a count differs.

  scripts/import_corpus.py                         ../shared/corpus with build/release/swaplab
  scripts/import_corpus.py FOLDER --swaplab PROGRAM
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys


def expectations(want):
    """Pairs (name of a count in the report, reference value)."""
    if "instr" in want:
        yield from want["instr"].items()
        yield from (("records", want["lines"]), ("fresh_aliases", want["aliases_neg1"]),
                    ("total_memory_bytes", want["total_memory"]), ("device_time_ns", want["total_time"]))
    elif "cycles" in want:
        yield from (("cycles", want["cycles"]), ("kernels", want["kernels"]))
    elif "ms" in want:
        yield from (("rows", want["rows"]), ("device_time_us", round(want["ms"] * 1000)))
    elif "buffers" in want:
        yield from (("buffers", want["buffers"]), ("max_load_bytes", want["max_load"]))
    elif "devices" in want:
        yield from (("devices", len(want["devices"])), ("segments", want["segments"]))
        if len(want["devices"]) == 1:
            device = want["devices"][0]
            yield from device["actions"].items()
            yield from (("live_at_end", device["live_at_end"]),
                        ("unmatched_free_completed", device["unmatched_free_completed"]),
                        ("peak_from_zero_bytes", device["peak_from_zero"]))
    elif want.get("kind") == "ET":
        yield from (("nodes", want["nodes"]), ("tensors", want["tensors"]), ("storage_ids", want["storages"]),
                    ("storage_bytes", want["bytes"]), ("nodes_named_backward", want["bwd"]),
                    ("largest_id", want["maxid"]))
    elif want.get("kind") == "kineto":
        yield from (("events", want["n"]), ("events_named_backward", want["bwd"]), ("memory_events", want["mem"]),
                    ("events_with_shapes", want["shapes"]), ("kernels", want["kern"]))
        yield from (("phase " + key, value) for key, value in want["ph"].items())
        yield from (("category " + key, value) for key, value in want["cats"].items())
        for device, memory in want.get("memory", {}).items():
            if not device.startswith("0:"):
                yield "allocated_bytes", memory["alloc_bytes"]
                if memory["peak_total"] is not None:
                    yield "peak_bytes", memory["peak_total"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).resolve().parent.parent
    shared = pathlib.Path(os.environ.get("SWAPLAB_SHARED", here.parent / "shared"))
    parser.add_argument("folder", nargs="?", default=shared / "corpus")
    parser.add_argument("--swaplab", default=here / "build" / "release" / "swaplab")
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.folder)
    if not folder.is_dir():
        print(f"SKIPPED: no folder {folder}")
        return 77
    oracle = {}
    if (folder / "oracle.json").exists():
        oracle = json.loads((folder / "oracle.json").read_text())
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in ("INDEX.md", "oracle.json"))
    print(f"{'file':48} {'format':15} {'studies':11} {'operators':>9} {'storages':>8} {'counts':>7}")
    good = total = refused = 0
    for path in files:
        name = str(path.relative_to(folder))
        done = subprocess.run([str(arguments.swaplab), "trace", "import", "--json", str(path)], capture_output=True,
                              text=True, check=False)
        if done.returncode == 3:
            refused += 1
            print(f"{name:48} refused: {done.stderr.strip().removeprefix('error: ').removeprefix(str(path) + ': ')}")
            continue
        if done.returncode != 0:
            sys.exit(f"error: {name}: exit code {done.returncode}: {done.stderr}")
        report = json.loads(done.stdout)
        found = report["found"]
        found["device_time_us"] = (found.get("device_time_ns", 0) + 500) // 1000
        wants = list(expectations(oracle.get(name, {})))
        wrong = [f"{key} is {found.get(key, 0)}, expected {value}" for key, value in wants if found.get(key, 0) != value]
        good += len(wants) - len(wrong)
        total += len(wants)
        counts = f"{len(wants) - len(wrong)}/{len(wants)}" if wants else "-"
        operators = found.get("trace_operators", found.get("kernels", 0) if report["format"] == "g10" else 0)
        print(f"{name:48} {report['format']:15} {report['study']:11} {operators:9} {found.get('storages', 0):8} "
              f"{counts:>7}")
        for line in wrong:
            print(f"    {line}")
    print(f"{len(files)} files: {len(files) - refused} imported, {refused} refused; {good} of {total} reference counts agree")
    return 0 if good == total else 1


if __name__ == "__main__":
    sys.exit(main())
