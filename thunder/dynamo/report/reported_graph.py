"""A graph of a report, with everything that a script about it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from thunder.benchmark import Compute
from thunder.repro import RecordedInputs
from thunder.trace.copying import output_values


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
        """Whether runs differentiate: an input requires grad, and so does a result."""
        if not (self.differentiable and self.inputs.requires_grad):
            return False
        return any(map(_may_require_grad, output_values(self.graph_module.graph)))

    @property
    def compute(self) -> Compute:
        """What runs compute."""
        return Compute.FORWARD_BACKWARD if self.backward else Compute.FORWARD


def _may_require_grad(result: Any) -> bool:
    """Whether a result of a graph requires grad, as far as the graph knows."""
    if not isinstance(result, fx.Node):
        return False
    if "example_value" not in result.meta:
        return True
    values = tree_leaves(result.meta["example_value"])
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)
