"""Matrix products. Not taken unless asked for: nvFuser hands them to ATen, at a cost."""

from __future__ import annotations

from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Number, Operand, TensorValue
from thunder.executors.nvfuser.layout import stored
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.sizes import concrete_shape


def matmul(builder: Builder, self: Operand, mat2: Operand) -> TensorValue:
    """Multiplies matrices, or batches of them."""
    left, right = stored(builder, self), stored(builder, mat2)
    shape = (*left.shape[:-1], right.shape[-1])
    return builder.emit("matmul", left, right, dtype=left.dtype, shape=concrete_shape(shape))


def addmm(
    builder: Builder,
    self: Operand,
    mat1: Operand,
    mat2: Operand,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> TensorValue:
    """Computes beta·self + alpha·mat1·mat2; the product is rounded to the operands' dtype."""
    product: Operand = matmul(builder, mat1, mat2)
    if alpha != 1:
        product = builder.binary("mul", product, alpha)
    return builder.binary("add", product, self if beta == 1 else builder.binary("mul", self, beta))


def _refuse_integers(result: torch.Tensor, *_: Any, **__: Any) -> str | None:
    return None if result.dtype.is_floating_point else f"it multiplies matrices of {result.dtype}"


LOWERINGS: dict[str, Lowering] = {
    name: Lowering(lower=lower, kind=Kind.REDUCTION, refuse=_refuse_integers)
    for name, lower in {
        "aten.mm.default": matmul,
        "aten.bmm.default": matmul,
        "aten.addmm.default": addmm,
    }.items()
}
