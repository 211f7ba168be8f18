"""What an executor is: something that claims ATen nodes of a region and runs them.

Two kinds exist. An operator executor replaces single nodes by a callable of its own; a fusion
executor compiles a whole partition of nodes into one callable. How nodes are shared out between
the executors of a list is `partition.py`'s job; this module only states the contracts.
"""

from __future__ import annotations

import abc
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import fx
from torch.fx.node import map_arg

from thunder.errors import OptionError

OperatorKey = torch._ops.OpOverload | torch._ops.OpOverloadPacket | str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an executor does not take a node, as one human sentence."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionContext:
    """What a fusion executor may know about the region that it compiles.

    Attributes:
        name: The region's name, such as `inductorFusion0`.
        direction: `"forward"`, `"backward"` or `"inference"`.
        whole_graph: True when the region is all of the ATen graph, inputs and outputs included.
        aot_arguments: The keyword arguments that AOTAutograd's caller handed over with the whole
            graph. Only meaningful when `whole_graph` is true.
    """

    name: str
    direction: str
    whole_graph: bool
    aot_arguments: Mapping[str, Any] = field(default_factory=dict)


class AbstractExecutor(abc.ABC):
    """Base of the two kinds of executor."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name by which users ask for it, and the stem of its fusions' names."""

    @property
    def version(self) -> str | None:
        """What changes whenever its code may; None when nobody can say.

        What a contest finds out is kept for later processes only where this says for how long.
        """
        return None

    @abc.abstractmethod
    def check(self, node: fx.Node) -> Refusal | None:
        """Decides whether this executor can run `node` (a `call_function` of an ATen graph).

        Args:
            node: The node; `node.meta["val"]` holds its fake value.

        Returns:
            None when it can, otherwise the reason why not.
        """

    def undecomposed_ops(self) -> tuple[torch._ops.OpOverload, ...]:
        """Returns the operators that must reach this executor as they are, not decomposed."""
        return ()


class AbstractFusionExecutor(AbstractExecutor):
    """An executor that compiles partitions of nodes.

    Attributes:
        max_nodes: The most nodes of a region that is not the whole graph.
        max_inputs: The most inputs of such a region.
    """

    max_nodes: int = sys.maxsize
    max_inputs: int = sys.maxsize

    @abc.abstractmethod
    def compile(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], context: RegionContext
    ) -> Callable[..., Sequence[Any]]:
        """Compiles one region.

        Args:
            graph_module: The region's ATen graph. It returns a tuple. The executor owns it.
            example_inputs: One fake tensor, SymInt or number for each placeholder.
            context: The region's name, direction and options.

        Returns:
            A callable that takes the placeholders' values positionally and returns the outputs
            as a sequence, or, when its `_boxed_call` attribute is true, takes one list that it
            may clear.
        """

    @property
    def fusion_stem(self) -> str:
        """What its fusions' names start with: `inductor` gives `inductorFusion0`."""
        return self.name

    def worthwhile(self, nodes: Sequence[fx.Node]) -> Refusal | None:
        """Decides whether a partition is worth compiling; by default all but views are.

        Args:
            nodes: The partition's nodes, in order, each of which `check` accepted.

        Returns:
            None when it is, otherwise the reason why not; ATen then runs the nodes.
        """
        if all(is_view(node) for node in nodes):
            return Refusal("nothing but views")
        return None

    def generated_code(self, compiled: Callable[..., Sequence[Any]]) -> str | None:
        """Returns the kernels behind a callable that `compile` returned, or None."""
        del compiled
        return None


@final
class OperatorExecutor(AbstractExecutor):
    """Runs single ATen operators by callables of the user's.

    Example:
        >>> import torch
        >>> from thunder.executors import OperatorExecutor
        >>> def my_relu(x):
        ...     return x.clamp(min=0)
        >>> ex = OperatorExecutor("mine", {torch.ops.aten.relu: my_relu})
        >>> ex.name
        'mine'
    """

    def __init__(
        self,
        name: str,
        operators: Mapping[OperatorKey, Callable[..., Any]],
        *,
        checkers: Mapping[OperatorKey, Callable[..., bool]] | None = None,
    ) -> None:
        """Makes the executor.

        Args:
            name: A name that no other executor in use has.
            operators: ATen operator (overload, packet, or a name such as `"aten.relu"`) to the
                callable that takes the operator's arguments and returns its result. The callable
                must not change its arguments unless the operator does.
            checkers: For some operators, a callable with the operator's arguments (tensors are
                fake) that returns whether the executor takes this call.

        Raises:
            OptionError: A key is no ATen operator, or is one that is always decomposed before
                executors see the graph.
        """
        self._name = name
        self._given = {"operators": dict(operators), "checkers": dict(checkers or {})}
        self._operators = _by_overload(operators)
        self._checkers = _by_overload(checkers or {})

    @property
    def name(self) -> str:
        """The name given at construction."""
        return self._name

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns what it was made with, by which scripts print it."""
        given = {key: table for key, table in self._given.items() if table}
        return {"name": self._name, **given}

    def implementation(self, node: fx.Node) -> Callable[..., Any]:
        """Returns the callable that runs `node`, which `check` accepted."""
        return self._operators[node.target]

    def check(self, node: fx.Node) -> Refusal | None:
        """Accepts the nodes whose operator is in the table and whose checker says yes."""
        if node.target not in self._operators:
            return Refusal("not in its table")
        checker = self._checkers.get(node.target)
        if checker is None:
            return None
        values = map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        accepted = checker(*values[0], **values[1])
        return None if accepted else Refusal("its checker said no")

    def undecomposed_ops(self) -> tuple[torch._ops.OpOverload, ...]:
        """Returns every operator of the table."""
        return tuple(self._operators)


def is_view(node: fx.Node) -> bool:
    """Whether a node only makes a view of its input, or takes a tuple apart."""
    target = node.target
    if target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return any(result.alias_info is not None for result in target._schema.returns)


def _by_overload(table: Mapping[OperatorKey, Any]) -> dict[Any, Any]:
    return {overload: value for key, value in table.items() for overload in _overloads(key)}


def _overloads(key: OperatorKey) -> list[torch._ops.OpOverload]:
    if isinstance(key, str):
        found: Any = torch.ops
        for part in key.removeprefix("torch.ops.").split("."):
            found = getattr(found, part, None)
        if not isinstance(found, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            raise OptionError(
                f"{key!r} names no operator; write it as in 'aten.relu' or 'aten.relu.default'"
            )
        key = found
    if isinstance(key, torch._ops.OpOverloadPacket):
        found = [getattr(key, name) for name in key.overloads()]
    elif isinstance(key, torch._ops.OpOverload):
        found = [key]
    else:
        raise OptionError(
            f"{key!r} is no ATen operator; use for instance torch.ops.aten.relu. "
            "A torch function or method reaches executors as the ATen operators behind it: "
            "thunder.last_traces(f)[-1] shows them"
        )
    # Packets list overloads of TorchScript's that the dispatcher does not know.
    overloads = [
        overload
        for overload in found
        if torch._C._dispatch_has_kernel(overload.name()) and not _writes_to_out(overload)
    ]
    if all(_is_always_decomposed(overload) for overload in overloads):
        raise OptionError(
            f"{key} is always decomposed before executors see the graph; register the "
            "operators it is made of: thunder.last_traces(f)[-1] shows them"
        )
    return overloads


def _writes_to_out(overload: torch._ops.OpOverload) -> bool:
    return any(argument.is_out for argument in overload._schema.arguments)


def _is_always_decomposed(overload: torch._ops.OpOverload) -> bool:
    return overload.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
