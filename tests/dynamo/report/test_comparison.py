"""`compare_reports`: what became slower, larger, wrong or split, told from noise."""

from __future__ import annotations

import random

import pytest

from thunder.benchmark import (
    BenchmarkResult,
    Failure,
    Measurement,
    Outcome,
    Status,
)
from thunder.dynamo.report import (
    BenchmarkReport,
    Change,
    Level,
    RegionRecord,
    compare_reports,
)


def outcome(name, seconds, *, peak=None, status=Status.MEASURED, seed=0):
    generator = random.Random(f"{name} {seed}")
    samples = tuple(seconds * generator.gauss(1, 0.01) for _ in range(60))
    measurement = Measurement(name=name, timer="wall time", samples=samples, peak_bytes=peak)
    return Outcome(name=name, status=status, measurement=measurement)


def report(thunder=1e-3, eager=2e-3, *, peak=None, breaks=(), **fields):
    status = fields.pop("status", Status.MEASURED)
    seed = fields.pop("seed", 0)
    outcomes = (
        outcome("thunder", thunder, peak=peak, status=status, seed=seed),
        outcome("eager", eager, seed=seed),
    )
    region = RegionRecord(
        name="graph0",
        level=Level.GRAPH,
        executor=fields.pop("executor", "thunder"),
        operators={},
        subject="thunder",
        result=BenchmarkResult(compute="forward", outcomes=outcomes),
        **fields,
    )
    environment = {"torch": "2.13"}
    return BenchmarkReport(program="f", environment=environment, breaks=breaks, regions=(region,))


def changes(old, new):
    return [change.change for change in compare_reports(old, new).changes]


def break_at(line):
    return {"reason": "no", "stack": [f"f.py:{line} in f: g()"], "hints": [], "count": 1}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (report(seed=1), []),
        (report(1.05e-3, seed=1), []),
        (report(1.3e-3, seed=1), [Change.SLOWER]),
        (report(1.3e-3, 2.6e-3, seed=1), [Change.MACHINE_SLOWER]),
        (report(0.7e-3, seed=1), [Change.FASTER]),
        (report(status=Status.INACCURATE), [Change.WRONG]),
        (report(failure=Failure(kind="E", message="m")), [Change.FAILS]),
        (report(split_reasons=("excluded op: sinc",)), [Change.SPLIT]),
        (report(executor="inductor"), [Change.MOVED]),
        (report(breaks=[break_at(3)]), [Change.BREAK]),
    ],
)
def test_kinds_of_change(new, expected):
    assert changes(report(), new) == expected


def test_and_back():
    wrong = report(status=Status.INACCURATE)
    assert changes(wrong, report()) == [Change.RIGHT]
    assert changes(report(split_reasons=("why",)), report()) == [Change.NOT_SPLIT]
    assert changes(report(breaks=[break_at(3)]), report()) == [Change.NO_BREAK]
    assert changes(report(failure=Failure(kind="E", message="m")), report()) == [Change.WORKS]


def test_memory():
    assert changes(report(peak=1000), report(peak=2000)) == [Change.LARGER]
    assert changes(report(peak=2000), report(peak=1000)) == [Change.SMALLER]
    assert changes(report(peak=1000), report(peak=1050)) == []


def test_break_that_only_moved_is_the_same():
    assert changes(report(breaks=[break_at(3)]), report(breaks=[break_at(30)])) == []


def test_noise_raises_no_alarm():
    alarms = [changes(report(seed=2 * i), report(seed=2 * i + 1)) for i in range(100)]
    assert sum(map(bool, alarms)) <= 1


def test_worst_first_with_numbers_and_versions():
    new = report(1.5e-3, breaks=[break_at(1)], split_reasons=("why",), seed=1)
    compared = compare_reports(report(), new)
    assert [change.change for change in compared.regressions] == [
        Change.SLOWER,
        Change.SPLIT,
        Change.BREAK,
    ]
    assert "1.5" in compared.changes[0].details
    assert "3 changed for the worse" in str(compared)
    assert compared.to_json()["changes"][0]["regression"] is True
