"""Where in the user's program a node comes from.

Reads the `stack_trace` that Dynamo and AOTAutograd keep on nodes. The line cited is the
innermost one outside torch, never generated code, and paths are made relative so that two
machines print the same.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import fx
from torch.fx.graph import _parse_stack_trace

_TORCH_FOLDER = str(Path(torch.__file__).parent) + os.sep
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of the user's program.

    Attributes:
        file: Path, relative to the working directory or to the folder it is imported from.
        line: Line number, from 1.
        function: Name of the enclosing function.
        code: The text of the line, stripped; may be empty.
    """

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        """Gives `file:line in function: code`."""
        head = f"{self.file}:{self.line} in {self.function}"
        return f"{head}: {self.code}" if self.code else head


def source_line(node: fx.Node) -> SourceLine | None:
    """Returns the user's line that `node` comes from, or None when none was recorded."""
    stack_trace = node.meta.get("stack_trace")
    return parse_stack_trace(stack_trace) if stack_trace else None


@functools.lru_cache(maxsize=4096)
def parse_stack_trace(stack_trace: str) -> SourceLine | None:
    """Picks the user's line out of a stack trace.

    Args:
        stack_trace: Text in the form of Python's tracebacks, innermost frame last.

    Returns:
        The innermost frame outside torch; a frame of torch when there is no other; None when
        every frame is generated code.
    """
    frame = _parse_stack_trace(stack_trace, _is_user_frame) or _parse_stack_trace(
        stack_trace, _is_file_frame
    )
    if frame is None:
        return None
    function = users_function(frame.name)
    return SourceLine(relative_path(frame.file), int(frame.lineno), function, frame.code)


def users_function(name: str) -> str:
    """Returns the name of the user's function that a frame belongs to.

    Args:
        name: The frame's name. What comes after a graph break is in a function that Dynamo makes
            and names after the user's.

    Example:
        >>> users_function("torch_dynamo_resume_in_forward_at_12")
        'forward'
    """
    resumed = _RESUMED.fullmatch(name)
    return users_function(resumed[1]) if resumed else name


def relative_path(file: str) -> str:
    """Makes `file` independent of where the program and its packages are installed.

    Args:
        file: A path as tracebacks give it.

    Returns:
        The path below the working directory or below the innermost folder of `sys.path` that
        holds it; the bare file name when neither does.
    """
    if not os.path.isabs(file):  # noqa: PTH117 (a plain string test on a hot path)
        return file
    roots = [entry for entry in sys.path if os.path.isabs(entry)]  # noqa: PTH117 (as above)
    below = [root for root in roots if file.startswith(root.rstrip(os.sep) + os.sep)]
    if below:
        return file[len(max(below, key=len).rstrip(os.sep)) + 1 :]
    here = str(Path.cwd()) + os.sep
    return file[len(here) :] if file.startswith(here) else Path(file).name


def _is_file_frame(file: str, name: str, code: str) -> bool:
    del name, code
    return not file.startswith("<")


def _is_user_frame(file: str, name: str, code: str) -> bool:
    return _is_file_frame(file, name, code) and not file.startswith(_TORCH_FOLDER)
