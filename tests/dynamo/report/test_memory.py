"""Reports of large models: inputs are made for one graph at a time, and nothing of them stays."""

from __future__ import annotations

import gc

import pytest
import torch

from thunder.benchmark import Settings, TorchCompileSpecification
from thunder.dynamo.report import (
    fx_report,
    save_thunderfx_repros,
    thunderfx_benchmark_report,
)
from thunder.dynamo.report.report_run import ReportRun

WIDTH = 256
LAYER = 4 * WIDTH**2
SMALL = LAYER // 2
ATEN = {"executors": ["aten"]}


class Layers(torch.nn.Module):
    """Four graphs, each with a weight that is large beside everything else."""

    def __init__(self):
        super().__init__()
        layers = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x):
        layers = self.layers
        x = layers[0](x).relu()
        torch._dynamo.graph_break()
        x = layers[1](x).relu()
        torch._dynamo.graph_break()
        x = layers[2](x).relu()
        torch._dynamo.graph_break()
        return layers[3](x).relu()


def live_bytes():
    """Bytes of all tensors in the process that live on the CPU, each storage once."""
    gc.collect()
    storages = {}
    for value in gc.get_objects():
        is_plain = type(value) in (torch.Tensor, torch.nn.Parameter)
        if is_plain and value.device.type == "cpu" and value.layout is torch.strided:
            storage = value.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
    return sum(storages.values())


def make_program():
    return Layers(), torch.randn(2, WIDTH)


def test_reports_hold_no_model():
    model, x = make_program()
    before = live_bytes()
    report = fx_report(model, x)
    assert len(report.fx_graph_reports) == 4
    assert live_bytes() - before < SMALL
    del model
    assert live_bytes() - before < SMALL - 4 * LAYER


@pytest.mark.parametrize("train", [False, True])
def test_each_graph_is_freed_before_the_next(train, tmp_path, monkeypatch):
    model, x = make_program()
    before = live_bytes()
    found = []
    benchmark = ReportRun.benchmark

    def watched(self, report, progress):
        found.append(live_bytes() - before)
        return benchmark(self, report, progress)

    monkeypatch.setattr(ReportRun, "benchmark", watched)
    with torch.set_grad_enabled(train):
        report = thunderfx_benchmark_report(
            model,
            tmp_path,
            x,
            thunder_options=ATEN,
            against=[TorchCompileSpecification(backend="eager")],
            settings=Settings(seconds=0.1),
            show=False,
        )
    assert len(found) == 4
    assert max(found) < SMALL, found
    assert live_bytes() - before < SMALL
    assert len(report.regions) == 4


def test_scripts_leave_nothing(tmp_path):
    model, x = make_program()
    before = live_bytes()
    assert len(save_thunderfx_repros(model, tmp_path, x, thunder_options=ATEN)) == 16
    assert live_bytes() - before < SMALL
