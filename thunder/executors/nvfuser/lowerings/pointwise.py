"""Elementwise arithmetic: one operator in, one or a few out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Number, Operand, TensorValue
from thunder.executors.nvfuser.lowering import Kind, Lowering

# fmt: off
FLOAT_UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "erfinv",
    "exp", "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt",
    "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
)
# fmt: on
"""Operators whose result is floating point whatever they are given."""


def _unary(operator: str) -> Callable[[Builder, Operand], TensorValue]:
    def lower(builder: Builder, self: Operand) -> TensorValue:
        return builder.unary(operator, self)

    return lower


def _binary(operator: str) -> Callable[[Builder, Operand, Operand], TensorValue]:
    def lower(builder: Builder, self: Operand, other: Operand) -> TensorValue:
        return builder.binary(operator, self, other)

    return lower


def _jumping(operator: str) -> Callable[[Builder, Operand], TensorValue]:
    def lower(builder: Builder, self: Operand) -> TensorValue:
        return builder.unary(operator, builder.exact(self))

    return lower


def no_bool(result: Any, *_: Any, **__: Any) -> str | None:
    """Refuses arithmetic whose result is bool, which nvFuser would do on integers."""
    first = result[0] if isinstance(result, tuple | list) else result
    return "arithmetic on bool tensors is left to ATen" if first.dtype is torch.bool else None


def only_float(result: Any, *_: Any, **__: Any) -> str | None:
    """Refuses integers, for which the operator is the identity or is not defined."""
    first = result[0] if isinstance(result, tuple | list) else result
    return (
        None if first.dtype.is_floating_point else f"it is translated for floats, not {first.dtype}"
    )


def _scaled(builder: Builder, value: Operand, alpha: Operand) -> Operand:
    if isinstance(alpha, bool | int | float) and alpha == 1:
        return value
    return builder.binary("mul", value, alpha)


def add(builder: Builder, self: Operand, other: Operand, alpha: Operand = 1) -> TensorValue:
    """Computes self + alpha * other."""
    return builder.binary("add", self, _scaled(builder, other, alpha))


def sub(builder: Builder, self: Operand, other: Operand, alpha: Operand = 1) -> TensorValue:
    """Computes self - alpha * other."""
    return builder.binary("sub", self, _scaled(builder, other, alpha))


def rsub(builder: Builder, self: Operand, other: Operand, alpha: Operand = 1) -> TensorValue:
    """Computes other - alpha * self."""
    return builder.binary("sub", other, _scaled(builder, self, alpha))


def mul(builder: Builder, self: Operand, other: Operand) -> TensorValue:
    """Computes self * other; on bool, logical and."""
    return builder.binary("logical_and" if builder.dtype is torch.bool else "mul", self, other)


def div(
    builder: Builder, self: Operand, other: Operand, rounding_mode: str | None = None
) -> TensorValue:
    """Divides; `rounding_mode` as in `torch.div`."""
    if rounding_mode is None:
        return builder.binary("truediv", self, other)
    self, other = builder.exact(self), builder.exact(other)
    if builder.dtype.is_floating_point:
        return _rounded_quotient(builder, self, other, rounding_mode)
    if rounding_mode == "trunc":
        return builder.binary("div", self, other)
    # The remainder has the sign of the divisor, so that what is left divides without rest.
    rest = builder.binary("remainder", self, other)
    return builder.binary("div", builder.binary("sub", self, rest), other)


def floor_divide(builder: Builder, self: Operand, other: Operand) -> TensorValue:
    """Divides and rounds down."""
    return div(builder, self, other, "floor")


def _rounded_quotient(
    builder: Builder, self: Operand, other: Operand, rounding_mode: str
) -> TensorValue:
    other = builder.held(other, builder.dtype)
    quotient = builder.binary("truediv", self, other)
    if rounding_mode == "trunc":
        return builder.unary("trunc", quotient)
    # As ATen: the quotient of what divides without rest, corrected by the sign of the rest, so
    # that rounding in the division cannot lift the result over an integer.
    rest = builder.binary("fmod", self, other)
    whole = builder.binary("truediv", builder.binary("sub", self, rest), other)
    opposite = builder.compare(
        "ne", builder.compare("lt", rest, 0), builder.compare("lt", other, 0)
    )
    crossed = builder.elementwise(
        "logical_and", builder.compare("ne", rest, 0), opposite, dtype=torch.bool
    )
    whole = builder.where(crossed, builder.binary("sub", whole, 1), whole)
    floor = builder.unary("floor", whole)
    high = builder.compare("gt", builder.binary("sub", whole, floor), 0.5)
    floor = builder.where(high, builder.binary("add", floor, 1), floor)
    zero = builder.compare("eq", other, 0)
    return builder.where(zero, quotient, floor)


def _refuse_rounded_division(
    result: torch.Tensor, self: Any, other: Any, rounding_mode: str | None = None
) -> str | None:
    if rounding_mode is None or result.dtype.is_floating_point:
        return None
    if isinstance(other, int) and other != 0 and result.dtype is not torch.bool:
        return None
    return "integer division by a tensor may divide by zero, which ATen reports"


def _rest(operator: str) -> Callable[[Builder, Operand, Operand], TensorValue]:
    def lower(builder: Builder, self: Operand, other: Operand) -> TensorValue:
        return builder.binary(operator, builder.exact(self), builder.exact(other))

    return lower


def _refuse_integer_rest(result: torch.Tensor, self: Any, other: Any) -> str | None:
    return _refuse_rounded_division(result, self, other, "floor")


def power(builder: Builder, self: Operand, exponent: Operand) -> TensorValue:
    """Computes self ** exponent; ATen's special cases for constant exponents included."""
    if not isinstance(exponent, bool | int | float):
        return builder.binary("pow", self, exponent)
    special = _SPECIAL_POWERS.get(exponent)
    if special is not None:
        return special(builder, builder.held(self, builder.dtype))
    return builder.binary("pow", self, exponent)


