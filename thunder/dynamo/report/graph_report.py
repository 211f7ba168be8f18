"""What every level of a report can do with its graph: write it, run it, check it, time it.

A report names its graph and its defaults; how scripts look is `thunder.repro`'s business, and how
numbers come about `thunder.benchmark`'s.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from thunder.benchmark import (
    AbstractCompileSpecification,
    AbstractTimer,
    BenchmarkResult,
    Compute,
    ProgressHook,
    Settings,
    TorchEagerSpecification,
    WallTime,
)
from thunder.benchmark.progress import ignore_progress
from thunder.dynamo.report.benchmarking import check_graph, time_graph
from thunder.dynamo.report.example_inputs import make_example_inputs, surroundings_of
from thunder.dynamo.report.operator_counts import count_operators
from thunder.dynamo.report.reported_graph import ReportedGraph
from thunder.dynamo.report.scripts import benchmark_script, repro_script
from thunder.errors import ReproducerError
from thunder.repro import CompileSource, Expectation, Passes
from thunder.trace.accuracy import AccuracyVerdict

Folder = str | os.PathLike[str]


class AbstractGraphReport(abc.ABC):
    """A report about one graph, at any level."""

    @property
    @abc.abstractmethod
    def reported(self) -> ReportedGraph:
        """The graph and what is known about it."""

    @property
    @abc.abstractmethod
    def default_specification(self) -> AbstractCompileSpecification:
        """How it is compiled where nobody says how."""

    @property
    def name(self) -> str:
        """What it is called in file names."""
        return self.reported.name

    @property
    def operators(self) -> dict[str, int]:
        """The operators that it calls, with the number of calls."""
        return count_operators(self.reported.graph_module)

    def make_example_inputs(self) -> list[Any]:
        """Makes inputs like those of the program's run.

        Returns:
            One value for each placeholder. Parameters share memory with the program's own while
            these live; everything else is new each time.
        """
        return make_example_inputs(self.reported.inputs)

    def write_repro(
        self,
        folder: Folder,
        compile_fn: AbstractCompileSpecification,
        *,
        file_name: str | None = None,
        serialize_inputs: bool = False,
        verify: bool = False,
        expected: Expectation | None = None,
        notes: Sequence[str] = (),
    ) -> Path:
        """Writes a script that runs the graph, compiled in one way.

        Args:
            folder: Where to; made when missing.
            compile_fn: How to compile.
            file_name: The script's name; by default made of the graph's and the way's.
            serialize_inputs: Save the real inputs beside it instead of drawing such inputs.
            verify: Run it once in a fresh process; its header then states the verdict.
            expected: How it should end; it runs to the end by default.
            notes: Sentences for its reader.

        Returns:
            The script's path.

        Raises:
            ReproducerError: It cannot be written.
        """
        return self.write_source(
            folder,
            compile_fn.compile_source(),
            file_name=file_name,
            serialize_inputs=serialize_inputs,
            verify=verify,
            expected=expected,
            notes=notes,
        )

    def write_source(
        self,
        folder: Folder,
        source: CompileSource,
        *,
        file_name: str | None = None,
        serialize_inputs: bool = False,
        verify: bool = False,
        expected: Expectation | None = None,
        notes: Sequence[str] = (),
    ) -> Path:
        """Writes a script as `write_repro` does, for a way to compile that is given as source."""
        script = repro_script(
            self.reported,
            source,
            store_inputs=serialize_inputs,
            expected=expected or Passes(),
            notes=tuple(notes),
        )
        path = Path(folder) / (file_name or f"{self.name}_repro_{source.identifier}.py")
        return script.write(path, verify=verify)

    def run_repro(
        self,
        compile_fn: AbstractCompileSpecification | None = None,
        *,
        check_consistency: bool = False,
    ) -> Any:
        """Runs the graph once in this process, compiled, forward and where it can backward.

        Args:
            compile_fn: How to compile.
            check_consistency: Compare with eager, judged by the distance from float64.

        Returns:
            What the compiled graph returned.

        Raises:
            ReproducerError: The results are wrong, when they are checked.
        """
        specification = compile_fn or self.default_specification
        if check_consistency:
            verdict = self.check(specification)
            if not verdict.accurate:
                raise ReproducerError(f"{self.name}, compiled by {specification.name}: {verdict}")
        inputs = self.make_example_inputs()
        with surroundings_of(self.reported.inputs):
            compiled = specification.compile(self.reported.graph_module, inputs=inputs)
            outputs = compiled(*inputs)
        if self.reported.backward:
            _differentiate(outputs)
        return outputs

    def check(self, compile_fn: AbstractCompileSpecification | None = None) -> AccuracyVerdict:
        """Compares the compiled graph with eager, judged by the distance from float64.

        Args:
            compile_fn: How to compile.
        """
        return check_graph(
            self.reported.graph_module,
            self.reported.inputs,
            compile_fn or self.default_specification,
            compute=self.reported.compute,
        )

    def write_benchmark(
        self,
        folder: Folder,
        compile_fn: AbstractCompileSpecification | None = None,
        time_fn: AbstractTimer | None = None,
        *,
        against: Sequence[AbstractCompileSpecification] = (),
        settings: Settings | None = None,
        file_name: str | None = None,
        serialize_inputs: bool = False,
        notes: Sequence[str] = (),
    ) -> Path:
        """Writes a script that checks and times the graph, and prints a result for programs.

        Args:
            folder: Where to; made when missing.
            compile_fn: How to compile.
            time_fn: How to time; wall time by default.
            against: What to compare it with; eager when empty.
            settings: Confidence, threshold and time.
            file_name: The script's name; by default made of the graph's and the way's.
            serialize_inputs: Save the real inputs beside it instead of drawing such inputs.
            notes: Sentences for its reader.

        Returns:
            The script's path.

        Raises:
            ReproducerError: It cannot be written.
        """
        specification = compile_fn or self.default_specification
        script = benchmark_script(
            self.reported,
            [*(against or _EAGER), specification],
            time_fn or WallTime(),
            settings or Settings(),
            store_inputs=serialize_inputs,
            notes=tuple(notes),
        )
        stem = f"{self.name}_benchmark_{specification.compile_source().identifier}"
        return script.write(Path(folder) / (file_name or f"{stem}.py"))

    def run_benchmark(
        self,
        compile_fn: AbstractCompileSpecification | None = None,
        time_fn: AbstractTimer | None = None,
        *,
        against: Sequence[AbstractCompileSpecification] = (),
        compute: Compute | None = None,
        settings: Settings | None = None,
        progress: ProgressHook = ignore_progress,
    ) -> BenchmarkResult:
        """Checks and times the graph in this process, in interleaved rounds.

        Args:
            compile_fn: How to compile.
            time_fn: How to time; wall time by default.
            against: What to compare it with, the baseline first; eager when empty.
            compute: What to run; forward and backward where that makes sense.
            settings: Confidence, threshold and time.
            progress: Called between rounds.

        Returns:
            What became of each way, and how they compare. Failures are results, too.
        """
        return time_graph(
            self.reported.graph_module,
            self.reported.inputs,
            [*(against or _EAGER), compile_fn or self.default_specification],
            compute=compute or self.reported.compute,
            timer=time_fn or WallTime(),
            settings=settings or Settings(),
            progress=progress,
        )


_EAGER = (TorchEagerSpecification(),)


def _differentiate(outputs: Any) -> None:
    leaves = tree_leaves(outputs)
    roots = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(x) for x in roots])
