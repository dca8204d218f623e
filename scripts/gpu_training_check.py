#!/usr/bin/env python3
"""Does the model's answer hold in PyTorch itself? Records a GPT training step on the GPU, lets swaplab choose an
activation-offload policy for a memory budget, runs that policy's decisions through saved-tensor hooks in the
same training step, and reports predicted against measured iteration time and peak memory.

Needs torch >= 2.2 with CUDA; without it the script says so and exits 77."""

import argparse
import contextlib
import gzip
import json
import os
import statistics
import subprocess
import sys
import time

EPILOG = """\
examples:
  gpu_training_check.py --swaplab build/release/swaplab --machine measured.yaml -o check.json
  gpu_training_check.py --swaplab build/release/swaplab --machine h100-pcie5 --budget 0.6x --layers 12

how decisions are carried over: the schedule of the simulated run says which storages of the recorded step's
forward pass leave, and before which later use each comes back. In the live step the n-th saved storage of a
size is the n-th one of that size in the recording, so nothing depends on names. A storage that comes back in
the simulation after the backward pass has reached saved storage j is loaded here when j is unpacked.

exit codes: 0 within the tolerances, 1 beyond them, 2 wrong usage, 3 a step failed, 77 no GPU or no torch
"""

SKIP = 77
StorageTable = untyped = None    # set by import_recorder()
CANDIDATES = ("offload-activations:preset=megatron,fallback=lru", "offload-activations:preset=torchtune,fallback=lru",
              "offload-activations:fallback=lru", "offload-activations:ahead=60,fallback=lru",
              "offload-activations:fraction=0.5,fallback=lru")


class CheckFailed(Exception):
    pass


def import_recorder():
    """Names of the recorder that need torch; before anything else here is used."""
    global StorageTable, untyped
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from recorder.storages import StorageTable, untyped


class Saved:
    """A storage that the recorded forward pass leaves for its backward pass."""

    def __init__(self, storage, size):
        self.storage, self.bytes = storage, size
        self.offload = False
        self.load_after = None    # index of the saved storage at whose unpacking its load is submitted; -1: the first


