"""Ctrl-C that ends the long parts of a search, and not the short ones that keep its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def completed(step: Callable[[], Result]) -> tuple[Result, bool]:
    """Takes a short step even if Ctrl-C comes meanwhile: it is then taken once more.

    Args:
        step: What is done; it may be done twice, the first time in part.

    Returns:
        Its result, and whether Ctrl-C came.

    Raises:
        KeyboardInterrupt: Ctrl-C came a second time.

    Example:
        >>> completed(lambda: 3)
        (3, False)
    """
    try:
        return step(), False
    except KeyboardInterrupt:
        return step(), True
