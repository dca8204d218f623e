"""Timelines as Perfetto reads them.

usage: test_timeline.py PROGRAM SOURCE_FOLDER. Decodes a .pftrace with Perfetto's own published protos (Python
package `perfetto`, in PYTHONPATH or installed; skipped with a reason without it) and the Chrome JSON, and checks
tracks, slices, flows and sums.
"""

import json
import os
import subprocess
import sys
import tempfile
import types


def perfetto_protos():
    """Perfetto's generated module, or None and the reason."""
    try:
        import google.protobuf
    except ImportError:
        return None, "python3-protobuf is not installed"
    try:
        from google.protobuf import runtime_version  # noqa: F401
    except ImportError:
        # The package is generated for a newer protobuf and only asks it for its version.
        module = types.ModuleType("google.protobuf.runtime_version")
        module.Domain = types.SimpleNamespace(PUBLIC=0)
        module.ValidateProtobufRuntimeVersion = lambda *arguments: None
        sys.modules["google.protobuf.runtime_version"] = module
        google.protobuf.runtime_version = module
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        return None, f"Perfetto's protos are not there ({error}); pip install perfetto"
    return perfetto_trace_pb2, ""


def check_perfetto(pb, path, summary):
    trace = pb.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    assert not trace.UnknownFields() if hasattr(trace, "UnknownFields") else True
    tracks, counters, open_slices, slices, flows = {}, {}, {}, [], {}
    last = 0
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            tracks[descriptor.uuid] = descriptor
            continue
        event = packet.track_event
        assert packet.timestamp >= last, "packets are in time order"
        last = packet.timestamp
        track = tracks[event.track_uuid]
        for number in list(event.flow_ids) + list(event.terminating_flow_ids):
            flows.setdefault(number, []).append((packet.timestamp, track.name))
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in open_slices, "slices of a track do not overlap"
            open_slices[event.track_uuid] = (packet.timestamp, event.name, event)
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            begin, name, first = open_slices.pop(event.track_uuid)
            slices.append((track.name, name, begin, packet.timestamp, first))
        elif event.type == pb.TrackEvent.TYPE_COUNTER:
            assert track.counter.unit == pb.CounterDescriptor.UNIT_SIZE_BYTES
            assert event.counter_value >= 0
            counters.setdefault(track.name, []).append((packet.timestamp, event.counter_value))
    assert not open_slices
    names = {t.name for t in tracks.values()}
    for wanted in ("host decisions", "compute stream 0", "copies to the host (D2H)", "copies to the device (H2D)",
                   "stalls", "device bytes (program order)"):
        assert wanted in names, wanted
    sums = {}
    for track, name, begin, end, _ in slices:
        if track == "stalls":
            sums[name] = sums.get(name, 0) + end - begin
    for key, value in summary.items():
        if key.startswith("stall_"):
            name = key[len("stall_"):-len("_ns")]
            assert sums.get(name, 0) == value, f"{name}: slices {sums.get(name, 0)} ns, run {value} ns"
    busy = sum(end - begin for track, _, begin, end, _ in slices if track == "compute stream 0")
    assert busy == summary["compute_busy_ns"], "one stream: its slices are the busy time"
    assert busy + sum(sums.values()) == summary["total_ns"]
    moved = {}
    for track, _, _, _, event in slices:
        if track.startswith("copies"):
            arguments = {a.name: a.int_value for a in event.debug_annotations}
            moved[track] = moved.get(track, 0) + arguments["bytes"]
    assert counters["bytes copied to the host"][-1][1] == moved["copies to the host (D2H)"]
    assert counters["bytes copied to the device"][-1][1] == moved["copies to the device (H2D)"]
    whole = sum(1 for steps in flows.values() if len(steps) >= 2 and steps[0][1] == "host decisions"
                and steps[1][1].startswith("copies"))
    assert whole == len(flows) > 0, "every flow begins with a decision and goes to its copy"
    to_stalls = sum(1 for steps in flows.values() if any(track == "stalls" for _, track in steps))
    assert to_stalls > 0
    return len(trace.packet), len(slices), len(flows), to_stalls


def check_chrome(path, summary):
    with open(path, encoding="utf-8") as file:
        trace = json.load(file, parse_float=lambda text: int(text.replace(".", "")))  # us.nnn -> ns
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    sums = {}
    for event in events:
        if event["ph"] == "X" and names[event["tid"]] == "stalls":
            sums[event["name"]] = sums.get(event["name"], 0) + event["dur"]
    for key, value in summary.items():
        if key.startswith("stall_"):
            assert sums.get(key[len("stall_"):-len("_ns")], 0) == value, key
    starts = {e["id"] for e in events if e["ph"] == "s"}
    assert all(e["id"] in starts for e in events if e["ph"] in "tf")
    return len(events)


def main():
    program, source = sys.argv[1], sys.argv[2]
    pb, reason = perfetto_protos()
    with tempfile.TemporaryDirectory(prefix="swaplab-timeline-") as folder:
        for policy in ("lru", "offload-activations:fallback=lru"):
            arguments = ["--trace", os.path.join(source, "configs/traces/gpt_small.jsonl.gz"), "--policy", policy,
                         "--budget", "0.6x", "--machine", "a100-40g-pcie4", "--json"]
            for name in ("run.pftrace", "run.json"):
                path = os.path.join(folder, name)
                out = subprocess.run([program, "timeline", *arguments, "-o", path], check=True, capture_output=True)
                summary = json.loads(out.stdout)
                if name == "run.json":
                    print(f"{policy}: Chrome JSON, {check_chrome(path, summary)} events")
                elif pb is not None:
                    packets, slices, flows, stalls = check_perfetto(pb, path, summary)
                    print(f"{policy}: {packets} packets, {slices} slices, {flows} flows ({stalls} to a stall); "
                          "stall slices add up")
    if pb is None:
        print("skip: " + reason)
        sys.exit(77)


main()
