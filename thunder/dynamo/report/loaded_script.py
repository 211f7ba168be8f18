"""A reproducer or benchmark script, loaded so that its graph can be run here."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch.utils._pytree import tree_leaves

from thunder.benchmark import (
    AbstractCompileSpecification,
    AbstractTimer,
    BenchmarkResult,
    Compute,
    ProgressHook,
    Settings,
    benchmark,
)
from thunder.benchmark.progress import ignore_progress
from thunder.debug.variables import REPRODUCERS
from thunder.dynamo.report.timed_script import Compile, ScriptCompileSpecification
from thunder.errors import ReproducerError

_COMPILE = "compile_with_"


@final
@dataclass(frozen=True, kw_only=True)
class LoadedScript:
    """What a script defines.

    Attributes:
        name: Its name, without the ending.
        make_module: Makes the module.
        make_inputs: Makes its inputs by name.
        compilers: Name to function that compiles a module, in the script's order.
        around: Makes the context to run in.
    """

    name: str
    make_module: Callable[[], Any]
    make_inputs: Callable[[], Mapping[str, Any]]
    compilers: Mapping[str, Compile]
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext

    @property
    def specifications(self) -> list[AbstractCompileSpecification]:
        """The script's ways to compile."""
        return [
            ScriptCompileSpecification(name=name, compile_module=compile_module)
            for name, compile_module in self.compilers.items()
        ]

    def compute(self) -> Compute:
        """Returns what makes sense to run: backward too, where a result requires grad.

        Raises:
            Exception: What the module raises when it is run.
        """
        with self.around():
            results = self.make_module()(*self.make_inputs().values())
        grad = any(isinstance(x, torch.Tensor) and x.requires_grad for x in tree_leaves(results))
        return Compute.FORWARD_BACKWARD if grad else Compute.FORWARD

    def benchmark(
        self,
        specifications: Sequence[AbstractCompileSpecification],
        *,
        compute: Compute | None = None,
        timer: AbstractTimer | None = None,
        settings: Settings | None = None,
        progress: ProgressHook = ignore_progress,
    ) -> BenchmarkResult:
        """Checks and times the script's module.

        Args:
            specifications: The ways to compile it, the baseline first.
            compute: What to run; see `compute`.
            timer: How to time.
            settings: Confidence, threshold and time.
            progress: Called between rounds.
        """
        compute = compute or self.compute()
        with self.around():
            return benchmark(
                self.make_module(),
                lambda: list(self.make_inputs().values()),
                specifications=specifications,
                compute=compute,
                timer=timer,
                settings=settings,
                progress=progress,
            )


def load_script(path: str | os.PathLike[str]) -> LoadedScript:
    """Loads a script without running its main part. What it sets in torch stays set.

    Args:
        path: A script that `write_repro`, `write_benchmark` or `save_reproducer` wrote.

    Raises:
        ReproducerError: It cannot be read, fails when it is loaded, or is no such script.
    """
    file = Path(path)
    module = _import(file)
    found = vars(module)
    if not {"make_module", "make_inputs"} <= found.keys():
        raise ReproducerError(
            f"{file} is no reproducer of thunder's: it defines no make_module and make_inputs"
        )
    named = {
        name.removeprefix(_COMPILE): value
        for name, value in found.items()
        if name.startswith(_COMPILE)
    }
    return LoadedScript(
        name=file.stem,
        make_module=found["make_module"],
        make_inputs=found["make_inputs"],
        compilers=found.get("COMPILERS", named),
        around=found.get("around", contextlib.nullcontext),
    )


def _import(file: Path) -> types.ModuleType:
    name = f"thunder_script_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ReproducerError(f"{file} is no Python script that can be read")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes of the script look their module up
    try:
        with REPRODUCERS.restored():  # scripts switch reproducers off, for a process of their own
            spec.loader.exec_module(module)
    except Exception as error:
        raise ReproducerError(
            f"{file} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    finally:
        del sys.modules[name]
    return module
