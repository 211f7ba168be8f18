"""A script as a record: what it holds, its text, and writing it down.

The parts are printed elsewhere; here they become sections, with the support code that they use.
The text depends on the record alone: two equal records give the same bytes.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

import torch

from thunder.environment import environment_report
from thunder.repro.compilers import CompileSource
from thunder.repro.header import Header, command_line
from thunder.repro.input_source import input_source, stored_tensors
from thunder.repro.inputs import RecordedInputs, TensorRecord
from thunder.repro.linking import TEMPLATES, link, support_names, used_names
from thunder.repro.module_source import ModuleSource
from thunder.repro.sizes import SymbolicSize
from thunder.repro.values import ValueSource
from thunder.repro.verification import (
    NOT_RUN,
    TIMEOUT_SECONDS,
    Expectation,
    Passes,
    Verdict,
    verify,
)
from thunder.repro.writer import write_file, write_text


class ScriptKind(enum.Enum):
    """What a script is for."""

    RUN = "run"
    """Runs one compiled module, checks it when asked to."""

    BENCHMARK = "benchmark"
    """Compares several with pytest-benchmark, forward and backward apart."""

    TIMING = "timing"
    """Hands several to `runner`, which compares them."""


_TEMPLATES = {
    ScriptKind.RUN: "script.txt",
    ScriptKind.BENCHMARK: "benchmark.txt",
    ScriptKind.TIMING: "timing.txt",
}


def _environment() -> str:
    return environment_report().headline()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReproScript:
    """Everything that a script says.

    Attributes:
        title: What it is, in one line.
        module: The graph.
        inputs: What it is called with.
        compilers: The ways to compile it: one for `RUN`, one or more for the other kinds.
        kind: What it is for.
        runner: For `TIMING`, a callable as source; it gets `make_module`, `make_inputs`, the ways
            to compile by name, whether to differentiate, and the context to run in.
        backward: Whether it differentiates by default; None asks the inputs.
        store_inputs: Whether the real values go to a file beside it.
        expected: How it should end.
        split_reasons: Why the graph was cut where it was.
        notes: Sentences for the reader.
        command: The command that made it.
        environment: Versions and devices.
        verdict: What running it showed.

    Example:
        >>> import torch
        >>> from thunder.repro import EAGER, ReproScript, module_source, record_inputs
        >>> graph_module = torch.fx.symbolic_trace(lambda x: x.sin())
        >>> script = ReproScript(
        ...     title="one sine",
        ...     module=module_source(graph_module),
        ...     inputs=record_inputs([torch.zeros(2)], graph=graph_module.graph),
        ...     compilers=(EAGER,),
        ... )
        >>> script.text().splitlines()[0]
        '# one sine'
    """

    title: str
    module: ModuleSource
    inputs: RecordedInputs
    compilers: tuple[CompileSource, ...]
    kind: ScriptKind = ScriptKind.RUN
    runner: ValueSource | None = None
    backward: bool | None = None
    store_inputs: bool = False
    expected: Expectation = field(default_factory=Passes)
    split_reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    command: str | None = field(default_factory=command_line)
    environment: str = field(default_factory=_environment)
    verdict: Verdict = NOT_RUN

    def text(self, file_name: str = "reproducer.py") -> str:
        """Returns the script.

        Args:
            file_name: The name that it will have, by which it finds the values beside it.
        """
        return _Text(self, file_name).text()

    def write(
        self,
        path: str | os.PathLike[str],
        *,
        verify: bool = False,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Path:
        """Writes the script, and the values beside it when it stores them.

        Args:
            path: The file; its folder is made when it is missing.
            verify: Whether to run it once in a fresh process; the header then states the verdict.
            timeout: Seconds that this run may take.

        Returns:
            The path.

        Raises:
            ReproducerError: It could not be written.
        """
        path = Path(path)
        text = _Text(self, path.name)
        source = text.text()
        if text.stored:
            tensors = dict(sorted(text.stored.items()))
            write_file(path.with_name(text.stored_name), lambda file: torch.save(tensors, file))
        write_text(path, source)
        if verify:
            _run_once(path, self.expected, timeout)
        return path

    def with_verdict(self, verdict: Verdict) -> ReproScript:
        """Returns the same script with another verdict."""
        return dataclasses.replace(self, verdict=verdict)


def _run_once(path: Path, expected: Expectation, timeout: float) -> None:
    verify(path, expected, timeout=timeout)


class _Text:
    """Puts the sections of one script together."""

    def __init__(self, script: ReproScript, file_name: str) -> None:
        self.script = script
        self.stored_name = f"{Path(file_name).stem}_inputs.pt"
        real = stored_tensors(script.inputs) if script.store_inputs else None
        self.stored: Mapping[str, torch.Tensor] = {
            **(real.tensors if real else {}),
            **script.module.stored,
        }
        self.inputs = input_source(
            script.inputs, stored=self.stored, taken={*support_names(), "torch", "stored"}
        )
        self.notes = (*script.notes, *script.module.notes, *self.inputs.notes)
        self.notes += real.notes if real else ()
        wanted = script.backward
        self.backward = script.inputs.requires_grad if wanted is None else wanted
        self.dynamic = _dynamic_dimensions(script.inputs)

    def text(self) -> str:
        is_benchmark = self.script.kind is ScriptKind.BENCHMARK
        template = _TEMPLATES[self.script.kind]
        compilers = {f"compile_with_{c.identifier}": c for c in self.script.compilers}
        around = self._around()
        sections = {
            "header": "\n".join(self._header().lines()),
            "settings": _section(*self._settings()),
            "definitions": _section(*self._definitions(), apart="\n\n\n"),
            "module": _titled("The graph.", self.script.module.text),
            "inputs": _section(self._make_module(), self._make_inputs(), around, apart="\n\n\n"),
            "compilers": _section(*map(_compile_function, compilers, compilers.values())),
            "compiler": next(iter(compilers)),
            "table": ", ".join(f"{c.name!r}: {name}" for name, c in compilers.items()),
            "around": "around" if around else "contextlib.nullcontext",
            "backward": repr(self.backward),
            "precision": str(self.script.module.precision),
            "draws": "Draws" if self.script.module.is_random else "None",
            "options": ", ".join(self._options(bool(around))),
            "backward_test": "",
            "runner": self.script.runner.expression if self.script.runner else "None",
        }
        if is_benchmark and self.backward:
            sections["backward_test"] = _fill("benchmark_backward.txt", sections)
        body = _fill(template, {**sections, "header": "", "imports": "", "support": ""})
        linked = link(used_names(body))
        sections["imports"] = "\n".join(_sorted(self._imports(linked.imports)))
        sections["support"] = _titled("Support code.", linked.text)
        return _fill(template, sections)

    def _header(self) -> Header:
        script = self.script
        kinds = "forward+backward" if self.backward else "forward"
        run = [("python FILE", f"runs it once: {kinds}")]
        if script.kind is ScriptKind.BENCHMARK:
            usage = [("pytest FILE", "checks the results and times them (needs pytest-benchmark)")]
        elif script.kind is ScriptKind.TIMING:
            usage = [("python FILE", "checks the results and compares the times (needs thunder)")]
        else:
            usage = [
                *run,
                ("python FILE --check_consistency", "compares with eager, judged by float64"),
                ("python FILE --compute_type forward", "or forward+backward"),
                ("python FILE --minimize", "shrinks it to the operations that matter"),
            ]
        sources = (*self.inputs.values, *script.compilers)
        gaps = [what for source in sources for what in source.missing]
        return Header(
            title=script.title,
            command=script.command,
            environment=script.environment,
            verdict=str(script.verdict),
            expected=str(script.expected),
            compilers=[c.name for c in script.compilers],
            split_reasons=script.split_reasons,
            missing=[*script.module.missing, *gaps],
            notes=list(dict.fromkeys((*self.notes, *(n for s in sources for n in s.notes)))),
            usage=usage,
        )

    def _settings(self) -> list[str]:
        settings = list(self.script.inputs.surroundings.settings)
        if self.dynamic:
            line = "torch._dynamo.config.assume_static_by_default = False"
            settings += [] if line in settings else [line]
        if self.stored:
            settings.append(f"STORED = {self.stored_name!r}")
        symbols = [f"{name} = {value}" for name, value in self.script.inputs.symbols.items()]
        if symbols:
            symbols.insert(0, "# Sizes that were dynamic, and what they were.")
        return [*settings, *symbols]

    def _definitions(self) -> Iterable[str]:
        values = self.inputs.values
        parts = [*self.script.module.definitions, *(d for v in values for d in v.definitions)]
        parts += [d for c in self.script.compilers for d in c.definitions]
        return dict.fromkeys(parts)

    def _make_module(self) -> str:
        return (
            "def make_module():\n"
            "    torch.manual_seed(0)\n"
            f"    return {self.script.module.construction}"
        )

    def _make_inputs(self) -> str:
        statements = list(self.inputs.statements)
        if any("stored[" in statement for statement in statements):
            statements.insert(0, "stored = load(STORED)")
        pairs = ", ".join(f"{name!r}: {made}" for name, made in self.inputs.expressions)
        result = f"{{{pairs}}}"
        if self.dynamic:
            result = f"mark_static({result}, {self.dynamic!r})"
        lines = ["torch.manual_seed(0)", *statements, f"return {result}"]
        return "def make_inputs():\n" + "\n".join(f"    {line}" for line in lines)

    def _around(self) -> str:
        contexts = self.script.inputs.surroundings.contexts
        statements = []
        if self.script.module.is_random and "random state cpu" in self.stored:
            statements.append('torch.set_rng_state(load(STORED)["random state cpu"])')
        if not contexts and not statements:
            return ""
        statements.append("stack = contextlib.ExitStack()")
        statements += [f"stack.enter_context({context})" for context in contexts]
        body = "\n".join(f"    {statement}" for statement in (*statements, "return stack"))
        return f"def around():\n{body}"

    def _options(self, has_around: bool) -> list[str]:
        options = [f"backward={self.backward}"]
        options += ["around=around"] if has_around else []
        if self.script.module.precision is not torch.float32:
            options.append(f"precision={self.script.module.precision}")
        options += ["draws=Draws"] if self.script.module.is_random else []
        return options

    def _imports(self, linked: tuple[str, ...]) -> set[str]:
        script, values = self.script, self.inputs.values
        imports = {"import torch", *script.module.imports, *linked}
        imports |= {line for value in values for line in value.imports}
        imports |= {line for c in script.compilers for line in c.imports}
        imports |= set(script.inputs.surroundings.imports)
        if self.dynamic:
            imports.add("import torch._dynamo.config")
        if script.kind is ScriptKind.BENCHMARK:
            imports |= {"import contextlib", "import os", "import pytest", "import sys"}
        if script.kind is ScriptKind.TIMING or script.inputs.surroundings.contexts:
            imports.add("import contextlib")
        imports |= set(script.runner.imports) if script.runner else set()
        return imports


def _fill(template: str, sections: Mapping[str, str]) -> str:
    text = TEMPLATES.joinpath(template).read_text(encoding="utf-8")
    return Template(text).substitute(sections)


def _section(*parts: str, apart: str = "\n") -> str:
    """Returns parts as one section, followed by the distance to the next; nothing for nothing."""
    written = [part for part in parts if part]
    return f"{apart.join(written)}\n\n\n" if written else ""


def _titled(title: str, text: str) -> str:
    return _section(f"# {title}", text) if text else ""


def _compile_function(name: str, compiler: CompileSource) -> str:
    expression = textwrap.indent(compiler.expression, "    ").lstrip()
    return f"def {name}(module):\n    return {expression}"


def _dynamic_dimensions(recorded: RecordedInputs) -> dict[str, tuple[int, ...]]:
    """Returns for each input with dynamic sizes which of them are; empty when none are."""
    if not recorded.symbols:
        return {}
    return {
        record.name: tuple(i for i, n in enumerate(record.shape) if isinstance(n, SymbolicSize))
        for record in recorded.inputs
        if isinstance(record, TensorRecord)
        and any(isinstance(size, SymbolicSize) for size in record.shape)
    } or {"": ()}


def _sorted(imports: Iterable[str]) -> list[str]:
    """Sorts imports into those of Python and the others, `from` after the plain ones."""
    froms: dict[str, list[str]] = {}
    plain = []
    for line in sorted(set(imports)):
        found = re.fullmatch(r"from (\S+) import (.+)", line)
        if found:
            froms.setdefault(found[1], []).append(found[2])
        else:
            plain.append(line)
    lines = [*plain, *(f"from {m} import {', '.join(names)}" for m, names in froms.items())]
    pythons = [line for line in lines if re.split(r"[ .]", line)[1] in sys.stdlib_module_names]
    others = [line for line in lines if line not in pythons]
    return [*pythons, *([""] if pythons and others else []), *others]
