"""Records a fusion. Lowerings say what to compute; this module keeps dtypes and shapes right.

Every operator is recorded with operands of one dtype, so that its result dtype never depends on
nvFuser's promotion rules. Shape operators are in `layout.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from thunder.executors.nvfuser.definition import (
    Constant,
    Literal,
    Number,
    Operand,
    ScalarValue,
    SizeArgument,
    TensorValue,
)
from thunder.executors.nvfuser.dtypes import LOW_PRECISION, compute_dtype, rounded
from thunder.executors.nvfuser.recorder import Recorder
from thunder.executors.nvfuser.sizes import (
    Shape,
    broadcast,
    count,
    normalized,
    same_shape,
)


class Builder:
    """What lowerings write a fusion with.

    Attributes:
        recorder: Gets the calls.
        result: The fake value of the ATen node that is being lowered: a tensor, or a tuple of
            tensors (None for those that were not asked for).
    """

    def __init__(self, recorder: Recorder) -> None:
        """Starts with nothing.

        Args:
            recorder: Gets the calls.
        """
        self.recorder = recorder
        self.result: Any = None
        self._converted: dict[tuple[Any, torch.dtype | str], TensorValue] = {}
        self._sources: dict[str, dict[str, TensorValue]] = {}

    def emit(
        self,
        operator: str,
        *arguments: Any,
        dtype: torch.dtype,
        shape: Sequence[Any],
        exact: bool = False,
    ) -> TensorValue:
        """Records a call that returns one tensor; see `Recorder.call`."""
        (value,) = self.emit_all(operator, *arguments, dtype=dtype, shapes=[shape], exact=exact)
        return value

    def emit_all(
        self,
        operator: str,
        *arguments: Any,
        dtype: torch.dtype,
        shapes: Sequence[Sequence[Any]],
        exact: bool = False,
    ) -> tuple[TensorValue, ...]:
        """Records a call that returns several tensors of one dtype."""
        listed = [tuple(shape) for shape in shapes]
        return self.recorder.call(operator, arguments, dtype=dtype, shapes=listed, exact=exact)

    def emit_scalar(self, operator: str, *arguments: Any) -> ScalarValue:
        """Records a call that returns an integer."""
        return self.recorder.scalar_call(operator, arguments)

    # -- dtypes ----------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the node's (first) result is computed."""
        first = self.result[0] if isinstance(self.result, tuple | list) else self.result
        return compute_dtype(first.dtype)

    def held(self, value: Operand, dtype: torch.dtype) -> TensorValue:
        """Returns a tensor held in `dtype`, casting or making it where needed."""
        if isinstance(value, Constant):
            return self._filled(value, dtype)
        if not isinstance(value, TensorValue):
            number = value if isinstance(value, ScalarValue) else Literal(number=value, dtype=dtype)
            return self.emit("full", [], number, dtype, dtype=dtype, shape=())
        if value.dtype == dtype:
            return value
        key = (value.name, dtype)
        if key not in self._converted:
            self._converted[key] = self._cast(value, dtype)
        return self._converted[key]

    def _cast(self, value: TensorValue, dtype: torch.dtype) -> TensorValue:
        if dtype is torch.bool:
            value = self.held(value, compute_dtype(value.dtype))
            number = Literal(number=rounded(0, value.dtype), dtype=value.dtype)
            return self.emit("ne", value, number, dtype=dtype, shape=value.shape)
        cast = self.emit("cast", value, dtype, dtype=dtype, shape=value.shape)
        raised = value.exact and value.dtype in LOW_PRECISION and dtype is torch.float32
        return replace(cast, logical=value.logical, exact=True) if raised else cast

    def _filled(self, value: Constant, dtype: torch.dtype) -> TensorValue:
        sizes = tuple(size if isinstance(size, int) else size.name for size in value.sizes)
        key = ((repr(value.number), value.dtype, sizes), dtype)
        if key not in self._converted:
            number = Literal(number=rounded(value.number, dtype), dtype=dtype)
            filled = self.emit(
                "full", list(value.sizes), number, dtype, dtype=dtype, shape=value.shape, exact=True
            )
            self._converted[key] = replace(filled, logical=value.dtype)
        return self._converted[key]

    def exact(self, value: Operand) -> Operand:
        """Rounds a low-precision value that is held in float32 to its own dtype, once.

        Operators whose result jumps need this to agree with eager.
        """
        if not isinstance(value, TensorValue) or value.exact:
            return value
        if value.logical not in LOW_PRECISION or value.dtype is not torch.float32:
            return value
        key = (value.name, f"exact {value.logical}")
        if key not in self._converted:
            low = self.held(value, value.logical)
            high = self._cast(low, torch.float32)
            self._converted[key] = replace(high, logical=value.logical, exact=True)
        return self._converted[key]

    def promoted(self, left: Operand, right: Operand) -> torch.dtype:
        """Returns the dtype that ATen promotes two operands to."""
        return torch.result_type(_stand_in(left), _stand_in(right))

    def real(self, value: TensorValue) -> TensorValue:
        """Gives expanded dimensions elements of their own, by multiplying with a tensor of ones."""
        if not value.expanded:
            return value
        key = (value.name, "real")
        if key not in self._converted:
            held = self.held(value, compute_dtype(value.dtype))
            sizes = [
                size if isinstance(size, int) else self.emit_scalar("size", held, dim)
                for dim, size in enumerate(held.shape)
            ]
            one = Constant(
                number=rounded(1, held.dtype),
                dtype=held.dtype,
                shape=held.shape,
                sizes=tuple(sizes),
            )
            operator = "logical_and" if held.dtype is torch.bool else "mul"
            ones = self.held(one, held.dtype)
            made = self.emit(operator, held, ones, dtype=held.dtype, shape=held.shape)
            self._converted[key] = made
        return replace(self._converted[key], logical=value.logical, exact=value.exact)

    # -- operators -------------------------------------------------------------------------------

    def unary(
        self, operator: str, value: Operand, *, dtype: torch.dtype | None = None
    ) -> TensorValue:
        """Records `operator(value)` computed in `dtype` (the node's own when None)."""
        held = self.held(value, dtype or self.dtype)
        return self.emit(operator, held, dtype=held.dtype, shape=held.shape)

    def binary(
        self, operator: str, left: Operand, right: Operand, *, dtype: torch.dtype | None = None
    ) -> TensorValue:
        """Records `operator(left, right)` computed in `dtype` (the node's own when None)."""
        return self.elementwise(operator, left, right, dtype=dtype or self.dtype)

    def compare(self, operator: str, left: Operand, right: Operand) -> TensorValue:
        """Records a comparison in the dtype that ATen promotes the operands to."""
        dtype = self.promoted(left, right)
        left, right = (
            value
            if isinstance(value, TensorValue | ScalarValue | Constant)
            else rounded(value, dtype)
            for value in (self.exact(left), self.exact(right))
        )
        return self.elementwise(
            operator, left, right, dtype=compute_dtype(dtype), result=torch.bool
        )

    def where(
        self, condition: Operand, left: Operand, right: Operand, *, dtype: torch.dtype | None = None
    ) -> TensorValue:
        """Records a choice between `left` and `right`, computed in `dtype`."""
        dtype = dtype or self.dtype
        chosen = self.held(condition, torch.bool)
        shape = broadcast(*map(shape_of, (chosen, left, right)))
        operands = self._arguments((left, right), dtype, shape, beside=[chosen])
        return self.emit("where", chosen, *operands, dtype=dtype, shape=shape)

    def elementwise(
        self,
        operator: str,
        *values: Operand,
        dtype: torch.dtype,
        result: torch.dtype | None = None,
    ) -> TensorValue:
        """Records an operator whose operands are all brought to `dtype`.

        Args:
            operator: Name in nvFuser's `ops`.
            *values: The operands; those that are one number stay numbers where they can.
            dtype: Dtype of the operands.
            result: Dtype of the result when it is another one.
        """
        shape = broadcast(*map(shape_of, values))
        arguments = self._arguments(values, dtype, shape)
        return self.emit(operator, *arguments, dtype=result or dtype, shape=shape)

    def _arguments(
        self,
        values: Sequence[Operand],
        dtype: torch.dtype,
        shape: Shape,
        beside: Sequence[TensorValue] = (),
    ) -> list[TensorValue | ScalarValue | Literal]:
        tensors = [*beside, *(value for value in values if isinstance(value, TensorValue))]
        spanned = bool(tensors) and same_shape(broadcast(*map(shape_of, tensors)), shape)
        arguments: list[TensorValue | ScalarValue | Literal] = []
        for value in values:
            if isinstance(value, TensorValue) or (isinstance(value, Constant) and not spanned):
                arguments.append(self.held(value, dtype))
            elif isinstance(value, ScalarValue):
                arguments.append(value)
            else:
                number = value.number if isinstance(value, Constant) else value
                arguments.append(Literal(number=rounded(number, dtype), dtype=dtype))
        return arguments

    # -- reductions ------------------------------------------------------------------------------

    def reduce(
        self, operator: str, value: TensorValue, dims: int | Sequence[int] | None, keepdim: bool
    ) -> TensorValue:
        """Records `sum`, `prod`, `max` or `min` over `dims`, in the dtype that `value` has."""
        rank = len(value.shape)
        listed = normalized(dims, rank)
        if not listed:  # a zero-dimensional tensor; a new value, lest an input becomes an output
            return self.binary("mul", value, 1, dtype=value.dtype)
        return self.emit(
            operator,
            self._source(value, operator),
            listed,
            keepdim,
            dtype=value.dtype,
            shape=reduced_shape(value.shape, listed, keepdim),
        )

    def _source(self, value: TensorValue, operator: str) -> TensorValue:
        """Returns `value` in a form that no other kind of reduction reads.

        nvFuser 0.2.36 fails to compile when, say, a sum and a maximum read one tensor: it wants
        to initialise the tensor's padding for both ("Inconsistent setting of initialization
        value", predicate_elimination.cpp).
        """
        sources = self._sources.setdefault(value.name, {})
        if operator not in sources:
            first = not sources
            sources[operator] = (
                value if first else self.emit("set", value, dtype=value.dtype, shape=value.shape)
            )
        return sources[operator]

    def var_mean(
        self, value: TensorValue, dims: int | Sequence[int] | None, correction: int, keepdim: bool
    ) -> tuple[TensorValue, TensorValue]:
        """Records the variance and the mean over `dims`."""
        listed = normalized(dims, len(value.shape))
        shape = reduced_shape(value.shape, listed, keepdim)
        source = self._source(value, "var_mean")
        variance, mean = self.emit_all(
            "var_mean",
            source,
            listed,
            correction,
            keepdim,
            dtype=value.dtype,
            shapes=[shape, shape],
        )
        return variance, mean

    def divided_by_count(
        self, value: TensorValue, shape: Shape, dims: Sequence[int]
    ) -> TensorValue:
        """Divides a sum over `dims` of a tensor of `shape` by the number of its elements."""
        number = count(shape, dims)
        assert number is not None, "checks keep symbolic counts away"
        return self.binary("mul", value, 1 / number if number else float("inf"), dtype=value.dtype)


