"""Changes of dtype; low precision stays in float32 until it leaves the fusion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Constant, Operand, TensorValue
from thunder.executors.nvfuser.dtypes import compute_dtype, rounded
from thunder.executors.nvfuser.lowering import Kind, Lowering


def convert(builder: Builder, self: Operand, dtype: torch.dtype | None = None) -> Operand:
    """Casts. A cast to low precision stays in float32 until the value leaves the fusion."""
    target = builder.result.dtype if dtype is None else dtype
    if isinstance(self, Constant) and math.isfinite(self.number):
        number = rounded(self.number, target)
        return Constant(number=number, dtype=target, shape=self.shape, sizes=self.sizes)
    if isinstance(self, TensorValue) and self.dtype == target and self.logical == target:
        return self
    if not target.is_floating_point:
        self = builder.exact(self)
    return builder.held(self, compute_dtype(target))


def to_copy(
    builder: Builder,
    self: Operand,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Operand:
    """Casts; where nothing changes, the value itself."""
    return convert(builder, self, dtype)


def _refuse_move(result: torch.Tensor, self: torch.Tensor, *_: Any, **__: Any) -> str | None:
    if result.device != self.device:
        return "it moves data between devices"
    return None


def _entry(lower: Callable[..., Any]) -> Lowering:
    return Lowering(lower=lower, kind=Kind.COMPUTE, refuse=_refuse_move)


LOWERINGS: dict[str, Lowering] = {
    "prims.convert_element_type.default": _entry(convert),
    "aten._to_copy.default": _entry(to_copy),
}
