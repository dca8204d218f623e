"""The bundled models: a GPT, a mixture-of-experts GPT and ResNet-50. Each build_* returns
(model, optimizer, step); step(loop) runs one iteration and reports through session.Loop."""

import math
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional as F

from . import RecorderError, flash
from .storages import TORCH


class Dropout(nn.Module):
    """Dropout that keeps a boolean mask, as on a GPU; CPU's own keeps a mask of the full dtype."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return torch.native_dropout(x, self.p, True)[0] if self.training and self.p > 0 else x


class Attention(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.heads, self.fused, self.p = o.heads, o.attention == "fused", o.dropout
        self.qkv = nn.Linear(o.d_model, 3 * o.d_model)
        self.proj = nn.Linear(o.d_model, o.d_model)
        self.drop = Dropout(o.dropout)
        self.calls = 0

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        if self.fused:
            self.calls += 1
            y = flash.FlashAttention.apply(q, k, v, True, self.p if self.training else 0.0, self.calls)
        else:
            s = torch.matmul(q, k.transpose(-2, -1)) * (1.0 / math.sqrt(c // self.heads))
            hidden = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
            y = torch.matmul(self.drop(torch.softmax(s.masked_fill(hidden, float("-inf")), -1)).to(v.dtype), v)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class MLP(nn.Module):
    def __init__(self, d_model, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, hidden), nn.Linear(hidden, d_model)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Experts(nn.Module):
    """Token-choice routing: each token goes to its top-k experts, with Switch's balancing loss.

    Expert batch sizes depend on the data, so this runs only on real tensors.
    """

    def __init__(self, o):
        super().__init__()
        self.topk = o.moe_topk
        self.router = nn.Linear(o.d_model, o.moe_experts, bias=False)
        self.experts = nn.ModuleList(MLP(o.d_model, 2 * o.d_model) for _ in range(o.moe_experts))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probabilities = torch.softmax(self.router(flat), -1)
        weights, chosen = probabilities.topk(self.topk, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            token, slot = (chosen == e).nonzero(as_tuple=True)
            if token.numel():
                y = expert(flat[token]) * weights[token, slot].unsqueeze(-1)
                out = out.index_add(0, token, y)
        share = F.one_hot(chosen[:, 0], len(self.experts)).to(flat.dtype).mean(0)
        return out.view_as(x), (share * probabilities.mean(0)).sum() * len(self.experts)


class Block(nn.Module):
    def __init__(self, o, moe):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(o.d_model), nn.LayerNorm(o.d_model)
        self.attention = Attention(o)
        self.moe = moe
        self.mlp = Experts(o) if moe else MLP(o.d_model, 4 * o.d_model)
        self.drop1, self.drop2 = Dropout(o.dropout), Dropout(o.dropout)

    def forward(self, x):
        """Returns the hidden state and the balancing loss (None without experts)."""
        x = x + self.drop1(self.attention(self.norm1(x)))
        if not self.moe:
            return x + self.drop2(self.mlp(self.norm2(x))), None   # no local name that keeps an activation alive
        y, balance = self.mlp(self.norm2(x))
        return x + self.drop2(y), balance


class GPT(nn.Module):
    """GPT-2's shape: learned positions, pre-norm blocks, tied output embedding."""

    def __init__(self, o, moe=False):
        super().__init__()
        if o.d_model % o.heads:
            raise RecorderError(f"--d-model {o.d_model} is not a multiple of --heads {o.heads}")
        self.wte, self.wpe = nn.Embedding(o.vocab, o.d_model), nn.Embedding(max(o.seq_lens), o.d_model)
        self.drop = Dropout(o.dropout)
        self.blocks = nn.ModuleList(Block(o, moe) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.d_model)
        self.checkpoint = o.checkpoint == "reentrant"
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, tokens, targets):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        balances = []
        for block in self.blocks:
            if self.checkpoint and self.training:
                # Looked up at the call, so that the session's phase-R wrapper applies.
                x, balance = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=True)
            else:
                x, balance = block(x)
            balances.append(balance)
        logits = F.linear(self.norm(x), self.wte.weight)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
        for balance in balances:
            if balance is not None:
                loss = loss + 0.01 * balance
        return loss


