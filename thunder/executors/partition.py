"""Shares the nodes of an ATen graph out between executors, as regions and single nodes.

Which executor takes a node is asked in the order of the list. `grouping` finds what can be
compiled together; here each group is offered to its executor, and everything is put in an order
in which it can run.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from thunder.executors.base import AbstractExecutor, AbstractFusionExecutor
from thunder.executors.grouping import group_nodes, is_write, ordering
from thunder.trace.targets import CLAIM, Claim


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes that one fusion executor compiles together.

    Attributes:
        executor: The fusion executor.
        nodes: The nodes, in the order of the graph.
    """

    executor: AbstractFusionExecutor
    nodes: tuple[fx.Node, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A graph, shared out.

    Attributes:
        steps: Regions and single nodes in an order in which they can run. Placeholders and the
            output are left out.
        whole_graph: The region that is all of the graph, or None.
    """

    steps: tuple[Region | fx.Node, ...]
    whole_graph: Region | None


def claim_nodes(
    graph: fx.Graph, executors: Sequence[AbstractExecutor]
) -> dict[fx.Node, AbstractExecutor]:
    """Asks the executors, in order, who takes each node.

    Args:
        graph: An ATen graph; each claimed node gets a `Claim` in its `meta`.
        executors: Most wanted first; the last takes everything.

    Returns:
        The executor of each `call_function` node.
    """
    claims: dict[fx.Node, AbstractExecutor] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        refusals: list[tuple[str, str]] = []
        for executor in executors:
            refusal = executor.check(node)
            if refusal is None:
                claims[node] = executor
                node.meta[CLAIM] = Claim(executor.name, tuple(refusals))
                break
            refusals.append((executor.name, refusal.reason))
    return claims


def partition_graph(
    graph: fx.Graph, claims: dict[fx.Node, AbstractExecutor], fallback: AbstractExecutor
) -> Partition:
    """Groups the nodes of fusion executors into regions.

    Args:
        graph: The graph.
        claims: The executor of each `call_function` node; regions that their executor finds not
            worthwhile are given to `fallback`, in `claims` and in `meta`.
        fallback: The executor that takes everything.

    Returns:
        The regions and nodes in an order that respects data, writes and random state.
    """
    owners = set(claims.values())
    if len(owners) == 1 and isinstance(only := next(iter(owners)), AbstractFusionExecutor):
        nodes = tuple(node for node in graph.nodes if node.op in ("call_function", "get_attr"))
        if only.worthwhile([node for node in nodes if node.op == "call_function"]) is None:
            region = Region(only, nodes)
            return Partition(steps=(region,), whole_graph=region)
    return Partition(steps=_steps(graph, claims, fallback), whole_graph=None)


def _steps(
    graph: fx.Graph, claims: dict[fx.Node, AbstractExecutor], fallback: AbstractExecutor
) -> tuple[Region | fx.Node, ...]:
    for node, executor in claims.items():
        if is_write(node) and isinstance(executor, AbstractFusionExecutor):
            _give(node, claims, fallback, "writes to memory that other regions may read")
    steps: list[Region | fx.Node] = []
    for executor, nodes in list(group_nodes(claims)):
        refusal = executor.worthwhile(nodes)
        if refusal is None:
            steps.append(Region(executor, nodes))
        else:
            for node in nodes:
                _give(node, claims, fallback, refusal.reason)
    steps += [
        node
        for node, executor in claims.items()
        if not isinstance(executor, AbstractFusionExecutor)
    ]
    return (*graph.find_nodes(op="get_attr"), *_in_order(steps, claims))


def _in_order(
    steps: Sequence[Region | fx.Node], claims: dict[fx.Node, AbstractExecutor]
) -> list[Region | fx.Node]:
    """Sorts steps so that each comes after what it needs.

    Among those that can run, the one comes first whose last node is first in the graph: the
    graph's order is AOTAutograd's, which keeps few values alive.
    """
    position = {node: index for index, node in enumerate(claims)}
    members = [step.nodes if isinstance(step, Region) else (step,) for step in steps]
    step_of = {node: index for index, nodes in enumerate(members) for node in nodes}
    needs: list[set[int]] = [set() for _ in steps]
    pairs = [(source, node) for node in claims for source in node.all_input_nodes]
    for before, after in (*pairs, *ordering(claims)):
        if before in step_of and step_of[before] != step_of[after]:
            needs[step_of[after]].add(step_of[before])
    feeds: list[list[int]] = [[] for _ in steps]
    for index, sources in enumerate(needs):
        for source in sources:
            feeds[source].append(index)
    waiting = [len(sources) for sources in needs]
    last = [max(position[node] for node in nodes if node in position) for nodes in members]
    ready = [(last[index], index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    result: list[Region | fx.Node] = []
    while ready:
        _, index = heapq.heappop(ready)
        result.append(steps[index])
        for follower in feeds[index]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, (last[follower], follower))
    assert len(result) == len(steps), "regions depend on each other in a cycle"
    return result


def _give(
    node: fx.Node,
    claims: dict[fx.Node, AbstractExecutor],
    fallback: AbstractExecutor,
    reason: str,
) -> None:
    claim: Claim = node.meta[CLAIM]
    claims[node] = fallback
    node.meta[CLAIM] = Claim(fallback.name, (*claim.refusals, (claim.executor, reason)))
