"""Programs that were wrong once, as the search printed them. Part of `make test`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.judging import judge
from tests.fuzz.programs import build

PROGRAMS = {
    # All of it ran in eager mode, with a warning; PyTorch's other backends break the graph.
    "an operator that depends on values": """
import torch

def make_arguments(seed):
    torch.manual_seed(seed)
    return [torch.randn(8, 3).requires_grad_(), torch.tensor([2, 5])]

def program(a0, a1):
    v2, v3, v4 = torch.tensor_split(a0.sin(), a1)
    return [v2.cos(), v3, v4.exp()]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name):
    counts: Counter[str] = Counter()
    assert judge(*build(PROGRAMS[name]), counts) is None
    assert counts["passed"] == 1, "aot_eager fails too: nothing of thunder's is tested"
