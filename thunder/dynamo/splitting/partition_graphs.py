"""Builds the graphs of partitions, and the graph that calls them in order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import final

import torch
from torch import fx

from thunder.dynamo.splitting import ambient_state
from thunder.dynamo.splitting.ambient_state import AmbientState, is_marker
from thunder.dynamo.splitting.crossing import symbol_definitions, symbols_of
from thunder.trace.copying import inherit_from_dynamo, make_graph_module

# What is true of a node and not of a placeholder that stands for it in another graph.
_NOT_OF_PLACEHOLDERS = ("unbacked_bindings",)


@final
class PartitionBuilder:
    """Cuts one graph whose nodes have been assigned to partitions.

    Attributes:
        inputs: For each partition, the values made elsewhere that go in, in the graph's order.
        outputs: For each partition, its own values that are used elsewhere, in the graph's order.
    """

    def __init__(
        self,
        graph_module: fx.GraphModule,
        owner: Mapping[fx.Node, int],
        cores: Sequence[Sequence[fx.Node]],
        states: Mapping[fx.Node, AmbientState],
        clones: Sequence[fx.Node],
    ) -> None:
        """Finds what crosses.

        Args:
            graph_module: The graph; `crossing.localize` has been over it.
            owner: The partition of each node that has one.
            cores: For each partition its nodes from before `localize`, which are contiguous.
            states: The ambient state before each node from before `localize`.
            clones: Nodes that stand before everything else in their partitions.
        """
        self.graph_module = graph_module
        self.graph = graph_module.graph
        self.owner = owner
        self.cores = cores
        self.states = states
        self.clones = clones
        self.position = {node: index for index, node in enumerate(self.graph.nodes)}
        self.own: list[list[fx.Node]] = [[] for _ in cores]
        for node in self.graph.nodes:
            if node in owner:
                self.own[owner[node]].append(node)
        self.markers = [node for node in self.graph.nodes if is_marker(node)]
        self.definitions = symbol_definitions(self.graph)
        self.inputs = [self._inputs(index) for index in range(len(cores))]
        used = set(self._used_by_caller()).union(*self.inputs)
        self.outputs = [[node for node in own if node in used] for own in self.own]

    def partition(self, index: int) -> fx.GraphModule:
        """Builds the graph module of a partition: takes its inputs, returns a tuple.

        Args:
            index: Which partition.
        """
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.inputs[index]:
            copies[node] = _placeholder(graph, node)

        def copy(node: fx.Node) -> fx.Node:
            if node not in copies:  # an attribute, or a constant that a marker takes
                copies[node] = graph.node_copy(node, copy)
            return copies[node]

        self._fill(graph, index, copies, copy)
        graph.output(tuple(copies[node] for node in self.outputs[index]))
        built = make_graph_module(self.graph_module, graph)
        inherit_from_dynamo(built, self.graph_module)
        return built

    def caller(self, names: Sequence[str], partitions: Sequence[fx.GraphModule]) -> fx.GraphModule:
        """Builds the graph module that calls the partitions in order.

        Args:
            names: For each partition, the name of the submodule.
            partitions: The submodules.
        """
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.graph.find_nodes(op="placeholder"):
            copies[node] = _placeholder(graph, node)

        def copy(node: fx.Node) -> fx.Node:
            if node not in copies:  # an attribute, or arithmetic
                copies[node] = graph.node_copy(node, copy)
            return copies[node]

        for name, inputs, outputs in zip(names, self.inputs, self.outputs, strict=True):
            call = graph.call_module(name, tuple(copy(node) for node in inputs))
            for position, node in enumerate(outputs):
                copies[node] = _element(graph, call, position, node)
        grad_mode = ambient_state.grad_mode_on_exit(self.graph)
        if grad_mode is not None:
            graph.call_function(torch._C._set_grad_enabled, (grad_mode,))
        graph.node_copy(self.graph.output_node(), copy)
        attributes = {
            str(node.target): _attribute(self.graph_module, str(node.target))
            for node in graph.find_nodes(op="get_attr")
        }
        submodules = dict(zip(names, partitions, strict=True))
        built = make_graph_module({**attributes, **submodules}, graph)
        inherit_from_dynamo(built, self.graph_module)
        return built

    def _inputs(self, index: int) -> list[fx.Node]:
        found = {
            used
            for node in self.own[index]
            for used in node.all_input_nodes
            if self.owner.get(used) != index and used.op != "get_attr"
        }
        # Where a size is symbolic, the symbol itself comes along.
        symbols = {symbol for node in found for symbol in symbols_of(node)}
        for symbol, definition in self.definitions.items():
            if symbol in symbols and self.owner.get(definition, -1) < index:
                found.add(definition)
        return sorted(found, key=self.position.__getitem__)

    def _used_by_caller(self) -> list[fx.Node]:
        """Returns the values of partitions that the output takes, or arithmetic on its way there.

        That arithmetic belongs to no partition: the caller does it.
        """
        found: list[fx.Node] = []
        pending = list(self.graph.output_node().all_input_nodes)
        while pending:
            node = pending.pop()
            if node in self.owner:
                found.append(node)
            else:
                pending += node.all_input_nodes
        return found

    def _fill(
        self,
        graph: fx.Graph,
        index: int,
        copies: dict[fx.Node, fx.Node],
        copy: Callable[[fx.Node], fx.Node],
    ) -> None:
        core = self.cores[index]
        first, last = self.position[core[0]], self.position[core[-1]]
        for node in self.clones:
            if self.owner[node] == index:
                copies[node] = graph.node_copy(node, copy)
        for marker in self.states[core[0]].markers:
            copies[marker] = ambient_state.enter(graph, marker, copy)
        inside = [node for node in self.markers if first < self.position[node] < last]
        for node in sorted([*self.own[index], *inside], key=self.position.__getitem__):
            if node not in copies:
                copies[node] = graph.node_copy(node, copy)
        for marker in reversed(self._state_behind(core[-1]).markers):
            ambient_state.leave(graph, marker, copies[marker])

    def _state_behind(self, node: fx.Node) -> AmbientState:
        following = node.next
        while following not in self.states:  # made by `localize`
            following = following.next
        return self.states[following]


def _placeholder(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Makes a placeholder that stands for a node of another graph."""
    if node.op == "placeholder":
        made = graph.node_copy(node)
    else:
        made = graph.create_node("placeholder", node.name, name=node.name)
        made.meta = {k: v for k, v in node.meta.items() if k not in _NOT_OF_PLACEHOLDERS}
    # AOTAutograd reads where Dynamo found an input; values made in between come from nowhere.
    made._dynamo_source = getattr(node, "_dynamo_source", None)  # pyright: ignore[reportAttributeAccessIssue] - of Dynamo
    return made


def _element(graph: fx.Graph, call: fx.Node, position: int, node: fx.Node) -> fx.Node:
    made = graph.create_node("call_function", operator.getitem, (call, position), name=node.name)
    made.meta = {k: v for k, v in node.meta.items() if k not in _NOT_OF_PLACEHOLDERS}
    return made


def _attribute(module: torch.nn.Module, path: str) -> object:
    return operator.attrgetter(path)(module)
