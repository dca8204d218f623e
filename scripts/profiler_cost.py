#!/usr/bin/env python3
"""What profiling costs per operator: PyTorch's own profiler and two minimal ones, on the bundled GPT on the CPU.

Runs training iterations of the GPT of scripts/recorder (small enough that the host is what takes the time)
without a profiler and with each of them in turn, interleaved in random order, and prints the difference per
operator: median over the repetitions, and the quartiles. "Running" is the cost while operators run, "results"
what the profiler takes at its end to hand over its events (an online system would need that too). The two minimal profilers are Python dispatch hooks,
so most of their cost is that of entering Python; the C++ hooks of a system pay only what bench_chameleon shows.

Without torch it says so and ends with status 77.

examples:
  /usr/bin/python3 scripts/profiler_cost.py
  /usr/bin/python3 scripts/profiler_cost.py --repeats 3 --iterations 2 --json
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time
from contextlib import nullcontext

try:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:
    print("skipped: no torch here (Debian: apt-get install python3-torch; run with /usr/bin/python3)")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from recorder import models  # noqa: E402


class Count(TorchDispatchMode):
    """Counts dispatched operators."""

    def __init__(self):
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators += 1
        return func(*args, **(kwargs or {}))


class Names(TorchDispatchMode):
    """The lightweight mode's data: an iteration as a sequence of integers, one per operator name."""

    def __init__(self):
        super().__init__()
        self.ids, self.sequence = {}, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.sequence.append(self.ids.setdefault(func, len(self.ids)))
        return func(*args, **(kwargs or {}))


class Operands(Names):
    """The detailed mode's data: operators with their tensors' storages and sizes."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [t for t in (*args, result) if isinstance(t, torch.Tensor)]
        self.sequence.append(
            (self.ids.setdefault(func, len(self.ids)), [(t.data_ptr(), t.numel() * t.element_size(), t.dtype) for t in tensors]))
        return result


def torch_profiler(**options):
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)


MODES = {
    "none": nullcontext,
    "names only (Python hook)": Names,
    "operands (Python hook)": Operands,
    "torch.profiler": torch_profiler,
    "torch.profiler, shapes and memory": lambda: torch_profiler(record_shapes=True, profile_memory=True),
    "torch.profiler, shapes, memory, stacks":
        lambda: torch_profiler(record_shapes=True, profile_memory=True, with_stack=True),
}


def build(arguments):
    """One training iteration as a function."""
    torch.manual_seed(0)
    o = argparse.Namespace(d_model=arguments.width, heads=4, attention="explicit", dropout=0.0)
    d = o.d_model
    blocks = [torch.nn.ModuleList([torch.nn.LayerNorm(d), models.Attention(o), torch.nn.LayerNorm(d),
                                   models.MLP(d, 4 * d)]) for _ in range(arguments.layers)]
    parts = torch.nn.ModuleList([torch.nn.Embedding(1024, d), torch.nn.Linear(d, 1024, bias=False), *blocks])
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-3, foreach=False)
    data = torch.randint(1024, (arguments.batch, arguments.sequence + 1))

    def iteration():
        x = parts[0](data[:, :-1])
        for first, attention, second, mlp in parts[2:]:
            x = x + attention(first(x))
            x = x + mlp(second(x))
        loss = torch.nn.functional.cross_entropy(parts[1](x).flatten(0, 1), data[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return iteration


def measure(arguments):
    torch.set_num_threads(1)
    iteration = build(arguments)
    iteration()  # makes the optimizer's state
    with Count() as counter:
        iteration()
    times = {name: [] for name in MODES}
    ends = {name: [] for name in MODES}
    order = random.Random(1)
    for repeat in range(arguments.repeats + 1):
        names = list(MODES)
        order.shuffle(names)
        for name in names:
            operators = arguments.iterations * counter.operators
            with MODES[name]():
                begin = time.process_time_ns()
                for _ in range(arguments.iterations):
                    iteration()
                ran = time.process_time_ns()
            ended = time.process_time_ns()
            if repeat > 0:  # the first round warms up
                times[name].append((ran - begin) / operators)
                ends[name].append((ended - ran) / operators)
    plain = statistics.median(times["none"])
    rows = []
    for name, values in times.items():
        extra = sorted(v - plain for v in values)
        low, middle, high = (extra[int(q * (len(extra) - 1) + 0.5)] for q in (0.25, 0.5, 0.75))
        rows.append({"profiler": name, "extra_ns": round(middle), "low_ns": round(low), "high_ns": round(high),
                     "overhead_percent": round(100 * middle / plain, 1),
                     "results_ns": round(statistics.median(ends[name]))})
    return {"torch": torch.__version__, "operators_per_iteration": counter.operators,
            "plain_ns_per_operator": round(plain), "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=5, help="per measurement")
    parser.add_argument("--repeats", type=int, default=9, help="measurements of each profiler")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    arguments = parser.parse_args()
    result = measure(arguments)
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    print(f"torch {result['torch']}, one thread, {result['operators_per_iteration']} operators per iteration, "
          f"{result['plain_ns_per_operator']} ns of CPU time each without a profiler")
    print(f"{'profiler':40} {'running, ns/op':>16} {'quartiles':>18} {'overhead':>9} {'results, ns/op':>15}")
    for row in result["rows"][1:]:
        print(f"{row['profiler']:40} {row['extra_ns']:16,} {row['low_ns']:8,} - {row['high_ns']:,} "
              f"{row['overhead_percent']:8.1f}% {row['results_ns']:15,}")


if __name__ == "__main__":
    main()
