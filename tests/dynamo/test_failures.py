"""Failures leave a script that fails the same way; runs go on with results as in eager.

Stages x directions x function or Hugging Face model. That scripts really fail the same way in a
fresh process is checked for some of them: it costs a start of torch each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import fx, nn

import thunder
from thunder.debug import folder as debug_folder
from thunder.dynamo import compilation, failures
from thunder.errors import AutogradError, FallbackWarning, ReproducerError, SplitError
from thunder.executors import AbstractFusionExecutor, OperatorExecutor, Refusal
from thunder.trace import Direction
from thunder.transforms import FunctionTransform, Stage


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """A debug folder of the test's own, scripts switched on, none checked."""
    monkeypatch.setenv("THUNDER_REPRODUCERS", "on")
    monkeypatch.setenv("THUNDER_DEBUG_DIR", str(tmp_path))
    monkeypatch.setattr(failures, "verify", lambda *args, **kwargs: None)
    debug_folder.reset()
    yield tmp_path
    debug_folder.reset()


class Faulty(AbstractFusionExecutor):
    """Takes everything; has a fault in graphs of one direction."""

    def __init__(self, fault: str, direction: Direction) -> None:
        self.fault = fault
        self.direction = direction

    @property
    def name(self) -> str:
        return "faulty"

    def check(self, node: fx.Node) -> Refusal | None:
        return None

    def compile(self, graph_module, example_inputs, context):
        if context.direction != self.direction.value:
            return graph_module
        if self.fault == "compile":
            raise RuntimeError("injected fault")
        return _Faulty(graph_module, self.fault)


class _Faulty:
    def __init__(self, graph_module: fx.GraphModule, fault: str) -> None:
        self.graph_module, self.fault = graph_module, fault

    def __call__(self, *inputs):
        if self.fault == "run":
            raise RuntimeError("injected fault")
        outputs = list(self.graph_module(*inputs))
        at = next(i for i, x in enumerate(outputs) if isinstance(x, torch.Tensor) and x.numel() > 1)
        wrong = {"dtype": lambda x: x.double(), "shape": lambda x: x.flatten()[:1]}
        outputs[at] = wrong[self.fault](outputs[at])
        return outputs


def faulty_transform(direction: Direction):
    def injected(graph_module):
        names = [node.name for node in graph_module.graph.find_nodes(op="placeholder")]
        is_backward = any(name.startswith("tangents") for name in names)
        if is_backward == (direction is Direction.BACKWARD):
            raise RuntimeError("injected fault")

    return injected


