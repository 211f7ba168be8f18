"""Layer, RMS and group normalisation, with their backward, where they stay undecomposed.

Statistics are computed and returned in float32 (float64 for float64), as ATen does on CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Operand, TensorValue
from thunder.executors.nvfuser.layout import reshape, squeeze, tensor, unsqueeze
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.sizes import all_concrete

OptionalOperand = Operand | None


def _last(value: TensorValue, normalized_shape: Sequence[Any]) -> list[int]:
    rank = len(value.shape)
    return list(range(rank - len(normalized_shape), rank))


def _first(value: TensorValue, normalized_shape: Sequence[Any]) -> list[int]:
    return list(range(len(value.shape) - len(normalized_shape)))


def reciprocal_root(builder: Builder, variance: TensorValue, eps: float) -> TensorValue:
    """Computes 1/sqrt(variance + eps)."""
    dtype = variance.dtype
    return builder.unary("rsqrt", builder.binary("add", variance, eps, dtype=dtype), dtype=dtype)


def affine(
    builder: Builder, value: TensorValue, weight: OptionalOperand, bias: OptionalOperand
) -> TensorValue:
    """Multiplies by the weight and adds the bias, where there are any."""
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
    weight: OptionalOperand,
    bias: OptionalOperand,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Normalises the last dimensions; returns the result, the mean and 1/sqrt(var + eps)."""
    value = builder.held(input, builder.dtype)
    variance, mean = builder.var_mean(value, _last(value, normalized_shape), 0, True)
    scale = reciprocal_root(builder, variance, eps)
    centred = builder.binary("sub", value, mean)
    normal = builder.binary("mul", centred, scale)
    return affine(builder, normal, weight, bias), mean, scale


def layer_norm_backward(
    builder: Builder,
    grad_out: Operand,
    input: Operand,
    normalized_shape: Sequence[Any],
    mean: Operand,
    rstd: Operand,
    weight: OptionalOperand,
    bias: OptionalOperand,
    output_mask: Sequence[bool],
) -> tuple[TensorValue | None, ...]:
    """Computes the gradients of input, weight and bias; those masked out are None."""
    dtype = backward_dtype(builder)
    gradient, value = builder.held(grad_out, dtype), builder.held(input, dtype)
    last, first = _last(value, normalized_shape), _first(value, normalized_shape)
    centred = builder.binary("sub", value, mean, dtype=dtype)
    normal = builder.binary("mul", centred, rstd, dtype=dtype)
    grads: list[TensorValue | None] = [None, None, None]
    if output_mask[0]:
        inner = affine(builder, gradient, weight, None)
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


def backward_dtype(builder: Builder) -> torch.dtype:
    """Returns the dtype in which the gradients are computed."""
    present = next(fake for fake in builder.result if fake is not None)
    return torch.float64 if present.dtype is torch.float64 else torch.float32


def rms_norm(
    builder: Builder,
    input: Operand,
    normalized_shape: Sequence[Any],
    weight: OptionalOperand,
    eps: float | None,
) -> tuple[TensorValue, TensorValue]:
    """Divides by the root of the mean square; returns the result and 1/sqrt(mean square + eps)."""
    value = builder.held(input, builder.dtype)
    last = _last(value, normalized_shape)
    total = builder.reduce("sum", builder.binary("mul", value, value), last, True)
    mean_square = builder.divided_by_count(total, value.shape, last)
    epsilon = torch.finfo(value.dtype).eps if eps is None else eps
    scale = reciprocal_root(builder, mean_square, epsilon)
    return affine(builder, builder.binary("mul", value, scale), weight, None), scale


def rms_norm_backward(
    builder: Builder,
    grad_out: Operand,
    input: Operand,
    normalized_shape: Sequence[Any],
    rstd: Operand,
    weight: OptionalOperand,
    output_mask: Sequence[bool],
) -> tuple[TensorValue | None, TensorValue | None]:
    """Computes the gradients of input and weight."""
    dtype = backward_dtype(builder)
    gradient, value = builder.held(grad_out, dtype), builder.held(input, dtype)
    last, first = _last(value, normalized_shape), _first(value, normalized_shape)
    normal = builder.binary("mul", value, rstd, dtype=dtype)
    grad_input = grad_weight = None
    if output_mask[0]:
        inner = affine(builder, gradient, weight, None)
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
    weight: OptionalOperand,
    bias: OptionalOperand,
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
    scale = reciprocal_root(builder, variance, eps)
    normal = builder.binary("mul", builder.binary("sub", value, mean), scale)
    sizes = [int(size) for size in whole.shape]
    back = tensor(builder, reshape(builder, normal, whole.shape, sizes))
    spatial = list(range(1, len(whole.shape) - 1))
    weight, bias = (
        None if value is None else unsqueeze(builder, value, spatial) for value in (weight, bias)
    )
    mean, scale = (tensor(builder, squeeze(builder, value, [2])) for value in (mean, scale))
    return affine(builder, back, weight, bias), mean, scale


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
}
