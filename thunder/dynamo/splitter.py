"""Cuts a captured graph into thunder regions and Inductor regions.

Pieces are contiguous stretches of the graph in its own order, so that in-place changes, random
numbers and checks happen in the order of the program. Where the cuts go is decided here; what
must not be cut is found by `indivisible_regions`, what may cross is arranged by `crossing`, and
`partition_graphs` builds the pieces. `partition_compile` compiles them.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx
from torch._ops import HigherOrderOperator

from thunder.dynamo.split_reason import SplitReason, SplitReasonKind
from thunder.dynamo.splitting.ambient_state import AmbientState, ambient_states, is_marker
from thunder.dynamo.splitting.crossing import is_arithmetic, is_element, localize
from thunder.dynamo.splitting.crossing_changes import Isolation, crossing_changes, isolate
from thunder.dynamo.splitting.effects import mutated_inputs
from thunder.dynamo.splitting.indivisible_regions import (
    IndivisibleRegion,
    indivisible_regions,
    join,
)
from thunder.dynamo.splitting.node_values import (
    input_storages,
    is_scalar,
    is_structured,
    storages,
    value_of,
)
from thunder.dynamo.splitting.partition_graphs import PartitionBuilder
from thunder.dynamo.splitting.unneeded_gradients import detach_unneeded
from thunder.trace.copying import copy_graph_module


class PartitionKind(enum.Enum):
    """Who compiles a partition; the value begins the partition's name."""

    THUNDER = "thunder"
    INDUCTOR = "inductor"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Partition:
    """A piece of a captured graph.

    Attributes:
        name: Its kind and index, such as `thunder_0`; the submodule's name in the split graph.
        kind: Who compiles it.
        index: Its place among all partitions of the graph.
        graph_module: The piece: tensors and symbolic integers in, a tuple of them out.
        reasons: Why nodes of it are not in a thunder region; empty for those.
    """

    name: str
    kind: PartitionKind
    index: int
    graph_module: fx.GraphModule
    reasons: tuple[SplitReason, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SplitGraph:
    """A captured graph cut into partitions.

    Attributes:
        split_graph_module: Calls the partitions in order. Takes and returns what the captured
            graph did.
        partitions: The partitions in order.
    """

    split_graph_module: fx.GraphModule
    partitions: tuple[Partition, ...]

    @property
    def reasons(self) -> tuple[SplitReason, ...]:
        """All reasons, in the order of the graph."""
        return tuple(reason for partition in self.partitions for reason in partition.reasons)


def split_graph(
    graph_module: fx.GraphModule, unsupported: Mapping[fx.Node, SplitReason]
) -> SplitGraph:
    """Cuts a captured graph so that unsupported nodes are in Inductor regions.

    Gradient mode, autocast and the like are re-established at the start of each partition and
    restored at its end; the state on entry is the one in force during this call.

    Args:
        graph_module: The graph; it is not changed. Nodes have example values.
        unsupported: The nodes that must not be in a thunder region, from `find_unsupported`.

    Returns:
        The split graph. One excluded operator gives at most three partitions.

    Example:
        >>> import torch
        >>> from thunder.dynamo.support import find_unsupported
        >>> gm = torch.fx.symbolic_trace(lambda x: torch.sinc(x.cos()).exp())
        >>> found = find_unsupported(gm, [torch.sinc], example_inputs=[torch.ones(2)])
        >>> [partition.name for partition in split_graph(gm, found).partitions]
        ['thunder_0', 'inductor_1', 'thunder_2']
    """
    working = copy_graph_module(graph_module)
    copies = dict(zip(graph_module.graph.nodes, working.graph.nodes, strict=True))
    reasons = {copies[node]: reason for node, reason in unsupported.items()}
    states = ambient_states(working.graph)
    regions = indivisible_regions(working.graph)
    while True:
        runs = _plan(working.graph, reasons, regions)
        changes = crossing_changes(working.graph, _owners(working.graph, runs), states)
        if not changes.regions:
            return _build(working, runs, states, changes.isolations)
        regions = join([*regions, *changes.regions])


@dataclass(slots=True)
class _Run:
    """Consecutive nodes for one compiler.

    Attributes:
        kind: The compiler.
        nodes: The nodes, without markers and attributes.
        is_light: Whether nothing in it is worth a compiled region of its own.
        reasons: Why it is not thunder's.
    """

    kind: PartitionKind
    nodes: list[fx.Node]
    is_light: bool
    reasons: list[SplitReason] = field(default_factory=list)

    def extend(self, other: _Run) -> None:
        self.nodes += other.nodes
        self.is_light &= other.is_light
        self.reasons += other.reasons


def _plan(
    graph: fx.Graph,
    reasons: Mapping[fx.Node, SplitReason],
    regions: Sequence[IndivisibleRegion],
) -> list[_Run]:
    runs = _join(_units(graph, reasons, regions))
    if all(run.kind is PartitionKind.THUNDER for run in runs):
        return runs
    for run in runs:
        if run.is_light and run.kind is PartitionKind.THUNDER:
            run.kind = PartitionKind.INDUCTOR
    return _join(runs)


def _join(runs: Iterable[_Run]) -> list[_Run]:
    joined: list[_Run] = []
    for run in runs:
        if joined and joined[-1].kind is run.kind:
            joined[-1].extend(run)
        else:
            joined.append(run)
    return joined


def _units(
    graph: fx.Graph,
    reasons: Mapping[fx.Node, SplitReason],
    regions: Sequence[IndivisibleRegion],
) -> Iterable[_Run]:
    """Yields the pieces that cannot be cut any further, in order."""
    nodes = list(graph.nodes)
    region_at = {at: r for r in regions for at in range(r.first, r.last + 1)}
    position = 0
    while position < len(nodes):
        region = region_at.get(position)
        end = position + 1 if region is None else region.last + 1
        piece = [node for node in nodes[position:end] if _is_core(node)]
        position = end
        if not piece:
            continue
        found = [reasons[node] for node in piece if node in reasons]
        if region is not None and found and len(piece) > len(found):
            found.append(_whole_region(region, found[0], piece))
        yield _Run(
            kind=PartitionKind.INDUCTOR if found else PartitionKind.THUNDER,
            nodes=piece,
            is_light=not found and all(map(_is_light, piece)),
            reasons=found,
        )


def _is_core(node: fx.Node) -> bool:
    """Whether a node is placed by its position.

    Elements of tuples follow what gives the tuple, and arithmetic on sizes is done where its
    result is used.
    """
    if node.op in ("placeholder", "get_attr", "output") or is_marker(node) or is_arithmetic(node):
        return False
    return not (is_element(node) and node.all_input_nodes[0].op != "placeholder")


def _is_light(node: fx.Node) -> bool:
    """Whether a node gives a number, a view or a check, and changes nothing."""
    is_opaque = node.op == "call_module" or isinstance(node.target, HigherOrderOperator)
    if is_opaque or mutated_inputs(node):
        return False
    value = value_of(node)
    if value is None:  # for `tolist` Dynamo takes elements without giving them values
        return not node.users or node.target is operator.getitem
    if is_scalar(node) or isinstance(value, torch.Size):
        return True
    holds_tensors = isinstance(value, torch.Tensor) or is_structured(node)
    return holds_tensors and bool(storages(node)) and storages(node) <= input_storages(node)


def _whole_region(
    region: IndivisibleRegion, cause: SplitReason, piece: Sequence[fx.Node]
) -> SplitReason:
    return SplitReason(
        kind=SplitReasonKind.INDIVISIBLE_REGION,
        info=(
            f"{region.what} cannot be cut, so its {len(piece)} operators are left to Inductor "
            f"together with {cause.op}"
        ),
        op=cause.op,
        source_line=cause.source_line,
    )


def _owners(graph: fx.Graph, runs: Sequence[_Run]) -> dict[fx.Node, int]:
    owner = {node: index for index, run in enumerate(runs) for node in run.nodes}
    for node in graph.nodes:
        if is_element(node) and node not in owner and node.all_input_nodes[0] in owner:
            owner[node] = owner[node.all_input_nodes[0]]
    return owner


def _build(
    working: fx.GraphModule,
    runs: Sequence[_Run],
    states: Mapping[fx.Node, AmbientState],
    isolations: tuple[Isolation, ...],
) -> SplitGraph:
    owner = _owners(working.graph, runs)
    clones = isolate(working.graph, owner, isolations)
    detach_unneeded(working.graph, owner)
    localize(working.graph, owner)
    builder = PartitionBuilder(working, owner, [run.nodes for run in runs], states, clones)
    partitions = tuple(
        Partition(
            name=f"{run.kind.value}_{index}",
            kind=run.kind,
            index=index,
            graph_module=builder.partition(index),
            reasons=tuple(run.reasons),
        )
        for index, run in enumerate(runs)
    )
    split = builder.caller([p.name for p in partitions], [p.graph_module for p in partitions])
    return SplitGraph(split_graph_module=split, partitions=partitions)
