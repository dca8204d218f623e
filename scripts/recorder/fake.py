"""What fake tensors cannot do by themselves, above the fake mode (see recording notes of torch 1.13 and 2.x)."""

from contextlib import ExitStack, contextmanager, nullcontext

import torch
from torch._subclasses import FakeTensorMode

from .storages import TORCH


def _scalar(tensor):
    """A fake tensor has no value. One is the neutral answer: step counts and scales divide by it."""
    if tensor.dtype is torch.bool:
        return True
    return 1.0 if tensor.dtype.is_floating_point else 1


def _convolution_backward(args, kwargs):
    grad, inp, weight, bias_sizes = args[:4]
    mask = kwargs.get("output_mask", args[-1])
    return (torch.empty_like(inp) if mask[0] else None,
            torch.empty_like(weight) if mask[1] else None,
            grad.new_empty(bias_sizes) if mask[2] else None)


def call(func, op, args, kwargs):
    """Runs `func` on fake tensors. torch 1.13 would run kernels without a meta implementation for real."""
    if op.base == "_local_scalar_dense":
        return _scalar(args[0])
    if op.base.startswith("_fused_") and op.base.endswith("_"):
        return None                     # all in place, sizes do not change
    if TORCH < (2, 0):
        if op.base == "convolution_backward":
            return _convolution_backward(args, kwargs)
        if op.base.startswith("_foreach_"):
            return None if op.base.endswith("_") else [torch.empty_like(t) for t in args[0]]
    return func(*args, **kwargs)


@contextmanager
def mode(fallbacks):
    """The fake mode; names of operators that ran a real kernel are added to the set `fallbacks`."""
    import torch._subclasses.fake_tensor as module
    original = getattr(module, "run_fallback_kernel", None)

    def logged(fake_mode, func, *args, **kwargs):
        fallbacks.add(str(func))
        return original(fake_mode, func, *args, **kwargs)

    with ExitStack() as stack:
        if original is not None:
            module.run_fallback_kernel = logged
            stack.callback(setattr, module, "run_fallback_kernel", original)
        yield stack.enter_context(FakeTensorMode())


@contextmanager
def quiet_record_function():
    """Optimizers wrap step() in record_function, which raises on fake tensors in 1.13 and is noise elsewhere."""
    profiler = torch.autograd.profiler
    original = profiler.record_function
    profiler.record_function = lambda *args, **kwargs: nullcontext()
    try:
        yield
    finally:
        profiler.record_function = original
