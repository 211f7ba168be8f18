"""Transforms: any function from graph to graph, with a contract and a name in what goes wrong."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.infra.pass_base import PassResult

from thunder.errors import OptionError, TransformError
from thunder.trace import Direction
from thunder.transforms import AbstractTransform, Stage, as_transform, run_transforms
from thunder.transforms.dead_code_elimination import DeadCodeElimination

aten = torch.ops.aten


def graph():
    return make_fx(lambda x: x.sin().cos())(torch.ones(2))


def run(graph_module, *transforms, stage=Stage.ATEN):
    return run_transforms(
        graph_module,
        [as_transform(t) for t in transforms],
        stage=stage,
        direction=Direction.FORWARD,
    )


def sin_to_tan(graph_module):
    for node in graph_module.graph.find_nodes(op="call_function", target=aten.sin.default):
        node.target = aten.tan.default


def in_place(graph_module):
    sin_to_tan(graph_module)


def returned(graph_module):
    sin_to_tan(graph_module)
    return graph_module


def pair(graph_module):
    sin_to_tan(graph_module)
    return graph_module, True


def pass_result(graph_module):
    sin_to_tan(graph_module)
    return PassResult(graph_module, True)


@pytest.mark.parametrize("function", [in_place, returned, pair, pass_result])
def test_every_usual_way_to_return_works(function):
    result, traces = run(graph(), function)
    x = torch.linspace(0, 1, 3)
    torch.testing.assert_close(result(x), x.tan().cos())
    assert [trace.provenance.pass_name for trace in traces] == [function.__name__]
    assert "aten.tan" in traces[0].python()


def test_no_trace_where_nothing_changed():
    _, traces = run(graph(), lambda graph_module: None, DeadCodeElimination())
    assert traces == []


def test_later_passes_do_not_change_earlier_traces():
    def tan_to_exp(graph_module):
        for node in graph_module.graph.find_nodes(op="call_function", target=aten.tan.default):
            node.target = aten.exp.default

    _, traces = run(graph(), in_place, tan_to_exp)
    assert "aten.tan" in traces[0].python()
    assert "aten.exp" in traces[1].python()


def test_the_message_names_the_culprit_and_those_before_it():
    def bad(graph_module):
        raise ValueError("no luck")

    with pytest.raises(
        TransformError, match=r"'bad' failed on the forward graph: ValueError: no l"
    ):
        run(graph(), bad)
    with pytest.raises(TransformError, match="ran before it: in_place"):
        run(graph(), in_place, bad)


def test_an_illegal_graph_is_the_fault_of_the_pass_that_made_it():
    def disorder(graph_module):
        nodes = list(graph_module.graph.nodes)
        nodes[1].append(nodes[-1])

    with pytest.raises(TransformError, match="'disorder' failed"):
        run(graph(), disorder)


def test_contracts_are_kept():
    class Demanding(AbstractTransform):
        @property
        def name(self):
            return "demanding"

        def requires(self, graph_module: fx.GraphModule) -> None:
            raise TransformError("wants another graph")

        def apply(self, graph_module: fx.GraphModule):
            raise AssertionError("must not run")

    with pytest.raises(TransformError, match="wants another graph"):
        run(graph(), Demanding())


def test_stages_are_told_apart():
    captured = as_transform(in_place)
    captured.stage = Stage.CAPTURED
    result, _ = run(graph(), captured)
    assert "aten.sin" in result.code
    result, _ = run(graph(), captured, stage=Stage.CAPTURED)
    assert "aten.tan" in result.code


def test_nonsense_is_refused():
    with pytest.raises(OptionError, match="a transform is a function"):
        as_transform(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TransformError, match="returned str"):
        run(graph(), lambda graph_module: "done")
