"""The head of a script: what it is, what made it, how to run it, what running it showed.

All of it is comments, one line each, so that no text of a program can become code.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from thunder.trace.printer import inert
from thunder.trace.source_lines import relative_path

_SECRET = re.compile(r"(token|secret|passw|credential|api[-_]?key|auth)", re.IGNORECASE)
_LONGEST_COMMAND = 300
_LONGEST_LINE = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What the head of a script says.

    Attributes:
        title: What the script is, in one line.
        command: The command that made it, or None.
        environment: Versions and devices.
        verdict: What running it showed.
        expected: How it should end.
        compilers: Names of the ways to compile that it runs.
        split_reasons: Why the graph was cut where it was.
        missing: What could not be written down.
        notes: Further sentences.
        usage: Command lines and what they do.
    """

    title: str
    command: str | None
    environment: str
    verdict: str
    expected: str
    compilers: Sequence[str] = ()
    split_reasons: Sequence[str] = ()
    missing: Sequence[str] = ()
    notes: Sequence[str] = ()
    usage: Sequence[tuple[str, str]] = ()

    def lines(self) -> Iterator[str]:
        """Yields the comment lines."""
        yield from _lines("", [self.title])
        yield "#"
        yield from _lines("Made by: ", [self.command] if self.command else [])
        yield from _lines("With: ", [self.environment])
        yield from _lines("Compares: " if len(self.compilers) > 1 else "Runs: ", self._compilers())
        yield from _lines("Expected: ", [self.expected])
        yield verdict_line(self.verdict)
        yield from _lines("Split because: ", self.split_reasons)
        yield from _lines("FILL IN: ", self.missing)
        if self.missing:
            yield "#     (marked below; until then it may fail in another way than the original)"
        yield from _lines("Note: ", self.notes)
        yield "#"
        width = max((len(command) for command, _ in self.usage), default=0)
        yield from (f"#   {command:<{width}}  {meaning}" for command, meaning in self.usage)

    def _compilers(self) -> list[str]:
        return [", ".join(self.compilers)] if self.compilers else []


def verdict_line(verdict: str) -> str:
    """Returns the line of a header that states a verdict."""
    return f"# Verdict: {inert(verdict)[:_LONGEST_LINE]}"


def with_verdict(text: str, verdict: str) -> str:
    """Returns the text of a script with another verdict in its header.

    Args:
        text: The script.
        verdict: What running it showed.
    """
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if not line.startswith("#"):
            break
        if line.startswith("# Verdict: "):
            lines[index] = verdict_line(verdict)
            break
    return "\n".join(lines)


def command_line() -> str | None:
    """Returns the command that started this program, without what names this machine.

    Returns:
        The command; None in a notebook, whose command says nothing. Values of options whose
        names speak of tokens or passwords are left out.
    """
    if "ipykernel" in sys.modules:
        return None
    parts = ["python", *sys.orig_argv[1:]]
    shown: list[str] = []
    for index, part in enumerate(parts):
        name, equals, value = part.partition("=")
        if equals and _SECRET.search(name):
            shown.append(f"{name}=...")
        elif index and _asks_for_secret(parts[index - 1]):
            shown.append("...")
        elif equals and os.path.isabs(value):  # noqa: PTH117 - plain text, not a path of ours
            shown.append(f"{name}={Path(value).name}")
        else:
            shown.append(relative_path(part))
    command = inert(shlex.join(shown))
    short = command[:_LONGEST_COMMAND]
    return short if short == command else f"{short} ..."


def _asks_for_secret(option: str) -> bool:
    return option.startswith("-") and "=" not in option and bool(_SECRET.search(option))


def _lines(label: str, texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        line = inert(text)
        yield f"# {label}{line[:_LONGEST_LINE]}{' ...' if len(line) > _LONGEST_LINE else ''}"
