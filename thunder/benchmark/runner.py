"""Runs contestants on a program: correctness first, then speed; a failure is a result.

The steps have modules of their own: `correctness.py` says what eager gives and judges,
`comparing.py` times. Here they are put in order, and exceptions are caught.
"""

from __future__ import annotations

import contextlib
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch._dynamo

from thunder.benchmark.comparing import SpeedResult, compare_speed
from thunder.benchmark.correctness import Expectation, expect
from thunder.benchmark.inputs import Inputs
from thunder.benchmark.program import Compute, Program
from thunder.benchmark.progress import ProgressEvent, ProgressHook, Step, ignore_progress
from thunder.benchmark.records import BenchmarkResult, Failure, Outcome, Status
from thunder.benchmark.specifications import AbstractCompileSpecification, unique_contestants
from thunder.benchmark.statistics import Settings
from thunder.benchmark.timers import AbstractTimer
from thunder.benchmark.workload import devices_of
from thunder.errors import BenchmarkError, ContestantError, FallbackWarning

InputsOrMaker = Sequence[Any] | Callable[[], Sequence[Any]]


def benchmark(
    function: Callable[..., Any],
    inputs: InputsOrMaker,
    *,
    specifications: Sequence[AbstractCompileSpecification],
    compute: Compute = Compute.FORWARD,
    timer: AbstractTimer | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    time_inaccurate: bool = False,
    progress: ProgressHook = ignore_progress,
) -> BenchmarkResult:
    """Compiles a program in several ways, checks each against eager, and times those that pass.

    Each contestant gets the same inputs and seed. Memory that the program writes to is copied for
    each; other memory, parameters above all, is shared, and watched.

    Args:
        function: A function, an `nn.Module`, or an fx `GraphModule`. It stays as it is.
        inputs: Its positional arguments, or a function that makes them; those made here are freed
            before this returns.
        specifications: The ways to compile; the first is the baseline.
        compute: What is run and timed.
        timer: How to time; wall time by default.
        settings: Confidence, threshold, time for all contestants together, and seed of the order.
        seed: Seed of the random generators before each checked run.
        time_inaccurate: Whether contestants with wrong results are timed as well.
        progress: Called at each step, and between rounds.

    Returns:
        What became of each contestant, and how those that were timed compare with the first of
        them. A key press ends it early, with what there is.

    Raises:
        BenchmarkError: There is no contestant, or the program cannot be run by itself.
        Exception: What the program raises without being compiled.

    Example:
        >>> import torch
        >>> from thunder.benchmark import Settings, TorchEagerSpecification, benchmark
        >>> eager = TorchEagerSpecification()
        >>> result = benchmark(
        ...     torch.sin, [torch.ones(8)], specifications=[eager, eager],
        ...     settings=Settings(seconds=0.2),
        ... )
        >>> [outcome.status.value for outcome in result.outcomes]
        ['measured', 'measured']
    """
    if not specifications:
        raise BenchmarkError("there is nothing to compare: give at least one specification")
    if callable(inputs):
        progress(ProgressEvent(step=Step.INPUTS))
    values = Inputs.of(function, inputs() if callable(inputs) else inputs)
    with _own_random_state(values), _no_memory_of_sizes():
        progress(ProgressEvent(step=Step.REFERENCE))
        expected = expect(function, values, compute=compute, seed=seed)
        del values
        run = _Run(
            expected=expected,
            contestants=unique_contestants(specifications),
            time_inaccurate=time_inaccurate,
            progress=progress,
        )
        return run.result(timer, settings or Settings())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Checked:
    """A contestant that was compiled and looked at."""

    outcome: Outcome
    program: Program | None


