"""Writes the script of a minimal graph, and runs it to see that it shows what it should."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from torch import fx

from thunder.debug.variables import REPRODUCERS
from thunder.diagnose.interruption import completed
from thunder.repro import (
    CompileSource,
    Expectation,
    ReproScript,
    Status,
    Verdict,
    make_folder,
    module_source,
    record_inputs,
    verify,
)

_INTERRUPTED = Verdict(Status.NOT_RUN, "interrupted before it had run in a fresh process")


def write_minimal_script(
    *,
    title: str,
    graph_module: fx.GraphModule,
    inputs: Sequence[Any],
    source: CompileSource,
    expected: Expectation,
    folder: Path,
    stem: str,
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    notes: tuple[str, ...] = (),
) -> tuple[Path, Verdict]:
    """Writes the script; with the real inputs when others of their kind do not show the failure.

    Args:
        title: What it is, in one line.
        graph_module: The graph.
        inputs: Its inputs.
        source: How it is compiled.
        expected: How the script should end.
        folder: Where it is written.
        stem: Its name without the ending; a number is added when the file exists, so that
            earlier results stay.
        around: Makes the context of the call.
        notes: Sentences for the reader.

    Returns:
        The script, and what running it in a fresh process showed. Ctrl-C ends that run; the
        script is written all the same.

    Raises:
        KeyboardInterrupt: Ctrl-C came twice while it was written.
        ReproducerError: It cannot be written.
    """
    path, interrupted = completed(lambda: _free_path(make_folder(folder), stem))

    def write(store_inputs: bool) -> ReproScript:
        with around():
            recorded = record_inputs(inputs, graph=graph_module.graph)
        script = ReproScript(
            title=title,
            module=module_source(graph_module),
            inputs=recorded,
            compilers=(_silenced(source),),
            store_inputs=store_inputs,
            expected=expected,
            notes=notes,
        )
        script.write(path)
        return script

    for store_inputs in (False, True):
        script, again = completed(partial(write, store_inputs))
        interrupted = interrupted or again
        verdict = _INTERRUPTED if interrupted else _verified(path, expected)
        if verdict is _INTERRUPTED:
            completed(partial(script.with_verdict(verdict).write, path))
            break
        if verdict.status is Status.CONFIRMED or source.missing:
            break
    return path, verdict


def _verified(path: Path, expected: Expectation) -> Verdict:
    """Runs the script in a fresh process, which Ctrl-C ends."""
    try:
        return verify(path, expected)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _silenced(source: CompileSource) -> CompileSource:
    """The same compiler, whose failure leaves no script of its own behind."""
    return dataclasses.replace(
        source,
        imports=(*source.imports, "import os"),
        definitions=(f'os.environ["{REPRODUCERS.name}"] = "off"', *source.definitions),
    )


def _free_path(folder: Path, stem: str) -> Path:
    names = (f"{stem}.py", *(f"{stem}_{number}.py" for number in range(1, 1000)))
    return next(folder / name for name in names if not (folder / name).exists())
