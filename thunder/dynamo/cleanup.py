"""What is removed from a captured graph before it is looked at for splitting.

AOTAutograd cleans up the graphs that it traces anyway, so there is one step only: operators whose
values nobody uses, because an unused operator that must leave the thunder region would cut the
graph for nothing. What can be noticed stays: changes of memory that lasts or is read later,
random numbers, checks, and whatever cannot be told.
"""

from __future__ import annotations

from torch import fx

from thunder.dynamo.splitting.ambient_state import is_marker
from thunder.dynamo.splitting.effects import has_effects, mutated_inputs
from thunder.dynamo.splitting.node_values import input_storages, lasting_memory, storages


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
    memory = lasting_memory(graph)
    removed = False
    for node in reversed(list(graph.nodes)):
        if not node.users and _is_removable(node, memory):
            graph.erase_node(node)
            removed = True
        else:
            memory |= input_storages(node)
    if removed:
        graph_module.recompile()
    return removed


def _is_removable(node: fx.Node, memory: set[int]) -> bool:
    """Whether a node can go whose value is unused, when only `memory` is used behind it."""
    if node.op in ("placeholder", "output") or is_marker(node):
        return False
    if node.op == "get_attr":
        return True
    changed = mutated_inputs(node)
    keys = [storages(each) for each in changed]
    changes_unused_memory = bool(keys) and all(each and not each & memory for each in keys)
    return not has_effects(node, on_inputs=not changes_unused_memory)
