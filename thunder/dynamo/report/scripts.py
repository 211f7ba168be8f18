"""Reported graphs as scripts: one that runs a graph, one that times it.

What such a script looks like is `thunder.repro`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from thunder.benchmark import AbstractCompileSpecification, AbstractTimer, Settings
from thunder.benchmark.specifications import unique_contestants
from thunder.dynamo.report.reported_graph import ReportedGraph
from thunder.dynamo.report.timed_script import TimedScript
from thunder.repro import (
    CompileSource,
    Expectation,
    ReproScript,
    ScriptKind,
    module_source,
    value_source,
)


def repro_script(
    reported: ReportedGraph,
    source: CompileSource,
    *,
    store_inputs: bool,
    expected: Expectation,
    notes: tuple[str, ...] = (),
) -> ReproScript:
    """Returns a script that runs a graph compiled in one way.

    Args:
        reported: The graph.
        source: The way.
        store_inputs: Whether the real inputs go to a file beside it.
        expected: How it should end.
        notes: Sentences for the reader.
    """
    return ReproScript(
        title=reported.title,
        module=module_source(reported.graph_module, store_values=store_inputs),
        inputs=reported.inputs,
        compilers=(source,),
        backward=reported.backward,
        store_inputs=store_inputs,
        expected=expected,
        split_reasons=reported.split_reasons,
        notes=notes,
    )


def benchmark_script(
    reported: ReportedGraph,
    specifications: Sequence[AbstractCompileSpecification],
    timer: AbstractTimer,
    settings: Settings,
    *,
    store_inputs: bool,
    notes: tuple[str, ...] = (),
) -> ReproScript:
    """Returns a script that checks and times a graph compiled in several ways.

    Args:
        reported: The graph.
        specifications: The ways, the baseline first.
        timer: How to time.
        settings: Confidence, threshold and time.
        store_inputs: Whether the real inputs go to a file beside it.
        notes: Sentences for the reader.
    """
    named = unique_contestants(specifications)
    return ReproScript(
        title=f"{reported.title}: {', '.join(named)}",
        module=module_source(reported.graph_module, store_values=store_inputs),
        inputs=reported.inputs,
        compilers=tuple(
            replace(specification.compile_source(), name=name)
            for name, specification in named.items()
        ),
        kind=ScriptKind.TIMING,
        runner=value_source(TimedScript(timer=timer, settings=settings)),
        backward=reported.backward,
        store_inputs=store_inputs,
        split_reasons=reported.split_reasons,
        notes=notes,
    )
