"""Values that cross a cut.

A compiled partition takes and returns tensors and symbolic integers, nothing else: AOTAutograd
bakes any other number in, and cannot return tuples. So before partitions are built the graph is
rewritten until only such values cross: arithmetic on sizes is repeated where its result is used,
numbers known at compile time are written in, elements are passed in place of tuples, and symbolic
floats and bools travel as tensors, as Dynamo itself passes them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, final

import torch
from torch import fx
from torch._ops import HigherOrderOperator
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols
from torch.fx.node import map_arg

from thunder.dynamo.splitting.ambient_state import is_marker
from thunder.dynamo.splitting.node_values import is_scalar, is_structured, value_of

_CALLS = ("call_function", "call_method")


def is_element(node: fx.Node) -> bool:
    """Whether a node takes an element out of a tuple or list that another node gives."""
    return (
        node.target is operator.getitem
        and isinstance(node.args[0], fx.Node)
        and is_structured(node.args[0])
        and not isinstance(node.args[1], fx.Node)
    )


def is_arithmetic(node: fx.Node) -> bool:
    """Whether a node computes a number from numbers, so that it can be repeated anywhere."""
    if node.op not in _CALLS or is_marker(node) or not is_scalar(node):
        return False
    inputs = node.all_input_nodes
    return bool(inputs) and (_is_float_argument(node) or all(map(is_scalar, inputs)))


def symbol_definitions(graph: fx.Graph) -> dict[Any, fx.Node]:
    """Returns, for each symbol of a graph's sizes, the first node that gives just that symbol."""
    found: dict[Any, fx.Node] = {}
    for node in graph.nodes:
        value = value_of(node)
        if isinstance(value, torch.SymInt) and value.node.expr.is_symbol:
            found.setdefault(value.node.expr, node)
    return found


def symbols_of(node: fx.Node) -> list[Any]:
    """Returns the symbols that a node's value depends on, in a fixed order."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor | torch.SymInt):
        return []
    return sorted(free_symbols(value), key=str)


def localize(graph: fx.Graph, owner: dict[fx.Node, int]) -> None:
    """Rewrites a graph until only tensors and symbolic integers cross between partitions.

    Args:
        graph: The graph; changed in place.
        owner: The partition of each node that has one; new nodes are added.
    """
    _Localizer(graph, owner).run()


@final
class _Localizer:
    """One rewrite of one graph."""

    def __init__(self, graph: fx.Graph, owner: dict[fx.Node, int]) -> None:
        self.graph = graph
        self.owner = owner
        self.definitions = symbol_definitions(graph)
        self.local: dict[tuple[int, fx.Node], Any] = {}
        self.boxes: dict[fx.Node, fx.Node] = {}

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if node in self.owner:
                node.args = map_arg(node.args, lambda n, u=node: self.at(n, u))
                node.kwargs = map_arg(node.kwargs, lambda n, u=node: self.at(n, u))
            elif node.op == "output":
                node.args = map_arg(node.args, self.at_end)
        for node in reversed(list(self.graph.nodes)):
            if not node.users and (is_element(node) or is_arithmetic(node)):
                self.owner.pop(node, None)
                self.graph.erase_node(node)

    def at(self, node: fx.Node, user: fx.Node) -> Any:
        """Returns what stands for `node` in the partition of `user`, its first user there."""
        partition = self.owner[user]
        if self.owner.get(node) == partition:
            return node
        key = (partition, node)
        if key not in self.local:
            self.local[key] = self._find(node, user)
        return self.local[key]

    def at_end(self, node: fx.Node) -> Any:
        """Returns what stands for `node` in the graph's output."""
        return self._elements(node, lambda n: n) if is_structured(node) else node

    def _find(self, node: fx.Node, user: fx.Node) -> Any:
        value = value_of(node)
        same = _unchanged_input(node)
        if same is not None:
            return self.at(same, user)
        if isinstance(value, bool | int | float):
            return value
        if is_structured(node) and node.op in _CALLS:
            return self._elements(node, lambda n: self.at(n, user))
        if is_arithmetic(node):
            return self._repeat(node, user)
        if isinstance(value, torch.SymFloat | torch.SymBool):
            return self._unbox(node, user)
        if isinstance(value, torch.SymInt):
            return self._canonical(node, value, self.owner[user])
        return node

    def _canonical(self, node: fx.Node, value: torch.SymInt, partition: int) -> fx.Node:
        definition = self.definitions.get(value.node.expr, node)
        return definition if self.owner.get(definition, -1) < partition else node

    def _elements(self, node: fx.Node, use: Callable[[fx.Node], Any]) -> Any:
        value = value_of(node)
        elements = [
            each
            if isinstance(each, bool | int | float)
            else self._use_element(node, index, each, use)
            for index, each in enumerate(value)
        ]
        return elements if isinstance(value, list) else tuple(elements)

    def _use_element(
        self, node: fx.Node, index: int, value: Any, use: Callable[[fx.Node], Any]
    ) -> Any:
        for user in node.users:
            if is_element(user) and user.args[1] == index and user in self.owner:
                return use(user)
        with self.graph.inserting_after(node):
            element = self.graph.call_function(operator.getitem, (node, index))
        self._adopt(element, node, value, self.owner[node])
        return self._elements(element, use) if is_structured(element) else use(element)

    def _repeat(self, node: fx.Node, user: fx.Node) -> fx.Node:
        arguments = {used: self.at(used, user) for used in node.all_input_nodes}
        with self.graph.inserting_before(user):
            repeated = self.graph.node_copy(node, lambda used: used)
        repeated.args = map_arg(repeated.args, arguments.__getitem__)
        repeated.kwargs = map_arg(repeated.kwargs, arguments.__getitem__)
        self.owner[repeated] = self.owner[user]
        return repeated

    def _unbox(self, node: fx.Node, user: fx.Node) -> fx.Node:
        value = value_of(node)
        if node not in self.boxes:
            dtype = torch.bool if isinstance(value, torch.SymBool) else torch.float64
            with self.graph.inserting_after(node):
                box = self.graph.call_function(torch.scalar_tensor, (node,), {"dtype": dtype})
            self._adopt(box, node, None, self.owner[node])
            self.boxes[node] = box
        with self.graph.inserting_before(user):
            unboxed = self.graph.call_method("item", (self.boxes[node],))
        self._adopt(unboxed, node, value, self.owner[user])
        return unboxed

    def _adopt(self, new: fx.Node, source: fx.Node, value: Any, partition: int) -> None:
        if "stack_trace" in source.meta:
            new.meta["stack_trace"] = source.meta["stack_trace"]
        if value is not None:
            new.meta["example_value"] = value
        self.owner[new] = partition


def _unchanged_input(node: fx.Node) -> fx.Node | None:
    """Returns the input that a node returns itself, such as `x` for `x.add_(1)`."""
    value = value_of(node)
    is_opaque = isinstance(node.target, HigherOrderOperator)
    if node.op in _CALLS and isinstance(value, torch.Tensor) and not is_opaque:
        for used in node.all_input_nodes:
            if value_of(used) is value:
                return used
    return None


def _is_float_argument(node: fx.Node) -> bool:
    """Whether a node is how Dynamo takes a float out of the tensor that it passes it in."""
    value = value_of(node)
    return (
        node.target == "item"
        and isinstance(value, torch.SymFloat)
        and node.all_input_nodes[0].op == "placeholder"
        and not free_unbacked_symbols(value)
    )
