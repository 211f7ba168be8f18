"""Every `THUNDER_*` environment variable: its values, default and meaning.

This is the only place that reads them. A variable is read when its value is needed, so that a
program may also set it; `parse_environment` reads them all once at import, so that a mistake
shows at once and not an hour into a run. To add one, add it to `VARIABLES`.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from thunder.debug.levels import parse_levels
from thunder.errors import DebugFlagError

Value = TypeVar("Value")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable(Generic[Value]):
    """An environment variable.

    Attributes:
        name: Its name.
        values: What values it takes, in words.
        default: What an empty or missing value means, in words.
        help: What it does, in one or two sentences.
        parse: Turns its text, empty when missing, into its value; raises `DebugFlagError` with
            the reason when it cannot.
    """

    name: str
    values: str
    default: str
    help: str
    parse: Callable[[str], Value]

    def read(self) -> Value:
        """Returns the value that the variable has now.

        Raises:
            DebugFlagError: The value is not accepted; says which are.
        """
        text = os.environ.get(self.name, "").strip()
        try:
            return self.parse(text)
        except DebugFlagError as error:
            raise DebugFlagError(f"{self.name}={text!r}: {error}") from None

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Gives the variable back what it was, whatever was written to it meanwhile."""
        before = os.environ.get(self.name)
        try:
            yield
        finally:
            os.environ.pop(self.name, None)
            if before is not None:
                os.environ[self.name] = before


def _folder(text: str) -> Path | None:
    try:
        return Path(text).expanduser() if text else None
    except RuntimeError as error:  # ~ of a user that does not exist
        raise DebugFlagError(f"{error}; name a folder") from error


def _switch(text: str) -> bool:
    if text.lower() in ("", "on", "1"):
        return True
    if text.lower() in ("off", "0"):
        return False
    raise DebugFlagError("it takes on or off")


DEBUG = Variable(
    name="THUNDER_DEBUG",
    values="levels, level names and flag names, separated by commas",
    default="`0`, off",
    help="What every compile of the process writes for you to look at.",
    parse=parse_levels,
)
DEBUG_DIR = Variable(
    name="THUNDER_DEBUG_DIR",
    values="a folder",
    default="`./thunder_debug/<time>-<pid>`",
    help="Where debug output and the reproducers of failures go; made at the first write.",
    parse=_folder,
)
REPRODUCERS = Variable(
    name="THUNDER_REPRODUCERS",
    values="`on` or `off`",
    default="`on`",
    help="Whether a failure leaves a script that fails the same way; scripts switch it off.",
    parse=_switch,
)
CACHE_DIR = Variable(
    name="THUNDER_CACHE_DIR",
    values="a folder",
    default="`$XDG_CACHE_HOME/thunder` or `~/.cache/thunder`",
    help="Where the verdicts of `contest=` are kept from one process to the next.",
    parse=_folder,
)
VARIABLES: tuple[Variable[Any], ...] = (DEBUG, DEBUG_DIR, REPRODUCERS, CACHE_DIR)


def parse_environment() -> None:
    """Reads every variable once, to find mistakes.

    Raises:
        DebugFlagError: A value is not accepted; says which are.

    Example:
        >>> from thunder.debug import parse_environment
        >>> parse_environment()
    """
    for variable in VARIABLES:
        variable.read()
    known = [variable.name for variable in VARIABLES]
    for name in sorted(set(os.environ).difference(known)):
        # Others may have THUNDER_* variables too; only what looks like a slip is worth a word.
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
        if name.startswith("THUNDER_") and close:
            _log.warning(
                "%s is set, but is no variable of thunder's; did you mean %s?", name, *close
            )