def read_lines(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def decisions(trace_path, schedule_path, iteration):
    """Saved storages of `iteration`, in the order of their creation, with what the schedule does to them."""
    sizes, created, saved_ids, reads, phase, now, ops = {}, [], set(), {}, None, None, 0
    for record in read_lines(trace_path):
        kind = record["k"]
        if kind == "mark" and record["m"] == "iter_begin":
            now = record["it"]
        elif kind == "mark" and record["m"] == "phase":
            phase = record["ph"]
        elif kind == "alloc":
            sizes[record["s"]] = record["b"]
            if now == iteration and record["src"] == "op":
                created.append(record["s"])
        elif kind == "saved" and record["it"] == iteration:
            saved_ids.update(record["s"])
        elif kind == "op":
            if now == iteration and record.get("ph", phase) == "B":
                for s in record["in"]:
                    reads.setdefault(s, ops)
            ops += 1
    saved = [Saved(s, sizes[s]) for s in created if s in saved_ids]
    index = {one.storage: i for i, one in enumerate(saved)}
    read_at = {ops_: index[s] for s, ops_ in sorted(reads.items(), key=lambda item: -index.get(item[0], 0)) if s in index}
    reached, out = -1, set()
    for entry in read_lines(schedule_path):
        if isinstance(entry, dict):
            continue
        kind, what = entry[0], entry[1]
        if kind == "op":
            reached = read_at.get(what, reached)
        elif kind == "out" and what in index:
            out.add(what)
        elif kind == "in" and what in index and what in out:
            saved[index[what]].offload = True
            saved[index[what]].load_after = reached
    return saved


class Offloader:
    """Saved-tensor hooks that carry decisions out. On a CPU copies are plain, so that all but the streams can
    be tested anywhere."""

    def __init__(self, torch, saved, keep, device):
        self.torch, self.device = torch, torch.device(device)
        self.keep = keep                       # StorageImpl addresses of parameters and others that never move
        self.by_size = {}
        for i, one in enumerate(saved):
            self.by_size.setdefault(one.bytes, []).append(i)
        self.saved = saved
        self.loads_after = {}
        for i, one in enumerate(saved):
            if one.offload:
                self.loads_after.setdefault(one.load_after, []).append(i)
        self.cuda = self.device.type == "cuda"
        self.out_stream = torch.cuda.Stream() if self.cuda else None
        self.in_stream = torch.cuda.Stream() if self.cuda else None
        self.pinned = {}                       # size -> free blocks
        self.start_step()

    def start_step(self):
        """Before every forward pass."""
        self.next_of_size = dict.fromkeys(self.by_size, 0)
        # Identity, not address: a storage that left gives its address to a later one of the same step.
        self.table, self.index_of = StorageTable(), {}
        self.blocks = {}                       # index -> Block
        self.started = False
        self.unmatched = self.bytes_out = self.bytes_in = 0

    class Block:
        def __init__(self):
            self.host = self.device = self.ready = self.left = None

    class Handle:
        """What the graph holds instead of a tensor: which storage, and which view of it."""

        def __init__(self, index, tensor):
            self.index, self.dtype = index, tensor.dtype
            self.size, self.stride, self.offset = tensor.size(), tensor.stride(), tensor.storage_offset()

    def flat(self, tensor):
        """The whole storage as bytes."""
        storage = untyped(tensor)
        view = self.torch.empty(0, dtype=self.torch.uint8, device=tensor.device)
        if hasattr(tensor, "untyped_storage"):
            return view.set_(storage, 0, (storage.nbytes(),), (1,))
        return view.set_(self.torch.storage.TypedStorage(wrap_storage=storage, dtype=self.torch.uint8), 0,
                         (storage.nbytes(),), (1,))

    def pack(self, tensor):
        if tensor.device.type != self.device.type:
            return tensor
        storage = untyped(tensor)
        size = storage.nbytes()
        if storage._cdata in self.keep or size == 0:
            return tensor
        known = self.table.find(storage)
        index = self.index_of.get(known)
        if known is None:
            queue, position = self.by_size.get(size, ()), self.next_of_size.get(size, 0)
            if position >= len(queue):
                self.unmatched += 1
                return tensor
            self.next_of_size[size] = position + 1
            index = self.index_of[self.table.add(storage)] = queue[position]
            if self.saved[index].offload:
                self.blocks[index] = self.copy_out(tensor)
        return self.Handle(index, tensor) if index in self.blocks else (index, tensor)

    def copy_out(self, tensor):
        block = self.Block()
        source = self.flat(tensor)
        self.bytes_out += source.numel()
        free = self.pinned.setdefault(source.numel(), [])
        block.host = free.pop() if free else self.torch.empty(source.numel(), dtype=self.torch.uint8, pin_memory=self.cuda)
        if not self.cuda:
            block.host.copy_(source)
            return block
        self.out_stream.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(self.out_stream):
            block.host.copy_(source, non_blocking=True)
            block.left = self.torch.cuda.Event()
            block.left.record()
        source.record_stream(self.out_stream)  # its bytes are free once the copy is done
        return block

    def load(self, index):
        block = self.blocks.get(index)
        if block is None or block.device is not None:
            return
        self.bytes_in += block.host.numel()
        if not self.cuda:
            block.device = block.host.clone()
            return
        block.device = self.torch.empty(block.host.numel(), dtype=self.torch.uint8, device=self.device)
        self.in_stream.wait_stream(self.torch.cuda.current_stream())  # the bytes' last users
        self.in_stream.wait_event(block.left)
        with self.torch.cuda.stream(self.in_stream):
            block.device.copy_(block.host, non_blocking=True)
            block.ready = self.torch.cuda.Event()
            block.ready.record()
        block.device.record_stream(self.in_stream)

    def unpack(self, packed):
        if isinstance(packed, self.torch.Tensor):
            return packed
        index = packed.index if isinstance(packed, self.Handle) else packed[0]
        if not self.started:
            self.started = True
            for other in self.loads_after.get(-1, ()):
                self.load(other)
        for other in self.loads_after.get(index, ()):
            self.load(other)
        if not isinstance(packed, self.Handle):
            return packed[1]
        self.load(index)
        block = self.blocks[index]
        if self.cuda:
            self.torch.cuda.current_stream().wait_event(block.ready)
        tensor = self.torch.empty(0, dtype=packed.dtype, device=self.device)
        if hasattr(block.device, "untyped_storage"):
            return tensor.set_(block.device.untyped_storage(), packed.offset, packed.size, packed.stride)
        wrapped = self.torch.storage.TypedStorage(wrap_storage=block.device.storage()._storage, dtype=packed.dtype)
        return tensor.set_(wrapped, packed.offset, packed.size, packed.stride)

    def end_step(self):
        """After every backward pass: pinned blocks go back to the pool, device copies go."""
        for block in self.blocks.values():
            self.pinned[block.host.numel()].append(block.host)
        self.blocks = {}
        self.table.collect()

    def hooks(self):
        return self.torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CheckFailed(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def simulate(o, trace, schedule):
    """The fastest candidate that fits, its predicted figures, and those without a budget."""
    common = [o.swaplab, "run", "--trace", trace, "--machine", o.machine, "--json"]
    free = json.loads(run(*common, "--policy", "none", "--budget", "inf"))["results"][0]
    best = None
    for candidate in CANDIDATES:
        result = json.loads(run(*common, "--policy", candidate, "--budget", o.budget))["results"][0]
        if result["outcome"] == "ok" and (best is None or result["steady_total_ns"] < best[1]["steady_total_ns"]):
            best = (candidate, result)
    if best is None:
        raise CheckFailed(f"no candidate fits a budget of {o.budget}")
    run(*common, "--policy", best[0], "--budget", o.budget, "--schedule", schedule)
    return best[0], best[1], free


def kept_storages(model):
    """Storages of parameters and buffers, which stay on the device."""
    return {untyped(t)._cdata for t in (*model.parameters(), *model.buffers())}


def per_iteration(result):
    return result["steady_total_ns"] / result["metrics"]["steady_iterations"]


def measure(torch, step, loop, iterations, offloader):
    """Median iteration time in ns and peak allocated bytes, after two iterations of warm-up."""
    times = []
    for i in range(iterations + 2):
        if i == 2:
            torch.cuda.reset_peak_memory_stats()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        with offloader.hooks() if offloader else contextlib.nullcontext():
            if offloader:
                offloader.start_step()
            step(loop)
            if offloader:
                offloader.end_step()
        end.record()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end) * 1e6)
    return statistics.median(times), torch.cuda.max_memory_allocated(), times


