"""Values that cross a cut with a gradient that nobody asks for.

Autograd gives an operator zeros for an output whose gradient never comes, and so a compiled
partition gives zeros to the inputs that only such an output depends on, where eager leaves their
gradients at None. An optimizer can tell: it skips None and not zeros. So what is used without
gradients only, under `torch.no_grad` for example, leaves its partition detached.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from thunder.dynamo.splitting.effects import mutated_inputs
from thunder.dynamo.splitting.node_values import (
    SCALARS,
    fresh_like,
    lasting_memory,
    requires_grad,
    storages,
    value_of,
)


def detach_unneeded(graph: fx.Graph, owner: dict[fx.Node, int]) -> None:
    """Detaches tensors that leave their partitions, where no gradient will come back.

    Args:
        graph: The graph; changed in place.
        owner: The partition of each node that has one; the detached tensors are added.
    """
    needed = _needed(graph)
    for node in list(owner):
        foreign = [user for user in node.users if owner.get(user, owner[node]) != owner[node]]
        if not foreign or node in needed or not requires_grad(node):
            continue
        if type(value_of(node)) is not FakeTensor:  # a tuple, whose elements come by themselves
            continue
        with graph.inserting_after(node):
            detached = graph.call_method("detach", (node,))
        detached.meta["example_value"] = fresh_like(value_of(node)).requires_grad_(False)
        owner[detached] = owner[node]
        for user in foreign:
            user.replace_input_with(node, detached)


def _needed(graph: fx.Graph) -> set[fx.Node]:
    """Finds the nodes whose gradient may be asked for through the graph's output."""
    needed: set[fx.Node] = set()
    memory = lasting_memory(graph)

    def need(nodes: Iterable[fx.Node]) -> None:
        for node in nodes:
            needed.add(node)
            if requires_grad(node):
                memory.update(storages(node))

    need(graph.output_node().all_input_nodes)
    for node in reversed(graph.nodes):
        changed = {key for each in mutated_inputs(node) for key in storages(each)}
        passes_on = node in needed and not _stops_gradient(node)
        if passes_on or changed & memory or node.target is torch.autograd.grad:
            need(node.all_input_nodes)
    return needed


def _stops_gradient(node: fx.Node) -> bool:
    """Whether it is certain that no gradient flows through a node."""
    value = value_of(node)
    elements = value if isinstance(value, tuple | list) else [value]
    return all(
        isinstance(each, SCALARS) or (type(each) is FakeTensor and not each.requires_grad)
        for each in elements
    )
