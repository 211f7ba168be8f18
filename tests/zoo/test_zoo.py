"""Every architecture of transformers, small, does compiled what it does in eager mode.

make zoo                                        everything, op by op
make zoo ARGS="-k 'llama or vit'"               some
ZOO_EXECUTORS=auto make zoo                     through Inductor; takes long
ZOO_RESULTS=zoo.jsonl make zoo                  records to a file: graphs, splits, verdicts
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.zoo.architectures import model_types
from tests.zoo.cases import NoCaseError, make_case
from tests.zoo.excuses import NOT_MADE, excuse_for, read_excuses
from tests.zoo.judging import Judgement, Mode, judge
from tests.zoo.workers import DiedError, results_of

LIMIT = 600
"""Seconds for all modes of an architecture."""

EXCUSES = read_excuses()


def judge_all(model_type: str) -> Iterator[Any]:
    """Yields facts about an architecture, then a judgement for each mode."""
    case = make_case(model_type)
    yield {"class": type(case.model).__name__, "resized": case.resized}
    for mode in Mode:
        yield judge(case, mode)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", model_types())
def test_as_in_eager(model_type, request):
    record: dict[str, Any] = {"type": model_type, "judgements": [], "problem": ""}
    judgements: list[Judgement] = []
    try:
        for found in results_of(judge_all, model_type, limit=LIMIT):
            if isinstance(found, Judgement):
                judgements.append(found)
            else:
                record.update(found)
    except (NoCaseError, DiedError) as error:
        record["problem"] = f"{type(error).__name__}: {error}"
    record["judgements"] = [judgement.to_json() for judgement in judgements]
    request.node.user_properties.append(("zoo", record))
    not_made = excuse_for(EXCUSES, model_type, NOT_MADE)
    if record["problem"]:
        assert not_made, record["problem"]
    elif not_made:
        assert not_made.depends_on_environment, f"excused.txt: made now, take it out: {not_made}"
    for judgement in judgements:
        check(model_type, judgement)


def check(model_type: str, judgement: Judgement) -> None:
    """Fails on what is not excused, and on an excuse that is not needed."""
    excuse = excuse_for(EXCUSES, model_type, judgement.mode)
    assert judgement.acceptable or excuse, judgement.problem
    assert not judgement.splits or excuse, judgement.splits
    if excuse:
        assert not judgement.acceptable or judgement.splits, f"excused.txt: passes now: {excuse}"


def test_excuses_are_about_architectures():
    known = set(model_types())
    assert not [excuse for excuse in EXCUSES if excuse.model_type not in known]