def _product(builder: Builder, value: TensorValue, times: int) -> TensorValue:
    result = value
    for _ in range(times - 1):
        result = builder.binary("mul", result, value)
    return result


_SPECIAL_POWERS: dict[float, Callable[[Builder, TensorValue], TensorValue]] = {
    1: lambda b, x: b.binary("mul", x, 1),
    2: lambda b, x: _product(b, x, 2),
    3: lambda b, x: _product(b, x, 3),
    4: lambda b, x: _product(b, _product(b, x, 2), 2),
    0.5: lambda b, x: b.unary("sqrt", x),
    -0.5: lambda b, x: b.unary("rsqrt", x),
    -1: lambda b, x: b.unary("reciprocal", x),
    -2: lambda b, x: b.unary("reciprocal", _product(b, x, 2)),
}


def _refuse_integer_power(result: torch.Tensor, self: Any, exponent: Any) -> str | None:
    if result.dtype.is_floating_point:
        return None
    if isinstance(exponent, int) and exponent in (1, 2, 3, 4) and result.dtype is not torch.bool:
        return None
    return "integer powers are translated for the constant exponents 1 to 4"


def scalar_power(builder: Builder, self: Number, exponent: Operand) -> TensorValue:
    """Computes self ** exponent for a number `self`."""
    return builder.binary("pow", self, exponent)


def square(builder: Builder, self: Operand) -> TensorValue:
    """Computes self * self."""
    return builder.binary("mul", self, self)


def _minimum_maximum_ignoring_nan(operator: str) -> Callable[..., TensorValue]:
    def lower(builder: Builder, self: Operand, other: Operand) -> TensorValue:
        dtype = builder.dtype
        left, right = builder.held(self, dtype), builder.held(other, dtype)
        best = builder.binary(operator, left, right)
        left_nan, right_nan = (
            builder.emit("isnan", value, dtype=torch.bool, shape=value.shape)
            for value in (left, right)
        )
        return builder.where(left_nan, right, builder.where(right_nan, left, best))

    return lower


def clamp(
    builder: Builder, self: Operand, min: Operand | None = None, max: Operand | None = None
) -> TensorValue:
    """Limits to [min, max]; where min > max the result is max, and NaN stays NaN."""
    value: Operand = self
    if min is not None:
        value = builder.binary("maximum", value, min)
    if max is not None:
        value = builder.binary("minimum", value, max)
    assert isinstance(value, TensorValue)
    return value


def clamp_max(builder: Builder, self: Operand, max: Operand) -> TensorValue:
    """Limits from above."""
    return builder.binary("minimum", self, max)


