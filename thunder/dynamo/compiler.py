"""`ThunderCompiler`, the torch.compile backend: one Dynamo graph in, one callable out."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import fx

from thunder.debug import DebugLike, active, torch_debug_output
from thunder.dynamo.compilation import Compilation
from thunder.dynamo.reproducers import save_reproducers
from thunder.dynamo.subgraph_info import SubgraphInfo
from thunder.pipeline.options import Contest, OnFailure, make_options
from thunder.pipeline.region import CompiledRegion
from thunder.pipeline.stats import CompileRecord, CompileStats


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
            contest: How `executors="auto"` chooses who runs each graph: `"full"` compiles all
                that could, checks and times them at the graph's first run and keeps the verdict,
                `"cached"` uses verdicts that are known, and otherwise Inductor, as `"off"` does.
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
        compilation = Compilation(len(self.subgraph_infos), compile_options)
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
