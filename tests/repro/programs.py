"""Programs whose graphs the tests of scripts capture. Line numbers here are in a golden file."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


def small(x, ids, mask):
    """Goes into the golden file."""
    picked = F.embedding(ids, x)
    return picked.masked_fill(mask, -1.0).softmax(-1), picked.sum()


class Scale(torch.autograd.Function):
    """Gives another gradient than autograd would."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w, x > 0

    @staticmethod
    def backward(ctx, gradient, _):
        x, w = ctx.saved_tensors
        return gradient * w * 10, (gradient * x).sum(0)


def policy(ctx, operator, *args, **kwargs):
    keep = operator is torch.ops.aten.mm.default
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


@torch.compiler.nested_compile_region
def region(x):
    return x.sin() + 1


class Block(torch.nn.Module):
    """Parameters, a buffer and a tied weight."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.second(self.first(x).relu()))


class Counting(torch.nn.Module):
    """Symbolically traced it keeps its submodules, with names that are no identifiers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5).eval())
        self.register_buffer("table", torch.linspace(0, 1, 3))
        self.scale = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x):
        return self.layers(x) * self.scale + self.table


def checkpointed(x, w):
    return checkpoint(lambda a: (a @ w).sin(), x, use_reentrant=False).sum()


def selective(x, w):
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(lambda a: (a @ w).sin(), x, use_reentrant=False, context_fn=contexts).sum()


def vmapped(x, w):
    return torch.vmap(torch.vmap(lambda a, b: a * b + b, in_dims=(None, 0)), in_dims=(0, None))(
        x, w
    )


def custom_gradient(x, w):
    scaled, positive = Scale.apply(x, w[0])
    return scaled.sin(), positive


def branches(x, w):
    return torch.cond(x.sum() > 0, lambda a: a.sin() * a, lambda a: a.cos(), (x,)) @ w


def loops(x, w):
    x = x.detach()
    _, grown = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 1.1), (torch.tensor(0), x))
    _, scanned = scan(lambda carry, a: (carry + a, carry * a), torch.zeros(4), grown)
    total = associative_scan(lambda a, b: a + b, scanned, 0, combine_mode="generic")
    return map_over(lambda a: a.sin(), total) @ w.detach()


def nested_region(x, w):
    return region(x) + region(x @ w)


def hooked(x, w):
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    return (y @ w).sin()


def per_sample_gradients(x, w):
    return torch.func.grad(lambda a: (a @ w.detach()).sin().sum())(x.detach())


def modes(x, w):
    with torch.no_grad():
        frozen = x * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = x @ w
        with torch.autocast("cpu", enabled=False):
            high = low.float() @ w
    return frozen + high, low


def odd_arguments(x, w):
    y = x.clone()
    y[0, 1:] = 3
    y += 1
    top = torch.max(x, dim=1)
    parts = torch.split(x, [1, 3], dim=1)
    return (
        y,
        x[None, [0, 1], 1:3:2, ...],
        x.T.contiguous(memory_format=torch.contiguous_format),
        torch.full((2,), complex(0.5, float("-inf")), dtype=torch.complex64),
        torch.zeros(2, device=torch.device("cpu"), dtype=torch.float64) + float("nan"),
        x.masked_fill(x > 0, float("inf")),
        top.values + top.indices,
        2 ** (-parts[0]) - -1,
        torch.tensor([1, 2, 3]),
        x.to("cpu", torch.float16),
        torch.einsum("ij,jk->ik", x, w),
        torch.finfo(x.dtype).max,
    )


TWO_MATRICES = {
    function.__name__: function
    for function in (
        checkpointed,
        selective,
        vmapped,
        custom_gradient,
        branches,
        loops,
        nested_region,
        hooked,
        per_sample_gradients,
        modes,
        odd_arguments,
    )
}
"""Each takes a 4 by 4 matrix twice."""
