"""What is removed from a captured graph before it is looked at for splitting.

AOTAutograd cleans up the graphs that it traces anyway, so there is one step only: operators whose
values nobody uses, because an unused operator that must leave the thunder region would cut the
graph for nothing. What can be noticed stays: in-place changes, random numbers, checks, and
whatever cannot be told.
"""

from __future__ import annotations

from torch import fx

from thunder.dynamo.ambient_state import is_marker
from thunder.dynamo.effects import has_effects


def cleanup(graph_module: fx.GraphModule) -> bool:
    """Removes operators without use or effect from a captured graph, in place.

    Args:
        graph_module: A graph with example values; nodes without stay. Placeholders stay, since
            they are the calling convention.

    Returns:
        Whether anything was removed.

    Example:
        >>> import torch
        >>> from torch._subclasses.fake_tensor import FakeTensorMode
        >>> gm = torch.fx.symbolic_trace(lambda x: (torch.sinc(x), x + 1)[1])
        >>> with FakeTensorMode():
        ...     for node in gm.graph.nodes:
        ...         node.meta["example_value"] = torch.empty(3)
        >>> cleanup(gm), [node.name for node in gm.graph.nodes]
        (True, ['x', 'add', 'output'])
    """
    graph = graph_module.graph
    removed = False
    for node in reversed(list(graph.nodes)):
        if node.users or node.op in ("placeholder", "output") or is_marker(node):
            continue
        if node.op == "get_attr" or not has_effects(node):
            graph.erase_node(node)
            removed = True
    if removed:
        graph_module.recompile()
    return removed
