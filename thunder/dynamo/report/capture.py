"""Captures a program's graphs with Dynamo, once, while it runs in eager mode.

What is kept of each graph is a copy and a record of its inputs. No input is kept alive beyond
small copies, so that a model is not held twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import fx

from thunder.dynamo.compilation import recompile_reason
from thunder.dynamo.isolation import with_own_code
from thunder.dynamo.options import divide_options
from thunder.dynamo.report.break_reason import BreakReason, recorded_breaks
from thunder.errors import OptionError
from thunder.repro import RecordedInputs, record_inputs
from thunder.trace.copying import copy_graph_module


@dataclass(frozen=True, kw_only=True, slots=True)
class CapturedGraph:
    """One Dynamo graph.

    Attributes:
        index: Its place among the graphs of the program.
        graph_module: The graph; placeholders have example values.
        inputs: What it was called with.
        recompile_reason: The guard that failed, when it was compiled because of that.
    """

    index: int
    graph_module: fx.GraphModule
    inputs: RecordedInputs
    recompile_reason: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Capture:
    """What one run of a program showed.

    Attributes:
        graphs: The graphs, in order.
        break_reasons: Why there is more than one.
    """

    graphs: tuple[CapturedGraph, ...]
    break_reasons: tuple[BreakReason, ...]


@final
@dataclass(slots=True)
class CapturingBackend:
    """A torch.compile backend that keeps the graphs and runs them as they are.

    Attributes:
        graphs: The graphs so far.
    """

    graphs: list[CapturedGraph] = field(default_factory=list)

    def __call__(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        """Keeps a graph."""
        graph = copy_graph_module(graph_module)
        self.graphs.append(
            CapturedGraph(
                index=len(self.graphs),
                graph_module=graph,
                inputs=record_inputs(example_inputs, graph=graph.graph),
                recompile_reason=recompile_reason(),
            )
        )
        return graph_module.forward


def capture(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    compile_options: Mapping[str, Any],
) -> Capture:
    """Runs a callable once and keeps the graphs that Dynamo makes of it.

    Args:
        fn: A function, method, callable or module, not compiled yet.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        compile_options: Keywords of torch.compile.

    Raises:
        OptionError: A compile option is unknown or is not torch.compile's.
    """
    divided = divide_options(compile_options)
    strangers = [name for name in divided.compiler if name not in divided.torch_compile]
    if strangers:
        raise OptionError(
            f"compile_options= takes keywords of torch.compile, and {', '.join(strangers)} belong "
            "to ThunderCompiler: give them to analyze_thunder_splits(report, ...)"
        )
    # The graphs stay as they are, so Inductor's settings have nobody to go to.
    torch_only = {k: v for k, v in divided.torch_compile.items() if k not in ("mode", "options")}
    backend = CapturingBackend()
    keywords = type(divided)(torch_compile=torch_only).make_torch_options()
    target = fn if "isolate_recompiles" in keywords else with_own_code(fn)
    with recorded_breaks() as log:
        torch.compile(target, backend=backend, **keywords)(*args, **kwargs)
    return Capture(graphs=tuple(backend.graphs), break_reasons=tuple(log.reasons))
