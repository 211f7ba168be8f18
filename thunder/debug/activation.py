"""Which flags are on for the compile in progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from thunder.debug.flags import DebugFlag, DebugLike, find_flag, resolve
from thunder.debug.variables import DEBUG

_active: ContextVar[frozenset[DebugFlag]] = ContextVar("thunder_debug_flags", default=frozenset())


@contextmanager
def active(debug: DebugLike) -> Iterator[None]:
    """Turns flags on for a `with` block of this thread, in place of those of an outer block.

    Args:
        debug: As in a `debug=` option. What `THUNDER_DEBUG` asks for is on as well.

    Raises:
        DebugFlagError: A name is unknown.

    Example:
        >>> from thunder.debug import DebugFlag, active, enabled
        >>> with active("trace"):
        ...     enabled(DebugFlag.TRACE), enabled(DebugFlag.FUSION_CODE)
        (True, False)
    """
    token = _active.set(resolve(debug))
    try:
        yield
    finally:
        _active.reset(token)


def enabled(flag: DebugFlag | str) -> bool:
    """Tells whether a flag is on for the compile in progress.

    Args:
        flag: A flag or its name.

    Raises:
        DebugFlagError: The name is unknown.
    """
    wanted = find_flag(flag) if isinstance(flag, str) else flag
    return wanted in _active.get() or wanted.key in DEBUG.read()


def active_flags() -> frozenset[DebugFlag]:
    """Returns every registered flag that is on, by the compile's options or `THUNDER_DEBUG`."""
    return frozenset(flag for flag in DebugFlag if enabled(flag))
