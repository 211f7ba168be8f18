"""Ways to compile a callable, as values that also print themselves as source.

`source` gives the specification itself; `compile_source` gives what a script needs to compile
without it, so that a script about torch does not import thunder.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, final

import torch
from torch import fx

from thunder.benchmark.inductor import IMPORTS, inductor_without_dynamo, source_for_scripts
from thunder.dynamo.isolation import with_own_code
from thunder.dynamo.jit import jit
from thunder.dynamo.options import divide_options
from thunder.dynamo.thunderfx import thunderfx
from thunder.errors import BenchmarkError, OptionError, nearest
from thunder.pipeline.options import inductor_settings
from thunder.repro.compilers import (
    EAGER,
    CompileSource,
    call_source,
    jit_source,
    thunderfx_source,
    torch_compile_source,
)
from thunder.repro.values import ValueSource, value_source

_SHOWN_IN_NAMES = bool | int | str


class AbstractCompileSpecification(abc.ABC):
    """A way to compile a callable.

    A specification of your own works in scripts when the script can import its class from a
    module, and when it is a dataclass or has `constructor_arguments()`, which says how to make an
    equal one.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Scripted(AbstractCompileSpecification):
        ...     name: str = "torch.jit"
        ...     def compile(self, fn, *, inputs):
        ...         return torch.jit.trace(fn, tuple(inputs))
        >>> Scripted().name
        'torch.jit'
    """

    name: str
    """What it is called in reports; two contestants of the same name get numbers."""

    @abc.abstractmethod
    def compile(self, fn: Callable[..., Any], *, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles a callable.

        Args:
            fn: A function, a module, or an fx `GraphModule`. It must not be changed.
            inputs: What it will be called with. They must not be written to.

        Returns:
            A callable that does the same. It may compile as late as in its first call.
        """

    def when_called(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a callable that compiles `fn` in its first call, with that call's inputs.

        Args:
            fn: The callable to compile.
        """
        return _CompiledWhenCalled(self, fn)

    def source(self) -> ValueSource:
        """Returns the specification as source."""
        return value_source(self)

    def compile_source(self) -> CompileSource:
        """Returns source of a callable that does what `module` does, compiled this way."""
        source = self.source()
        written = source.expression != "None"
        return CompileSource(
            name=self.name,
            expression=f"{source.expression}.when_called(module)" if written else "module",
            imports=source.imports,
            definitions=source.definitions,
            missing=source.missing,
            notes=source.notes,
        )


@final
class ThunderCompileSpecification(AbstractCompileSpecification):
    """Compiles with `thunderfx`, or with `thunder.jit` where Dynamo is not wanted.

    Example:
        >>> specification = ThunderCompileSpecification(executors=["aten"], dynamic=False)
        >>> specification.compile_source().expression
        "thunderfx(module, executors=['aten'], dynamic=False)"
        >>> specification.name
        'thunder (dynamic=False)'
    """

    def __init__(self, *, skip_dynamo: bool = False, **options: Any) -> None:
        """Keeps the options.

        Args:
            skip_dynamo: Compile fx `GraphModule`s as they are, with `thunder.jit`: calls then
                carry no guards, as with `TorchInductorSpecification`.
            options: Keywords of `thunderfx`.

        Raises:
            OptionError: An option is unknown or belongs elsewhere.
        """
        divide_options(options)
        self.skip_dynamo = skip_dynamo
        self.options = MappingProxyType(dict(options))
        self.name = _name("thunder.jit" if skip_dynamo else "thunder", options)

    def compile(self, fn: Callable[..., Any], *, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Returns `thunderfx(fn, ...)`, or `thunder.jit(fn, ...)`, which compile when called.

        Raises:
            BenchmarkError: Dynamo is to be skipped and `fn` is no `GraphModule`.
        """
        del inputs
        if not self.skip_dynamo:
            return thunderfx(fn, **self.options)
        if not isinstance(fn, fx.GraphModule):
            raise BenchmarkError(
                "skip_dynamo=True compiles fx GraphModules, such as graph.original_graph_module of "
                f"a SubgraphInfo; {type(fn).__name__} must be captured by Dynamo first"
            )
        return jit(fn, **self.options)

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns the keywords that make an equal one."""
        skip = {"skip_dynamo": True} if self.skip_dynamo else {}
        return {**skip, **self.options}

    def compile_source(self) -> CompileSource:
        """Returns `thunderfx(module, ...)` or `thunder.jit(module, ...)`."""
        written = jit_source if self.skip_dynamo else thunderfx_source
        return written(self.options)


@final
class TorchCompileSpecification(AbstractCompileSpecification):
    """Compiles with `torch.compile`.

    Example:
        >>> TorchCompileSpecification(mode="max-autotune").compile_source().expression
        "torch.compile(module, mode='max-autotune')"
    """

    def __init__(self, **options: Any) -> None:
        """Keeps the options.

        Args:
            options: Keywords of `torch.compile`.

        Raises:
            OptionError: `torch.compile` has no such keyword.
        """
        known = _torch_compile_keywords()
        for option in options:
            if option not in known:
                close = nearest(option, known)
                hint = f"did you mean {close!r}?" if close else f"it has {', '.join(known)}"
                raise OptionError(f"torch.compile has no keyword {option!r}; {hint}")
        self.options = MappingProxyType(dict(options))
        self.name = _name("torch.compile", options)

    def compile(self, fn: Callable[..., Any], *, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Returns `torch.compile(fn, ...)`, which compiles when called.

        What Dynamo compiled for other contestants does not count against the recompile limit.
        """
        del inputs
        if "isolate_recompiles" in _torch_compile_keywords():
            return torch.compile(fn, **{"isolate_recompiles": True, **self.options})
        return torch.compile(with_own_code(fn), **self.options)

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns the keywords that make an equal one."""
        return dict(self.options)

    def compile_source(self) -> CompileSource:
        """Returns `torch.compile(module, ...)`."""
        return torch_compile_source(self.options)


@final
class TorchInductorSpecification(AbstractCompileSpecification):
    """Compiles one graph with Inductor; calls do not go through Dynamo.

    An fx `GraphModule` is taken as it is; anything else is captured as one graph first.

    Example:
        >>> TorchInductorSpecification(mode="max-autotune").source().expression
        "thunder.benchmark.specifications.TorchInductorSpecification(mode='max-autotune')"
    """

    def __init__(
        self, *, mode: str | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        """Keeps the settings.

        Args:
            mode: As in `torch.compile`.
            options: Settings of Inductor.

        Raises:
            OptionError: The mode or a setting is unknown.
        """
        self.settings = MappingProxyType(inductor_settings(mode, options))
        self._mode = mode
        self._options = dict(options or {})
        self.name = _name("inductor", {"mode": mode} if mode else {})

    def compile(self, fn: Callable[..., Any], *, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Returns a callable that compiles the graph in its first call."""
        del inputs
        return inductor_without_dynamo(fn, self.settings)

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns the keywords that make an equal one."""
        mode = {"mode": self._mode} if self._mode else {}
        return {**mode, **({"options": self._options} if self._options else {})}

    def compile_source(self) -> CompileSource:
        """Returns a call of Inductor, with the function behind it, which needs torch alone."""
        options = {"options": dict(self.settings)}
        call = call_source(self.name, "inductor_without_dynamo", options, imports=IMPORTS)
        return replace(call, definitions=(*call.definitions, source_for_scripts()))


@final
class TorchEagerSpecification(AbstractCompileSpecification):
    """Does not compile: the baseline of baselines."""

    name = "eager"

    def compile(self, fn: Callable[..., Any], *, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Returns `fn`."""
        del inputs
        return fn

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns nothing: there is only one."""
        return {}

    def compile_source(self) -> CompileSource:
        """Returns `module`."""
        return EAGER


@final
class _CompiledWhenCalled:
    """Compiles in the first call."""

    def __init__(self, specification: AbstractCompileSpecification, fn: Callable[..., Any]) -> None:
        self._specification = specification
        self._fn = fn
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self._compiled is None:
            self._compiled = self._specification.compile(self._fn, inputs=inputs)
        return self._compiled(*inputs)


def unique_contestants(
    specifications: Sequence[AbstractCompileSpecification],
) -> dict[str, AbstractCompileSpecification]:
    """Names specifications; equal names get numbers.

    Example:
        >>> list(unique_contestants([TorchEagerSpecification(), TorchEagerSpecification()]))
        ['eager', 'eager (2)']
    """
    named: dict[str, AbstractCompileSpecification] = {}
    for specification in specifications:
        name, count = specification.name, 1
        while name in named:
            count += 1
            name = f"{specification.name} ({count})"
        named[name] = specification
    return named


def _name(stem: str, options: Mapping[str, Any]) -> str:
    """Adds the options that can be read in passing."""
    shown = [
        f"{key}={value}" for key, value in options.items() if isinstance(value, _SHOWN_IN_NAMES)
    ]
    return f"{stem} ({', '.join(shown)})" if shown else stem


def _torch_compile_keywords() -> list[str]:
    _, *parameters = inspect.signature(torch.compile).parameters.values()
    return [parameter.name for parameter in parameters]
