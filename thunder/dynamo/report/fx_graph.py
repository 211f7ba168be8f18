"""The report about one Dynamo graph, before anything compiled it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from thunder.dynamo.report.capture import CapturedGraph
from thunder.dynamo.report.reported_graph import ReportedGraph
from thunder.dynamo.report.torch_graph_report import AbstractTorchGraphReport
from thunder.trace.tensor_spec import describe

_SHOWN = 8


@final
@dataclass(frozen=True, kw_only=True)
class FXGraphReport(AbstractTorchGraphReport):
    """One Dynamo graph of a program.

    Attributes:
        captured: The graph and its inputs.
        options: Keywords of `thunderfx` for its scripts and runs.

    Example:
        >>> import torch
        >>> from thunder.dynamo.report import fx_report
        >>> report = fx_report(lambda x: x.exp().sum(), torch.zeros(2))
        >>> print(report.fx_graph_reports[0])
        graph0: 2 operators (Tensor.exp, Tensor.sum), 1 input
          l_x_: cpu f32[2]
    """

    captured: CapturedGraph
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def graph_index(self) -> int:
        """Its place among the graphs of the program."""
        return self.captured.index

    @property
    def reported(self) -> ReportedGraph:
        """The graph and what is known about it."""
        return ReportedGraph(
            name=f"graph{self.graph_index}",
            title=f"Dynamo graph {self.graph_index}",
            graph_module=self.captured.graph_module,
            inputs=self.captured.inputs,
        )

    @property
    def thunder_options(self) -> Mapping[str, Any]:
        """Keywords of `thunderfx` for its scripts and runs."""
        return self.options

    def with_options(self, options: Mapping[str, Any]) -> FXGraphReport:
        """Returns the same report with other options.

        Args:
            options: Keywords of `thunderfx`.
        """
        return FXGraphReport(captured=self.captured, options=dict(options))

    def __str__(self) -> str:
        """Returns its size, its operators with counts, and its inputs."""
        counts, total = self.operators, sum(self.operators.values())
        shown = [f"{name} x{n}" if n > 1 else name for name, n in counts.items()]
        rest = ["..."] if len(shown) > _SHOWN else []
        nodes = self.captured.graph_module.graph.find_nodes(op="placeholder")
        many = "inputs" if len(nodes) != 1 else "input"
        lines = [
            f"{self.name}: {total} operator{'' if total == 1 else 's'} "
            f"({', '.join(shown[:_SHOWN] + rest)}), {len(nodes)} {many}"
        ]
        if self.captured.recompile_reason:
            lines.append(f"  recompiled because {_one_line(self.captured.recompile_reason)}")
        lines += [f"  {node.name}: {describe(node.meta.get('example_value'))}" for node in nodes]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Returns name, operators and inputs, ready for JSON."""
        nodes = self.captured.graph_module.graph.find_nodes(op="placeholder")
        return {
            "name": self.name,
            "operators": self.operators,
            "inputs": {node.name: describe(node.meta.get("example_value")) for node in nodes},
            "recompile_reason": self.captured.recompile_reason,
        }


def _one_line(text: str) -> str:
    return " ".join(text.split())
