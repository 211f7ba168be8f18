"""The report about one fusion region: a partition of an ATen graph that one executor runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from thunder.benchmark import AbstractCompileSpecification, TorchInductorSpecification
from thunder.dynamo.report.fusion_specification import (
    FusionExecutorSpecification,
    nvfuser_source,
)
from thunder.dynamo.report.graph_report import AbstractGraphReport, Folder
from thunder.dynamo.report.reported_graph import ReportedGraph
from thunder.errors import ReproducerError
from thunder.repro import RecordedInputs
from thunder.trace import FusedRegion, TraceCtx
from thunder.trace.trace import Direction

_NVFUSER, _INDUCTOR = "nvfuser", "inductor"


@final
@dataclass(frozen=True, kw_only=True)
class ThunderFusionReport(AbstractGraphReport):
    """One fusion region of a segment's forward or backward graph.

    Attributes:
        graph_index: The Dynamo graph's place in the program.
        segment_name: The segment's name, such as `graph0_thunder_0`.
        fused: The region, compiled.
        trace: The executed trace that it is in.
        inputs: What it is called with.
    """

    graph_index: int
    segment_name: str
    fused: FusedRegion
    trace: TraceCtx
    inputs: RecordedInputs

    @property
    def direction(self) -> str:
        """`"forward"` or `"backward"`; an inference graph is a forward graph."""
        return "backward" if self.trace.direction is Direction.BACKWARD else "forward"

    @property
    def executor(self) -> str:
        """Who runs it."""
        return self.fused.executor

    @property
    def folder_name(self) -> str:
        """The folder that its scripts go to in the tree of the whole-program helpers."""
        return "nvfusion" if self.executor == _NVFUSER else self.executor

    @property
    def reported(self) -> ReportedGraph:
        """The region and what is known about it."""
        return ReportedGraph(
            name=f"{self.segment_name}_{self.fused.name}_{self.direction}",
            title=f"Fusion {self.fused.name} of the {self.direction} graph of {self.segment_name}",
            graph_module=self.fused.graph_module,
            inputs=self.inputs,
            differentiable=False,
        )

    @property
    def default_specification(self) -> AbstractCompileSpecification:
        """The executor that has it."""
        if self.executor == _INDUCTOR:
            return TorchInductorSpecification()
        return FusionExecutorSpecification(executor=self.executor)

    def write_inductor_repro(
        self,
        folder: Folder,
        *,
        file_name: str | None = None,
        serialize_inputs: bool = False,
        verify: bool = False,
        notes: Sequence[str] = (),
    ) -> Path:
        """Writes a script that runs the region with Inductor, whoever has it.

        Args:
            folder: Where to; made when missing.
            file_name: Another name than `<region>_repro_inductor.py`.
            serialize_inputs: Save the real inputs beside it instead of drawing such inputs.
            verify: Run it once in a fresh process; its header then states the verdict.
            notes: Sentences for its reader.

        Raises:
            ReproducerError: It cannot be written.
        """
        return self.write_repro(
            folder,
            TorchInductorSpecification(),
            file_name=file_name or f"{self.name}_repro_inductor.py",
            serialize_inputs=serialize_inputs,
            verify=verify,
            notes=notes,
        )

    def write_nvfuser_repro(
        self,
        folder: Folder,
        *,
        file_name: str | None = None,
        serialize_inputs: bool = False,
        verify: bool = False,
        notes: Sequence[str] = (),
    ) -> Path:
        """Writes a script that defines and runs the region with nvFuser, without thunder.

        Args:
            folder: Where to; made when missing.
            file_name: Another name than `<region>_repro_nvfuser.py`.
            serialize_inputs: Save the real inputs beside it instead of drawing such inputs.
            verify: Run it once in a fresh process; its header then states the verdict.
            notes: Sentences for its reader.

        Raises:
            ReproducerError: nvFuser does not have the region, or the script cannot be written.
        """
        self._must_be_nvfusers()
        return self.write_source(
            folder,
            nvfuser_source(self.fused.graph_module, self.make_example_inputs()),
            file_name=file_name or f"{self.name}_repro_nvfuser.py",
            serialize_inputs=serialize_inputs,
            verify=verify,
            notes=notes,
        )

    def run_nvfuser_repro(self, *, check_consistency: bool = False) -> Any:
        """Runs the region once with nvFuser; see `run_repro`.

        Raises:
            ReproducerError: nvFuser does not have the region.
        """
        self._must_be_nvfusers()
        return self.run_repro(check_consistency=check_consistency)

    def _must_be_nvfusers(self) -> None:
        if self.executor != _NVFUSER:
            raise ReproducerError(
                f"{self.name} is no nvFuser region: {self.executor} has it. Use the inductor "
                "methods, or compile with executors=['nvfuser', ...] on CUDA"
            )

    def __str__(self) -> str:
        """Returns executor, operators and what else is known."""
        counts = [f"{name} x{n}" if n > 1 else name for name, n in self.operators.items()]
        lines = [f"{self.name} ({self.executor}): {', '.join(counts)}"]
        return "\n".join([*lines, *(f"  {note}" for note in self.fused.notes)])

    def to_json(self) -> dict[str, Any]:
        """Returns name, executor and operators, ready for JSON."""
        return {
            "name": self.name,
            "executor": self.executor,
            "direction": self.direction,
            "operators": self.operators,
            "notes": list(self.fused.notes),
        }
