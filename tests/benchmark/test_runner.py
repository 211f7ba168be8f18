"""Whole benchmarks: correctness first, failures as results, nothing left behind."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch
from torch import nn

from tests.benchmark.programs import Careless, Fails, Replaced, Scripted, small
from thunder.benchmark import (
    BenchmarkResult,
    Compute,
    KernelTime,
    Settings,
    Status,
    Step,
    ThunderCompileSpecification,
    TorchCompileSpecification,
    TorchEagerSpecification,
    Verdict,
    WallTimeWithMemoryUsage,
    benchmark,
    compare_speed,
    read_results,
)
from thunder.errors import BenchmarkError, ContestantError, FallbackWarning

EAGER = TorchEagerSpecification()
QUICK = Settings(seconds=0.1)


def inputs():
    return [torch.randn(4, 8, requires_grad=True), torch.randn(8, 3, requires_grad=True)]


def run(specifications, **arguments):
    values = arguments.pop("inputs", None) or inputs()
    arguments = {"settings": QUICK, **arguments}
    return benchmark(small, values, specifications=specifications, **arguments)


def statuses(result):
    return {outcome.name: outcome.status for outcome in result.outcomes}


@pytest.mark.parametrize("compute", list(Compute))
def test_contestants_are_measured_and_compared(compute):
    thunder = ThunderCompileSpecification(executors=["aten"])
    plain = TorchCompileSpecification(backend="aot_eager")
    result = run([plain, thunder, EAGER], compute=compute)
    assert set(statuses(result).values()) == {Status.MEASURED}
    assert [(one.baseline, one.candidate) for one in result.comparisons] == [
        ("torch.compile (backend=aot_eager)", "thunder"),
        ("torch.compile (backend=aot_eager)", "eager"),
    ]
    assert result.compute == compute.value
    for outcome in result.outcomes:
        assert outcome.accuracy is not None
        assert outcome.measurement is not None
        assert outcome.measurement.median > 0
        assert outcome.compile_seconds is not None
        gradients = [one for one in outcome.accuracy.outputs if "gradients" in one.name]
        assert len(gradients) == (0 if compute is Compute.FORWARD else 2)


def test_wrong_results_are_told_and_not_timed():
    result = run([EAGER, Replaced(old="softmax", new="log_softmax")])
    wrong = result.outcome("replaced")
    assert wrong.status is Status.INACCURATE
    assert wrong.measurement is None
    assert wrong.accuracy is not None
    assert not wrong.accuracy.accurate
    assert not result.comparisons
    first_lines = str(result).splitlines()[:2]
    assert first_lines[1].startswith("replaced: WRONG"), "before any timing"


def test_wrong_results_are_timed_on_request():
    result = run([EAGER, Replaced(old="softmax", new="log_softmax")], time_inaccurate=True)
    wrong = result.outcome("replaced")
    assert wrong.status is Status.INACCURATE
    assert wrong.measurement is not None
    assert len(result.comparisons) == 1


def test_careless_contestants_are_caught_and_the_inputs_watched():
    result = run([EAGER, Careless()])
    assert result.outcome("careless").status is Status.INACCURATE
    assert "written to" in str(result.outcome("careless"))


def test_failures_are_results():
    result = run([EAGER, Fails(), Fails(error=torch.OutOfMemoryError), Scripted()])
    assert statuses(result) == {
        "eager": Status.MEASURED,
        "fails": Status.FAILED,
        "fails (2)": Status.OUT_OF_MEMORY,
        "scripted": Status.MEASURED,
    }
    failure = result.outcome("fails").failure
    assert failure is not None
    assert str(failure) == "ValueError: cannot be compiled"
    assert isinstance(failure.error, ValueError)
    assert len(result.comparisons) == 1


@pytest.mark.parametrize("after_calls", [1, 30])
def test_a_contestant_that_fails_while_it_is_timed(after_calls):
    """After one call the check is over; after thirty the first rounds are."""
    result = run([Scripted(), Fails(after_calls=after_calls), EAGER])
    assert statuses(result) == {
        "scripted": Status.MEASURED,
        "fails": Status.FAILED,
        "eager": Status.MEASURED,
    }
    assert str(result.outcome("fails").failure) == "ValueError: stopped working"
    assert [one.candidate for one in result.comparisons] == ["eager"]


def test_all_may_fail():
    result = run([Fails(), Fails()])
    assert set(statuses(result).values()) == {Status.FAILED}
    assert result.comparisons == ()


def test_a_program_that_fails_itself_is_no_result():
    def broken(x):
        raise KeyError(x)

    with pytest.raises(KeyError):
        benchmark(broken, [1], specifications=[EAGER])
    with pytest.raises(BenchmarkError, match="at least one specification"):
        benchmark(small, inputs(), specifications=[])


def test_a_key_press_while_checking():
    result = run([EAGER, Fails(error=KeyboardInterrupt), Scripted()])
    assert result.interrupted
    assert set(statuses(result).values()) == {Status.NOT_RUN}
    accuracy = result.outcome("eager").accuracy
    assert accuracy is not None
    assert accuracy.accurate


def test_a_key_press_while_timing_keeps_what_is_measured():
    pressed = Fails(error=KeyboardInterrupt, after_calls=30_000)
    result = run([EAGER, pressed], settings=Settings(seconds=60, threshold=1e-6))
    assert result.interrupted
    assert set(statuses(result).values()) == {Status.MEASURED}
    (comparison,) = result.comparisons
    assert comparison.rounds > 3
    assert comparison.low <= comparison.ratio <= comparison.high


def test_inputs_are_made_once_and_freed():
    made = []

    def make():
        values = [torch.randn(4, 8), torch.randn(8, 3)]
        made.extend(map(weakref.ref, values))
        return values

    result = run([EAGER, Scripted(), Fails()], inputs=make)
    gc.collect()
    assert len(made) == 2
    assert [one() for one in made] == [None, None]
    assert result.outcomes


def test_the_random_state_is_left_alone():
    values = inputs()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    run([EAGER], inputs=values)
    assert torch.equal(torch.rand(3), expected)


def test_sizes_seen_before_do_not_make_sizes_dynamic():
    """Dynamo would compile a program for sizes of any kind when it sees a second size."""
    shapes = []

    def backend(graph_module, example_inputs):
        shapes.append([type(size) for x in example_inputs for size in getattr(x, "shape", ())])
        return graph_module.forward

    for size in (4, 5, 6):
        values = [torch.randn(size, 8), torch.randn(8, 3)]
        run([TorchCompileSpecification(backend=backend)], inputs=values)
    assert shapes == [[int] * 4] * 3


def test_modules_and_their_state():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = benchmark(
        model,
        [torch.randn(8, 4)],
        specifications=[EAGER, ThunderCompileSpecification(executors=["aten"])],
        compute=Compute.FORWARD_BACKWARD,
        settings=QUICK,
    )
    assert set(statuses(result).values()) == {Status.MEASURED}
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_timers():
    result = run([EAGER], timer=WallTimeWithMemoryUsage())
    measurement = result.outcomes[0].measurement
    assert measurement is not None
    assert measurement.peak_bytes == 2 * 4 * 3 * 4 + 12, "two results and the 1 that is added"
    result = run([EAGER, EAGER], timer=KernelTime())
    assert result.comparisons[0].rounds >= 1


def test_nothing_to_launch():
    result = benchmark(
        lambda x: x,
        [torch.ones(2)],
        specifications=[EAGER, EAGER],
        timer=KernelTime(),
        settings=Settings(seconds=2),
    )
    assert result.comparisons[0].verdict is Verdict.NO_DIFFERENCE


def test_warnings_of_giving_up_are_part_of_the_outcome():
    class GivesUp(Scripted):
        def compile(self, fn, *, inputs):
            warnings.warn("region 0 runs in eager\nbecause", FallbackWarning, stacklevel=2)
            warnings.warn("something else", UserWarning, stacklevel=2)
            return fn

    with pytest.warns(UserWarning, match="something else") as caught:
        result = run([GivesUp()])
    assert [str(one.message) for one in caught] == ["something else"]
    assert result.outcomes[0].warnings == ("region 0 runs in eager",)
    assert "warning: region 0" in str(result)


def test_signs_of_life():
    events = []
    run([EAGER, Scripted()], inputs=inputs, progress=events.append)
    steps = list(dict.fromkeys(event.step for event in events))
    assert steps[:4] == [Step.INPUTS, Step.REFERENCE, Step.COMPILE, Step.WARM_UP]
    assert steps[-1] is Step.DONE
    compiled = [event.contestant for event in events if event.step is Step.COMPILE]
    assert compiled == ["eager", "scripted"]


def test_result_line():
    result = run([EAGER, Fails(), Replaced(old="softmax", new="log_softmax"), EAGER])
    line = result.result_line()
    assert "\n" not in line
    (again,) = read_results(f"noise\n{line}\n")
    assert again == BenchmarkResult.from_json(again.to_json())
    assert statuses(again) == statuses(result)
    assert str(again).splitlines()[1] == str(result).splitlines()[1]


def test_identical_contestants_for_real():
    """The same function twice, on whatever machine this is."""
    x = torch.randn(64)
    alarms = 0
    for seed in range(10):
        result = compare_speed(
            {"one": lambda: x.sin(), "other": lambda: x.sin()},
            settings=Settings(seconds=0.1, seed=seed),
        )
        alarms += result.comparisons[0].verdict.shows_difference
    assert alarms <= 1


def test_compare_speed_wants_contestants_that_work():
    with pytest.raises(BenchmarkError, match="at least one contestant"):
        compare_speed({})

    def broken():
        raise KeyError("x")

    with pytest.raises(ContestantError, match="bad failed while it was timed") as caught:
        compare_speed({"good": lambda: None, "bad": broken})
    assert caught.value.contestant == "bad"
    assert isinstance(caught.value.__cause__, KeyError)
