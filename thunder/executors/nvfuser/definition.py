"""A fusion as data: inputs, calls and outputs, with nothing of nvFuser in it.

The translator writes a `Definition`; `build.py` plays it to nvFuser and `source.py` prints it as
Python. Both read the same records, so the text is the fusion, constants included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from thunder.executors.nvfuser.sizes import Shape

Number: TypeAlias = bool | int | float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TensorValue:
    """A tensor inside the fusion.

    Attributes:
        name: Its name in the printed definition.
        dtype: The dtype that nvFuser holds it in.
        logical: The dtype that the ATen graph gives it; differs from `dtype` when low precision
            is held in float32.
        shape: Its sizes.
        exact: Whether every element is known to be a value of `logical`.
        expanded: The dimensions that nvFuser only broadcasts; see `expansion.py`.
    """

    name: str
    dtype: torch.dtype
    logical: torch.dtype
    shape: Shape
    exact: bool
    expanded: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScalarValue:
    """A number that is only known when the fusion runs: a symbolic size, or made from some.

    Attributes:
        name: Its name in the printed definition.
        dtype: `torch.int64` or `torch.float64`.
    """

    name: str
    dtype: torch.dtype


SizeArgument: TypeAlias = int | ScalarValue


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """A tensor whose elements are all one number, known now; it exists only where it must.

    Attributes:
        number: The number, a value of `dtype`.
        dtype: The dtype that the ATen graph gives it.
        shape: Its sizes.
        sizes: Its sizes as nvFuser takes them.
    """

    number: Number
    dtype: torch.dtype
    shape: Shape
    sizes: tuple[SizeArgument, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Literal:
    """A number in a call, with the dtype that nvFuser is to give it."""

    number: Number
    dtype: torch.dtype


Operand: TypeAlias = TensorValue | ScalarValue | Constant | Number
"""What an ATen argument becomes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorInput:
    """An input tensor, as `define_tensor` wants it.

    Attributes:
        value: The tensor.
        position: Which of the region's placeholders it is.
        sizes: -1 for a symbolic size.
        contiguity: One entry a dimension in memory order, from the outermost.
        stride_order: For each dimension its rank in memory, 0 being the innermost.
        is_cpu: Whether it is a CPU scalar.
    """

    value: TensorValue
    position: int
    sizes: tuple[int, ...]
    contiguity: tuple[bool | None, ...]
    stride_order: tuple[int, ...]
    is_cpu: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalarInput:
    """An input number.

    Attributes:
        value: The number.
        position: Which of the region's placeholders it is.
    """

    value: ScalarValue
    position: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of an nvFuser operator.

    Attributes:
        operator: Its name in `fd.ops`.
        arguments: Values, literals, dtypes, plain Python numbers and lists of these.
        results: What the call returns.
        origin: The ATen node that it is part of.
    """

    operator: str
    arguments: tuple[Any, ...]
    results: tuple[TensorValue | ScalarValue, ...]
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """A whole fusion.

    Attributes:
        inputs: In the order in which `execute` takes them.
        calls: In order.
        outputs: In the order in which `execute` returns them.
    """

    inputs: tuple[TensorInput | ScalarInput, ...]
    calls: tuple[Call, ...]
    outputs: tuple[TensorValue, ...]
