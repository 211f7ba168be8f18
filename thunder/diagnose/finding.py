"""What one run of a piece showed, and whether that is the failure that is looked for."""

from __future__ import annotations

import enum
import re
import subprocess
from dataclasses import dataclass

from torch._dynamo.exc import BackendCompilerFailed

from thunder.repro.verification import message_head


class Kind(enum.Enum):
    """How a run ended."""

    PASSES = "passes"
    FAILS = "fails"
    INACCURATE = "is inaccurate"
    HOLDS = "meets the check"
    CRASHES = "ends the process"
    TIMES_OUT = "does not end in time"
    CHECK_FAILS = "makes the check itself fail"
    IMPOSSIBLE = "cannot be run alone"
    UNANSWERED = "was not examined"
    """The process that should have examined it failed for reasons of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """How a run ended.

    Attributes:
        kind: In which way.
        type_name: Class of the exception that was the cause; empty when there is none.
        message_head: First line of its message.
        complaint: The first complaint of a compiler that the message quotes.
        text: For the reader: the message, or the verdict.
        wrong_outputs: Positions of the inaccurate outputs.
        signal: The signal that ended the process; 0 when none did.
    """

    kind: Kind
    type_name: str = ""
    message_head: str = ""
    complaint: str = ""
    text: str = ""
    wrong_outputs: tuple[int, ...] = ()
    signal: int = 0

    @staticmethod
    def of_error(error: Exception) -> Finding:
        """Returns the finding that a run raised.

        Args:
            error: What it raised. The exception that caused it is what counts: those around it
                name regions and count nodes, which differ from piece to piece.
        """
        cause = _cause(error)
        message = str(cause)
        complaint = re.search(r"error: .*", message.partition("\n")[2])
        return Finding(
            kind=Kind.FAILS,
            type_name=type(cause).__name__,
            message_head=message_head(message),
            complaint=message_head(complaint[0]) if complaint else "",
            text=f"{type(cause).__name__}: {message_head(message)}",
        )

    def is_like(self, original: Finding) -> bool:
        """Whether this is the failure of the original.

        Args:
            original: What the whole graph does.
        """
        if self.kind is not original.kind:
            return False
        if self.kind is Kind.FAILS:
            return self._signature() == original._signature()
        return self.signal == original.signal

    def _signature(self) -> tuple[str, ...]:
        return self.type_name, _unnumbered(self.message_head), _unnumbered(self.complaint)


def _cause(error: BaseException) -> BaseException:
    """Returns the first of the exceptions that led to this one."""
    while True:
        following = error.__cause__
        # Dynamo cuts the chain and keeps what a backend raised aside. InductorError, a subclass,
        # stays: what it keeps names files by hashes.
        if type(error) is BackendCompilerFailed:
            following = error.inner_exception
        if following is None or isinstance(following, subprocess.CalledProcessError):
            return error
        error = following


def _unnumbered(text: str) -> str:
    """Takes the numbers off the names of values, which are counted anew in each piece."""
    return re.sub(r"(_|\bbuf|\barg|Fusion)\d+(_\d+)?\b", r"\1", text)