def check(o, torch):
    here = os.path.dirname(os.path.abspath(__file__))
    os.makedirs(o.work, exist_ok=True)
    trace, schedule = os.path.join(o.work, "training.jsonl.gz"), os.path.join(o.work, "schedule.jsonl")
    model_options = ["--layers", str(o.layers), "--d-model", str(o.d_model), "--heads", str(o.heads), "--seq-lens",
                     str(o.seq), "--batch", str(o.batch), "--dtype", "bf16", "--optimizer", "adamw-foreach"]
    run(sys.executable, os.path.join(here, "record_torch.py"), "gpt", "--device", "cuda:0", "--iterations", "4",
        *model_options, "-o", trace)
    policy, predicted, free = simulate(o, trace, schedule)
    saved = decisions(trace, schedule, iteration=2)

    import record_torch
    from recorder.session import Loop, NullRecorder
    options = record_torch.make_parser().parse_args(["gpt", "--device", "cuda:0", *model_options, "-o", trace])
    record_torch.settle(options)
    torch.manual_seed(0)
    model, optimizer, step = record_torch.builder(options)()
    loop = Loop(NullRecorder())
    base_time, base_peak, base_times = measure(torch, step, loop, o.iterations, None)
    offloader = Offloader(torch, saved, kept_storages(model), "cuda:0")
    off_time, off_peak, off_times = measure(torch, step, loop, o.iterations, offloader)
    metrics, free_metrics = predicted["metrics"], free["metrics"]
    report = {
        "schema": "swaplab/training-check@1",
        "device": torch.cuda.get_device_name(0), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"),
        "machine": o.machine, "policy": policy, "budget": o.budget,
        "saved_storages": len(saved), "offloaded": sum(s.offload for s in saved),
        "offloaded_bytes": sum(s.bytes for s in saved if s.offload),
        "moved_out_bytes": offloader.bytes_out, "moved_in_bytes": offloader.bytes_in,
        "storages_without_decision": offloader.unmatched,
        "plain": {"predicted_ns": per_iteration(free), "measured_ns": base_time, "samples_ns": base_times,
                  "predicted_peak_bytes": free_metrics["peak_allocated_bytes"], "measured_peak_bytes": base_peak},
        "offload": {"predicted_ns": per_iteration(predicted), "measured_ns": off_time, "samples_ns": off_times,
                    "predicted_peak_bytes": metrics["peak_allocated_bytes"], "measured_peak_bytes": off_peak},
    }
    for case in ("plain", "offload"):
        one = report[case]
        one["time_error"] = one["predicted_ns"] / one["measured_ns"] - 1
        one["peak_error"] = one["predicted_peak_bytes"] / one["measured_peak_bytes"] - 1
    report["within_tolerance"] = all(abs(report[c]["time_error"]) <= o.time_tolerance and
                                     abs(report[c]["peak_error"]) <= o.peak_tolerance for c in ("plain", "offload"))
    return report


