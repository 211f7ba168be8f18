"""Programs and ways to compile that tests share, importable as a user's module would be."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from thunder.benchmark import AbstractCompileSpecification


def small(x, w):
    return torch.softmax(x @ w, -1) + 1


def writes(x, total):
    total.add_(x.sum())
    return x * 2


def draws(x):
    return torch.nn.functional.dropout(x, 0.5) + 1


@dataclass(frozen=True, kw_only=True)
class Scripted(AbstractCompileSpecification):
    """A user's specification."""

    level: str = "a 'quoted' level"
    name: str = "scripted"

    def compile(self, fn, *, inputs):
        del inputs
        return lambda *args: fn(*args)


@dataclass(frozen=True, kw_only=True)
class Replaced(AbstractCompileSpecification):
    """Runs a torch function in place of another: the wrong operator."""

    old: str
    new: str
    name: str = "replaced"

    def compile(self, fn, *, inputs):
        del inputs
        traced = fx.symbolic_trace(fn)
        for node in traced.graph.nodes:
            if node.name.startswith(self.old):
                node.target = getattr(torch, self.new)
        traced.recompile()
        return traced


@dataclass(frozen=True, kw_only=True)
class Fails(AbstractCompileSpecification):
    """Raises when it compiles, or in a later call."""

    error: type[BaseException] = ValueError
    after_calls: int | None = None
    name: str = "fails"

    def compile(self, fn, *, inputs):
        del inputs
        if self.after_calls is None:
            raise self.error("cannot be compiled\nfor many reasons")
        left = [self.after_calls]

        def call(*args):
            left[0] -= 1
            if left[0] < 0:
                raise self.error("stopped working")
            return fn(*args)

        return call


@dataclass(frozen=True, kw_only=True)
class Careless(AbstractCompileSpecification):
    """Writes to its first input, which the program does not."""

    name: str = "careless"

    def compile(self, fn, *, inputs):
        del inputs

        def call(x, *others):
            result = fn(x, *others)
            x.detach().zero_()
            return result

        return call
