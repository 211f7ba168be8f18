"""What is to be shrunk, whatever form it was given in: a script, a region, or a graph."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import fx
from torch._dynamo.exc import TorchDynamoException

from thunder.debug.variables import REPRODUCERS
from thunder.diagnose.examination import Compile
from thunder.dynamo.jit import jit
from thunder.dynamo.reproducers import region_script, user_options
from thunder.errors import ReproducerError
from thunder.pipeline.judged_run import copy_values
from thunder.pipeline.region import CompiledRegion
from thunder.repro import CompileSource, jit_source
from thunder.trace.copying import copy_graph_module

Around = Callable[[], AbstractContextManager[Any]]
Result = TypeVar("Result")

_COMPILE = "compile_with_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A graph with real inputs, and how it is compiled.

    Attributes:
        name: For file names.
        graph_module: The graph; it has neither submodules that it calls nor parameters.
        inputs: One real value for each placeholder.
        compile: Compiles a graph module.
        source: The same as source.
        around: Makes the context that it is compiled and called in.
        folder: Where its script lies; None when it has none.
    """

    name: str
    graph_module: fx.GraphModule
    inputs: tuple[Any, ...]
    compile: Compile
    source: CompileSource
    around: Around = contextlib.nullcontext
    folder: Path | None = None


def resolve_target(
    target: Any,
    inputs: Sequence[Any] | None,
    compile_options: Mapping[str, Any] | None,
    stack: contextlib.ExitStack,
) -> Target:
    """Makes a `Target` out of what the user gave.

    Args:
        target: Path of a script, a `CompiledRegion`, or a graph module.
        inputs: The inputs; needed for a graph module.
        compile_options: For a graph module: keywords of `thunder.jit`.
        stack: Takes what must stay for as long as the target is used.

    Raises:
        ReproducerError: It is none of these, or something is missing.
    """
    if isinstance(target, str | os.PathLike):
        return _of_script(Path(target), inputs)
    if isinstance(target, CompiledRegion):
        return _of_region(target, inputs, stack)
    if isinstance(target, fx.GraphModule):
        return _of_graph_module(target, inputs, compile_options or {})
    raise ReproducerError(
        f"{type(target).__name__} cannot be minimized: give the path of a reproducer script, a "
        "region out of SubgraphInfo.thunder_compiled_fns, or a torch.fx.GraphModule with inputs="
    )


def _of_script(path: Path, inputs: Sequence[Any] | None) -> Target:
    script = _load(path)
    compilers = [name for name in vars(script) if name.startswith(_COMPILE)]
    if len(compilers) != 1 or not {"make_module", "make_inputs"} <= set(vars(script)):
        raise ReproducerError(
            f"{path.name} is no reproducer of one compiler: it must define make_module, "
            f"make_inputs and one function {_COMPILE}..."
        )
    around = getattr(script, "around", contextlib.nullcontext)
    values = list(script.make_inputs().values()) if inputs is None else list(inputs)
    graph_module, captured = _flatten(script.make_module(), values, around)
    source = _compiler_source(path.read_text(encoding="utf-8"), compilers[0])
    code = compile(source.expression, path.name, "eval")
    return Target(
        name=path.stem,
        graph_module=graph_module,
        inputs=captured,
        compile=lambda piece: eval(code, {**vars(script), "module": piece}),
        source=source,
        around=around,
        folder=path.parent,
    )


def _of_region(
    region: CompiledRegion, inputs: Sequence[Any] | None, stack: contextlib.ExitStack
) -> Target:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    recorded = region_script(region, title=region.name, serialize_inputs=True)
    script = _load(recorded.write(folder / "region.py"))
    values = list(script.make_inputs().values()) if inputs is None else list(inputs)
    around = getattr(script, "around", contextlib.nullcontext)
    graph_module, captured = _flatten(region.graph_module, values, around)
    options = {**user_options(region.options), "on_failure": "raise"}
    return Target(
        name=region.name,
        graph_module=graph_module,
        inputs=captured,
        compile=lambda piece: jit(piece, **options),
        source=jit_source(options),
        around=around,
    )


