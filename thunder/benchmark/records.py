"""What benchmarks return: frozen records that print, and go to JSON and back.

How the numbers come about is the business of `interleaving.py` (timings), `statistics.py`
(intervals, verdicts) and `runner.py` (correctness, failures). Nothing here names a time of day, a
process or a path, so records of two runs differ in their numbers only.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thunder.errors import BenchmarkError
from thunder.trace.accuracy import AccuracyVerdict

RESULT_PREFIX = "THUNDER_RESULT "
_DIGITS = 5


class Verdict(enum.Enum):
    """What a comparison shows about the candidate."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    UNDECIDED = "undecided"

    @property
    def shows_difference(self) -> bool:
        """Whether the two contestants differ in a way that is certain enough and matters."""
        return self in (Verdict.FASTER, Verdict.SLOWER)


class Status(enum.Enum):
    """What became of a contestant."""

    MEASURED = "measured"
    INACCURATE = "inaccurate"
    FAILED = "failed"
    OUT_OF_MEMORY = "out of memory"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """The timings of one contestant.

    Attributes:
        name: The contestant.
        timer: What was measured, as the timer names it.
        samples: One value a round, in seconds per call.
        calls: How many calls in a row are timed at once.
        warm_up_rounds: Rounds before the first sample.
        steady: Whether the timings had stopped falling when the first sample was taken.
        peak_bytes: The most memory that a call held beyond what was there before; None when the
            timer does not look at memory.
    """

    name: str
    timer: str
    samples: tuple[float, ...]
    calls: int = 1
    warm_up_rounds: int = 0
    steady: bool = True
    peak_bytes: int | None = None

    @property
    def median(self) -> float:
        """The median time of a call, in seconds; NaN without samples."""
        return statistics.median(self.samples) if self.samples else math.nan

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between these times lies the middle half of the samples."""
        if len(self.samples) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high

    def __str__(self) -> str:
        """Returns one line."""
        if not self.samples:
            return f"{self.name}: no sample"
        low, high = (format_seconds(value) for value in self.quartiles)
        memory = "" if self.peak_bytes is None else f", peak {format_bytes(self.peak_bytes)}"
        warm = "" if self.steady else ", still warming up when measured"
        return (
            f"{self.name}: {format_seconds(self.median)} a call (middle half {low} to {high}, "
            f"{len(self.samples)} x {self.calls} calls, {self.timer}{memory}{warm})"
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON; samples are rounded to five digits."""
        data = _fields(self)
        data["samples"] = [float(f"{value:.{_DIGITS}g}") for value in self.samples]
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Measurement:
        """Makes a measurement out of what `to_json` returned."""
        return Measurement(**{**data, "samples": tuple(data["samples"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A candidate's time over a baseline's.

    Attributes:
        baseline: Name of the contestant in the denominator.
        candidate: Name of the one in the numerator: a ratio below 1 means that it is faster.
        ratio: The median of the rounds' ratios; NaN without rounds.
        low: Lower end of the ratio's interval; 0 when there are too few rounds for one.
        high: Upper end; infinite when there are too few rounds.
        confidence: How often such an interval holds the true ratio.
        threshold: The smallest difference that matters.
        verdict: What the interval shows.
        rounds: How many rounds it rests on.
        seconds_to_resolve: About how much more time would show whether there is a difference of
            `threshold`; None when the verdict needs none, or nobody can tell.
    """

    baseline: str
    candidate: str
    ratio: float
    low: float
    high: float
    confidence: float
    threshold: float
    verdict: Verdict
    rounds: int
    seconds_to_resolve: float | None = None

    def __str__(self) -> str:
        """Returns one line."""
        said = self.verdict.value
        if self.verdict is Verdict.UNDECIDED:
            said = "no difference shown"
        if self.seconds_to_resolve is not None:
            more, percent = format_seconds(self.seconds_to_resolve), 100 * self.threshold
            said += f", would need about {more} more to resolve {percent:.3g} %"
        if math.isnan(self.ratio):
            return f"{self.candidate} vs {self.baseline}: not timed"
        high = "inf" if math.isinf(self.high) else f"{self.high:.3f}"
        return (
            f"{self.candidate} vs {self.baseline}: {self.ratio:.3f} x the time "
            f"({100 * self.confidence:.4g} % interval {self.low:.3f} to {high}, "
            f"{self.rounds} rounds): {said}"
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON; an open upper end and a missing ratio are None."""
        data = _fields(self)
        for key in ("ratio", "high"):
            data[key] = data[key] if math.isfinite(data[key]) else None
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Comparison:
        """Makes a comparison out of what `to_json` returned."""
        # A ratio that is infinite, over a baseline of 0, comes with an interval that is not 0.
        missing = math.nan if data["rounds"] == 0 else math.inf
        values = {
            **data,
            "ratio": missing if data["ratio"] is None else data["ratio"],
            "high": math.inf if data["high"] is None else data["high"],
            "verdict": Verdict(data["verdict"]),
        }
        return Comparison(**values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An exception as a result.

    Attributes:
        kind: Name of its class, with the module unless it is a builtin.
        message: The first line of what it says.
        details: The traceback as text; not part of the JSON form.
        error: The exception itself, without the traceback, whose frames would keep the inputs
            alive; not part of the JSON form.
    """

    kind: str
    message: str
    details: str = dataclasses.field(default="", compare=False, repr=False)
    error: BaseException | None = dataclasses.field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """Returns one line."""
        return f"{self.kind}: {self.message}" if self.message else self.kind

    def to_json(self) -> dict[str, str]:
        """Returns kind and message."""
        return {"kind": self.kind, "message": self.message}

    @staticmethod
    def from_json(data: Mapping[str, str]) -> Failure:
        """Makes a failure out of what `to_json` returned."""
        return Failure(kind=data["kind"], message=data["message"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one contestant.

    Attributes:
        name: The contestant.
        status: How far it came.
        compile_seconds: Wall time of compiling and of the first call; None when it failed before.
        accuracy: The verdict on its results; None when they were not looked at.
        measurement: Its timings; None when it was not timed.
        failure: Why it failed.
        warnings: What it gave up on while it compiled, one line each: such a contestant ran
            something else than its name says.
    """

    name: str
    status: Status
    compile_seconds: float | None = None
    accuracy: AccuracyVerdict | None = None
    measurement: Measurement | None = None
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Returns one line, or more when results are wrong or there are warnings."""
        return "\n".join([self._headline(), *(f"  warning: {line}" for line in self.warnings)])

    def _headline(self) -> str:
        if self.failure is not None:
            return f"{self.name}: {self.status.value}: {self.failure}"
        if self.status is Status.INACCURATE:
            return f"{self.name}: {self.accuracy}"
        if self.measurement is None:
            return f"{self.name}: {self.status.value}"
        return str(self.measurement)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON."""
        return _fields(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Outcome:
        """Makes an outcome out of what `to_json` returned."""
        readers = {"accuracy": AccuracyVerdict, "measurement": Measurement, "failure": Failure}
        inner = {
            key: None if data[key] is None else reader.from_json(data[key])
            for key, reader in readers.items()
        }
        own = {"status": Status(data["status"]), "warnings": tuple(data["warnings"])}
        return Outcome(**{**data, **own, **inner})


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkResult:
    """A benchmark: what became of each contestant, and how they compare.

    Attributes:
        compute: What was run: `"forward"`, `"forward+backward"` or `"backward"`.
        outcomes: One for each contestant, in the order given.
        comparisons: One for each contestant that was timed but the first, which is the baseline.
        interrupted: Whether a key press ended it early; what was measured until then is here.
    """

    compute: str
    outcomes: tuple[Outcome, ...]
    comparisons: tuple[Comparison, ...] = ()
    interrupted: bool = False

    def outcome(self, name: str) -> Outcome:
        """Returns the outcome of one contestant.

        Raises:
            BenchmarkError: No contestant has this name.
        """
        for outcome in self.outcomes:
            if outcome.name == name:
                return outcome
        known = ", ".join(outcome.name for outcome in self.outcomes)
        raise BenchmarkError(f"there is no contestant {name!r}; there are {known}")

    def __str__(self) -> str:
        """Returns a line for each outcome and comparison, failures and wrong results first."""
        bad = [one for one in self.outcomes if one.status is not Status.MEASURED]
        good = [one for one in self.outcomes if one.status is Status.MEASURED]
        ended = ["interrupted"] if self.interrupted else []
        return "\n".join(map(str, [f"{self.compute}:", *ended, *bad, *good, *self.comparisons]))

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON."""
        return _fields(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BenchmarkResult:
        """Makes a result out of what `to_json` returned."""
        inner = {
            "outcomes": tuple(map(Outcome.from_json, data["outcomes"])),
            "comparisons": tuple(map(Comparison.from_json, data["comparisons"])),
        }
        return BenchmarkResult(**{**data, **inner})

    def result_line(self) -> str:
        """Returns the line that scripts print for programs to read.

        Example:
            >>> BenchmarkResult(compute="forward", outcomes=()).result_line()
            'THUNDER_RESULT {"compute": "forward", "outcomes": [], "comparisons": [], ...}'
        """
        return RESULT_PREFIX + json.dumps(self.to_json(), allow_nan=False)


def read_results(text: str) -> list[BenchmarkResult]:
    r"""Reads the result lines out of what scripts printed.

    Args:
        text: Standard output of a script; other lines are passed over.

    Raises:
        BenchmarkError: A line starts like a result and is none.

    Example:
        >>> line = BenchmarkResult(compute="forward", outcomes=()).result_line()
        >>> read_results(f"some words\n{line}\n")[0].compute
        'forward'
    """
    return list(_results(text))


def _results(text: str) -> Iterator[BenchmarkResult]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith(RESULT_PREFIX):
            continue
        try:
            yield BenchmarkResult.from_json(json.loads(line.removeprefix(RESULT_PREFIX)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BenchmarkError(
                f"line {number} starts with {RESULT_PREFIX.strip()} but holds no result of this "
                f"version of thunder ({type(error).__name__}: {error}): {line[:200]!r}"
            ) from error


def format_seconds(seconds: float) -> str:
    """Returns a time with a fitting unit.

    Example:
        >>> format_seconds(0.00001234), format_seconds(90.0)
        ('12.3 us', '90 s')
    """
    if abs(seconds) >= 120:
        unit, size = ("h", 3600) if abs(seconds) >= 7200 else ("min", 60)
        return f"{seconds / size:.0f} {unit}"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def format_bytes(count: int) -> str:
    """Returns an amount of memory with a fitting unit.

    Example:
        >>> format_bytes(100), format_bytes(5 << 20)
        ('100 B', '5 MiB')
    """
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(record, field.name)) for field in dataclasses.fields(record)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if isinstance(value, enum.Enum):
        return value.value
    is_record = isinstance(value, Measurement | Comparison | Failure | Outcome | AccuracyVerdict)
    return value.to_json() if is_record else value
