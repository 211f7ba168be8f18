"""Translates a region: a functional ATen graph in, a `Definition` out."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from thunder.errors import ExecutorError
from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Definition, Operand, TensorValue
from thunder.executors.nvfuser.descriptors import describe_layout
from thunder.executors.nvfuser.dtypes import compute_dtype
from thunder.executors.nvfuser.layout import tensor
from thunder.executors.nvfuser.operators import lowering_of
from thunder.executors.nvfuser.recorder import Recorder
from thunder.executors.nvfuser.sizes import concrete, hints


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Sizes and strides that an input tensor has when the fusion runs."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def translate(
    graph: fx.Graph, outputs: Sequence[fx.Node], layouts: Sequence[InputLayout | None]
) -> Definition:
    """Translates a region.

    Args:
        graph: Its graph; every node that `outputs` need has a lowering.
        outputs: The nodes that the fusion returns.
        layouts: For each placeholder its layout, None for a number.

    Returns:
        The fusion. It takes only the placeholders that it needs.

    Raises:
        ExecutorError: A lowering failed; names the node.
    """
    needed = _needed(outputs)
    translation = _Translation()
    for position, node in enumerate(graph.find_nodes(op="placeholder")):
        if node in needed:
            translation.input(node, position, layouts[position])
    for node in graph.nodes:
        if node in needed and node.op == "call_function":
            translation.call(node)
    for node in outputs:
        translation.output(node)
    return translation.recorder.definition()


def _needed(outputs: Sequence[fx.Node]) -> set[fx.Node]:
    needed: set[fx.Node] = set()
    pending = list(outputs)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending.extend(node.all_input_nodes)
    return needed


class _Translation:
    def __init__(self) -> None:
        self.recorder = Recorder()
        self.builder = Builder(self.recorder)
        self._values: dict[fx.Node, Any] = {}

    def input(self, node: fx.Node, position: int, layout: InputLayout | None) -> None:
        fake = node.meta["val"]
        if layout is None:
            self._values[node] = self.recorder.scalar_input(position)
            return
        sizes = tuple(
            _declared(concrete(size), actual)
            for size, actual in zip(fake.shape, layout.sizes, strict=True)
        )
        described = describe_layout(layout.sizes, layout.strides)
        self._values[node] = self.recorder.tensor_input(fake, sizes, described, position)

    def call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            producer, index = node.args
            assert isinstance(producer, fx.Node)
            self._values[node] = self._values[producer][index]
            return
        lowering = lowering_of(node)
        if lowering is None:
            raise ExecutorError(f"{node.target} at {node.name} has no translation to nvFuser")
        args, kwargs = map_arg((node.args, node.kwargs), self._values.__getitem__)
        self.builder.result = fakes = node.meta["val"]
        self.recorder.origin = node.name
        try:
            lowered = lowering.lower(self.builder, *args, **kwargs)
            if isinstance(fakes, tuple | list):
                pairs = zip(lowered, fakes, strict=True)
                self._values[node] = tuple(_settled(value, fake) for value, fake in pairs)
            else:
                self._values[node] = _settled(lowered, fakes)
        except Exception as error:
            raise ExecutorError(
                f"{node.target} at {node.name} could not be translated to nvFuser: "
                f"{type(error).__name__}: {error}"
            ) from error

    def output(self, node: fx.Node) -> None:
        fake = node.meta["val"]
        self.recorder.origin = node.name
        value = self.builder.real(tensor(self.builder, self._values[node]))
        returned = self.builder.held(value, fake.dtype)
        if self.recorder.shares_memory(returned):
            returned = self.builder.held(self._fresh(value), fake.dtype)
        order = self._stride_order(fake)
        if order is not None:
            returned = self.builder.emit(
                "stride_order", returned, list(order), dtype=fake.dtype, shape=returned.shape
            )
        self.recorder.output(returned)

    def _fresh(self, value: TensorValue) -> TensorValue:
        dtype = compute_dtype(value.dtype)
        if dtype is torch.bool:
            return self.builder.binary("logical_or", value, value, dtype=dtype)
        return self.builder.binary("mul", value, 1, dtype=dtype)

    def _stride_order(self, fake: torch.Tensor) -> tuple[int, ...] | None:
        """Returns the order of dimensions to ask for, None where nvFuser has no choice."""
        strides = hints(fake.stride())
        if fake.ndim < 2 or strides is None:
            return None
        order = describe_layout(hints(fake.shape) or (), strides).stride_order
        return None if self.recorder.is_row_major and _is_row_major(order) else order


def _declared(size: int | None, actual: int) -> int:
    if size is not None:
        return size
    return 1 if actual == 1 else -1


def _is_row_major(order: Sequence[int]) -> bool:
    return list(order) == list(reversed(range(len(order))))


def _settled(value: Operand | None, fake: Any) -> Operand | None:
    """Gives a lowered value the dtype of its node."""
    if value is None or fake is None or not isinstance(value, TensorValue):
        return value
    logical = fake.dtype
    if value.dtype not in (logical, compute_dtype(logical)) or len(value.shape) != fake.ndim:
        raise ExecutorError(
            f"it became {value.dtype} with {len(value.shape)} dimensions instead of {logical} "
            f"with {fake.ndim}"
        )
    exact = value.dtype == logical or (value.exact and value.logical == logical)
    return replace(value, logical=logical, exact=exact)
