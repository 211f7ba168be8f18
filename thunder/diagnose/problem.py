"""A graph with its inputs, and pieces of it that run alone.

A piece is a choice of operators. What its operators take from the rest of the graph becomes an
input, with the real value: the graph is run in eager mode, and values are copied just before the
piece first needs them, so that in-place updates are seen as in the whole run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import fx

from thunder.pipeline.judged_run import copy_values, random_state_kept
from thunder.trace.copying import make_graph_module

_OPERATORS = ("call_function", "call_method", "call_module")
_NUMBERS = bool | int | float | complex
_FAILURES_OF_EAGER = (RuntimeError, TypeError, ValueError, ArithmeticError, LookupError)


@dataclass(frozen=True, slots=True)
class Piece:
    """A choice of operators and results.

    Attributes:
        operators: Positions in the list of operators, rising.
        outputs: Positions of those whose results the piece returns, rising.
    """

    operators: tuple[int, ...]
    outputs: tuple[int, ...]


@final
class Problem:
    """A graph that is to be shrunk, with the inputs that show what is wrong."""

    def __init__(self, graph_module: fx.GraphModule, inputs: Sequence[Any]) -> None:
        """Runs the graph in eager mode, to see which values are tensors.

        Args:
            graph_module: The graph. It is not changed.
            inputs: One real value for each placeholder; they stay as they are.
        """
        self.graph_module = graph_module
        self.inputs = tuple(inputs)
        self._nodes = list(graph_module.graph.nodes)
        self._operators = [node for node in self._nodes if node.op in _OPERATORS]
        self._position = {node: index for index, node in enumerate(self._operators)}
        kinds = _Kinds(graph_module)
        kinds.run_apart(self.inputs)
        self._tensors = kinds.tensors
        self._numbers = kinds.numbers
        self._frame = {node for node in self._operators if _is_frame(node, kinds)}

    @property
    def size(self) -> int:
        """Number of nodes of the graph, inputs and output included."""
        return len(self._nodes)

    @property
    def removable(self) -> tuple[int, ...]:
        """The operators that compute something; the others open and close modes."""
        return tuple(i for i, node in enumerate(self._operators) if node not in self._frame)

    @property
    def frame(self) -> tuple[int, ...]:
        """The operators that open and close modes, such as autocast."""
        return tuple(i for i, node in enumerate(self._operators) if node in self._frame)

    def piece(self, wanted: Iterable[int]) -> Piece:
        """Returns the piece of some operators, with everything that leaves it as output.

        Args:
            wanted: Positions of operators. Those whose inputs would have to be something else
                than tensors and numbers are left out.
        """
        kept = self._possible({self._operators[index] for index in wanted})
        outputs = [
            self._position[node]
            for node in kept
            if node in self._tensors and (not node.users or any(u not in kept for u in node.users))
        ]
        return Piece(tuple(self._position[node] for node in kept), tuple(outputs))

    def with_outputs(self, piece: Piece, outputs: Collection[int]) -> Piece:
        """Returns a piece with some of the results, without what only the others needed."""
        kept = {self._operators[index] for index in piece.operators}
        needed = {self._operators[index] for index in outputs}
        needed |= {node for node in kept if node in self._frame or node.is_impure()}
        for node in reversed(self._operators):
            if node in needed:
                needed |= {source for source in node.all_input_nodes if source in kept}
        operators = tuple(i for i in piece.operators if self._operators[i] in needed)
        return Piece(operators, tuple(sorted(outputs)))

    def exposed(self, piece: Piece) -> Piece:
        """Returns a piece with the results of all its operators."""
        shown = [i for i in piece.operators if self._operators[i] in self._tensors]
        return Piece(piece.operators, tuple(shown))

    def build(self, piece: Piece) -> tuple[fx.GraphModule, list[Any]]:
        """Makes a graph of its own out of a piece.

        Returns:
            The graph module, which returns a tuple, and its inputs.

        Raises:
            LookupError: Eager mode fails before a value is there that the piece needs.
        """
        kept = [self._operators[index] for index in piece.operators]
        sources = self._sources(kept)
        values = _Recorder(self.graph_module, sources).run_apart(self.inputs)
        graph = fx.Graph()
        made: dict[fx.Node, Any] = {}
        for source in sources:
            made[source] = graph.create_node("placeholder", source.name, name=source.name)
            made[source].meta.update(source.meta)
        for node in (node for node in self._nodes if node.op == "get_attr"):
            if any(user in kept for user in node.users):
                made[node] = graph.node_copy(node)
        for node in kept:
            made[node] = graph.node_copy(node, lambda n: made.get(n, self._numbers.get(n)))
            made[node].name = node.name
        graph.output(tuple(made[self._operators[index]] for index in piece.outputs))
        built = make_graph_module(self.graph_module, graph)
        built.train(self.graph_module.training)
        return built, values

    def _possible(self, kept: set[fx.Node]) -> list[fx.Node]:
        while True:
            impossible = {
                node
                for node in kept
                if any(not self._is_available(source, kept) for source in node.all_input_nodes)
            }
            impossible |= {
                node
                for node in kept & self._frame
                if any(user in self._frame and user not in kept for user in node.users)
            }
            if not impossible:
                return [node for node in self._operators if node in kept]
            kept = kept - impossible

    def _is_available(self, source: fx.Node, kept: set[fx.Node]) -> bool:
        return (
            source in kept
            or source.op == "get_attr"
            or source in self._tensors
            or source in self._numbers
        )

    def _sources(self, kept: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
        """Returns what the operators take from elsewhere, each with its first user, in order."""
        inside = set(kept)
        users: dict[fx.Node, fx.Node] = {}
        for node in kept:
            for source in node.all_input_nodes:
                if source not in inside and source in self._tensors and source.op != "get_attr":
                    users.setdefault(source, node)
        return {node: users[node] for node in self._nodes if node in users}


class _EagerRun(fx.Interpreter):
    """Runs a graph on copies of its inputs and leaves modes and random state as they were."""

    def run_apart(self, inputs: Sequence[Any]) -> None:
        with _modes_kept(), random_state_kept(), contextlib.suppress(*_FAILURES_OF_EAGER):
            self.extra_traceback = False
            self.run(*copy_values(list(inputs)))


class _Kinds(_EagerRun):
    """Notes which nodes have tensors, and the numbers of those that have numbers."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.tensors: set[fx.Node] = set()
        self.numbers: dict[fx.Node, Any] = {}
        self.others: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.tensors.add(n)
        elif isinstance(value, _NUMBERS):
            self.numbers[n] = value
        elif not isinstance(value, tuple | list | dict):
            self.others[n] = value
        return value


class _Recorder(_EagerRun):
    """Copies values just before their first use."""

    def __init__(self, graph_module: fx.GraphModule, first_users: dict[fx.Node, fx.Node]) -> None:
        super().__init__(graph_module)
        self._first_users = first_users
        self._recorded: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        due = [source for source, user in self._first_users.items() if user is n]
        copies = copy_values([self.env[source] for source in due])
        self._recorded.update(zip(due, copies, strict=True))
        return super().run_node(n)

    def run_apart(self, inputs: Sequence[Any]) -> list[Any]:  # pyright: ignore[reportIncompatibleMethodOverride] - other result
        super().run_apart(inputs)
        return [self._recorded[source] for source in self._first_users]


def _is_frame(node: fx.Node, kinds: _Kinds) -> bool:
    """Whether a node opens or closes a mode: no tensor goes in, and nothing comes out."""
    return node in kinds.others and not any(n in kinds.tensors for n in node.all_input_nodes)


@contextlib.contextmanager
def _modes_kept() -> Iterator[None]:
    """Lets a graph that switches gradients off and fails halfway do no harm."""
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        yield
