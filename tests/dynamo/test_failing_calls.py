"""What fails in Dynamo, and what ends the process, leaves a script too.

All scripts are run in fresh processes: they must fail as the program did.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import thunder
from thunder.debug import folder as debug_folder
from thunder.dynamo import failing_calls, failures
from thunder.errors import FallbackWarning
from thunder.pipeline import fallback
from thunder.pipeline.first_run import run_checked
from thunder.repro import Crashes, Status, verify

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys, torch, thunder

aten = torch.ops.aten
live = open(sys.argv[0])

class Odd:
    __class__ = property(lambda self: 1 / 0)

ODD = Odd()

def breaks(x, *, factor=2):
    y = aten.sin(x) * factor
    torch._dynamo.graph_break()
    return y + 1

def mismatch(x, y):
    return x @ y

def uses_what_is_open(x):
    torch._dynamo.graph_break()
    return x + len(live.name)

def odd(x):
    return x + len(str(ODD))

class Breaks(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        y = self.linear(x)
        torch._dynamo.graph_break()
        return y

def closure(factor):
    return lambda x: torch._dynamo.graph_break() or x * factor

x = torch.ones(3)
options = {"executors": ["aten"], "debug": "save_reproducer"}
"""


def run_program(tmp_path: Path, call: str, **variables: str):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + call)
    return run(program, tmp_path, THUNDER_DEBUG_DIR=str(tmp_path / "debug"), **variables)


def run(path: Path, tmp_path: Path, **variables: str):
    return subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}", **variables},
        cwd=tmp_path,
        check=False,
    )


def script_named_at_the_end(errors: str) -> Path:
    found = re.search(r"\nReproducer: (\S+\.py)$", errors.strip())
    assert found, errors
    return Path(found[1])


