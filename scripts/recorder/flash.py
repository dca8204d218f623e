"""Opaque fused attention operators sim::flash_fwd / flash_bwd: what a GPU's attention kernel keeps and reads.

Saved for backward are q, k, v, the output and one float per row (log-sum-exp), never the T x T
matrix; dropout is regenerated from its seed. On real CPU tensors they compute the plain formula.
"""

import math

import torch
from torch.library import Library

_library = Library("sim", "DEF")
_library.define("flash_fwd(Tensor q, Tensor k, Tensor v, bool causal, float p, int seed) -> (Tensor, Tensor)")
_library.define("flash_bwd(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
                "bool causal, float p, int seed) -> (Tensor, Tensor, Tensor)")


def _lse_like(q):
    return torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)


def _fwd_meta(q, k, v, causal, p, seed):
    return torch.empty_like(q), _lse_like(q)


def _bwd_meta(grad, q, k, v, out, lse, causal, p, seed):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _scores(q, k, causal):
    s = torch.matmul(q.float(), k.float().transpose(-2, -1)) / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        s = s.masked_fill(hidden, float("-inf"))
    return s


def _keep(shape, p, seed, device):
    """Scaled dropout mask, the same in forward and backward for one seed."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return (torch.rand(shape, generator=generator, device=device) >= p).float() / (1 - p)


def _fwd(q, k, v, causal, p, seed):
    s = _scores(q, k, causal)
    lse = torch.logsumexp(s, -1)
    a = torch.exp(s - lse.unsqueeze(-1))
    if p > 0:
        a = a * _keep(a.shape, p, seed, a.device)
    return torch.matmul(a, v.float()).to(q.dtype).contiguous(), lse


def _bwd(grad, q, k, v, out, lse, causal, p, seed):
    grad32 = grad.float()
    a = torch.exp(_scores(q, k, causal) - lse.unsqueeze(-1))
    keep = _keep(a.shape, p, seed, a.device) if p > 0 else None
    dv = torch.matmul((a if keep is None else a * keep).transpose(-2, -1), grad32)
    da = torch.matmul(grad32, v.float().transpose(-2, -1))
    if keep is not None:
        da = da * keep
    row = (grad32 * out.float()).sum(-1, keepdim=True)
    ds = a * (da - row) / math.sqrt(q.shape[-1])
    return (torch.matmul(ds, k.float()).to(q.dtype), torch.matmul(ds.transpose(-2, -1), q.float()).to(k.dtype),
            dv.to(v.dtype))


for _key, _f, _b in (("Meta", _fwd_meta, _bwd_meta), ("CPU", _fwd, _bwd), ("CUDA", _fwd, _bwd)):
    _library.impl("flash_fwd", _f, _key)
    _library.impl("flash_bwd", _b, _key)


class FlashAttention(torch.autograd.Function):
    """attention(q, k, v) with [batch, heads, tokens, head size] inputs of one dtype."""

    @staticmethod
    def forward(ctx, q, k, v, causal, p, seed):
        out, lse = torch.ops.sim.flash_fwd(q, k, v, causal, p, seed)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.setting = (causal, p, seed)
        return out

    @staticmethod
    def backward(ctx, grad):
        return (*torch.ops.sim.flash_bwd(grad, *ctx.saved_tensors, *ctx.setting), None, None, None)
