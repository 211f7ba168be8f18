"""A graph of a report, with everything that a script about it says."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from thunder.benchmark import Compute
from thunder.repro import RecordedInputs


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportedGraph:
    """A graph with everything that a script about it says.

    Attributes:
        name: What it is called in file names, such as `graph0_thunder_0`.
        title: What it is, for people.
        graph_module: The graph.
        inputs: What it is called with.
        split_reasons: Why it was cut out where it was.
        differentiable: Whether a backward run makes sense. Fusions are ATen graphs, whose
            backward is another graph.
    """

    name: str
    title: str
    graph_module: fx.GraphModule
    inputs: RecordedInputs
    split_reasons: tuple[str, ...] = ()
    differentiable: bool = True

    @property
    def backward(self) -> bool:
        """Whether runs differentiate."""
        return self.differentiable and self.inputs.requires_grad

    @property
    def compute(self) -> Compute:
        """What runs compute."""
        return Compute.FORWARD_BACKWARD if self.backward else Compute.FORWARD
