"""Rounds: their order, their number, warm-up, key presses."""

from __future__ import annotations

import pytest

from tests.benchmark.machines import Machine, Noise
from thunder.benchmark.interleaving import interleave
from thunder.benchmark.progress import Step
from thunder.benchmark.statistics import Settings

QUIET = Noise(size=0.001, drift=0, spikes=0, warm_up=0)


def rounds_of(costs, settings, noise=QUIET, **arguments):
    """Times contestants of given costs; returns the rounds and the order of all timings."""
    machine, order = Machine(0, noise), []

    def sampler(index, cost):
        def sample():
            order.append(index)
            return machine.time_call(cost)

        return sample

    samplers = [sampler(index, cost) for index, cost in enumerate(costs)]
    return interleave(samplers, settings, clock=machine.clock, **arguments), order


def test_each_round_goes_there_and_back_in_a_drawn_order():
    rounds, order = rounds_of([1e-3] * 3, Settings(seconds=1))
    timed = order[3 * rounds.warm_up_rounds :]
    assert len(timed) == 6 * len(rounds.samples[0])
    firsts = set()
    for start in range(0, len(timed), 6):
        there, back = timed[start : start + 3], timed[start + 3 : start + 6]
        assert sorted(there) == [0, 1, 2]
        assert back == there[::-1]
        firsts.add(tuple(there))
    assert len(firsts) == 6, "every order happens"


def test_the_seed_decides_the_order():
    one = rounds_of([1e-3] * 2, Settings(seconds=1, seed=1))[1]
    assert one == rounds_of([1e-3] * 2, Settings(seconds=1, seed=1))[1]
    assert one != rounds_of([1e-3] * 2, Settings(seconds=1, seed=2))[1]


@pytest.mark.parametrize("seconds", [0.2, 1.0])
def test_the_time_is_kept(seconds):
    noisy = Noise(size=0.1, spikes=0)
    rounds, _ = rounds_of([1e-3, 1.03e-3], Settings(seconds=seconds), noise=noisy)
    spent = len(rounds.samples[0]) * rounds.seconds_per_round
    assert spent < 1.1 * seconds


def test_clear_cases_end_early():
    rounds, _ = rounds_of([1e-3, 2e-3], Settings(seconds=100))
    assert len(rounds.samples[0]) < rounds.planned / 10
    assert rounds.seconds_per_round == pytest.approx(6e-3, rel=0.1)


def test_slow_contestants_get_one_round_at_least():
    rounds, order = rounds_of([10.0, 10.0], Settings(seconds=1))
    assert len(rounds.samples[0]) == 1
    assert rounds.warm_up_rounds == 1
    assert len(order) == 4, "there is no time to go back"


def test_warm_up_is_left_out():
    falling = Noise(size=0.001, drift=0, spikes=0, warm_up=5.0)
    rounds, _ = rounds_of([1e-3, 1e-3], Settings(seconds=2), noise=falling)
    assert rounds.warm_up_rounds > 10
    assert rounds.steady == (True, True)
    assert max(rounds.samples[0]) < 1.2e-3


def test_endless_warm_up_is_told():
    """A quarter of the time is all that it gets."""
    now = [0.0]

    def falling_by(factor):
        def sample():
            now[0] += 1e-3
            return factor ** (1e3 * now[0])

        return sample

    rounds = interleave([falling_by(0.98)], Settings(seconds=0.2), clock=lambda: now[0])
    assert rounds.warm_up_rounds == pytest.approx(50, abs=2)
    assert rounds.steady == (False,)
    now = [0.0]
    rounds = interleave([falling_by(0.9999)], Settings(seconds=0.2), clock=lambda: now[0])
    assert rounds.warm_up_rounds < 10, "it falls by less than matters"
    assert rounds.steady == (True,)


def test_a_key_press_keeps_the_complete_rounds():
    timings = iter([1.0] * 100)
    calls = [0]

    def sample():
        calls[0] += 1
        if calls[0] == 42:
            raise KeyboardInterrupt
        return next(timings)

    now = iter(range(10_000))
    rounds = interleave([sample, sample], Settings(seconds=1e3), clock=lambda: float(next(now)))
    assert rounds.interrupted
    assert len(rounds.samples[0]) == len(rounds.samples[1]) == (41 - 2 * rounds.warm_up_rounds) // 4


def test_signs_of_life():
    events = []
    rounds_of([1e-3, 1e-3], Settings(seconds=1), progress=events.append)
    assert [event.step for event in events if event.step is Step.WARM_UP]
    measured = [event.fraction for event in events if event.step is Step.MEASURE]
    assert measured == sorted(measured)
    assert all(0 <= fraction <= 1 for fraction in measured)
