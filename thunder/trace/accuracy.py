"""Judges a result by its distance from float64: rounding is no bug, a wrong operator is.

A fixed tolerance is too strict for a long sum in bfloat16 and too lax for a small gradient. So a
result is wrong only when it lies further from the float64 result than the error of eager explains.
PyTorch's own accuracy checks (`torch._dynamo.utils.same`) stand on the same idea, with one
tolerance for everything; here each output has limits of its own, and both distances are shown.

Making the float64 result is `float64.py`'s job; running programs is the caller's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import keystr, tree_flatten_with_path

FACTOR = 4.0
"""How many times further from float64 than eager a result may be: two computations that are
equally good can land on different sides of the truth, and RMS over few elements is noisy."""

UNITS = 4.0
"""How many units in the last place of the output's dtype are always allowed.

More for elements that may be long sums: added up one by one, n numbers are off by a random walk of
sqrt(n) / 2 roundings or so (Higham, Accuracy and Stability of Numerical Algorithms, 2002, 2.8 and
4.2), where eager adds them up in pairs. Sums are kept in float32 at least.
"""

_CHUNK = 1 << 22
_SCALARS = bool | int | float | complex
_COMPARABLE = str | bytes | torch.dtype | torch.device | torch.layout | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Distance:
    """How far a result lies from the float64 result.

    Attributes:
        rms: Root of the mean squared difference, over the elements that are finite in all results.
        largest: The largest difference among them.
        mismatches: Number of elements that differ where no distance exists: integers, booleans,
            and infinities or NaNs that agree neither with eager nor with float64.
    """

    rms: float = 0.0
    largest: float = 0.0
    mismatches: int = 0

    def __str__(self) -> str:
        """Returns the numbers that are not zero."""
        parts = [] if self.mismatches else [f"rms {self.rms:.2g}, largest {self.largest:.2g}"]
        if self.mismatches:
            parts.append(f"{self.mismatches} elements differ")
        return ", ".join(parts)

    def to_json(self) -> dict[str, float | int | None]:
        """Returns the fields, ready for JSON; an infinite distance is None."""
        return {
            "rms": self.rms if math.isfinite(self.rms) else None,
            "largest": self.largest if math.isfinite(self.largest) else None,
            "mismatches": self.mismatches,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Distance:
        """Makes a distance out of what `to_json` returned."""
        infinite = {key: math.inf for key, value in data.items() if value is None}
        return Distance(**{**data, **infinite})


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputVerdict:
    """The judgement on one output.

    Attributes:
        name: Where it stands in the results, as in `['outputs'][0]`.
        description: Dtype and shape, or the type of a plain value.
        accurate: Whether it is as good as eager's.
        reason: One sentence.
        eager: Eager's distance from float64; None when there is no float64 result.
        compiled: The judged result's distance from float64; None as above.
    """

    name: str
    description: str
    accurate: bool
    reason: str
    eager: Distance | None = None
    compiled: Distance | None = None

    def __str__(self) -> str:
        """Returns one line."""
        return f"{self.name} ({self.description}): {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON."""
        return {
            "name": self.name,
            "description": self.description,
            "accurate": self.accurate,
            "reason": self.reason,
            "eager": self.eager and self.eager.to_json(),
            "compiled": self.compiled and self.compiled.to_json(),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> OutputVerdict:
        """Makes a verdict out of what `to_json` returned."""
        distances = {
            key: None if data[key] is None else Distance.from_json(data[key])
            for key in ("eager", "compiled")
        }
        return OutputVerdict(**{**data, **distances})


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyVerdict:
    """The judgement on all outputs of a run.

    Attributes:
        outputs: One verdict an output, in order.
        note: What limits the judgement, such as a missing float64 result; empty otherwise.
    """

    outputs: tuple[OutputVerdict, ...]
    note: str = ""

    @property
    def accurate(self) -> bool:
        """Whether every output is as good as eager's."""
        return not self.wrong

    @property
    def wrong(self) -> tuple[OutputVerdict, ...]:
        """The outputs that are worse than rounding explains."""
        return tuple(output for output in self.outputs if not output.accurate)

    def __str__(self) -> str:
        """Returns a headline and one line for each wrong output."""
        note = f" ({self.note})" if self.note else ""
        if self.accurate:
            return f"accurate: {len(self.outputs)} outputs{note}"
        head = f"WRONG: {len(self.wrong)} of {len(self.outputs)} outputs{note}"
        return "\n".join([head, *(f"  {output}" for output in self.wrong)])

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON."""
        return {"outputs": [output.to_json() for output in self.outputs], "note": self.note}

    @staticmethod
    def from_json(data: dict[str, Any]) -> AccuracyVerdict:
        """Makes a verdict out of what `to_json` returned."""
        outputs = tuple(OutputVerdict.from_json(output) for output in data["outputs"])
        return AccuracyVerdict(outputs=outputs, note=data["note"])


def compare_to_reference(
    eager: Any,
    compiled: Any,
    reference: Any,
    *,
    explained: Sequence[Any] = (),
    factor: float = FACTOR,
    note: str = "",
) -> AccuracyVerdict:
    """Judges a compiled program's results.

    An output is wrong when its RMS or its largest distance from float64 exceeds `factor` times
    eager's, plus a few units in the last place. A whole number or a truth value has no distance:
    there, the elements that differ from float64 are counted. An infinity or NaN must be eager's or
    float64's.

    Args:
        eager: The results of the program as it is: tensors and plain values in any containers.
        compiled: The results to be judged.
        reference: The results computed in float64, or None when there are none; an output without
            one is judged by `torch.testing.assert_close`'s tolerances.
        explained: Further results of eager whose distance from float64 counts as explained, such
            as those of inputs changed by one rounding, or of other random numbers.
        factor: How much further from float64 than eager is still accurate.
        note: What the reader of the verdict should know about the three results.

    Returns:
        The verdict, with both distances for each output.

    Example:
        >>> import torch
        >>> x = torch.linspace(0.1, 1, 1000)
        >>> eager, reference = x.exp(), x.double().exp()
        >>> compare_to_reference(eager, torch.pow(torch.e, x), reference).accurate
        True
        >>> print(compare_to_reference(eager, x.exp2(), reference))
        WRONG: 1 of 1 outputs
          result (float32[1000]): is further from float64 (rms 0.36, largest 0.72) than ...
    """
    judged, truth = dict(_leaves(compiled)), dict(_leaves(reference))
    others = [dict(_leaves(other)) for other in explained]
    expected = dict(_leaves(eager))
    largest = max(map(_size, expected.values()), default=1)
    verdicts = []
    for name, value in expected.items():
        if name not in judged:
            verdict = _wrong(name, value, "is missing from the compiled results")
        else:
            more = [other[name] for other in others if _same_shape(other.get(name), value)]
            unit = _unit(value, largest)
            verdict = _judge(name, value, judged.pop(name), truth.get(name), more, factor, unit)
        verdicts.append(verdict)
    verdicts += [_wrong(name, value, "is not among eager's") for name, value in judged.items()]
    return AccuracyVerdict(outputs=tuple(verdicts), note=note)


def _leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yields name and value of everything in a tree; wrapper tensors are taken apart."""
    for path, leaf in tree_flatten_with_path(tree)[0]:
        name = keystr(path) or "result"
        if isinstance(leaf, torch.Tensor) and is_traceable_wrapper_subclass(leaf):
            attributes, _ = leaf.__tensor_flatten__()
            for attribute in attributes:
                for _, inner in _leaves(getattr(leaf, attribute)):
                    yield f"{name}.{attribute}", inner
        else:
            yield name, leaf


def _judge(
    name: str,
    eager: Any,
    compiled: Any,
    reference: Any,
    explained: list[Any],
    factor: float,
    allowed_unit: float,
) -> OutputVerdict:
    if _describe(eager) != _describe(compiled):
        return _wrong(name, eager, f"is {_describe(compiled)} instead")
    if isinstance(eager, torch.Tensor) and eager.is_meta:
        return _right(name, eager, "has no values")
    if not isinstance(eager, torch.Tensor) and eager == compiled:
        return _right(name, eager, "is the same")
    if not isinstance(eager, torch.Tensor | _SCALARS):
        if not isinstance(eager, _COMPARABLE):
            return _right(name, eager, "cannot be compared")
        return _wrong(name, eager, f"is {compiled!r}, eager gives {eager!r}")
    if not _same_shape(reference, eager):
        return _judge_without_reference(name, eager, compiled)
    values = [_as_tensor(value) for value in (eager, compiled, reference, *explained)]
    limits, found, unit = _distances(values[0], values[1], values[2], allowed_unit)
    allowed = limits
    for other in values[3:]:
        allowed = _larger(allowed, _distances(other, values[1], values[2], allowed_unit)[0])
    accurate = (
        found.rms <= factor * allowed.rms + unit.rms
        and found.largest <= factor * allowed.largest + unit.largest
        and found.mismatches <= factor * allowed.mismatches
    )
    than = "is no further from float64" if accurate else "is further from float64"
    reason = f"{than} ({found}) than eager explains ({allowed})"
    return OutputVerdict(
        name=name,
        description=_describe(eager),
        accurate=accurate,
        reason=reason,
        eager=limits,
        compiled=found,
    )


def _judge_without_reference(name: str, eager: Any, compiled: Any) -> OutputVerdict:
    try:
        torch.testing.assert_close(
            _as_tensor(compiled), _as_tensor(eager), equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        return _wrong(name, eager, "differs from eager: " + " ".join(str(error).split()))
    return _right(name, eager, "is close to eager (there is no float64 result)")


def _distances(
    eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor, unit: float
) -> tuple[Distance, Distance, Distance]:
    """Returns eager's distance, the compiled one, and what a part `unit` of the size amounts to."""
    size = eager.numel()
    if size == 0:
        return Distance(), Distance(), Distance()
    if not (eager.is_floating_point() or eager.is_complex()):
        reference = reference.to(compiled.device, compiled.dtype)
        one, two = (int((x.to(reference.device) != reference).sum()) for x in (eager, compiled))
        return Distance(mismatches=one), Distance(mismatches=two), Distance()
    flat = [_flat(x) for x in (eager, compiled, reference)]
    sums, largest, strays = [0.0] * 3, [0.0] * 3, 0
    for start in range(0, flat[0].numel(), _CHUNK):
        chunks = [x[start : start + _CHUNK].to("cpu", torch.float64) for x in flat]
        gaps, count = _chunk_gaps(*chunks)
        strays += count
        for index, gap in enumerate(gaps):
            sums[index] += float(gap.square().sum())
            largest[index] = max(largest[index], float(gap.max()))
    rms = [math.sqrt(total / flat[0].numel()) for total in sums]
    return (
        Distance(rms=rms[0], largest=largest[0]),
        Distance(rms=rms[1], largest=largest[1], mismatches=strays),
        Distance(rms=unit * rms[2], largest=unit * largest[2]),
    )


def _chunk_gaps(
    eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor
) -> tuple[tuple[torch.Tensor, ...], int]:
    """Returns both gaps and the size of the reference, and how many elements are out of place."""
    finite = compiled.isfinite() & reference.isfinite()
    stray = ~finite & ~_agree(compiled, eager) & ~_agree(compiled, reference)
    # Where eager alone overflowed there is nothing to say against the compiled result but its
    # own distance.
    eager_gap = (eager - reference).abs().masked_fill(~(finite & eager.isfinite()), 0)
    compiled_gap = (compiled - reference).abs().masked_fill(~finite, 0)
    return (eager_gap, compiled_gap, reference.abs().masked_fill(~finite, 0)), int(stray.sum())


def _agree(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x == y) | (x.isnan() & y.isnan())


def _flat(x: torch.Tensor) -> torch.Tensor:
    x = x.detach()
    x = x.to_dense() if x.layout is not torch.strided else x
    return torch.view_as_real(x.resolve_conj()).reshape(-1) if x.is_complex() else x.reshape(-1)


def _larger(one: Distance, other: Distance) -> Distance:
    pairs = {
        field.name: max(getattr(one, field.name), getattr(other, field.name))
        for field in dataclasses.fields(Distance)
    }
    return Distance(**pairs)


def _size(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 1


def _unit(value: Any, largest: int) -> float:
    """Returns which part of an output roundings may always change.

    Args:
        value: The output.
        largest: Elements of the largest output. So many numbers may have been added up in all.
    """
    eps = _eps(value)
    additions = largest / max(_size(value), 1)
    return UNITS * eps + additions**0.5 / 2 * min(eps, torch.finfo(torch.float32).eps)


def _eps(value: Any) -> float:
    if not isinstance(value, torch.Tensor):
        return torch.finfo(torch.float32).eps  # a float that came out of `.item()`
    if not (value.is_floating_point() or value.is_complex()):
        return 0.0
    eps = torch.finfo(value.dtype).eps
    # Of float64 results none is the truth, and the error of a long sum is unknown: half of the
    # digits must agree.
    return math.sqrt(eps) if eps == torch.finfo(torch.float64).eps else eps


def _as_tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    wide = {float: torch.float64, complex: torch.complex128}.get(type(value))
    return torch.tensor(value, dtype=wide)


def _same_shape(other: Any, value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return isinstance(other, torch.Tensor) and other.shape == value.shape
    return type(other) is type(value)


def _describe(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    name = str(value.dtype).removeprefix("torch.")
    layout = "" if value.layout is torch.strided else f" {value.layout}"
    return f"{name}{list(value.shape)}{layout}"


def _right(name: str, value: Any, reason: str) -> OutputVerdict:
    return OutputVerdict(name=name, description=_describe(value), accurate=True, reason=reason)


def _wrong(name: str, value: Any, reason: str) -> OutputVerdict:
    return OutputVerdict(name=name, description=_describe(value), accurate=False, reason=reason)
