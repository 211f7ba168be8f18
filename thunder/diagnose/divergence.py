"""`find_divergence`: the first operator whose result is worse than rounding explains."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from thunder.diagnose.examination import Compile, run_both_ways
from thunder.diagnose.localizing import (
    Place,
    locate_change,
    locate_in_capture,
    locate_in_execution,
)
from thunder.diagnose.recording import RecordedGraph, RecordingBackend, record
from thunder.diagnose.scripts import write_minimal_script
from thunder.dynamo.graph_module import CompiledGraphModule
from thunder.dynamo.jit import jit
from thunder.dynamo.lookup import find_compiler
from thunder.dynamo.options import divide_options
from thunder.dynamo.reproducers import user_options
from thunder.pipeline.check_trace import StageCheck, check_stages, is_plain
from thunder.pipeline.judged_run import judge_run
from thunder.pipeline.options import CompileOptions
from thunder.repro import Differs, Verdict, jit_source
from thunder.trace.accuracy import AccuracyVerdict, Distance
from thunder.trace.source_lines import SourceLine
from thunder.trace.trace import Direction


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """The first place where a compiled program is further from float64 than eager explains.

    Attributes:
        graph_index: Which Dynamo graph, from 0.
        part: Its partition, such as `thunder_0`; empty when it was not split.
        direction: Which of its graphs; CAPTURED for the graph before AOTAutograd.
        pass_name: The pass whose stage is wrong, such as `fusion` or a transform's name.
        call: Which call of the graph showed it, from 0.
        operator: The operator, such as `aten.relu.default`; empty when it is not known.
        node: The node's name in the trace; empty as above.
        line: The user's line; None when none was recorded.
        region: The fusion region, if it is in one.
        executor: The executor that ran it; None when a transform is wrong.
        verdict: The judgement, with both distances.
        script: A script that shows it; None when none was asked for or can be written.
        script_verdict: What running the script in a fresh process showed.
    """

    graph_index: int
    direction: Direction
    pass_name: str
    verdict: AccuracyVerdict
    part: str = ""
    call: int = 0
    operator: str = ""
    node: str = ""
    line: SourceLine | None = None
    region: str | None = None
    executor: str | None = None
    script: Path | None = None
    script_verdict: Verdict | None = None

    @property
    def eager_distance(self) -> Distance | None:
        """Eager's distance from float64, of the first wrong result."""
        return self.verdict.wrong[0].eager

    @property
    def compiled_distance(self) -> Distance | None:
        """The compiled result's distance from float64, of the first wrong result."""
        return self.verdict.wrong[0].compiled

    def __str__(self) -> str:
        """A summary for a terminal."""
        what = self.operator or "the graph as a whole"
        of = [f"region {self.region}"] if self.region else []
        of += [f"executor {self.executor!r}"] if self.executor else []
        lines = [
            f"{what} gives a wrong result in the {self.direction.value} graph "
            f"of {f'{self.part} of ' if self.part else ''}Dynamo graph {self.graph_index}"
            f"{f', in call {self.call + 1} of it' if self.call else ''}",
            f"  from: {self.line or 'no line of yours was recorded'}",
            f"  by: {', '.join([f'pass {self.pass_name!r}', *of])}",
            *(f"  {output}" for output in self.verdict.wrong[:3]),
        ]
        if len(self.verdict.wrong) > 3:
            lines.append(f"  and {len(self.verdict.wrong) - 3} more results")
        if self.script is not None:
            lines.append(f"  script: {self.script} ({self.script_verdict})")
        return "\n".join(lines)


