"""Functions run in processes of their own, which may hang."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.zoo.workers import DiedError, results_of

pytestmark = pytest.mark.slow


class Unsendable(Exception):
    def __init__(self, one: str, two: str):
        super().__init__(f"{one} and {two}")


def counting(to: int, then: str) -> Iterator[int]:
    yield from range(to)
    if then == "hang":
        time.sleep(600)
    if then == "die":
        os._exit(3)
    if then == "raise what cannot be sent":
        raise Unsendable("one", "two")
    if then == "raise":
        raise ValueError("no more")


def test_values_come_one_by_one():
    assert list(results_of(counting, 3, "end", limit=60)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("then", "error", "message"),
    [
        ("hang", DiedError, "not done after 3 s"),
        ("die", DiedError, "status 3"),
        ("raise", ValueError, "no more"),
        ("raise what cannot be sent", RuntimeError, "Unsendable: one and two"),
    ],
)
def test_what_came_before_the_end_is_kept(then, error, message):
    list(results_of(counting, 0, "end", limit=60))  # the first process waits for imports
    found = []
    with pytest.raises(error, match=message):
        for value in results_of(counting, 2, then, limit=3):
            found.append(value)
    assert found == [0, 1]
