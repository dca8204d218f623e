#!/usr/bin/env python3
"""Runs clang-tidy on every source of a compilation database; called by scripts/lint.sh.

    clang_tidy.py BUILD_FOLDER [FILE...]    FILE: only these, relative to the repository

A file that was clean is not looked at again until it, a header of ours that it includes, its flags, the
configuration or clang-tidy change: BUILD_FOLDER/lint holds one empty file per clean state.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("trace", "sim", "policy", "gpu_validate", "experiments")
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def with_headers(source, build):
    """The source and all headers of ours that it includes, directly or not."""
    seen, waiting = set(), [source]
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for name in INCLUDE.findall(path.read_bytes()):
            name = name.decode()
            waiting += [ROOT / name, path.parent / name, *build.glob(f"*/*/generated/{name}")]
    return sorted(seen)


def state_of(entry, source, build, common):
    digest = hashlib.sha256(common)
    digest.update(entry["command"].replace(str(ROOT), "").encode())
    for path in with_headers(source, build):
        digest.update(os.path.relpath(path, ROOT).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def main():
    build, only = pathlib.Path(sys.argv[1]).resolve(), {(ROOT / name).resolve() for name in sys.argv[2:]}
    common = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    common += (ROOT / ".clang-tidy").read_bytes()
    clean = build / "lint"
    clean.mkdir(exist_ok=True)
    work = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        inside = source.is_relative_to(ROOT) and source.relative_to(ROOT).parts[0] in FOLDERS
        if inside and source.suffix == ".cpp" and (not only or source in only):
            work[source] = clean / state_of(entry, source, build, common)
    missing = sorted(str(path) for path in only - set(work))
    if missing:
        sys.exit(f"error: not in {build / 'compile_commands.json'}: {', '.join(missing)}")
    waiting = [source for source in sorted(work) if not work[source].exists()]
    print(f"clang-tidy: {len(work)} files, {len(work) - len(waiting)} unchanged since they were clean", flush=True)

    def check(source):
        return subprocess.run(["clang-tidy", "-p", str(build), "--quiet", str(source)], capture_output=True, text=True,
                              errors="replace", check=False)

    begin, bad = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for source, done in zip(waiting, pool.map(check, waiting)):
            if done.returncode == 0:
                work[source].touch()
            else:
                bad += 1
                print(done.stdout.strip() or done.stderr.strip(), flush=True)
    print(f"clang-tidy: {len(waiting)} files in {time.monotonic() - begin:.0f} s, "
          + (f"{bad} with findings" if bad else "ok"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
