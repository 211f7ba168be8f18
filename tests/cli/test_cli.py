"""The command line: commands, messages and exit statuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import thunder
import thunder.dynamo
from tests.diagnose import faults
from thunder.cli import main
from thunder.dynamo.report import fx_report
from thunder.errors import FallbackWarning

PROGRAM = """
import torch

def step(x):
    x = x.sin() * 2
    torch._dynamo.graph_break()
    return x.sum()

def inputs():
    return (torch.rand(4, requires_grad=True),)

def named():
    return {"x": torch.rand(4)}

def alone():
    return torch.ones(3).exp()

def drop(graph_module):
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default

def broken():
    raise ValueError("the program itself fails")

number = 3

def scaled(x, *, scale):
    return x * scale

def both():
    return (torch.rand(4),), {"scale": 2.0}

def pair(x, options):
    return x[0] * options["scale"]

def pair_inputs():
    return ((torch.rand(4),), {"scale": 2.0}), {}

def two_in_a_list():
    return [(torch.rand(4),), {"scale": 2.0}]

class NotModule:
    pass
"""
QUICK = ("--executors", "aten", "--against", "torch.compile:eager", "--seconds", "0.2")


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "program.py").write_text(PROGRAM)
    return "program.py"


@pytest.fixture
def script(tmp_path):
    (graph,) = fx_report(
        lambda x: x.exp().sum(), torch.rand(4, requires_grad=True)
    ).fx_graph_reports
    return str(graph.write_inductor_repro(tmp_path, backend="eager"))


def test_graphs_only(program, tmp_path, capsys):
    assert main(["report", f"{program}:alone", "--graphs-only", "--json", "out.json"]) == 0
    assert "Tensor.exp" in capsys.readouterr().out
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["graphs"][0]["operators"] == {"Tensor.exp": 1, "torch.ones": 1}
    assert not (tmp_path / "thunder_report").exists()


def test_report_writes_and_counts(program, tmp_path, capsys):
    arguments = ["report", f"{program}:step", "--inputs", "inputs", "--json", "out.json", *QUICK]
    assert main([*arguments, "--fail-on", "accuracy,failure,slowdown=1000"]) == 0
    assert "2 regions" in capsys.readouterr().out
    report = (tmp_path / "thunder_report" / "report.json").read_text()
    assert report == (tmp_path / "out.json").read_text()
    assert main([*arguments, "--graphs-only", "--fail-on", "breaks"]) == 1
    assert "found: breaks: Dynamo breaks the program" in capsys.readouterr().err


def test_inputs_by_name_and_modules(program, capsys):
    assert main(["report", "program:step", "--inputs", "named", "--graphs-only"]) == 0
    assert "l_x_: cpu f32[4]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("function", "inputs"),
    [("scaled", "both"), ("pair", "pair_inputs"), ("pair", "two_in_a_list")],
)
def test_a_tuple_and_a_dict_are_positional_and_keyword_arguments(program, capsys, function, inputs):
    assert main(["report", f"program:{function}", "--inputs", inputs, "--graphs-only"]) == 0
    assert "1 operator (operator.mul)" in capsys.readouterr().out


def test_split_operators_can_fail(program):
    arguments = ["report", f"{program}:alone", "--exclude-ops", "exp", *QUICK, "--no-fusions"]
    assert main([*arguments, "--fail-on", "splits"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "program.py"], "names no program"),
        (["report", "missing.py:f"], "there is no file missing.py"),
        (["report", "missing:f"], "there is no module missing"),
        (["report", "program.py:stp"], "did you mean 'step'"),
        (["report", "program.py:step"], "needs arguments"),
        (["report", "program.py:number"], "cannot be called"),
        (["report", "program.py:NotModule"], "NotModule is a class"),
        (["report", "program.py:NotModule", "--inputs", "both"], "name an instance of it"),
        (["report", "program.py:broken"], "the program itself fails"),
        (["report", "program.py:alone", "--executors", "atn"], "aten"),
        (["bench", "program.py"], "defines no make_module"),
        (["bench", "missing.py"], "no Python script"),
        (["minimize", "program.py"], "is no reproducer"),
        (["replay", "."], "holds no replay"),
        (["compare", "a.json", "b.json"], "cannot read a.json"),
    ],
)
def test_what_cannot_be_done_is_two(program, capsys, arguments, message):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.splitlines()[-1].startswith("thunder: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required"),
        (["reprot"], "invalid choice"),
        (["report", "a.py:b", "--fail-on", "acuracy"], "did you mean 'accuracy'"),
        (["report", "a.py:b", "--fail-on", "slowdown=0.5"], "ratio of 1 or more"),
        (["report", "a.py:b", "--seconds", "no"], "no positive number"),
        (["bench", "a.py", "--against", "eagre"], "did you mean 'eager'"),
        (["compare", "a", "b", "--threshold", "10"], "between 0 and 1"),
    ],
)
def test_wrong_arguments_are_two(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_bench(script, capsys):
    arguments = ["bench", script, "--against", "eager,torch.compile:aot_eager", "--seconds", "0.2"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "forward+backward:" in out
    assert "THUNDER_RESULT {" in out
    assert "torch.compile (backend=aot_eager) vs eager" in out
    assert main([*arguments, "--compute", "forward", "--fail-on", "slowdown=1.0"]) in (0, 1)


def test_bench_finds_failures(script, capsys):
    arguments = ["bench", script, "--against", "eager,torch.compile:missing", "--seconds", "0.2"]
    assert main(arguments) == 1
    assert "found: failure" in capsys.readouterr().err


def test_bench_shows_people_no_line_for_programs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    arguments = ["bench", script, "--against", "eager", "--seconds", "0.2", "--json", "out.json"]
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "eager" in out and "THUNDER_RESULT" not in out
    assert json.loads((tmp_path / "out.json").read_text())["compute"] == "forward+backward"


def test_bench_runs_forward_where_no_result_requires_grad(tmp_path, capsys):
    detached = fx_report(lambda x: x.detach() * 2, torch.rand(4, requires_grad=True))
    (graph,) = detached.fx_graph_reports
    path = graph.write_inductor_repro(tmp_path, backend="eager")
    assert main(["bench", str(path), "--against", "eager", "--seconds", "0.2"]) == 0
    assert capsys.readouterr().out.startswith("forward:\n")


def test_replay_and_compare(program, tmp_path, capsys):
    arguments = ["report", f"{program}:alone", "--replay", "saved", *QUICK]
    assert main(arguments) == 0
    (tmp_path / "saved").rename(tmp_path / "moved")
    (tmp_path / program).unlink()
    assert main(["replay", "moved", "--seconds", "0.2"]) == 0
    assert main(["compare", "thunder_report", "moved", "--threshold", "0.99"]) in (0, 1)
    assert "1 regions compared" in capsys.readouterr().out
    old = json.loads((tmp_path / "moved" / "report.json").read_text())
    old["regions"][0]["failure"] = {"kind": "RuntimeError", "message": "broken by an update"}
    (tmp_path / "new.json").write_text(json.dumps(old))
    assert main(["compare", "moved", "new.json", "--json", "diff.json"]) == 1
    assert "broken by an update" in capsys.readouterr().err
    assert json.loads((tmp_path / "diff.json").read_text())["changes"][0]["regression"] is True


def test_two_replay_folders_are_compared(program, tmp_path, capsys):
    arguments = ["report", f"{program}:alone", *QUICK, "--no-fusions", "--replay"]
    assert main([*arguments, "before"]) == 0
    assert main([*arguments, "after"]) == 0
    assert main(["compare", "before", "after"]) == 2
    assert "run `thunder replay before` first" in capsys.readouterr().err
    for folder in ("before", "after"):
        assert main(["replay", folder, "--seconds", "0.2"]) == 0
    assert main(["compare", "before", "after", "--threshold", "0.99"]) in (0, 1)
    assert "1 regions compared" in capsys.readouterr().out
    data = json.loads((tmp_path / "after" / "report.json").read_text())
    data["regions"][0]["split_reasons"] = ["excluded op: exp is in exclude_ops"]
    (tmp_path / "after" / "report.json").write_text(json.dumps(data))
    assert main(["compare", "before", "after", "--threshold", "0.99"]) == 1
    assert "exp is in exclude_ops" in capsys.readouterr().err


def test_minimize(tmp_path, monkeypatch, capsys):
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", root)  # the script imports what is wrong
    monkeypatch.chdir(tmp_path)
    compiled = thunder.thunderfx(
        lambda x, y: (x.exp() + y).tanh().cos().sum(),
        executors=["aten"],
        transforms=[faults.refuse_tanh],
    )
    with pytest.warns(FallbackWarning, match="tanh is not for me"):
        compiled(torch.rand(4), torch.rand(4))
    (script,) = thunder.dynamo.save_reproducer(compiled, tmp_path / "saved")
    assert main(["minimize", str(script), "--folder", "small"]) == 0
    out = capsys.readouterr().out
    assert "NotImplementedError: tanh is not for me" in out
    (small,) = (tmp_path / "small").glob("*.py")
    ended = subprocess.run([sys.executable, small], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "NotImplementedError: tanh is not for me" in ended.stderr
    operators = re.findall(r"torch\.ops\.aten\.\w+|\.tanh\(|\.exp\(|\.cos\(", small.read_text())
    assert not {".exp(", ".cos("} & set(operators)


def test_env_as_a_module_elsewhere(tmp_path):
    command = [sys.executable, "-m", "thunder", "env", "--json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout)["torch"] == torch.__version__
