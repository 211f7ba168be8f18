"""Checks and times recorded graphs: example inputs are made for one graph and freed after it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from thunder.benchmark import (
    AbstractCompileSpecification,
    AbstractTimer,
    BenchmarkResult,
    Compute,
    Inputs,
    ProgressHook,
    Settings,
    benchmark,
)
from thunder.benchmark.correctness import expect
from thunder.benchmark.progress import ignore_progress
from thunder.dynamo.report.example_inputs import make_example_inputs, surroundings_of
from thunder.repro import RecordedInputs
from thunder.trace.accuracy import AccuracyVerdict


def time_graph(
    graph_module: fx.GraphModule,
    inputs: RecordedInputs,
    specifications: Sequence[AbstractCompileSpecification],
    *,
    compute: Compute,
    timer: AbstractTimer | None = None,
    settings: Settings | None = None,
    progress: ProgressHook = ignore_progress,
) -> BenchmarkResult:
    """Compiles a graph in several ways, checks each against eager and times those that pass.

    Args:
        graph_module: The graph.
        inputs: What it is called with.
        specifications: The ways, the baseline first.
        compute: What is run.
        timer: How to time.
        settings: Confidence, threshold and time.
        progress: Called between rounds.
    """
    with surroundings_of(inputs):
        return benchmark(
            graph_module,
            lambda: make_example_inputs(inputs),
            specifications=specifications,
            compute=compute,
            timer=timer,
            settings=settings,
            progress=progress,
        )


def check_graph(
    graph_module: fx.GraphModule,
    inputs: RecordedInputs,
    specification: AbstractCompileSpecification,
    *,
    compute: Compute,
) -> AccuracyVerdict:
    """Compiles a graph and compares it with eager, judged by the distance from float64.

    Args:
        graph_module: The graph.
        inputs: What it is called with.
        specification: How to compile.
        compute: What is run.

    Raises:
        Exception: What compiling or running raises.
    """
    with surroundings_of(inputs), torch.random.fork_rng():
        values = Inputs.of(graph_module, make_example_inputs(inputs))
        expected = expect(graph_module, values, compute=compute)
        bound = expected.program()
        compiled = specification.compile(bound.function, inputs=bound.inputs.args)
        return expected.judge(*expected.run(bound.replaced(compiled)))
