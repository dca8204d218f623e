"""Analytic work of one operator from its shapes: FLOP (2 per multiply-add), bytes read, bytes written.

Conventions: matrix products, convolutions and attention are counted exactly; every other operator
counts the elements that it computes times a small factor of its class (FACTORS); copies and fills
count no FLOP. Bytes are those of the tensors touched once (an expanded tensor counts its storage,
a lookup only the rows that it reads). Views and bare allocations cost nothing.
"""

import torch

ALLOCATIONS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")
COPIES = ("clone", "_to_copy", "copy_", "cat", "stack", "zero_", "fill_", "zeros", "zeros_like", "ones",
          "ones_like", "full", "full_like", "arange", "select_backward", "slice_backward", "index", "gather",
          "index_select", "embedding", "scalar_tensor", "repeat", "flip", "roll", "constant_pad_nd",
          "new_zeros", "_local_scalar_dense", "_foreach_zero_", "_foreach_copy_", "contiguous", "detach_",
          "max_pool2d_with_indices_backward", "nll_loss_forward", "nll_loss_backward", "tril", "triu", "_pin_memory")
# FLOP per element for operators that do several operations per element.
FACTORS = {"_softmax": 4, "_softmax_backward_data": 4, "_log_softmax": 4, "_log_softmax_backward_data": 4,
           "native_layer_norm": 6, "native_layer_norm_backward": 10, "native_batch_norm": 6,
           "_native_batch_norm_legit": 6, "native_batch_norm_backward": 9, "cudnn_batch_norm": 6,
           "cudnn_batch_norm_backward": 9, "gelu": 8, "gelu_backward": 12, "tanh": 4, "exp": 2,
           "native_dropout": 2, "addcmul": 3, "addcmul_": 3, "addcdiv": 3, "addcdiv_": 3, "lerp_": 3,
           "_foreach_addcmul_": 3, "_foreach_addcdiv_": 3, "_foreach_lerp_": 3}
LOOKUPS = ("embedding", "index", "gather", "index_select", "slice", "select")
SDPA = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable")
FUSED_OPTIMIZER_FLOP = {"_fused_adam_": 14, "_fused_adamw_": 14, "_fused_sgd_": 4}


def tensor_bytes(t):
    """Bytes of the elements; for an expanded tensor only those that exist."""
    numel = 1
    for size, stride in zip(t.shape, t.stride()):
        numel *= size if stride else min(size, 1)
    return numel * t.element_size()


def _conv_flop(out_shape, weight_shape, transposed, in_shape):
    """2 x (positions) x (weight elements per position). weight: [C_out, C_in/groups, k...]"""
    shape = in_shape if transposed else out_shape
    per_position = 1
    for d in weight_shape[1:]:
        per_position *= d
    positions = 1
    for d in shape:
        positions *= d
    return 2 * positions * per_position


def attention_flop(q_shape, k_shape, causal, products):
    """`products` matrix products of [T, D] x [D, S] per head; a causal mask needs half of each."""
    batch_heads = 1
    for d in q_shape[:-2]:
        batch_heads *= d
    flop = 2 * products * batch_heads * q_shape[-2] * k_shape[-2] * q_shape[-1]
    return flop // 2 if causal else flop


