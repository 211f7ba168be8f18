"""Compiles the partitions of a split graph, in order, and puts them in its place.

What a partition is compiled for depends on what the ones before it return: shapes after in-place
changes, aliases, gradients. So the split graph is run once on fake tensors, and each partition is
compiled when the run reaches it. torch's own DDPOptimizer works in this way. What cannot run on
fake tensors cannot be compiled by anybody and runs in eager mode; what follows is compiled when
it is first called.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final
from unittest import mock

import torch
from torch import fx
from torch._dynamo.utils import to_fake_tensor
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import PropagateUnbackedSymInts, ShapeEnv

from thunder.dynamo.split_reason import SplitReasonKind
from thunder.dynamo.splitter import Partition, PartitionKind, SplitGraph
from thunder.trace.copying import copy_graph, copy_graph_module

PartitionCompiler = Callable[[Partition, fx.GraphModule, list[Any]], Callable[..., Sequence[Any]]]
"""Compiles a partition: takes it, a copy of its graph module to consume, and fake inputs."""

_UNTRACEABLE = (SplitReasonKind.FAKE_TENSOR_FAILURE, SplitReasonKind.NO_META_KERNEL)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CompiledSplit:
    """A split graph with compiled partitions in place.

    Attributes:
        graph_module: What runs; `forward` is straight-line code that calls the partitions. They
            are plain attributes of it, not submodules, because calling a module costs more.
        compiled: For each partition's name, what runs it.
        example_inputs: For each partition's name, the fake inputs it was compiled for. A partition
            has none when it runs in eager mode or will be compiled when it is first called.
    """

    graph_module: fx.GraphModule
    compiled: Mapping[str, Callable[..., Sequence[Any]]]
    example_inputs: Mapping[str, tuple[Any, ...]]


def compile_partitions(
    split: SplitGraph,
    example_inputs: Sequence[Any],
    *,
    compile_thunder: PartitionCompiler,
    compile_inductor: PartitionCompiler,
) -> CompiledSplit:
    """Compiles each partition with the compiler of its kind.

    Args:
        split: The split graph; it is not changed.
        example_inputs: What the backend was given with the whole graph: real or fake tensors and
            symbolic integers.
        compile_thunder: Compiles thunder partitions.
        compile_inductor: Compiles Inductor partitions.

    Returns:
        The compiled partitions and what calls them.

    Raises:
        Exception: Whatever a compiler raises.
    """
    compilers = {
        PartitionKind.THUNDER: compile_thunder,
        PartitionKind.INDUCTOR: compile_inductor,
    }
    fake_mode = _fake_mode(example_inputs)
    run = _CompilingRun(split, compilers, fake_mode)
    with _same_grad_mode():
        run.run(*(_fake(value, fake_mode) for value in example_inputs))
    return CompiledSplit(
        graph_module=fx.GraphModule(
            {**_attributes(split.split_graph_module), **run.compiled},
            copy_graph(split.split_graph_module.graph),
            "SplitGraph",
        ),
        compiled=run.compiled,
        example_inputs=run.example_inputs,
    )


@final
class _CompilingRun(fx.Interpreter):
    """Runs a split graph on fake tensors and compiles each partition on the way.

    Attributes:
        compiled: For each partition's name, what runs it.
        example_inputs: For each partition's name, the fake inputs it was compiled for.
    """

    def __init__(
        self,
        split: SplitGraph,
        compilers: Mapping[PartitionKind, PartitionCompiler],
        fake_mode: FakeTensorMode,
    ) -> None:
        super().__init__(split.split_graph_module)
        self.extra_traceback = False  # an error of a compiler is passed on as it is
        self.partitions = {partition.name: partition for partition in split.partitions}
        self.compilers = compilers
        self.fake_mode = fake_mode
        self.compiled: dict[str, Callable[..., Sequence[Any]]] = {}
        self.example_inputs: dict[str, tuple[Any, ...]] = {}
        self.answered_ddp = False

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compiles a partition, then runs it."""
        assert not kwargs
        partition = self.partitions[target]
        compiler = self.compilers[partition.kind]
        if any(reason.kind in _UNTRACEABLE for reason in partition.reasons):
            self.compiled[target] = partition.graph_module.forward
            return _Unknown()
        if any(isinstance(value, _Unknown) for value in args):
            self.compiled[target] = _CompiledAtFirstCall(partition, compiler)
            return _Unknown()
        inputs = [_fake(value, self.fake_mode) for value in args]
        self.example_inputs[target] = tuple(inputs)
        with _own_tracing_context() as context:
            self.compiled[target] = _compile(partition, compiler, inputs)
        with _running_on(self.fake_mode):
            outputs = _FakeRun(partition.graph_module, self.fake_mode).run(*inputs)
        if context is not None:
            self._answer_ddp(context, outputs)
        return outputs

    def _answer_ddp(self, context: TracingContext, outputs: Sequence[Any]) -> None:
        """Lets one partition, the first with a gradient, stand for all to DDPOptimizer.

        For each graph that it hands to a backend, DDPOptimizer expects what AOTAutograd left in
        the tracing context, and counts one compile of a backward.
        """
        outer = TracingContext.get()
        has_gradient = any(getattr(value, "requires_grad", False) for value in outputs)
        if outer.ddp_optimizer_ctx is None or self.answered_ddp:
            return
        outer.fw_metadata = context.fw_metadata
        if has_gradient:
            context.ddp_optimizer_ctx = outer.ddp_optimizer_ctx
            self.answered_ddp = True


