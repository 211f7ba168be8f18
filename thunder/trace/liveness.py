"""When values of a graph are used for the last time."""

from __future__ import annotations

from torch import fx


def last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Finds after which node each value can be freed.

    Args:
        graph: A graph in topological order.

    Returns:
        For a node, the nodes whose values are dead once it has run, in the order of definition.
        A node without users is dead once it has run itself.
    """
    order = {node: index for index, node in enumerate(graph.nodes)}
    dead: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "output":
            continue
        last = max(node.users, key=order.__getitem__, default=node)
        if last is node and node.op == "placeholder":
            continue
        dead.setdefault(last, []).append(node)
    return dead
