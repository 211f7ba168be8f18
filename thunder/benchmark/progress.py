"""How long work says where it is: events to a callback, which may show them.

Nothing here prints. `RichProgress` moves a task of a `rich.progress.Progress` that the caller
owns and displays.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from rich.markup import escape
from rich.progress import Progress, TaskID


class Step(enum.Enum):
    """What a benchmark is doing."""

    INPUTS = "making inputs"
    REFERENCE = "running eager"
    COMPILE = "compiling and checking"
    WARM_UP = "warming up"
    MEASURE = "measuring"
    DONE = "done"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressEvent:
    """One sign of life.

    Attributes:
        step: What is being done.
        fraction: How much of the step is over, from 0 to 1.
        contestant: Which contestant it is about; empty when it is about all.
    """

    step: Step
    fraction: float = 0.0
    contestant: str = ""

    def __str__(self) -> str:
        """Returns words for a progress bar."""
        return f"{self.step.value} {self.contestant}".rstrip()


ProgressHook = Callable[[ProgressEvent], None]
"""Called on every sign of life, between rounds of measurement, never within one."""


def ignore_progress(event: ProgressEvent) -> None:
    """A hook that does nothing."""
    del event


@final
class RichProgress:
    """A hook that moves one task of a progress display.

    Example:
        >>> from rich.progress import Progress
        >>> display = Progress()
        >>> hook = RichProgress(display, display.add_task("graph 0", total=1.0), "graph 0")
        >>> hook(ProgressEvent(step=Step.MEASURE, fraction=0.25))
        >>> display.tasks[0].description, display.tasks[0].completed
        ('graph 0: measuring', 0.25)
    """

    def __init__(self, display: Progress, task: TaskID, title: str) -> None:
        """Makes the hook.

        Args:
            display: The caller's display.
            task: A task of it whose total is 1.
            title: What stands before the step.
        """
        self._display = display
        self._task = task
        self._title = title

    def __call__(self, event: ProgressEvent) -> None:
        """Shows the event."""
        done = 1.0 if event.step is Step.DONE else event.fraction
        words = escape(f"{self._title}: {event}")
        self._display.update(self._task, description=words, completed=done)
