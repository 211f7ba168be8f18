"""What an executor generated for a fusion, line by line: which kernel a line is of.

The only module that knows how Inductor's output code looks. Code of other executors is shown as it
is. Numbers of the process and paths of the machine are taken out.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from thunder.executors.kernel_origins import NODES
from thunder.trace.source_lines import relative_path

_GRAPH_NUMBER = re.compile(r"^# AOT ID: \['\d+_")
_KERNEL_PATH = re.compile(r"^(# kernel path: )(.+)$")
_FILE = re.compile(r"(# File: )(/[^:]+)(?=:\d+)")
_DEFINITION = re.compile(r"^(\w+) = async_compile\.(\w+)\(")
_CALL = re.compile(r"^\s+(?:\w+ = )?([A-Za-z_][\w.]*?)(?:\.run)?\(")
_FRAGMENT = re.compile(r"^#   %(\w+) : .*= call_function\[")
_SOURCE_NODES = re.compile(r"^\s*# (?:Topologically Sorted|Unsorted) Source Nodes:")


class Language(str, enum.Enum):
    """What a line of code is written in."""

    PYTHON = "python"
    TRITON = "triton"
    CPP = "cpp"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """One call of a kernel.

    Attributes:
        name: Such as `cpp_fused_add_sin_0`, or `extern_kernels.mm`.
        nodes: Names of the ATen nodes that it computes; empty where nothing tells.
    """

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelCode:
    """A fusion's generated code.

    Attributes:
        lines: The lines.
        languages: What each is written in.
        kernels: The calls of kernels, in order.
        owners: For each line, the indices of the kernels that it defines, calls or describes.
    """

    lines: tuple[str, ...]
    languages: tuple[Language, ...]
    kernels: tuple[Kernel, ...]
    owners: tuple[tuple[int, ...], ...]


def kernel_code(text: str) -> KernelCode:
    """Takes generated code apart.

    Args:
        text: The code, as `FusedRegion.kernels()` returns it.

    Example:
        >>> kernel_code("// ---- definition ----").kernels
        ()
    """
    lines = [_portable(line) for line in text.rstrip("\n").split("\n")]
    definitions, languages = _definitions(lines)
    calls = _calls(lines, definitions)
    fragments = {name: _fragment_nodes(lines, start) for name, (start, _) in definitions.items()}
    kernels = tuple(
        Kernel(name=name, nodes=tuple(nodes or fragments.get(name, ())))
        for name, _, _, nodes in calls
    )
    owners: list[tuple[int, ...]] = [()] * len(lines)
    for name, (start, end) in definitions.items():
        of_name = tuple(i for i, kernel in enumerate(kernels) if kernel.name == name)
        for line in range(start, end + 1):
            owners[line] = of_name
    for index, (_, start, end, _) in enumerate(calls):
        for line in range(start, end + 1):
            owners[line] = (index,)
    return KernelCode(
        lines=tuple(lines), languages=tuple(languages), kernels=kernels, owners=tuple(owners)
    )


def _portable(line: str) -> str:
    line = _GRAPH_NUMBER.sub("# AOT ID: ['", line)
    line = _KERNEL_PATH.sub(lambda found: found[1] + PurePath(found[2]).name, line)
    return _FILE.sub(lambda found: found[1] + relative_path(found[2]), line)


def _definitions(lines: Sequence[str]) -> tuple[dict[str, tuple[int, int]], list[Language]]:
    """Returns the first and last line of each kernel's definition, and the languages."""
    found: dict[str, tuple[int, int]] = {}
    languages = [Language.CPP if lines[0].startswith("//") else Language.PYTHON] * len(lines)
    start: int | None = None
    match: re.Match[str] | None = None
    for number, line in enumerate(lines):
        if match is None:
            match, start = _DEFINITION.match(line), number
        elif line.startswith("'''"):
            assert start is not None
            found[match[1]] = (start, number)
            inside = Language.CPP if match[2].startswith("cpp") else Language.TRITON
            languages[start + 1 : number + 1] = [inside] * (number - start)
            match = None
    return found, languages


def _calls(
    lines: Sequence[str], definitions: dict[str, tuple[int, int]]
) -> list[tuple[str, int, int, list[str]]]:
    """Returns name, first line (of comment), line of the call and nodes of each call."""
    found = []
    inside = {number for start, end in definitions.values() for number in range(start, end + 1)}
    for number, line in enumerate(lines):
        match = None if number in inside else _CALL.match(line)
        if match is None:
            continue
        start, nodes, named = number, [], None
        while start and (comment := lines[start - 1].strip()).startswith("#"):
            if comment.startswith(NODES):
                named, _, words = comment.removeprefix(NODES).partition(": ")
                nodes = words.split(", ") if words else []
            elif not _SOURCE_NODES.match(lines[start - 1]):
                break
            start -= 1
        if match[1] in definitions or named is not None:
            found.append((named or match[1], start, number, nodes))
    return found


def _fragment_nodes(lines: Sequence[str], start: int) -> list[str]:
    """Returns the nodes that the comments before a Triton kernel's definition list."""
    nodes: list[str] = []
    for number in range(start - 1, -1, -1):
        if not lines[number].startswith("#"):
            break
        if match := _FRAGMENT.match(lines[number]):
            nodes.append(match[1])
    return nodes[::-1]
