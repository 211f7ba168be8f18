"""Writes down a fusion call by call, as a `Definition`, and knows what its values share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder.executors.nvfuser.definition import (
    Call,
    Definition,
    ScalarInput,
    ScalarValue,
    TensorInput,
    TensorValue,
)
from thunder.executors.nvfuser.descriptors import Descriptor
from thunder.executors.nvfuser.dtypes import LOW_PRECISION
from thunder.executors.nvfuser.expansion import expanded_dims
from thunder.executors.nvfuser.sizes import Shape, concrete_shape

LAYOUT_OPERATORS = frozenset(
    {"broadcast", "broadcast_in_dim", "cast", "permute", "reshape", "set", "slice", "squeeze"}
    | {"stride_order"}
)
"""Operators through which nvFuser may return memory of its inputs."""


class Recorder:
    """A definition in the making.

    Attributes:
        origin: The name of the ATen node that calls are recorded for.
    """

    def __init__(self) -> None:
        """Starts with nothing."""
        self.origin = ""
        self._inputs: list[TensorInput | ScalarInput] = []
        self._calls: list[Call] = []
        self._outputs: list[TensorValue] = []
        self._names = 0

    def tensor_input(
        self, fake: torch.Tensor, sizes: tuple[int, ...], layout: Descriptor, position: int
    ) -> TensorValue:
        """Adds an input tensor.

        Args:
            fake: What the graph knows of it.
            sizes: Its sizes, -1 where symbolic.
            layout: Its strides in nvFuser's terms.
            position: Which of the region's placeholders it is.
        """
        order = sorted(range(fake.ndim), key=lambda dim: -layout.stride_order[dim])
        expanded = frozenset(
            dim
            for dim, flag in zip(order, layout.contiguity, strict=True)
            if flag is None and sizes[dim] != 1
        )
        value = self._tensor(fake.dtype, concrete_shape(fake.shape), exact=True, expanded=expanded)
        self._inputs.append(
            TensorInput(
                value=value,
                position=position,
                sizes=sizes,
                contiguity=layout.contiguity,
                stride_order=layout.stride_order,
                is_cpu=fake.device.type == "cpu" and fake.ndim == 0,
            )
        )
        return value

    def scalar_input(self, position: int) -> ScalarValue:
        """Adds an integer that is known when the fusion runs."""
        value = ScalarValue(name=self._name("s"), dtype=torch.int64)
        self._inputs.append(ScalarInput(value=value, position=position))
        return value

    def output(self, value: TensorValue) -> None:
        """Adds an output."""
        self._outputs.append(value)

    def definition(self) -> Definition:
        """Returns what was recorded."""
        return Definition(
            inputs=tuple(self._inputs), calls=tuple(self._calls), outputs=tuple(self._outputs)
        )

    @property
    def is_row_major(self) -> bool:
        """Whether nothing so far could make nvFuser choose another order of dimensions."""
        permuted = any(call.operator == "permute" for call in self._calls)
        return not permuted and all(
            list(entry.stride_order) == list(reversed(range(len(entry.stride_order))))
            for entry in self._inputs
            if isinstance(entry, TensorInput)
        )

    def shares_memory(self, value: TensorValue) -> bool:
        """Whether nvFuser might return `value` as a view of an input or of another output."""
        taken = {(entry.value.name, entry.value.dtype) for entry in self._inputs}
        taken |= {(self._root(output).name, output.dtype) for output in self._outputs}
        return (self._root(value).name, value.dtype) in taken

    def _root(self, value: Any) -> Any:
        producers = {result.name: call for call in self._calls for result in call.results}
        while (call := producers.get(value.name)) and call.operator in LAYOUT_OPERATORS:
            value = call.arguments[0]
        return value

    def call(
        self,
        operator: str,
        arguments: tuple[Any, ...],
        *,
        dtype: torch.dtype,
        shapes: Sequence[Shape],
        exact: bool,
    ) -> tuple[TensorValue, ...]:
        """Records a call that returns tensors of one dtype.

        Args:
            operator: Name in nvFuser's `ops`.
            arguments: As nvFuser takes them.
            dtype: Dtype of the results, which building verifies.
            shapes: Sizes of each result.
            exact: Whether the elements are known to be values of their logical dtype.
        """
        results = tuple(
            self._tensor(
                dtype, shape, exact=exact, expanded=expanded_dims(operator, arguments, shape)
            )
            for shape in shapes
        )
        self._record(operator, arguments, results)
        return results

    def scalar_call(self, operator: str, arguments: tuple[Any, ...]) -> ScalarValue:
        """Records a call that returns an integer."""
        value = ScalarValue(name=self._name("s"), dtype=torch.int64)
        self._record(operator, arguments, (value,))
        return value

    def _record(self, operator: str, arguments: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        self._calls.append(
            Call(operator=operator, arguments=arguments, results=results, origin=self.origin)
        )

    def _tensor(
        self,
        dtype: torch.dtype,
        shape: Shape,
        *,
        exact: bool,
        expanded: frozenset[int] = frozenset(),
    ) -> TensorValue:
        return TensorValue(
            name=self._name("t"),
            dtype=dtype,
            logical=dtype,
            shape=shape,
            exact=exact or dtype in LOW_PRECISION,
            expanded=expanded,
        )

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names - 1}"
