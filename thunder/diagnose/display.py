"""Says on the standard error how far a search has come."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import final

from rich.console import Console
from rich.markup import escape
from rich.status import Status


@final
class Display:
    """A line that changes on a terminal; one line a step anywhere else; nothing when it is off."""

    def __init__(self, *, on: bool, console: Console | None = None) -> None:
        """Makes a display.

        Args:
            on: Whether it shows anything.
            console: Where; by default the standard error.
        """
        self._console = console or Console(stderr=True, highlight=False)
        self._on = on
        self._status: Status | None = None
        self._started = time.monotonic()

    @contextlib.contextmanager
    def shown(self, first: str) -> Iterator[None]:
        """Shows the display for a `with` block."""
        live = self._console.is_terminal and not self._console.is_dumb_terminal
        if self._on and live:
            with self._console.status(escape(first)) as self._status:
                yield
            self._status = None
            return
        self.say(first)
        yield

    def say(self, words: str) -> None:
        """Shows where the search is."""
        if not self._on:
            return
        seconds = time.monotonic() - self._started
        line = f"minimize: {words} ({seconds:.0f} s)"
        if self._status is not None:
            self._status.update(escape(line))
        else:
            self._console.print(line, markup=False, soft_wrap=True)
