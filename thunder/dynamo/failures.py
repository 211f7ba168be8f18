"""What a failure leaves behind: a script that fails the same way by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from thunder.debug import enabled, remove, warn_once, write
from thunder.debug.flags import DebugFlag
from thunder.debug.variables import REPRODUCERS
from thunder.dynamo.reproducers import region_script
from thunder.errors import ReproducerError
from thunder.pipeline.region import CompiledRegion
from thunder.repro import CompileSource, Crashes, Expectation, Fails, ReproScript, verify

VERIFY_BYTES = 256 << 20
"""Inputs up to so large are made a second time to check the script: more could run out of memory
next to the program that failed."""

TIMEOUT_SECONDS = 120.0

_verified: set[Fails] = set()

_CRASH_NOTE = (
    "written before the step and removed when the step ended; that the file is here means that "
    "the process was ended meanwhile: by a crash, from outside, or because it hung"
)


def reproduce(region: CompiledRegion, error: Exception) -> Path | None:
    """Writes the script of a failure into the debug folder.

    The script is run once in a fresh process and states whether it fails the same way. Without
    the flag `SAVE_REPRODUCER` that is done for the first failure of a kind only, since it takes
    as long as starting torch and compiling the region.

    Args:
        region: The region that failed.
        error: How.

    Returns:
        The script; None when it could not be written (which is logged), or is not wanted.
    """
    if not REPRODUCERS.read():
        return None
    with fence(region.name):
        expected = Fails.like(error)
        script = _region_script(region, f"A failure of region {region.name}", expected)
        return write_checked(
            script, expected, graph=region.dump_name, always=enabled(DebugFlag.SAVE_REPRODUCER)
        )
    return None


@contextmanager
def crash_script(region: CompiledRegion, step: str) -> Iterator[None]:
    """Keeps the script of a region on disk for as long as a step of it takes.

    So a crash of the process loses nothing. The script goes when the step ends or raises: what it
    raised gets a script of its own. An interruption, such as Ctrl-C because the step hangs, is no
    end, and the script stays.

    Args:
        region: The region.
        step: What is done, for the file's name: `"compile"` or the direction of the first run.

    Raises:
        RuntimeError: What the step did on the device failed afterwards.
    """
    path = _write_ahead(region, step)
    try:
        yield
        _wait_for_device()
    except Exception:  # the failure is somebody else's to report
        _forget(path)
        raise
    _forget(path)


def write_checked(script: ReproScript, expected: Fails, *, graph: str, always: bool) -> Path | None:
    """Writes a script into the debug folder and runs it once in a fresh process.

    Args:
        script: The script.
        expected: How it should fail.
        graph: What it is of, for the file's name.
        always: Whether it is run also when another script of the same failure was.

    Returns:
        The script; None when it could not be written.
    """
    path = write("reproducer", silenced(script).text(), graph=graph)
    if path is not None and _worth_verifying(script, expected, always):
        try:
            verify(path, expected, timeout=TIMEOUT_SECONDS)
        except (ReproducerError, OSError) as problem:  # the script itself is there
            warn_once(
                ("verdict", type(problem)),
                f"{path.name} could not be checked ({problem}); the run goes on",
                error=problem,
            )
    return path


@contextmanager
def fence(what: str) -> Iterator[None]:
    """Keeps a failure to report from breaking the run; it is logged once.

    Args:
        what: What a script was to be written of.
    """
    try:
        yield
    except Exception as problem:  # noqa: BLE001 (a fence: reporting must not break the run)
        warn_once(
            ("reproducer", what, type(problem)),
            f"no reproducer could be written for {what} "
            f"({type(problem).__name__}: {problem}); the run goes on without it",
            error=problem,
        )


def silenced(script: ReproScript) -> ReproScript:
    """Returns the same script, which leaves no scripts of its own failure behind.

    Args:
        script: Any script.
    """

    def silence(compiler: CompileSource) -> CompileSource:
        return dataclasses.replace(
            compiler,
            imports=(*compiler.imports, "import os"),
            definitions=(*compiler.definitions, 'os.environ["THUNDER_REPRODUCERS"] = "off"'),
        )

    return dataclasses.replace(script, compilers=tuple(map(silence, script.compilers)))


def _region_script(
    region: CompiledRegion, title: str, expected: Expectation, notes: tuple[str, ...] = ()
) -> ReproScript:
    script = region_script(region, title=title, changed_options={"on_failure": "raise"})
    return dataclasses.replace(script, expected=expected, notes=(*script.notes, *notes))


def _write_ahead(region: CompiledRegion, step: str) -> Path | None:
    if not REPRODUCERS.read():
        return None
    with fence(region.name):
        what = "compile" if step == "compile" else f"first {step} run"
        title = f"Region {region.name}, whose {what} did not end"
        script = _region_script(region, title, Crashes(), (_CRASH_NOTE,))
        return write("crash", silenced(script).text(), graph=region.dump_name, direction=step)
    return None


def _forget(path: Path | None) -> None:
    if path is not None:
        remove(path)


def _wait_for_device() -> None:
    """Lets what the step started on a CUDA device fail now, where it is looked for."""
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def _worth_verifying(script: ReproScript, expected: Fails, always: bool) -> bool:
    if sum(m.elements * m.dtype.itemsize for m in script.inputs.memories) > VERIFY_BYTES:
        return False
    if expected in _verified and not always:
        return False
    _verified.add(expected)
    return True