def _exact_flop(base, args, outs):
    """FLOP of matrix-product-like operators, or None for the rest."""
    if base == "mm":
        (m, k), n = args[0].shape, args[1].shape[1]
        return 2 * m * k * n
    if base in ("addmm", "addmm_"):
        (m, k), n = args[1].shape, args[2].shape[1]
        return 2 * m * k * n
    if base == "_addmm_activation":
        (m, k), n = args[1].shape, args[2].shape[1]
        return 2 * m * k * n
    if base in ("bmm", "baddbmm", "baddbmm_"):
        a, b = (args[0], args[1]) if base == "bmm" else (args[1], args[2])
        return 2 * a.shape[0] * a.shape[1] * a.shape[2] * b.shape[2]
    if base in ("mv", "dot", "vdot"):
        return 2 * args[0].numel()
    if base in ("convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution", "convolution_overrideable"):
        transposed = bool(args[6]) if base in ("convolution", "_convolution", "convolution_overrideable") else False
        return _conv_flop(outs[0].shape, args[1].shape, transposed, args[0].shape)
    if base in ("convolution_backward", "convolution_backward_overrideable"):
        grad, inp, weight = args[0], args[1], args[2]
        mask, transposed = args[-1], bool(args[-4])
        one = _conv_flop(grad.shape, weight.shape, transposed, inp.shape)
        return one * (bool(mask[0]) + bool(mask[1])) + (grad.numel() if mask[2] else 0)
    if base == "flash_fwd":
        return attention_flop(args[0].shape, args[1].shape, args[3], 2)
    if base == "flash_bwd":
        return attention_flop(args[1].shape, args[2].shape, args[6], 5)
    if base in SDPA:
        causal = next((a for a in args[3:] if isinstance(a, bool)), False)
        return attention_flop(args[0].shape, args[1].shape, causal, 2)
    if base.startswith("_scaled_dot_product") and base.endswith(("_backward", "_backward_for_cpu")):
        causal = next((a for a in args[4:] if isinstance(a, bool)), False)
        return attention_flop(args[1].shape, args[2].shape, causal, 5)
    return None


def work(base, args, ins, outs, written, view):
    """(flop, bytes read, bytes written) of operator `base` (name without namespace and overload).

    args: positional arguments; ins/outs: tensors in order; written: those of `ins` it writes.
    """
    if view or base in ALLOCATIONS:
        return 0, 0, 0
    results = written if written else outs
    result_bytes = sum(tensor_bytes(t) for t in results)
    fresh = [t for t in outs if not any(t is w for w in written)] if written else []
    if fresh and not base.endswith("_"):   # e.g. batch norm: updates statistics and returns tensors
        result_bytes += sum(tensor_bytes(t) for t in fresh)
    read = sum(tensor_bytes(t) for t in ins)
    if base in ("zero_", "fill_", "_foreach_zero_"):
        read = 0
    elif base in ("copy_",):
        read = sum(tensor_bytes(t) for t in ins[1:])
    elif base == "_foreach_copy_":
        read = sum(tensor_bytes(t) for t in ins[len(ins) // 2:])
    elif base in LOOKUPS and ins:
        read = result_bytes + sum(tensor_bytes(t) for t in ins[1:])
    exact = _exact_flop(base, args, outs)
    if exact is not None:
        return exact, read, result_bytes
    if base in COPIES:
        return 0, read, result_bytes
    if base in FUSED_OPTIMIZER_FLOP:
        return FUSED_OPTIMIZER_FLOP[base] * sum(t.numel() for t in args[0]), read, result_bytes
    if base.startswith("_foreach_"):
        elements = sum(t.numel() for t in results)
    else:
        # A reduction works over its input, an elementwise operator over its output.
        elements = max((t.numel() for t in (*ins, *outs)), default=0)
    return FACTORS.get(base, 1) * elements, read, result_bytes


def sync_kind(name, base, args, ins, outs):
    """Why the host must wait for this operator's result, as schema v1 names it, or None."""
    if base in ("_local_scalar_dense", "equal", "is_nonzero"):
        return "item"
    if base in ("nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount"):
        return "shape"
    if base == "repeat_interleave" and len(ins) == 1 and name.endswith(".Tensor"):
        return "shape"
    if base in ("index", "index_put_", "index_put") and any(t.dtype in (torch.bool, torch.uint8) for t in ins[1:]):
        return "shape"
    if base in ("_to_copy", "copy_") and ins and outs:
        source, target = (ins[-1], outs[0])
        if source.device.type != "cpu" and target.device.type == "cpu":
            return "d2h"
    return None
