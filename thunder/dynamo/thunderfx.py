"""`thunderfx`, the one call that compiles a function, method, callable or module.

It is `torch.compile(fn, backend=ThunderCompiler(...))`, made so that the compiler stays at hand
and a module stays a module. Which keyword goes where is decided in `options`, the stand-in for
modules is in `compiled_module`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

import torch
from torch import nn

from thunder.dynamo.compiled_module import compile_module
from thunder.dynamo.isolation import torch_compile
from thunder.dynamo.lookup import original_module
from thunder.dynamo.options import DividedOptions, divide_options, option_parameters
from thunder.errors import NotCallableError

CallableT = TypeVar("CallableT", bound=Callable[..., Any])


class _Omitted:
    """The default of `fn`, which None would be no good for: None given by mistake is an error."""

    def __repr__(self) -> str:
        return "<omitted>"


_OMITTED: Any = _Omitted()


@overload
def thunderfx(fn: CallableT, /, **options: Any) -> CallableT: ...


@overload
def thunderfx(**options: Any) -> Callable[[CallableT], CallableT]: ...


def thunderfx(fn: Any = _OMITTED, /, **options: Any) -> Any:
    """Compiles a callable with `torch.compile` and a `ThunderCompiler` of its own.

    Example:
        >>> import torch
        >>> from thunder.dynamo.thunderfx import thunderfx
        >>> def foo(x):
        ...     return x.sin() + 1
        >>> tfoo = thunderfx(foo, fullgraph=True, executors=["aten"])
        >>> tfoo(torch.zeros(2))
        tensor([1., 1.])
        >>> len(tfoo._backend.subgraph_infos)
        1

        A module stays a module, with the weights and the names of the original:

        >>> model = torch.nn.Linear(2, 1)
        >>> tmodel = thunderfx(model, executors=["aten"])
        >>> isinstance(tmodel, torch.nn.Linear), list(tmodel.state_dict())
        (True, ['weight', 'bias'])

        As a decorator, with or without options:

        >>> @thunderfx(dynamic=True, executors=["aten"])
        ... def bar(x):
        ...     return x * 2
        >>> bar(torch.ones(3))
        tensor([2., 2., 2.])

    Args:
        fn: A function, bound method, callable object or `nn.Module`. Without it, a decorator
            comes back.
        options: The keywords of `torch.compile`, with their meaning there, except `backend`, and
            those of `ThunderCompiler`. `mode=` and `options=` also reach the regions that
            Inductor compiles. Calls are kept apart (`isolate_recompiles=True`) unless you say
            otherwise. To compile many modules of one class, such as the layers of a model, each
            by itself, give them one compiler: `layer.compile(backend=compiler)`.

    Returns:
        The compiled callable, whose `_backend` is the `ThunderCompiler`. For a module it is a
        stand-in that shares everything with the module, which stays uncompiled. When compilation
        is switched off (`disable=True`, `TORCHDYNAMO_DISABLE=1`), `fn` itself, as in torch.

    Raises:
        NotCallableError: `fn` cannot be compiled: it is not callable, a class, or TorchScript.
        OptionError: An option is unknown, belongs elsewhere, or has a value that is not accepted.
    """
    divided = divide_options(options)
    if fn is _OMITTED:
        # Wrong values are an error where they are written, not where the decorator is applied.
        divided.make_compiler()
        return lambda function: compile_callable(function, divided)
    return compile_callable(fn, divided)


def compile_callable(fn: Any, options: DividedOptions) -> Any:
    """Compiles a callable with options that were divided before; see `thunderfx`.

    Args:
        fn: A function, bound method, callable object or `nn.Module`.
        options: The keywords for torch.compile and for a new `ThunderCompiler`.

    Raises:
        NotCallableError: `fn` cannot be compiled.
    """
    _check_callable(fn)
    if isinstance(fn, nn.Module):
        return compile_module(original_module(fn), options)
    compiler = options.make_compiler()
    compiled: Any = torch_compile(fn, compiler, options)
    if compiled is not fn:
        compiled._backend = compiler
    return compiled


def _check_callable(fn: Any) -> None:
    if isinstance(fn, type):
        raise NotCallableError(
            f"{fn.__qualname__} is a class; compile what computes, an instance of it: "
            f"{fn.__qualname__}(...)"
        )
    if isinstance(fn, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise NotCallableError(
            "torch.compile cannot look into TorchScript; compile the Python function or module "
            "that was scripted or traced"
        )
    if not callable(fn):
        raise NotCallableError(
            f"an object of type {type(fn).__qualname__} cannot be called, so there is nothing to "
            "compile; give a function, a method, a callable object or an nn.Module"
        )


def _signature() -> inspect.Signature:
    """The explicit form of `thunderfx`'s signature, for `help` and editors."""
    of_fn = inspect.signature(thunderfx).parameters["fn"]
    fn = of_fn.replace(annotation=Callable[..., Any] | nn.Module)
    return inspect.Signature([fn, *option_parameters()], return_annotation=Callable[..., Any])


thunderfx.__signature__ = _signature()  # pyright: ignore[reportFunctionMemberAccess] - inspect's
