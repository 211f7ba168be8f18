"""Records print, and go to JSON and back."""

from __future__ import annotations

import json
import math

import pytest
from rich.progress import Progress

from thunder.benchmark import (
    BenchmarkResult,
    Comparison,
    Failure,
    Measurement,
    Outcome,
    ProgressEvent,
    RichProgress,
    Status,
    Step,
    Verdict,
    read_results,
)
from thunder.benchmark.records import RESULT_PREFIX, format_bytes, format_seconds
from thunder.errors import BenchmarkError
from thunder.trace.accuracy import AccuracyVerdict, Distance, OutputVerdict

MEASUREMENT = Measurement(
    name="torch.compile",
    timer="wall time",
    samples=(1.25e-5, 1.5e-5, 1e-5, 2e-5),
    calls=80,
    warm_up_rounds=8,
    peak_bytes=5 << 20,
)
COMPARISON = Comparison(
    baseline="torch.compile",
    candidate="thunder",
    ratio=0.93,
    low=0.91,
    high=0.95,
    confidence=0.95,
    threshold=0.03,
    verdict=Verdict.FASTER,
    rounds=40,
)
WRONG = AccuracyVerdict(
    outputs=(
        OutputVerdict(
            name="['outputs']",
            description="float32[3]",
            accurate=False,
            reason="is further",
            eager=Distance(),
            compiled=Distance(rms=1.0, largest=math.inf),
        ),
    ),
    note="a note",
)
RESULT = BenchmarkResult(
    compute="forward",
    outcomes=(
        Outcome(
            name="torch.compile",
            status=Status.MEASURED,
            compile_seconds=1.5,
            accuracy=AccuracyVerdict(outputs=()),
            measurement=MEASUREMENT,
            warnings=("gave up on region 0",),
        ),
        Outcome(name="thunder", status=Status.INACCURATE, accuracy=WRONG),
        Outcome(
            name="other",
            status=Status.FAILED,
            failure=Failure(kind="builtins.X", message="why 'so'", error=KeyError("x")),
        ),
        Outcome(name="last", status=Status.NOT_RUN),
    ),
    comparisons=(COMPARISON,),
    interrupted=True,
)


def through_json(record):
    return json.loads(json.dumps(record.to_json(), allow_nan=False))


def test_round_trips():
    assert BenchmarkResult.from_json(through_json(RESULT)) == RESULT
    assert Measurement.from_json(through_json(MEASUREMENT)) == MEASUREMENT


def test_open_intervals_round_trip():
    open_ended = Comparison(
        **{**{name: getattr(COMPARISON, name) for name in COMPARISON.__slots__}, "high": math.inf}
    )
    assert Comparison.from_json(through_json(open_ended)) == open_ended
    data = {**through_json(open_ended), "ratio": None, "rounds": 0}
    assert math.isnan(Comparison.from_json(data).ratio)
    assert "not timed" in str(Comparison.from_json(data))


def test_samples_are_rounded():
    long = Measurement(name="f", timer="wall time", samples=(1 / 3e5,))
    assert long.to_json()["samples"] == [3.3333e-06]


def test_measurement():
    assert MEASUREMENT.median == 1.375e-5
    assert MEASUREMENT.quartiles == pytest.approx((1.1875e-5, 1.625e-5))
    assert str(MEASUREMENT) == (
        "torch.compile: 13.8 us a call (middle half 11.9 us to 16.3 us, 4 x 80 calls, wall time, "
        "peak 5 MiB)"
    )
    empty = Measurement(name="f", timer="wall time", samples=())
    assert math.isnan(empty.median)
    assert str(empty) == "f: no sample"
    falling = Measurement(name="f", timer="wall time", samples=(1.0,), steady=False)
    assert "still warming up" in str(falling)


def test_comparison_in_words():
    assert str(COMPARISON) == (
        "thunder vs torch.compile: 0.930 x the time (95 % interval 0.910 to 0.950, 40 rounds): "
        "faster"
    )
    fields = {name: getattr(COMPARISON, name) for name in COMPARISON.__slots__}
    undecided = Comparison(
        **{
            **fields,
            "verdict": Verdict.UNDECIDED,
            "high": math.inf,
            "seconds_to_resolve": 12.3,
            "confidence": 0.995,
        }
    )
    assert str(undecided) == (
        "thunder vs torch.compile: 0.930 x the time (99.5 % interval 0.910 to inf, 40 rounds): "
        "no difference shown, would need about 12.3 s more to resolve 3 %"
    )
    assert Verdict.FASTER.shows_difference
    assert not Verdict.UNDECIDED.shows_difference


def test_result_in_words():
    lines = str(RESULT).splitlines()
    assert lines[:2] == ["forward:", "interrupted"]
    assert lines[2] == "thunder: WRONG: 1 of 1 outputs (a note)"
    assert lines[4:6] == ["other: failed: builtins.X: why 'so'", "last: not run"]
    assert lines[7] == "  warning: gave up on region 0"
    assert lines[8] == str(COMPARISON)


def test_outcomes_by_name():
    assert RESULT.outcome("last").status is Status.NOT_RUN
    with pytest.raises(BenchmarkError, match=r"'lost'; there are torch\.compile, thunder"):
        RESULT.outcome("lost")


def test_result_lines_among_others():
    text = f"hello\n{RESULT.result_line()}\n  {RESULT_PREFIX}indented\n{RESULT.result_line()}"
    assert read_results(text) == [RESULT, RESULT]
    assert read_results("") == []


@pytest.mark.parametrize("line", ["{", "{}", "[1]", "1", '{"compute": 1, "outcomes": [{}]}'])
def test_damaged_result_lines(line):
    with pytest.raises(BenchmarkError, match="line 2 starts with THUNDER_RESULT"):
        read_results(f"x\n{RESULT_PREFIX}{line}")


def test_units():
    assert [format_seconds(x) for x in (9e4, 600.0, 2.5, 0.0021, 3e-7, 0.0)] == [
        "25 h",
        "10 min",
        "2.5 s",
        "2.1 ms",
        "300 ns",
        "0 ns",
    ]
    assert [format_bytes(x) for x in (0, 2048, -3 << 20, 5 << 30)] == [
        "0 B",
        "2 KiB",
        "-3 MiB",
        "5 GiB",
    ]


def test_rich_progress():
    display = Progress(disable=True)
    task = display.add_task("start", total=1.0)
    hook = RichProgress(display, task, "graph 3")
    hook(ProgressEvent(step=Step.COMPILE, fraction=0.5, contestant="thunder"))
    assert display.tasks[0].description == "graph 3: compiling and checking thunder"
    assert display.tasks[0].completed == 0.5
    hook(ProgressEvent(step=Step.DONE))
    assert display.finished
