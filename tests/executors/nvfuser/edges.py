"""Inputs and outputs at the edges: layouts, sizes, aliases, numbers. Run on CPU and GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Make = Callable[[str], list[torch.Tensor]]


def normal(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(math.prod(shape))
    return torch.randn(shape, generator=generator).to(device, dtype)


def compute(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * 1.5 + y).tanh()


def reduce(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x * 2).sum(0), (x * 2).sum(-1, keepdim=True), x.amax()


def _image(device):
    return normal(2, 8, 6, 4, device=device)


LAYOUTS: dict[str, tuple[Callable[..., Any], Make]] = {
    "contiguous": (compute, lambda d: [normal(4, 6, device=d), normal(4, 6, device=d)]),
    "transposed": (compute, lambda d: [normal(6, 4, device=d).t(), normal(6, 4, device=d).t()]),
    "one_transposed": (compute, lambda d: [normal(6, 4, device=d).t(), normal(4, 6, device=d)]),
    "channels_last": (
        compute,
        lambda d: [
            _image(d).to(memory_format=torch.channels_last),
            _image(d).to(memory_format=torch.channels_last),
        ],
    ),
    "channels_last_and_not": (
        compute,
        lambda d: [_image(d).to(memory_format=torch.channels_last), _image(d)],
    ),
    "channels_last_and_bias": (
        compute,
        lambda d: [
            _image(d).to(memory_format=torch.channels_last),
            normal(8, 1, 1, device=d),
        ],
    ),
    "row_slice": (compute, lambda d: [normal(8, 6, device=d)[::2], normal(4, 6, device=d)]),
    "column_slice": (compute, lambda d: [normal(4, 16, device=d)[:, 3:9], normal(4, 6, device=d)]),
    "step_slice": (compute, lambda d: [normal(4, 12, device=d)[:, ::2], normal(4, 6, device=d)]),
    "misaligned": (
        compute,
        lambda d: [normal(4 * 64 + 1, device=d)[1:].view(4, 64), normal(4, 64, device=d)],
    ),
    "misaligned_low": (
        compute,
        lambda d: [
            normal(4 * 64 + 3, device=d, dtype=torch.bfloat16)[3:].view(4, 64),
            normal(4, 64, device=d, dtype=torch.bfloat16),
        ],
    ),
    "expanded": (compute, lambda d: [normal(6, device=d).expand(4, 6), normal(4, 6, device=d)]),
    "expanded_column": (
        compute,
        lambda d: [normal(4, 1, device=d).expand(4, 6), normal(4, 6, device=d)],
    ),
    "both_expanded": (
        compute,
        lambda d: [normal(6, device=d).expand(4, 6), normal(6, device=d).expand(4, 6)],
    ),
    "size_one_stride": (
        compute,
        lambda d: [
            torch.empty_strided((4, 1, 6), (6, 77, 1), device=d).copy_(normal(4, 1, 6, device=d)),
            normal(4, 3, 6, device=d),
        ],
    ),
    "size_one_everywhere": (compute, lambda d: [normal(1, 1, device=d), normal(1, 1, device=d)]),
    "zero_dim": (compute, lambda d: [normal(device=d), normal(4, 6, device=d)]),
    "cpu_scalar": (
        compute,
        lambda d: [normal(4, 6, device=d), torch.tensor(0.37, dtype=torch.float64)],
    ),
    "cpu_integer": (compute, lambda d: [normal(4, 6, device=d), torch.tensor(3)]),
    "odd_sizes": (compute, lambda d: [normal(7, 13, 3, device=d), normal(13, 3, device=d)]),
    "reduce_transposed": (reduce, lambda d: [normal(6, 40, device=d).t()]),
    "reduce_channels_last": (
        reduce,
        lambda d: [_image(d).to(memory_format=torch.channels_last)],
    ),
    "reduce_expanded": (reduce, lambda d: [normal(1, 6, device=d).expand(5, 6)]),
    "reduce_sliced": (reduce, lambda d: [normal(4, 24, device=d)[:, 2:20]]),
    "large_rank": (compute, lambda d: [normal(2, 1, 2, 1, 2, 2, 1, 2, device=d)] * 2),
}


def view_of_input(x):
    return x.t(), x * 2


def view_of_result(x):
    y = x.exp()
    return y, y.t(), y[1:, 2:4], y.unsqueeze(0).expand(3, 4, 6)


def view_only_of_hidden(x):
    return x.exp().t(), x.sin()[1]


def expanded_result(x):
    return (x.sum(-1, keepdim=True).expand(4, 6),)


def broadcast_result(x):
    return (x.sum(-1, keepdim=True).expand(4, 6) / 32,)


def copies(x):
    y = x.exp()
    return x.clone(), y, y.clone(), y.t().contiguous()


def round_trip(x):
    return x.to(torch.bfloat16), x.to(torch.float64).to(torch.float32), x.exp()


def identities(x):
    return x**1.0, x + 0, x * 1, x.sum(dim=[], keepdim=True) if x.ndim == 0 else x - 0


def same_twice(x):
    y = x.cos()
    return y, y


def input_itself(x):
    return x, x.cos()


def constants(x):
    return x * math.inf, x + math.nan, x.clamp(min=-math.inf), x * 1e-45, x * 3.0000001


def filled(x):
    return torch.full_like(x, 0.1), torch.zeros(3, device=x.device), x + 1


def booleans(x):
    return x > 0, ~(x > 0), (x > 0) & (x < 1), (x > 0).sum(), (x > 0) * 2


def integers(x):
    n = (x * 100).to(torch.int64)
    return n, n * 3_000_000_000, n // 7, n % -7, n.to(torch.int32) * 2_000_000, n.sum(0), n.amax(1)


def mixed(x):
    return x.to(torch.float64) * 2 + x, x.half() * 2, (x.bfloat16() * 2).half()


def multi_reduce(x):
    return x.sum(), x.mean(0), x.var(1), x.amax(), x.prod(1), (x > 0).any(0), (x > 0).all()


OUTPUTS: dict[str, tuple[Callable[..., Any], Make]] = {
    function.__name__: (function, lambda d: [normal(4, 6, device=d)])
    for function in (
        view_of_input,
        view_of_result,
        view_only_of_hidden,
        expanded_result,
        broadcast_result,
        copies,
        round_trip,
        identities,
        same_twice,
        input_itself,
        constants,
        filled,
        booleans,
        integers,
        mixed,
        multi_reduce,
    )
}
OUTPUTS["identities_zero_dim"] = (identities, lambda d: [normal(device=d)])
OUTPUTS["copies_low"] = (copies, lambda d: [normal(4, 6, device=d, dtype=torch.bfloat16)])


def aliases(results: Any, inputs: list[torch.Tensor]) -> set[tuple[int, int]]:
    """Returns which pairs of inputs and results, counted in one sequence, share memory."""
    tensors = [*inputs, *results]
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return {
        (left, right)
        for right in range(len(tensors))
        for left in range(right)
        if storages[left] == storages[right] and tensors[left].numel()
    }
