"""Walks a captured graph and says what chosen operands of its nodes hold.

The walk follows the program's order, because a tensor that is written to holds something else
from then on. It goes into the bodies of higher-order operators that run them as they are
(checkpointing, regions under autocast). What it does not understand is unknown, and so is all
that shares memory with a tensor that was written to in a way it does not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import torch
from torch import fx
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from thunder.transforms.masks.bodies import BodyCall, body_call
from thunder.transforms.masks.indexed_tensor import IndexedTensor, indexed_tensor
from thunder.transforms.masks.operators import OPAQUE, Memory, Operator, Result, written_operands
from thunder.transforms.masks.piecewise import Space
from thunder.transforms.masks.rules import FRESH_FUNCTIONS, operator_of, transform_depth_change
from thunder.transforms.masks.sizes import size_expression

Watch: TypeAlias = Callable[[fx.Node], fx.Node | None]
"""Says which operand of a node is asked about; None for nodes of no interest."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What a watched operand holds when its node runs.

    Attributes:
        node: The node that was watched.
        operand: The operand that was asked about.
        graph_module: The graph module it is part of.
        tensor: What the operand holds; None when that is not known.
        transformed: Whether the node runs under `torch.vmap` or another functorch transform.
    """

    node: fx.Node
    operand: fx.Node
    graph_module: fx.GraphModule
    tensor: IndexedTensor | None
    transformed: bool


def observe(graph_module: fx.GraphModule, watch: Watch) -> list[Observation]:
    """Finds out what the watched operands hold, in every call of the graph.

    Args:
        graph_module: A graph from Dynamo; each node's `meta["example_value"]` holds its fake value.
        watch: Which operands are asked about.

    Returns:
        One observation for each watched node, in program order, those of a body after those of
        the graph that calls it.
    """
    found: dict[fx.Node, Observation] = {}
    for observation in _observe(graph_module, watch, {}):
        earlier = found.setdefault(observation.node, observation)
        if earlier != observation:  # a body that two graphs call
            found[observation.node] = dataclasses.replace(earlier, tensor=None)
    return list(found.values())


def _observe(
    graph_module: fx.GraphModule, watch: Watch, inputs: dict[fx.Node, IndexedTensor]
) -> Iterator[Observation]:
    walk = _Walk(graph_module=graph_module, watch=watch)
    walk.run(inputs)
    yield from walk.observations
    for body, calls in walk.calls.items():
        if all(_sizes_agree(body, operands) for operands in calls):
            yield from _observe(body, watch, _common_inputs(body, calls))


def _common_inputs(
    body: fx.GraphModule, calls: Sequence[Sequence[Any]]
) -> dict[fx.Node, IndexedTensor]:
    """Returns what a body's inputs hold in every one of its calls."""
    inputs = _inputs(body)
    known: dict[fx.Node, IndexedTensor] = {}
    for node, *operands in zip(inputs, *calls, strict=True):
        result = _result(node)
        first = operands[0]
        if not isinstance(first, IndexedTensor) or result is None:
            continue
        same = all(operand == first for operand in operands)
        if same and (first.space, first.dtype) == (result.space, result.dtype):
            known[node] = first
    return known


