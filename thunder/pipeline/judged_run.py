"""Runs two programs on equal inputs with equal random numbers, and judges the second by the first.

What `trace/accuracy.py` needs is gathered here: the results of both, and those of the first in
float64. Inputs are copied for each run and the random state is put back, so that in-place updates,
inputs that share memory, and dropout give no false alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves, tree_map

from thunder.trace.accuracy import AccuracyVerdict, compare_to_reference
from thunder.trace.float64 import WIDE, RandomDraws, run_in_float64

Results = Mapping[str, Any]
Program = Callable[[list[Any]], Results]
"""Takes inputs, which it may change; returns the results that count, as `call_results` does."""

_NO_FLOAT64 = (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError)
"""What programs raise that cannot run in float64, such as one that checks dtypes."""


def judge_run(
    plain: Program, judged: Program, inputs: Sequence[Any], *, donated: Collection[int] = ()
) -> AccuracyVerdict:
    """Judges one program by another that should give the same results.

    Args:
        plain: The program as it is. It is also run in float64, so it must consist of PyTorch
            operators.
        judged: The program to be judged, such as the compiled one.
        inputs: The inputs of both; they stay as they are, and so does the random state.
        donated: Positions of inputs that `judged` may write to although `plain` leaves them
            alone, as Inductor's backward kernels do with saved values of no use afterwards.

    Returns:
        The verdict, on the results and on inputs that either wrote to. When it is against
        `judged`, rounding the inputs once more in float64 does not explain the distance either.

    Raises:
        Exception: Whatever one of the programs raised.

    Example:
        >>> import torch
        >>> def program(function):
        ...     return lambda inputs: call_results(function, inputs)
        >>> judge_run(program(torch.exp), program(torch.exp2), [torch.ones(2)]).accurate
        False
    """
    with random_state_kept() as state:
        taken, given = copy_values(list(inputs)), copy_values(list(inputs))
        with RandomDraws() as draws:
            expected = plain(list(taken))
        state.restore()
        results = judged(list(given))
        changed = (i for i in _written(inputs, given) if i not in donated)
        written = sorted({*_written(inputs, taken), *changed})
        expected, results = _with(expected, taken, written), _with(results, given, written)
        if _identical(expected, results):
            return compare_to_reference(expected, results, None, note="equal to the last bit")
        reference, note = _reference(plain, inputs, draws.drawn, written, noise=False)
        verdict = compare_to_reference(expected, results, reference, note=note)
        if verdict.accurate or reference is None:
            return verdict
        moved, _ = _reference(plain, inputs, draws.drawn, written, noise=True)
        return compare_to_reference(expected, results, reference, explained=[moved], note=note)


def call_results(function: Callable[..., Any], inputs: list[Any]) -> Results:
    """Calls a function and returns its outputs, as a program does.

    Args:
        function: Takes the inputs positionally.
        inputs: The inputs.
    """
    return {"outputs": tree_map(_detached, function(*inputs))}


def copy_values(values: Any) -> Any:
    """Copies the tensors in a tree of values.

    Args:
        values: Tensors and other values in any containers.

    Returns:
        The same tree. Strides, offsets, shared memory and grad flags are kept; every copy is a
        leaf of autograd. Values that are no tensors are the same objects.

    Example:
        >>> import torch
        >>> x = torch.zeros(2)
        >>> first, second = copy_values([x, x[1:]])
        >>> _ = second.add_(1)
        >>> first.tolist(), x.tolist()
        ([0.0, 1.0], [0.0, 0.0])
    """
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        copied = _copy_tensor(value, storages)
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(copied, value.requires_grad)
        return copied.requires_grad_(value.requires_grad)

    return tree_map(copy, values)


@dataclass(frozen=True, slots=True)
class RandomState:
    """The states of the random generators.

    Attributes:
        cpu: That of the CPU.
        cuda: That of each CUDA device; empty while CUDA is not in use.
    """

    cpu: torch.Tensor
    cuda: tuple[torch.Tensor, ...]

    @staticmethod
    def current() -> RandomState:
        """Returns the states as they are."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        return RandomState(torch.get_rng_state(), tuple(cuda))

    def equals(self, other: RandomState) -> bool:
        """Returns whether all generators would draw the same."""
        ours, theirs = (self.cpu, *self.cuda), (other.cpu, *other.cuda)
        return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))

    def restore(self) -> None:
        """Puts the states back."""
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)


