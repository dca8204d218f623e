"""Device times of a CUDA recording: the same program again without the recording mode, under torch.profiler.

The dispatch mode slows the host by 100 us and more per operator, so a recorded run starves the GPU and
its gaps mean nothing. The profiled run gives kernel durations; they are joined to the recorded operators
by order: both runs issue the same ATen calls, the profile only nests some of them in others.
"""

import bisect
import json
import os
import tempfile

from . import RecorderError
from .schema import AtomicFile, open_text

# Profile entries that may lie between two recorded operators; more means that the runs differ.
_WINDOW = 400
# Differentiable forms that appear only under a dispatch mode, and what runs without one.
_ALIASES = {"aten::index_put": ("aten::_index_put_impl_",), "aten::_unsafe_index_put": ("aten::_index_put_impl_",)}
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")


def read_chrome_trace(events):
    """Chrome trace events -> operators [(name, start, end, [(kernel ns, stream)])] in start order, in ns.

    Kernels belong to the innermost operator that launched them, by Kineto's External id.
    """
    operators, by_id = [], {}
    for e in events:
        if e.get("ph") == "X" and e.get("cat") == "cpu_op":
            start = round(e["ts"] * 1000)
            entry = (e["name"], start, start + round(e["dur"] * 1000), [])
            operators.append(entry)
            by_id[e.get("args", {}).get("External id")] = entry
    for e in events:
        if e.get("ph") == "X" and e.get("cat") in _KERNELS:
            args = e.get("args", {})
            owner = by_id.get(args.get("External id"))
            if owner is not None:
                owner[3].append((round(e["dur"] * 1000), args.get("stream", 0)))
    operators.sort(key=lambda o: (o[1], -o[2]))
    return operators


def _profile_name(recorded):
    """aten.addmm.default -> aten::addmm"""
    return "::".join(recorded.split(".")[:2])


def join(recorded, operators):
    """Per recorded operator its times (dict of ns, hns, gap, st), matched in order, all or error.

    recorded: (name, is a view) in program order. operators: read_chrome_trace(). A matched operator owns the
    kernels of everything nested in it; composite calls (aten::linear) match nothing and are passed. Views
    launch nothing and get ns 0 only: some (autograd's own detach) exist under a dispatch mode alone. Their
    host time is part of the next operator's gap. Autograd sums in place where no mode is active, so
    add may be add_ in the profile.
    """
    starts = [o[1] for o in operators]
    streams = {}
    joined = []
    at, previous_end = 0, None
    for i, (name, view) in enumerate(recorded):
        if view:
            joined.append({"ns": 0})
            continue
        wanted = _profile_name(name)
        names = (wanted, wanted + "_", *_ALIASES.get(wanted, ()))
        j, stop = at, min(len(operators), at + _WINDOW)
        while j < stop and operators[j][0] not in names:
            j += 1
        if j == stop:
            raise RecorderError(f"cannot join the profile: recorded operator {i} ({name}) does not follow in it; "
                                "the two runs differ (data-dependent or unseeded program?), record with --times none")
        _, start, end, _ = operators[j]
        at = bisect.bisect_left(starts, end, j + 1)
        kernels = [k for o in operators[j:at] if o[2] <= end for k in o[3]]
        times = {"ns": sum(ns for ns, _ in kernels), "hns": end - start,
                 "gap": max(0, start - previous_end) if previous_end is not None else 0}
        stream = streams.setdefault(kernels[0][1], len(streams)) if kernels else 0
        if stream:
            times["st"] = stream
        joined.append(times)
        previous_end = end
    return joined


def rewrite(source, sink, joined):
    """Copies the trace at path `source` into `sink` with ns, hns, gap and st of each operator."""
    with open_text(source) as lines:
        for text in lines:
            rec = json.loads(text)
            if rec["k"] == "op":
                rec.update(joined[rec["i"]])
            sink.write(rec)


def profile(o, build, kinds):
    """Runs the program of `build` under the profiler; returns its Chrome trace events."""
    import torch
    from torch.profiler import ProfilerActivity

    from .session import Loop, NullRecorder, garbage_collection_off
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if o.device.startswith("cuda") else [])
    torch.manual_seed(o.seed)
    _, _, step = build()
    loop = Loop(NullRecorder())
    with garbage_collection_off(), torch.profiler.profile(activities=activities) as prof:
        for loop.it, loop.kind in enumerate(kinds):
            step(loop)
        if o.device.startswith("cuda"):
            torch.cuda.synchronize()
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        prof.export_chrome_trace(path)
        with open(path, encoding="utf-8") as f:
            return json.load(f)["traceEvents"]
    finally:
        os.unlink(path)


def add(sink, o, build, kinds, recorded):
    """Returns a finished sink like `sink` (closed, discarded here) with the times of a second, profiled run."""
    joined = join(recorded, read_chrome_trace(profile(o, build, kinds)))
    timed = AtomicFile(o.output, ".timed")
    try:
        rewrite(sink.temp, timed, joined)
        timed.close()
    except BaseException:
        timed.discard()
        raise
    sink.discard()
    return timed
