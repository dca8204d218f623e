#!/usr/bin/env bash
# Time, peak memory and rate of `swaplab trace import` on files: scripts/measure_import.sh FILE...
# SWAPLAB names the program (default: build/release/swaplab).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
/usr/bin/python3 - "${SWAPLAB:-$here/build/release/swaplab}" "$@" <<'PYTHON'
import gzip
import json
import os
import subprocess
import sys
import time

print(f"{'file':44} {'MB of text':>10} {'events':>10} {'wall s':>8} {'cpu s':>8} {'MB/s':>7} {'peak RSS MB':>12}")
for path in sys.argv[2:]:
    size = 0
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as text:
        while part := text.read(1 << 24):
            size += len(part)
    begin = time.monotonic()
    child = subprocess.Popen([sys.argv[1], "trace", "import", "--json", path], stdout=subprocess.PIPE)
    report = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.monotonic() - begin
    if status != 0:
        sys.exit(f"error: {path} was refused")
    events = json.loads(report)["found"].get("events", 0)
    cpu = usage.ru_utime + usage.ru_stime
    print(f"{os.path.basename(path):44} {size / 1e6:10.1f} {events:10} {wall:8.2f} {cpu:8.2f} {size / 1e6 / cpu:7.0f} "
          f"{usage.ru_maxrss / 1024:12.1f}")
PYTHON
