"""Shares the nodes of an ATen graph out between executors and groups them into regions.

Regions are found by stage numbers. Walking the graph in order, a node of fusion executor X gets
the largest stage of its inputs, plus one where the input belongs to somebody else; all nodes of
X with one stage form a region. A path that leaves a region and comes back raises the stage, so
regions have no cycles. Nodes that write to memory are a barrier and random nodes stay in order,
which torch's `CapabilityBasedPartitioner` knows nothing of. Linear in the size of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx

from thunder.executors.base import AbstractExecutor, AbstractFusionExecutor
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
    return Partition(steps=_in_stages(graph, claims, fallback), whole_graph=None)


def _in_stages(
    graph: fx.Graph, claims: dict[fx.Node, AbstractExecutor], fallback: AbstractExecutor
) -> tuple[Region | fx.Node, ...]:
    for node, executor in claims.items():
        if is_write(node) and isinstance(executor, AbstractFusionExecutor):
            _give(node, claims, fallback, "writes to memory that other regions may read")
    stages = _stages(graph, claims)
    by_stage: dict[int, list[Region | fx.Node]] = {}
    for region in _regions(claims, stages, fallback):
        by_stage.setdefault(stages[region.nodes[0]], []).append(region)
    for node, executor in claims.items():
        if not isinstance(executor, AbstractFusionExecutor):
            by_stage.setdefault(stages[node], []).append(node)
    constants = graph.find_nodes(op="get_attr")
    return (*constants, *(step for _, steps in sorted(by_stage.items()) for step in steps))


def _regions(
    claims: dict[fx.Node, AbstractExecutor],
    stages: dict[fx.Node, int],
    fallback: AbstractExecutor,
) -> list[Region]:
    groups: dict[tuple[int, str], list[fx.Node]] = {}
    for node, executor in claims.items():
        if isinstance(executor, AbstractFusionExecutor):
            groups.setdefault((stages[node], executor.name), []).append(node)
    regions: list[Region] = []
    for nodes in groups.values():
        executor = claims[nodes[0]]
        assert isinstance(executor, AbstractFusionExecutor)
        refusal = executor.worthwhile(nodes)
        if refusal is None:
            regions.append(Region(executor, tuple(nodes)))
        else:
            for node in nodes:
                _give(node, claims, fallback, refusal.reason)
    return regions


def _stages(graph: fx.Graph, claims: dict[fx.Node, AbstractExecutor]) -> dict[fx.Node, int]:
    stages: dict[fx.Node, int] = {}
    barrier: fx.Node | None = None
    random: fx.Node | None = None
    latest: fx.Node | None = None
    for node in graph.nodes:
        if node not in claims:
            continue
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


def _crossing(source: fx.Node, node: fx.Node, claims: dict[fx.Node, AbstractExecutor]) -> int:
    fused = isinstance(claims[node], AbstractFusionExecutor)
    return int(fused and claims[source] is not claims[node])


def _give(
    node: fx.Node,
    claims: dict[fx.Node, AbstractExecutor],
    fallback: AbstractExecutor,
    reason: str,
) -> None:
    claim: Claim = node.meta[CLAIM]
    claims[node] = fallback
    node.meta[CLAIM] = Claim(fallback.name, (*claim.refusals, (claim.executor, reason)))


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
