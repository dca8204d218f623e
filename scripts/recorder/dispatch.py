"""The recording dispatch mode: one schema line per operator, allocation and free, in program order."""

import time
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from . import RecorderError, cost, fake
from .exact_memory import scratch
from .storages import StorageTable, untyped

# Bookkeeping of the framework, not work of the model: neither launches nor allocates on a device.
SKIPPED = ("prim.", "prims.device", "profiler.", "aten.sym_", "aten.is_same_size", "aten.is_pinned",
           "aten._has_compatible_shallow_copy_type")
RANDOM_STATE = ("seed", "offset", "generator")


class _Operator:
    """What the schema of an overload says, looked up once."""

    def __init__(self, func):
        schema = getattr(func, "_schema", None)
        if schema is None:
            raise RecorderError(f"operator {func} has no schema (a compiled or higher-order operator); "
                                "record plain eager code")
        namespace, _, base = schema.name.partition("::")
        self.base = base
        self.name = f"{namespace}.{base}.{schema.overload_name or 'default'}"
        self.skip = self.name.startswith(SKIPPED)
        self.positions = [bool(a.alias_info is not None and a.alias_info.is_write) for a in schema.arguments]
        self.keywords = {a.name: w for a, w in zip(schema.arguments, self.positions)}
        # Random state differs at every call and says nothing about the work.
        self.random = [any(r in a.name for r in RANDOM_STATE) for a in schema.arguments]


