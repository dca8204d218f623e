#!/usr/bin/env python3
"""Writes a PyTorch profiler trace of a made-up training run, as long as asked for, to test importers at sizes
that nobody would keep in a repository. Same arguments, same bytes.

  scripts/generate_kineto.py --bytes 2200000000 -o /tmp/large.json
  scripts/measure_import.sh /tmp/large.json
"""
import argparse
import sys

START_US = 1700000000000000
LAYERS = 200
MEMORY_BASE = 0x7F0000000000


def operator(events, clock, number, name, backward):
    """An operator of 60 us with its launch and its kernel, 20 us later on the device."""
    place = f'"pid": 4242, "tid": {4301 if backward else 4242}'
    nested = "autograd::engine::evaluate_function: AddmmBackward0" if backward else "aten::linear"
    events.append(
        f'{{"ph": "X", "cat": "cpu_op", "name": "{nested}", {place}, "ts": {clock}.250, "dur": 60.500, "args": '
        f'{{"External id": {number}, "Record function id": {number}, "Sequence number": {number % 100000}, '
        f'"Fwd thread id": {1 if backward else 0}, "Ev Idx": {number}, "Input Dims": [[64, 1024], [1024, 1024]], '
        '"Input type": ["float", "float"]}}')
    events.append(
        f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", {place}, "ts": {clock + 5}.125, "dur": 50.250, "args": '
        f'{{"External id": {number + 1}, "Ev Idx": {number + 1}, "Input Dims": [[64, 1024], [1024, 1024]], '
        '"Input type": ["float", "float"]}}')
    events.append(
        f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {place}, "ts": {clock + 10}, "dur": 7.5, '
        f'"args": {{"cbid": 211, "External id": {number + 1}, "correlation": {number + 1}}}}}')
    events.append(
        f'{{"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_tn", "pid": 0, "tid": 7, "ts": {clock + 30}.001, '
        f'"dur": 40.125, "args": {{"External id": {number + 1}, "queued": 0, "device": 0, "context": 1, "stream": 7, '
        f'"correlation": {number + 1}, "registers per thread": 122, "grid": [16, 8, 1], "block": [128, 1, 1]}}}}')


def memory(events, clock, number, address, size, total, backward):
    events.append(
        f'{{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 4242, "tid": '
        f'{4301 if backward else 4242}, "ts": {clock}.500, "args": {{"Total Reserved": 34359738368, "Total '
        f'Allocated": {total}, "Bytes": {size}, "Addr": {address}, "Device Id": 0, "Device Type": 1, "Ev Idx": '
        f'{number}}}}}')


def step(index, clock, number):
    """The events of one iteration; returns them with the next time and the next number."""
    events, begin, total = [], clock, 4 << 30
    for layer in range(LAYERS):
        size = 262144 * (1 + layer % 7)
        operator(events, clock, number, "aten::addmm", False)
        total += size
        memory(events, clock + 6, number + 2, MEMORY_BASE + layer * 0x400000, size, total, False)
        clock, number = clock + 70, number + 3
    for layer in reversed(range(LAYERS)):
        size = 262144 * (1 + layer % 7)
        operator(events, clock, number, "aten::mm", True)
        total -= size
        memory(events, clock + 70, number + 2, MEMORY_BASE + layer * 0x400000, -size, total, True)
        clock, number = clock + 80, number + 3
    events.insert(0, f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{index}", "pid": 4242, "tid": '
                     f'4242, "ts": {begin}, "dur": {clock - begin}, "args": {{}}}}')
    return events, clock + 10, number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=54_000_000, help="length of the file, at least (default 54 MB)")
    parser.add_argument("-o", "--output", required=True, help="file to write")
    arguments = parser.parse_args()
    clock, number, index, written = START_US, 1, 0, 0
    with open(arguments.output, "w", encoding="ascii") as out:
        written += out.write('{\n"schemaVersion": 1,\n"traceEvents": [\n')
        while written < arguments.bytes:
            events, clock, number = step(index, clock, number)
            written += out.write(("" if index == 0 else ",\n") + ",\n".join(events))
            index += 1
        out.write("\n]}\n")
    print(f"{arguments.output}: {index} iterations", file=sys.stderr)


if __name__ == "__main__":
    main()
