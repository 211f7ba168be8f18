"""The report about a whole program: its graphs, and why there is more than one."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from thunder.dynamo.report.break_reason import BreakReason
from thunder.dynamo.report.capture import capture
from thunder.dynamo.report.fx_graph import FXGraphReport
from thunder.dynamo.report.graph_report import Folder
from thunder.dynamo.report.html import save_page
from thunder.dynamo.report.page_builder import PageBuilder
from thunder.dynamo.report.program_arguments import refuse_shared_names
from thunder.dynamo.report.replay import save_replay
from thunder.dynamo.report.segment import analyze_thunder_splits
from thunder.environment import environment_report
from thunder.errors import OptionError


@final
@dataclass(frozen=True, kw_only=True)
class FXReport:
    """What Dynamo makes of a program.

    Attributes:
        program: The program's name.
        fx_graph_reports: One report for each graph, in the order of capture.
        dynamo_break_reasons: Why Dynamo broke the program into graphs, the same break once.
    """

    program: str
    fx_graph_reports: list[FXGraphReport]
    dynamo_break_reasons: list[BreakReason]

    @property
    def operators(self) -> dict[str, int]:
        """The operators of all graphs with the number of calls, the most frequent first."""
        total: Counter[str] = Counter()
        for report in self.fx_graph_reports:
            total.update(report.operators)
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    def __str__(self) -> str:
        """Returns sizes, graphs and break reasons, readable."""
        graphs, breaks = self.fx_graph_reports, self.dynamo_break_reasons
        total = sum(self.operators.values())
        lines = [
            f"{self.program}: {_count(len(graphs), 'graph')}, {_count(total, 'operator')}, "
            f"{_count(sum(each.count for each in breaks), 'graph break')}"
        ]
        for reason in breaks:
            lines += ["", f"break: {reason}"]
        for report in graphs:
            lines += ["", str(report)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Returns everything but the graphs themselves, ready for JSON."""
        return {
            "program": self.program,
            "breaks": [reason.to_json() for reason in self.dynamo_break_reasons],
            "graphs": [report.to_json() for report in self.fx_graph_reports],
        }

    def save_replay(
        self,
        folder: Folder,
        *,
        thunder_options: Mapping[str, Any] | None = None,
        fusions: bool = True,
        serialize_inputs: bool = False,
    ) -> Path:
        """Writes what is needed to run, check and time every region without the model.

        Args:
            folder: Where to; made when missing. `thunder replay FOLDER` runs it.
            thunder_options: Keywords of `ThunderCompiler`.
            fusions: Whether to go down to fusions.
            serialize_inputs: Keep the real inputs, instead of drawing such inputs.

        Returns:
            The manifest's path.

        Raises:
            ReproducerError: A file cannot be written.
            Exception: What compiling a graph raises.
        """
        return save_replay(
            self,
            folder,
            thunder_options=thunder_options,
            fusions=fusions,
            serialize_inputs=serialize_inputs,
        )

    def save_html(
        self,
        path: Folder,
        *,
        thunder_options: Mapping[str, Any] | None = None,
        compile_graphs: bool = True,
    ) -> Path:
        """Writes a page for browsers: graphs, breaks, segments, splits, fusions and kernels.

        Lines of the program, of traces and of generated code are linked with each other. The page
        is one file and loads nothing. Needs the extra `report`.

        Args:
            path: The file; it is replaced at once or not at all.
            thunder_options: Keywords of `ThunderCompiler`.
            compile_graphs: Whether to compile the graphs with thunder. Without that the page ends
                at graphs and breaks. A graph that cannot be compiled is shown with the reason.

        Returns:
            The path.

        Raises:
            OptionError: An option is unknown or has a value that is not accepted.
            UnsupportedEnvironmentError: Jinja2 or Pygments is not installed.
            ReproducerError: The file cannot be written.
        """
        builder = PageBuilder(self.program, self.dynamo_break_reasons)
        for graph in self.fx_graph_reports:
            if not compile_graphs:
                builder.add_graph(graph)
                continue
            try:
                builder.add(analyze_thunder_splits(graph, **(thunder_options or {})))
            except OptionError:
                raise
            except Exception as error:  # noqa: BLE001 - such a graph is a result
                builder.add_graph(graph, error)
        return save_page(builder.page(environment_report().as_dict()), path)


def fx_report(
    fn: Callable[..., Any],
    *args: Any,
    compile_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> FXReport:
    """Runs a program once and reports the graphs that Dynamo makes of it.

    The graphs run as they are, so this needs neither thunder's compiler nor Inductor.

    Args:
        fn: A function, method, callable or module.
        args: Its positional arguments.
        compile_options: Keywords of torch.compile, such as `{"dynamic": True}`.
        kwargs: Its keyword arguments.

    Returns:
        The report. It keeps the graphs and small copies of their inputs, not the model.

    Raises:
        OptionError: A compile option is unknown or is not torch.compile's, or `fn` has a parameter
            `compile_options`: give that to `fn` with `functools.partial`.
        Exception: What `fn` raises.

    Example:
        >>> import torch
        >>> def foo(x):
        ...     x = x.exp()
        ...     torch._dynamo.graph_break()
        ...     return x.sum()
        >>> report = fx_report(foo, torch.zeros(2))
        >>> len(report.fx_graph_reports), report.operators
        (2, {'Tensor.exp': 1, 'Tensor.sum': 1})
        >>> report.dynamo_break_reasons[0].source_line.code
        'torch._dynamo.graph_break()'
    """
    refuse_shared_names(fx_report, fn, args)
    captured = capture(fn, args, kwargs, compile_options or {})
    return FXReport(
        program=_program_name(fn),
        fx_graph_reports=[FXGraphReport(captured=graph) for graph in captured.graphs],
        dynamo_break_reasons=list(captured.break_reasons),
    )


def _program_name(fn: Callable[..., Any]) -> str:
    fn = fn.func if isinstance(fn, functools.partial) else fn
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
