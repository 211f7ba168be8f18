from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import fx, nn
from torch._C._distributed_c10d import HashStore
from torch._dynamo.backends.debugging import aot_eager
from torch._guards import TracingContext
from torch._inductor.compile_fx import compile_fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parallel import DistributedDataParallel

from tests.dynamo.split_backend import SplitBackend, check
from thunder.dynamo.partition_compile import compile_partitions
from thunder.dynamo.splitter import PartitionKind, split_graph
from thunder.dynamo.support import find_unsupported


def test_partitions_are_compiled_in_order_by_the_compiler_of_their_kind():
    seen = []

    def compiler(kind):
        def compile_one(partition, graph_module, inputs):
            assert graph_module is not partition.graph_module
            assert partition.kind is kind
            seen.append((partition.name, [tuple(value.shape) for value in inputs]))
            return graph_module.forward

        return compile_one

    def backend(graph_module, example_inputs):
        split = split_graph(graph_module, find_unsupported(graph_module, ["sinc"]))
        compiled = compile_partitions(
            split,
            example_inputs,
            compile_thunder=compiler(PartitionKind.THUNDER),
            compile_inductor=compiler(PartitionKind.INDUCTOR),
        )
        assert list(compiled.compiled) == list(compiled.example_inputs)
        assert all(isinstance(v, FakeTensor) for v in compiled.example_inputs["inductor_1"])
        assert split.split_graph_module.thunder_0 is split.partitions[0].graph_module
        return compiled.graph_module.forward

    def function(x):
        y = x * 2
        y.unsqueeze_(0)
        z = torch.sinc(y)
        y.squeeze_(0)
        return z.sum(0) + y

    x = torch.ones(2, 3)
    torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x))
    assert seen[0] == ("thunder_0", [(2, 3)])
    # y has the shape that it has there, not the one that it has at the end.
    assert seen[1] == ("inductor_1", [(1, 2, 3)])
    assert seen[2][0] == "thunder_2"
    assert sorted(seen[2][1]) == [(1, 2, 3), (1, 2, 3)]


def test_calls_cost_no_module_call():
    backend = check(lambda x: torch.sinc(x.cos()).exp(), (torch.ones(2),))
    (compiled,) = backend.compiled
    assert not list(compiled.graph_module.children())
    for name, run in compiled.compiled.items():
        assert vars(compiled.graph_module)[name] is run
    body = compiled.graph_module.code.strip().splitlines()[1:]
    assert sum("self." in line for line in body) == 3
    assert not any(word in compiled.graph_module.code for word in (" if ", " for ", "while"))


def test_errors_of_compilers_come_out_as_they_are():
    class Stop(Exception):
        pass

    error = Stop("as it is")

    def refuse(partition, graph_module, inputs):
        raise error

    graph_module = fx.symbolic_trace(lambda x: torch.sinc(x).exp())
    x = torch.ones(2)
    split = split_graph(graph_module, find_unsupported(graph_module, ["sinc"], example_inputs=[x]))
    with torch.no_grad(), pytest.raises(Stop) as raised:
        compile_partitions(split, [x], compile_thunder=refuse, compile_inductor=refuse)
    assert raised.value is error
    assert str(error) == "as it is"


def test_compiling_changes_no_real_tensor():
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([parameter], lr=0.05, foreach=False)
    other = nn.Parameter(torch.ones(3))
    expected = torch.optim.Adam([other], lr=0.05, foreach=False)
    backend = SplitBackend(["sqrt"])
    step = torch.compile(optimizer.step, backend=backend)
    for scale in (1.0, 2.0):
        parameter.grad = torch.tensor([1.0, 2.0, 3.0]) * scale
        other.grad = parameter.grad.clone()
        step()
        expected.step()
    assert len(backend.splits[0].partitions) == 3
    torch.testing.assert_close(parameter, other)
    assert optimizer.state[parameter]["step"] == 2
    torch.testing.assert_close(optimizer.state[parameter], expected.state[other])


def test_every_partition_has_a_tracing_context_of_its_own():
    contexts = []

    def compiler(graph_module, inputs):
        contexts.append(TracingContext.get())
        return aot_eager(graph_module, inputs)

    backend = SplitBackend(["sinc"], compiler)
    torch.compile(lambda x: torch.sinc(x.cos()).exp(), backend=backend)(torch.ones(2))
    assert len({id(context) for context in contexts}) == 3
    assert len({id(context.fake_mode) for context in contexts}) == 1
    assert len({id(context.guards_context) for context in contexts}) == 1


def test_backwards_compiled_late_by_inductor():
    def function(x, w, b):
        h = (x @ w).relu() + b
        h = torch.special.i0e(h) * 2
        return (h @ w).tanh().sum()

    inputs = [torch.randn(4, 4, requires_grad=True) for _ in range(3)]
    check(
        function,
        inputs,
        inputs[::-1],
        exclude=["special_i0e"],
        compiler=compile_fx,
        tolerance=1e-4,
    )


@torch.library.custom_op("thunder_tests::host_only", mutates_args=())
def host_only(x: torch.Tensor) -> torch.Tensor:
    return x.clone() + 1


def test_what_nobody_can_compile_runs_in_eager_mode():
    operator = torch.ops.thunder_tests.host_only
    graph_module = fx.symbolic_trace(lambda x: operator(x.cos()).exp().sin())
    x = torch.ones(4)
    split = split_graph(graph_module, find_unsupported(graph_module, example_inputs=[x]))
    seen = []

    def compiler(partition, graph_module, inputs):
        seen.append(partition.name)
        return aot_eager(graph_module, inputs)

    compiled = compile_partitions(split, [x], compile_thunder=compiler, compile_inductor=compiler)
    assert seen == ["thunder_0"]
    assert list(compiled.example_inputs) == ["thunder_0"]
    for _ in range(2):
        torch.testing.assert_close(compiled.graph_module(x), graph_module(x))
    assert seen == ["thunder_0", "thunder_2"]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(4))

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = layer(x)
            x = torch.special.i0e(x) * 2 if index == 3 else x.tanh()
        return x


@pytest.fixture
def process_group():
    dist.init_process_group("gloo", rank=0, world_size=1, store=HashStore())
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("excluded", ["special_i0e", "tanh"])
def test_buckets_of_data_parallel_modules(process_group, excluded):
    # DDPOptimizer hands over one graph for each bucket and counts compiles of backwards.
    module, expected = Layers(), Layers()
    expected.load_state_dict(module.state_dict())
    parallel = DistributedDataParallel(module, bucket_cap_mb=1.1)  # type: ignore[arg-type]
    backend = SplitBackend([excluded])
    compiled = torch.compile(parallel, backend=backend)
    x = torch.randn(3, 512)
    for _ in range(2):
        compiled(x).sum().backward()
        expected(x).sum().backward()
    assert backend.splits
    for mine, other in zip(module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
