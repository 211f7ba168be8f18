"""Runs a program in float64, for a result that others are measured against.

`RandomDraws` notes what a run draws at random; `Float64` runs the same program again with every
operator in float64 and the same draws. Both see ATen operators, so they work on any callable, on
graphs, and on backward passes that run inside them. Judging results is `accuracy.py`'s job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.float64: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
    torch.complex128: torch.complex128,
}
"""The dtypes that are widened; others, float8 among them, stay as they are."""

_SEEDED_ONLY_WITH_DROPOUT = ("attention", "rnn", "lstm", "gru")
_INDUCTORS_DRAWS = ("prims.inductor_random", "prims.inductor_randint")

UNDECLARED_WRITES = {
    f"aten::{name}": ("running_mean", "running_var")
    for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
}
"""Arguments that operators write to although their schemas do not say so."""


@final
class RandomDraws(TorchDispatchMode):
    """Notes what random operators return while it is active.

    Attributes:
        drawn: The results, in order.

    Example:
        >>> import torch
        >>> with RandomDraws() as draws:
        ...     x = torch.nn.functional.dropout(torch.ones(8), 0.5)
        >>> len(draws.drawn)
        1
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        """Starts with nothing drawn."""
        super().__init__()
        self.drawn: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator and copies its result when it is random."""
        if isinstance(func, torch._ops.HigherOrderOperator):
            return run_inside(self, func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if is_random(func):
            self.drawn.append(tree_map(_copy, result))
        return result


@final
class Float64(TorchDispatchMode):
    """Runs every operator in float64 while it is active.

    Inputs may have any dtype: they are widened where they are used, and what the program writes
    to them is rounded to their dtype. Those that require grad must be float64 already, because
    autograd refuses gradients of another dtype. A dtype that the program names is widened as
    well, and autocast leaves float64 alone.
    """

    supports_higher_order_operators = True

    def __init__(self, drawn: Sequence[Any] = ()) -> None:
        """Prepares a run.

        Args:
            drawn: What random operators shall return, in order: `RandomDraws.drawn` of the run
                in the original dtypes, since another dtype draws other numbers.
        """
        super().__init__()
        self._drawn = iter(drawn)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Widens the arguments, runs the operator and widens the result."""
        if isinstance(func, torch._ops.HigherOrderOperator):
            return run_inside(self, func, args, kwargs or {})
        writes = func._schema.is_mutable or func._schema.name in UNDECLARED_WRITES
        views = not writes and _aliases(func)
        widened = _widen((args, kwargs or {}), keep_tensors=views)
        drawn = next(self._drawn, None) if is_random(func) else None
        if drawn is None:
            result = func(*widened[0], **widened[1])
        else:
            result = _replay(func, widened[0], drawn)
        if views:
            return result
        if writes:
            result = _write_back(func._schema, (args, kwargs or {}), widened, result)
        return _widen(result, keep_tensors=_aliases(func))


def run_in_float64(function: Callable[[], Any], drawn: Sequence[Any] = ()) -> Any:
    """Calls a function with every operator in float64.

    Args:
        function: The program, its inputs bound.
        drawn: What the run in the original dtypes drew.

    Returns:
        What `function` returns: floating-point tensors are float64, but for inputs that it
        returns and tensors that it wrote to.

    Raises:
        RuntimeError: As torch raises it for an operator that does not know float64.

    Example:
        >>> import torch
        >>> x = torch.ones(3, dtype=torch.bfloat16)
        >>> run_in_float64(lambda: (x / 3).to(torch.float16).sum())
        tensor(1., dtype=torch.float64)
    """
    with _default_dtype(torch.float64), Float64(drawn):
        return function()


def is_random(operator: Any) -> bool:
    """Whether an operator draws its result, so that another dtype would give another one.

    Fused attention and recurrent layers are tagged as random too, but only draw with dropout:
    their results follow from their inputs. What Inductor puts in the place of random operators is
    random in eager mode although its tags do not say so.
    """
    if str(operator).startswith(_INDUCTORS_DRAWS):
        return True
    if torch.Tag.nondeterministic_seeded not in getattr(operator, "tags", ()):
        return False
    return not any(part in str(operator) for part in _SEEDED_ONLY_WITH_DROPOUT)


def _replay(operator: Any, args: Any, drawn: Any) -> Any:
    if operator is torch.ops.aten.native_dropout.default:  # its mask is what was drawn
        kept = args[0] * drawn[1]
        return (kept if args[1] == 1 else kept / (1 - args[1])), drawn[1]
    return args[0].copy_(drawn) if operator._schema.is_mutable else drawn


def _aliases(operator: Any) -> bool:
    return any(returned.alias_info is not None for returned in operator._schema.returns)


def _write_back(schema: Any, arguments: Any, widened: Any, result: Any) -> Any:
    """Copies what an operator wrote to widened arguments into the arguments themselves."""
    originals = {}
    undeclared = UNDECLARED_WRITES.get(schema.name, ())
    for index, argument in enumerate(schema.arguments):
        declared = argument.alias_info is not None and argument.alias_info.is_write
        if not declared and argument.name not in undeclared:
            continue
        pair = [
            given[index] if index < len(given) else named.get(argument.name)
            for given, named in (arguments, widened)
        ]
        for original, wide in zip(*map(tree_leaves, pair), strict=True):
            if isinstance(original, torch.Tensor) and original is not wide:
                original.copy_(wide)
                originals[id(wide)] = original
    return tree_map(lambda value: originals.get(id(value), value), result)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def run_inside(mode: TorchDispatchMode, operator: Any, args: Any, kwargs: Any) -> Any:
    """Runs a higher-order operator with the mode active in its body."""
    if operator is torch.ops.higher_order.cond:
        predicate, if_true, if_false, operands = args
        with mode:
            return (if_true if predicate else if_false)(*operands)
    if operator is torch.ops.higher_order.while_loop:
        condition, body, carried, extra = args
        with mode:
            while condition(*carried, *extra):
                carried = body(*carried, *extra)
        return carried
    implementation = operator.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
    if implementation is None:
        return operator(*args, **kwargs)
    with mode:
        return implementation(*args, **kwargs)


def _widen(values: Any, *, keep_tensors: bool = False) -> Any:
    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if keep_tensors else value.to(WIDE.get(value.dtype, value.dtype))
        return WIDE.get(value, value) if isinstance(value, torch.dtype) else value

    return tree_map(wide, values)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
