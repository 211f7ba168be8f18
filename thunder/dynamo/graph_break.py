"""What `thunder.jit` says when Dynamo cannot capture a function as one graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from traceback import FrameSummary
from typing import Any

from torch._dynamo.exc import BackendCompilerFailed, Unsupported

from thunder.errors import GraphBreakError, end_with_reproducer
from thunder.trace.source_lines import relative_path


def whole_function(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a callable compiled with `fullgraph=True` so that its graph breaks explain themselves.

    Args:
        compiled: What torch.compile returned.

    Returns:
        A callable that raises GraphBreakError where `compiled` raises torch's `Unsupported`. What
        else it raises ends with the path of the reproducer, if there is one.
    """

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except Unsupported as error:
            raise GraphBreakError(_explain(error)) from error
        except BackendCompilerFailed as error:
            end_with_reproducer(error)
            raise

    return call


def _explain(error: Unsupported) -> str:
    """The place is on a line of its own: a script that fails the same way has another."""
    reason = str(error.msg or error).strip().splitlines()[0].rstrip(".")
    return (
        f"thunder.jit takes whole functions, and this one breaks the graph: {reason}{_where(error)}"
        "\nUse thunderfx, which compiles the parts around a graph break, or take the line out of "
        "the function"
    )


def _where(error: Unsupported) -> str:
    frames: list[FrameSummary] = list(getattr(error, "real_stack", None) or ())
    if not frames:
        return ""
    frame = frames[-1]
    code = f" ({frame.line.strip()})" if frame.line else ""
    return f"\nfrom {relative_path(frame.filename)}:{frame.lineno}{code}"