def reduced_shape(shape: Shape, dims: Sequence[int], keepdim: bool) -> Shape:
    """Returns the shape after a reduction over `dims`."""
    if keepdim:
        return tuple(1 if dim in dims else size for dim, size in enumerate(shape))
    return tuple(size for dim, size in enumerate(shape) if dim not in dims)


def shape_of(value: Operand) -> Shape:
    """Returns the sizes of an operand, none for a number."""
    return value.shape if isinstance(value, TensorValue | Constant) else ()


def _stand_in(value: Operand) -> torch.Tensor | Number:
    match value:
        case TensorValue():
            return _empty(value.logical, len(value.shape) > 0)
        case Constant():
            return _empty(value.dtype, len(value.shape) > 0)
        case ScalarValue():
            return 1
    return value


@functools.cache
def _empty(dtype: torch.dtype, has_dimensions: bool) -> torch.Tensor:
    # Tracing modes that are active during a compilation must not see this tensor.
    with _disable_current_modes():
        return torch.empty((1,) * has_dimensions, dtype=dtype, device="meta")


def as_sizes(shape: Sequence[Any]) -> list[SizeArgument]:
    """Returns a shape argument of an ATen call as nvFuser takes it."""
    return [size if isinstance(size, int | ScalarValue) else int(size) for size in shape]
