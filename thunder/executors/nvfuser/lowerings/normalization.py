"""Layer, RMS, group and batch normalisation, with their backward, where they stay undecomposed.

Statistics are computed and returned in float32 (float64 for float64), as ATen does on CUDA.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Operand, TensorValue
from thunder.executors.nvfuser.layout import reshape, squeeze, tensor, unsqueeze
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.sizes import all_concrete, concrete, count

Optional = Operand | None


def _last(value: TensorValue, normalized_shape: Sequence[Any]) -> list[int]:
    rank = len(value.shape)
    return list(range(rank - len(normalized_shape), rank))


def _first(value: TensorValue, normalized_shape: Sequence[Any]) -> list[int]:
    return list(range(len(value.shape) - len(normalized_shape)))


def _reciprocal_root(builder: Builder, variance: TensorValue, eps: float) -> TensorValue:
    dtype = variance.dtype
    return builder.unary("rsqrt", builder.binary("add", variance, eps, dtype=dtype), dtype=dtype)


def _affine(builder: Builder, value: TensorValue, weight: Optional, bias: Optional) -> TensorValue:
    dtype = value.dtype
    if weight is not None:
        value = builder.binary("mul", value, weight, dtype=dtype)
    if bias is not None:
        value = builder.binary("add", value, bias, dtype=dtype)
    return value


def layer_norm(
    builder: Builder,
    input: Operand,
    normalized_shape: Sequence[Any],
    weight: Optional,
    bias: Optional,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Normalises the last dimensions; returns the result, the mean and 1/sqrt(var + eps)."""
    value = builder.held(input, builder.dtype)
    variance, mean = builder.var_mean(value, _last(value, normalized_shape), 0, True)
    scale = _reciprocal_root(builder, variance, eps)
    centred = builder.binary("sub", value, mean)
    normal = builder.binary("mul", centred, scale)
    return _affine(builder, normal, weight, bias), mean, scale


def layer_norm_backward(
    builder: Builder,
    grad_out: Operand,
    input: Operand,
    normalized_shape: Sequence[Any],
    mean: Operand,
    rstd: Operand,
    weight: Optional,
    bias: Optional,
    output_mask: Sequence[bool],
) -> tuple[TensorValue | None, ...]:
    """Computes the gradients of input, weight and bias; those masked out are None."""
    dtype = _backward_dtype(builder)
    gradient, value = builder.held(grad_out, dtype), builder.held(input, dtype)
    last, first = _last(value, normalized_shape), _first(value, normalized_shape)
    centred = builder.binary("sub", value, mean, dtype=dtype)
    normal = builder.binary("mul", centred, rstd, dtype=dtype)
    grads: list[TensorValue | None] = [None, None, None]
    if output_mask[0]:
        inner = _affine(builder, gradient, weight, None)
        total = builder.reduce("sum", inner, last, True)
        along = builder.reduce("sum", builder.binary("mul", inner, normal, dtype=dtype), last, True)
        both = builder.binary(
            "add", total, builder.binary("mul", normal, along, dtype=dtype), dtype=dtype
        )
        mean_part = builder.divided_by_count(both, value.shape, last)
        rest = builder.binary("sub", inner, mean_part, dtype=dtype)
        grads[0] = builder.binary("mul", rest, rstd, dtype=dtype)
    if output_mask[1]:
        grads[1] = _summed(builder, builder.binary("mul", gradient, normal, dtype=dtype), first)
    if output_mask[2]:
        grads[2] = _summed(builder, gradient, first)
    return tuple(grads)


def _summed(builder: Builder, value: TensorValue, dims: list[int]) -> TensorValue:
    return builder.reduce("sum", value, dims, False) if dims else value


def _backward_dtype(builder: Builder) -> torch.dtype:
    present = next(fake for fake in builder.result if fake is not None)
    return torch.float64 if present.dtype is torch.float64 else torch.float32


def rms_norm(
    builder: Builder,
    input: Operand,
    normalized_shape: Sequence[Any],
    weight: Optional,
    eps: float | None,
) -> tuple[TensorValue, TensorValue]:
    """Divides by the root of the mean square; returns the result and 1/sqrt(mean square + eps)."""
    value = builder.held(input, builder.dtype)
    last = _last(value, normalized_shape)
    total = builder.reduce("sum", builder.binary("mul", value, value), last, True)
    mean_square = builder.divided_by_count(total, value.shape, last)
    epsilon = torch.finfo(value.dtype).eps if eps is None else eps
    scale = _reciprocal_root(builder, mean_square, epsilon)
    return _affine(builder, builder.binary("mul", value, scale), weight, None), scale


