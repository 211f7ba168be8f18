"""The helpers that go through a whole program: numbers, findings, scripts, JSON."""

from __future__ import annotations

import functools
import inspect
import json
import re

import pytest
import torch

from thunder.benchmark import (
    AbstractCompileSpecification,
    BenchmarkResult,
    Comparison,
    Compute,
    Measurement,
    Outcome,
    Settings,
    Status,
    ThunderCompileSpecification,
    TorchCompileSpecification,
    TorchEagerSpecification,
    Verdict,
)
from thunder.dynamo.report import (
    BenchmarkReport,
    Finding,
    Level,
    RegionRecord,
    fx_report,
    get_thunder_fxgraph_reports,
    load_script,
    read_report,
    save_failing_repros,
    save_thunderfx_repros,
    thunderfx_benchmark_report,
)
from thunder.dynamo.report.display import shown_report
from thunder.errors import BenchmarkError, OptionError

ATEN = {"executors": ["aten"]}
QUICK = Settings(seconds=0.2)


def program(x):
    x = x.sin() + 1
    torch._dynamo.graph_break()
    return x.cos().sum()


def drop_sin(graph_module):
    """A wrong transform: it computes another thing."""
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default


def fail(graph_module):
    """A transform that does not work."""
    raise ValueError("no way")


def report_of(folder, fn=program, *, options=ATEN, **keywords):
    x = torch.rand(4, requires_grad=True)
    against = [TorchCompileSpecification(backend="eager"), TorchEagerSpecification()]
    quiet = {"verify": False, "show": False, "against": against}
    keywords = {"settings": QUICK, **quiet, **keywords}
    return thunderfx_benchmark_report(fn, folder, x, thunder_options=options, **keywords)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return folder, report_of(folder)


def test_compares_graph_by_graph(written):
    _, report = written
    assert [region.name for region in report.regions] == ["graph0", "graph1"]
    for region in report.regions:
        names = [outcome.name for outcome in region.result.outcomes]
        assert names == ["torch.compile (backend=eager)", "eager", "thunder"]
        assert region.level is Level.GRAPH
        assert region.comparison.baseline == "torch.compile (backend=eager)"
        assert region.result.compute == "forward+backward"


def test_json_holds_everything(written):
    folder, report = written
    again = read_report(folder)
    assert again.to_json() == report.to_json()
    assert [region.finding for region in again.regions] == [
        region.finding for region in report.regions
    ]
    data = json.loads((folder / "report.json").read_text())
    assert data["breaks"][0]["reason"] == "Call to `torch._dynamo.graph_break()`"
    assert data["environment"]["torch"] == torch.__version__


def test_scripts_only_for_what_stands_out(written):
    folder, report = written
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {"report.json"} | {s for region in report.regions for s in region.scripts}


def test_text_names_no_machine(written):
    _, report = written
    text = str(report) + json.dumps(report.to_json())
    assert not re.search(r"0x[0-9a-f]{4}|/root|/home|/tmp", text)


def test_wrong_results_come_before_timings(tmp_path):
    report = report_of(tmp_path, torch.sin, options={**ATEN, "transforms": [drop_sin]})
    (region,) = report.problems
    assert region.finding is Finding.INACCURATE
    assert region.result is not None
    assert region.result.outcome("thunder").measurement is None
    (script,) = region.scripts
    text = (tmp_path / script).read_text()
    assert "Expected: gives a wrong result" in text
    assert "drop_sin" in text


def test_failures_leave_a_verified_script(tmp_path):
    options = {**ATEN, "transforms": [fail]}
    report = report_of(tmp_path, torch.sin, options=options, verify=True)
    (region,) = report.problems
    assert region.finding is Finding.FAILED
    assert "no way" in str(region.failure)
    assert region.scripts == ("graph0_repro_thunder.py",)
    header = (tmp_path / "graph0_repro_thunder.py").read_text().partition("\nimport")[0]
    assert "Verdict: confirmed: fails with TransformError" in header


