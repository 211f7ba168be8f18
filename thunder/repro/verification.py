"""Runs a script once in a fresh process and says whether it does what it should."""

from __future__ import annotations

import contextlib
import enum
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from thunder.errors import ReproducerError
from thunder.repro.header import with_verdict
from thunder.repro.writer import write_text

TIMEOUT_SECONDS = 300.0

_SWITCHES = ("THUNDER_DEBUG", "TORCHDYNAMO_REPRO_", "TORCH_COMPILE_DEBUG", "TORCH_LOGS")
"""Variables that would make the child write debug output, or reproducers of its own."""

_CHANGING = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),
    (re.compile(r"(?:/[^\s/:'\"]+)+/"), ""),
    (re.compile(r"<eval_with_key>\.\d+"), "<eval_with_key>"),
    (re.compile(r"\bline \d+"), "line"),
)


@final
@dataclass(frozen=True, slots=True)
class Passes:
    """The script runs to the end and exits with status 0."""

    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Says so."""
        return "runs to the end"


@final
@dataclass(frozen=True, slots=True)
class Fails:
    """The script ends with an exception.

    Attributes:
        type_name: The name of the exception's class, without its module.
        head: The first line of its message, without addresses and folders.
        arguments: Arguments that the script needs for it.
    """

    type_name: str
    head: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def like(cls, error: BaseException) -> Fails:
        r"""Returns the expectation that a script fails as here.

        Args:
            error: The exception of the original run.

        Example:
            >>> str(Fails.like(ValueError("no such thing\nat all")))
            'fails with ValueError: no such thing'
        """
        return cls(type(error).__name__, message_head(str(error)))

    def __str__(self) -> str:
        """Says so."""
        return f"fails with {self.type_name}: {self.head}".removesuffix(": ")


@final
@dataclass(frozen=True, slots=True)
class Differs:
    """The script finds, when asked to check, that the compiled result is wrong."""

    arguments: tuple[str, ...] = ("--check_consistency",)

    def __str__(self) -> str:
        """Says so."""
        return "gives a wrong result (--check_consistency)"


@final
@dataclass(frozen=True, slots=True)
class Crashes:
    """The script's process is ended by a signal, such as that of a segmentation fault.

    Attributes:
        signal: The number of the signal; 0 for any.
        arguments: Arguments that the script needs for it.
    """

    signal: int = 0
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Says so, with the signal's name."""
        return f"crashes ({_signal_name(self.signal)})" if self.signal else "crashes"


@final
@dataclass(frozen=True, slots=True)
class Hangs:
    """The script is still running after some time.

    Attributes:
        seconds: The time.
        arguments: Arguments that the script needs for it.
    """

    seconds: float
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Says so."""
        return f"does not end within {self.seconds:g} s"


Expectation = Passes | Fails | Differs | Crashes | Hangs


class Status(enum.Enum):
    """What became of a verification."""

    NOT_RUN = "not run"
    CONFIRMED = "confirmed"
    DIFFERENT = "NOT confirmed"
    TIMED_OUT = "NOT confirmed, no result in time"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What running a script showed.

    Attributes:
        status: Whether it did what it should.
        details: One sentence.
    """

    status: Status
    details: str

    def __str__(self) -> str:
        """Gives status and details, as headers state them."""
        return f"{self.status.value}: {self.details}" if self.details else self.status.value


NOT_RUN = Verdict(Status.NOT_RUN, "")


def verify(
    path: str | os.PathLike[str],
    expected: Expectation,
    *,
    timeout: float = TIMEOUT_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> Verdict:
    """Runs a script in a fresh process and states the verdict in its header.

    Args:
        path: The script.
        expected: What it should do.
        timeout: Seconds after which it is stopped; `Hangs` has its own.
        environment: Environment variables for the process; by default those of this one, without
            the switches that would make it write debug output.

    Returns:
        The verdict. Interrupting the wait stops the process and leaves the script as it was.

    Raises:
        ReproducerError: The script cannot be read or its header cannot be written.
    """
    script = Path(path).resolve()
    try:
        text = script.read_text(encoding="utf-8")
    except OSError as error:
        raise ReproducerError(f"cannot read {script}: {error.strerror}") from error
    command = [sys.executable, str(script), *expected.arguments]
    hangs = isinstance(expected, Hangs)
    timeout = expected.seconds if isinstance(expected, Hangs) else timeout
    try:
        code, output = run_apart(command, timeout, environment or quiet_environment())
    except subprocess.TimeoutExpired:
        status = Status.CONFIRMED if hangs else Status.TIMED_OUT
        verdict = Verdict(status, f"stopped after {timeout:g} s in a fresh process")
    else:
        verdict = judge(expected, code, output)
    write_text(script, with_verdict(text, str(verdict)))
    return verdict


def judge(expected: Expectation, code: int, output: str) -> Verdict:
    """Compares how a process ended with what was expected.

    Args:
        expected: What was expected.
        code: Its exit status.
        output: What it wrote to its standard error.
    """
    if _is_met(expected, code, output):
        return Verdict(Status.CONFIRMED, f"{expected}, in a fresh process")
    return Verdict(Status.DIFFERENT, f"expected that it {expected}; it {_ending(code, output)}")


def message_head(message: str) -> str:
    """Returns the first line of a message, without what changes between runs."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return _normal(lines[0]) if lines else ""


def quiet_environment() -> dict[str, str]:
    """Returns this process's environment without the switches of debug output."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_SWITCHES)}


def run_apart(
    command: Sequence[str], timeout: float, environment: Mapping[str, str]
) -> tuple[int, str]:
    """Runs a command in an empty folder, and stops it with its children when the wait ends.

    Args:
        command: The command and its arguments.
        timeout: Seconds.
        environment: The environment variables.

    Returns:
        The exit status and the text of the standard error.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as child,
    ):
        try:
            _, output = child.communicate(timeout=timeout)
        except BaseException:  # too long, or Ctrl-C
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
    return child.returncode, output.decode("utf-8", "replace")


def _is_met(expected: Expectation, code: int, output: str) -> bool:
    match expected:
        case Passes():
            return code == 0
        case Differs():
            return code == 1 and "further from float64 than eager explains" in output
        case Crashes(signal=number):
            return code < 0 and number in (0, -code)
        case Hangs():
            return False  # it ended
        case Fails(type_name=name, head=head):
            # Dynamo cuts the chain of causes; what is around the cause then quotes it.
            quoted = f": {name}: {head}"
            return code != 0 and any(
                (found == name and text.startswith(head)) or quoted in f": {found}: {text}"
                for found, text in _exceptions(output)
            )


def _ending(code: int, output: str) -> str:
    if code == 0:
        return "runs to the end"
    if code < 0:
        return f"crashes ({_signal_name(-code)})"
    *_, last = ["", *(f"fails with {name}: {text}" for name, text in _exceptions(output))]
    return last or f"exits with status {code}"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number}, {signal.Signals(number).name}"
    except ValueError:  # a real-time signal, or one of another system
        return f"signal {number}"


def _exceptions(output: str) -> Iterator[tuple[str, str]]:
    """Yields class and normalized message of each exception that tracebacks mention."""
    for line in map(_without_rank, output.splitlines()):
        found = re.match(r"\s*(?:[\w.]+\.)?([A-Za-z_]\w*)(?::\s*(.*))?$", line)
        if found and not line.startswith(" "):
            yield found[1], _normal(found[2] or "")


def _without_rank(line: str) -> str:
    """Takes off what torch puts before each line of a traceback where there are process groups."""
    return re.sub(r"^\[rank\d+\]: ?", "", line)


def _normal(text: str) -> str:
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return text.strip()
