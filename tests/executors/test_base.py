"""Operator tables of a user's: what they accept, and what they say about the rest."""

from __future__ import annotations

import pytest
import torch

from thunder.errors import OptionError
from thunder.executors import OperatorExecutor, get_executor, resolve_executors

aten = torch.ops.aten


@pytest.mark.parametrize("key", ["aten.relu", "torch.ops.aten.relu.default", aten.relu])
def test_an_operator_may_be_named_in_several_ways(key):
    executor = OperatorExecutor("mine", {key: torch.relu})
    assert aten.relu.default in executor.undecomposed_ops()


@pytest.mark.parametrize("key", ["aten.linear", "aten.softmax", aten.layer_norm, "aten.matmul"])
def test_what_is_always_decomposed_is_refused(key):
    with pytest.raises(OptionError, match="always decomposed before executors see"):
        OperatorExecutor("mine", {key: torch.relu})


@pytest.mark.parametrize("key", ["aten.rellu", "nonsense", "aten"])
def test_a_name_of_nothing_is_refused(key):
    with pytest.raises(OptionError, match="names no operator"):
        OperatorExecutor("mine", {key: torch.relu})


def test_a_torch_function_is_refused_with_the_way_out():
    with pytest.raises(OptionError, match=r"torch.ops.aten.relu"):
        OperatorExecutor("mine", {torch.relu: torch.relu})


def test_aten_is_always_the_last():
    assert [e.name for e in resolve_executors("auto")] == ["inductor", "aten"]
    assert [e.name for e in resolve_executors(["aten"])] == ["aten"]
    mine = OperatorExecutor("mine", {"aten.relu": torch.relu})
    for written in ([mine], mine):
        assert [e.name for e in resolve_executors(written)] == ["mine", "aten"]


def test_wrong_lists_are_refused():
    with pytest.raises(OptionError, match="did you mean 'inductor'"):
        resolve_executors(["inducter"])
    with pytest.raises(OptionError, match="takes names"):
        resolve_executors([3])
    mine = OperatorExecutor("aten", {"aten.relu": torch.relu})
    with pytest.raises(OptionError, match="two executors"):
        resolve_executors([mine])


def test_the_aten_executor_takes_everything():
    graph = torch.fx.symbolic_trace(lambda x: x).graph
    assert get_executor("aten").check(next(iter(graph.nodes))) is None
