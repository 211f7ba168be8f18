"""The reproducers that are saved for the zoo's models run, and agree with eager.

make zoo ARGS="-k scripts"           a sample of the architectures
ZOO_SCRIPTS=all make zoo             of all of them
"""

from __future__ import annotations

import os

import pytest

from tests.zoo.architectures import model_types
from tests.zoo.excuses import NOT_MADE, excuse_for, read_excuses
from tests.zoo.scripts import run_scripts
from tests.zoo.workers import results_of

LIMIT = 300
EXCUSES = read_excuses()
MADE = [name for name in model_types() if not excuse_for(EXCUSES, name, NOT_MADE)]
STEP = 1 if os.environ.get("ZOO_SCRIPTS") == "all" else 8
"""Every eighth architecture is in the sample."""


@pytest.mark.slow
@pytest.mark.parametrize("model_type", MADE[::STEP])
def test_scripts(model_type):
    if excuse := excuse_for(EXCUSES, model_type, "scripts"):
        pytest.skip(excuse.reason)
    assert list(results_of(run_scripts, model_type, limit=LIMIT))
