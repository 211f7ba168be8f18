"""How a command ends: the exit statuses, for CI."""

from __future__ import annotations

import enum


class ExitStatus(enum.IntEnum):
    """How a command ended."""

    OK = 0
    """Nothing to complain about."""

    FOUND = 1
    """It worked, and found what `--fail-on`, or the command by itself, counts as a failure."""

    USAGE = 2
    """It could not do what was asked: wrong arguments, a missing file, a program that fails."""

    INTERRUPTED = 130
    """Ctrl-C."""
