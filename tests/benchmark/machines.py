"""Simulated machines, on which timings are noisy and time costs nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How far a machine is from ideal.

    Attributes:
        size: Spread of the independent and of the autocorrelated part.
        memory: Autocorrelation from one timing to the next.
        drift: Amplitude of slow changes.
        spikes: Fraction of the timings that are interrupted.
        warm_up: How much slower the very first call is.
        second_place: Factor on what is timed right after something else of the same round.
    """

    size: float = 0.02
    memory: float = 0.95
    drift: float = 0.3
    spikes: float = 0.05
    warm_up: float = 0.5
    second_place: float = 1.0


class Machine:
    """Makes up timings, and keeps a clock that they move."""

    def __init__(self, seed: int, noise: Noise) -> None:
        self.now = 0.0
        self._generator = np.random.default_rng(seed)
        self._noise = noise
        self._slow_part = 0.0
        self._calls = 0

    def clock(self) -> float:
        return self.now

    def time_call(self, seconds: float) -> float:
        """Returns how long something takes that needs `seconds` on an ideal machine."""
        noise, draw = self._noise, self._generator
        fresh = math.sqrt(1 - noise.memory**2) * draw.standard_normal()
        self._slow_part = noise.memory * self._slow_part + noise.size * fresh
        factor = math.exp(
            self._slow_part
            + 0.5 * noise.size * draw.standard_t(2)
            + noise.drift * math.sin(2 * self.now)
        )
        if draw.random() < noise.spikes:
            factor *= 1 + draw.pareto(1.5)
        factor *= 1 + noise.warm_up * math.exp(-self._calls / 10)
        factor *= noise.second_place if self._calls % 2 else 1
        self._calls += 1
        self.now += seconds * factor
        return seconds * factor