def rms_norm_backward(
    builder: Builder,
    grad_out: Operand,
    input: Operand,
    normalized_shape: Sequence[Any],
    rstd: Operand,
    weight: Optional,
    output_mask: Sequence[bool],
) -> tuple[TensorValue | None, TensorValue | None]:
    """Computes the gradients of input and weight."""
    dtype = _backward_dtype(builder)
    gradient, value = builder.held(grad_out, dtype), builder.held(input, dtype)
    last, first = _last(value, normalized_shape), _first(value, normalized_shape)
    normal = builder.binary("mul", value, rstd, dtype=dtype)
    grad_input = grad_weight = None
    if output_mask[0]:
        inner = _affine(builder, gradient, weight, None)
        along = builder.reduce("sum", builder.binary("mul", inner, normal, dtype=dtype), last, True)
        mean = builder.divided_by_count(along, value.shape, last)
        part = builder.binary("mul", normal, mean, dtype=dtype)
        rest = builder.binary("sub", inner, part, dtype=dtype)
        grad_input = builder.binary("mul", rest, rstd, dtype=dtype)
    if output_mask[1] and weight is not None:
        product = builder.binary("mul", gradient, normal, dtype=dtype)
        grad_weight = _summed(builder, product, first)
    return grad_input, grad_weight


def group_norm(
    builder: Builder,
    input: Operand,
    weight: Optional,
    bias: Optional,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Normalises groups of channels; returns the result, means and 1/sqrt(var + eps)."""
    whole = builder.held(input, builder.dtype)
    grouped = (N, group, C // group * HxW)
    value = tensor(builder, reshape(builder, whole, grouped, grouped))
    variance, mean = builder.var_mean(value, [2], 0, True)
    scale = _reciprocal_root(builder, variance, eps)
    normal = builder.binary("mul", builder.binary("sub", value, mean), scale)
    sizes = [int(size) for size in whole.shape]
    back = tensor(builder, reshape(builder, normal, whole.shape, sizes))
    spatial = list(range(1, len(whole.shape) - 1))
    weight, bias = (
        None if value is None else unsqueeze(builder, value, spatial) for value in (weight, bias)
    )
    mean, scale = (tensor(builder, squeeze(builder, value, [2])) for value in (mean, scale))
    return _affine(builder, back, weight, bias), mean, scale


def _per_channel(value: TensorValue) -> list[int]:
    return [dim for dim in range(len(value.shape)) if dim != 1]


def _channel(builder: Builder, value: Optional, rank: int) -> Optional:
    return None if value is None else unsqueeze(builder, value, list(range(1, rank - 1)))


def batch_norm_training(
    builder: Builder,
    input: Operand,
    weight: Optional,
    bias: Optional,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue, TensorValue]:
    """Normalises each channel; returns the result, mean, 1/sqrt(var + eps) and variance."""
    value = builder.held(input, builder.dtype)
    dims, rank = _per_channel(value), len(value.shape)
    variance, mean = builder.var_mean(value, dims, 0, True)
    scale = _reciprocal_root(builder, variance, eps)
    normal = builder.binary("mul", builder.binary("sub", value, mean), scale)
    result = _affine(
        builder, normal, _channel(builder, weight, rank), _channel(builder, bias, rank)
    )
    flat = [_flat(builder, statistic, dims) for statistic in (mean, scale, variance)]
    return result, flat[0], flat[1], flat[2]


def _flat(builder: Builder, value: TensorValue, dims: list[int]) -> TensorValue:
    return builder.emit("squeeze", value, dims, dtype=value.dtype, shape=(value.shape[1],))


def batch_norm_functional(
    builder: Builder,
    input: Operand,
    weight: Optional,
    bias: Optional,
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
    weight: Optional,
    bias: Optional,
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
    weight: Optional,
    running_mean: Optional,
    running_var: Optional,
    save_mean: Operand,
    save_invstd: Operand,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[TensorValue | None, ...]:
    """Computes the gradients of input, weight and bias of a training-mode batch norm."""
    dtype = _backward_dtype(builder)
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
        grads[0] = _affine(builder, scaled, _channel(builder, weight, rank), None)
    if output_mask[1]:
        grads[1] = _flat(builder, along, dims)
    if output_mask[2]:
        grads[2] = _flat(builder, total, dims)
    return tuple(grads)


def _refuse_symbolic(result: Any, input: torch.Tensor, *_: Any, **__: Any) -> str | None:
    return None if all_concrete(input.shape) else "its sizes are symbolic"


def _refuse_symbolic_backward(
    result: Any, grad_out: torch.Tensor, input: torch.Tensor, *_: Any, **__: Any
) -> str | None:
    return _refuse_symbolic(result, input)


def _refuse_rms(result: Any, input: torch.Tensor, *rest: Any, **__: Any) -> str | None:
    if not input.dtype.is_floating_point:
        return f"it normalises {input.dtype}"
    return _refuse_symbolic(result, input)


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
    "aten.native_layer_norm.default": _entry(layer_norm, _refuse_symbolic),
    "aten.native_layer_norm_backward.default": _entry(
        layer_norm_backward, _refuse_symbolic_backward
    ),
    "aten._fused_rms_norm.default": _entry(rms_norm, _refuse_rms),
    "aten._fused_rms_norm_backward.default": _entry(rms_norm_backward, _refuse_symbolic_backward),
    "aten.native_group_norm.default": _entry(group_norm, _refuse_symbolic),
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
