"""Debugging: what a compile shows, and where it writes it.

| module | noun |
|---|---|
| `flags` | `DebugFlag`, what can be asked for; `resolve`, what `debug=` stands for |
| `levels` | the words of `THUNDER_DEBUG` |
| `variables` | every `THUNDER_*` environment variable |
| `activation` | which flags are on for the compile in progress |
| `dump` | artifacts: `GraphDump`, `write` |
| `folder` | the debug folder: where it is, names, several processes |
| `index` | what is in the folder |
| `directory` | files that are written whole, and no planted links |
| `process` | which process of a run this is |
| `structured` | adapter: torch's structured log |
| `torch_output` | adapter: torch's own debug output |
| `recording` | adapter: names in profiles |
| `log` | logging, and warnings said once |
| `tables` | flags, levels and variables as Markdown |

`minimize` and `find_divergence`, which need the whole compiler, are in `thunder.diagnose` and
are loaded from there when first asked for.
"""

import importlib
from collections.abc import Callable
from typing import Any

from thunder.debug.activation import active as active
from thunder.debug.activation import active_flags as active_flags
from thunder.debug.activation import enabled as enabled
from thunder.debug.dump import GraphDump as GraphDump
from thunder.debug.dump import debug_folder as debug_folder
from thunder.debug.dump import remove as remove
from thunder.debug.dump import subfolder as subfolder
from thunder.debug.dump import write as write
from thunder.debug.flags import DebugFlag as DebugFlag
from thunder.debug.flags import DebugLike as DebugLike
from thunder.debug.flags import resolve as resolve
from thunder.debug.log import warn_once as warn_once
from thunder.debug.recording import recorded as recorded
from thunder.debug.recording import region_scope as region_scope
from thunder.debug.torch_output import follow_process as follow_process
from thunder.debug.torch_output import torch_debug_output as torch_debug_output
from thunder.debug.variables import parse_environment as parse_environment

__all__ = [
    "DebugFlag",
    "DebugLike",
    "GraphDump",
    "active",
    "active_flags",
    "debug_folder",
    "enabled",
    "find_divergence",
    "follow_process",
    "minimize",
    "parse_environment",
    "recorded",
    "region_scope",
    "remove",
    "resolve",
    "subfolder",
    "torch_debug_output",
    "warn_once",
    "write",
]

find_divergence: Callable[..., Any]
minimize: Callable[..., Any]
_ABOVE = {"find_divergence": "thunder.diagnose", "minimize": "thunder.diagnose"}


def __getattr__(name: str) -> Any:
    if name not in _ABOVE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ABOVE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ABOVE})
