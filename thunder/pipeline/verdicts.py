"""Verdicts of contests: what they are, where they are kept, and how the ranks of a job agree.

A verdict is kept as one JSON file in `THUNDER_CACHE_DIR`, under the graph's key. Nothing is
unpickled, and a file that is no verdict counts as none. Making verdicts is `contest.py`'s job.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch.distributed as dist
from torch.distributed import distributed_c10d

from thunder.debug.directory import Directory
from thunder.debug.variables import CACHE_DIR

_log = logging.getLogger(__name__)

MARGIN = 0.02
"""By which part of its time an entrant must beat the first: more than noise."""

_NO_VERDICT = "null"


@dataclass(frozen=True, kw_only=True, slots=True)
class ContestVerdict:
    """Which entrant runs a graph.

    Attributes:
        winner: Its name.
        milliseconds: Median time of a run of each entrant that was timed.
        rejected: Each entrant that was not, with the reason.
        cached: Whether it was made earlier, or by another rank.
    """

    winner: str
    milliseconds: Mapping[str, float]
    rejected: Mapping[str, str] = field(default_factory=dict)
    cached: bool = False

    @property
    def sentence(self) -> str:
        """Who won and who was rejected why, without the times: the same in every run."""
        others = [name for name in self.milliseconds if name != self.winner]
        over = f" over {' and '.join(others)}" if others else ""
        reasons = "".join(f"; {name}: {reason}" for name, reason in self.rejected.items())
        return f"contest: {self.winner} was chosen{over}{reasons}"

    def __str__(self) -> str:
        """The sentence, with the times."""
        times = ", ".join(f"{name} {ms:.4g} ms" for name, ms in self.milliseconds.items())
        return f"{self.sentence} ({times}{'; known before' if self.cached else ''})"


def winner(times: Mapping[str, float]) -> str:
    """Returns the fastest; the first where that is not clear.

    Args:
        times: Milliseconds of each entrant, the one that needs no contest first.

    Example:
        >>> winner({"inductor": 1.0, "nvfuser": 0.99}), winner({"inductor": 1.0, "nvfuser": 0.9})
        ('inductor', 'nvfuser')
    """
    first = next(iter(times))
    fastest = min(times, key=lambda name: times[name])
    return fastest if times[fastest] < times[first] * (1 - MARGIN) else first


def known_verdict(key: str, entrants: Sequence[str], *, binding: bool) -> ContestVerdict | None:
    """Looks a verdict up.

    Args:
        key: What `graph_key` returned.
        entrants: Names of the entrants; a verdict for another is none.
        binding: Whether the answer is final, so that the other ranks of the job must get the same.

    Returns:
        The verdict, or None when there is none.
    """
    text = _published(key) if _has_other_ranks() else None
    if text is None:
        text = _stored(key)
        if _has_other_ranks() and (text is not None or binding):
            text = _publish(key, text or _NO_VERDICT)
    verdict = _from_json(text or _NO_VERDICT)
    return verdict if verdict is not None and verdict.winner in entrants else None


def agreed_verdict(key: str, verdict: ContestVerdict) -> ContestVerdict:
    """Returns the verdict that counts on all ranks of the job: that of the rank which was first.

    Args:
        key: What `graph_key` returned.
        verdict: The verdict of this rank.
    """
    if not _has_other_ranks():
        return verdict
    text = _text(verdict)
    agreed = _publish(key, text)
    return verdict if agreed == text else _from_json(agreed) or verdict


def keep_verdict(key: str, verdict: ContestVerdict) -> None:
    """Keeps a verdict for later processes, where `THUNDER_CACHE_DIR` can be written.

    Args:
        key: What `graph_key` returned.
        verdict: The verdict.
    """
    try:
        folder = Directory.create(_folder())
    except OSError as error:
        _log.debug("verdicts are not kept: %s", error)
        return
    try:
        folder.write(f"{key}.json", _text(verdict).encode())
    except OSError as error:
        _log.debug("verdict %s is not kept: %s", key, error)
    finally:
        folder.close()


def _folder() -> Path:
    chosen = CACHE_DIR.read()
    if chosen is None:
        base = os.environ.get("XDG_CACHE_HOME")
        chosen = (Path(base) if base else Path.home() / ".cache") / "thunder"
    return chosen / "verdicts"


def _stored(key: str) -> str | None:
    try:
        return (_folder() / f"{key}.json").read_text()
    except (OSError, RuntimeError, UnicodeDecodeError):  # no home folder is a RuntimeError
        return None


def _text(verdict: ContestVerdict) -> str:
    return json.dumps(asdict(replace(verdict, cached=True)))


def _from_json(text: str) -> ContestVerdict | None:
    try:
        data = json.loads(text)
        times = {str(name): float(ms) for name, ms in data["milliseconds"].items()}
        rejected = {str(name): str(reason) for name, reason in data["rejected"].items()}
        return ContestVerdict(
            winner=str(data["winner"]), milliseconds=times, rejected=rejected, cached=True
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _has_other_ranks() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _published(key: str) -> str | None:
    store = distributed_c10d._get_default_store()
    name = _store_key(key)
    return store.get(name).decode() if store.check([name]) else None


def _publish(key: str, text: str) -> str:
    """Offers a verdict to the other ranks; returns the one that was offered first.

    Nobody waits for anybody: ranks compile at different times, and not all the same graphs.
    """
    store = distributed_c10d._get_default_store()
    return store.compare_set(_store_key(key), "", text).decode()


def _store_key(key: str) -> str:
    return f"thunder/verdicts/{key}"
