"""Replay check of schema v1: liveness, order, marks and the integrity line. Needs no torch.

Run as a program it checks files:  python3 -m recorder.check FILE...
"""

import json
import sys
from dataclasses import dataclass, field

from . import RecorderError
from .schema import VERSION, open_text

PHASES = ("I", "Z", "D", "F", "B", "R", "O", "E")
CLASSES = ("param", "grad", "opt", "buffer", "data")
SYNCS = ("item", "shape", "d2h", "explicit")


@dataclass
class Summary:
    """What a valid trace holds. Bytes in B, times in ns, FLOP as in the file."""
    header: dict = field(default_factory=dict)
    ops: int = 0
    storages: int = 0
    peak: int = 0
    peak_phase: str = ""          # phase of the operator that was running (or next) at the peak
    live: int = 0
    timed_ops: int = 0
    device_ns: int = 0
    flop: int = 0
    events: int = 0
    iterations: list = field(default_factory=list)   # {it, kind, ops, phases, live, live_unnamed (untagged), flop, skipped}
    peak_bytes_by_class: dict = field(default_factory=dict)
    saved_bytes_at_peak: int = 0  # created in F, read in B of the same iteration, live at the peak


class _Replay:
    def __init__(self, name):
        self.name = name
        self.line = 0
        self.sum = Summary()
        self.live = {}            # storage id -> bytes
        self.seen = set()
        self.sigs = {}
        self.pending = set()      # outputs allocated for the next operator
        self.live_bytes = 0
        self.iteration = None
        self.micro = None
        self.born = {}            # storage id -> phase of the operator that made it
        self.read_in_backward = set()
        self.tags = {}
        self.peak_set = ()
        self.ended = False

    def fail(self, text):
        raise RecorderError(f"{self.name}:{self.line}: {text}")

    def integer(self, rec, key, low=0):
        v = rec.get(key)
        if type(v) is not int or v < low or v >= 1 << 63:
            self.fail(f"'{rec.get('k')}' needs '{key}' as an integer >= {low}, found {v!r}")
        return v

    def living(self, s, what):
        if s not in self.live:
            self.fail(f"{what} storage {s}, which " + ("was freed before" if s in self.seen else "was never allocated"))

    def note_peak(self, phase):
        if self.live_bytes > self.sum.peak:
            self.sum.peak = self.live_bytes
            self.sum.peak_phase = phase
            self.peak_set = None   # taken lazily at the next operator
    # One method per kind of line.

    def on_hdr(self, rec):
        self.fail("a second 'hdr' line")

    def on_sig(self, rec):
        i = self.integer(rec, "id")
        if i in self.sigs:
            self.fail(f"signature {i} is defined twice")
        if not isinstance(rec.get("n"), str) or not rec["n"]:
            self.fail(f"signature {i} has no name 'n'")
        if rec.get("view") not in (0, 1):
            self.fail(f"signature {i}: 'view' must be 0 or 1, found {rec.get('view')!r}")
        for key in ("flop", "rb", "wb", "scr"):
            if key in rec:
                self.integer(rec, key)
        for side in ("in", "out"):
            for entry in rec.get(side, ()):
                if len(entry) != 2 or not all(type(d) is int and d >= 0 for d in entry[0]):
                    self.fail(f"signature {i}: '{side}' must list [[shape],dtype], found {entry!r}")
        if rec["view"] and any(rec.get(k, 0) for k in ("flop", "rb", "wb")):
            self.fail(f"signature {i} is a view, its flop, rb and wb must be 0")
        self.sigs[i] = rec

    def on_alloc(self, rec):
        s, b = self.integer(rec, "s"), self.integer(rec, "b")
        if s in self.seen:
            self.fail(f"storage id {s} is allocated twice; ids are never reused")
        if rec.get("src") not in ("op", "ext"):
            self.fail(f"storage {s}: 'src' must be \"op\" or \"ext\", found {rec.get('src')!r}")
        self.seen.add(s)
        self.live[s] = b
        self.live_bytes += b
        if rec["src"] == "op":
            self.pending.add(s)
        self.note_peak("")

    def on_op(self, rec):
        i = self.integer(rec, "i")
        if i != self.sum.ops:
            self.fail(f"operator index {i}, expected {self.sum.ops}")
        sig = self.sigs.get(self.integer(rec, "sig"))
        if sig is None:
            self.fail(f"operator {i} uses signature {rec['sig']}, which is not defined above")
        phase = rec.get("ph")
        if phase not in PHASES:
            self.fail(f"operator {i}: unknown phase {phase!r}, expected one of {' '.join(PHASES)}")
        ins, outs, writes = rec.get("in", []), rec.get("out", []), rec.get("wr", [])
        for s in ins:
            self.living(s, f"operator {i} ({sig['n']}) reads")
            if s in self.pending:
                self.fail(f"operator {i} ({sig['n']}) reads storage {s}, which it only makes")
        for s in outs:
            self.living(s, f"operator {i} ({sig['n']}) returns")
        for s in writes:
            if s not in ins:
                self.fail(f"operator {i} ({sig['n']}) writes storage {s}, which is not among its inputs")
        missing = self.pending - set(outs)
        if missing:
            self.fail(f"storage {min(missing)} was allocated as an output of operator {i}, which does not return it")
        for s in self.pending:
            self.born[s] = (phase, len(self.sum.iterations))
        self.pending.clear()
        if "sync" in rec and rec["sync"] not in SYNCS:
            self.fail(f"operator {i}: unknown sync {rec['sync']!r}")
        for key in ("ns", "hns", "gap", "st"):
            if key in rec:
                self.integer(rec, key)
        if "ns" in rec:
            self.sum.timed_ops += 1
            self.sum.device_ns += rec["ns"]
        self.sum.flop += sig.get("flop", 0)
        self.sum.ops += 1
        if phase == "B":
            for s in ins:
                if self.born.get(s) == ("F", len(self.sum.iterations)):
                    self.read_in_backward.add(s)
        if self.peak_set is None:
            self.sum.peak_phase = phase
            self.peak_set = dict(self.live)
        if self.iteration is not None:
            entry = self.sum.iterations[-1]
            entry["ops"] += 1
            entry["flop"] += sig.get("flop", 0)
            entry["phases"][phase] = entry["phases"].get(phase, 0) + 1

    def on_free(self, rec):
        s = self.integer(rec, "s")
        self.living(s, "'free' of")
        if s in self.pending:
            self.fail(f"storage {s} is freed between its allocation and its operator")
        self.live_bytes -= self.live.pop(s)

    def on_resize(self, rec):
        s, before, after = self.integer(rec, "s"), self.integer(rec, "b0"), self.integer(rec, "b")
        self.living(s, "'resize' of")
        if self.live[s] != before:
            self.fail(f"'resize' of storage {s} from {before} B, but it has {self.live[s]} B")
        self.live[s] = after
        self.live_bytes += after - before
        self.note_peak("")

    def on_tag(self, rec):
        s = self.integer(rec, "s")
        self.living(s, "'tag' of")
        if rec.get("cls") not in CLASSES:
            self.fail(f"unknown class {rec.get('cls')!r}, expected one of {' '.join(CLASSES)}")
        self.tags[s] = rec["cls"]

    def on_saved(self, rec):
        for s in rec.get("s", ()):
            self.living(s, "'saved' names")

    def on_mem(self, rec):
        if type(rec.get("b")) is not int or rec.get("w") not in ("op", "gap"):
            self.fail("'mem' needs 'b' (integer) and 'w' (\"op\" or \"gap\")")

    def on_mark(self, rec):
        m = rec.get("m")
        if m == "iter_begin":
            if self.iteration is not None:
                self.fail(f"iteration {rec.get('it')} begins inside iteration {self.iteration}")
            it = self.integer(rec, "it")
            if it != len(self.sum.iterations):
                self.fail(f"iteration {it} begins, expected {len(self.sum.iterations)}")
            if rec.get("kind") not in ("train", "val"):
                self.fail(f"iteration {it}: 'kind' must be \"train\" or \"val\"")
            self.iteration = it
            self.sum.iterations.append({"it": it, "kind": rec["kind"], "ops": 0, "phases": {},
                                        "flop": 0, "live": 0, "live_unnamed": 0, "skipped": False})
        elif m == "iter_end":
            if self.iteration is None or rec.get("it") != self.iteration:
                self.fail(f"iteration {rec.get('it')} ends, but {self.iteration} is open")
            if self.micro is not None:
                self.fail(f"iteration ends inside micro-batch {self.micro}")
            self.sum.iterations[-1]["live"] = self.live_bytes
            self.sum.iterations[-1]["live_unnamed"] = sum(b for s, b in self.live.items() if s not in self.tags)
            self.iteration = None
        elif m == "micro_begin":
            if self.micro is not None:
                self.fail(f"micro-batch {rec.get('mb')} begins inside {self.micro}")
            self.micro = self.integer(rec, "mb")
        elif m == "micro_end":
            if self.micro is None or rec.get("mb") != self.micro:
                self.fail(f"micro-batch {rec.get('mb')} ends, but {self.micro} is open")
            self.micro = None
        elif m == "phase":
            if rec.get("ph") not in PHASES:
                self.fail(f"unknown phase {rec.get('ph')!r}")
        elif m == "step_skipped":
            if self.iteration is not None:
                self.sum.iterations[-1]["skipped"] = True
        else:
            self.fail(f"unknown mark {m!r}")

    def on_end(self, rec):
        if self.pending:
            self.fail(f"storage {min(self.pending)} was allocated for an operator that never came")
        if self.iteration is not None:
            self.fail(f"the trace ends inside iteration {self.iteration}")
        found = {"ops": self.sum.ops, "storages": len(self.seen), "peak": self.sum.peak, "live": self.live_bytes}
        for key, value in found.items():
            if self.integer(rec, key) != value:
                self.fail(f"'end' says {key} = {rec[key]}, the replay gives {value}")
        self.ended = True

    def finish(self):
        if not self.ended:
            self.fail("no 'end' line: the trace is truncated")
        s = self.sum
        s.storages, s.live, s.events = len(self.seen), self.live_bytes, self.line
        for sid, size in (self.peak_set or {}).items():
            cls = self.tags.get(sid, "other")
            s.peak_bytes_by_class[cls] = s.peak_bytes_by_class.get(cls, 0) + size
            if sid in self.read_in_backward and cls == "other":
                s.saved_bytes_at_peak += size
        return s