def test_fusions_are_compared_with_eager_where_inductor_has_them(tmp_path):
    report = report_of(tmp_path, lambda x: (x * 2).exp(), options={})
    levels = [region.level for region in report.regions]
    assert levels == [Level.GRAPH, Level.FUSION, Level.FUSION]
    fusion = report.regions[1]
    assert fusion.executor == fusion.subject == "inductor"
    assert fusion.comparison is not None and fusion.comparison.baseline == "eager"
    assert fusion.result is not None and fusion.result.compute == "forward"


def test_table_is_shown_when_asked(tmp_path, capsys):
    report_of(tmp_path, torch.sin, show=True)
    assert "graph0" in capsys.readouterr().out


def measured_region(name, level, baseline):
    outcomes = tuple(
        Outcome(
            name=way,
            status=Status.MEASURED,
            measurement=Measurement(name=way, timer="wall time", samples=(seconds,)),
        )
        for way, seconds in ((baseline, 35.3e-6), ("thunder", 98.3e-6))
    )
    compared = Comparison(
        baseline=baseline,
        candidate="thunder",
        ratio=12.83,
        low=11.34,
        high=13.63,
        confidence=0.99,
        threshold=0.03,
        verdict=Verdict.SLOWER,
        rounds=9,
    )
    result = BenchmarkResult(compute="forward", outcomes=outcomes, comparisons=(compared,))
    return RegionRecord(
        name=name,
        level=level,
        executor="thunder",
        operators={"sin": 122},
        subject="thunder",
        result=result,
    )


@pytest.mark.parametrize("baseline", ["torch.compile", "torch.compile (backend=eager)"])
@pytest.mark.parametrize(("columns", "intervals"), [(80, False), (115, True)])
def test_table_keeps_names_and_numbers_whole(monkeypatch, capsys, baseline, columns, intervals):
    """Of each name the table shows what it adds to that of the graph or segment around it."""
    names = [
        ("graph0", Level.GRAPH),
        ("graph0_thunder_0", Level.SEGMENT),
        ("graph0_thunder_0_inductorFusion0_forward", Level.FUSION),
        ("graph0_thunder_0_inductorFusion0_backward", Level.FUSION),
        ("graph0_thunder_2", Level.SEGMENT),
        ("graph1", Level.GRAPH),
    ]
    regions = tuple(measured_region(name, level, baseline) for name, level in names)
    report = BenchmarkReport(program="step", environment={}, breaks=[], regions=regions)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    with shown_report(True) as display:
        display.report = report
    out = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", capsys.readouterr().out)
    lines = [line for line in out.splitlines() if "98.3 us" in line]
    assert [re.split(r"  +", line.strip())[:3] for line in lines] == [
        [name, "122", "98.3 us"]
        for name in (
            "graph0",
            "thunder_0",
            "inductorFusion0_forward",
            "inductorFusion0_backward",
            "thunder_2",
            "graph1",
        )
    ]
    indents = [len(line) - len(line.lstrip()) for line in lines]
    assert [indent - indents[0] for indent in indents] == [0, 2, 4, 4, 2, 0]
    assert all("12.83" in line and "slower" in line for line in lines)
    assert all(("(11.34 to 13.63)" in line) is intervals for line in lines)
    assert max(map(len, out.splitlines())) <= columns


def test_repros_of_everything(tmp_path):
    x = torch.rand(3, requires_grad=True)
    paths = save_thunderfx_repros(lambda x: x.exp() * 2, tmp_path, x)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        "graph0_repro_thunder.py",
        "0/graph0_thunder_0_repro_eager.py",
        "0/graph0_thunder_0_repro_thunder.py",
        "0/graph0_thunder_0_repro_torchcompile.py",
        "0/inductor/graph0_thunder_0_inductorFusion0_forward_repro_inductor.py",
        "0/inductor/graph0_thunder_0_inductorFusion0_backward_repro_inductor.py",
    ]


@pytest.mark.parametrize("options", [ATEN, {}], ids=["op by op", "with fusions"])
def test_scripts_of_two_runs_are_equal(tmp_path, options):
    def write(folder):
        torch._dynamo.reset()
        x = torch.arange(3.0, requires_grad=True)
        paths = save_thunderfx_repros(program, tmp_path / folder, x, thunder_options=options)
        return [path.read_bytes() for path in paths]

    assert write("first") == write("second")


