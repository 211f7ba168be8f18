"""Flags, levels and variables as Markdown tables, from which the documentation is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thunder.debug.flags import DebugFlag
from thunder.debug.levels import LEVELS
from thunder.debug.variables import VARIABLES


def flags_table() -> str:
    """Returns a row for each registered flag."""
    rows = [(f"`{flag.key}`", flag.doc) for flag in DebugFlag]
    return _table(("flag", "what it does"), rows)


def levels_table() -> str:
    """Returns a row for each level of `THUNDER_DEBUG`."""
    rows = [("`0` or empty", "", "Nothing.")]
    for level in LEVELS:
        words = ", ".join(f"`{word}`" for word in (str(level.number), *level.words))
        rows.append((words, f"`{level.flag.key}`", level.flag.doc))
    return _table(("level", "flag", "what it adds to the level before"), rows)


def variables_table() -> str:
    """Returns a row for each environment variable."""
    rows = [(f"`{v.name}`", v.values, v.default, v.help) for v in VARIABLES]
    return _table(("variable", "values", "default", "what it does"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
