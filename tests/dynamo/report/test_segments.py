"""`analyze_thunder_splits` and fusions: segments, traces, inputs and their scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from thunder.benchmark import ThunderCompileSpecification
from thunder.dynamo.report import (
    analyze_thunder_splits,
    fx_report,
    get_thunder_fxgraph_reports,
    make_nvfusion_reports,
)
from thunder.errors import OptionError, ReproducerError


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.second = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.second(torch.sinc(self.first(x)).tanh())


def analyzed(model, *args, compile_options=None, **options):
    report = fx_report(model, *args, compile_options=compile_options)
    return analyze_thunder_splits(report.fx_graph_reports[0], **options)


def run_script(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, cwd=script.anchor, capture_output=True, text=True, check=False)


def passes(script: Path, *arguments: str) -> None:
    ended = run_script(script, *arguments)
    assert ended.returncode == 0, ended.stderr[-2000:]


def drop_bias(graph_module):
    """A wrong transform: it computes another thing."""
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.aten.addmm.default:
            node.target, node.args = torch.ops.aten.mm.default, node.args[1:]


@pytest.fixture(scope="module")
def split():
    return analyzed(Model(), torch.ones(5, 3), executors=["aten"], exclude_ops=[torch.sinc])


def test_segments_and_reasons(split):
    assert [report.name for report in split.subgraph_reports] == [
        "graph0_thunder_0",
        "graph0_thunder_2",
    ]
    assert "sinc is in exclude_ops" in split.split_reason
    assert all("sinc" in report.split_reason for report in split.subgraph_reports)
    assert "torch.sinc" not in split.subgraph_reports[0].operators


def test_inputs_of_segments_are_what_passes_by():
    model, x = Model(), torch.randn(5, 3)
    report = analyzed(model, x, executors=["aten"], exclude_ops=["sinc"])
    values = report.subgraph_reports[1].make_example_inputs()
    expected = torch.sinc(model.first(x))
    found = [v for v in values if isinstance(v, torch.Tensor) and v.shape == expected.shape]
    assert any(torch.allclose(value, expected) for value in found)


def test_traces(split):
    segment = split.subgraph_reports[0]
    assert segment.fwd_trc.direction.value == "forward"
    assert segment.bwd_trc.direction.value == "backward"
    with torch.no_grad():
        inference = analyzed(torch.sin, torch.ones(2), executors=["aten"]).subgraph_reports[0]
    assert inference.bwd_trc is None
    assert inference.fwd_trc.direction.value == "inference"


def test_scripts_run_and_agree_with_eager(split, tmp_path):
    segment = split.subgraph_reports[1]
    scripts = [segment.write_eager_repro(tmp_path), segment.write_thunder_repro(tmp_path)]
    scripts.append(segment.write_inductor_repro(tmp_path, backend="aot_eager"))
    assert [script.name for script in scripts] == [
        "graph0_thunder_2_repro_eager.py",
        "graph0_thunder_2_repro_thunder.py",
        "graph0_thunder_2_repro_torchcompile.py",
    ]
    for script in scripts:
        passes(script, "--check_consistency")
    assert "sinc is in exclude_ops" in scripts[1].read_text()
    assert "executors=['aten']" in scripts[1].read_text()
    assert "import thunder" not in scripts[0].read_text() + scripts[2].read_text()


def test_graph_script_has_the_options(split, tmp_path):
    script = split.write_thunder_repro(tmp_path)
    assert script.name == "graph0_repro_thunder.py"
    assert "exclude_ops=[torch.sinc]" in script.read_text()
    passes(script)


def test_dynamic_sizes_stay_symbolic(tmp_path):
    report = analyzed(
        lambda x: x.sin() * x.shape[0],
        torch.ones(5, 3, requires_grad=True),
        compile_options={"dynamic": True},
        executors=["aten"],
    )
    (segment,) = report.subgraph_reports
    assert "s" in str(segment.fwd_trc.graph.find_nodes(op="placeholder")[0].meta["val"])
    assert segment.bwd_trc is not None
    passes(segment.write_thunder_repro(tmp_path), "--check_consistency")


def test_options_of_the_wrong_owner():
    (graph,) = fx_report(torch.sin, torch.ones(2)).fx_graph_reports
    with pytest.raises(OptionError, match=r"fullgraph belong to torch\.compile"):
        analyze_thunder_splits(graph, fullgraph=True)
    with pytest.raises(OptionError, match="did you mean 'executors'"):
        analyze_thunder_splits(graph, executor=["aten"])


def test_fusions_forward_and_backward(tmp_path):
    def program(x, y):
        return (x * y).exp().sum()

    inputs = torch.rand(3, requires_grad=True), torch.rand(3)
    (segment,) = analyzed(program, *inputs).subgraph_reports
    fusions = segment.create_fusion_reports()
    assert fusions == segment.fusion_reports == segment.create_fusion_reports()
    assert [fusion.name for fusion in fusions] == [
        "graph0_thunder_0_inductorFusion0_forward",
        "graph0_thunder_0_inductorFusion0_backward",
    ]
    assert {fusion.folder_name for fusion in fusions} == {"inductor"}
    assert "aten.exp.default" in fusions[0].operators
    for fusion in fusions:
        assert fusion.check().accurate
        script = fusion.write_inductor_repro(tmp_path)
        assert script.name == f"{fusion.name}_repro_inductor.py"
        assert "import thunder" not in script.read_text()
        with pytest.raises(ReproducerError, match="is no nvFuser region: inductor has it"):
            fusion.write_nvfuser_repro(tmp_path)
        with pytest.raises(ReproducerError, match="is no nvFuser region"):
            fusion.run_nvfuser_repro()
    passes(tmp_path / f"{fusions[1].name}_repro_inductor.py", "--check_consistency")


def test_fusion_inputs_are_real():
    x = torch.tensor([1.0, 2.0, 3.0])
    (report,) = get_thunder_fxgraph_reports(lambda x: x.exp() + 1, x)
    (fusion,) = make_nvfusion_reports([report])
    assert torch.equal(fusion.make_example_inputs()[0], x)
    assert make_nvfusion_reports([report], executor="nvfuser") == []


def test_run_repro_checks(split):
    segment = split.subgraph_reports[0]
    wrong = ThunderCompileSpecification(executors=["aten"], transforms=[drop_bias])
    with pytest.raises(ReproducerError, match="WRONG"):
        segment.run_repro(wrong, check_consistency=True)


def test_traces_of_two_runs_are_equal():
    texts = [
        str(analyzed(Model(), torch.ones(5, 3), executors=["aten"], exclude_ops=["sinc"]))
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


def test_fusion_scripts_import_inductors_operators(tmp_path):
    def program(x):
        return torch.softmax(torch.nn.functional.dropout(x, 0.5) * 2, -1)

    (report,) = get_thunder_fxgraph_reports(program, torch.rand(2, 4, requires_grad=True))
    fusions = make_nvfusion_reports([report])
    texts = [fusion.write_inductor_repro(tmp_path).read_text() for fusion in fusions]
    assert "prims.inductor_random" in texts[0]
    assert "prims.fma" in texts[1]
    assert all("import torch._inductor.inductor_prims" in text for text in texts)
    assert all(fusion.check().accurate for fusion in fusions)
    for fusion in fusions:
        passes(tmp_path / f"{fusion.name}_repro_inductor.py")


def test_fusions_that_draw_are_compared_with_the_same_draws(tmp_path):
    """Inductor's draws depend on a seed that eager mode does not use, and on no order."""

    def program(x):
        noise = torch.randn(3) + torch.randint(0, 9, (3,))
        return torch.nn.functional.dropout(x, 0.5) + noise, torch.rand_like(x) * 2

    (report,) = get_thunder_fxgraph_reports(program, torch.rand(2, 3))
    (fusion,) = make_nvfusion_reports([report])
    script = fusion.write_inductor_repro(tmp_path)
    text = script.read_text()
    assert text.count("prims.inductor_random.default(") == 3
    assert "prims.inductor_randint.default(" in text
    passes(script, "--check_consistency")
    wrong = tmp_path / "wrong.py"
    doubled = "lambda *x: [2 * y for y in inductor_without_dynamo(module, options={})(*x)]"
    wrong.write_text(text.replace("inductor_without_dynamo(module, options={})", doubled))
    assert run_script(wrong, "--check_consistency").returncode == 1