class Failing(AbstractCompileSpecification):
    name = "failing"

    def compile(self, fn, *, inputs):
        raise RuntimeError("cannot compile this")


def test_failing_repros(tmp_path):
    graphs = fx_report(program, torch.rand(4)).fx_graph_reports
    assert save_failing_repros(graphs, TorchEagerSpecification(), tmp_path) == []
    paths = save_failing_repros(graphs, Failing(), tmp_path / "fail", verify=False)
    assert len(paths) == 2
    assert "fails with RuntimeError: cannot compile this" in paths[0].read_text()
    wrong = ThunderCompileSpecification(executors=["aten"], transforms=[drop_sin])
    paths = save_failing_repros(
        graphs, wrong, tmp_path / "wrong", check_consistency=True, verify=False
    )
    assert [path.name for path in paths] == ["graph0_repro_thunder.py"]


def test_damaged_reports(tmp_path):
    with pytest.raises(BenchmarkError, match="cannot read"):
        read_report(tmp_path)
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(BenchmarkError, match="no JSON"):
        read_report(tmp_path)
    (tmp_path / "report.json").write_text("[]")
    with pytest.raises(BenchmarkError, match="no report"):
        read_report(tmp_path)
    (tmp_path / "report.json").write_text('{"format": "thunder report 1"}')
    with pytest.raises(BenchmarkError, match="damaged"):
        read_report(tmp_path)


def detached(x):
    loss = (x.sin() * 2).sum()
    torch._dynamo.graph_break()
    return loss.detach() * 1


def test_a_graph_whose_results_need_no_gradient_is_run_forward(tmp_path):
    """As after `loss.backward()` in a training step: nothing there is to be differentiated."""
    report = report_of(tmp_path, detached)
    graphs = [region for region in report.regions if region.level is Level.GRAPH]
    assert len(graphs) == 2 and not [region for region in report.regions if region.failure]
    assert [region.result.compute for region in graphs] == ["forward+backward", "forward"]
    paths = fx_report(detached, torch.rand(4, requires_grad=True)).fx_graph_reports
    scripts = [graph.write_thunder_repro(tmp_path / "scripts") for graph in paths]
    found = [load_script(script).compute() for script in scripts]
    assert found == [Compute.FORWARD_BACKWARD, Compute.FORWARD]


def shown(x, show, settings=1.0):
    return x * settings if show else x.exp()


@pytest.mark.parametrize(
    ("report", "fn", "shared"),
    [
        (thunderfx_benchmark_report, shown, "show"),
        (save_thunderfx_repros, lambda x, save_fusion: x, "save_fusion"),
        (get_thunder_fxgraph_reports, lambda x, *, thunder_options: x, "thunder_options"),
        (fx_report, lambda x, compile_options=None: x, "compile_options"),
    ],
)
def test_a_program_cannot_share_names_with_options(tmp_path, report, fn, shared):
    folder = [tmp_path] if "folder" in inspect.signature(report).parameters else []
    words = rf"parameter '{shared}', and so has {report.__name__}: .*functools.partial\("
    with pytest.raises(OptionError, match=words):
        report(fn, *folder, torch.rand(4), **{shared: True})
    assert not any(tmp_path.iterdir())


def test_what_partial_or_positions_give_needs_no_name(tmp_path):
    bound = functools.partial(shown, show=True, settings=3.0)
    report = report_of(tmp_path / "bound", bound)
    assert report.program == "shown"
    assert report.regions[0].operators == {"operator.mul": 1}
    x = torch.rand(4)
    quiet = {"settings": QUICK, "show": False, "thunder_options": ATEN}
    (graph,) = fx_report(shown, x, False).fx_graph_reports
    assert graph.operators == {"Tensor.exp": 1}
    positional = thunderfx_benchmark_report(shown, tmp_path / "places", x, False, 1.0, **quiet)
    assert positional.regions[0].operators == {"Tensor.exp": 1}
    with pytest.raises(OptionError, match="'settings'"):
        thunderfx_benchmark_report(shown, tmp_path / "open", x, False, **quiet)
