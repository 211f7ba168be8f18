"""Every name, default and file name that the contract of the reports gives."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

import thunder.benchmark
from thunder.benchmark import Settings, ThunderCompileSpecification, TorchEagerSpecification
from thunder.dynamo import report as reports
from thunder.dynamo.report import analyze_thunder_splits, fx_report

GRAPH_LEVEL = {
    "write_eager_repro": "_repro_eager.py",
    "write_thunder_repro": "_repro_thunder.py",
    "write_inductor_repro": "_repro_torchcompile.py",
    "write_benchmark": "_benchmark_thunder.py",
}
NAMES = {"graph": "graph0", "split graph": "graph0", "segment": "graph0_thunder_0"}
FUSION = "graph0_thunder_0_inductorFusion0_forward"


@pytest.fixture(scope="module")
def levels():
    x = torch.rand(3, requires_grad=True)
    report = fx_report(lambda x: (x * 2).exp().sum(), x)
    (graph,) = report.fx_graph_reports
    split = analyze_thunder_splits(graph)
    (segment,) = split.subgraph_reports
    fusion, _ = segment.create_fusion_reports()
    return {"graph": graph, "split graph": split, "segment": segment, "fusion": fusion}


@pytest.mark.parametrize("method", GRAPH_LEVEL)
@pytest.mark.parametrize("level", NAMES)
def test_file_names_of_graphs(levels, level, method, tmp_path):
    path = getattr(levels[level], method)(tmp_path / "made")
    assert path == tmp_path / "made" / (NAMES[level] + GRAPH_LEVEL[method])
    compile(path.read_text(), path.name, "exec")
    other = getattr(levels[level], method)(tmp_path, file_name="other.py")
    assert other == tmp_path / "other.py"


def test_file_names_of_fusions(levels, tmp_path):
    fusion = levels["fusion"]
    assert fusion.write_inductor_repro(tmp_path).name == f"{FUSION}_repro_inductor.py"
    assert fusion.write_benchmark(tmp_path).name == f"{FUSION}_benchmark_inductor.py"


@pytest.mark.parametrize("level", [*NAMES, "fusion"])
def test_each_level_can_do_everything(levels, level, tmp_path):
    each = levels[level]
    assert len(each.make_example_inputs()) == len(each.reported.inputs.inputs)
    path = each.write_repro(tmp_path, TorchEagerSpecification())
    assert path.name == f"{each.name}_repro_eager.py"
    assert each.run_repro() is not None
    assert each.run_repro(TorchEagerSpecification(), check_consistency=True) is not None
    result = each.run_benchmark(settings=Settings(seconds=0.1))
    assert result.outcomes[0].name == "eager"
    assert all(outcome.measurement for outcome in result.outcomes)
    assert str(each).startswith(each.name)
    assert "object at 0x" not in str(each)


def test_attributes(levels):
    split, segment = levels["split graph"], levels["segment"]
    assert split.split_reason == segment.split_reason == ""
    assert segment.fwd_trc.python()
    assert segment.bwd_trc.python()
    assert segment.fusion_reports == segment.create_fusion_reports()


def test_thunder_scripts_have_the_options_of_the_call(levels, tmp_path):
    text = levels["graph"].write_thunder_repro(tmp_path, executors=["aten"]).read_text()
    assert "executors=['aten']" in text


@pytest.mark.parametrize(
    "helper",
    [
        "thunderfx_benchmark_report",
        "save_failing_repros",
        "save_thunderfx_repros",
        "get_thunder_fxgraph_reports",
        "make_nvfusion_reports",
    ],
)
def test_helpers_are_documented(helper):
    function = getattr(reports, helper)
    documented = inspect.getdoc(function) or ""
    for name, parameter in inspect.signature(function).parameters.items():
        assert f"{name}:" in documented or parameter.kind is parameter.VAR_KEYWORD, name


@pytest.mark.parametrize(
    "value",
    [
        ThunderCompileSpecification(executors=["aten"]),
        thunder.benchmark.TorchCompileSpecification(mode="max-autotune"),
        thunder.benchmark.TorchInductorSpecification(),
        TorchEagerSpecification(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_specifications_print_themselves_as_source(value):
    source = value.compile_source()
    text = "\n".join([*source.imports, *source.definitions])
    text += f"\ndef compile_module(module):\n    return {source.expression}\n"
    compile(text, "script", "exec")


@pytest.mark.parametrize("name", ["WallTime", "KernelTime", "WallTimeWithMemoryUsage"])
def test_timers_are_values_in_scripts(levels, name, tmp_path):
    timer = getattr(thunder.benchmark, name)()
    path = levels["graph"].write_benchmark(tmp_path, None, timer)
    assert re.search(rf"timer=[\w.]*\b{name}\(", path.read_text())
