"""`fx_report`: graphs, operators and breaks of a program, for users of torch.compile alone."""

from __future__ import annotations

import inspect
import json
import re

import pytest
import torch

from thunder.benchmark import (
    Settings,
    TorchCompileSpecification,
    TorchEagerSpecification,
)
from thunder.dynamo.report import fx_report
from thunder.errors import OptionError


def inner(x):
    torch._dynamo.graph_break()
    return x.exp()


def broken(x):
    y = torch.sin(x).sin()
    y = y + inner(y)
    if y.sum() > 0:
        y = y * 2
    return y.cos()


def test_counts_methods_and_functions():
    report = fx_report(lambda x: (x.exp() + torch.exp(x) + x.exp()).sum(), torch.ones(3))
    assert report.operators == {
        "Tensor.exp": 2,
        "operator.add": 2,
        "Tensor.sum": 1,
        "torch.exp": 1,
    }
    assert report.dynamo_break_reasons == []


def test_breaks_name_the_users_lines():
    report = fx_report(broken, torch.ones(3))
    explicit, branch = report.dynamo_break_reasons
    assert explicit.stack[-1].code == "torch._dynamo.graph_break()"
    assert [line.function for line in explicit.stack] == ["broken", "inner"]
    assert explicit.hints == ("Remove the `torch._dynamo.graph_break()` call.",)
    assert branch.stack[-1].code == "if y.sum() > 0:"
    assert branch.reason.startswith("Data-dependent branch")
    assert len(report.fx_graph_reports) == 4


def test_same_break_is_listed_once():
    def unrolled(x):
        return inner(inner(inner(x)))

    first, *others = fx_report(unrolled, torch.ones(2)).dynamo_break_reasons
    assert first.stack[-1].function == "inner"
    assert [reason.stack for reason in others].count(first.stack) == 0


def test_function_that_dynamo_skips_has_a_reason():
    def loop(x):
        for _ in range(3):
            x = x.sin()
            torch._dynamo.graph_break()
        return x

    report = fx_report(loop, torch.ones(2))
    (reason,) = report.dynamo_break_reasons
    assert report.fx_graph_reports == []
    assert reason.skipped
    assert reason.stack[-1].code == "torch._dynamo.graph_break()"
    assert "graph break in a for/while loop" in reason.explanation


def test_kwargs_are_the_functions():
    report = fx_report(lambda x, *, scale: x * scale, torch.ones(2), scale=3)
    assert report.operators == {"operator.mul": 1}


def test_does_not_change_the_model():
    model = torch.nn.Linear(2, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fx_report(model, torch.ones(1, 2)).fx_graph_reports[0].run_repro(TorchEagerSpecification())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_more_reports_than_the_recompile_limit():
    reports = [fx_report(broken, torch.ones(3)) for _ in range(12)]
    counts = [len(report.fx_graph_reports) for report in reports]
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        assert counts == [4] * 12
        return
    # Before torch 2.12 what is called after a graph break, `inner`, shares one limit with all.
    limit = torch._dynamo.config.recompile_limit
    assert counts == [4] * limit + [3] * (12 - limit)
    said = ["recompile limit exceeded" in str(report) for report in reports]
    assert said[: limit + 1] == [False] * limit + [True]


def test_options():
    x = torch.ones(4, 3)
    (graph,) = fx_report(torch.sin, x, compile_options={"dynamic": True}).fx_graph_reports
    assert "s" in graph.to_json()["inputs"]["l_args_0_"] or "s" in str(graph)
    with pytest.raises(OptionError, match="executors belong to ThunderCompiler"):
        fx_report(torch.sin, x, compile_options={"executors": ["aten"]})
    with pytest.raises(OptionError, match="did you mean 'dynamic'"):
        fx_report(torch.sin, x, compile_options={"dynamics": True})


def test_text_is_the_same_in_two_runs():
    texts = {str(fx_report(broken, torch.ones(3))) for _ in range(2)}
    texts |= {str(fx_report(broken, torch.ones(3)))}
    assert len(texts) == 1
    assert not re.search(r"0x[0-9a-f]{4}|/root|/home", texts.pop())


def test_json():
    data = fx_report(broken, torch.ones(3)).to_json()
    assert json.loads(json.dumps(data)) == data
    assert data["program"] == "broken"


def test_example_inputs_share_the_weights_and_nothing_else():
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    (graph,) = fx_report(model, x).fx_graph_reports
    first, second = graph.make_example_inputs(), graph.make_example_inputs()
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    shared = [value.data_ptr() in weights for value in first]
    assert sorted(shared) == [False, True, True]
    at = shared.index(False)
    assert torch.equal(first[at], x)
    assert first[at].data_ptr() not in {x.data_ptr(), second[at].data_ptr()}


def test_example_inputs_leave_the_random_state_alone():
    (graph,) = fx_report(torch.sin, torch.ones(3)).fx_graph_reports
    state = torch.get_rng_state()
    graph.make_example_inputs()
    assert torch.equal(state, torch.get_rng_state())


def test_modes_around_the_program_hold_in_runs():
    model = torch.nn.Linear(3, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        (graph,) = fx_report(model, torch.ones(1, 3)).fx_graph_reports
    (out,) = graph.run_repro(TorchEagerSpecification())
    assert out.dtype is torch.bfloat16
    assert not out.requires_grad


def test_benchmark_checks_before_it_times():
    (graph,) = fx_report(lambda x: x.exp().sum(), torch.ones(3)).fx_graph_reports
    result = graph.run_benchmark(
        TorchCompileSpecification(backend="eager"), settings=Settings(seconds=0.2)
    )
    assert [outcome.name for outcome in result.outcomes] == [
        "eager",
        "torch.compile (backend=eager)",
    ]
    assert all(outcome.accuracy and outcome.accuracy.accurate for outcome in result.outcomes)
    assert len(result.comparisons) == 1
