"""`ThunderCompiler`, the torch.compile backend: one Dynamo graph in, one callable out."""

from __future__ import annotations

import enum
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import fx
from torch._dynamo.utils import get_metrics_context

from thunder.debug import DebugLike, active, torch_debug_output
from thunder.dynamo.failures import reproduce
from thunder.dynamo.reproducers import save_reproducers
from thunder.dynamo.subgraph_info import SubgraphInfo
from thunder.errors import FallbackWarning, add_to_message
from thunder.pipeline.aot import compile_plainly
from thunder.pipeline.fallback import CONTROL_FLOW
from thunder.pipeline.options import CompileOptions, Contest, OnFailure, make_options
from thunder.pipeline.region import CompiledRegion
from thunder.pipeline.stats import CompileRecord, CompileStats
from thunder.trace.copying import copy_graph_module


class EntryPoint(enum.Enum):
    """Which entry point a compiler serves; the trace helpers answer accordingly."""

    THUNDERFX = "thunderfx"
    JIT = "jit"


class ThunderCompiler:
    """A backend for `torch.compile` that keeps everything it did for you to look at.

    Attributes:
        options: The validated options.
        entry_point: Which entry point it serves.
        subgraph_infos: One `SubgraphInfo` for each Dynamo graph, in the order of compiling.

    Example:
        >>> import torch
        >>> from thunder.dynamo import ThunderCompiler
        >>> backend = ThunderCompiler(executors=["aten"])
        >>> f = torch.compile(lambda x: x.sin() * 2, backend=backend)
        >>> f(torch.zeros(3))
        tensor([0., 0., 0.])
        >>> len(backend.subgraph_infos)
        1
    """

    def __init__(
        self,
        *,
        executors: str | Sequence[Any] = "auto",
        transforms: Iterable[Any] = (),
        exclude_ops: Iterable[str | Callable[..., Any]] = (),
        debug: DebugLike = False,
        on_failure: OnFailure = "fallback",
        contest: Contest = "cached",
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Validates and keeps the options.

        Args:
            executors: `"auto"`, a name, or a list of names and executors, most wanted first.
                `aten` takes what the others leave.
            transforms: Functions from fx graph to fx graph (any fx pass), or
                `thunder.transforms.AbstractTransform`s, applied in order.
            exclude_ops: Operators left to Inductor: callables such as `torch.sinc` (method
                forms included) or names.
            debug: Debug flags: True for all, one, a name, or several.
            on_failure: `"fallback"` goes on with Inductor and then eager when something fails,
                with a warning; `"raise"` raises.
            contest: How candidates for a region are chosen between when `executors="auto"`.
            mode: As in `torch.compile`; holds for the Inductor regions.
            options: As in `torch.compile`: Inductor settings.

        Raises:
            OptionError: A value is not accepted.
            DebugFlagError: A debug flag is unknown.
        """
        self.options = make_options(
            executors=executors,
            transforms=transforms,
            exclude_ops=exclude_ops,
            debug=debug,
            on_failure=on_failure,
            contest=contest,
            mode=mode,
            options=options,
        )
        self.entry_point = EntryPoint.THUNDERFX
        self.subgraph_infos: list[SubgraphInfo] = []
        self._records: list[CompileRecord] = []

    def __call__(
        self,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Compiles one Dynamo graph.

        Args:
            graph_module: The graph; it is consumed.
            example_inputs: The inputs of the call that is being compiled.
            mode: Of the `torch.compile` call, when it was given one.
            options: Likewise.

        Returns:
            What Dynamo calls in place of the graph.
        """
        compile_options = self.options.with_inductor(mode, options)
        compilation = _Compilation(len(self.subgraph_infos), compile_options)
        with active(compile_options.debug), torch_debug_output():
            info, run = compilation.compile(graph_module, example_inputs)
        self.subgraph_infos.append(info)
        self._records.append(compilation.record())
        return run

    def __repr__(self) -> str:
        """Names the executors; Dynamo's messages show it."""
        names = ", ".join(executor.name for executor in self.options.executors)
        return f"<ThunderCompiler: {names}>"

    def save_reproducer_to_folder(
        self,
        folder: str | os.PathLike[str],
        *,
        use_pytest_benchmark: bool = False,
        serialize_inputs: bool = False,
    ) -> list[Path]:
        """Writes a script for each thunder region compiled so far.

        Args:
            folder: Where to write; made when missing.
            use_pytest_benchmark: Write pytest-benchmark scripts that compare thunder,
                torch.compile and eager, forward and backward apart.
            serialize_inputs: Save the real inputs beside each script, instead of drawing inputs
                of the same kind.

        Returns:
            The scripts.

        Raises:
            NotCompiledError: Nothing has been compiled yet.
            ReproducerError: A file cannot be written.
        """
        return save_reproducers(
            self.subgraph_infos,
            folder,
            use_pytest_benchmark=use_pytest_benchmark,
            serialize_inputs=serialize_inputs,
        )

    @property
    def regions(self) -> list[CompiledRegion]:
        """All compiled thunder regions, in order."""
        return [region for info in self.subgraph_infos for region in info.thunder_compiled_fns]

    def compile_stats(self) -> CompileStats:
        """Returns what compiling cost so far, and how often compiled graphs were used."""
        return CompileStats(
            cache_misses=len(self._records),
            cache_hits=sum(max(region.calls - 1, 0) for region in self.regions),
            compiles=tuple(self._records),
        )


@dataclass(slots=True)
class _Compilation:
    """The compile of one Dynamo graph.

    Attributes:
        index: The graph's place among the callable's graphs.
        options: The options.
        reason: The guard that failed, when this is a recompile.
        regions: The thunder regions made.
    """

    index: int
    options: CompileOptions
    reason: str | None = None
    regions: tuple[CompiledRegion, ...] = ()

    def compile(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> tuple[SubgraphInfo, Callable[..., Any]]:
        self.reason = recompile_reason()
        original = copy_graph_module(graph_module)
        try:
            return self._compile_regions(graph_module, example_inputs, original)
        except CONTROL_FLOW:
            raise
        except Exception as error:  # the fence around a whole graph
            script = self._reproduce(error)
            if self.options.on_failure == "raise":
                add_to_message(error, script)
                raise
            return self._fall_back(original, example_inputs, error, script)

    def _reproduce(self, error: Exception) -> Path | None:
        """Writes a script for what no region has reported yet."""
        reported = [failure.error for region in self.regions for failure in region.failures]
        if not self.regions or any(error is known for known in reported):
            return None
        return reproduce(self.regions[-1], error)

    def _compile_regions(
        self,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
        original: fx.GraphModule,
    ) -> tuple[SubgraphInfo, Callable[..., Any]]:
        region = CompiledRegion(
            "thunder_0",
            graph_module,
            self.options,
            graph_index=self.index,
            reproduce=reproduce,
        )
        self.regions = (region,)
        region.compile(graph_module, example_inputs)
        info = SubgraphInfo(
            original_graph_module=original,
            original_split_graph_module=original,
            split_graph_module=original,
            thunder_compiled_fns=(region,),
            thunder_compiled_fns_example_inputs=(_examples(original),),
            submodule_to_compiled_functions={region.name: region},
            split_reasons=(),
        )
        return info, region.run

    def _fall_back(
        self,
        original: fx.GraphModule,
        example_inputs: Sequence[Any],
        error: Exception,
        script: Path | None,
    ) -> tuple[SubgraphInfo, Callable[..., Any]]:
        name, run = fall_back_whole_graph(
            original, example_inputs, self.options.inductor_config, error, script
        )
        info = SubgraphInfo(
            original_graph_module=original,
            original_split_graph_module=original,
            split_graph_module=original,
            thunder_compiled_fns=(),
            thunder_compiled_fns_example_inputs=(),
            submodule_to_compiled_functions={name: run},
            split_reasons=(),
            failed_regions=self.regions,
        )
        return info, run

    def record(self) -> CompileRecord:
        return CompileRecord(
            graph_index=self.index,
            recompile_reason=self.reason,
            stages=self.regions[0].clock.milliseconds if self.regions else {},
        )


def fall_back_whole_graph(
    original: fx.GraphModule,
    example_inputs: Sequence[Any],
    inductor_config: Mapping[str, Any],
    error: Exception,
    script: Path | None,
) -> tuple[str, Callable[..., Any]]:
    """Compiles a graph as torch.compile would, or leaves it to eager when that fails too.

    Args:
        original: The Dynamo graph; copies of it are used.
        example_inputs: The inputs of the call that is being compiled.
        inductor_config: Inductor settings.
        error: Why thunder could not take it; the warning gives it.
        script: The failure's reproducer, if there is one.

    Returns:
        A name for what runs the graph, and what runs it.
    """
    failure = f"thunder could not compile a graph: {type(error).__name__}: {error}"
    failure += f" (reproducer: {script})" if script else ""
    try:
        run = compile_plainly(copy_graph_module(original), example_inputs, inductor_config)
    except CONTROL_FLOW:
        raise
    except Exception as inductor_error:  # noqa: BLE001 (the fence around a whole graph)
        warnings.warn(
            f"{failure}. Inductor could not either ({type(inductor_error).__name__}: "
            f"{inductor_error}). The graph runs in eager mode.",
            FallbackWarning,
            stacklevel=2,
        )
        return "eager_0", copy_graph_module(original).forward
    warnings.warn(f"{failure}. It goes on by Inductor.", FallbackWarning, stacklevel=2)
    return "inductor_0", run


def recompile_reason() -> str | None:
    """Returns the guard that made Dynamo compile again, or None for a first compile."""
    reason = get_metrics_context()._metrics.get("recompile_reason")
    if not reason or "BACKEND_MATCH" in reason:  # the code was compiled for another backend
        return None
    return str(reason)


def _examples(graph_module: fx.GraphModule) -> tuple[Any, ...]:
    inputs = graph_module.graph.find_nodes(op="placeholder")
    return tuple(node.meta.get("example_value") for node in inputs)