class Bottleneck(nn.Module):
    def __init__(self, c_in, width, stride):
        super().__init__()
        c_out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(c_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, c_out, 1, bias=False), nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or c_in != c_out:
            self.down = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.pool = nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)
        blocks, c_in = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(c_in, width, stride if i == 0 else 1))
                c_in = 4 * width
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(c_in, 1000)

    def forward(self, images, labels):
        x = self.pool(self.relu(self.bn(self.stem(images))))
        x = self.blocks(x).mean((2, 3))
        return F.cross_entropy(self.fc(x), labels)


def make_optimizer(o, parameters):
    if o.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4, foreach=False)
    if o.optimizer == "adamw-fused":
        if TORCH < (2, 4):
            raise RecorderError(f"--optimizer adamw-fused needs torch >= 2.4 on a CPU, here is {torch.__version__}; "
                                "use adamw-foreach")
        return torch.optim.AdamW(parameters, lr=3e-4, fused=True)
    return torch.optim.AdamW(parameters, lr=3e-4, foreach=o.optimizer == "adamw-foreach")


def _build(o, model, batch_of):
    """Common training iteration; batch_of(length) makes one micro-batch, a tuple for model(*batch)."""
    model.to(o.device)
    if o.dtype == "bf16":
        model.to(torch.bfloat16)
    optimizer = make_optimizer(o, model.parameters())
    micro_count = [0]

    def autocast():
        # Only around the forward: around the whole step its weight cache is never cleared.
        return torch.autocast(torch.device(o.device).type, dtype=torch.bfloat16) if o.dtype == "autocast" else nullcontext()

    def micro_batch(loop, mb):
        length = o.seq_lens[micro_count[0] % len(o.seq_lens)]
        micro_count[0] += 1
        with loop.phase("D"):
            batch = batch_of(length)
            for name, tensor in zip(("input", "target"), batch):
                loop.data(tensor, f"{name}.{mb}")
        with autocast():
            return model(*batch)

    def step(loop):
        if loop.kind == "val":
            model.eval()
            with torch.no_grad(), loop.micro(0):
                micro_batch(loop, 0).item()
            model.train()
            return
        optimizer.zero_grad(set_to_none=True)
        total = None
        for mb in range(o.accum):
            with loop.micro(mb):
                loss = micro_batch(loop, mb)
                total = loss.detach() if total is None else total + loss.detach()
                (loss / o.accum if o.accum > 1 else loss).backward()
                del loss
        with loop.phase("O"):
            if o.skip_step:
                # What a loss scaler does: read whether the step is usable, and leave it out otherwise.
                usable = torch.isfinite(total).item()
                if not usable or loop.it in o.skip_step:
                    loop.step_skipped()
                    return
            optimizer.step()
            total.item()

    return model, optimizer, step


def build_gpt(o, moe=False):
    def batch_of(length):
        tokens = torch.randint(o.vocab, (o.batch, length + 1), device=o.device)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return _build(o, GPT(o, moe), batch_of)


def build_moe(o):
    if o.moe_topk > o.moe_experts:
        raise RecorderError(f"--moe-topk {o.moe_topk} exceeds --moe-experts {o.moe_experts}")
    return build_gpt(o, moe=True)


def build_resnet50(o):
    def batch_of(_):
        images = torch.randn(o.batch, 3, o.image_size, o.image_size, device=o.device,
                             dtype=torch.bfloat16 if o.dtype == "bf16" else torch.float32)
        return images, torch.randint(1000, (o.batch,), device=o.device)
    return _build(o, ResNet50(), batch_of)
