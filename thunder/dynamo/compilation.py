"""The compile of one Dynamo graph: split it, compile the pieces, fall back where that fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any, final

from torch import fx
from torch._dynamo.exc import exceptions_allowed_to_be_fallback
from torch._dynamo.utils import get_metrics_context
from torch._guards import TracingContext

from thunder.dynamo.failures import crash_script, reproduce
from thunder.dynamo.native_masks import give_native_masks
from thunder.dynamo.partition_compile import CompiledSplit, compile_partitions
from thunder.dynamo.splitter import Partition, SplitGraph, split_graph
from thunder.dynamo.subgraph_info import SubgraphInfo
from thunder.dynamo.support import find_unsupported
from thunder.errors import FallbackWarning, OptionError, SplitError, add_to_message
from thunder.pipeline.aot import compile_plainly
from thunder.pipeline.fallback import CONTROL_FLOW
from thunder.pipeline.options import CompileOptions
from thunder.pipeline.region import CompiledRegion
from thunder.pipeline.stats import CompileRecord
from thunder.repro import record_inputs
from thunder.trace.copying import copy_graph_module
from thunder.transforms.attention_mask import MaskFinding


@final
class Compilation:
    """The compile of one Dynamo graph."""

    def __init__(self, index: int, options: CompileOptions) -> None:
        """Prepares a compile.

        Args:
            index: The graph's place among the callable's graphs.
            options: The options.
        """
        self.index = index
        self.options = options
        self.reason = recompile_reason()
        self.regions: list[CompiledRegion] = []
        self.failed: list[CompiledRegion] = []
        self.mask_findings: tuple[MaskFinding, ...] = ()

    def compile(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> tuple[SubgraphInfo, Callable[..., Any]]:
        """Compiles the graph.

        Args:
            graph_module: The graph; it is consumed.
            example_inputs: The inputs of the call that is being compiled.

        Returns:
            What became of it, and what Dynamo calls in its place.
        """
        original = copy_graph_module(graph_module)
        graph_module, self.mask_findings = give_native_masks(graph_module, self.options)
        region = self._region("thunder_0", graph_module)
        try:
            split = self._split(graph_module, example_inputs)
        except (*CONTROL_FLOW, OptionError):
            raise
        except Exception as error:  # noqa: BLE001 (the fence around splitting)
            region.record(example_inputs)
            run = self._go_on(region, example_inputs, _split_error(self.index, error))
        else:
            if split is not None:
                return self._compile_split(original, split, example_inputs)
            run = self._compile_region(region, graph_module, example_inputs)
        info = SubgraphInfo(
            original_graph_module=original,
            original_split_graph_module=original,
            split_graph_module=original,
            thunder_compiled_fns=tuple(self.regions),
            thunder_compiled_fns_example_inputs=tuple(map(_examples, self.regions)),
            submodule_to_compiled_functions={region.name: region if self.regions else run},
            split_reasons=(),
            failed_regions=tuple(self.failed),
            mask_findings=self.mask_findings,
        )
        return info, run

    def record(self) -> CompileRecord:
        """Returns what compiling cost."""
        return CompileRecord(
            graph_index=self.index,
            recompile_reason=self.reason,
            clocks=tuple(region.clock for region in (*self.regions, *self.failed)),
            region_verdicts={region.name: region.verdicts for region in self.regions},
        )

    def _split(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> SplitGraph | None:
        unsupported = find_unsupported(
            graph_module, self.options.exclude_ops, example_inputs=example_inputs
        )
        return split_graph(graph_module, unsupported) if unsupported else None

    def _compile_split(
        self, original: fx.GraphModule, split: SplitGraph, example_inputs: Sequence[Any]
    ) -> tuple[SubgraphInfo, Callable[..., Any]]:
        compiled = compile_partitions(
            split,
            example_inputs,
            compile_thunder=self._compile_thunder,
            compile_inductor=self._compile_inductor,
        )
        info = SubgraphInfo(
            original_graph_module=original,
            original_split_graph_module=split.split_graph_module,
            split_graph_module=compiled.graph_module,
            thunder_compiled_fns=tuple(self.regions),
            thunder_compiled_fns_example_inputs=tuple(map(_examples, self.regions)),
            submodule_to_compiled_functions=self._by_partition(compiled),
            split_reasons=split.reasons,
            failed_regions=tuple(self.failed),
            mask_findings=self.mask_findings,
        )
        return info, compiled.graph_module

    def _by_partition(self, compiled: CompiledSplit) -> Mapping[str, Callable[..., Any]]:
        regions = {region.name: region for region in self.regions}
        return {name: regions.get(name, run) for name, run in compiled.compiled.items()}

    def _compile_thunder(
        self, partition: Partition, graph_module: fx.GraphModule, example_inputs: list[Any]
    ) -> Callable[..., Any]:
        region = self._region(partition.name, graph_module)
        run = self._compile_region(region, graph_module, example_inputs)
        return _FirstInputs(region, run)

    def _compile_inductor(
        self, partition: Partition, graph_module: fx.GraphModule, example_inputs: list[Any]
    ) -> Callable[..., Any]:
        return compile_by_inductor(
            graph_module,
            example_inputs,
            self.options,
            problem=f"{partition.name} of graph {self.index} was left to Inductor",
        )

    def _region(self, name: str, graph_module: fx.GraphModule) -> CompiledRegion:
        return CompiledRegion(
            name,
            graph_module,
            self.options,
            graph_index=self.index,
            reproduce=reproduce,
            watch=crash_script,
        )

    def _compile_region(
        self, region: CompiledRegion, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        try:
            region.compile(graph_module, example_inputs)
        except CONTROL_FLOW:
            raise
        except Exception as error:  # noqa: BLE001 (the fence around a region)
            return self._go_on(region, example_inputs, error)
        self.regions.append(region)
        return region.run

    def _go_on(
        self, region: CompiledRegion, example_inputs: Sequence[Any], error: Exception
    ) -> Callable[..., Any]:
        """Leaves a script of what failed; then raises, or leaves the region to Inductor.

        What depends on values of tensors is no failure: Dynamo breaks the graph there.
        """
        cause = error.__cause__
        if cause is not None and _breaks_graph(cause, region.graph_module):
            raise cause
        self.failed.append(region)
        script = _reproduce_once(region, error)
        if self.options.on_failure == "raise":
            add_to_message(error, script)
            raise error
        where = f" (reproducer: {script})" if script else ""
        return compile_by_inductor(
            region.graph_module,
            example_inputs,
            self.options,
            problem=f"thunder could not compile {region.name} of graph {self.index}: "
            f"{type(error).__name__}: {error}{where}",
            warn=True,
        )


@final
class _FirstInputs:
    """Runs a region; its first inputs are recorded for scripts, real values instead of fakes."""

    def __init__(self, region: CompiledRegion, run: Callable[..., Any]) -> None:
        self._region: CompiledRegion | None = region
        self._run = run

    def __call__(self, *inputs: Any) -> Any:
        if self._region is not None:
            recorded = record_inputs(inputs, graph=self._region.graph_module.graph)
            # Modes and settings are those of the compile, not of the middle of a graph.
            surroundings = self._region.inputs.surroundings
            self._region.inputs = replace(recorded, surroundings=surroundings)
            self._region = None
        return self._run(*inputs)


def compile_by_inductor(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: CompileOptions,
    *,
    problem: str,
    warn: bool = False,
) -> Callable[..., Any]:
    """Compiles a graph as torch.compile would, or leaves it to eager when that fails too.

    Args:
        graph_module: The graph; copies of it are used.
        example_inputs: One (fake) value for each placeholder.
        options: Inductor settings, and what happens on failure.
        problem: Why the graph is not thunder's, for warnings.
        warn: Whether that is worth a warning by itself.

    Returns:
        What runs the graph.
    """
    try:
        run = compile_plainly(
            copy_graph_module(graph_module), example_inputs, options.inductor_config
        )
    except CONTROL_FLOW:
        raise
    except Exception as error:  # the fence around an Inductor region
        if options.on_failure == "raise":
            raise
        warnings.warn(
            f"{problem}. Inductor could not compile it ({type(error).__name__}: {error}). It runs "
            "in eager mode.",
            FallbackWarning,
            stacklevel=2,
        )
        return copy_graph_module(graph_module).forward
    if warn:
        warnings.warn(f"{problem}. It goes on by Inductor.", FallbackWarning, stacklevel=2)
    return run


def recompile_reason() -> str | None:
    """Returns the guard that made Dynamo compile again, or None for a first compile."""
    reason = get_metrics_context()._metrics.get("recompile_reason")
    if not reason or "BACKEND_MATCH" in reason:  # the code was compiled for another backend
        return None
    return str(reason)


def _breaks_graph(error: BaseException, graph_module: fx.GraphModule) -> bool:
    """Whether Dynamo answers an error with a graph break.

    It does not where the user put a function into the graph by `torch.compiler.allow_in_graph`,
    and nobody does where the graph was not captured by Dynamo.
    """
    return (
        isinstance(error, exceptions_allowed_to_be_fallback)
        and TracingContext.try_get() is not None
        and not any(
            isinstance(node.target, FunctionType)
            and not (node.target.__module__ or "").startswith("torch")
            for node in graph_module.graph.nodes
        )
    )


def _split_error(graph_index: int, error: Exception) -> SplitError:
    wrapped = SplitError(
        f"graph {graph_index} could not be divided into regions: {type(error).__name__}: {error}"
    )
    wrapped.__cause__ = error
    return wrapped


def _reproduce_once(region: CompiledRegion, error: Exception) -> Path | None:
    """Writes a script for what the region itself has not reported."""
    if any(error is failure.error for failure in region.failures):
        return None
    return reproduce(region, error)


def _examples(region: CompiledRegion) -> tuple[Any, ...]:
    inputs = region.graph_module.graph.find_nodes(op="placeholder")
    return tuple(node.meta.get("example_value") for node in inputs)
