"""Finds the `ThunderCompiler` behind a compiled callable, however it was compiled.

Where torch keeps the backend of a compiled callable is its internal matter; this module is the
only one that knows.
"""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any

from torch import nn
from torch._dynamo.eval_frame import OptimizedModule, _TorchDynamoContext, innermost_backend

from thunder.dynamo.backend import compiler_of_call, shared_compiler, thunder_backend
from thunder.dynamo.compiler import ThunderCompiler
from thunder.errors import NotCompiledError


def get_compiler(compiled: Any) -> ThunderCompiler:
    """Returns the compiler behind a compiled callable.

    Args:
        compiled: What `thunderfx` or `torch.compile` returned, a module after
            `module.compile(...)`, a method, partial or `functools.wraps` wrapper of one of these,
            or a `ThunderCompiler`.

    Returns:
        The compiler.

    Raises:
        NotCompiledError: It is not compiled, or by another backend.

    Example:
        >>> import torch
        >>> from thunder.dynamo.compiler import ThunderCompiler
        >>> compiler = ThunderCompiler(executors=["aten"])
        >>> get_compiler(torch.compile(torch.sin, backend=compiler)) is compiler
        True
    """
    compiler = find_compiler(compiled)
    if compiler is None:
        raise NotCompiledError(f"{_describe(compiled)}; {_advice(compiled)}")
    return compiler


def find_compiler(compiled: Any) -> ThunderCompiler | None:
    """Returns the compiler behind a compiled callable, or None; see `get_compiler`."""
    backend = _find_backend(compiled)
    return backend if isinstance(backend, ThunderCompiler) else None


def original_module(module: nn.Module) -> nn.Module:
    """Returns the module that `torch.compile(module)` wrapped, or `module` when it is none."""
    return module._orig_mod if isinstance(module, OptimizedModule) else module


def _find_backend(compiled: Any) -> Any:
    """The backend of the outermost layer that was compiled; None when none was."""
    for layer in _layers(compiled):
        backend = _backend(layer)
        if backend is not None:
            return backend
    return None


def _layers(compiled: Any) -> list[Any]:
    """The callable, and those that it is a method, a partial or a wrapper of, outermost first."""
    layers: list[Any] = []
    while compiled is not None and not any(compiled is layer for layer in layers):
        layers.append(compiled)
        compiled = _inner(compiled)
    return layers


def _inner(outer: Any) -> Any:
    if isinstance(outer, nn.Module):
        # Set by nn.Module.compile; a call of the module goes there before anything else.
        return outer._compiled_call_impl
    if isinstance(outer, functools.partial):
        return outer.func
    if isinstance(outer, types.MethodType):
        return outer.__func__
    return getattr(outer, "__wrapped__", None)


def _backend(layer: Any) -> Any:
    """The backend of this very layer; None when it was not compiled."""
    if isinstance(layer, ThunderCompiler):
        return layer
    if isinstance(layer, nn.Module) and layer._compiled_call_impl is not None:
        return None
    context = _context(layer)
    if context is None:
        own = getattr(layer, "_backend", None)
        return own if isinstance(own, ThunderCompiler) else None
    if not callable(context.callback):
        return None
    backend = innermost_backend(context.callback)
    if backend is thunder_backend:
        return shared_compiler()
    return compiler_of_call(backend) or backend


def _context(layer: Any) -> _TorchDynamoContext | None:
    """What `torch.compile` made for this layer: an attribute or a closure variable."""
    if isinstance(layer, OptimizedModule):
        return layer.dynamo_ctx
    if not isinstance(layer, types.FunctionType):
        return None
    for cell in layer.__closure__ or ():
        # A variable of an enclosing function that was not assigned yet has an empty cell.
        with contextlib.suppress(ValueError):
            if isinstance(cell.cell_contents, _TorchDynamoContext):
                return cell.cell_contents
    return None


def _describe(compiled: Any) -> str:
    name = getattr(compiled, "__qualname__", None) or type(compiled).__qualname__
    backend = _find_backend(compiled)
    if backend is None:
        return f"{name} is not compiled"
    other = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", "another one")
    return f"{name} was compiled by another backend ({other})"


def _advice(compiled: Any) -> str:
    if isinstance(compiled, nn.Module):
        for path, child in compiled.named_modules():
            if path and find_compiler(child) is not None:
                return f"its submodule {path!r} is compiled by thunder: pass that one"
    return (
        "pass what thunderfx(f), thunder.jit(f) or torch.compile(f, backend=ThunderCompiler()) "
        "returned, or a module after module.compile(backend=ThunderCompiler())"
    )
