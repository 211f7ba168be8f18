"""What a long report run shows in a terminal: progress while it lasts, a table at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from thunder.benchmark import ProgressHook, RichProgress
from thunder.dynamo.report.benchmark_report import BenchmarkReport

_WIDTH_IN_FILES = 120
_NO_LIMIT = 10_000


@final
class Display:
    """A progress display, and the report that it ends with.

    Attributes:
        progress: The display.
        report: The report, once there is one.
    """

    def __init__(self, progress: Progress) -> None:
        """Keeps the display."""
        self.progress = progress
        self.report: BenchmarkReport | None = None


@contextlib.contextmanager
def shown_report(show: bool) -> Iterator[Display]:
    """Shows progress in a `with` block, and a report's table after it.

    Args:
        show: Whether to show anything.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not show, transient=True) as progress:
        display = Display(progress)
        yield display
    if show and display.report is not None:
        _print_table(display.report)


def _print_table(report: BenchmarkReport) -> None:
    console = Console()
    # A file has no width, and what Rich takes for it is too narrow for names and numbers.
    width = console.width if console.is_terminal else _WIDTH_IN_FILES
    table = report.table()
    unlimited = console.options.update(width=_NO_LIMIT)
    if console.measure(table, options=unlimited).minimum > width:
        table = report.table(narrow=True)
    console.print(table, width=width)


@contextlib.contextmanager
def task(display: Display, title: str) -> Iterator[ProgressHook]:
    """Shows one region's progress in a `with` block.

    Args:
        display: Where.
        title: The region's name.
    """
    number = display.progress.add_task(escape(title), total=1.0)
    try:
        yield RichProgress(display.progress, number, title)
    finally:
        display.progress.remove_task(number)
