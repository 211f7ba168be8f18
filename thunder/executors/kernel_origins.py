"""Lets Inductor's generated code say which ATen nodes each kernel computes.

Inductor keeps that only when told to. The one place that knows how it is told, and where it keeps
what it finds. Without it the code is the same, but for the comments.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch._inductor import config, debug

NODES = "# Nodes of "
"""What such a comment starts with: `# Nodes of cpp_fused_mul_sin_0: mul, sin`."""

_LEVEL = "trace.provenance_tracking_level"
_BASIC = 2
_HANDLE = re.compile(r"# \[Provenance debug handles\] (([\w.]+):\d+)$", re.MULTILINE)


@contextlib.contextmanager
def recorded_origins() -> Iterator[None]:
    """Lets Inductor record the nodes of the kernels that it generates in a `with` block."""
    level = _level()
    with contextlib.nullcontext() if level is None else config.patch({_LEVEL: level or _BASIC}):
        yield


def region_of_its_own() -> contextlib.AbstractContextManager[None]:
    """Keeps what is recorded for one region apart from that of others; nothing unless recorded."""
    reset = getattr(debug, "reset_provenance_globals", None)
    return reset() if reset is not None and _level() else contextlib.nullcontext()


def with_origins(compiled: Callable[..., Sequence[Any]], code: str) -> str:
    """Returns generated code with the nodes of each kernel in place of Inductor's own marks.

    Args:
        compiled: What Inductor returned.
        code: Its output code.
    """
    recorded = getattr(compiled, "inductor_provenance_mapping_str", None)
    nodes = json.loads(recorded).get("cppCodeToPost", {}) if recorded else {}
    return _HANDLE.sub(lambda m: f"{NODES}{m[2]}: {', '.join(sorted(nodes.get(m[1], ())))}", code)


def _level() -> int | None:
    """Returns how much Inductor records; None when this torch does not know the setting."""
    return getattr(config.trace, "provenance_tracking_level", None)
