"""The stand-in that `thunderfx` returns for an `nn.Module`.

A stand-in is a second object with the module's own `__dict__`: parameters, buffers, children,
hooks and plain attributes are the same ones, so each side sees what the other does, and names in
`state_dict()` do not change. Its class is derived from the module's, so it has the module's
methods, and methods that call `self(...)` run compiled. Only `forward` differs; what belongs to
the compilation is kept in a slot beside the shared `__dict__`. The module itself is not touched.

A call runs torch's own `Module._call_impl`: hooks, whenever registered and on whichever side, run
once each, around the compiled `forward`, as with `torch.compile(module)`. Inside the compiled
code `self` is the original module. What is compiled, with which options, is decided elsewhere.

Where a class has a `__call__` of its own, or an instance a `forward`, the whole call is compiled,
as `torch.compile(module)` does.
"""

from __future__ import annotations

import abc
import copy
import types
from collections.abc import Callable
from typing import Any, SupportsIndex, cast

import torch
from torch import fx, nn
from torch.distributed import _composable_state

from thunder.dynamo.compiler import ThunderCompiler
from thunder.dynamo.isolation import torch_compile
from thunder.dynamo.options import DividedOptions

_set_class = object.__dict__["__class__"].__set__


def compile_module(module: nn.Module, options: DividedOptions) -> nn.Module:
    """Returns a stand-in for `module` whose calls are compiled.

    Args:
        module: Stays as it is. May be a stand-in: the module behind it is compiled anew.
        options: For torch.compile and for the new `ThunderCompiler`.

    Returns:
        The stand-in, or the module itself when compilation is switched off (see
        `thunder.dynamo.isolation.torch_compile`).

    Example:
        >>> import torch
        >>> from thunder.dynamo.options import divide_options
        >>> model = torch.nn.Linear(2, 1)
        >>> compiled = compile_module(model, divide_options({"executors": ["aten"]}))
        >>> compiled
        thunderfx(Linear(in_features=2, out_features=1, bias=True))
        >>> compiled.weight is model.weight, list(compiled.state_dict())
        (True, ['weight', 'bias'])
    """
    if isinstance(module, CompiledModule):
        module = module._compilation.module
    compilation = _Compilation(module, options)
    if compilation.is_switched_off:
        return module
    stand_in = object.__new__(_stand_in_class(type(module)))
    object.__setattr__(stand_in, "_compilation", compilation)
    object.__setattr__(stand_in, "__dict__", module.__dict__)
    plain = _has_plain_call(type(module))
    object.__setattr__(stand_in, "_compiled_call_impl", None if plain else compilation.call())
    _share_fsdp_state(stand_in)
    return stand_in


class _Compilation:
    """What a stand-in keeps apart from the attributes that it shares with its module."""

    __slots__ = ("_call", "_forward", "_source", "compiler", "module", "options")

    def __init__(self, module: nn.Module, options: DividedOptions) -> None:
        self.module = module
        self.options = options
        self.compiler = options.make_compiler()
        self._source: Callable[..., Any] = module.forward
        self._forward = self._compile(self._source)
        self._call: Callable[..., Any] | None = None

    @property
    def is_switched_off(self) -> bool:
        return self._forward is self._source

    def forward(self) -> Callable[..., Any]:
        """Returns the compiled form of what is the module's `forward` now."""
        source = self.module.forward
        if source != self._source:
            self._forward = self._compile(source)
            self._source = source
        return self._forward

    def call(self) -> Callable[..., Any]:
        """Returns the compiled form of the whole call, hooks included."""
        if self._call is None:
            self._call = self._compile(self.module.__call__)
        return self._call

    def _compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch_compile(function, self.compiler, self.options)