def find_divergence(
    f: Callable[..., Any],
    *args: Any,
    compile_options: Mapping[str, Any] | None = None,
    script_folder: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> Divergence | None:
    """Compiles and runs a function, and names the first operator that gives a wrong result.

    Graph by graph, forward and backward, each stage is run on the inputs that eager gives it and
    judged by its distance from float64, as `thunder.trace.accuracy` says: rounding, other orders
    of summation and dropout (eager's random numbers are used) are no divergence.

    Args:
        f: A function or module, compiled or not.
        args: Its arguments; copies are used.
        compile_options: Keywords of `thunderfx`; by default those that `f` was compiled with.
        script_folder: Where to write a script that shows the divergence; by default none is
            written.
        kwargs: Its keyword arguments.

    Returns:
        The first divergence: captured graph, forward, then backward; None when there is none.
        A graph that is called several times is judged on its first eight calls. Graphs that are
        split are judged as a whole, then partition by partition, those of Inductor too.

    Raises:
        Exception: Whatever compiling or running `f` raised.

    Example:
        >>> import torch
        >>> from thunder.executors import OperatorExecutor
        >>> wrong = OperatorExecutor("wrong", {torch.ops.aten.sin: lambda x: x.sin() * 1.01})
        >>> found = find_divergence(
        ...     lambda x: x.exp().sin(),
        ...     torch.ones(4),
        ...     compile_options={"executors": [wrong, "aten"]},
        ... )
        >>> found.operator, found.executor, found.direction.value
        ('aten.sin.default', 'wrong', 'inference')
    """
    options, torch_options = _options(f, compile_options)
    backend = RecordingBackend(options)
    compiled = torch.compile(_uncompiled(f), **{**torch_options, "backend": backend})
    record(compiled, (args, kwargs))
    backend.is_recording = False
    for graph in backend.graphs:
        search = _Search(graph)
        found = search.look()
        if found is not None:
            divergence, place = found
            return search.with_script(divergence, place, script_folder)
    return None


_Found = tuple[Divergence, Place | None]


class _Search:
    """Judges a recorded graph."""

    def __init__(self, graph: RecordedGraph) -> None:
        self._graph = graph
        # Transforms and splits have had their turn: pieces are compiled as they are.
        options = replace(graph.options, transforms=(), exclude_ops=())
        self._piece_options = {**user_options(options), "on_failure": "raise"}

    def look(self) -> _Found | None:
        """Returns the first divergence of the graph."""
        for number, inputs in enumerate(self._graph.inputs):
            if len(self._graph.traces) > 1:
                check = check_stages(self._graph.traces, inputs)
                if (found := self._of_stages(number, check, inputs)) is not None:
                    return found
            if (found := self._check_made(number, inputs)) is not None:
                return found
        for call in self._graph.calls:
            for number, inputs in enumerate(call.inputs):
                check = check_stages(call.traces, inputs)
                if (found := self._of_stages(number, check, inputs)) is not None:
                    return found
        return None

    def with_script(
        self,
        divergence: Divergence,
        place: Place | None,
        folder: str | os.PathLike[str] | None,
    ) -> Divergence:
        if folder is None or place is None or place.graph_module is None:
            return divergence
        part = f"_{divergence.part}" if divergence.part else ""
        path, verdict = write_minimal_script(
            title=f"{divergence.operator}, further from float64 than eager explains",
            graph_module=place.graph_module,
            inputs=place.inputs,
            source=jit_source(self._piece_options),
            expected=Differs(),
            folder=Path(folder),
            stem=f"graph{divergence.graph_index}{part}_{divergence.direction.value}_divergence",
        )
        return replace(divergence, script=path, script_verdict=verdict)

    def _check_made(self, number: int, inputs: list[Any]) -> _Found | None:
        """Judges what was made of a graph before its ATen graphs: by a split, by AOTAutograd."""
        captured = self._graph.traces[-1].graph_module
        verdict = judge_run(
            lambda values: run_both_ways(captured, values),
            lambda values: run_both_ways(self._graph.run, values),
            inputs,
        )
        if verdict.accurate:
            return None
        only_gradients = all("gradients" in output.name for output in verdict.wrong)
        divergence = Divergence(
            graph_index=self._graph.index,
            part=self._graph.part,
            call=number,
            direction=Direction.BACKWARD if only_gradients else Direction.FORWARD,
            pass_name=self._graph.pass_name,
            verdict=verdict,
        )
        if not self._graph.calls:  # of a split; a piece of the graph would not be split
            return divergence, None
        return _placed(divergence, locate_in_capture(captured, inputs, self._run_made))

    def _run_made(self, piece: fx.GraphModule) -> Callable[..., Any]:
        """Makes of a piece what is made of a graph before its ATen graphs are compiled."""
        options = replace(self._graph.options, transforms=(), exclude_ops=())
        backend = RecordingBackend(options)
        backend.is_recording = False
        return CompiledGraphModule(piece, backend)

    def _of_stages(self, number: int, check: StageCheck, inputs: list[Any]) -> _Found | None:
        if check.culprit is None or check.before is None or check.verdict is None:
            return None
        if is_plain(check.culprit):
            place = locate_change(check.before, check.culprit, inputs)
        else:
            place = locate_in_execution(check.culprit, inputs, self._compile_piece())
        divergence = Divergence(
            graph_index=self._graph.index,
            part=self._graph.part,
            call=number,
            direction=check.direction,
            pass_name=check.culprit.provenance.pass_name,
            verdict=check.verdict,
        )
        return _placed(divergence, place)

    def _compile_piece(self) -> Compile:
        return lambda piece: jit(piece, **self._piece_options)


def _placed(divergence: Divergence, place: Place | None) -> _Found:
    if place is None:
        return divergence, None
    return replace(
        divergence,
        operator=place.operator,
        node=place.node,
        line=place.line,
        region=place.region,
        executor=place.executor,
        verdict=place.verdict or divergence.verdict,
    ), place


def _uncompiled(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function behind a compiled one; torch.compile itself looks behind modules."""
    while not isinstance(f, nn.Module) and find_compiler(f) and hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    return f


def _options(
    f: Callable[..., Any], compile_options: Mapping[str, Any] | None
) -> tuple[CompileOptions, dict[str, Any]]:
    """Returns the options of the compiler, and the keywords of torch.compile."""
    divided = divide_options(dict(compile_options or {}))
    compiler = find_compiler(f) if compile_options is None else None
    options = (compiler or divided.make_compiler()).options
    # Inductor's own random numbers are not eager's.
    settings = {**options.inductor_config, "fallback_random": True}
    torch_options = divided.make_torch_options()
    torch_options.pop("options", None)
    torch_options.pop("mode", None)
    return replace(options, inductor_config=settings), torch_options
