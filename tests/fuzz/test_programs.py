"""Generated programs against eager.

make fuzz                                       2,000 programs, and 400 cut in pieces
FUZZ_FIRST_SEED=100 make fuzz                   2,000 others
make fuzz ARGS='-k test_as_in_eager'            without the regressions and cuts at random
"""

from __future__ import annotations

import os

import pytest

from tests.fuzz.judging import in_pieces
from tests.fuzz.searching import search

FIRST_SEED = int(os.environ.get("FUZZ_FIRST_SEED", "1"))
PROGRAMS = 2000
PROGRAMS_IN_PIECES = 400
PROGRAMS_PER_TEST = 100


@pytest.mark.parametrize("part", range(PROGRAMS // PROGRAMS_PER_TEST))
def test_as_in_eager(part, request):
    counts = search(seed=FIRST_SEED + part, number=PROGRAMS_PER_TEST)
    request.node.user_properties.append(("programs", dict(counts)))
    assert counts["passed"] > counts["excused"]


@pytest.mark.parametrize("part", range(PROGRAMS_IN_PIECES // PROGRAMS_PER_TEST))
def test_in_pieces_as_in_eager(part, request):
    counts = search(seed=FIRST_SEED + part, number=PROGRAMS_PER_TEST, compile=in_pieces)
    request.node.user_properties.append(("programs", dict(counts)))
    assert counts["passed"] > counts["excused"]
