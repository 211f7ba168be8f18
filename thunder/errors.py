"""Every error class of the package.

A message says what happened, where, and what to do next. Nothing in this module imports the
rest of the package, so every layer can raise these.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class ThunderError(Exception):
    """Base class of everything this package raises on purpose."""


class OptionError(ThunderError, TypeError):
    """An option is unknown, belongs elsewhere, or has a value that is not accepted."""


class NotCallableError(ThunderError, TypeError):
    """Something that cannot be called was given to be compiled."""


class NotCompiledError(ThunderError, RuntimeError):
    """A helper was asked about a callable that has not been compiled or called yet."""


class UnsupportedEnvironmentError(ThunderError, RuntimeError):
    """The environment cannot run the package: wrong torch version, or two `thunder` packages."""


class GraphBreakError(ThunderError, RuntimeError):
    """`thunder.jit` was given a function that Dynamo cannot capture as one graph."""


class TransformError(ThunderError, RuntimeError):
    """A transform failed or broke its contract; names it and the passes that ran before it."""


class SplitError(ThunderError, RuntimeError):
    """A captured graph could not be divided into regions; names the graph and the cause."""


class AutogradError(ThunderError, RuntimeError):
    """AOTAutograd could not trace a region; names the region and the cause."""


class ExecutorError(ThunderError, RuntimeError):
    """An executor failed to claim, to compile, or to return what its region promises."""


class UnrepeatableRunError(ExecutorError):
    """A graph failed after it had communicated, so one rank alone cannot run it in another way."""


class ReproducerError(ThunderError, RuntimeError):
    """A reproducer could not be written, verified or run."""


class BenchmarkError(ThunderError, RuntimeError):
    """A benchmark cannot be set up, or its results cannot be read."""


class ContestantError(BenchmarkError):
    """A contestant failed while it was timed; the cause is what it raised.

    Attributes:
        contestant: Its name.
    """

    def __init__(self, message: str, *, contestant: str) -> None:
        """Keeps the name beside the message."""
        super().__init__(message)
        self.contestant = contestant


class DebugFlagError(ThunderError, ValueError):
    """A debug flag or a `THUNDER_*` variable is unknown or has a value that is not accepted."""


class FallbackWarning(UserWarning):
    """A region could not be compiled or run as asked for and goes on in a plainer way."""


_REPRODUCER = "_thunder_reproducer"


def reproducer_of(error: BaseException) -> object | None:
    """Returns the reproducer that the message of an error, or of one that led to it, names.

    Args:
        error: The error.

    Returns:
        The script's path; None when there is none.
    """
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        if _REPRODUCER in following.__dict__:
            return following.__dict__[_REPRODUCER]
        seen.add(id(following))
        # Dynamo cuts the chain and keeps what a backend raised aside.
        aside = getattr(following, "inner_exception", None)
        following = following.__cause__ or following.__context__ or aside
    return None


def end_with_reproducer(error: BaseException) -> bool:
    """Says once more where the reproducer is when something else comes after it in the message.

    Dynamo quotes what a backend raised and adds a paragraph of its own.

    Args:
        error: The error, about to be raised again.

    Returns:
        Whether there is a reproducer.
    """
    reproducer = reproducer_of(error)
    if reproducer is not None and not str(error).rstrip().endswith(str(reproducer)):
        add_to_message(error, reproducer)
    return reproducer is not None


def without_frames(error: BaseException) -> None:
    """Lets go of the frames that an exception went through, and of those of its causes.

    An exception that is kept for reports would keep every tensor in them. Its text stays.

    Args:
        error: An exception that nobody will raise again.
    """
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            current.__traceback__ = None
            pending += [current.__cause__, current.__context__]


def add_to_message(error: BaseException, reproducer: object) -> None:
    """Adds where the reproducer of a failure is to the error's message.

    Args:
        error: The error, about to be raised.
        reproducer: The script's path; None leaves the message alone.
    """
    if reproducer is None:
        return
    note = f"Reproducer: {reproducer}"
    error.__dict__[_REPRODUCER] = reproducer
    if error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])
    elif sys.version_info >= (3, 11):
        error.add_note(note)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name closest to `name`, or None when nothing is close.

    Args:
        name: What the user wrote.
        known: The names that exist.
    """
    matches = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
