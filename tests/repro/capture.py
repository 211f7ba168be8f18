"""Captures graphs for scripts, and runs scripts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from thunder.repro import (
    CompileSource,
    RecordedInputs,
    ReproScript,
    module_source,
    record_inputs,
    torch_compile_source,
)
from thunder.repro.linking import TEMPLATES
from thunder.trace.copying import copy_graph_module

AOT_EAGER = torch_compile_source({"backend": "aot_eager"})


class Captured:
    """The first graph of a program: a copy, its inputs, and what was recorded of them."""

    def __init__(self, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        self.graph_module: Any = None

        def backend(graph_module, example_inputs):
            if self.graph_module is None:
                self.graph_module = copy_graph_module(graph_module)
                self.example_inputs = list(example_inputs)
                self.inputs = record_inputs(example_inputs, graph=graph_module.graph)
            return torch.fx.Interpreter(graph_module).run  # the generated code may not run

        torch._dynamo.reset()
        torch.compile(function, backend=backend, **options)(*args)

    def script(self, *compilers: CompileSource, **fields: Any) -> ReproScript:
        return ReproScript(
            **{
                "title": "a test",
                "module": module_source(self.graph_module),
                "inputs": self.inputs,
                "compilers": compilers or (AOT_EAGER,),
                "command": "python test.py",
                "environment": "torch",
                **fields,
            }
        )


def script_of(function: Callable[..., Any], *args: Any, **fields: Any) -> ReproScript:
    """Returns a script of a program's first graph."""
    return Captured(function, *args).script(**fields)


def recorded_by_name(**values: Any) -> RecordedInputs:
    """Records values under the names of the keywords."""
    return record_inputs(list(values.values()), names=list(values))


def load(path: Path) -> ModuleType:
    """Imports a file as a module of its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def support() -> ModuleType:
    """Imports the support code of scripts."""
    return load(TEMPLATES / "support.py")


def run(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a fresh process, in the folder above the script's."""
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        cwd=path.parent.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


BATCH = """
import contextlib, io, runpy, sys, traceback
import torch

for line in sys.argv[1:]:
    path, *arguments = line.split("\\t")
    torch._dynamo.reset()
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch._dynamo.config.assume_static_by_default = True
    sys.argv = [path, *arguments]
    output, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(output):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as exit:
        code = exit.code or 0
    except Exception:
        code = traceback.format_exc()
    print("=====", path, code, "=====")
    print(output.getvalue())
print("thunder imported:", "thunder" in sys.modules)
"""


def run_together(scripts: Iterable[Path | tuple[Any, ...]]) -> dict[str, tuple[str, str]]:
    """Runs several scripts in one fresh process, which saves starting torch for each.

    Args:
        scripts: Paths, or tuples of a path and arguments.

    Returns:
        For each file name its exit status as text, `"0"` when fine, and what it printed; under
        `"thunder"` whether thunder was imported.
    """
    lines = ["\t".join(map(str, s if isinstance(s, tuple) else (s,))) for s in scripts]
    done = subprocess.run(
        [sys.executable, "-c", BATCH, *lines],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, tuple[str, str]] = {}
    body, _, imported = done.stdout.rpartition("thunder imported: ")
    for part in body.split("===== ")[1:]:
        head, _, output = part.partition(" =====\n")
        path, _, code = head.partition(" ")
        results[Path(path).name] = code, output
    return results | {"thunder": (imported.strip(), "")}
