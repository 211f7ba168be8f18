"""Searches for programs that thunder gets wrong, and shrinks what it finds."""

from __future__ import annotations

from collections import Counter

import hypothesis
from hypothesis import HealthCheck, settings

from tests.fuzz.judging import Compile, by_thunder, judge
from tests.fuzz.programs import Program, programs


def search(*, seed: int, number: int, compile: Compile = by_thunder) -> Counter[str]:
    """Tries programs.

    Args:
        seed: Which ones; the same ones each time.
        number: How many.
        compile: The compiler that is tried.

    Returns:
        What became of them.

    Raises:
        AssertionError: One is wrong; the message is its source, as short as Hypothesis made it.
    """
    counts: Counter[str] = Counter()

    @hypothesis.seed(seed)
    @settings(
        max_examples=number,
        derandomize=False,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(programs())
    def is_right(program: Program) -> None:
        counts["programs"] += 1
        problem = judge(*program.build(), counts, compile)
        assert problem is None, f"{problem}\n\n{program!r}"

    is_right()
    return counts
