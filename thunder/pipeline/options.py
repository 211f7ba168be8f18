"""What a compile was asked for, validated once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from torch._inductor import config as inductor_config
from torch._inductor import list_mode_options

from thunder.debug import DebugFlag, DebugLike, resolve
from thunder.errors import OptionError, nearest
from thunder.executors.base import AbstractExecutor, AbstractFusionExecutor
from thunder.executors.registry import resolve_executors
from thunder.transforms.base import AbstractTransform, as_transform

OnFailure = Literal["fallback", "raise"]
Contest = Literal["full", "cached", "off"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileOptions:
    """The options of one compiled callable.

    Attributes:
        executors: The executors to ask, in order; the last takes everything.
        requested_executors: `executors=` as the user wrote it.
        transforms: The user's transforms, in order.
        exclude_ops: Operators left to Inductor, as the user wrote them.
        debug: The debug flags that are on, besides those of `THUNDER_DEBUG`.
        on_failure: What happens when a region cannot be compiled or run.
        contest: How candidates for a region are chosen between.
        inductor_config: Inductor settings that `mode=` and `options=` stand for.
    """

    executors: tuple[AbstractExecutor, ...]
    requested_executors: str | tuple[Any, ...] = "auto"
    transforms: tuple[AbstractTransform, ...] = ()
    exclude_ops: tuple[str | Callable[..., Any], ...] = ()
    debug: frozenset[DebugFlag] = frozenset()
    on_failure: OnFailure = "fallback"
    contest: Contest = "cached"
    inductor_config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fuses(self) -> bool:
        """Whether any executor compiles regions, as against running op by op."""
        return any(isinstance(executor, AbstractFusionExecutor) for executor in self.executors)

    def with_inductor(self, mode: str | None, options: Mapping[str, Any] | None) -> CompileOptions:
        """Returns a copy with the settings of torch.compile's `mode=` and `options=` added."""
        if not mode and not options:
            return self
        return replace(
            self, inductor_config={**self.inductor_config, **inductor_settings(mode, options)}
        )


def make_options(
    *,
    executors: str | Sequence[Any] = "auto",
    transforms: Iterable[Any] = (),
    exclude_ops: Iterable[str | Callable[..., Any]] = (),
    debug: DebugLike = False,
    on_failure: OnFailure = "fallback",
    contest: Contest = "cached",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> CompileOptions:
    """Validates what the user wrote.

    Args:
        executors: `"auto"`, a name, or a list of names and executors, most wanted first.
        transforms: Functions from fx graph to fx graph, or `AbstractTransform`s.
        exclude_ops: Operators left to Inductor: callables such as `torch.sinc`, or names.
        debug: Debug flags.
        on_failure: `"fallback"` or `"raise"`.
        contest: `"full"`, `"cached"` or `"off"`.
        mode: As in `torch.compile`.
        options: As in `torch.compile`: Inductor settings.

    Raises:
        OptionError: A value is not accepted; says which are.
    """
    _choice("on_failure", on_failure, get_args(OnFailure))
    _choice("contest", contest, get_args(Contest))
    _not_a_string("transforms", transforms)
    _not_a_string("exclude_ops", exclude_ops)
    if not isinstance(executors, str):
        executors = tuple(executors) if isinstance(executors, Iterable) else (executors,)
    exclude_ops = tuple(exclude_ops)
    for excluded in exclude_ops:
        if not isinstance(excluded, str) and not callable(excluded):
            raise OptionError(f"exclude_ops= takes callables and names, not {excluded!r}")
    return CompileOptions(
        executors=resolve_executors(executors),
        requested_executors=executors,
        transforms=tuple(as_transform(transform) for transform in transforms),
        exclude_ops=exclude_ops,
        debug=resolve(debug),
        on_failure=on_failure,
        contest=contest,
        inductor_config=inductor_settings(mode, options),
    )


def inductor_settings(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the Inductor settings that `mode=` and `options=` stand for.

    Raises:
        OptionError: The mode or a setting is unknown.
    """
    settings: dict[str, Any] = {}
    modes = list_mode_options()
    if mode is not None and mode not in modes:
        raise OptionError(f"mode={mode!r} is unknown; known: {', '.join(modes)}")
    if mode is not None:
        settings.update(modes[mode])
    known = inductor_config.get_config_copy()
    for key, value in (options or {}).items():
        name = key.replace("-", "_")
        if name not in known:
            close = nearest(name, known)
            hint = f"; did you mean {close!r}?" if close else ""
            raise OptionError(
                f"options={{{key!r}: ...}} is no Inductor setting{hint}; "
                "torch._inductor.list_options() gives all"
            )
        settings[name] = value
    return settings


def _choice(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise OptionError(f"{name}={value!r} is not accepted; use one of {', '.join(known)}")


def _not_a_string(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise OptionError(f"{name}= takes a list, not {value!r}; write {name}=[{value!r}]")
