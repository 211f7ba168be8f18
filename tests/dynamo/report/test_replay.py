"""Replays: regions run again without the model, moved, and on request with the real values."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from thunder.benchmark import Settings, TorchCompileSpecification, WallTime
from thunder.dynamo.report import fx_report, load_script, run_replay, save_replay
from thunder.dynamo.report.timed_script import TimedScript
from thunder.errors import ReproducerError

QUICK = Settings(seconds=0.2)
AGAINST = [TorchCompileSpecification(backend="eager")]
OPTIONS = {"executors": ["aten"], "exclude_ops": ["sinc"]}


@pytest.fixture
def saved(tmp_path):
    model = torch.nn.Linear(3, 2)
    captured = fx_report(lambda x: torch.sinc(model(x).exp()).cos().sum(), torch.rand(4, 3))
    save_replay(captured, tmp_path / "saved", thunder_options=OPTIONS, against=AGAINST)
    return tmp_path / "saved"


def test_every_region_runs_again_after_a_move(saved):
    moved = saved.rename(saved.with_name("moved"))
    report = run_replay(moved, settings=QUICK, show=False)
    names = [region.name for region in report.regions]
    assert names == ["graph0", "graph0_thunder_0", "graph0_thunder_2"]
    for region in report.regions:
        assert region.failure is None
        assert region.result is not None
        verdict = region.result.outcome("thunder").accuracy
        assert verdict is not None and verdict.accurate
        assert region.result.compute == "forward+backward"
    assert (moved / "report.json").is_file()


def test_a_script_of_it_runs_alone(saved):
    command = [sys.executable, str(saved / "graph0.py")]
    ended = subprocess.run(command, cwd=saved.anchor, capture_output=True, text=True, check=True)
    assert "THUNDER_RESULT {" in ended.stdout


@pytest.mark.parametrize("terminal", [True, False])
def test_only_programs_get_a_line_for_programs(saved, monkeypatch, capsys, terminal):
    script = load_script(saved / "0" / "graph0_thunder_2.py")
    run = TimedScript(timer=WallTime(), settings=QUICK)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    only = {"torch_compile": script.compilers["torch.compile (backend=eager)"]}
    run(script.make_module, script.make_inputs, only, True, script.around)
    out = capsys.readouterr().out
    assert "torch_compile: " in out
    assert ("THUNDER_RESULT {" in out) is not terminal


def test_what_cannot_run_is_a_failure_of_its_region(saved):
    (saved / "graph0.py").write_text("raise RuntimeError('an operator is not there')")
    first, *others = run_replay(saved, settings=QUICK, show=False).regions
    assert "an operator is not there" in str(first.failure)
    assert all(region.failure is None for region in others)


def test_real_values(tmp_path):
    x = torch.randn(5)
    captured = fx_report(torch.sin, x)
    options = {"executors": ["aten"]}
    captured.save_replay(tmp_path, thunder_options=options, serialize_inputs=True)
    script = load_script(tmp_path / "graph0.py")
    assert torch.equal(script.make_inputs()["l_args_0_"], x)


def test_no_replay(tmp_path, saved):
    with pytest.raises(ReproducerError, match="holds no replay"):
        run_replay(tmp_path)
    manifest = json.loads((saved / "replay.json").read_text())
    manifest["regions"][0]["scripts"] = ["../elsewhere.py"]
    (saved / "replay.json").write_text(json.dumps(manifest))
    with pytest.raises(ReproducerError, match="leads out of the replay's folder"):
        run_replay(saved, settings=QUICK, show=False)
    (saved / "replay.json").write_text('{"replay": "thunder replay 99"}')
    with pytest.raises(ReproducerError, match="no manifest of this version"):
        run_replay(saved)


def test_two_replays_are_equal(tmp_path):
    def write(folder):
        captured = fx_report(lambda x: x.sin().sum(), torch.arange(4.0))
        save_replay(captured, tmp_path / folder, thunder_options={"executors": ["aten"]})
        return [path.read_bytes() for path in sorted((tmp_path / folder).iterdir())]

    assert write("first") == write("second")
