"""Batch normalisation in training mode, with its backward, where it stays undecomposed.

Running statistics are ordinary results: the operators that update them in place are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Operand, TensorValue
from thunder.executors.nvfuser.layout import unsqueeze
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.lowerings.normalization import (
    affine,
    backward_dtype,
    reciprocal_root,
)
from thunder.executors.nvfuser.sizes import all_concrete, concrete, count

OptionalOperand = Operand | None


def _per_channel(value: TensorValue) -> list[int]:
    return [dim for dim in range(len(value.shape)) if dim != 1]


def _channel(builder: Builder, value: OptionalOperand, rank: int) -> OptionalOperand:
    return None if value is None else unsqueeze(builder, value, list(range(1, rank - 1)))


def batch_norm_training(
    builder: Builder,
    input: Operand,
    weight: OptionalOperand,
    bias: OptionalOperand,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue, TensorValue]:
    """Normalises each channel; returns the result, mean, 1/sqrt(var + eps) and variance."""
    value = builder.held(input, builder.dtype)
    dims, rank = _per_channel(value), len(value.shape)
    variance, mean = builder.var_mean(value, dims, 0, True)
    scale = reciprocal_root(builder, variance, eps)
    normal = builder.binary("mul", builder.binary("sub", value, mean), scale)
    result = affine(builder, normal, _channel(builder, weight, rank), _channel(builder, bias, rank))
    flat = [_flat(builder, statistic, dims) for statistic in (mean, scale, variance)]
    return result, flat[0], flat[1], flat[2]


def _flat(builder: Builder, value: TensorValue, dims: list[int]) -> TensorValue:
    return builder.emit("squeeze", value, dims, dtype=value.dtype, shape=(value.shape[1],))


def batch_norm_functional(
    builder: Builder,
    input: Operand,
    weight: OptionalOperand,
    bias: OptionalOperand,
    running_mean: Operand,
    running_var: Operand,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorValue | None, ...]:
    """Normalises each channel; returns result, statistics, and the new running statistics."""
    result, mean, scale, variance = batch_norm_training(builder, input, weight, bias, eps)
    value = builder.held(input, builder.dtype)
    elements = count(value.shape, _per_channel(value))
    assert elements is not None and elements > 1, "checks keep these away"
    unbiased = builder.binary("mul", variance, elements / (elements - 1))
    running = [
        builder.binary(
            "add", builder.binary("mul", new, momentum), builder.binary("mul", old, 1 - momentum)
        )
        for new, old in ((mean, running_mean), (unbiased, running_var))
    ]
    return result, mean, scale, *running


def batch_norm_no_stats(
    builder: Builder,
    input: Operand,
    weight: OptionalOperand,
    bias: OptionalOperand,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Normalises each channel by the batch's own statistics."""
    return batch_norm_training(builder, input, weight, bias, eps)[:3]


def batch_norm_backward(
    builder: Builder,
    grad_out: Operand,
    input: Operand,
    weight: OptionalOperand,
    running_mean: OptionalOperand,
    running_var: OptionalOperand,
    save_mean: Operand,
    save_invstd: Operand,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[TensorValue | None, ...]:
    """Computes the gradients of input, weight and bias of a training-mode batch norm."""
    dtype = backward_dtype(builder)
    gradient, value = builder.held(grad_out, dtype), builder.held(input, dtype)
    dims, rank = _per_channel(value), len(value.shape)
    mean, scale = _channel(builder, save_mean, rank), _channel(builder, save_invstd, rank)
    assert mean is not None and scale is not None
    normal = builder.binary(
        "mul", builder.binary("sub", value, mean, dtype=dtype), scale, dtype=dtype
    )
    total = builder.reduce("sum", gradient, dims, True)
    along = builder.reduce("sum", builder.binary("mul", gradient, normal, dtype=dtype), dims, True)
    grads: list[TensorValue | None] = [None, None, None]
    if output_mask[0]:
        both = builder.binary(
            "add", total, builder.binary("mul", normal, along, dtype=dtype), dtype=dtype
        )
        part = builder.divided_by_count(both, value.shape, dims)
        rest = builder.binary("sub", gradient, part, dtype=dtype)
        scaled = builder.binary("mul", rest, scale, dtype=dtype)
        grads[0] = affine(builder, scaled, _channel(builder, weight, rank), None)
    if output_mask[1]:
        grads[1] = _flat(builder, along, dims)
    if output_mask[2]:
        grads[2] = _flat(builder, total, dims)
    return tuple(grads)


def _refuse_batch_norm(
    result: Any,
    input: torch.Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    *_: Any,
) -> str | None:
    sizes = [concrete(size) for size in input.shape]
    if None in sizes:
        return "its sizes are symbolic"
    if running_mean is None or running_var is None or not training:
        return "it is translated for training with running statistics"
    if math.prod(size or 0 for size in (sizes[0], *sizes[2:])) < 2:
        return "it normalises a single value a channel"
    return None


def _refuse_batch_norm_no_stats(
    result: Any, input: torch.Tensor, weight: Any, bias: Any, training: bool, *_: Any
) -> str | None:
    return None if training else "without statistics it is translated for training only"


def _refuse_batch_norm_backward(
    result: Any, grad_out: torch.Tensor, input: torch.Tensor, *rest: Any
) -> str | None:
    if not all_concrete(input.shape):
        return "its sizes are symbolic"
    train = rest[5]
    return None if train else "the backward is translated for training mode"


def _entry(lower: Callable[..., Any], refuse: Callable[..., str | None]) -> Lowering:
    return Lowering(lower=lower, kind=Kind.REDUCTION, refuse=refuse)


LOWERINGS: dict[str, Lowering] = {
    "aten._native_batch_norm_legit_functional.default": _entry(
        batch_norm_functional, _refuse_batch_norm
    ),
    "aten._native_batch_norm_legit.no_stats": _entry(
        batch_norm_no_stats, _refuse_batch_norm_no_stats
    ),
    "aten.native_batch_norm_backward.default": _entry(
        batch_norm_backward, _refuse_batch_norm_backward
    ),
}
