"""Verdicts on simulated machines: no false alarm, real differences found, intervals that hold."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tests.benchmark.machines import Machine, Noise
from thunder.benchmark.interleaving import interleave
from thunder.benchmark.records import Measurement, Verdict
from thunder.benchmark.statistics import (
    Estimate,
    Settings,
    compare_separate_runs,
    critical_sum,
    estimate,
    is_settled,
    rounds_to_resolve,
    verdict,
)
from thunder.errors import OptionError

MACHINES = {
    "quiet": Noise(size=0.002, drift=0, spikes=0),
    "drifting": Noise(drift=1.0),
    "heavy tails": Noise(size=0.1, spikes=0.3),
    "autocorrelated": Noise(size=0.2, memory=0.999, drift=0),
    "second place is slower": Noise(second_place=1.2),
    "everything": Noise(size=0.1, memory=0.99, drift=1.0, spikes=0.2, second_place=1.1),
}


def compare_on(machine, cost, settings):
    """Compares something that takes a millisecond with something that takes `cost` as long."""
    rounds = interleave(
        [lambda: machine.time_call(1e-3), lambda: machine.time_call(cost * 1e-3)],
        settings,
        clock=machine.clock,
    )
    return estimate(*rounds.samples, planned_rounds=rounds.planned, confidence=settings.confidence)


@pytest.mark.parametrize("name", MACHINES)
def test_identical_contestants_show_no_difference(name):
    """At least 95 of 100; with the threshold as a second gate it is nearly always all."""
    alarms, strict_alarms = 0, 0
    for seed in range(100):
        settings = Settings(seconds=0.5, seed=seed)
        found = compare_on(Machine(seed, MACHINES[name]), 1.0, settings)
        alarms += verdict(found, settings.threshold).shows_difference
        strict_alarms += not found.low <= 1 <= found.high
    assert alarms <= 5
    assert strict_alarms <= 5


@pytest.mark.parametrize("name", MACHINES)
def test_a_tenth_slower_is_found(name):
    found = [
        verdict(
            compare_on(
                Machine(seed, MACHINES[name]), 1.1, settings := Settings(seconds=4, seed=seed)
            ),
            settings.threshold,
        )
        for seed in range(20)
    ]
    assert Verdict.FASTER not in found
    assert found.count(Verdict.SLOWER) >= 18


@pytest.mark.parametrize("cost", [0.5, 0.98, 1.05, 3.0])
def test_intervals_hold_the_true_ratio(cost):
    """Also after stopping as soon as the interval was on one side, a thousand looks or not."""
    held = 0
    for seed in range(100):
        found = compare_on(Machine(seed, Noise()), cost, Settings(seconds=0.5, seed=seed))
        held += found.low <= cost <= found.high
    assert held >= 95


def test_small_differences_are_no_difference():
    found = compare_on(Machine(0, MACHINES["quiet"]), 1.005, Settings(seconds=4))
    assert verdict(found, 0.03) is Verdict.NO_DIFFERENCE


def test_partial_sums_stay_below_the_critical_one():
    """Lévy's inequality, by counting all paths."""
    for rounds, confidence in itertools.product((7, 10, 14), (0.8, 0.95)):
        critical = critical_sum(rounds, confidence)
        signs = np.array(list(itertools.product((-1, 1), repeat=rounds)))
        strays = np.abs(signs.cumsum(axis=1)).max(axis=1) >= critical
        assert strays.mean() <= 1 - confidence
        smaller = 2 * (np.abs(signs.sum(axis=1)) >= critical - 2).mean()
        assert smaller > 1 - confidence, "a smaller sum would do"


def test_critical_sum_against_the_binomial_distribution():
    for rounds in (20, 101, 1000):
        heads = (critical_sum(rounds, 0.95) + rounds) // 2
        tail = stats.binom.sf(heads - 1, rounds, 0.5)
        assert 4 * tail <= 0.05 < 4 * stats.binom.sf(heads - 2, rounds, 0.5)


def test_least_rounds():
    assert Settings().least_rounds == 7
    assert Settings(confidence=0.999).least_rounds == 12


def test_estimate_is_the_median_ratio_between_order_statistics():
    generator = np.random.default_rng(0)
    ratios = np.exp(generator.normal(0.1, 0.2, 101))
    found = estimate([1.0] * 101, list(ratios), planned_rounds=101)
    ordered = np.sort(ratios)
    below = (101 - critical_sum(101, 0.95)) // 2
    assert found.ratio == pytest.approx(np.median(ratios))
    assert (found.low, found.high) == pytest.approx((ordered[below], ordered[-below - 1]))