CALLS = {
    "a graph break in fullgraph": (
        "thunder.thunderfx(breaks, fullgraph=True, dynamic=True, **options)(x, factor=3)",
        "torch._dynamo.exc.Unsupported: Call to `torch._dynamo.graph_break()`",
        ["thunderfx(module, executors=['aten'], fullgraph=True, dynamic=True)", "'factor': 3"],
    ),
    "a graph break in jit": (
        "thunder.jit(breaks, **options)(x)",
        "thunder.errors.GraphBreakError: thunder.jit takes whole functions, and this one breaks",
        ["thunder.jit(module, executors=['aten'])", "aten = torch.ops.aten"],
    ),
    "a failure on fake tensors": (
        "thunder.thunderfx(mismatch, **options)(x, torch.ones(4))",
        "torch._dynamo.exc.TorchRuntimeError: RuntimeError when making fake tensor call",
        ["return x @ y"],
    ),
    "a module": (
        "thunder.thunderfx(Breaks(torch.nn.Linear(3, 3)), fullgraph=True, **options)(x)",
        "torch._dynamo.exc.Unsupported: Call to `torch._dynamo.graph_break()`",
        ["class Breaks(torch.nn.Module):", "make_Breaks()"],
    ),
    "a lambda with a closure": (
        "thunder.jit(closure(4), **options)(x)",
        "thunder.errors.GraphBreakError: thunder.jit takes whole functions",
        ["make_function(factor=4)"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_failure_in_dynamo_leaves_the_callable_as_a_script(tmp_path, name):
    call, message, parts = CALLS[name]
    done = run_program(tmp_path, call)
    assert done.returncode == 1
    assert f"\n{message}" in done.stderr
    script = script_named_at_the_end(done.stderr)
    text = script.read_text()
    assert re.search(r"^# Verdict: confirmed: fails with ", text, re.MULTILINE), text[:900]
    assert not [part for part in parts if part not in text]
    again = run(script, tmp_path)
    assert again.returncode == 1
    assert f"\n{message}" in again.stderr
    assert "Reproducer: " not in again.stderr


def test_an_internal_error_of_dynamo_says_what_to_fill_in(tmp_path):
    done = run_program(tmp_path, "thunder.thunderfx(odd, **options)(x)")
    assert "torch._dynamo.exc.InternalTorchDynamoError: ZeroDivisionError" in done.stderr
    text = script_named_at_the_end(done.stderr).read_text()
    gap = "ODD, a __main__.Odd, which raises ZeroDivisionError when looked at"
    assert f"ODD = None  # FILL IN: {gap}\n" in text
    assert re.search("^# Verdict: NOT confirmed: ", text, re.MULTILINE)


def test_an_internal_error_of_dynamo_fails_the_same_way(tmp_path):
    (tmp_path / "oddities.py").write_text(
        "class Odd:\n    __class__ = property(lambda self: 1 / 0)\nODD = Odd()\n"
    )
    call = (
        "import oddities\ndef odd(x):\n    return x + len(str(oddities.ODD))\n"
        "thunder.thunderfx(odd, **options)(x)"
    )
    done = run_program(tmp_path, call, PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
    text = script_named_at_the_end(done.stderr).read_text()
    assert (
        "# Verdict: confirmed: fails with InternalTorchDynamoError: ZeroDivisionError: division "
        "by zero, in a fresh process\n"
    ) in text
    assert "imports oddities, which is part of the program and not installed" in text


def test_what_cannot_be_written_is_marked(tmp_path):
    done = run_program(tmp_path, "thunder.jit(uses_what_is_open, **options)(x)")
    script = script_named_at_the_end(done.stderr)
    text = script.read_text()
    assert "# FILL IN: live, a _io.TextIOWrapper" in text
    assert "live = None  # FILL IN: live, a _io.TextIOWrapper" in text
    assert "def uses_what_is_open(x):" in text


def test_a_callable_without_source_is_a_place_to_fill_in(tmp_path):
    call = "exec('def f(x): torch._dynamo.graph_break(); return x')\nthunder.jit(f, **options)(x)"
    done = run_program(tmp_path, call)
    script = script_named_at_the_end(done.stderr)
    assert "FILL IN: __main__.f, which is compiled: import it, or write it here" in (
        script.read_text()
    )
    again = run(script, tmp_path)
    assert "NotImplementedError: FILL IN (see the comments of this script): __main__.f" in (
        again.stderr
    )


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """A debug folder of the test's own, scripts switched on, none checked."""
    monkeypatch.setenv("THUNDER_REPRODUCERS", "on")
    monkeypatch.setenv("THUNDER_DEBUG_DIR", str(tmp_path))
    monkeypatch.setattr(failures, "verify", lambda *args, **kwargs: None)
    debug_folder.reset()
    yield tmp_path
    debug_folder.reset()


def breaks(x):
    torch._dynamo.graph_break()
    return x


def test_without_the_flag_nothing_is_added_to_a_call(scripts):
    f = thunder.thunderfx(breaks, fullgraph=True, executors=["aten"])
    with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
        f(torch.ones(2))
    assert "Reproducer" not in str(caught.value)
    assert not list(scripts.iterdir())
    assert f.__code__.co_filename.endswith("eval_frame.py")  # torch's own wrapper


def test_the_same_failure_leaves_one_script(scripts):
    f = thunder.thunderfx(breaks, fullgraph=True, executors=["aten"], debug="save_reproducer")
    for _ in range(2):
        with pytest.raises(torch._dynamo.exc.Unsupported, match=r"Reproducer: \S+\.py$"):
            f(torch.ones(2))
    assert [path.name for path in scripts.glob("*.py")] == ["call_breaks_reproducer_rank0.py"]


def lost(graph_module):
    raise KeyError("lost")


@pytest.mark.parametrize("compile_it", [thunder.jit, thunder.thunderfx])
def test_a_failure_of_a_region_keeps_its_script_and_ends_with_it(scripts, compile_it):
    options = {"executors": ["aten"], "transforms": [lost], "on_failure": "raise"}
    f = compile_it(lambda x: x.sin(), debug="save_reproducer", **options)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        f(torch.ones(2))
    (script,) = scripts.glob("*.py")
    assert script.name == "graph0_thunder_0_reproducer_rank0.py"
    assert str(caught.value).endswith(f"\nReproducer: {script}")


def test_what_fails_on_the_device_after_the_first_run_is_a_failure_of_it(scripts, monkeypatch):
    """Stands for an illegal memory access, which CUDA reports when it is waited for."""

    ran: list[str] = []

    def run_and_note(*arguments):
        ran.append("a first run")
        return run_checked(*arguments)

    def report():
        if ran == ["a first run"]:  # not after the compile, and not in the plainer way
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(failures, "_wait_for_device", report)
    monkeypatch.setattr(fallback, "run_checked", run_and_note)
    f = thunder.thunderfx(lambda x: x.sin(), debug="save_reproducer")
    x = torch.ones(2)
    with pytest.warns(FallbackWarning, match=r"first run; as asked for\): CUDA error.*Reproducer"):
        torch.testing.assert_close(f(x), x.sin())
    assert [p.name for p in scripts.glob("*.py")] == ["graph0_thunder_0_reproducer_rank0.py"]


def test_errors_of_the_program_itself_leave_none(scripts):
    def raises(x):
        torch._dynamo.graph_break()
        raise ValueError("bad value")

    f = thunder.thunderfx(raises, executors=["aten"], debug="save_reproducer")
    with pytest.raises(ValueError, match=r"^bad value$"):
        f(torch.ones(2))
    assert not list(scripts.glob("*.py"))


def test_helpers_see_through_it(scripts):
    f = thunder.jit(lambda x: x + 1, executors=["aten"], debug="save_reproducer")
    assert f(torch.ones(1)).item() == 2
    assert len(thunder.last_traces(f)) > 1
    module = thunder.thunderfx(torch.nn.ReLU(), executors=["aten"], debug="save_reproducer")
    assert module(torch.ones(1)).item() == 1
    assert len(module._backend.subgraph_infos) == 1
    assert not list(scripts.glob("*.py"))


def test_a_failure_while_writing_leaves_the_error_as_it_is(scripts, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(failing_calls, "callable_source", full)
    f = thunder.jit(breaks, executors=["aten"], debug="save_reproducer")
    with pytest.raises(thunder.errors.GraphBreakError) as caught:
        f(torch.ones(2))
    assert "Reproducer" not in str(caught.value)


CRASHING = """
import torch, thunder
from tests.diagnose import faults

def f(x):
    return x.exp().relu().sum()

x = torch.ones(3, requires_grad=True)
f = thunder.thunderfx(f, executors=[faults.{fault}, "aten"], debug="save_reproducer")
f(x).backward()
print("done")
"""


@pytest.mark.parametrize(
    ("fault", "direction", "number"),
    [
        ("CRASHING_RELU", "forward", signal.SIGSEGV),
        ("ABORTING_RELU_BACKWARD", "backward", signal.SIGABRT),
    ],
)
def test_a_crash_of_the_process_loses_nothing(tmp_path, monkeypatch, fault, direction, number):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    program = tmp_path / "program.py"
    program.write_text(CRASHING.format(fault=fault))
    done = run(program, tmp_path, THUNDER_DEBUG_DIR=str(tmp_path / "debug"))
    assert done.returncode == -number
    (script,) = (tmp_path / "debug").glob("*.py")
    assert script.name == f"graph0_thunder_0_{direction}_crash_rank0.py"
    assert script.name in (tmp_path / "debug" / "index.txt").read_text()
    assert f"Region thunder_0, whose first {direction} run did not end" in script.read_text()
    assert verify(script, Crashes(number)).status is Status.CONFIRMED
    assert verify(script, Crashes(signal.SIGKILL)).status is Status.DIFFERENT


@pytest.mark.parametrize("fault", ["HEALTHY_RELU", "REFUSING_RELU"])
def test_a_step_that_ends_leaves_no_script_of_a_crash(tmp_path, fault):
    program = tmp_path / "program.py"
    program.write_text(CRASHING.format(fault=fault))
    done = run(program, tmp_path, THUNDER_DEBUG_DIR=str(tmp_path / "debug"))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    names = [path.name for path in (tmp_path / "debug").glob("*.py")]
    failed = fault == "REFUSING_RELU"
    assert names == (["graph0_thunder_0_reproducer_rank0.py"] if failed else [])


def test_a_hang_that_is_interrupted_leaves_the_script(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(CRASHING.format(fault="SLOW_RELU"))
    debug = tmp_path / "debug"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "THUNDER_DEBUG_DIR": str(debug)}
    with subprocess.Popen(
        [sys.executable, program], env=environment, cwd=tmp_path, stderr=subprocess.PIPE
    ) as child:
        deadline = time.monotonic() + 60
        while not list(debug.glob("*_forward_crash_*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors
    assert [path.name for path in debug.glob("*.py")] == ["graph0_thunder_0_forward_crash_rank0.py"]
