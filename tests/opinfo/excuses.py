"""The list of samples that may fail, with reasons: `excused.txt`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.opinfo.running import Failure

LIST = Path(__file__).with_name("excused.txt")


@dataclass(frozen=True, kw_only=True, slots=True)
class Excuse:
    """One line of the list.

    Attributes:
        operator: An operator's name, as in `OPERATORS`.
        dtype: A dtype without `torch.`, or `*`.
        form: A form's name, or `*`.
        reason: Why it may fail.
    """

    operator: str
    dtype: str
    form: str
    reason: str

    def covers(self, failure: Failure) -> bool:
        return (
            self.operator == failure.operator
            and self.dtype in ("*", failure.dtype)
            and self.form in ("*", failure.form.value)
        )


def read_excuses(path: Path = LIST) -> list[Excuse]:
    """Reads the list.

    Args:
        path: The file: `operator | dtype | form | reason` in each line, or a comment.
    """
    excuses = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            operator, dtype, form, reason = (part.strip() for part in line.split("|", 3))
            excuses.append(Excuse(operator=operator, dtype=dtype, form=form, reason=reason))
    return excuses


def unexcused(
    failures: Iterable[Failure], excuses: Iterable[Excuse]
) -> tuple[list[Failure], list[Excuse]]:
    """Returns the failures that nothing excuses, and the excuses that nothing needs.

    Args:
        failures: Of one operator.
        excuses: That operator's.
    """
    failures, excuses = list(failures), list(excuses)
    wrong = [each for each in failures if not any(excuse.covers(each) for excuse in excuses)]
    stale = [each for each in excuses if not any(each.covers(failure) for failure in failures)]
    return wrong, stale