@contextmanager
def random_state_kept() -> Iterator[RandomState]:
    """Puts the random state back after a `with` block; yields the state at its start."""
    state = RandomState.current()
    try:
        yield state
    finally:
        state.restore()


def _reference(
    plain: Program,
    inputs: Sequence[Any],
    drawn: Sequence[Any],
    written: Sequence[int],
    *,
    noise: bool,
) -> tuple[Results | None, str]:
    copies = copy_values(list(inputs))
    if noise:
        for value in copies:
            _round_once_more(value)
    copies = tree_map(_widened, copies)
    try:
        results = run_in_float64(lambda: plain(list(copies)), drawn)
    except _NO_FLOAT64 as error:
        return None, f"no float64 result: {type(error).__name__}: {error}"
    return _with(results, copies, written), ""


def _with(results: Results, inputs: Sequence[Any], written: Sequence[int]) -> Results:
    """Adds inputs that were written to."""
    afterwards = {str(position): _detached(inputs[position]) for position in written}
    return {**results, "inputs afterwards": afterwards}


def _written(inputs: Sequence[Any], *afterwards: Sequence[Any]) -> list[int]:
    """Returns which tensors changed in one of the runs.

    By their values: batch normalization writes without a new version.
    """
    return [
        position
        for position, value in enumerate(inputs)
        if isinstance(value, torch.Tensor)
        and not all(_same(value, values[position]) for values in afterwards)
    ]


def _widened(value: Any) -> Any:
    """Autograd wants inputs in float64; others are widened where they are used."""
    if not (isinstance(value, torch.Tensor) and value.requires_grad):
        return value
    return value.detach().to(WIDE.get(value.dtype, value.dtype)).requires_grad_()


def _round_once_more(value: Any) -> None:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return
    if is_traceable_wrapper_subclass(value) or value.layout is not torch.strided:
        return
    if value.numel() and any(
        stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True)
    ):
        return
    eps = torch.finfo(value.dtype).eps
    wide = value.detach().to(torch.float64)
    generator = torch.Generator(value.device).manual_seed(0)
    noise = torch.rand(wide.shape, generator=generator, dtype=wide.dtype, device=wide.device)
    value.detach().copy_(wide * (1 + eps * (2 * noise - 1)))


def _copy_tensor(value: torch.Tensor, storages: dict[int, Any]) -> torch.Tensor:
    value = value.detach()
    if (
        is_traceable_wrapper_subclass(value)
        or value.layout is not torch.strided
        or value.is_conj()
        or value.is_neg()
        or value.is_quantized
        or value.is_meta
    ):
        return value.clone()
    storage = value.untyped_storage()
    if storage._cdata not in storages:
        storages[storage._cdata] = storage.clone()
    copied = torch.empty(0, dtype=value.dtype, device=value.device)
    return copied.set_(
        storages[storage._cdata],  # pyright: ignore[reportArgumentType] - untyped is accepted
        value.storage_offset(),
        value.size(),
        value.stride(),
    )


def _identical(one: Results, other: Results) -> bool:
    pairs = tree_leaves(one), tree_leaves(other)
    return len(pairs[0]) == len(pairs[1]) and all(map(_same, *pairs))


def _same(x: Any, y: Any) -> bool:
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return type(x) is type(y) and not isinstance(x, torch.Tensor) and bool(x == y)
    if is_traceable_wrapper_subclass(x) or x.layout is not torch.strided or x.is_quantized:
        return False
    if x.dtype != y.dtype or x.device != y.device or x.is_meta or y.layout is not torch.strided:
        return False
    return torch.equal(x, y)  # NaNs differ from themselves; the longer way judges them


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
