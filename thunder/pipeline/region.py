"""A compiled region: what `ThunderCompiler` and `thunder.jit` run, and what helpers look at."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, final

from torch import fx

from thunder.debug import DebugFlag, GraphDump, active, enabled, torch_debug_output
from thunder.errors import (
    AutogradError,
    FallbackWarning,
    ThunderError,
    add_to_message,
    without_frames,
)
from thunder.pipeline.aot import compile_op_by_op, compile_with_inductor_passes
from thunder.pipeline.artifacts import show_graph
from thunder.pipeline.attention_contest import attention_contest
from thunder.pipeline.fallback import CONTROL_FLOW, Failure, GuardedGraph
from thunder.pipeline.lowering import GraphRequest
from thunder.pipeline.options import CompileOptions
from thunder.pipeline.origins import input_origins, name_origins
from thunder.pipeline.prologue import GuardFacts, prologue_trace
from thunder.pipeline.stats import StageClock
from thunder.pipeline.verdicts import ContestVerdict
from thunder.repro import RecordedInputs, record_inputs
from thunder.trace.copying import copy_graph_module
from thunder.trace.trace import Direction, Provenance, TraceCtx
from thunder.transforms.base import Stage
from thunder.transforms.pipeline import run_transforms

_log = logging.getLogger(__name__)


def _no_script(region: CompiledRegion, error: Exception) -> Path | None:
    del region, error
    return None


def _no_watch(region: CompiledRegion, step: str) -> AbstractContextManager[None]:
    del region, step
    return nullcontext()


@final
class CompiledRegion:
    """A torch-level graph with its compiled forward, backward or inference graphs.

    Attributes:
        name: Its name within the Dynamo graph, such as `thunder_0`.
        graph_module: The graph as captured, before any pass; each placeholder's
            `meta["example_value"]` is a fake value.
        options: What it was compiled with.
        clock: Milliseconds by stage.
        run: What runs it; the object itself may be called too.
        inputs: What it was first called with, as far as scripts need it.
        failures: Ways that failed and were replaced by a plainer one.
        verdicts: The verdict of each contest, by what it was about: a graph such as `forward`, or
            a call of attention such as `attention scaled_dot_product_attention`.
    """

    def __init__(
        self,
        name: str,
        graph_module: fx.GraphModule,
        options: CompileOptions,
        *,
        graph_index: int = 0,
        reproduce: Callable[[CompiledRegion, Exception], Path | None] = _no_script,
        watch: Callable[[CompiledRegion, str], AbstractContextManager[None]] = _no_watch,
    ) -> None:
        """Prepares a region; `compile` makes it runnable.

        Args:
            name: Its name.
            graph_module: The captured graph; a copy is kept.
            options: What to compile it with.
            graph_index: Which of its callable's Dynamo graphs it is of.
            reproduce: Writes a script for a failure of the region, and returns its path.
            watch: Makes the context of a step that may crash the process: the compile, and the
                first run of each graph. Asked only when `SAVE_REPRODUCER` is on.
        """
        self.name = name
        self._dump = GraphDump(f"graph{graph_index}_{name}")
        self.graph_module = copy_graph_module(graph_module)
        self.options = options
        self.clock = StageClock()
        self._entered: list[GuardedGraph] = []
        self.failures: list[Failure] = []
        self.verdicts: dict[str, ContestVerdict] = {}
        self._reproduce = reproduce
        self._watch = watch
        self._is_watched = False
        self._script: Path | None = None
        self._traces: dict[Direction, tuple[TraceCtx, ...]] = {}
        self._guards = GuardFacts(())
        self.inputs = RecordedInputs(inputs=())
        self.run: Callable[..., Any] = _not_compiled

    def compile(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        """Compiles the region.

        Args:
            graph_module: The graph; it is consumed.
            example_inputs: One (fake) value for each placeholder.

        Raises:
            TransformError: A transform failed.
            ExecutorError: An executor failed.
            AutogradError: AOTAutograd failed, or a pass that runs before or in it.
        """
        self._guards = GuardFacts.current()
        self.record(example_inputs)
        self._is_watched = enabled(DebugFlag.SAVE_REPRODUCER)
        with self.clock.stage("compile"), self._watched("compile"):
            graph_module, captured = self._transform(graph_module)
            self._traces[Direction.CAPTURED] = (
                TraceCtx(
                    graph_module=self.graph_module,
                    direction=Direction.CAPTURED,
                    provenance=Provenance("Dynamo", 0.0),
                ),
                *captured,
            )
            self.run = self._compile(graph_module, example_inputs)
        show_graph(self._dump, self.traces(Direction.PROLOGUE))

    def _transform(self, graph_module: fx.GraphModule) -> tuple[fx.GraphModule, list[TraceCtx]]:
        contest = attention_contest(self.options)
        transforms = [*self.options.transforms, *([] if contest is None else [contest])]
        graph_module, traces = run_transforms(
            graph_module, transforms, stage=Stage.CAPTURED, direction=Direction.CAPTURED
        )
        for name, verdict in ({} if contest is None else contest.verdicts).items():
            self.verdicts[f"attention {name}"] = verdict
        return graph_module, traces

    def record(self, example_inputs: Sequence[Any]) -> None:
        """Records inputs for scripts, in place of those recorded before.

        Args:
            example_inputs: One value for each placeholder.
        """
        with self.clock.stage("record inputs"):
            self.inputs = record_inputs(example_inputs, graph=self.graph_module.graph)

    def __call__(self, *inputs: Any) -> Any:
        """Runs the compiled region."""
        return self.run(*inputs)

    @property
    def calls(self) -> int:
        """How often it was run; counted by the graph that runs, so that a call costs no more."""
        return sum(graph.calls for graph in self._entered)

    @property
    def dump_name(self) -> str:
        """Its name in the debug folder, unique in the process."""
        return self._dump.name

    def traces(self, direction: Direction) -> list[TraceCtx]:
        """Returns the stages of one graph; the last is executed.

        Args:
            direction: Which graph. A forward graph that needs no gradient is INFERENCE.

        Returns:
            The stages; empty when there is no such graph (yet).
        """
        if direction is Direction.PROLOGUE:
            return [prologue_trace(self.graph_module.graph, self._guards)]
        return list(self._traces.get(direction, ()))

    def forward_traces(self) -> list[TraceCtx]:
        """Returns the stages of the forward graph, or of the inference graph."""
        return self.traces(Direction.FORWARD) or self.traces(Direction.INFERENCE)

    def __repr__(self) -> str:
        """Names the region and its graphs."""
        kinds = ", ".join(direction.value for direction in self._traces)
        return f"<CompiledRegion {self.name}: {kinds}>"

    def _watched(self, step: str) -> AbstractContextManager[None]:
        return self._watch(self, step) if self._is_watched else nullcontext()

    def _compile(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        try:
            return self._trace_and_compile(graph_module, example_inputs)
        except (*CONTROL_FLOW, ThunderError):
            raise
        except Exception as error:
            raise AutogradError(
                f"AOTAutograd could not trace {self.name}: {type(error).__name__}: {error}"
            ) from error

    def _trace_and_compile(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        if not self.options.fuses:
            return compile_op_by_op(graph_module, example_inputs, self._compile_graph)
        executors = self.options.executors
        return compile_with_inductor_passes(
            graph_module,
            example_inputs,
            self._compile_graph,
            inductor_config=self.options.inductor_config,
            undecomposed=[op for executor in executors for op in executor.undecomposed_ops()],
        )

    def _compile_graph(self, request: GraphRequest) -> Callable[[list[Any]], Sequence[Any]]:
        direction = request.direction

        def keep(traces: Sequence[TraceCtx]) -> None:
            self._traces[direction] = tuple(traces)
            show_graph(self._dump, traces)

        name_origins(request.graph_module.graph, input_origins(self.graph_module.graph))
        # A backward graph may be compiled long after `compile` returned, hence the flags again.
        with self.clock.stage(direction.value), active(self.options.debug), torch_debug_output():
            graph = GuardedGraph(
                request,
                self.options,
                on_lowered=keep,
                on_verdict=lambda verdict: self.verdicts.update({direction.value: verdict}),
                on_failure=self._report,
                around_first_run=lambda: self._watched(direction.value),
            )
        if direction is not Direction.BACKWARD:
            self._entered.append(graph)
        return graph

    def _report(self, failure: Failure) -> None:
        self.failures.append(failure)
        if self._script is None:  # by the first failure; its script never gets to a later one
            with active(self.options.debug):  # a first run comes after the compile
                self._script = self._reproduce(self, failure.error)
        script = self._script
        if failure.next_way is None:
            add_to_message(failure.error, script)
            return
        where = f" Reproducer: {script}" if script else ""
        if any(_is_the_same(failure, other) for other in self.failures[:-1]):
            _log.info("%s: the %s graph too: %s", self.name, failure.direction, failure.error)
            without_frames(failure.error)
            return
        warnings.warn(
            f"{self.name}: the {failure.direction.value} graph could not be used as asked for "
            f"({failure.stage}; {failure.way}): {failure.error}. "
            f"It goes on by {failure.next_way}.{where}",
            FallbackWarning,
            stacklevel=2,
        )
        _log.info("%s: %s", self.name, failure.error, exc_info=failure.error)
        without_frames(failure.error)


def _is_the_same(one: Failure, other: Failure) -> bool:
    """Whether forward and backward failed in the same way, for the same reason."""
    causes = [failure.error.__cause__ or failure.error for failure in (one, other)]
    return (
        (one.stage, one.way) == (other.stage, other.way)
        and type(causes[0]) is type(causes[1])
        and str(causes[0]) == str(causes[1])
    )


def _not_compiled(*inputs: Any) -> Any:
    raise AssertionError("a region was run before it was compiled")
