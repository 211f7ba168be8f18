"""Failing and inaccurate graphs are shrunk to the operators that matter."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import fx

import thunder
import thunder.debug
import thunder.dynamo
from tests.diagnose import faults
from tests.diagnose.models import Model
from thunder.diagnose import minimize, minimizer, scripts
from thunder.diagnose.finding import Finding, Kind
from thunder.diagnose.problem import Problem
from thunder.diagnose.shrinking import Shrinker
from thunder.diagnose.workers import Forked
from thunder.dynamo import get_subgraph_info
from thunder.errors import OptionError, ReproducerError
from thunder.executors import OperatorExecutor
from thunder.repro import Status

ROOT = Path(__file__).parents[2]


def _operators(result):
    return [str(n.target) for n in result.graph_module.graph.nodes if n.op.startswith("call")]


def _chain(x, y):
    a = (x.exp() + y).sin()
    b = a.relu() * y
    return (b.tanh() @ y).cos(), b.sum()


def _minimize_chain(executor, **options):
    torch.manual_seed(0)
    return minimize(
        fx.symbolic_trace(_chain),
        inputs=[torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)],
        compile_options={"executors": [executor, "aten"]},
        progress=False,
        **{"script": False, **options},
    )


@pytest.fixture
def importable(monkeypatch):
    """Lets the scripts import what is wrong."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_an_error_is_shrunk_and_the_script_fails_alike(tmp_path, importable):
    result = _minimize_chain(faults.REFUSING_RELU, script=True, folder=tmp_path)
    assert _operators(result) == ["relu"]
    assert (result.nodes_before, result.nodes_after) == (12, 3)
    assert result.failure == "NotImplementedError: no relu for 2 dimensions"
    assert result.script is not None
    assert result.verdict is not None
    assert result.script.name == "graph_minimal.py"
    assert result.verdict.status is Status.CONFIRMED


def test_a_wrong_result_is_shrunk_in_few_queries():
    result = _minimize_chain(faults.WRONG_RELU)
    assert _operators(result) == ["relu"]
    assert result.queries <= 8
    assert result.failure.startswith("WRONG")


def test_a_crash_is_shrunk_in_a_process_of_its_own():
    result = _minimize_chain(faults.CRASHING_RELU)
    assert _operators(result) == ["relu"]
    assert result.failure == f"ended the process: signal {int(signal.SIGSEGV)}"


def test_the_script_of_a_crash_crashes_alike(tmp_path, importable):
    result = _minimize_chain(faults.CRASHING_RELU, script=True, folder=tmp_path)
    assert result.verdict is not None
    assert str(result.verdict) == ("confirmed: crashes (signal 11, SIGSEGV), in a fresh process")
    again = minimize(result.script, progress=False, script=False)
    assert again.failure == result.failure


def test_a_hang_is_shrunk_and_its_workers_are_replaced():
    result = _minimize_chain(faults.SLOW_RELU, timeout=3.0)
    assert _operators(result) == ["relu"]
    assert result.failure == "no answer in 3 s"


def test_a_wrong_gradient_is_shrunk():
    result = _minimize_chain(faults.WRONG_TANH_BACKWARD)
    assert _operators(result) == ["tanh"]
    assert "gradients" in result.failure


def test_a_check_of_the_users():
    def check(graph_module, inputs):
        calls = graph_module.graph.find_nodes(op="call_method", target="exp")
        return bool(calls) and bool(graph_module.graph.find_nodes(op="call_method", target="tanh"))

    result = _minimize_chain("aten", check=check)
    assert _operators(result) == ["exp", "tanh"]
    assert result.script is None


def test_a_check_that_fails_itself_is_no_failure_of_the_graph():
    with pytest.raises(ReproducerError, match="makes the check itself fail: ZeroDivisionError"):
        _minimize_chain("aten", check=lambda graph_module, inputs: 1 / 0)


def test_nothing_is_wrong():
    with pytest.raises(ReproducerError, match="does not fail in the way that is looked for"):
        _minimize_chain("aten")
    with pytest.raises(ReproducerError, match="is looked for; it passes"):
        _minimize_chain(faults.WRONG_RELU, check="error")


def test_another_error_is_not_taken_for_the_error():
    """Pieces without the relu fail as well, in another way."""

    def refuse(graph_module):
        targets = {node.target for node in graph_module.graph.nodes}
        relu = torch.ops.aten.relu.default in targets
        raise ValueError("there is a relu" if relu else "there is none")

    result = minimize(
        fx.symbolic_trace(_chain),
        inputs=[torch.ones(4, 4), torch.ones(4, 4)],
        compile_options={"executors": ["aten"], "transforms": [refuse]},
        script=False,
        progress=False,
    )
    assert _operators(result) == ["relu"]
    assert result.failure == "ValueError: there is a relu"