def test_fusions_of_convolutions(tmp_path):
    """Inductor hands the input to its backward graph in another memory layout."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 4, stride=4), torch.nn.GELU())
    (report,) = get_thunder_fxgraph_reports(model, torch.randn(2, 3, 16, 16))
    forward, backward = make_nvfusion_reports([report])
    assert "aten.convolution.default" in forward.operators
    assert "aten.convolution_backward.default" in backward.operators
    passes(backward.write_inductor_repro(tmp_path), "--check_consistency")


def test_fusions_of_convolutions_with_views(tmp_path):
    """A view that fits the layout in which the graph was traced does not fit the one it runs in."""
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()]
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 2)]
    model = torch.nn.Sequential(*layers)
    (report,) = get_thunder_fxgraph_reports(model, torch.randn(2, 3, 8, 8))
    for fusion in make_nvfusion_reports([report]):
        assert fusion.check().accurate
        fusion.run_repro()


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_fusions_of_poolings_read_inside_the_image(tmp_path, ceil_mode):
    """What a pooling saves depends on the window: drawn numbers would point outside."""
    model = torch.nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=ceil_mode)
    x = torch.randn(2, 4, 8, 9, requires_grad=True)
    (report,) = get_thunder_fxgraph_reports(lambda x: model(x) * x.sum(), x)
    _, backward = make_nvfusion_reports([report])
    assert "prims._low_memory_max_pool_offsets_to_indices.default" in backward.operators
    # Windows that hang over the far border share no place with those that hang over the near one.
    script = backward.write_inductor_repro(tmp_path, serialize_inputs=ceil_mode)
    assert "getitem_1 holds places in windows" in script.read_text()
    passes(script, "--check_consistency")


def test_names_after_graph_breaks_are_the_users():
    def program(x):
        x = x.exp()
        torch._dynamo.graph_break()
        return torch.sinc(x)

    reports = get_thunder_fxgraph_reports(
        program, torch.rand(3), thunder_options={"executors": ["aten"], "exclude_ops": ["sinc"]}
    )
    (reason,) = reports[1].info.split_reasons
    assert reason.source_line is not None
    assert reason.source_line.function == "program"
    assert "resume" not in str(reports[1]) + str(reports[1].subgraph_reports)
