"""What a benchmark script runs: its module and inputs, compiled in several ways and compared."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from thunder.benchmark import (
    AbstractCompileSpecification,
    AbstractTimer,
    Compute,
    Settings,
    benchmark,
)
from thunder.errors import BenchmarkError

Compile = Callable[[Any], Callable[..., Any]]


@final
@dataclass(frozen=True, kw_only=True)
class TimedScript:
    """The main function of a benchmark script, and its settings.

    Attributes:
        timer: How to time.
        settings: Confidence, threshold and time.
    """

    timer: AbstractTimer
    settings: Settings

    def __call__(
        self,
        make_module: Callable[[], Any],
        make_inputs: Callable[[], Mapping[str, Any]],
        compilers: Mapping[str, Compile],
        backward: bool,
        around: Callable[[], contextlib.AbstractContextManager[Any]],
    ) -> None:
        """Prints the result, and into a pipe a line for programs; exits with 1 for a bad one.

        Args:
            make_module: Makes the module.
            make_inputs: Makes its inputs by name.
            compilers: Name to function that compiles a module, the baseline first.
            backward: Whether to differentiate.
            around: Makes the context to run in.

        Raises:
            SystemExit: A way failed or gave wrong results.
        """
        with around():
            result = benchmark(
                make_module(),
                lambda: list(make_inputs().values()),
                specifications=[
                    ScriptCompileSpecification(name=name, compile_module=compile_module)
                    for name, compile_module in compilers.items()
                ],
                compute=Compute.FORWARD_BACKWARD if backward else Compute.FORWARD,
                timer=self.timer,
                settings=self.settings,
            )
        sys.stdout.write(f"{result}\n")
        if not sys.stdout.isatty():  # far too long for people
            sys.stdout.write(f"{result.result_line()}\n")
        bad = [one.name for one in result.outcomes if one.measurement is None]
        if bad:
            raise SystemExit(f"not timed: {', '.join(bad)}")


@final
@dataclass(frozen=True, kw_only=True)
class ScriptCompileSpecification(AbstractCompileSpecification):
    """A function of a script that compiles a module.

    Attributes:
        name: What the way is called.
        compile_module: The function.
    """

    name: str
    compile_module: Compile

    def compile(self, fn: Callable[..., Any], *, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Calls the function.

        Raises:
            BenchmarkError: The function returned nothing that can be called.
        """
        del inputs
        compiled = self.compile_module(fn)
        if not callable(compiled):
            raise BenchmarkError(f"{self.name}: the script's function returned {compiled!r}")
        return compiled