def lerp(builder: Builder, self: Operand, end: Operand, weight: Operand) -> TensorValue:
    """Interpolates, from the nearer end as ATen does."""
    difference = builder.binary("sub", end, self)
    low = builder.binary("add", self, builder.binary("mul", weight, difference))
    if isinstance(weight, bool | int | float):
        if abs(weight) < 0.5:
            return low
        return builder.binary("sub", end, builder.binary("mul", difference, 1 - weight))
    rest = builder.binary("sub", 1, weight)
    high = builder.binary("sub", end, builder.binary("mul", difference, rest))
    near = builder.elementwise(
        "lt", builder.unary("abs", weight), 0.5, dtype=builder.dtype, result=torch.bool
    )
    return builder.where(near, low, high)


def addcmul(
    builder: Builder, self: Operand, tensor1: Operand, tensor2: Operand, value: Number = 1
) -> TensorValue:
    """Computes self + value * tensor1 * tensor2."""
    product = builder.binary("mul", _scaled(builder, tensor1, value), tensor2)
    return builder.binary("add", self, product)


def addcdiv(
    builder: Builder, self: Operand, tensor1: Operand, tensor2: Operand, value: Number = 1
) -> TensorValue:
    """Computes self + value * tensor1 / tensor2."""
    quotient = builder.binary("truediv", _scaled(builder, tensor1, value), tensor2)
    return builder.binary("add", self, quotient)


def fma(builder: Builder, a: Operand, b: Operand, c: Operand) -> TensorValue:
    """Computes a * b + c; nvcc contracts the two."""
    return builder.binary("add", builder.binary("mul", a, b), c)


def _entry(lower: Callable[..., Any], refuse: Callable[..., str | None] = no_bool) -> Lowering:
    return Lowering(lower=lower, kind=Kind.COMPUTE, refuse=refuse)


def _tensor_and_scalar(name: str, entry: Lowering) -> dict[str, Lowering]:
    return {f"aten.{name}.Tensor": entry, f"aten.{name}.Scalar": entry}


LOWERINGS: dict[str, Lowering] = {
    **{f"aten.{name}.default": _entry(_unary(name)) for name in FLOAT_UNARY},
    **{f"aten.{name}.default": _entry(_unary(name)) for name in ("abs", "neg", "sign")},
    "aten.sgn.default": _entry(_unary("sign")),
    **{
        f"aten.{name}.default": _entry(_jumping(name), only_float)
        for name in ("ceil", "floor", "frac", "round", "trunc")
    },
    **_tensor_and_scalar("add", _entry(add)),
    **_tensor_and_scalar("sub", _entry(sub)),
    **_tensor_and_scalar("rsub", _entry(rsub)),
    **_tensor_and_scalar("mul", _entry(mul, lambda *_: None)),
    **_tensor_and_scalar("div", _entry(div)),
    "aten.div.Tensor_mode": _entry(div, _refuse_rounded_division),
    "aten.div.Scalar_mode": _entry(div, _refuse_rounded_division),
    "aten.true_divide.Tensor": _entry(div),
    "aten.floor_divide.default": _entry(floor_divide, _refuse_integer_rest),
    **_tensor_and_scalar("remainder", _entry(_rest("remainder"), _refuse_integer_rest)),
    **_tensor_and_scalar("fmod", _entry(_rest("fmod"), _refuse_integer_rest)),
    "aten.pow.Tensor_Scalar": _entry(power, _refuse_integer_power),
    "aten.pow.Tensor_Tensor": _entry(power, _refuse_integer_power),
    "aten.pow.Scalar": _entry(scalar_power, only_float),
    "aten.square.default": _entry(square),
    "aten.maximum.default": _entry(_binary("maximum")),
    "aten.minimum.default": _entry(_binary("minimum")),
    "aten.fmax.default": _entry(_minimum_maximum_ignoring_nan("maximum"), only_float),
    "aten.fmin.default": _entry(_minimum_maximum_ignoring_nan("minimum"), only_float),
    "aten.atan2.default": _entry(_binary("atan2")),
    "aten.clamp.default": _entry(clamp),
    "aten.clamp.Tensor": _entry(clamp),
    "aten.clamp_min.default": _entry(clamp),
    "aten.clamp_min.Tensor": _entry(clamp),
    "aten.clamp_max.default": _entry(clamp_max),
    "aten.clamp_max.Tensor": _entry(clamp_max),
    "aten.lerp.Scalar": _entry(lerp, only_float),
    "aten.lerp.Tensor": _entry(lerp, only_float),
    "aten.addcmul.default": _entry(addcmul),
    "aten.addcdiv.default": _entry(addcdiv, only_float),
    "prims.fma.default": _entry(fma, only_float),
}
