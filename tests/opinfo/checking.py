"""Turns what became of an operator's samples into a test's verdict and numbers."""

from __future__ import annotations

import pytest

from tests.opinfo.excuses import Excuse, read_excuses, unexcused
from tests.opinfo.running import Outcome

EXCUSES = read_excuses()


def check(name: str, outcome: Outcome, request: pytest.FixtureRequest) -> None:
    """Fails on what is not excused, and on an excuse that is not needed.

    Args:
        name: The operator's.
        outcome: Of all its samples.
        request: The test's; the numbers are left there for the summary.
    """
    _leave_numbers(outcome, request)
    wrong, stale = unexcused(outcome.failures, excuses_of(name))
    assert not wrong, "\n".join(str(failure) for failure in wrong)
    assert not stale, f"excused.txt: these pass now, take them out: {stale}"


def check_some(name: str, outcome: Outcome, request: pytest.FixtureRequest) -> None:
    """Fails on what is not excused; the excused samples need not be among these.

    Args:
        name: The operator's.
        outcome: Of some of its samples.
        request: The test's; the numbers are left there for the summary.
    """
    check_failures(name, outcome, request)
    assert outcome.counts["passed"] or outcome.counts["failed"], "nothing was compared"


def check_failures(name: str, outcome: Outcome, request: pytest.FixtureRequest) -> None:
    """Fails on what is not excused; there may be no sample, or none that aot_eager passes.

    Args:
        name: The operator's.
        outcome: Of some of its samples.
        request: The test's; the numbers are left there for the summary.
    """
    _leave_numbers(outcome, request)
    wrong, _ = unexcused(outcome.failures, excuses_of(name))
    assert not wrong, "\n".join(str(failure) for failure in wrong)


def excuses_of(name: str) -> list[Excuse]:
    return [excuse for excuse in EXCUSES if excuse.operator == name]


def _leave_numbers(outcome: Outcome, request: pytest.FixtureRequest) -> None:
    counts = dict(outcome.counts)
    counts["excused"] = counts.pop("failed", 0)
    request.node.user_properties.append(("samples", counts))
    request.node.user_properties.append(("by rule", outcome.by_rule))