def print_report(report):
    print(f"{report['device']}, torch {report['torch']}; {report['policy']} at {report['budget']}: "
          f"{report['offloaded']} of {report['saved_storages']} saved storages leave, "
          f"{report['moved_out_bytes'] / 2**20:.1f} MiB out and {report['moved_in_bytes'] / 2**20:.1f} MiB in per iteration")
    for case in ("plain", "offload"):
        one = report[case]
        print(f"  {case:8} predicted {one['predicted_ns'] / 1e6:9.2f} ms, measured {one['measured_ns'] / 1e6:9.2f} ms "
              f"({one['time_error']:+.1%}); peak predicted {one['predicted_peak_bytes'] / 2**20:9.1f} MiB, "
              f"measured {one['measured_peak_bytes'] / 2**20:9.1f} MiB ({one['peak_error']:+.1%})")


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--swaplab", default="build/release/swaplab", help="the program (default build/release/swaplab)")
    p.add_argument("--machine", default="h100-pcie5", help="profile, best a calibrated one")
    p.add_argument("--budget", default="0.7x", help="device memory, as in swaplab run (default 0.7x)")
    p.add_argument("--work", default="training_check", help="folder for the trace and the schedule")
    p.add_argument("-o", "--output", help="write the report as JSON")
    p.add_argument("--iterations", type=int, default=10, help="measured iterations (default 10)")
    for name, value in (("layers", 12), ("d-model", 1024), ("heads", 16), ("seq", 1024), ("batch", 8)):
        p.add_argument(f"--{name}", type=int, default=value, help=f"of the GPT (default {value})")
    p.add_argument("--time-tolerance", type=float, default=0.08, help="of iteration time (default 0.08)")
    p.add_argument("--peak-tolerance", type=float, default=0.03, help="of peak memory (default 0.03)")
    o = p.parse_args(argv)
    try:
        import torch
    except ImportError:
        print("skipped: this Python has no torch")
        return SKIP
    version = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])
    if not torch.cuda.is_available():
        print(f"skipped: torch {torch.__version__} finds no CUDA GPU")
        return SKIP
    if version < (2, 2):
        print(f"skipped: torch {torch.__version__} is older than 2.2")
        return SKIP
    import_recorder()
    try:
        report = check(o, torch)
    except CheckFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    if o.output:
        with open(o.output + ".tmp", "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
        os.replace(o.output + ".tmp", o.output)
    print_report(report)
    if not report["within_tolerance"]:
        print(f"beyond the tolerances ({o.time_tolerance:.0%} time, {o.peak_tolerance:.0%} peak)")
    return 0 if report["within_tolerance"] else 1


if __name__ == "__main__":
    sys.exit(main())
