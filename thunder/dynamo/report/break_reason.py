"""Why Dynamo broke a graph, with the user's lines.

The only module that knows where torch says so.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch._dynamo.utils import (
    CompilationMetrics,
    get_compilation_metrics,
    graph_break_reasons,
)

from thunder.trace.source_lines import SourceLine, relative_path, users_function

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_FIELDS = {"Explanation": "explanation", "Hint": "hints"}
_JUMP = "generic_jump"


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakReason:
    """Why a graph ended before the function did.

    Attributes:
        reason: What Dynamo could not go on with, in one line.
        explanation: Why not; may be empty.
        hints: What to do about it.
        stack: The user's lines, outermost call first.
        count: How often the same break occurred.
        skipped: Whether a whole function runs uncompiled because of it, as with a break in a loop.
    """

    reason: str
    explanation: str = ""
    hints: tuple[str, ...] = ()
    stack: tuple[SourceLine, ...] = ()
    count: int = 1
    skipped: bool = False

    @property
    def source_line(self) -> SourceLine | None:
        """The innermost user line, or None when torch recorded none."""
        return self.stack[-1] if self.stack else None

    def __str__(self) -> str:
        """Returns the reason with its place, explanation, hints and callers."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        lines = [f"{self.reason}{times}"]
        lines += [f"  at {line}" for line in reversed(self.stack)]
        lines += [f"  why: {self.explanation}"] if self.explanation else []
        lines += ["  effect: the whole function runs uncompiled"] if self.skipped else []
        lines += [f"  hint: {hint}" for hint in self.hints]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON."""
        return {
            "reason": self.reason,
            "explanation": self.explanation,
            "hints": list(self.hints),
            "stack": [str(line) for line in self.stack],
            "count": self.count,
            "skipped": self.skipped,
        }


class BreakLog:
    """The breaks of one run.

    Attributes:
        reasons: One record for each different break, in the order of the program.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.reasons: list[BreakReason] = []


@contextmanager
def recorded_breaks() -> Iterator[BreakLog]:
    """Collects the breaks of what is compiled in a `with` block.

    Breaks before the first operator of a graph count too, which graphs themselves do not tell.
    """
    log = BreakLog()
    known = {id(reason): reason for reason in graph_break_reasons}
    frames = {id(frame): frame for frame in get_compilation_metrics()}
    try:
        yield log
    finally:
        fresh = [r for r in graph_break_reasons if id(r) not in known]
        found = [_break_reason(r.reason, map(_source_line, r.user_stack)) for r in fresh]
        failed = [f for f in get_compilation_metrics() if f.fail_reason and id(f) not in frames]
        found += [_skipped_frame(frame) for frame in failed]
        log.reasons = _counted(found)


def _skipped_frame(frame: CompilationMetrics) -> BreakReason:
    """Says why Dynamo gave up a function, of which no graph is left to tell."""
    file, number = frame.fail_user_frame_filename, frame.fail_user_frame_lineno or 0
    stack = ()
    if file:
        code = linecache.getline(file, number).strip()
        stack = (
            SourceLine(relative_path(file), number, users_function(frame.co_name or "?"), code),
        )
    return replace(_break_reason(frame.fail_reason or "", stack), skipped=True)


def _counted(reasons: Iterable[BreakReason]) -> list[BreakReason]:
    counts: dict[BreakReason, int] = {}
    last: BreakReason | None = None
    for reason in reasons:
        if last is None or not _is_same_deeper_in(reason, last):
            counts[reason] = counts.get(reason, 0) + 1
        last = reason
    return [replace(reason, count=count) for reason, count in counts.items()]


def _is_same_deeper_in(reason: BreakReason, last: BreakReason) -> bool:
    """Whether Dynamo, which tries a called function again by itself, only met a break again."""
    depth = len(reason.stack)
    return (
        reason.reason == last.reason
        and 0 < depth < len(last.stack)
        and (reason.stack == last.stack[-depth:])
    )


def _break_reason(text: str, stack: Iterable[SourceLine]) -> BreakReason:
    head, *rest = [_ADDRESS.sub("0x...", line.strip()) for line in text.strip().splitlines()] or [
        "unknown"
    ]
    found: dict[str, list[str]] = {"explanation": [], "hints": []}
    for line in rest:
        label, colon, words = line.partition(": ")
        if colon and label in _FIELDS:
            found[_FIELDS[label]].append(words.strip())
    if head.startswith(_JUMP):
        head, found = _jump(head)
    return BreakReason(
        reason=head,
        explanation=" ".join(found["explanation"]),
        hints=tuple(found["hints"]),
        stack=tuple(stack),
    )


def _jump(head: str) -> tuple[str, dict[str, list[str]]]:
    """Puts into words what torch gives as the name of an internal function."""
    return f"Data-dependent branch ({head})", {
        "explanation": ["the value of a tensor decides which way the program goes"],
        "hints": ["use torch.where or torch.cond, or take the branch out of the compiled function"],
    }


def _source_line(frame: Any) -> SourceLine:
    return SourceLine(
        relative_path(frame.filename),
        int(frame.lineno or 0),
        users_function(frame.name),
        (frame.line or "").strip(),
    )
