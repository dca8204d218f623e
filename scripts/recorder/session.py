"""Drives the iterations of a training program and writes what they are: marks, phases, tags, checks."""

import gc
import sys
from contextlib import ExitStack, contextmanager

import torch
import torch.utils.checkpoint

from . import RecorderError


def saved_tensors(root):
    """Tensors that the graph below `root` holds for backward, by its nodes' _saved_* attributes."""
    todo, seen, found = [root], {root}, []
    while todo:
        node = todo.pop()
        for name in dir(node):
            # Custom autograd functions hold `saved_tensors`, generated nodes `_saved_<name>`.
            if (name.startswith("_saved_") and name != "_saved_tensors") or name == "saved_tensors":
                try:
                    value = getattr(node, name)
                except (RuntimeError, AttributeError):
                    continue          # an undefined or already released entry
                for v in value if isinstance(value, (list, tuple)) else (value,):
                    if isinstance(v, torch.Tensor):
                        found.append(v)
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                todo.append(child)
    return found


class Loop:
    """What a step function sees of the recording. Everything is optional for a user's step.

    it: index of this iteration, train and val counted together. kind: "train" or "val".
    """

    def __init__(self, recorder):
        self._recorder = recorder
        self.it = 0
        self.kind = "train"
        self._mb = 0

    def phase(self, name):
        """Context manager: operators inside have phase `name` (I Z D F B R O E)."""
        return self._recorder.phase(name)

    @contextmanager
    def micro(self, mb):
        """Context manager around one micro-batch."""
        self._mb = mb
        self._recorder.mark("micro_begin", mb=mb)
        yield
        self._recorder.mark("micro_end", mb=mb)

    def data(self, tensor, name):
        """Tags an input tensor."""
        self._recorder.tag(tensor, "data", name)

    def step_skipped(self):
        """Says that the optimizer step of this iteration is left out."""
        self._recorder.mark("step_skipped")


class NullRecorder:
    """Stands in for the recorder when the same program runs only to be timed."""

    def mark(self, name, **fields):
        pass

    def tag(self, tensor, cls, name):
        pass

    @contextmanager
    def phase(self, name):
        yield


class Session:
    def __init__(self, recorder, model, optimizer, step, may_lack_grad):
        self.recorder, self.model, self.optimizer, self.step = recorder, model, optimizer, step
        self.may_lack_grad = may_lack_grad     # predicate on a parameter's name
        self.loop = Loop(recorder)
        self.backward_ops = 0
        self._depth = 0

    # Phases that can be seen from outside: backward, optimizer, recomputation.

    @contextmanager
    def hooks(self):
        recorder, loop = self.recorder, self.loop
        backward, checkpoint = torch.autograd.backward, torch.utils.checkpoint.checkpoint

        def recorded_backward(tensors, *args, **kwargs):
            if self._depth:            # reentrant checkpointing calls backward inside backward
                with recorder.phase("B"):
                    return backward(tensors, *args, **kwargs)
            roots = [t for t in (tensors if isinstance(tensors, (list, tuple)) else (tensors,)) if t.grad_fn is not None]
            with recorder.paused():
                held = [t for root in roots for t in saved_tensors(root.grad_fn)]
            recorder.saved(held, loop.it, loop._mb)
            del held, roots
            self._depth += 1
            before = recorder.ops
            try:
                with recorder.phase("B"):
                    return backward(tensors, *args, **kwargs)
            finally:
                self._depth -= 1
                self.backward_ops += recorder.ops - before

        def recorded_checkpoint(function, *args, **kwargs):
            def recompute(*a, **k):
                if not self._depth:
                    return function(*a, **k)
                with recorder.phase("R"):
                    return function(*a, **k)
            return checkpoint(recompute, *args, **kwargs)

        def in_phase(name, call):
            def wrapped(*args, **kwargs):
                with recorder.phase(name):
                    return call(*args, **kwargs)
            return wrapped

        optimizer = self.optimizer
        with ExitStack() as stack:
            for owner, name, value in ((torch.autograd, "backward", recorded_backward),
                                       (torch.utils.checkpoint, "checkpoint", recorded_checkpoint)):
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, value)
            if optimizer is not None:
                for name, phase in (("step", "O"), ("zero_grad", "Z")):
                    setattr(optimizer, name, in_phase(phase, getattr(optimizer, name)))
                    stack.callback(delattr, optimizer, name)
            yield

    # Tags

    def tag_model(self):
        for name, p in self.model.named_parameters():
            self.recorder.tag(p, "param", name)
        for name, b in self.model.named_buffers():
            self.recorder.tag(b, "buffer", name)

    def tag_gradients(self):
        """Tags gradients; returns names of trainable parameters without one."""
        missing = []
        for name, p in self.model.named_parameters():
            if p.grad is not None:
                self.recorder.tag(p.grad, "grad", f"{name}.grad")
            elif p.requires_grad:
                missing.append(name)
        return missing

    def tag_optimizer(self):
        if self.optimizer is None:
            return
        names = {id(p): name for name, p in self.model.named_parameters()}
        for p, state in self.optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    self.recorder.tag(value, "opt", f"{names.get(id(p), 'unnamed')}.{key}")

    def iteration(self, it, kind):
        recorder, loop = self.recorder, self.loop
        loop.it, loop.kind = it, kind
        recorder.mark("iter_begin", it=it, kind=kind)
        self.backward_ops = 0
        with recorder.phase("E" if kind == "val" else "F"):
            self.step(loop)
        if kind == "train":
            missing = [n for n in self.tag_gradients() if not self.may_lack_grad(n)]
            if not self.backward_ops:
                raise RecorderError(f"iteration {it}: no backward operator was recorded; does the step function "
                                    "call loss.backward() on this thread?")
            if missing:
                raise RecorderError(f"iteration {it}: {len(missing)} trainable parameters got no gradient, first "
                                    f"{missing[0]} (use --allow-missing-grads if that is intended)")
            self.tag_optimizer()
        recorder.mark("iter_end", it=it)


def schedule(iterations, val_every):
    """Kinds of the iterations: `iterations` of training, one validation after every `val_every`."""
    kinds = []
    for i in range(1, iterations + 1):
        kinds.append("train")
        if val_every and i % val_every == 0:
            kinds.append("val")
    return kinds


@contextmanager
def garbage_collection_off():
    """Cycles would be freed at arbitrary points; they are collected before and not during the recording."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def growth_warning(iterations):
    """A line when untagged bytes at the end of like iterations keep growing (a leak or uncollected cycles).

    Gradients and optimizer state are tagged: they may grow for good reasons, e.g. idle experts waking up.
    """
    train = [i["live_unnamed"] for i in iterations if i["kind"] == "train"][1:]
    if len(train) >= 3 and all(a < b for a, b in zip(train, train[1:])):
        print(f"warning: live bytes grow with every iteration ({train[-2]} -> {train[-1]} B untagged); reference "
              "cycles stay alive because Python's collector is off during a recording", file=sys.stderr)
