"""`--against`: ways to compile by name."""

from __future__ import annotations

import argparse

from thunder.benchmark import (
    AbstractCompileSpecification,
    ThunderCompileSpecification,
    TorchCompileSpecification,
    TorchEagerSpecification,
    TorchInductorSpecification,
)
from thunder.errors import nearest

HELP = (
    "comma-separated, the baseline first: eager, torch.compile, torch.compile:BACKEND, inductor "
    "(without Dynamo), thunder, thunder:EXECUTOR+EXECUTOR; default: %(default)s"
)

_PLAIN = {
    "eager": TorchEagerSpecification,
    "torch.compile": TorchCompileSpecification,
    "inductor": TorchInductorSpecification,
    "thunder": ThunderCompileSpecification,
}


def parse_against(text: str) -> list[AbstractCompileSpecification]:
    """Reads the argument.

    Args:
        text: As in `torch.compile,eager`.

    Raises:
        argparse.ArgumentTypeError: A name is unknown.

    Example:
        >>> [one.name for one in parse_against("eager,torch.compile:aot_eager")]
        ['eager', 'torch.compile (backend=aot_eager)']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"name at least one of {', '.join(_PLAIN)}")
    return [_specification(name) for name in names]


def _specification(name: str) -> AbstractCompileSpecification:
    stem, colon, detail = name.partition(":")
    if not colon and stem in _PLAIN:
        return _PLAIN[stem]()
    if stem == "torch.compile" and detail:
        return TorchCompileSpecification(backend=detail)
    if stem == "thunder" and detail:
        specification = ThunderCompileSpecification(executors=detail.split("+"))
        specification.name = name
        return specification
    close = nearest(stem, _PLAIN)
    hint = f"; did you mean {close!r}?" if close else ""
    raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(_PLAIN)}{hint}")