@final
@dataclass(kw_only=True, slots=True)
class _Walk:
    """One pass over one graph.

    Attributes:
        values: What nodes hold, where it is known.
        memory: The nodes that made the memory in which a node's value may lie; only of memory
            that matters.
        written: Those of them that were written to.
        calls: The operands of each call of a body.
    """

    graph_module: fx.GraphModule
    watch: Watch
    values: dict[fx.Node, IndexedTensor] = field(default_factory=dict)
    memory: dict[fx.Node, frozenset[fx.Node]] = field(default_factory=dict)
    written: set[fx.Node] = field(default_factory=set)
    calls: dict[fx.GraphModule, list[list[Any]]] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    depth: int = 0

    def run(self, inputs: dict[fx.Node, IndexedTensor], shared: Iterable[fx.Node] = ()) -> None:
        """Visits every node.

        Args:
            inputs: What placeholders hold, where it is known.
            shared: Placeholders whose memory matters although it is not known what they hold.
        """
        self.values.update(inputs)
        self.memory.update({node: frozenset([node]) for node in (*inputs, *shared)})
        for node in self.graph_module.graph.nodes:
            if node.op in ("call_function", "call_method", "call_module"):
                self._visit(node)

    def _visit(self, node: fx.Node) -> None:
        self.depth += transform_depth_change(node)
        watched = self.watch(node)
        known = operator_of(node)
        if watched is not None:
            self._observe(node, watched)
        elif (call := body_call(node, self.graph_module)) is not None:
            self._call(node, call)
        elif known is not None and "out" not in node.kwargs:
            self._apply(node, known)
        elif node.target not in FRESH_FUNCTIONS:
            self._pass_on(node)

    def _observe(self, node: fx.Node, operand: fx.Node) -> None:
        self.observations.append(
            Observation(
                node=node,
                operand=operand,
                graph_module=self.graph_module,
                tensor=self.values.get(operand),
                transformed=self.depth > 0,
            )
        )

    def _apply(self, node: fx.Node, operator: Operator) -> None:
        value = None
        readable = operator.creates or any(of in self.values for of in node.all_input_nodes)
        if readable and (result := _result(node)) is not None:
            args, kwargs = map_aggregate((node.args, node.kwargs), self._operand)
            tree = operator.apply(result, args, kwargs)
            value = tree and indexed_tensor(result.space, result.dtype, tree)
        match operator.memory:
            case Memory.FRESH:
                self._hold(node, value, frozenset([node]))
            case Memory.VIEW:
                self._hold(node, value, self._memory_of(node.all_input_nodes))
            case Memory.WRITES:
                self._write_to(node, value)

    def _hold(self, node: fx.Node, value: IndexedTensor | None, memory: frozenset[fx.Node]) -> None:
        if value is not None:
            self.values[node] = value
        if memory and (value is not None or memory != {node}):
            self.memory[node] = memory

    def _write_to(self, node: fx.Node, value: IndexedTensor | None) -> None:
        written = node.args[0] if node.args else None
        if not isinstance(written, fx.Node):
            return
        memory = self._memory_of([written])
        self._forget(memory)
        if memory and value is not None:
            self.values[written] = value
        self._hold(node, value if memory else None, memory)

    def _pass_on(self, node: fx.Node) -> None:
        """Visits an operation that is not understood."""
        memory = self._memory_of(node.all_input_nodes)
        if not memory:
            return
        self._forget(self._memory_of(written_operands(node)))
        self.memory[node] = memory

    def _call(self, node: fx.Node, call: BodyCall) -> None:
        pairs = dict(zip(_inputs(call.body), call.operands, strict=True))
        operands = [self._operand(operand) for operand in call.operands]
        self.calls.setdefault(call.body, []).append(operands)
        shared = [
            inside
            for inside, outside in pairs.items()
            if isinstance(outside, fx.Node) and outside in self.memory
        ]
        if shared:
            inner = _Walk(graph_module=call.body, watch=self.watch)
            inner.run({}, shared)
            self._forget(self._memory_of(pairs[inside] for inside in inner.written & set(shared)))
            self.memory[node] = self._memory_of(pairs[inside] for inside in shared)

    def _memory_of(self, nodes: Iterable[Any]) -> frozenset[fx.Node]:
        return frozenset().union(*(self.memory.get(node, frozenset()) for node in nodes))

    def _forget(self, memory: frozenset[fx.Node]) -> None:
        """Drops what is known of everything that may lie in this memory."""
        if memory:
            self.written |= memory
            for node in [of for of, lies_in in self.memory.items() if lies_in & memory]:
                self.values.pop(node, None)

    def _operand(self, argument: Any) -> Any:
        if not isinstance(argument, fx.Node):
            return argument
        if argument in self.values:
            return self.values[argument]
        return _number(argument.meta.get("example_value"))


def _number(value: Any) -> Any:
    """Returns what a node's fake value says of an integer or a shape, `OPAQUE` of all else."""
    match value:
        case bool():
            return OPAQUE
        case int():
            return value
        case torch.SymInt():
            expression = size_expression(value)
            return expression.constant if expression.is_constant else expression
        case torch.Size():
            return tuple(_number(size) for size in value)
        case _:
            return OPAQUE


def _result(node: fx.Node) -> Result | None:
    """Returns shape and dtype of a plain tensor; None for others and for what is learned."""
    example = node.meta.get("example_value")
    if not isinstance(example, torch.Tensor) or is_traceable_wrapper_subclass(example):
        return None
    if example.layout is not torch.strided or example.is_nested or example.requires_grad:
        return None
    shape = tuple(size_expression(size) for size in example.shape)
    return Result(Space(shape), example.dtype)


def _inputs(graph_module: fx.GraphModule) -> list[fx.Node]:
    return graph_module.graph.find_nodes(op="placeholder")


def _sizes_agree(body: fx.GraphModule, operands: Sequence[Any]) -> bool:
    """Says whether every symbol means the same inside a body as where it is called."""
    sizes = [_number(node.meta.get("example_value")) for node in _inputs(body)]
    return all(
        size is OPAQUE or size == operand for size, operand in zip(sizes, operands, strict=True)
    )