class _Run:
    """One benchmark."""

    def __init__(
        self,
        *,
        expected: Expectation,
        contestants: Mapping[str, AbstractCompileSpecification],
        time_inaccurate: bool,
        progress: ProgressHook,
    ) -> None:
        self._expected = expected
        self._contestants = contestants
        self._time_inaccurate = time_inaccurate
        self._progress = progress

    def result(self, timer: AbstractTimer | None, settings: Settings) -> BenchmarkResult:
        checked, interrupted = self._check_all()
        outcomes = {name: one.outcome for name, one in checked.items()}
        programs = {name: one.program for name, one in checked.items() if one.program is not None}
        del checked
        speed = SpeedResult(measurements=(), comparisons=(), interrupted=interrupted)
        while programs and not speed.measurements and not interrupted:
            try:
                speed = self._time(programs, timer, settings)
            except ContestantError as error:
                name = error.contestant
                outcomes[name] = _failed(outcomes[name], error.__cause__ or error)
                del programs[name]
                error.__cause__ = None
            except KeyboardInterrupt:
                interrupted = True
        for measurement in speed.measurements:
            outcome = outcomes[measurement.name]
            accurate = outcome.accuracy is None or outcome.accuracy.accurate
            status = Status.MEASURED if accurate else Status.INACCURATE
            outcomes[measurement.name] = replace(outcome, status=status, measurement=measurement)
        self._progress(ProgressEvent(step=Step.DONE, fraction=1.0))
        return BenchmarkResult(
            compute=self._expected.compute.value,
            outcomes=tuple(outcomes.values()),
            comparisons=speed.comparisons,
            interrupted=interrupted or speed.interrupted,
        )

    def _check_all(self) -> tuple[dict[str, _Checked], bool]:
        checked = {
            name: _Checked(outcome=Outcome(name=name, status=Status.NOT_RUN), program=None)
            for name in self._contestants
        }
        try:
            for index, (name, specification) in enumerate(self._contestants.items()):
                done = index / len(self._contestants)
                self._progress(ProgressEvent(step=Step.COMPILE, fraction=done, contestant=name))
                checked[name] = self._check(name, specification)
        except KeyboardInterrupt:
            return checked, True
        return checked, False

    def _check(self, name: str, specification: AbstractCompileSpecification) -> _Checked:
        outcome = Outcome(name=name, status=Status.NOT_RUN)
        try:
            with _fallbacks() as fallen:
                start = time.perf_counter()
                bound = self._expected.program()
                compiled = specification.compile(bound.function, inputs=bound.inputs.args)
                program = bound.replaced(compiled)
                results, changed = self._expected.run(program)
                seconds = time.perf_counter() - start
            verdict = self._expected.judge(results, changed)
        except Exception as error:  # noqa: BLE001 - a contestant's failure is a result
            return _Checked(outcome=_failed(outcome, error), program=None)
        outcome = replace(
            outcome, compile_seconds=seconds, accuracy=verdict, warnings=tuple(fallen)
        )
        if verdict.accurate or self._time_inaccurate:
            return _Checked(outcome=outcome, program=program)
        return _Checked(outcome=replace(outcome, status=Status.INACCURATE), program=None)

    def _time(
        self, programs: Mapping[str, Program], timer: AbstractTimer | None, settings: Settings
    ) -> SpeedResult:
        workloads = {
            name: program.workload(self._expected.written) for name, program in programs.items()
        }
        return compare_speed(workloads, timer=timer, settings=settings, progress=self._progress)


def _failed(outcome: Outcome, error: BaseException) -> Outcome:
    """Makes a failure into a result, and frees what the failed run held."""
    details = "".join(traceback.format_exception(error))
    _forget_frames(error)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    status = Status.OUT_OF_MEMORY if _is_out_of_memory(error) else Status.FAILED
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    failure = Failure(
        kind=f"{module}{kind.__qualname__}",
        message=(str(error).splitlines() or [""])[0],
        details=details,
        error=error,
    )
    return replace(outcome, status=status, failure=failure)


def _forget_frames(error: BaseException | None) -> None:
    """Drops the tracebacks, whose frames hold the tensors of the failed run."""
    while error is not None and error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _is_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        # The CPU allocator of torch raises a plain RuntimeError.
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def _fallbacks() -> Iterator[list[str]]:
    """Collects what thunder says about giving up; other warnings pass."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        yield found
    for warning in caught:
        if issubclass(warning.category, FallbackWarning):
            found.append((str(warning.message).splitlines() or [""])[0])
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


@contextlib.contextmanager
def _own_random_state(inputs: Inputs) -> Iterator[None]:
    devices = devices_of(inputs.tensors().values())
    with torch.random.fork_rng([device for device in devices if device.type == "cuda"]):
        yield


@contextlib.contextmanager
def _no_memory_of_sizes() -> Iterator[None]:
    """Compiles as in a fresh process.

    Else a program that was compiled for other sizes before would get dynamic sizes now, and
    would be timed as another program than the one in front of us.
    """
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        yield
