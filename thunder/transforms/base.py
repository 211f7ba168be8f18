"""What a transform is: a named function from fx graph to fx graph, with a contract.

Anybody's fx pass works: `as_transform` wraps a plain function. `pipeline.py` runs transforms,
records provenance and names the culprit when one fails.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from typing import Any, final

from torch import fx

from thunder.errors import OptionError


class Stage(enum.Enum):
    """Which graph a transform works on."""

    CAPTURED = "captured"
    """The torch-level graph from Dynamo, before autograd: gradients follow from the result."""

    ATEN = "aten"
    """Each functional ATen graph from AOTAutograd: forward, backward and inference apart."""


class AbstractTransform(abc.ABC):
    """A pass over a graph.

    The graph must be legal before and after `apply`, not during. `apply` may change the graph
    module in place or return another one.
    """

    stage: Stage = Stage.ATEN

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name that provenance and error messages give."""

    @abc.abstractmethod
    def apply(self, graph_module: fx.GraphModule) -> tuple[fx.GraphModule, bool]:
        """Transforms the graph.

        Args:
            graph_module: The graph; each node's `meta["val"]` (ATEN) or `meta["example_value"]`
                (CAPTURED) holds its fake value.

        Returns:
            The graph module to go on with, and whether anything changed.
        """

    def as_written(self) -> Any:
        """Returns what the user gave as this transform; scripts print it."""
        return self

    def requires(self, graph_module: fx.GraphModule) -> None:  # noqa: B027 (optional)
        """Raises TransformError when `apply` cannot work on this graph. Default: no demand."""

    def ensures(self, graph_module: fx.GraphModule) -> None:  # noqa: B027 (optional)
        """Raises TransformError when the result breaks the promise. Default: no promise."""


@final
class FunctionTransform(AbstractTransform):
    """A plain function as a transform."""

    def __init__(
        self,
        function: Callable[[fx.GraphModule], Any],
        *,
        name: str | None = None,
        stage: Stage = Stage.ATEN,
    ) -> None:
        """Wraps `function`.

        Args:
            function: Takes the graph module; returns None (changed in place), a GraphModule, an
                fx `PassResult`, or a pair (graph module, changed).
            name: Name for provenance; the function's own name when None.
            stage: Which graph it works on.
        """
        self.function = function
        self.stage = stage
        self._is_own = name is not None or stage is not Stage.ATEN
        self._name = name or getattr(function, "__name__", type(function).__name__)

    @property
    def name(self) -> str:
        """The function's name, or the one given."""
        return self._name

    def as_written(self) -> Any:
        """Returns the plain function, unless it was given a stage or name of its own."""
        return self if self._is_own else self.function

    def apply(self, graph_module: fx.GraphModule) -> tuple[fx.GraphModule, bool]:
        """Calls the function and reads whichever of the usual results it returns."""
        before = _fingerprint(graph_module)
        result = self.function(graph_module)
        match result:
            case None:
                after = graph_module
            case fx.GraphModule():
                after = result
            case (fx.GraphModule() as after, bool() as changed):
                return after, changed
            case _ if hasattr(result, "graph_module") and hasattr(result, "modified"):
                return result.graph_module, bool(result.modified)
            case _:
                raise OptionError(
                    f"transform {self._name!r} returned {type(result).__name__}; return None, "
                    "a GraphModule, an fx PassResult, or (GraphModule, changed)"
                )
        return after, _fingerprint(after) != before


def as_transform(transform: AbstractTransform | Callable[..., Any]) -> AbstractTransform:
    """Returns `transform` itself, or a plain function wrapped as a transform.

    Raises:
        OptionError: It is neither a transform nor callable.
    """
    if isinstance(transform, AbstractTransform):
        return transform
    if callable(transform) and not isinstance(transform, type):
        return FunctionTransform(transform)
    raise OptionError(
        f"a transform is a function from fx.GraphModule to fx.GraphModule or an "
        f"AbstractTransform instance, not {transform!r}"
    )


def _fingerprint(graph_module: fx.GraphModule) -> list[tuple[Any, ...]]:
    return [
        (node.op, node.name, str(node.target), str(node.args), str(node.kwargs))
        for node in graph_module.graph.nodes
    ]
