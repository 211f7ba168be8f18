"""Groups the claimed nodes of an ATen graph into candidate regions, without cycles between them.

Regions are found by stage numbers. Walking the graph in order, a node of fusion executor X gets
the largest stage of its inputs, plus one where the input belongs to somebody else. A path that
leaves X's nodes of one stage and comes back raises the stage, so no set of nodes of one stage and
executor depends on itself through others. Nodes that write to memory are a barrier and random
nodes stay in order, which torch's `CapabilityBasedPartitioner` knows nothing of. Linear in the
size of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import torch
from torch import fx

from thunder.executors.base import AbstractExecutor, AbstractFusionExecutor, is_view

Claims = Mapping[fx.Node, AbstractExecutor]
"""The executor of each `call_function` node, in the order of the graph."""


_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.clone.default)


def group_nodes(claims: Claims) -> Iterator[tuple[AbstractFusionExecutor, tuple[fx.Node, ...]]]:
    """Yields groups of nodes that can each be compiled as one.

    Nodes of a group are connected, by data or by an input that they share, and a group keeps to
    its executor's `max_nodes` and `max_inputs`.

    Args:
        claims: The executor of each node; fusion executors' nodes are grouped.
    """
    stages = _late_stages(claims, _stages(claims))
    by_stage: dict[tuple[int, str], list[fx.Node]] = {}
    for node, executor in claims.items():
        if isinstance(executor, AbstractFusionExecutor):
            by_stage.setdefault((stages[node], executor.name), []).append(node)
    for nodes in by_stage.values():
        executor = claims[nodes[0]]
        assert isinstance(executor, AbstractFusionExecutor)
        for connected in _connected(nodes):
            for group in _within_limits(connected, executor):
                yield executor, tuple(group)


def ordering(claims: Claims) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Yields pairs of nodes of which the first must run before the second, data apart.

    Args:
        claims: The nodes, in the order of the graph.
    """
    yield from pairwise(node for node in claims if is_random(node))
    barrier: fx.Node | None = None
    since: list[fx.Node] = []
    for node in claims:
        if barrier is not None:
            yield barrier, node
        if is_write(node):
            yield from ((earlier, node) for earlier in since)
            barrier, since = node, []
        else:
            since.append(node)


def is_write(node: fx.Node) -> bool:
    """Whether a node changes memory or has another effect that its result does not show."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable or node.is_impure()
    return node.is_impure()


def is_random(node: fx.Node) -> bool:
    """Whether a node draws from a random generator."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and (
        torch.Tag.nondeterministic_seeded in target.tags
    )


def _stages(claims: Claims) -> dict[fx.Node, int]:
    stages: dict[fx.Node, int] = {}
    barrier: fx.Node | None = None
    random: fx.Node | None = None
    latest: fx.Node | None = None
    for node in claims:
        before = [source for source in node.all_input_nodes if source in stages]
        before += [node_ for node_ in (barrier,) if node_ is not None]
        if is_write(node):
            before += [latest] if latest is not None else []
            barrier = node
        if is_random(node):
            before += [random] if random is not None else []
            random = node
        stages[node] = max(
            (stages[source] + _crossing(source, node, claims) for source in before), default=0
        )
        if latest is None or stages[node] >= stages[latest]:
            latest = node
    return stages


def _late_stages(claims: Claims, stages: dict[fx.Node, int]) -> dict[fx.Node, int]:
    """Moves what depends on the graph's inputs alone to where it is used.

    The cast of a saved activation belongs to the region of the backward that reads it; in the
    first region it would be computed, written and kept until then. Reductions stay where their
    inputs are: moved, they would keep these alive. What is a result of the graph stays too.
    """
    late = dict(stages)
    limit: int | None = None  # nothing moves past a write
    for node in reversed(list(claims)):
        if is_write(node):
            limit = late[node]
        elif late[node] == 0 and _is_cheap(node) and all(user in late for user in node.users):
            bounds = [late[user] - _crossing(node, user, claims) for user in node.users]
            bounds += [limit] if limit is not None else []
            late[node] = max(0, min(bounds, default=0))
    return late


def _is_cheap(node: fx.Node) -> bool:
    """Whether a node costs no more than to read its inputs, and gives no less than it reads."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or is_random(node):
        return False
    return torch.Tag.pointwise in target.tags or target in _COPIES or is_view(node)


def _crossing(source: fx.Node, node: fx.Node, claims: Claims) -> int:
    fused = isinstance(claims[node], AbstractFusionExecutor)
    return int(fused and claims[source] is not claims[node])


def _connected(nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """Divides nodes into those that data or a shared input connects, each in order."""
    leader: dict[fx.Node, fx.Node] = {}

    def find(node: fx.Node) -> fx.Node:
        while leader.setdefault(node, node) is not node:
            leader[node] = node = leader[leader[node]]
        return node

    for node in nodes:
        for source in node.all_input_nodes:
            leader[find(source)] = find(node)
    components: dict[fx.Node, list[fx.Node]] = {}
    for node in nodes:
        components.setdefault(find(node), []).append(node)
    return list(components.values())


def _within_limits(
    nodes: Iterable[fx.Node], executor: AbstractFusionExecutor
) -> Iterator[list[fx.Node]]:
    """Cuts nodes into runs that keep to the limits; a run depends on earlier ones only."""
    group: list[fx.Node] = []
    members: set[fx.Node] = set()
    inputs: set[fx.Node] = set()
    for node in nodes:
        sources = {source for source in node.all_input_nodes if source not in members}
        if group and (
            len(group) >= executor.max_nodes or len(inputs | sources) > executor.max_inputs
        ):
            yield group
            group, members, inputs = [], set(), set()
            sources = set(node.all_input_nodes)
        group.append(node)
        members.add(node)
        inputs |= sources
    if group:
        yield group