class Function(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        y = (x @ self.weight).sin() * 3
        self.seen.add_(y.detach().mean(0))
        return y + torch.rand_like(y)


def small_model():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def outcome(make, compile_it, *, train: bool):
    torch._dynamo.reset()
    torch.manual_seed(1)
    net = make()
    f = compile_it(net)
    torch.manual_seed(2)
    ids = torch.tensor([[1, 2, 3]])
    x = torch.linspace(0, 1, 8).reshape(4, 2)
    arguments = {"x": x} if isinstance(net, Function) else {"input_ids": ids, "labels": ids}
    with torch.set_grad_enabled(train):
        out = f(**arguments)
        out = out if isinstance(out, torch.Tensor) else out.loss
        if train:
            out.sum().backward()
    gradients = {name: p.grad for name, p in net.named_parameters()}
    return out.detach(), gradients, dict(net.named_buffers()), torch.rand(1)


DIRECTIONS = [Direction.FORWARD, Direction.BACKWARD, Direction.INFERENCE]
FAULTS = ["transform", "compile", "run", "dtype", "shape"]


def options(fault: str, direction: Direction) -> dict:
    if fault == "transform":
        return {"transforms": [faulty_transform(direction)], "executors": ["aten"]}
    settings = {"fallback_random": True}  # else Inductor draws other numbers than eager
    return {"executors": [Faulty(fault, direction)], "options": settings}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("fault", FAULTS)
def test_fallback_gives_what_eager_gives(scripts, fault, direction):
    train = direction is not Direction.INFERENCE
    expected = outcome(Function, lambda net: net, train=train)
    with pytest.warns(FallbackWarning) as caught:
        got = outcome(
            Function, lambda net: thunder.thunderfx(net, **options(fault, direction)), train=train
        )
    torch.testing.assert_close(got, expected)
    (warning,) = [w for w in caught if w.category is FallbackWarning]
    assert re.search(r"Reproducer: \S+\.py$", str(warning.message))
    (script,) = scripts.glob("*reproducer*.py")
    compile(script.read_text(), script.name, "exec")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("fault", FAULTS)
def test_fallback_of_a_model(scripts, fault, direction):
    train = direction is not Direction.INFERENCE
    expected = outcome(small_model, lambda net: net, train=train)
    fault_options = options(fault, direction)
    if fault == "run":
        operator = "aten.mm" if direction is not Direction.BACKWARD else "aten.sum"
        fault_options = {"executors": [OperatorExecutor("faulty", {operator: _raise})]}
    with pytest.warns(FallbackWarning):
        got = outcome(small_model, lambda net: thunder.thunderfx(net, **fault_options), train=train)
    torch.testing.assert_close(got, expected)
    assert list(scripts.glob("*reproducer*.py"))


def _raise(*args, **kwargs):
    raise RuntimeError("injected fault")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("fault", FAULTS)
def test_raise_says_stage_region_and_script(scripts, fault, direction):
    train = direction is not Direction.INFERENCE
    with pytest.raises(Exception) as caught:
        outcome(
            Function,
            lambda net: thunder.thunderfx(net, **options(fault, direction), on_failure="raise"),
            train=train,
        )
    message = str(caught.value)
    assert f"the {direction.value} graph" in message
    assert ("'injected'" if fault == "transform" else "'faulty'") in message
    assert re.search(r"Reproducer: \S+\.py", message)


def test_a_captured_transform_that_fails(scripts):
    def injected(graph_module):
        raise RuntimeError("injected fault")

    transform = FunctionTransform(injected, stage=Stage.CAPTURED)
    expected = outcome(Function, lambda net: net, train=True)
    with pytest.warns(FallbackWarning, match="goes on by Inductor"):
        got = outcome(
            Function,
            lambda net: thunder.thunderfx(
                net, transforms=[transform], options={"fallback_random": True}
            ),
            train=True,
        )
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("train", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("make", [Function, small_model], ids=["function", "model"])
def test_a_failure_of_the_split(scripts, monkeypatch, make, train):
    def injected(*args, **kwargs):
        raise KeyError("injected fault")

    monkeypatch.setattr(compilation, "split_graph", injected)
    excluded = {"exclude_ops": [torch.sin], "options": {"fallback_random": True}}
    if make is small_model:  # op by op: the plainer way is Inductor, whose kernels cost seconds
        monkeypatch.setattr(compilation, "compile_plainly", injected)
        excluded = {"exclude_ops": ["silu"], "executors": ["aten"]}
    expected = outcome(make, lambda net: net, train=train)
    with pytest.warns(FallbackWarning, match="SplitError: graph 0 could not be divided") as caught:
        got = outcome(make, lambda net: thunder.thunderfx(net, **excluded), train=train)
    torch.testing.assert_close(got, expected)
    assert len([w for w in caught if w.category is FallbackWarning]) == 1
    (script,) = scripts.glob("*reproducer*.py")
    assert f"reproducer: {script}" in str(caught[0].message)
    assert "exclude_ops=[" in script.read_text()
    with pytest.raises(
        Exception,
        match=r"(?s)graph 0 could not be divided into regions: KeyError"
        r".*Reproducer: \S+\.py",
    ):
        outcome(
            make, lambda net: thunder.thunderfx(net, on_failure="raise", **excluded), train=train
        )


@torch.library.custom_op("thunder_failures::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@half.register_fake
def _(x):
    return torch.empty_like(x)


def _through_numpy(ctx, gradient):
    return torch.from_numpy(gradient.detach().numpy() / 2)


half.register_autograd(_through_numpy)


class Halves(Function):
    def forward(self, x):
        return half(super().forward(x))


@pytest.mark.filterwarnings("ignore:Error detected in:UserWarning")  # AOTAutograd's anomaly mode
@pytest.mark.parametrize("executors", ["auto", ["aten"]], ids=["auto", "aten"])
def test_a_failure_of_aotautograd(scripts, executors):
    settings = {"executors": executors, "options": {"fallback_random": True}}
    expected = outcome(Halves, lambda net: net, train=True)
    message = (
        "AutogradError: AOTAutograd could not trace thunder_0: RuntimeError: .numpy\\(\\) is not "
        "supported for tensor subclasses"
    )
    with pytest.warns(FallbackWarning, match=message):
        got = outcome(Halves, lambda net: thunder.thunderfx(net, **settings), train=True)
    torch.testing.assert_close(got, expected)
    (script,) = scripts.glob("*reproducer*.py")
    assert "thunder_failures" in script.read_text()
    with pytest.raises(Exception, match=rf"(?s){message}.*Reproducer: \S+\.py"):
        outcome(
            Halves,
            lambda net: thunder.thunderfx(net, on_failure="raise", **settings),
            train=True,
        )


def test_without_dynamo_the_errors_are_thunders_own(scripts, monkeypatch):
    graph_module = torch.fx.symbolic_trace(lambda x: half(x).sin())
    x = torch.randn(3, requires_grad=True)
    with pytest.raises(AutogradError, match=r"could not trace thunder_0: RuntimeError: \.numpy"):
        thunder.jit(graph_module, executors=["aten"])(x)

    def injected(*args, **kwargs):
        raise KeyError("injected fault")

    monkeypatch.setattr(compilation, "split_graph", injected)
    with pytest.raises(SplitError, match="graph 0 could not be divided into regions: KeyError"):
        thunder.jit(graph_module, executors=["aten"], exclude_ops=[torch.sin])(x)
    assert len(list(scripts.glob("*reproducer*.py"))) == 2


@pytest.mark.parametrize("on_failure", ["fallback", "raise"])
def test_what_depends_on_values_breaks_the_graph(scripts, on_failure):
    def function(x, at):
        first, second, *_ = torch.tensor_split(x.sin(), at)
        return first.cos(), second.exp()

    inputs = torch.arange(6.0), torch.tensor([2, 5])
    compiled = thunder.thunderfx(function, executors=["aten"], on_failure=on_failure)
    torch.testing.assert_close(compiled(*inputs), function(*inputs))
    assert len(thunder.get_subgraph_info(compiled)) == 2
    assert not list(scripts.glob("*.py"))


FULL_DISK = """
import pathlib, subprocess, warnings
subprocess.run("mount -t tmpfs -o size=256k none disk", shell=True, check=True)
pathlib.Path("disk/ballast").write_bytes(bytes({ballast}))
import torch, thunder

def fails(graph_module):
    raise KeyError("lost")

def f(x):
    return x.sin() * 2

warnings.simplefilter("ignore")
x = torch.ones(3, requires_grad=True)
everything = ["save_reproducer", "trace", "fusion_region"]
run = thunder.thunderfx(f, transforms=[fails], executors=["aten"], debug=everything)
run(x).sum().backward()
print(torch.equal(x.grad, 2 * torch.ones(3).cos()))
print([path.name for path in pathlib.Path("disk").iterdir() if "tmp" in path.name])
try:
    thunder.jit(f, transforms=[fails], executors=["aten"], debug=everything)(x)
except Exception as error:
    print("lost" in str(error))
"""


def can_mount() -> bool:
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
        ).returncode
    )


@pytest.mark.skipif(not can_mount(), reason="filling a disk needs the right to mount one")
@pytest.mark.parametrize("ballast", [256 << 10, 200 << 10], ids=["full", "nearly full"])
def test_a_full_disk_does_not_break_the_run(tmp_path, ballast):
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", FULL_DISK.replace("{ballast}", str(ballast))],
        capture_output=True,
        text=True,
        env={**os.environ, "THUNDER_DEBUG_DIR": "disk", "THUNDER_REPRODUCERS": "on"},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n[]\nTrue\n"


def test_a_verdict_that_cannot_be_written_leaves_the_script(scripts, monkeypatch):
    def full(*args, **kwargs):
        raise ReproducerError("cannot write: No space left on device")

    monkeypatch.setattr(failures, "verify", full)
    with pytest.warns(FallbackWarning, match=r"Reproducer: \S+\.py$"):
        outcome(
            Function,
            lambda net: thunder.thunderfx(net, **options("transform", Direction.FORWARD)),
            train=True,
        )
    assert list(scripts.glob("*reproducer*.py"))


def test_a_folder_that_cannot_be_written_does_not_break_the_run(scripts, monkeypatch):
    monkeypatch.setenv("THUNDER_DEBUG_DIR", "/dev/full/nowhere")
    debug_folder.reset()
    with pytest.warns(FallbackWarning):
        outcome(
            Function,
            lambda net: thunder.thunderfx(net, **options("transform", Direction.FORWARD)),
            train=True,
        )


def test_scripts_can_be_switched_off(scripts, monkeypatch):
    monkeypatch.setenv("THUNDER_REPRODUCERS", "off")
    with pytest.warns(FallbackWarning) as caught:
        outcome(
            Function,
            lambda net: thunder.thunderfx(net, **options("transform", Direction.FORWARD)),
            train=True,
        )
    assert "Reproducer" not in str(caught[0].message)
    assert not list(scripts.iterdir())


def test_nothing_is_written_when_nothing_fails(scripts):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        outcome(Function, lambda net: thunder.thunderfx(net, executors=["aten"]), train=True)
    assert not list(scripts.iterdir())


PROGRAM = """
import torch, thunder
from thunder.executors import OperatorExecutor

def broken_sin(x):
    raise ValueError("no sine today")

def fails(graph_module):
    raise KeyError("lost")

def f(x):
    return x.sin() * 2

options = {options}
x = torch.ones(3, requires_grad=True)
thunder.thunderfx(f, **options)(x).sum().backward()
"""


@pytest.mark.parametrize(
    "options_text",
    [
        "{'transforms': [fails], 'executors': ['aten']}",
        "{'executors': [OperatorExecutor('mine', {'aten.sin': broken_sin})]}",
        "{'executors': [OperatorExecutor('mine', {'aten.cos': broken_sin})]}",
    ],
    ids=["transform", "forward", "backward"],
)
def test_the_script_fails_the_same_way_in_a_fresh_process(tmp_path, options_text):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("{options}", options_text))
    environment = {**os.environ, "THUNDER_DEBUG_DIR": str(tmp_path / "debug")}
    environment["THUNDER_REPRODUCERS"] = "on"
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"Reproducer: (\S+\.py)", done.stderr)
    assert found, done.stderr
    text = Path(found[1]).read_text()
    assert re.search(r"^# Verdict: confirmed: fails with ", text, re.MULTILINE), text[:800]
