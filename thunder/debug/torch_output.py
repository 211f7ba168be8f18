"""The adapter to torch's own debug output: what the flag TORCH_COMPILE_DEBUG turns on.

Inductor's folder for each graph and a structured log for tlparse go into the debug folder. Unlike
the variable of the same name that torch reads, it takes effect when caches are warm, and leaves
the settings of other compiles alone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from torch._dynamo import config as dynamo_config
from torch._inductor import config as inductor_config

from thunder.debug.activation import enabled
from thunder.debug.dump import subfolder
from thunder.debug.flags import DebugFlag
from thunder.debug.log import warn_once
from thunder.debug.structured import StructuredLogFile
from thunder.debug.variables import DEBUG

KIND = "torch"
_ROOM = 32 << 20
"""Bytes that must be free: Inductor does not survive a disk that is full."""


@contextmanager
def torch_debug_output() -> Iterator[None]:
    """Lets torch write its debug output for a `with` block, if TORCH_COMPILE_DEBUG is on.

    Wrap it around the compile of a graph, the backward's included. Blocks may be nested.

    Example:
        >>> from thunder.debug import active, torch_debug_output
        >>> with active("torch_compile_debug"), torch_debug_output():
        ...     pass  # torch._inductor.compile_fx.compile_fx(...)
    """
    target = subfolder(KIND) if enabled(DebugFlag.TORCH_COMPILE_DEBUG) else None
    if target is None or inductor_config.trace.debug_dir == str(target) or not _has_room(target):
        yield
        return
    settings = {
        "trace.enabled": True,
        "trace.debug_dir": str(target),
        # A graph that comes from the cache passes none of the places that write.
        "fx_graph_cache": False,
        "fx_graph_remote_cache": False,
    }
    with (
        closing(StructuredLogFile(lambda: target)) as log,
        dynamo_config.patch(debug_dir_root=str(target)),
        inductor_config.patch(settings),
    ):
        log.follow()
        yield


def follow_process() -> None:
    """Copies torch's structured log from now on, if `THUNDER_DEBUG` asks for torch's output.

    What Dynamo says about a graph comes before and after a backend is called, hence outside of
    `torch_debug_output`.
    """
    if DebugFlag.TORCH_COMPILE_DEBUG.key in DEBUG.read():
        StructuredLogFile(functools.partial(subfolder, KIND)).follow()


def _has_room(folder: Path) -> bool:
    try:
        free = os.statvfs(folder)
    except OSError:
        return False
    if free.f_bavail * free.f_frsize >= _ROOM:
        return True
    warn_once(
        ("no room", folder),
        f"too little disk space is left in {folder} for torch's debug output; it is left out",
    )
    return False
