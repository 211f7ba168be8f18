"""In-place changes, in one piece of a graph, of tensors that another piece made.

Without gradients nothing is to be done: AOTAutograd writes changed inputs back, in the order of
the program. With gradients three things go wrong. A piece that changes an input may need its old
value for the backward, and finds it changed (eager has a copy). An earlier piece may have saved
for its backward what a later one changes, although eager would have saved something else. And
torch 2.13 fails, or gives other results than eager, when several views of one memory come in and
one is changed. So a piece works on a clone where the tensor it changes is the only view of its
memory that is still used; otherwise there must be no cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch._subclasses.fake_tensor import FakeTensor

from thunder.dynamo.ambient_state import AmbientState
from thunder.dynamo.effects import mutated_inputs
from thunder.dynamo.indivisible_regions import IndivisibleRegion
from thunder.dynamo.node_values import (
    fresh_like,
    input_storages,
    requires_grad,
    storages,
    value_of,
)

_REPLACE_MEMORY = {"set_", "resize_", "resize_as_"}


@dataclass(frozen=True, slots=True)
class Isolation:
    """A tensor that a piece must clone before it changes it.

    Attributes:
        piece: The piece.
        node: What makes the tensor, in an earlier piece.
    """

    piece: int
    node: fx.Node


@dataclass(frozen=True, slots=True)
class CrossingChanges:
    """What in-place changes ask of a plan.

    Attributes:
        regions: Stretches that must not be cut after all.
        isolations: Tensors to clone.
    """

    regions: tuple[IndivisibleRegion, ...] = ()
    isolations: tuple[Isolation, ...] = ()


def crossing_changes(
    graph: fx.Graph, owner: Mapping[fx.Node, int], states: Mapping[fx.Node, AmbientState]
) -> CrossingChanges:
    """Finds what in-place changes ask of a plan.

    Args:
        graph: A captured graph.
        owner: The piece that each node is meant for.
        states: The ambient state before each node.
    """
    if not any(requires_grad(node) for node in owner):
        return CrossingChanges()
    changes = _Changes(graph, owner, _remembered(graph, states))
    regions: list[IndivisibleRegion] = []
    isolations: list[Isolation] = []
    for (piece, key), last in changes.last.items():
        incoming = changes.incoming(piece, key)
        first_use = changes.first_use(piece, key)
        if not incoming or not (
            len(incoming) > 1 or first_use is not None or any(map(requires_grad, incoming))
        ):
            continue
        if len(incoming) == 1 and changes.can_be_cloned(incoming[0], piece, key):
            isolations.append(Isolation(piece, incoming[0]))
            continue
        starts = [changes.position[node] for node in incoming if node in owner]
        starts += [] if first_use is None else [first_use]
        if starts:
            regions.append(IndivisibleRegion(min(starts), last, "an in-place change"))
    return CrossingChanges(tuple(regions), tuple(isolations))


class _Changes:
    """The in-place changes of a plan.

    Attributes:
        position: The position of each node.
        last: For a piece and a memory, the position of the piece's last change of it.
    """

    def __init__(
        self, graph: fx.Graph, owner: Mapping[fx.Node, int], remembered: set[fx.Node]
    ) -> None:
        self.graph = graph
        self.owner = owner
        self.remembered = remembered
        self.position = {node: index for index, node in enumerate(graph.nodes)}
        self.last: dict[tuple[int, int], int] = {}
        for node in owner:
            for key in _changed(node):
                last = self.last.get((owner[node], key), 0)
                self.last[owner[node], key] = max(last, self.position[node])

    def incoming(self, piece: int, key: int) -> list[fx.Node]:
        """Returns what makes the tensors in a memory that come into a piece, one node for each."""
        found: dict[int, fx.Node] = {}
        for node in self.graph.nodes:
            if self.owner.get(node) == piece:
                for used in node.all_input_nodes:
                    if self.owner.get(used) != piece and key in storages(used):
                        found.setdefault(id(value_of(used)), used)
        return sorted(found.values(), key=self.position.__getitem__)

    def first_use(self, piece: int, key: int) -> int | None:
        """Returns the first use of a memory, before a piece, that a gradient may remember."""
        for node in self.graph.nodes:
            if self.owner.get(node, piece) >= piece or node not in self.remembered:
                continue
            is_view = not _changed(node) and not storages(node).isdisjoint(input_storages(node))
            if key in input_storages(node) and not is_view:
                return self.position[node]
        return None

    def can_be_cloned(self, tensor: fx.Node, piece: int, key: int) -> bool:
        """Whether nobody can tell when a piece changes a clone of a tensor in its place."""
        value = value_of(tensor)
        if type(value) is not FakeTensor or not is_non_overlapping_and_dense_or_false(value):
            return False
        for node in self.graph.nodes:
            lies_there = key in storages(node)
            if lies_there and (node not in self.owner or _may_view_attribute(node)):
                return False
            if self.owner.get(node, -1) < piece and node.op != "output":
                continue
            if key in _changed(node) and node.target in _REPLACE_MEMORY:
                return False
            for used in node.all_input_nodes:
                is_before = self.owner.get(used, -1) < piece
                if is_before and key in storages(used) and value_of(used) is not value:
                    return False
        return True


def isolate(
    graph: fx.Graph, owner: dict[fx.Node, int], isolations: tuple[Isolation, ...]
) -> list[fx.Node]:
    """Lets pieces work on clones of what they change.

    Args:
        graph: The graph; changed in place.
        owner: The piece of each node that has one; the clones are added.
        isolations: What to clone, from `crossing_changes`.

    Returns:
        The clones. They belong before anything else in their pieces, markers included, since
        they are part of the gradient's path whatever the mode of the change.
    """
    clones: list[fx.Node] = []
    stand_ins: dict[int, list[fx.Node]] = {}
    for piece, original in sorted((each.piece, each.node) for each in isolations):
        value = value_of(original)
        same = stand_ins.setdefault(
            id(value), [node for node in graph.nodes if value_of(node) is value]
        )
        made_before = [node for node in same if owner[node] < piece]
        clone = _insert_clone(graph, made_before[-1], piece, owner)
        for node in made_before:
            node.replace_all_uses_with(
                clone,
                delete_user_cb=lambda user, c=clone, p=piece: (
                    user is not c and (user.op == "output" or owner.get(user, -1) >= p)
                ),
            )
        same.append(clone)
        clones.append(clone)
    return clones


def _insert_clone(
    graph: fx.Graph, original: fx.Node, piece: int, owner: dict[fx.Node, int]
) -> fx.Node:
    first = next(node for node in graph.nodes if owner.get(node) == piece)
    with graph.inserting_before(first):
        clone = graph.call_method("clone", (original,))
    clone.meta["example_value"] = fresh_like(value_of(original))
    if "stack_trace" in original.meta:
        clone.meta["stack_trace"] = original.meta["stack_trace"]
    owner[clone] = piece
    return clone


def _changed(node: fx.Node) -> set[int]:
    return {key for each in mutated_inputs(node) for key in storages(each)}


def _remembered(graph: fx.Graph, states: Mapping[fx.Node, AmbientState]) -> set[fx.Node]:
    """Nodes that some gradient depends on, whose inputs may therefore be saved."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        recorded = states[node].grad_enabled and requires_grad(node)
        if recorded or not found.isdisjoint(node.users):
            found.add(node)
    return found


def _may_view_attribute(node: fx.Node) -> bool:
    return any(used.op == "get_attr" and value_of(used) is None for used in node.all_input_nodes)
