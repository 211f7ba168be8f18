"""What nodes of an execution trace call: a fusion region or a claimed operator.

Both are plain callables that know their names and what they stand for, so that the printer and
the reports need not guess from strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import fx

CLAIM = "thunder.claim"
"""Key of a node's `meta` under which its `Claim` is kept."""

ORIGIN = "thunder.origin"
"""Key of a node's `meta` for what it is in the user's program, in words: a string at an input, a
tuple with a string or None for each value at the output."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who runs a node.

    Attributes:
        executor: Name of the executor that has it.
        refusals: Those asked before and their reasons, in order.
    """

    executor: str
    refusals: tuple[tuple[str, str], ...] = ()


@final
@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class FusedRegion:
    """A partition of ATen nodes that one executor runs as one callable.

    Attributes:
        name: Such as `inductorFusion0`.
        executor: Name of the executor.
        graph_module: What the region computes, in ATen operators; returns a tuple.
        compiled: The executor's callable; takes the inputs positionally, returns the outputs.
        kernels: Returns the generated code, or None where the executor shows none.
        notes: Sentences for reports, such as a contest's verdict.
        whole_graph: Where the region is the whole graph, what runs that: takes one list, which it
            may clear, and returns all results, those that are inputs included. The executor may
            have chosen another memory layout for these, which the backward graph then relies on.
    """

    name: str
    executor: str
    graph_module: fx.GraphModule
    compiled: Callable[..., Sequence[Any]]
    kernels: Callable[[], str | None] = field(default=lambda: None)
    notes: tuple[str, ...] = ()
    whole_graph: Callable[[list[Any]], Sequence[Any]] | None = None

    @property
    def __name__(self) -> str:
        """The region's name, for fx's printing."""
        return self.name

    def __call__(self, *args: Any) -> Sequence[Any]:
        """Runs the compiled region."""
        return self.compiled(*args)


@final
@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ClaimedOperator:
    """One ATen operator that a user's executor runs by a callable of its own.

    Attributes:
        name: Name in traces, such as `mine_relu`.
        executor: Name of the executor.
        operator: The ATen operator it stands for.
        implementation: The callable.
    """

    name: str
    executor: str
    operator: torch._ops.OpOverload
    implementation: Callable[..., Any]

    @property
    def __name__(self) -> str:
        """The name in traces, for fx's printing."""
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the implementation."""
        return self.implementation(*args, **kwargs)
