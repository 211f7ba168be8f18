"""What can be seen of calls: results, changed inputs, gradients, memory that is shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.opinfo.calls import Call
from thunder.pipeline.judged_run import copy_values
from thunder.trace.accuracy import compare_to_reference
from thunder.trace.float64 import WIDE, run_in_float64


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What one call did.

    Attributes:
        structure: Of the results.
        facts: Of each input and result: dtype, shape, strides and the like, and which of the
            others it shares memory with.
        values: Results, inputs after the call, and gradients of the inputs; detached copies.
    """

    structure: Any
    facts: tuple[str, ...]
    values: dict[str, Any]


Batch = Callable[[Sequence[tuple[tuple[Any, ...], dict[str, Any]]]], Sequence[Any]]
"""Takes the arguments of several calls, returns the results of each."""


def observe(batch: Batch, calls: Sequence[Call], *, gradients: bool = True) -> list[Observation]:
    """Runs calls on copies of their arguments, forward and backward.

    Args:
        batch: Makes all the calls.
        calls: The calls.
        gradients: Whether to run the backward, where there is one.
    """
    arguments = [copy_values((call.args, call.kwargs)) for call in calls]
    torch.manual_seed(1)
    results = batch(arguments)
    inputs = [_tensors(given) for given in arguments]
    outputs = [_tensors(result) for result in results]
    found = _gradients(inputs, outputs) if gradients else [[] for _ in calls]
    return [
        Observation(
            structure=pytree.tree_structure(result),
            facts=_facts([*inputs[at], *outputs[at]]),
            values={
                "results": _copied(result),
                "inputs afterwards": _copied(inputs[at]),
                "gradients": _copied(found[at]),
            },
        )
        for at, result in enumerate(results)
    ]


def difference(
    call: Call,
    got: Observation,
    wanted: Observation,
    *,
    values_matter: bool = True,
    rounding_matters: bool = True,
) -> str | None:
    """Says how two observations of a call differ, or returns None.

    Args:
        call: The call.
        got: Of the compiled call.
        wanted: Of eager.
        values_matter: Whether values are compared at all.
        rounding_matters: Whether values must be as close as `torch.testing` wants them. If not,
            they may also be as far from float64 as eager's are.
    """
    if got.structure != wanted.structure:
        return f"results are {got.structure}, eager's are {wanted.structure}"
    if got.facts != wanted.facts:
        pairs = zip(got.facts, wanted.facts, strict=True)
        return "; ".join(f"{one} instead of {other}" for one, other in pairs if one != other)
    problem = _gap(got.values, wanted.values) if values_matter else None
    if problem is None or rounding_matters:
        return problem
    verdict = compare_to_reference(wanted.values, got.values, _reference(call))
    return None if verdict.accurate else str(verdict)


def _gradients(
    inputs: Sequence[Sequence[torch.Tensor]], outputs: Sequence[Sequence[torch.Tensor]]
) -> list[list[torch.Tensor | None]]:
    """Returns the gradients of each call's inputs, by one backward pass."""
    sources = [[x for x in given if x.requires_grad and x.is_leaf] for given in inputs]
    results = [x for result in outputs for x in result if x.requires_grad]
    flat = [source for given in sources for source in given]
    if not flat or not results:
        return [[] for _ in inputs]
    weights = [_weights(x) for x in results]
    found = iter(torch.autograd.grad(results, flat, weights, allow_unused=True))
    return [[next(found) for _ in given] for given in sources]


def _weights(output: torch.Tensor) -> torch.Tensor:
    """Gradients to start from: not all the same, and as dense as the output's memory allows."""
    weights = torch.linspace(0.5, 1.5, output.numel()).reshape(output.shape).to(output.dtype)
    return weights if output.layout is torch.strided else weights.to_sparse()


def _facts(tensors: Sequence[torch.Tensor]) -> tuple[str, ...]:
    storages = [x.untyped_storage()._cdata if x.layout is torch.strided else None for x in tensors]
    facts = []
    for at, tensor in enumerate(tensors):
        parts = [str(tensor.dtype), str(list(tensor.shape)), f"grad={tensor.requires_grad}"]
        if tensor.layout is torch.strided:
            parts.append(f"strides={tensor.stride()} offset={tensor.storage_offset()}")
            parts.append(f"conj={tensor.is_conj()} neg={tensor.is_neg()}")
            shared = storages.index(storages[at])
            parts += [f"memory of #{shared}"] if shared != at else []
        same = next(index for index, other in enumerate(tensors) if other is tensor)
        parts += [f"is #{same}"] if same != at else []
        facts.append(f"#{at} " + " ".join(parts))
    return tuple(facts)


def _gap(got: Any, wanted: Any) -> str | None:
    for one, (path, other) in zip(
        pytree.tree_leaves(got), pytree.tree_flatten_with_path(wanted)[0], strict=True
    ):
        if isinstance(other, torch.Tensor):
            try:
                torch.testing.assert_close(one, other, equal_nan=True)
            except AssertionError as error:
                return f"{pytree.keystr(path)}: {' '.join(str(error).split())}"
        elif isinstance(one, torch.Tensor):
            return f"{pytree.keystr(path)}: a tensor instead of {other}"
        elif one != other and not (_is_nan(one) and _is_nan(other)):
            return f"{pytree.keystr(path)}: {one} instead of {other}"
    return None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _reference(call: Call) -> Any:
    """Returns what eager gives in float64; None where it cannot."""
    args, kwargs = pytree.tree_map(_widened, copy_values((call.args, call.kwargs)))

    def run() -> Any:
        torch.manual_seed(1)
        result = call.function(*args, **kwargs)
        inputs, outputs = _tensors((args, kwargs)), _tensors(result)
        return {
            "results": _copied(result),
            "inputs afterwards": _copied(inputs),
            "gradients": _copied(_gradients([inputs], [outputs])[0]),
        }

    try:
        return run_in_float64(run)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
        return None


def _widened(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return value
    return value.detach().to(WIDE.get(value.dtype, value.dtype)).requires_grad_()


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _copied(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), tree)
