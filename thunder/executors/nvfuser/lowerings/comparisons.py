"""Comparisons, tests, logic, bits, and choices between values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Operand, TensorValue
from thunder.executors.nvfuser.layout import tensor
from thunder.executors.nvfuser.lowering import Kind, Lowering

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGIC_FOR_BITS = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "ne",
}


def _comparison(operator: str) -> Callable[..., TensorValue]:
    def lower(builder: Builder, self: Operand, other: Operand) -> TensorValue:
        return builder.compare(operator, self, other)

    return lower


def _test(operator: str) -> Callable[..., TensorValue]:
    def lower(builder: Builder, self: Operand) -> TensorValue:
        value = tensor(builder, builder.exact(self))
        value = builder.held(
            value, torch.float64 if value.dtype is torch.float64 else torch.float32
        )
        return builder.emit(operator, value, dtype=torch.bool, shape=value.shape)

    return lower


def _refuse_test(result: torch.Tensor, self: torch.Tensor) -> str | None:
    return None if self.dtype.is_floating_point else "integers are never NaN or infinite"


def _truth(builder: Builder, value: Operand) -> Operand:
    return builder.exact(value) if isinstance(value, TensorValue) else value


def _logical(operator: str) -> Callable[..., TensorValue]:
    def lower(builder: Builder, self: Operand, other: Operand) -> TensorValue:
        left, right = _truth(builder, self), _truth(builder, other)
        return builder.elementwise(operator, left, right, dtype=torch.bool)

    return lower


def logical_not(builder: Builder, self: Operand) -> TensorValue:
    """Says which elements are zero."""
    value = tensor(builder, builder.exact(self))
    if value.dtype is torch.bool:
        return builder.emit("logical_not", value, dtype=torch.bool, shape=value.shape)
    return builder.compare("eq", value, 0)


def _bitwise(operator: str) -> Callable[..., TensorValue]:
    def lower(builder: Builder, self: Operand, other: Operand) -> TensorValue:
        dtype = builder.dtype
        chosen = LOGIC_FOR_BITS[operator] if dtype is torch.bool else operator
        return builder.elementwise(chosen, self, other, dtype=dtype)

    return lower


def bitwise_not(builder: Builder, self: Operand) -> TensorValue:
    """Flips every bit; on bool, logical not."""
    operator = "logical_not" if builder.dtype is torch.bool else "bitwise_not"
    return builder.unary(operator, self)


def where(builder: Builder, condition: Operand, self: Operand, other: Operand) -> TensorValue:
    """Chooses between two values."""
    return builder.where(condition, self, other)


def masked_fill(builder: Builder, self: Operand, mask: Operand, value: Operand) -> TensorValue:
    """Puts `value` where the mask is true."""
    return builder.where(mask, value, self)


def _refuse_byte_mask(result: torch.Tensor, condition: torch.Tensor, *_: Any) -> str | None:
    return None if condition.dtype is torch.bool else "its condition is not bool"


def _refuse_byte_fill(
    result: torch.Tensor, self: Any, mask: torch.Tensor, value: Any
) -> str | None:
    return _refuse_byte_mask(result, mask)


def _entry(
    lower: Callable[..., Any], refuse: Callable[..., str | None] = lambda *_, **__: None
) -> Lowering:
    return Lowering(lower=lower, kind=Kind.COMPUTE, refuse=refuse)


LOWERINGS: dict[str, Lowering] = {
    **{
        f"aten.{name}.{overload}": _entry(_comparison(name))
        for name in COMPARISONS
        for overload in ("Tensor", "Scalar")
    },
    **{
        f"aten.{name}.default": _entry(_test(name), _refuse_test)
        for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf")
    },
    "aten.logical_not.default": _entry(logical_not),
    "aten.logical_and.default": _entry(_logical("logical_and")),
    "aten.logical_or.default": _entry(_logical("logical_or")),
    "aten.logical_xor.default": _entry(_logical("ne")),
    **{
        f"aten.{name}.{overload}": _entry(_bitwise(name))
        for name in LOGIC_FOR_BITS
        for overload in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    "aten.bitwise_not.default": _entry(bitwise_not),
    "aten.where.self": _entry(where, _refuse_byte_mask),
    "aten.where.ScalarOther": _entry(where, _refuse_byte_mask),
    "aten.where.ScalarSelf": _entry(where, _refuse_byte_mask),
    "aten.where.Scalar": _entry(where, _refuse_byte_mask),
    "aten.masked_fill.Scalar": _entry(masked_fill, _refuse_byte_fill),
    "aten.masked_fill.Tensor": _entry(masked_fill, _refuse_byte_fill),
}
