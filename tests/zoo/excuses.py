"""The list of architectures that do not run or may differ, with reasons: `excused.txt`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("excused.txt")
NOT_MADE = "not made"


@dataclass(frozen=True, kw_only=True, slots=True)
class Excuse:
    """One line of the list.

    Attributes:
        model_type: The architecture.
        what: `not made`, or a mode's name, or `scripts`.
        reason: Why.
    """

    model_type: str
    what: str
    reason: str

    @property
    def depends_on_environment(self) -> bool:
        """Whether it may run elsewhere: where a library is there, or on a faster machine."""
        return self.reason.startswith(("needs the library", "slow"))


def read_excuses(path: Path = LIST) -> list[Excuse]:
    """Reads the list.

    Args:
        path: The file: `model type | what | reason` in each line, or a comment.
    """
    excuses = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            model_type, what, reason = (part.strip() for part in line.split("|", 2))
            excuses.append(Excuse(model_type=model_type, what=what, reason=reason))
    return excuses


def excuse_for(excuses: list[Excuse], model_type: str, what: str) -> Excuse | None:
    """Returns the line about one thing of an architecture.

    Args:
        excuses: The list.
        model_type: The architecture.
        what: The thing.
    """
    return next((x for x in excuses if (x.model_type, x.what) == (model_type, what)), None)
