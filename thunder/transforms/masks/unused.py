"""Removes what computed a mask that nobody reads any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import fx

from thunder.transforms.masks.bodies import BodyCall, body_call
from thunder.transforms.masks.operators import Memory
from thunder.transforms.masks.rules import operator_of


def remove_unused(graph_module: fx.GraphModule, nodes: Iterable[fx.Node]) -> None:
    """Removes nodes that have lost their last user, and what only they used.

    Only operations whose rules say that they have no effect but their result are removed, and
    inputs of bodies together with what is passed for them. The graph's own inputs stay.

    Args:
        graph_module: The graph.
        nodes: What to look at, in this graph or in bodies that it calls.
    """
    waiting = list(nodes)
    calls = _calls(graph_module)
    removed: set[fx.Node] = set()
    for node in waiting:
        if node.users or node in removed:
            continue
        operator = operator_of(node)
        if operator is not None and operator.memory is not Memory.WRITES:
            waiting.extend(node.all_input_nodes)
            node.graph.erase_node(node)
        elif node.op == "placeholder" and node.graph in calls:
            waiting.extend(_remove_input(node, calls[node.graph]))
        else:
            continue
        removed.add(node)


def _calls(graph_module: fx.GraphModule) -> dict[fx.Graph, list[tuple[fx.Node, BodyCall]]]:
    """Returns the calls of each body, of those bodies that are used for nothing but calls."""
    calls: dict[fx.Graph, list[tuple[fx.Node, BodyCall]]] = {}
    used_otherwise: set[fx.Graph] = set()
    for body, user, call in _uses(graph_module):
        if call is not None and call.body is body:
            calls.setdefault(body.graph, []).append((user, call))
        else:
            used_otherwise.add(body.graph)
    return {body: uses for body, uses in calls.items() if body not in used_otherwise}


def _uses(
    graph_module: fx.GraphModule,
) -> Iterator[tuple[fx.GraphModule, fx.Node, BodyCall | None]]:
    """Yields each user of each body, in this graph and in the bodies that it calls."""
    bodies: dict[fx.GraphModule, None] = {}
    for node in graph_module.graph.find_nodes(op="get_attr"):
        body = getattr(graph_module, str(node.target), None)
        if isinstance(body, fx.GraphModule):
            bodies[body] = None
            yield from ((body, user, body_call(user, graph_module)) for user in node.users)
    for body in bodies:
        yield from _uses(body)


def _remove_input(node: fx.Node, calls: list[tuple[fx.Node, BodyCall]]) -> list[fx.Node]:
    """Removes an input of a body; returns the nodes that were passed for it."""
    position = node.graph.find_nodes(op="placeholder").index(node)
    passed = []
    for user, call in calls:
        at = call.first + position
        operand = user.args[at]
        if isinstance(operand, fx.Node):
            passed.append(operand)
        user.args = (*user.args[:at], *user.args[at + 1 :])
    node.graph.erase_node(node)
    return passed
