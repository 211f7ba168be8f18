"""In-place changes, in one piece of a graph, of tensors that another piece made.

AOTAutograd writes changed inputs back, in the order of the program, so mostly nothing is to be
done. Three things go wrong. A piece that changes an input with a gradient may need its old value
for the backward, and finds it changed (eager has a copy). An earlier piece may have saved for its
backward what a later one changes, although eager would have saved something else. And torch 2.13
fails, or gives other results than eager, when several views of one memory come in and one is
changed. So a piece works on a clone where the tensor it changes is the only view of its memory
that is still used; otherwise there must be no cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch._subclasses.fake_tensor import FakeTensor

from thunder.dynamo.splitting.ambient_state import AmbientState
from thunder.dynamo.splitting.effects import mutated_inputs
from thunder.dynamo.splitting.indivisible_regions import IndivisibleRegion
from thunder.dynamo.splitting.node_values import (
    fresh_like,
    lasting_memory,
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
    changes = _Changes(graph, owner, _remembered(graph, states))
    regions = changes.unrecorded_views(states)
    isolations: list[Isolation] = []
    for (piece, key), last in changes.last.items():
        incoming = changes.incoming.get((piece, key), [])
        regions += changes.views_that_leave(piece, key)
        first_use = changes.first_use_before(piece, key)
        if len(incoming) < 2 and first_use is None and not any(map(requires_grad, incoming)):
            continue
        if len(incoming) == 1 and changes.can_be_cloned(incoming[0], piece, key):
            isolations.append(Isolation(piece, incoming[0]))
            continue
        starts = [changes.position[node] for node in incoming if node in owner]
        starts += [] if first_use is None or not incoming else [first_use]
        if starts:
            regions.append(IndivisibleRegion(min(starts), last, "an in-place change"))
    return CrossingChanges(tuple(regions), tuple(isolations))


class _Changes:
    """The in-place changes of a plan.

    Attributes:
        position: The position of each node.
        last: For a piece and a memory, the position of the piece's last change of it.
        incoming: For a piece and a memory, what makes the tensors there that come into the
            piece, one node for each.
        first_use: For a piece and a memory, its first use there that a gradient may remember.
    """

    def __init__(
        self, graph: fx.Graph, owner: Mapping[fx.Node, int], remembered: set[fx.Node]
    ) -> None:
        self.graph = graph
        self.owner = owner
        self.position = {node: index for index, node in enumerate(graph.nodes)}
        self.lasting_memory = lasting_memory(graph)
        self.storages = {node: storages(node) for node in graph.nodes}
        self.members: dict[int, list[fx.Node]] = {}
        for node, keys in self.storages.items():
            for key in keys:
                self.members.setdefault(key, []).append(node)
        self.last: dict[tuple[int, int], int] = {}
        self.incoming: dict[tuple[int, int], list[fx.Node]] = {}
        self.first_use: dict[tuple[int, int], int] = {}
        for node in graph.nodes:
            if node in owner:
                self._note_changes(node)
                self._note_inputs(node)
            if node in owner and node in remembered:
                self._note_uses(node)

    def first_use_before(self, piece: int, key: int) -> int | None:
        """Returns the first use of a memory, before a piece, that a gradient may remember."""
        uses = [self.first_use[at, key] for at in range(piece) if (at, key) in self.first_use]
        return min(uses, default=None)

    def views_that_leave(self, piece: int, key: int) -> list[IndivisibleRegion]:
        """Finds views of incoming memory that a piece makes, changes, and lets others use.

        AOTAutograd makes such a view anew from the changed input, which loses the gradient that
        the change brought, or fails when one of them was made under `torch.no_grad`.
        """
        incoming = self.incoming.get((piece, key), [])
        members = self.members[key]
        if not incoming or not any(map(requires_grad, members)):
            return []
        regions = []
        for node in members:
            is_new = all(value_of(node) is not value_of(other) for other in incoming)
            users = [u for u in node.users if self.owner.get(u, piece) != piece]
            if self.owner.get(node) == piece and is_new and users:
                last = max(self.position[user] for user in users)
                regions.append(IndivisibleRegion(self.position[node], last, "a changed view"))
        return regions

    def unrecorded_views(self, states: Mapping[fx.Node, AmbientState]) -> list[IndivisibleRegion]:
        """Finds views made under `torch.no_grad` that another piece uses with gradients.

        No gradient flows through such a view, but AOTAutograd makes it anew outside of its mode.
        """
        regions = []
        for node in self.owner:
            if states[node].grad_enabled or not requires_grad(node):
                continue
            users = [
                user
                for user in node.users
                if self.owner.get(user, self.owner[node]) != self.owner[node]
                and states[user].grad_enabled
            ]
            is_new = all(value_of(used) is not value_of(node) for used in node.all_input_nodes)
            if users and is_new:
                last = max(self.position[user] for user in users)
                what = "a view without gradient"
                regions.append(IndivisibleRegion(self.position[node], last, what))
        return regions

    def _note_changes(self, node: fx.Node) -> None:
        for key in _changed(node):
            self.last[self.owner[node], key] = self.position[node]

    def _note_inputs(self, node: fx.Node) -> None:
        piece = self.owner[node]
        for used in node.all_input_nodes:
            if self.owner.get(used) == piece:
                continue
            for key in self.storages[used]:
                tensors = self.incoming.setdefault((piece, key), [])
                if all(value_of(other) is not value_of(used) for other in tensors):
                    tensors.append(used)

    def _note_uses(self, node: fx.Node) -> None:
        inputs = {key for used in node.all_input_nodes for key in self.storages[used]}
        is_view = not _changed(node) and not self.storages[node].isdisjoint(inputs)
        if not is_view:
            for key in inputs:
                self.first_use.setdefault((self.owner[node], key), self.position[node])

    def can_be_cloned(self, tensor: fx.Node, piece: int, key: int) -> bool:
        """Whether nobody can tell when a piece changes a clone of a tensor in its place."""
        value = value_of(tensor)
        if key in self.lasting_memory:
            return False
        if type(value) is not FakeTensor or not is_non_overlapping_and_dense_or_false(value):
            return False
        for member in self.members[key]:
            if member not in self.owner:
                return False
            later = [user for user in member.users if self.owner.get(user, piece) >= piece]
            if any(user.target in _REPLACE_MEMORY and key in _changed(user) for user in later):
                return False
            is_before = self.owner[member] < piece
            if is_before and later and value_of(member) is not value:
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
