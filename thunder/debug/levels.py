"""The words of `THUNDER_DEBUG`: levels, their names, and the names of other flags.

A word that names a level stands for all that the level shows, so it includes the levels below it;
`debug=`, in contrast, takes single flags.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.metadata import entry_points

from thunder.debug.flags import DebugFlag, find_flag, known_names
from thunder.errors import DebugFlagError, nearest

ENTRY_POINTS = "thunder.debug_flags"
"""The entry-point group in which installed packages announce the names of their flags."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """One step of `THUNDER_DEBUG`.

    Attributes:
        number: The level; it includes those below it.
        words: Its names, the customary one first.
        flag: What it adds to the level below.
    """

    number: int
    words: tuple[str, ...]
    flag: DebugFlag


LEVELS = (
    Level(number=1, words=("trace",), flag=DebugFlag.TRACE),
    Level(number=2, words=("nvfuser_region", "fusion_region"), flag=DebugFlag.FUSION_REGION),
    Level(number=3, words=("nvfuser_code", "fusion_code"), flag=DebugFlag.FUSION_CODE),
    Level(number=4, words=("torch_compile_debug",), flag=DebugFlag.TORCH_COMPILE_DEBUG),
)


@functools.lru_cache(maxsize=16)
def parse_levels(text: str) -> frozenset[str]:
    """Returns the keys of the flags that a value of `THUNDER_DEBUG` turns on.

    They are keys and not flags because an extension may register its flags later.

    Args:
        text: Levels, their names and names of flags, separated by commas; empty for none.

    Raises:
        DebugFlagError: A word is unknown; the message lists the valid ones.

    Example:
        >>> from thunder.debug.levels import parse_levels
        >>> sorted(parse_levels("2,check_trace"))
        ['CHECK_TRACE', 'FUSION_REGION', 'TRACE']
    """
    words = [word.strip() for word in text.split(",")]
    return frozenset(key for word in words if word for key in _keys(word))


def flag_words() -> list[str]:
    """Returns the names of flags that are no level."""
    levels = {level.flag for level in LEVELS}
    own = [name for name in known_names() if find_flag(name) not in levels]
    return [*own, *(name for name in announced_names() if name not in own)]


def announced_names() -> list[str]:
    """Returns the flags that installed packages announce, registered or not, sorted."""
    points = entry_points(group=ENTRY_POINTS)
    return sorted({point.name.lower().replace("-", "_") for point in points})


def _keys(typed: str) -> list[str]:
    word = typed.lower().replace("-", "_")
    if word == "0":
        return []
    for level in LEVELS:
        if word == str(level.number) or word in level.words:
            return [below.flag.key for below in LEVELS if below.number <= level.number]
    if word in flag_words():
        return [word.upper()]
    raise DebugFlagError(_unknown(typed, word))


def _unknown(typed: str, word: str) -> str:
    flags = flag_words()
    close = nearest(word, [*flags, *(name for level in LEVELS for name in level.words)])
    hint = f"; did you mean {close!r}?" if close else "."
    levels = ", ".join(" or ".join((str(level.number), *level.words)) for level in LEVELS)
    return (
        f"{typed!r} is neither a level nor a debug flag{hint} "
        f"Levels, each including those below it: 0 (off), {levels}. "
        f"Flags: {', '.join(flags)}. Combine with commas"
    )
