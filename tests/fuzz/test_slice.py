"""Some generated programs. Part of `make test`."""

from __future__ import annotations

from collections import Counter

import torch

from tests.fuzz.judging import in_pieces, judge
from tests.fuzz.programs import Program
from tests.fuzz.searching import search


def test_as_in_eager():
    counts = search(seed=0, number=40)
    assert counts["passed"] > 30


def test_in_pieces_as_in_eager():
    counts = search(seed=0, number=10, compile=in_pieces)
    assert counts["passed"] > 7


def test_a_wrong_compiler_is_found():
    def compile_wrongly(function):
        return lambda *inputs: function(*inputs) + 1

    program = Program(arguments=("torch.randn(3)",), statements=("v1 = a0.sin()",), result="v1")
    counts: Counter[str] = Counter()
    assert "['outputs']['value']" in str(judge(*program.build(), counts, compile_wrongly))
    assert counts["failed"] == 1


def test_programs_print_as_source_that_runs():
    program = Program(
        arguments=("torch.randn(3)", "a0[1:]"),
        statements=("if a0.sum() > 0:\n    v2 = a1\nelse:\n    v2 = a1 * 2", "v2.mul_(2)"),
        result="[v2, a1]",
    )
    namespace: dict = {}
    exec(repr(program), namespace)
    first, second = namespace["program"](*namespace["make_arguments"](0))
    assert first.shape == second.shape == torch.Size([2])
