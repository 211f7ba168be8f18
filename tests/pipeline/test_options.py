"""Options are judged when they are given, not at the first call."""

from __future__ import annotations

import pytest
import torch

from thunder.errors import OptionError
from thunder.executors import OperatorExecutor
from thunder.pipeline.options import make_options

MINE = OperatorExecutor("mine", {"aten.relu": torch.relu})


@pytest.mark.parametrize("written", [MINE, [MINE], (MINE,)], ids=["alone", "list", "tuple"])
def test_an_executor_alone_is_a_list_of_it(written):
    options = make_options(executors=written)
    assert options.requested_executors == (MINE,)
    assert [executor.name for executor in options.executors] == ["mine", "aten"]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"executors": 3}, "executors= takes names"),
        ({"exclude_ops": "sin"}, r"write exclude_ops=\['sin'\]"),
        ({"exclude_ops": [torch.sin, 3]}, "exclude_ops= takes callables and names, not 3"),
        ({"transforms": torch.fx.GraphModule}, "transforms= takes a list"),
        ({"options": {"epilogue_fusio": True}}, r"did you mean 'epilogue_fusion'\?; torch"),
    ],
    ids=["executors", "exclude_ops-str", "exclude_ops-int", "transforms", "options"],
)
def test_a_wrong_value_is_refused_at_once(wrong, message):
    with pytest.raises(OptionError, match=message):
        make_options(**wrong)