def test_two_operators_that_fail_together_are_kept():
    def refuse(graph_module):
        targets = {node.target for node in graph_module.graph.nodes}
        if {torch.ops.aten.exp.default, torch.ops.aten.cos.default} <= targets:
            raise ValueError("not both")
        return graph_module

    result = minimize(
        fx.symbolic_trace(_chain),
        inputs=[torch.ones(4, 4), torch.ones(4, 4)],
        compile_options={"executors": ["aten"], "transforms": [refuse]},
        script=False,
        progress=False,
    )
    assert _operators(result) == ["exp", "cos"]


def _compiled(transform, **options):
    model = Model().eval()
    return thunder.thunderfx(
        model, executors=["aten"], transforms=[transform], **options
    ), torch.arange(6)


def test_a_region_and_its_script_that_gives_a_wrong_result(tmp_path, importable):
    compiled, tokens = _compiled(faults.tanh_becomes_sin)
    compiled(tokens)
    region = get_subgraph_info(compiled)[0].thunder_compiled_fns[0]
    result = thunder.debug.minimize(region, folder=tmp_path, progress=False)
    assert result.nodes_after == 3
    assert "tanh" in result.graph_module.code
    assert result.script is not None
    assert result.verdict is not None
    assert result.verdict.status is Status.CONFIRMED
    done = subprocess.run(
        [sys.executable, result.script, "--check_consistency"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "further from float64 than eager explains" in done.stderr


def test_a_script_becomes_a_smaller_script_that_fails_alike(tmp_path, importable, monkeypatch):
    monkeypatch.setenv("THUNDER_REPRODUCERS", "off")
    compiled, tokens = _compiled(faults.refuse_tanh, on_failure="fallback")
    with pytest.warns(UserWarning, match="tanh is not for me"):
        compiled(tokens)
    (script,) = thunder.dynamo.save_reproducer(compiled, tmp_path)
    (tmp_path / "graph0_thunder_0_repro_minimal.py").write_text("# of an earlier run\n")
    result = minimize(script, progress=False)
    assert result.nodes_after == 3
    assert result.failure == "NotImplementedError: tanh is not for me"
    assert result.script == tmp_path / "graph0_thunder_0_repro_minimal_1.py"
    assert result.verdict is not None
    assert result.verdict.status is Status.CONFIRMED


INTERRUPTED = """
import time, torch
from thunder.diagnose import minimize

def check(graph_module, inputs):
    time.sleep(0.3)
    return "relu" in graph_module.code

def chain(x):
    for _ in range(40):
        x = x.sin()
    return x.relu()

print(minimize(torch.fx.symbolic_trace(chain), inputs=[torch.ones(2)], check=check))
"""


def test_ctrl_c_keeps_the_best_and_ends_the_workers(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if "operators" in line:
                break
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert "interrupted; this is the smallest so far" in output
    assert output.startswith("43 -> ")


def test_progress_is_plain_lines_where_there_is_no_terminal(capfd):
    minimize(
        fx.symbolic_trace(_chain),
        inputs=[torch.ones(4, 4), torch.ones(4, 4)],
        check=lambda graph_module, inputs: "relu" in graph_module.code,
    )
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("minimize: 12 nodes, running the whole graph")
    assert "1 operators, 1 results" in lines[-1]
    assert not any("\x1b" in line for line in lines)


BREAKS = """
import torch, thunder
def breaks(x):
    torch._dynamo.graph_break()
    return x
def make_module():
    return breaks
def make_inputs():
    return {"x": torch.ones(2)}
def compile_with_thunder(module):
    return thunder.jit(module)
"""


def test_what_cannot_be_minimized(tmp_path):
    with pytest.raises(ReproducerError, match="int cannot be minimized"):
        minimize(3)
    with pytest.raises(ReproducerError, match="needs inputs="):
        minimize(fx.symbolic_trace(_chain))
    with pytest.raises(ReproducerError, match="no Python script"):
        minimize(tmp_path / "missing.py")
    (tmp_path / "breaks.py").write_text(BREAKS)
    with pytest.raises(ReproducerError, match="no graph to minimize; take lines out"):
        minimize(tmp_path / "breaks.py")
    (tmp_path / "other.py").write_text("x = 1\n")
    with pytest.raises(ReproducerError, match="no reproducer of one compiler"):
        minimize(tmp_path / "other.py")
    with pytest.raises(OptionError, match="check='wrong' is not accepted; use 'error'"):
        minimize(fx.symbolic_trace(_chain), inputs=[], check="wrong")  # pyright: ignore[reportArgumentType]


def _chain_of_sines(x):
    for _ in range(6):
        x = x.sin()
    return x.relu()


def _interrupt_once(monkeypatch, owner, name, when=lambda *arguments: True):
    """Lets the first call, in this process, end as by Ctrl-C."""
    original, pid, calls = getattr(owner, name), os.getpid(), []

    def interrupted(*arguments, **options):
        if os.getpid() == pid and not calls and when(*arguments):
            calls.append(name)
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, interrupted)
    return calls


def _refuse(x):
    raise ValueError("no")


def _minimize_sines(**options):
    return minimize(
        fx.symbolic_trace(_chain_of_sines),
        inputs=[torch.ones(2)],
        compile_options={"executors": [OperatorExecutor("bad", {"aten.relu": _refuse}), "aten"]},
        progress=False,
        **options,
    )


@pytest.mark.parametrize("where", ["confirming", "searching again"])
def test_ctrl_c_after_the_search_keeps_what_was_found(where, monkeypatch):
    """The piece is confirmed in a worker of its own, and searched for again if it is not."""
    ask = Forked.ask
    asked = []

    def answer(self, question):
        asked.append(question)
        if question.piece is None and len(asked) == 1:
            return ask(self, question)  # the whole graph
        if where == "searching again" and len(asked) == 2:
            return Finding(kind=Kind.PASSES)
        raise KeyboardInterrupt

    monkeypatch.setattr(Forked, "ask", answer)
    result = minimize(
        fx.symbolic_trace(_chain_of_sines),
        inputs=[torch.ones(2)],
        check=lambda graph_module, inputs: "relu" in graph_module.code,
        progress=False,
    )
    assert result.interrupted
    assert result.nodes_after == 3
    assert "relu" in result.graph_module.code
    assert "\nnot confirmed: it failed in a process that had run other pieces" in str(result)


@pytest.mark.parametrize(
    ("owner", "name", "when", "confirmed"),
    [
        (minimizer.Display, "say", lambda self, words: "operators" in words, False),
        (Shrinker, "_reduce", lambda self, *rest: self.best is not None, False),
        (Forked, "close", lambda self: True, False),
        (Problem, "build", lambda *rest: True, True),
    ],
)
def test_ctrl_c_anywhere_in_a_search_keeps_what_was_found(
    owner, name, when, confirmed, monkeypatch
):
    calls = _interrupt_once(monkeypatch, owner, name, when)
    result = _minimize_sines(script=False)
    assert calls
    assert result.interrupted
    assert (result.confirmed, result.failure) == (confirmed, "ValueError: no")
    assert "relu" in _operators(result)


def test_ctrl_c_before_anything_is_found_writes_nothing(tmp_path, monkeypatch):
    calls = _interrupt_once(monkeypatch, Forked, "ask")
    with pytest.raises(KeyboardInterrupt):
        _minimize_sines(folder=tmp_path)
    assert calls
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("owner", "name", "when"),
    [
        (scripts, "make_folder", lambda *rest: True),
        (scripts, "record_inputs", lambda *rest: True),
        (scripts, "module_source", lambda *rest: True),
        (Path, "replace", lambda self, target: Path(target).suffix == ".py"),
        (scripts, "verify", lambda *rest: True),
    ],
)
def test_ctrl_c_while_the_script_is_written_or_run_leaves_it_whole(
    owner, name, when, tmp_path, monkeypatch
):
    calls = _interrupt_once(monkeypatch, owner, name, when)
    result = _minimize_sines(folder=tmp_path)
    assert calls
    assert result.verdict is not None
    assert result.verdict.status is Status.NOT_RUN
    assert list(tmp_path.iterdir()) == [result.script]
    text = result.script.read_text()
    compile(text, "script", "exec")
    assert "# Verdict: not run: interrupted before it had run in a fresh process\n" in text


INTERRUPTED_LATE = """
import time, torch
from thunder.diagnose import minimize
from thunder.executors import OperatorExecutor

def refuse(x):
    time.sleep(1.0)
    raise ValueError("no")

bad = OperatorExecutor("bad", {"aten.relu": refuse})
graph = torch.fx.symbolic_trace(lambda x: x.exp().sin().relu())
options = {"executors": [bad, "aten"]}
print(minimize(graph, inputs=[torch.ones(2)], compile_options=options, folder="."))
"""


def test_ctrl_c_in_a_terminal_after_the_search_writes_the_script(tmp_path):
    """The signal goes to all processes of the terminal's group."""
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_LATE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if "1 operators, 1 results" in line:
                break
        os.killpg(child.pid, signal.SIGINT)
        output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert "interrupted; this is the smallest so far\nnot confirmed" in output
    assert [path.name for path in tmp_path.iterdir()] == ["graph_minimal.py"]
    text = (tmp_path / "graph_minimal.py").read_text()
    assert "# Note: not confirmed: it failed in a process that had run other pieces" in text
    assert "Traceback" not in errors