def test_too_few_rounds_give_no_interval():
    found = estimate([1.0] * 6, [9.0] * 6, planned_rounds=6)
    assert (found.low, found.high) == (0, math.inf)
    assert verdict(found, 0.03) is Verdict.UNDECIDED
    nothing = estimate([], [], planned_rounds=10)
    assert math.isnan(nothing.ratio)
    assert verdict(nothing, 0.03) is Verdict.UNDECIDED


def test_no_kernel_at_all():
    """Kernel time of graphs without kernels: equal zeros, or infinitely many times as much."""
    assert verdict(estimate([0.0] * 9, [0.0] * 9, planned_rounds=9), 0.03) is Verdict.NO_DIFFERENCE
    assert verdict(estimate([0.0] * 9, [1.0] * 9, planned_rounds=9), 0.03) is Verdict.SLOWER
    assert verdict(estimate([1.0] * 9, [0.0] * 9, planned_rounds=9), 0.03) is Verdict.FASTER


@pytest.mark.parametrize(
    "ratio, low, high, expected, settled",
    [
        (0.9, 0.85, 0.95, Verdict.FASTER, True),
        (1.1, 1.05, 1.15, Verdict.SLOWER, True),
        (0.95, 0.91, 0.99, Verdict.FASTER, False),  # certain, and the estimate is large enough
        (0.98, 0.96, 0.99, Verdict.UNDECIDED, False),  # certain, perhaps too small to matter
        (1.1, 0.99, 1.2, Verdict.UNDECIDED, False),  # large, not certain
        (1.0, 0.98, 1.02, Verdict.NO_DIFFERENCE, True),
        (1.02, 1.015, 1.025, Verdict.NO_DIFFERENCE, True),  # certain, too small to matter
        (1.0, 0.9, 1.1, Verdict.UNDECIDED, False),
    ],
)
def test_two_gates(ratio, low, high, expected, settled):
    found = Estimate(ratio=ratio, low=low, high=high)
    assert verdict(found, 0.03) is expected
    assert is_settled(found, 0.03) is settled


def test_rounds_to_resolve_are_enough():
    machine = Machine(3, Noise(size=0.05, spikes=0.1))
    pairs = [(machine.time_call(1e-3), machine.time_call(1e-3)) for _ in range(4000)]
    few = list(zip(*pairs[:200], strict=True))
    needed = rounds_to_resolve(*few, confidence=0.95, difference=0.02)
    assert needed is not None
    assert 30 < needed < 2000
    more = estimate(*zip(*pairs[: 2 * needed], strict=True), planned_rounds=2 * needed)
    assert more.high / more.low < 1.02
    assert rounds_to_resolve([1.0] * 3, [1.0] * 3, confidence=0.95, difference=0.02) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"confidence": 1.0},
        {"confidence": 0.2},
        {"threshold": 3.0},
        {"threshold": 0.0},
        {"seconds": 0.0},
        {"seconds": math.inf},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Settings(**wrong)


def measured(name, samples):
    return Measurement(name=name, timer="wall time", samples=tuple(samples))


def test_separate_runs():
    """Autocorrelated samples: the interval knows that there are fewer than they seem."""

    def run(seed, cost, noise):
        machine = Machine(seed, noise)
        return measured("f", [machine.time_call(cost) for _ in range(400)])

    noise = Noise(size=0.05, memory=0.9, drift=0, warm_up=0)
    found = [
        compare_separate_runs(run(2 * seed, 1.0, noise), run(2 * seed + 1, 1.0, noise))
        for seed in range(100)
    ]
    assert sum(one.low <= 1 <= one.high for one in found) >= 95
    slower = compare_separate_runs(run(0, 1.0, noise), run(1, 1.3, noise))
    assert verdict(slower, 0.1) is Verdict.SLOWER
    few = compare_separate_runs(measured("f", [1.0, 1.1]), measured("f", [2.0, 2.1]))
    assert few.low < 1.9
    assert verdict(few, 0.1) is Verdict.UNDECIDED
    same = compare_separate_runs(measured("f", [0.0] * 20), measured("f", [0.0] * 20))
    assert verdict(same, 0.1) is Verdict.NO_DIFFERENCE
