"""What a failure leaves behind: a script that fails the same way by itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from thunder.debug import enabled, warn_once, write
from thunder.debug.flags import DebugFlag
from thunder.debug.variables import REPRODUCERS
from thunder.dynamo.reproducers import region_script
from thunder.pipeline.region import CompiledRegion
from thunder.repro import CompileSource, Fails, ReproScript, verify

VERIFY_BYTES = 256 << 20
"""Inputs up to so large are made a second time to check the script: more could run out of memory
next to the program that failed."""

TIMEOUT_SECONDS = 120.0

_verified: set[Fails] = set()


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
    try:
        expected = Fails.like(error)
        script = region_script(
            region,
            title=f"A failure of region {region.name}",
            changed_options={"on_failure": "raise"},
        )
        script = dataclasses.replace(script, expected=expected)
        path = write("reproducer", _silenced(script).text(), graph=region.dump_name)
        if path is not None and _worth_verifying(region, expected):
            verify(path, expected, timeout=TIMEOUT_SECONDS)
    except Exception as problem:  # noqa: BLE001 (a fence: reporting must not break the run)
        warn_once(
            ("reproducer", region.name, type(problem)),
            f"no reproducer could be written for {region.name} "
            f"({type(problem).__name__}: {problem}); the run goes on without it",
            error=problem,
        )
        return None
    return path


def _worth_verifying(region: CompiledRegion, expected: Fails) -> bool:
    if sum(m.elements * m.dtype.itemsize for m in region.inputs.memories) > VERIFY_BYTES:
        return False
    if expected in _verified and not enabled(DebugFlag.SAVE_REPRODUCER):
        return False
    _verified.add(expected)
    return True


def _silenced(script: ReproScript) -> ReproScript:
    """The same script, which leaves no scripts of its own failure behind."""

    def silence(compiler: CompileSource) -> CompileSource:
        return dataclasses.replace(
            compiler,
            imports=(*compiler.imports, "import os"),
            definitions=(*compiler.definitions, 'os.environ["THUNDER_REPRODUCERS"] = "off"'),
        )

    return dataclasses.replace(script, compilers=tuple(map(silence, script.compilers)))
