"""First runs that fail around a collective, in one process of a group that sends nothing."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce
from torch.testing._internal.distributed.fake_pg import FakeStore

from thunder import thunderfx
from thunder.errors import FallbackWarning, UnrepeatableRunError
from thunder.executors import AbstractFusionExecutor, OperatorExecutor

X = torch.linspace(-1, 1, 4)


class Fusing(AbstractFusionExecutor):
    """Fuses all that it may and fails when that runs."""

    @property
    def name(self):
        return "fusing"

    def check(self, node):
        return None

    def compile(self, graph_module, example_inputs, context):
        return broken


def broken(*args):
    raise RuntimeError("broken")


def wrong(x):
    return x.double()


def computes_then_sends(x):
    return all_reduce(torch.erf(x), "sum", [0, 1])


def sends_then_computes(x):
    return torch.erf(all_reduce(x, "sum", [0, 1]))


def start(ranks):
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())


@pytest.fixture(autouse=True)
def _apart(monkeypatch):
    monkeypatch.setenv("THUNDER_REPRODUCERS", "off")  # checking one takes seconds
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "executor",
    [
        OperatorExecutor("mine", {"aten.erf": broken}),
        OperatorExecutor("mine", {"aten.erf": wrong}),
        Fusing(),
    ],
    ids=["raises", "wrong dtype", "fused"],
)
def test_what_was_sent_is_not_sent_again(executor):
    start(2)
    f = thunderfx(sends_then_computes, executors=[executor, "aten"])
    with pytest.raises(UnrepeatableRunError, match="this rank alone cannot run it in another way"):
        f(X)


def test_before_anything_is_sent_there_is_another_way():
    start(2)
    mine = OperatorExecutor("mine", {"aten.erf": broken})
    f = thunderfx(computes_then_sends, executors=[mine, "aten"])
    with pytest.warns(FallbackWarning, match="broken"):
        torch.testing.assert_close(f(X), torch.erf(X))  # this group gives back what it is given


def test_without_other_ranks_there_is_another_way():
    start(1)

    def function(x):
        return torch.erf(all_reduce(x, "sum", [0]))

    f = thunderfx(function, executors=[OperatorExecutor("mine", {"aten.erf": broken}), "aten"])
    with pytest.warns(FallbackWarning, match="broken"):
        torch.testing.assert_close(f(X), torch.erf(X))


def test_a_collective_that_fails_points_at_the_other_ranks():
    start(2)
    mine = OperatorExecutor("mine", {"_c10d_functional.wait_tensor": broken})
    f = thunderfx(computes_then_sends, executors=[mine, "aten"])
    with pytest.raises(UnrepeatableRunError, match="one may have failed before"):
        f(X)
