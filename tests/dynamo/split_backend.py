"""A backend that splits as `ThunderCompiler` does and compiles every partition by AOTAutograd."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.debugging import aot_eager
from torch.utils import _pytree as pytree

from thunder.dynamo.cleanup import cleanup
from thunder.dynamo.partition_compile import CompiledSplit, compile_partitions
from thunder.dynamo.splitter import SplitGraph, split_graph
from thunder.dynamo.support import find_unsupported


@dataclass
class SplitBackend:
    """Compiles Dynamo graphs in pieces.

    Attributes:
        exclude_ops: What goes to Inductor partitions.
        compiler: Compiles every partition.
        splits: The split of each graph that was split.
    """

    exclude_ops: Sequence[Any]
    compiler: Callable[..., Any] = aot_eager
    splits: list[SplitGraph] = field(default_factory=list)
    compiled: list[CompiledSplit] = field(default_factory=list)

    def __call__(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]):
        cleanup(graph_module)
        unsupported = find_unsupported(graph_module, self.exclude_ops)
        if not unsupported:
            return self.compiler(graph_module, list(example_inputs))
        split = split_graph(graph_module, unsupported)
        for partition in split.partitions:
            partition.graph_module.graph.lint()
        split.split_graph_module.graph.lint()
        compiled = compile_partitions(
            split,
            example_inputs,
            compile_thunder=lambda partition, gm, inputs: self.compiler(gm, inputs),
            compile_inductor=lambda partition, gm, inputs: self.compiler(gm, inputs),
        )
        self.splits.append(split)
        self.compiled.append(compiled)
        return compiled.graph_module.forward

    @property
    def names(self) -> list[list[str]]:
        """For each graph that was split, the names of its partitions."""
        return [[partition.name for partition in split.partitions] for split in self.splits]


def check(
    function: Callable[..., Any],
    *calls: Sequence[Any],
    exclude: Sequence[Any] = (torch.sinc,),
    tolerance: float | None = None,
    compiler: Callable[..., Any] = aot_eager,
    **options: Any,
) -> SplitBackend:
    """Compares a function with its split self: values, gradients, changes, aliases, modes.

    Args:
        function: A function or module.
        calls: The arguments of each call.
        exclude: The operators to split off.
        tolerance: Absolute and relative; the defaults of `assert_close` when None.
        compiler: Compiles the partitions.
        options: For torch.compile.
    """
    torch._dynamo.reset()
    backend = SplitBackend(exclude, compiler)
    eager, trained = copy.deepcopy(function), copy.deepcopy(function)
    compiled = torch.compile(trained, backend=backend, **options)
    for call in calls:
        expected = observe(eager, copy_arguments(call))
        compare(observe(compiled, copy_arguments(call)), expected, tolerance)
    if isinstance(eager, torch.nn.Module) and isinstance(trained, torch.nn.Module):
        compare(_state(trained), _state(eager), tolerance)
    assert backend.splits, "nothing was split off"
    return backend


def copy_arguments(arguments: Any) -> Any:
    """Copies tensors, with the views among them still views of the same memory."""
    memo: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        base = value if value._base is None else value._base
        if id(base) not in memo:
            memo[id(base)] = base.detach().clone().requires_grad_(base.requires_grad)
        if value._base is None:
            return memo[id(base)]
        return memo[id(base)].as_strided(value.shape, value.stride(), value.storage_offset())

    return pytree.tree_map(copied, arguments)


def observe(function: Callable[..., Any], arguments: Any) -> dict[str, Any]:
    """Calls a function and its backward, and returns all that can be seen of it.

    Args:
        function: The function.
        arguments: Its arguments; they may be changed.
    """
    torch.manual_seed(0)
    modes = _modes()
    outputs = function(*arguments)
    assert _modes() == modes, "the call left another mode behind"
    drawn = torch.rand(1)
    leaves = [each for each in pytree.tree_leaves(arguments) if isinstance(each, torch.Tensor)]
    results = [each for each in pytree.tree_leaves(outputs) if isinstance(each, torch.Tensor)]
    seen: dict[str, Any] = {
        "outputs": pytree.tree_map(_tensor_facts, outputs),
        "inputs": pytree.tree_map(_tensor_facts, arguments),
        "aliases": _aliases(leaves + results),
        "drawn": drawn,
    }
    losses = [
        (each.double() * torch.linspace(0.5, 1.5, each.numel()).reshape(each.shape)).sum()
        for each in results
        if each.requires_grad
    ]
    if losses:
        torch.stack(losses).sum().backward()
    seen["gradients"] = [each.grad for each in leaves if each.is_leaf]
    return seen


def _tensor_facts(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return {
        "value": value.detach().clone(),
        "facts": str((type(value), value.dtype, value.requires_grad, value.stride())),
    }


def _aliases(tensors: Sequence[torch.Tensor]) -> str:
    """Says which tensors share memory with an earlier one, and which are the same object."""
    facts = []
    for index, tensor in enumerate(tensors):
        before = tensors[:index]
        same = [at for at, other in enumerate(before) if other is tensor]
        key = tensor.untyped_storage()._cdata
        shared = [at for at, other in enumerate(before) if other.untyped_storage()._cdata == key]
        facts.append((same[:1], shared[:1]))
    return str(facts)


def _modes() -> tuple[bool, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
    )


def _state(module: torch.nn.Module) -> dict[str, Any]:
    gradients = {f"{name}.grad": value.grad for name, value in module.named_parameters()}
    return {**module.state_dict(), **gradients}


def compare(actual: Any, expected: Any, tolerance: float | None) -> None:
    """Compares what `observe` returned.

    Args:
        actual: Of the compiled function.
        expected: Of the function itself.
        tolerance: Absolute and relative; the defaults of `assert_close` when None.
    """
    actual_leaves, actual_spec = pytree.tree_flatten(actual)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert actual_spec == expected_spec, "None in place of a value, or the other way round"
    paths = [path for path, _ in pytree.tree_flatten_with_path(expected)[0]]
    for path, got, wanted in zip(paths, actual_leaves, expected_leaves, strict=True):
        where = pytree.keystr(path)
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(
                got, wanted, rtol=tolerance, atol=tolerance, msg=lambda m, w=where: f"{w}: {m}"
            )
        else:
            assert got == wanted, where
