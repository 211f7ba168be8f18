"""What of a region nvFuser computes, and what ATen adds for free at its end.

A view of a value that leaves the region is not computed: nvFuser returns the value it is a view
of, and ATen takes the view, as eager does. The strides are then those that were traced, expanded
dimensions and slices included, and no element is written twice. Tensors made of numbers alone
are left to ATen likewise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch.fx.node import map_arg

from thunder.executors.nvfuser.lowering import Kind
from thunder.executors.nvfuser.operators import lowering_of


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputPlan:
    """Who computes what a region returns.

    Attributes:
        fused: The nodes that the fusion returns, in order.
        epilogue: A program that takes the region's inputs and then the fusion's outputs and
            returns what the region returns; None when that is just the fusion's outputs.
    """

    fused: tuple[fx.Node, ...]
    epilogue: fx.GraphModule | None

    def finish(self) -> Callable[..., Sequence[Any]] | None:
        """Returns the epilogue as a function, or None."""
        return None if self.epilogue is None else self.epilogue.forward


def is_free(node: fx.Node) -> bool:
    """Whether ATen gets the node's value without touching an element, given its operands."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_free(node.args[0])
    lowering = lowering_of(node)
    return lowering is not None and lowering.kind in (Kind.VIEW, Kind.SIZE)


def _is_made_of_numbers(node: fx.Node) -> bool:
    lowering = lowering_of(node)
    return lowering is not None and lowering.kind is Kind.FACTORY and not node.all_input_nodes


def plan_outputs(graph: fx.Graph) -> OutputPlan:
    """Decides what the fusion returns.

    Args:
        graph: The region's graph, which is not changed.
    """
    returned = graph.output_node().args[0]
    leaving = _nodes(returned)
    epilogue: dict[fx.Node, None] = {}
    fused: dict[fx.Node, None] = {}
    pending = leaving
    while pending:
        node = pending.pop()
        if node.op != "call_function":
            continue
        if is_free(node) or _is_made_of_numbers(node):
            epilogue[node] = None
            pending.extend(node.all_input_nodes)
        else:
            fused[node] = None
    order = {node: place for place, node in enumerate(graph.nodes)}
    outputs = tuple(sorted(fused, key=order.__getitem__))
    if isinstance(returned, tuple | list) and list(outputs) == list(returned):
        return OutputPlan(fused=outputs, epilogue=None)
    steps = sorted(epilogue, key=order.__getitem__)
    return OutputPlan(fused=outputs, epilogue=_program(graph, outputs, steps))


def _nodes(returned: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    map_arg(returned, lambda node: found.append(node))
    return found


def _program(
    graph: fx.Graph, outputs: Sequence[fx.Node], steps: Sequence[fx.Node]
) -> fx.GraphModule:
    program = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in (*graph.find_nodes(op="placeholder"), *outputs):
        copies[node] = program.placeholder(node.name)
    for node in steps:
        copies[node] = program.node_copy(node, copies.__getitem__)
    program.output(map_arg(graph.output_node().args[0], copies.__getitem__))
    return fx.GraphModule({}, program)