class CompiledModule(nn.Module):
    """What stand-ins do differently from the class of their module, which they also inherit."""

    _compilation: _Compilation

    def __init_subclass__(cls) -> None:
        # Not passed on: a user's registry of subclasses must not see the classes made here.
        pass

    @property
    def _backend(self) -> ThunderCompiler:
        return self._compilation.compiler

    @property
    def __class__(self) -> type:
        """The module's class, so that what looks at or changes a class deals with the module's.

        FSDP2, parametrizations and lazy modules replace the class of a module: by this property
        they replace that of the original, and the stand-in follows.
        """
        return self._compilation.module.__class__

    @__class__.setter
    def __class__(self, new: type) -> None:
        self._compilation.module.__class__ = new
        _follow_class(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the compiled form."""
        compilation = self._compilation
        # As part of a larger compiled function it is captured with the rest.
        if torch.compiler.is_dynamo_compiling():
            return compilation.module(*args, **kwargs)
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        if "forward" in self.__dict__:
            return compilation.call()(*args, **kwargs)
        return self._call_impl(*args, **kwargs)

    @property
    def forward(self) -> Callable[..., Any]:
        """The compiled `forward` of the class, or the instance's own as it is.

        Dynamo expects an entry of the instance's `__dict__` to be what the attribute gives.
        """
        if torch.compiler.is_dynamo_compiling() or "forward" in self.__dict__:
            return self._compilation.module.forward
        return self._compilation.forward()

    @forward.setter
    def forward(self, function: Callable[..., Any]) -> None:
        self._compilation.module.forward = function

    @forward.deleter
    def forward(self) -> None:
        del self._compilation.module.forward

    def __getattr__(self, name: str) -> Any:
        # Comes here for parameters, buffers and children, and for what does not exist. The
        # class of the module may have been replaced behind the stand-in's back.
        if torch.compiler.is_dynamo_compiling():
            return getattr(self._compilation.module, name)
        if name != "_compilation" and _follow_class(self):
            return getattr(self, name)
        return super().__getattr__(name)

    def __repr__(self) -> str:
        return f"thunderfx({self._compilation.module!r})"

    def __copy__(self) -> nn.Module:
        return compile_module(copy.copy(self._compilation.module), self._compilation.options)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        module = copy.deepcopy(self._compilation.module, memo)
        return compile_module(module, self._compilation.options)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return compile_module, (self._compilation.module, self._compilation.options)

    def _replicate_for_data_parallel(self) -> nn.Module:
        # nn.DataParallel makes replicas for one call only: too short a life to compile for.
        return self._compilation.module._replicate_for_data_parallel()

    # torch.compile of a stand-in compiles the module behind it, as for other compiled callables.

    @property
    def _torchdynamo_orig_callable(self) -> nn.Module:
        return self._compilation.module

    @property
    def _torchdynamo_wrapper_id(self) -> int:
        return id(self)


def _has_plain_call(cls: type[nn.Module]) -> bool:
    """Whether a call runs hooks and `forward`, and nothing else."""
    if issubclass(cls, fx.GraphModule):  # words errors besides, which Dynamo leaves out too
        return True
    return cls.__call__ is nn.Module.__call__ and cls._call_impl is nn.Module._call_impl


def _follow_class(stand_in: CompiledModule) -> bool:
    """Gives the stand-in the class that goes with its module's; returns whether it had another."""
    wanted = _stand_in_class(type(stand_in._compilation.module))
    if type(stand_in) is wanted:
        return False
    _set_class(stand_in, wanted)
    _share_fsdp_state(stand_in)
    return True


def _share_fsdp_state(stand_in: CompiledModule) -> None:
    """Lets FSDP2, which keeps its state by the identity of modules, know the stand-in."""
    state = _composable_state._get_module_state(stand_in._compilation.module)
    if state is not None and _composable_state._get_module_state(stand_in) is None:
        _composable_state._insert_module_state(stand_in, state)


def _stand_in_class(cls: type[nn.Module]) -> type[CompiledModule]:
    """Returns the class of stand-ins for modules of class `cls`, one for each `cls`."""
    for known in type.__subclasses__(cls):
        if known.__bases__ == (CompiledModule, cls):
            return cast("type[CompiledModule]", known)
    namespace: dict[str, Any] = {
        # The second is set by nn.Module.compile, on either side, for that side's calls.
        "__slots__": ("_compilation", "_compiled_call_impl"),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        # type(self)(...) in a method of the module's makes a plain module.
        "__new__": lambda made, *args, **kwargs: cls(*args, **kwargs),
    }
    for base in cls.__mro__:
        slots = {k: v for k, v in vars(base).items() if isinstance(v, types.MemberDescriptorType)}
        namespace |= {name: _forwarding(slot) for name, slot in slots.items()}
    if hasattr(cls, "__del__"):
        # What the module holds is the module's to release.
        namespace["__del__"] = lambda stand_in: None
    if issubclass(cls, fx.GraphModule):
        # Generates `forward` on type(self).
        namespace["recompile"] = lambda stand_in: stand_in._compilation.module.recompile()
    # Metaclasses of users are not asked: they may register, count or rewrite classes. ABCMeta has
    # to set up its caches.
    metaclass = type(cls)
    make = abc.ABCMeta.__new__ if issubclass(metaclass, abc.ABCMeta) else type.__new__
    made = make(metaclass, cls.__name__, (CompiledModule, cls), namespace)
    return cast("type[CompiledModule]", made)


def _forwarding(slot: types.MemberDescriptorType) -> property:
    """A property for a slot of the module's, which `__dict__` does not hold."""
    return property(
        lambda stand_in: slot.__get__(stand_in._compilation.module),
        lambda stand_in, value: slot.__set__(stand_in._compilation.module, value),
        lambda stand_in: slot.__delete__(stand_in._compilation.module),
    )
