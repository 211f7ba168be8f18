"""Activation functions and their backward, where they reach the executor undecomposed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Number, Operand, TensorValue
from thunder.executors.nvfuser.layout import leaves_one, slice_one
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.lowerings.pointwise import only_float
from thunder.executors.nvfuser.sizes import all_concrete

TANH_SCALE = math.sqrt(2 / math.pi)
TANH_CUBIC = 0.044715
"""The two constants of the tanh approximation of gelu (Hendrycks and Gimpel, 2016)."""


def relu(builder: Builder, self: Operand) -> TensorValue:
    """Computes max(x, 0)."""
    return builder.binary("maximum", self, 0)


def threshold_backward(
    builder: Builder, grad_output: Operand, self: Operand, threshold: Number
) -> TensorValue:
    """Lets the gradient pass where x > threshold."""
    return builder.where(builder.compare("le", self, threshold), 0, grad_output)


def gelu(builder: Builder, self: Operand, approximate: str = "none") -> TensorValue:
    """Computes x·Φ(x), or its tanh approximation."""
    half = builder.binary("mul", self, 0.5)
    inner = _gelu_tanh(builder, self) if approximate == "tanh" else _gelu_erf(builder, self)
    return builder.binary("mul", half, builder.binary("add", inner, 1))


def _gelu_erf(builder: Builder, value: Operand) -> TensorValue:
    return builder.unary("erf", builder.binary("mul", value, math.sqrt(0.5)))


def _gelu_tanh(builder: Builder, value: Operand) -> TensorValue:
    square = builder.binary("mul", value, value)
    cubic = builder.binary("mul", builder.binary("mul", square, value), TANH_CUBIC)
    return builder.unary(
        "tanh", builder.binary("mul", builder.binary("add", value, cubic), TANH_SCALE)
    )


def gelu_backward(
    builder: Builder, grad_output: Operand, self: Operand, approximate: str = "none"
) -> TensorValue:
    """Computes the gradient of gelu."""
    if approximate == "tanh":
        slope = _gelu_tanh_slope(builder, self)
    else:
        cdf = builder.binary("mul", builder.binary("add", _gelu_erf(builder, self), 1), 0.5)
        square = builder.binary("mul", builder.binary("mul", self, self), -0.5)
        pdf = builder.binary("mul", builder.unary("exp", square), 1 / math.sqrt(2 * math.pi))
        slope = builder.binary("add", cdf, builder.binary("mul", self, pdf))
    return builder.binary("mul", grad_output, slope)


def _gelu_tanh_slope(builder: Builder, value: Operand) -> TensorValue:
    tanh = _gelu_tanh(builder, value)
    left = builder.binary("mul", builder.binary("add", tanh, 1), 0.5)
    sech = builder.binary("sub", 1, builder.binary("mul", tanh, tanh))
    square = builder.binary("mul", value, value)
    inner = builder.binary("add", builder.binary("mul", square, 3 * TANH_CUBIC), 1)
    inner = builder.binary("mul", inner, TANH_SCALE)
    right = builder.binary("mul", builder.binary("mul", value, 0.5), sech)
    return builder.binary("add", left, builder.binary("mul", right, inner))


def silu(builder: Builder, self: Operand) -> TensorValue:
    """Computes x / (1 + exp(-x))."""
    power = builder.unary("exp", builder.unary("neg", self))
    return builder.binary("truediv", self, builder.binary("add", power, 1))


def silu_backward(builder: Builder, grad_output: Operand, self: Operand) -> TensorValue:
    """Computes the gradient of silu."""
    sigmoid = builder.unary("sigmoid", self)
    rest = builder.binary("mul", self, builder.binary("sub", 1, sigmoid))
    slope = builder.binary("mul", sigmoid, builder.binary("add", rest, 1))
    return builder.binary("mul", grad_output, slope)


def glu(builder: Builder, self: Operand, dim: int = -1) -> TensorValue:
    """Multiplies one half by the sigmoid of the other."""
    size = int(builder.result.shape[dim])
    dim %= len(builder.result.shape)
    left = slice_one(builder, self, dim, 0, size)
    right = slice_one(builder, self, dim, size, 2 * size)
    return builder.binary("mul", left, builder.unary("sigmoid", right))


def _refuse_glu(result: torch.Tensor, self: torch.Tensor, *_: Any, **__: Any) -> str | None:
    if refusal := only_float(result):
        return refusal
    if not all_concrete(self.shape):
        return "it cuts a symbolic shape"
    return leaves_one(self.shape, result.shape)


def sigmoid_backward(builder: Builder, grad_output: Operand, output: Operand) -> TensorValue:
    """Computes g·y·(1 - y)."""
    slope = builder.binary("mul", output, builder.binary("sub", 1, output))
    return builder.binary("mul", grad_output, slope)


def tanh_backward(builder: Builder, grad_output: Operand, output: Operand) -> TensorValue:
    """Computes g·(1 - y²)."""
    slope = builder.binary("sub", 1, builder.binary("mul", output, output))
    return builder.binary("mul", grad_output, slope)


def leaky_relu(builder: Builder, self: Operand, negative_slope: Number = 0.01) -> TensorValue:
    """Computes x where positive, and negative_slope·x elsewhere."""
    positive = builder.compare("gt", self, 0)
    return builder.where(positive, self, builder.binary("mul", self, negative_slope))


def leaky_relu_backward(
    builder: Builder,
    grad_output: Operand,
    self: Operand,
    negative_slope: Number,
    self_is_result: bool,
) -> TensorValue:
    """Computes the gradient of leaky_relu."""
    positive = builder.compare("gt", self, 0)
    return builder.where(positive, grad_output, builder.binary("mul", grad_output, negative_slope))


def elu(
    builder: Builder, self: Operand, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1
) -> TensorValue:
    """Computes scale·x where positive, and scale·alpha·(exp(input_scale·x) - 1) elsewhere."""
    power = builder.unary("expm1", builder.binary("mul", self, input_scale))
    negative = builder.binary("mul", power, alpha * scale)
    return builder.where(
        builder.compare("gt", self, 0), builder.binary("mul", self, scale), negative
    )


def elu_backward(
    builder: Builder,
    grad_output: Operand,
    alpha: Number,
    scale: Number,
    input_scale: Number,
    is_result: bool,
    self_or_result: Operand,
) -> TensorValue:
    """Computes the gradient of elu from its input or its result."""
    if is_result:
        slope = builder.binary(
            "mul", builder.binary("add", self_or_result, alpha * scale), input_scale
        )
    else:
        power = builder.unary("exp", builder.binary("mul", self_or_result, input_scale))
        slope = builder.binary("mul", power, alpha * scale * input_scale)
    positive = builder.compare("gt", self_or_result, 0)
    return builder.where(
        positive,
        builder.binary("mul", grad_output, scale),
        builder.binary("mul", grad_output, slope),
    )


def _limited(builder: Builder, value: Operand, low: Number, high: Number) -> TensorValue:
    return builder.binary("minimum", builder.binary("maximum", value, low), high)


def hardtanh(
    builder: Builder, self: Operand, min_val: Number = -1, max_val: Number = 1
) -> TensorValue:
    """Limits to [min_val, max_val]."""
    return _limited(builder, self, min_val, max_val)


def _inside(builder: Builder, value: Operand, low: Number, high: Number) -> TensorValue:
    above, below = builder.compare("gt", value, low), builder.compare("lt", value, high)
    return builder.elementwise("logical_and", above, below, dtype=torch.bool)


def hardtanh_backward(
    builder: Builder, grad_output: Operand, self: Operand, min_val: Number, max_val: Number
) -> TensorValue:
    """Lets the gradient pass strictly between the limits."""
    outside_low = builder.compare("le", self, min_val)
    outside_high = builder.compare("ge", self, max_val)
    outside = builder.elementwise("logical_or", outside_low, outside_high, dtype=torch.bool)
    return builder.where(outside, 0, grad_output)


def hardsigmoid(builder: Builder, self: Operand) -> TensorValue:
    """Computes min(max(x + 3, 0), 6) / 6."""
    limited = _limited(builder, builder.binary("add", self, 3), 0, 6)
    return builder.binary("mul", limited, 1 / 6)


def hardsigmoid_backward(builder: Builder, grad_output: Operand, self: Operand) -> TensorValue:
    """Lets a sixth of the gradient pass for -3 < x < 3."""
    return builder.where(
        _inside(builder, self, -3, 3), builder.binary("mul", grad_output, 1 / 6), 0
    )


def hardswish(builder: Builder, self: Operand) -> TensorValue:
    """Computes x·hardsigmoid(x)."""
    return builder.binary("mul", self, hardsigmoid(builder, self))


def hardswish_backward(builder: Builder, grad_output: Operand, self: Operand) -> TensorValue:
    """Computes the gradient of hardswish."""
    slope = builder.binary("add", builder.binary("mul", self, 1 / 3), 0.5)
    middle = builder.binary("mul", grad_output, slope)
    low, high = builder.compare("lt", self, -3), builder.compare("le", self, 3)
    return builder.where(low, 0, builder.where(high, middle, grad_output))


def softplus(
    builder: Builder, self: Operand, beta: Number = 1, threshold: Number = 20
) -> TensorValue:
    """Computes log(1 + exp(beta·x)) / beta; x itself where beta·x > threshold."""
    scaled = builder.binary("mul", self, beta)
    smooth = builder.unary("log1p", builder.unary("exp", scaled))
    large = builder.compare("gt", scaled, threshold)
    return builder.where(large, self, builder.binary("truediv", smooth, beta))


def softplus_backward(
    builder: Builder, grad_output: Operand, self: Operand, beta: Number, threshold: Number
) -> TensorValue:
    """Computes the gradient of softplus."""
    scaled = builder.binary("mul", self, beta)
    power = builder.unary("exp", scaled)
    slope = builder.binary("truediv", power, builder.binary("add", power, 1))
    large = builder.compare("gt", scaled, threshold)
    return builder.where(large, grad_output, builder.binary("mul", grad_output, slope))


def mish(builder: Builder, self: Operand) -> TensorValue:
    """Computes x·tanh(log(1 + exp(x)))."""
    smooth = builder.unary("log1p", builder.unary("exp", self))
    large = builder.compare("gt", self, 20)
    return builder.binary("mul", self, builder.unary("tanh", builder.where(large, self, smooth)))


def _entry(lower: Callable[..., Any]) -> Lowering:
    return Lowering(lower=lower, kind=Kind.COMPUTE, refuse=only_float)


LOWERINGS: dict[str, Lowering] = {
    f"aten.{name}.default": _entry(lower)
    for name, lower in {
        "relu": relu,
        "threshold_backward": threshold_backward,
        "gelu": gelu,
        "gelu_backward": gelu_backward,
        "silu": silu,
        "silu_backward": silu_backward,
        "sigmoid_backward": sigmoid_backward,
        "tanh_backward": tanh_backward,
        "leaky_relu": leaky_relu,
        "leaky_relu_backward": leaky_relu_backward,
        "elu": elu,
        "elu_backward": elu_backward,
        "hardtanh": hardtanh,
        "hardtanh_backward": hardtanh_backward,
        "hardsigmoid": hardsigmoid,
        "hardsigmoid_backward": hardsigmoid_backward,
        "hardswish": hardswish,
        "hardswish_backward": hardswish_backward,
        "softplus": softplus,
        "softplus_backward": softplus_backward,
        "mish": mish,
    }.items()
} | {"aten.glu.default": Lowering(lower=glu, kind=Kind.COMPUTE, refuse=_refuse_glu)}