def check_lines(lines, name):
    """Replays the lines of one trace; returns its Summary or raises RecorderError with file:line."""
    r = _Replay(name)
    for r.line, text in enumerate(lines, 1):
        try:
            rec = json.loads(text)
        except ValueError as e:
            r.fail(f"not a JSON object: {e}")
        if not isinstance(rec, dict):
            r.fail("not a JSON object")
        kind = rec.get("k")
        if r.ended:
            r.fail("a line after 'end'")
        if r.line == 1:
            if kind != "hdr":
                r.fail(f"the first line must be 'hdr', found {kind!r}")
            if rec.get("v") != VERSION:
                r.fail(f"schema version {rec.get('v')!r}, expected {VERSION}")
            r.sum.header = rec
            continue
        handler = getattr(r, f"on_{kind}", None) if isinstance(kind, str) else None
        if handler is None:
            r.fail(f"unknown kind of line {kind!r}")
        handler(rec)
    return r.finish()


def check_file(path, name=None):
    """check_lines over a plain, .gz or .zst file; a damaged container is a RecorderError too."""
    try:
        with open_text(path) as f:
            return check_lines(f, name or path)
    except (OSError, EOFError, UnicodeDecodeError) as e:
        raise RecorderError(f"{name or path}: {e}") from None


def main(paths):
    status = 0
    for path in paths:
        try:
            s = check_file(path)
        except RecorderError as e:
            print(f"error: {e}", file=sys.stderr)
            status = 1
            continue
        kinds = " ".join(("v" if i["kind"] == "val" else "s" if i["skipped"] else "t") + str(i["ops"])
                         for i in s.iterations)
        classes = " ".join(f"{c}={b / 2**20:.1f}" for c, b in sorted(s.peak_bytes_by_class.items()))
        print(f"{path}: ok  ops {s.ops}  storages {s.storages}  peak {s.peak} B in {s.peak_phase}  live {s.live} B  "
              f"timed {s.timed_ops}  device {s.device_ns / 1e6:.1f} ms  {s.flop / 1e9:.1f} GFLOP  lines {s.events}\n"
              f"  iterations {kinds}\n  MiB at peak: {classes}; activations read in B {s.saved_bytes_at_peak / 2**20:.1f}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