def _tensors(value, into):
    if isinstance(value, torch.Tensor):
        into.append(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            _tensors(v, into)
    elif isinstance(value, dict):
        for v in value.values():
            _tensors(v, into)


def _attributes(value, into):
    """Integers and booleans of the arguments; floats (learning rates) change every step and stay out."""
    if isinstance(value, (bool, int)):
        into.append(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            _attributes(v, into)


def _describe(tensors):
    return tuple((tuple(int(d) for d in t.shape), str(t.dtype)[6:]) for t in tensors)


class Recorder(TorchDispatchMode):
    """Writes schema v1 lines into `sink` (anything with write(dict)) while it is the active mode.

    is_fake: answers what fake tensors cannot, writes no times. timed: writes host-measured `ns`
    per operator, which is the device time on a CPU.
    """

    def __init__(self, sink, is_fake, timed):
        super().__init__()
        self.sink = sink
        self.is_fake = is_fake
        self.timed = timed and not is_fake
        self.table = StorageTable()
        self.ops = 0
        self.live = 0
        self.peak = 0
        self.phase_name = "I"
        self._marked_phase = None
        self.names = []               # (operator name, is a view) by index, for the join with a profile
        self.keep_names = False
        self.pass_through = 0
        self.memory = None            # an ExactMemory: `mem` lines and scratch bytes per signature
        self._operators = {}
        self._signatures = {}
        self._tags = {}               # id -> (class, name) already written
        self._start = time.perf_counter_ns()

    # Storages

    def _allocated(self, storage, device, source):
        sid = self.table.add(storage)
        size = self.table.bytes[sid]
        self.sink.write({"k": "alloc", "s": sid, "b": size, "src": source, "dev": device})
        self.live += size
        self.peak = max(self.peak, self.live)
        return sid

    @staticmethod
    def _device(tensor):
        d = tensor.device
        return "cpu" if d.type in ("cpu", "meta") else f"{d.type}:{d.index or 0}"

    @staticmethod
    def _storage(tensor):
        try:
            return untyped(tensor)
        except (NotImplementedError, RuntimeError) as e:
            raise RecorderError(f"cannot record a tensor without a storage (layout {tensor.layout}): "
                                f"{str(e).splitlines()[0]}") from None

    def resolve(self, tensor, source="ext"):
        """Id of the tensor's storage; one seen for the first time is written as an allocation."""
        storage = self._storage(tensor)
        sid = self.table.find(storage)
        if sid is None:
            return self._allocated(storage, self._device(tensor), source)
        size, known = storage.nbytes(), self.table.bytes[sid]
        if size != known:
            self.sink.write({"k": "resize", "s": sid, "b0": known, "b": size})
            self.table.bytes[sid] = size
            self.live += size - known
            self.peak = max(self.peak, self.live)
        return sid

    def _memory_lines(self, calls, where):
        for address, size in calls:
            self.sink.write({"k": "mem", "p": hex(address), "b": size, "w": where})

    def drain(self):
        """Writes the frees since the last line."""
        if self.memory is not None:
            self._memory_lines(self.memory.take(), "gap")
        for sid, size in self.table.collect():
            self.sink.write({"k": "free", "s": sid})
            self.live -= size
            self._tags.pop(sid, None)

    # Lines that the training loop asks for

    def mark(self, name, **fields):
        self.drain()
        line = {"k": "mark", "m": name}
        if not self.is_fake:
            line["t"] = time.perf_counter_ns() - self._start
        line.update(fields)
        self.sink.write(line)

    @contextmanager
    def phase(self, phase):
        """Operators inside have this phase; the mark is written before the first of them."""
        before, self.phase_name = self.phase_name, phase
        try:
            yield
        finally:
            self.phase_name = before

    @contextmanager
    def paused(self):
        """Operators inside go straight through, unrecorded."""
        self.pass_through += 1
        try:
            yield
        finally:
            self.pass_through -= 1

    def tag(self, tensor, cls, name):
        self.drain()
        sid = self.resolve(tensor)
        if self._tags.get(sid) != (cls, name):
            self._tags[sid] = (cls, name)
            self.sink.write({"k": "tag", "s": sid, "cls": cls, "name": name})

    def saved(self, tensors, it, mb):
        self.drain()
        ids = sorted({self.resolve(t) for t in tensors})
        self.sink.write({"k": "saved", "s": ids, "it": it, "mb": mb})

    def end(self):
        self.drain()
        self.sink.write({"k": "end", "ops": self.ops, "storages": self.table.count,
                         "peak": self.peak, "live": self.live})

    # Operators

    def _signature(self, op, args, kwargs, ins, in_desc, outs, written, view, scratch):
        attributes = []
        _attributes([a for a, random in zip(args, op.random) if not random], attributes)
        _attributes([a for name, a in kwargs.items() if not any(r in name for r in RANDOM_STATE)], attributes)
        out_desc = _describe(outs)
        # bool and int compare equal in Python, so the type belongs to the key.
        key = (op.name, in_desc, out_desc, tuple((type(a), a) for a in attributes), view, scratch)
        found = self._signatures.get(key)
        if found is not None:
            return found
        flop, read, wrote = cost.work(op.base, args, ins, outs, written, view)
        sid = len(self._signatures)
        self._signatures[key] = sid
        line = {"k": "sig", "id": sid, "n": op.name, "in": [[list(s), d] for s, d in in_desc],
                "out": [[list(s), d] for s, d in out_desc], "attr": attributes,
                "view": int(view), "flop": int(flop), "rb": int(read), "wb": int(wrote)}
        if scratch is not None:
            line["scr"] = scratch
        self.sink.write(line)
        return sid

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        op = self._operators.get(func)
        if op is None:
            op = self._operators[func] = _Operator(func)
        if self.pass_through or op.skip:
            return func(*args, **kwargs)

        self.drain()
        if self.phase_name != self._marked_phase:
            self._marked_phase = self.phase_name
            self.mark("phase", ph=self.phase_name)
        ins, written = [], []
        for value, writes in zip(args, op.positions):
            first = len(ins)
            _tensors(value, ins)
            if writes:
                written += ins[first:]
        for name, value in kwargs.items():
            first = len(ins)
            _tensors(value, ins)
            if op.keywords.get(name):
                written += ins[first:]
        in_ids = [self.resolve(t) for t in ins]
        written_ids = [self.resolve(t) for t in written]
        # Shapes before the call: in-place operators may change them.
        in_desc = _describe(ins)

        started = time.perf_counter_ns()
        if self.is_fake:
            result = fake.call(func, op, args, kwargs)
        else:
            result = func(*args, **kwargs)
        elapsed = time.perf_counter_ns() - started
        used = None
        if self.memory is not None:
            calls = self.memory.take()
            self._memory_lines(calls, "op")
            used = scratch(calls)

        outs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
        known = set(in_ids)
        for t in written:
            self.resolve(t)           # an operator such as resize_ changed the size
        out_ids = []
        fresh = False
        for t in outs:
            found = self.table.find(self._storage(t))
            fresh = fresh or found not in known
            out_ids.append(self.resolve(t, "op"))
        view = bool(outs) and not fresh and not written
        line = {"k": "op", "i": self.ops,
                "sig": self._signature(op, args, kwargs, ins, in_desc, outs, written, view, used),
                "ph": self.phase_name, "in": in_ids, "out": out_ids, "wr": written_ids}
        if self.timed:
            line["ns"] = elapsed
        sync = cost.sync_kind(op.name, op.base, args, ins, outs)
        if sync:
            line["sync"] = sync
        self.sink.write(line)
        if self.keep_names:
            self.names.append((op.name, view))
        self.ops += 1
        return result
