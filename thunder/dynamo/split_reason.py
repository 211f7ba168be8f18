"""Why a node of a captured graph is not in a thunder region."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from thunder.trace.source_lines import SourceLine

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")


class SplitReasonKind(enum.Enum):
    """What kept a node out of the thunder regions."""

    EXCLUDED_OP = "excluded op"
    """The user's `exclude_ops` names it."""

    FAKE_TENSOR_FAILURE = "fake tensor failure"
    """It cannot be run on fake tensors, so no shape is known for what follows."""

    NO_META_KERNEL = "no meta kernel"
    """It has no rule that gives the shape and dtype of its result."""

    UNSUPPORTED_HIGHER_ORDER_OP = "unsupported higher-order op"
    """A higher-order operator that AOTAutograd has no rule for."""

    CONTAINS_UNSUPPORTED = "contains unsupported"
    """A higher-order operator with such a node in its body, which cannot be cut."""

    INDIVISIBLE_REGION = "indivisible region"
    """A stretch of the graph that cannot be cut, such as a vmap, with such a node in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitReason:
    """Why a node is left to Inductor.

    Attributes:
        kind: What kind of reason.
        info: A sentence for people.
        op: The operator, such as `torch.sinc`.
        source_line: The user's line that the node comes from, or None when none was recorded.
        exception: What was raised, as text, where the reason is a failure.
    """

    kind: SplitReasonKind
    info: str
    op: str
    source_line: SourceLine | None = None
    exception: str | None = None

    def __str__(self) -> str:
        """Kind, sentence, line and exception on one line; the same in every run."""
        parts = [f"{self.kind.value}: {self.info}"]
        if self.source_line is not None:
            parts.append(f"at {self.source_line}")
        if self.exception is not None:
            parts.append(f"[{self.exception}]")
        return " ".join(parts)


def describe_exception(error: BaseException) -> str:
    """Returns an exception's type and first line, without memory addresses.

    Args:
        error: The exception.
    """
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    return _ADDRESS.sub("0x...", text)
