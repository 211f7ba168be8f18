"""The traces of compiled regions: what is printed is Python that runs and gives the result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from thunder.dynamo.compiler import ThunderCompiler
from thunder.executors import OperatorExecutor
from thunder.trace import Direction, TraceCtx

GOLDEN = Path(__file__).parent / "golden"


def clamp_relu(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0)


MINE = OperatorExecutor("mine", {"aten.relu": clamp_relu})

EXECUTORS = {
    "aten": ["aten"],
    "inductor": "auto",
    "mine_and_inductor": [MINE, "inductor"],
    "mine": [MINE],
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).relu()
        return (y * 2).softmax(-1)


# Below `Net`, whose line numbers are in the golden files.
RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


def compiled_region(executors, net: nn.Module, x: torch.Tensor):
    backend = ThunderCompiler(executors=executors, on_failure="raise")
    out = torch.compile(net, backend=backend)(x)
    return out, backend.regions[0]


def run_alone(trace: TraceCtx, inputs):
    namespace: dict = {}
    exec(trace.python(), namespace)
    return namespace[trace.direction.value](*inputs)


@pytest.mark.parametrize("name", EXECUTORS)
def test_the_printed_trace_alone_gives_the_regions_result(name):
    net, x = Net(), torch.randn(3, 4)
    out, region = compiled_region(EXECUTORS[name], net, x)
    trace = region.traces(Direction.FORWARD)[-1]
    inputs = [*net.parameters(), x]
    with torch.no_grad():
        alone = run_alone(trace, inputs)
        live = trace.python_callable()(*inputs)
    torch.testing.assert_close(alone[0], out.detach())
    torch.testing.assert_close(live[0], out.detach())
    assert len(alone) == len(live)

    out.sum().backward()
    backward = region.traces(Direction.BACKWARD)[-1]
    saved = dict(zip(forward_outputs(trace), alone, strict=True))
    arguments = [
        saved.get(node.name, torch.ones(3, 4))
        for node in backward.graph.find_nodes(op="placeholder")
    ]
    with torch.no_grad():
        gradients = run_alone(backward, arguments)
    torch.testing.assert_close(gradients[0], net.linear.weight.grad)
    torch.testing.assert_close(gradients[1], net.linear.bias.grad)


def forward_outputs(trace: TraceCtx) -> list[str]:
    values = trace.graph.output_node().args[0]
    assert isinstance(values, list | tuple)
    return [getattr(value, "name", "") for value in values]


@pytest.mark.parametrize("name", EXECUTORS)
def test_printed_traces_are_as_they_were(name):
    _, region = compiled_region(EXECUTORS[name], Net(), torch.randn(3, 4))
    text = "\n\n".join(
        trace.python()
        for direction in (Direction.FORWARD, Direction.BACKWARD)
        for trace in region.traces(direction)[-1:]
    )
    golden = GOLDEN / f"net_{name}.txt"
    older = GOLDEN / f"net_{name}_torch_2_11.txt"
    if older.exists() and RELEASE < (2, 13):  # Inductor's softmax of a product was shorter
        golden = older
    if not golden.exists():
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
        pytest.fail(f"{golden.name} was missing and has been written: check it and run again")
    assert text == golden.read_text()


def test_each_stage_has_its_provenance():
    def negate_twice(graph_module):
        for node in graph_module.graph.find_nodes(op="output"):
            (first, *rest) = node.args[0]
            with graph_module.graph.inserting_before(node):
                once = graph_module.graph.call_function(torch.ops.aten.neg.default, (first,))
                twice = graph_module.graph.call_function(torch.ops.aten.neg.default, (once,))
            once.meta["val"] = twice.meta["val"] = first.meta["val"]
            node.args = ((twice, *rest),)

    net, x = Net(), torch.randn(3, 4)
    backend = ThunderCompiler(executors=["aten"], transforms=[negate_twice], on_failure="raise")
    out = torch.compile(net, backend=backend)(x)
    torch.testing.assert_close(out, net(x))
    stages = backend.regions[0].traces(Direction.FORWARD)
    names = [trace.provenance.pass_name for trace in stages]
    assert names == ["AOTAutograd", "negate_twice", "fusion", "delete after last use"]
    assert "aten.neg" not in stages[0].python()
    assert "aten.neg" in stages[1].python()
    assert "del " not in stages[2].python()
    assert "del " in stages[3].python()


def test_bound_symbols_give_a_view_of_the_fusion():
    _, region = compiled_region([MINE, "inductor"], Net(), torch.randn(3, 4))
    symbols = region.traces(Direction.FORWARD)[-1].bound_symbols
    fusions = [symbol for symbol in symbols if symbol.sym.is_fusion]
    assert [fusion.sym.name for fusion in fusions] == ["inductorFusion0", "inductorFusion1"]
    assert {fusion.sym.executor for fusion in fusions} == {"inductor"}
    inner = [symbol.sym.name for symbol in fusions[0].subsymbols]
    assert "aten.addmm.default" in inner
    (mine,) = [symbol for symbol in symbols if symbol.sym.executor == "mine"]
    assert mine.sym.name == "mine_relu"
    assert mine.source_line is not None
    assert mine.source_line.code == "y = self.linear(x).relu()"
    assert [node.name for node in mine.flat_outs] == ["relu"]


def test_the_prologue_runs_and_refuses_other_inputs():
    net, x = Net(), torch.randn(3, 4)
    _, region = compiled_region(["aten"], net, x)
    (prologue,) = region.traces(Direction.PROLOGUE)
    inputs = [*net.parameters(), x]
    run_alone(prologue, inputs)
    with pytest.raises(RuntimeError):
        run_alone(prologue, [*net.parameters(), x.double()])
    with pytest.raises(AssertionError):
        run_alone(prologue, [*net.parameters(), x.clone().requires_grad_()])
    assert "guard: gradient mode is as it was" in prologue.python()


def test_two_compiles_print_the_same_bytes():
    def program():
        torch._dynamo.reset()
        torch.manual_seed(0)
        net = Net()
        _, region = compiled_region(["aten"], net, torch.randn(3, 4))
        directions = (Direction.PROLOGUE, Direction.FORWARD, Direction.BACKWARD)
        return [trace.python() for d in directions for trace in region.traces(d)]

    assert program() == program()


def test_constants_and_nested_graphs_are_defined_in_the_text():
    def branches(x: torch.Tensor) -> torch.Tensor:
        table = torch.tensor([1.0, float("inf"), -0.0])
        return torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,)) + table[0]

    x = torch.ones(3)
    backend = ThunderCompiler(executors=["aten"], on_failure="raise")
    out = torch.compile(branches, backend=backend)(x)
    torch.testing.assert_close(out, x.sin() + 1)
    trace = backend.regions[0].forward_traces()[-1]
    (alone, *_) = run_alone(trace, [x])
    torch.testing.assert_close(alone, out)


def test_bfloat16_and_symbolic_sizes_are_in_the_types():
    def double(x):
        return functional.gelu(x) * 2

    backend = ThunderCompiler(executors=["aten"], on_failure="raise")
    torch.compile(double, backend=backend, dynamic=True)(torch.ones(2, 3, dtype=torch.bfloat16))
    text = backend.regions[0].forward_traces()[-1].python()
    assert "cpu bf16[s" in text
