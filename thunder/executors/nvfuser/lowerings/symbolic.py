"""Arithmetic on symbolic sizes, which the graph spells as nodes of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import (
    Constant,
    Literal,
    ScalarValue,
    SizeArgument,
    TensorValue,
)
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.sizes import concrete


def size(builder: Builder, self: TensorValue | Constant, dim: int) -> SizeArgument:
    """Returns one size of a tensor."""
    dim %= len(self.shape)
    number = concrete(self.shape[dim])
    if number is not None:
        return number
    if isinstance(self, Constant):
        return self.sizes[dim]
    return builder.emit_scalar("size", self, dim)


def _arithmetic(
    name: str, compute: Callable[[int, int], int]
) -> Callable[[Builder, SizeArgument, SizeArgument], SizeArgument]:
    def lower(builder: Builder, left: SizeArgument, right: SizeArgument) -> SizeArgument:
        if isinstance(left, int) and isinstance(right, int):
            return compute(left, right)
        return builder.emit_scalar(name, *map(_scalar, (left, right)))

    return lower


def _scalar(value: SizeArgument) -> ScalarValue | Literal:
    return Literal(number=value, dtype=torch.int64) if isinstance(value, int) else value


def _refuse_floats(result: Any, left: Any, right: Any) -> str | None:
    if all(isinstance(value, int | torch.SymInt) for value in (result, left, right)):
        return None
    return "it computes with numbers that are no sizes"


LOWERINGS: dict[str, Lowering] = {
    "aten.sym_size.int": Lowering(lower=size, kind=Kind.SIZE),
    **{
        f"operator.{name}": Lowering(
            lower=_arithmetic(operation, getattr(operator, name)),
            kind=Kind.SIZE,
            refuse=_refuse_floats,
        )
        # Sizes are not negative, so that nvFuser's division is Python's.
        for name, operation in {"add": "add", "sub": "sub", "mul": "mul", "floordiv": "div"}.items()
    },
}
