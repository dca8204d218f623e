#!/usr/bin/env python3
"""Gives the collectives of a synthetic trace the times of a stated interconnect.

The trace is one rank's program; its collectives carry, as attributes, bytes of the larger side, ranks and
kind of the group (0 tensor, 1 data, 2 pipeline, 3 expert). Their times become, in the alpha-beta model of ring
algorithms with n ranks, bandwidth B per direction and latency a per step:
  all-reduce              2 (n-1) (a + bytes / (n B))
  all-gather, reduce-scatter, all-to-all  (n-1) (a + bytes / (n B))
  send, receive, broadcast                a + bytes / B
Groups of the data-parallel kind keep the time that the trace has: every strategy compared here gathers its
parameters in the same way.

example:
  swaplab trace synth CONFIG --machine a100-40g-pcie4 -o t.jsonl.gz
  /usr/bin/python3 experiments/chameleon/collective_times.py t.jsonl.gz -o timed.jsonl.gz --bandwidth 276e9
"""

import argparse
import gzip
import json
import sys


def ring_time(name, size, ranks, bandwidth, latency):
    """Nanoseconds."""
    if "allreduce" in name:
        steps, part = 2 * (ranks - 1), size / ranks
    elif any(kind in name for kind in ("allgather", "reduce_scatter", "alltoall")):
        steps, part = ranks - 1, size / ranks
    elif any(kind in name for kind in ("send", "recv", "broadcast")):
        steps, part = 1, size
    else:
        sys.exit(f"error: no formula for the collective {name}")
    return round(steps * (latency + part / bandwidth) * 1e9)


def opened(path, mode):
    return gzip.open(path, mode + "t", compresslevel=1) if path.endswith(".gz") else open(path, mode)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="schema v1, .jsonl or .jsonl.gz, with device times")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--bandwidth", type=float, default=276e9, help="bytes/s per direction and GPU (default 276e9)")
    parser.add_argument("--latency", type=float, default=5e-6, help="seconds per step (default 5e-6)")
    arguments = parser.parse_args()
    times, changed, before, after = {}, 0, 0, 0
    with opened(arguments.trace, "r") as source, opened(arguments.output, "w") as target:
        for line in source:
            if '"k":"sig"' in line and '"c10d.' in line:
                record = json.loads(line)
                size, ranks, group = record["attr"][:3]
                if group != 1 and ranks > 1:
                    times[record["id"]] = ring_time(
                        record["n"], size, ranks, arguments.bandwidth, arguments.latency)
            elif '"k":"op"' in line and times:
                record = json.loads(line)
                if record["sig"] in times:
                    changed += 1
                    before += record["ns"]
                    record["ns"] = times[record["sig"]]
                    after += record["ns"]
                    line = json.dumps(record, separators=(",", ":")) + "\n"
            target.write(line)
    print(f"{arguments.output}: {changed} collectives, {before / 1e6:.1f} -> {after / 1e6:.1f} ms")


if __name__ == "__main__":
    main()