def _of_graph_module(
    graph_module: fx.GraphModule, inputs: Sequence[Any] | None, options: Mapping[str, Any]
) -> Target:
    if inputs is None:
        raise ReproducerError("a graph module needs inputs=, one value for each placeholder")
    flat, captured = _flatten(graph_module, list(inputs), contextlib.nullcontext)
    return Target(
        name="graph",
        graph_module=flat,
        inputs=captured,
        compile=lambda piece: jit(piece, **options),
        source=jit_source(options),
    )


def _flatten(
    module: torch.nn.Module, inputs: Sequence[Any], around: Around
) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    """Returns a graph that calls no modules and whose parameters are inputs."""
    if isinstance(module, fx.GraphModule) and _is_flat(module):
        return copy_graph_module(module), tuple(inputs)
    captured: list[tuple[fx.GraphModule, tuple[Any, ...]]] = []

    def backend(graph_module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        del examples
        kept = copy_graph_module(graph_module)

        def run(*values: Any) -> Any:
            captured.append((kept, tuple(copy_values(list(values)))))
            return graph_module(*values)

        return run

    torch._dynamo.reset()
    compiled = torch.compile(module, backend=backend, fullgraph=True, dynamic=False)
    try:
        with around():
            compiled(*copy_values(inputs))
    except TorchDynamoException as error:
        head = str(error).strip().partition("\n")[0]
        raise ReproducerError(
            f"Dynamo cannot capture it as one graph ({type(error).__name__}: {head}), so there is "
            "no graph to minimize; take lines out of the function by hand"
        ) from error
    torch._dynamo.reset()
    if len(captured) != 1:
        raise ReproducerError("there is no operator in it, so there is nothing to minimize")
    return captured[0]


def _is_flat(graph_module: fx.GraphModule) -> bool:
    calls_modules = bool(graph_module.graph.find_nodes(op="call_module"))
    return not calls_modules and not list(graph_module.parameters())


def _load(path: Path) -> types.ModuleType:
    """Imports a script under a name of its own; what it sets in torch stays set."""
    spec = importlib.util.spec_from_file_location("thunder_minimized_script", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ReproducerError(f"{path} is no Python script that can be read")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with REPRODUCERS.restored():  # scripts switch reproducers off, for a process of their own
        spec.loader.exec_module(module)
    return module


def _compiler_source(text: str, function: str) -> CompileSource:
    """Takes a compile function out of a script, with the definitions and imports that it uses."""
    statements = ast.parse(text).body
    defined = {name: node for node in statements for name in _defined_names(node)}
    compiler = defined[function]
    assert isinstance(compiler, ast.FunctionDef)
    returned = compiler.body[-1]
    assert isinstance(returned, ast.Return) and returned.value is not None
    expression = _raising(returned.value)
    needed: set[ast.stmt] = set()
    waiting = _used_names(returned)
    while waiting:
        node = defined.get(waiting.pop())
        if node is not None and node not in needed:
            needed.add(node)
            waiting |= _used_names(node)
    imports = (ast.Import, ast.ImportFrom)
    return CompileSource(
        name=function.removeprefix(_COMPILE),
        expression=ast.unparse(expression),
        imports=tuple(ast.unparse(node) for node in statements if isinstance(node, imports)),
        definitions=tuple(_segment(text, node) for node in statements if node in needed),
    )


def _raising(expression: ast.expr) -> ast.expr:
    """The same call of `thunderfx`, which raises instead of going on in a plainer way."""
    match expression:
        case ast.Call(func=ast.Name(id="thunderfx") as function, args=args, keywords=keywords):
            kept = [keyword for keyword in keywords if keyword.arg != "on_failure"]
            wanted = ast.keyword(arg="on_failure", value=ast.Constant("raise"))
            return ast.Call(func=function, args=args, keywords=[*kept, wanted])
    return expression


def _segment(text: str, node: ast.stmt) -> str:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _defined_names(node: ast.stmt) -> Iterable[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    return []


def _used_names(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