@final
class _Unknown:
    """What a partition returns that cannot be run on fake tensors, or an element of it."""

    def __getitem__(self, index: int) -> _Unknown:
        """Nothing is known of the elements either."""
        return self


@final
class _CompiledAtFirstCall:
    """A partition whose inputs are not known before it is called.

    Only in graphs that Dynamo has not seen, and that are compiled for fixed sizes.
    """

    def __init__(self, partition: Partition, compiler: PartitionCompiler) -> None:
        self._partition = partition
        self._compiler = compiler
        self._compiled: Callable[..., Sequence[Any]] | None = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if self._compiled is None:
            fake_mode = FakeTensorMode(shape_env=ShapeEnv())
            fakes = [_fake(value, fake_mode) for value in inputs]
            self._compiled = _compile(self._partition, self._compiler, fakes)
        return self._compiled(*inputs)


def _compile(
    partition: Partition, compiler: PartitionCompiler, inputs: list[Any]
) -> Callable[..., Sequence[Any]]:
    graph_module = copy_graph_module(partition.graph_module)
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    for node, value in zip(placeholders, inputs, strict=True):
        node.meta["example_value"] = value
    return compiler(partition, graph_module, list(inputs))


@final
class _FakeRun(PropagateUnbackedSymInts):
    """Runs a partition on fake tensors; sizes that depend on data keep their names."""

    def __init__(self, graph_module: fx.GraphModule, fake_mode: FakeTensorMode) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False
        self.fake_mode = fake_mode

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Makes attributes fake too: running must not change the real ones."""
        return _fake(super().get_attr(target, args, kwargs), self.fake_mode)


@contextlib.contextmanager
def _own_tracing_context() -> Iterator[TracingContext | None]:
    """Gives AOTAutograd a tracing context to write to, that no other partition writes to.

    The backward is often compiled later, in the context that its forward left behind; there it
    looks up which inputs it may overwrite. Guards and the fake mode are shared.
    """
    outer = TracingContext.try_get()
    if outer is None:
        yield None
        return
    context = copy.copy(outer)
    context.ddp_optimizer_ctx = None
    with tracing(context):
        yield context


@contextlib.contextmanager
def _running_on(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Prepares for running a graph on fake tensors between two compiles on the same ones."""
    shape_env = fake_mode.shape_env
    fake_mode.epoch += 1  # sizes that depend on data were given names in the compile before
    with (
        # Bodies of higher-order operators may hold real tensors.
        mock.patch.object(fake_mode, "allow_non_fake_inputs", True),
        fake_mode,
        contextlib.nullcontext()
        if shape_env is None
        else shape_env.ignore_fresh_unbacked_symbols(),
    ):
        yield
    fake_mode.epoch += 1


def _fake_mode(values: Sequence[Any]) -> FakeTensorMode:
    context = TracingContext.try_get()
    if context is not None and context.fake_mode is not None:
        return context.fake_mode
    for value in values:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeTensorMode(shape_env=ShapeEnv())


def _fake(value: Any, fake_mode: FakeTensorMode) -> Any:
    """Makes the fake tensor that AOTAutograd would make of an input."""
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return value
    if TracingContext.try_get() is not None:
        return to_fake_tensor(value, fake_mode)
    return fake_mode.from_tensor(value, static_shapes=True)


def _same_grad_mode() -> contextlib.AbstractContextManager[Any]:
    return torch.set_grad_enabled(torch.is_grad_enabled())


def _attributes(split_graph_module: fx.GraphModule) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for node in split_graph_module.graph.find_nodes(op="get_attr"):
        found: Any = split_graph_module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        attributes[str(node.target)] = found
    return attributes
