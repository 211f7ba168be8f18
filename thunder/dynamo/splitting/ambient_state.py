"""Ambient state in a captured graph: the nodes that change it, and how to put it back.

Dynamo writes `with torch.no_grad():` as two nodes that set the gradient mode, `with
torch.autocast(...):` as a node that enters and a node that exits. Such nodes (markers) act on
everything behind them, so a piece cut out of the graph must begin by re-establishing what was in
force and end by restoring what was there before. This module is the one place that names torch's
markers, most of which are private.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import fx

Environment = Mapping[fx.Node, fx.Node]


@final
@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Setting:
    """State that one function sets to a value.

    Attributes:
        setter: The function.
        restore: Appends a call to a graph that sets the value in force while this runs.
    """

    setter: Callable[..., Any]
    restore: Callable[[fx.Graph], fx.Node]


@final
@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Context:
    """State that is entered and exited.

    Attributes:
        enter: The function that enters.
        exit: The function that exits.
        takes_handle: Whether `exit` takes what `enter` returned.
    """

    enter: Callable[..., Any]
    exit: Callable[..., Any]
    takes_handle: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class AmbientState:
    """What is in force before a node runs.

    Attributes:
        markers: The markers in force, oldest first; none means the state on entry.
        grad_enabled: Whether gradients are recorded.
    """

    markers: tuple[fx.Node, ...]
    grad_enabled: bool


def is_marker(node: fx.Node) -> bool:
    """Whether a node is there for ambient state alone, and pieces can re-establish that state."""
    return node.op == "call_function" and (_changes_state(node) or node.target in _CONSTANTS)


def _changes_state(node: fx.Node) -> bool:
    return node.target in _SETTINGS or node.target in _ENTERS or node.target in _EXITS


def ambient_states(graph: fx.Graph) -> dict[fx.Node, AmbientState]:
    """Finds the state before each node of a graph.

    Args:
        graph: A captured graph. The state on entry is the one in force now, as it is when Dynamo
            calls a backend.
    """
    markers: tuple[fx.Node, ...] = ()
    states: dict[fx.Node, AmbientState] = {}
    for node in graph.nodes:
        states[node] = AmbientState(markers=markers, grad_enabled=_grad_enabled(markers))
        if is_marker(node) and _changes_state(node):
            markers = _after(node, states)
    return states


def enter(graph: fx.Graph, marker: fx.Node, copy: Callable[[fx.Node], fx.Node]) -> fx.Node:
    """Appends a copy of a marker to a graph that is being built.

    Args:
        graph: The graph.
        marker: A node of another graph.
        copy: Gives the nodes of `graph` that stand for the marker's inputs.
    """
    return graph.node_copy(marker, copy)


def leave(graph: fx.Graph, marker: fx.Node, entered: fx.Node) -> fx.Node:
    """Appends what undoes a marker to a graph that is being built.

    Args:
        graph: The graph.
        marker: The marker that is in force, in the original graph.
        entered: Its copy in `graph`.
    """
    context = _ENTERS.get(marker.target)
    if context is None:
        return _SETTINGS[marker.target].restore(graph)
    return graph.call_function(context.exit, (entered,) if context.takes_handle else ())


def grad_mode_on_exit(graph: fx.Graph) -> bool | None:
    """Returns the gradient mode that a graph leaves behind, or None when it restores it."""
    state = ambient_states(graph)[graph.output_node()]
    return state.grad_enabled if any(map(_sets_grad_mode, state.markers)) else None


def _after(node: fx.Node, states: Mapping[fx.Node, AmbientState]) -> tuple[fx.Node, ...]:
    markers = states[node].markers
    if node.target in _ENTERS:
        return (*markers, node)
    if node.target in _SETTINGS:
        others = tuple(marker for marker in markers if marker.target is not node.target)
        return others if _is_ambient(node) else (*others, node)
    context = _EXITS[node.target]
    entered = [marker for marker in markers if marker.target is context.enter]
    closed = node.args[0] if context.takes_handle else entered[-1] if entered else None
    if closed not in entered:
        return markers
    left = [marker for marker in markers if marker is not closed]
    if context.enter is _ENTER_INFERENCE_MODE:  # it puts the gradient mode back, too
        before = [marker for marker in states[closed].markers if _sets_grad_mode(marker)]
        left = before + [marker for marker in left if not _sets_grad_mode(marker)]
    return tuple(left)


def _sets_grad_mode(node: fx.Node) -> bool:
    return node.target is torch._C._set_grad_enabled


def _is_ambient(node: fx.Node) -> bool:
    return node.target is torch._C._set_grad_enabled and (
        bool(node.args[0]) == torch.is_grad_enabled()
    )


def _grad_enabled(markers: tuple[fx.Node, ...]) -> bool:
    enabled = torch.is_grad_enabled()
    for marker in markers:
        if _sets_grad_mode(marker):
            enabled = bool(marker.args[0])
        elif marker.target is _ENTER_INFERENCE_MODE and bool(marker.args[0]):
            enabled = False
    return enabled


def _restore_grad_mode(graph: fx.Graph) -> fx.Node:
    return graph.call_function(torch._C._set_grad_enabled, (torch.is_grad_enabled(),))


def _restore_forward_grad_mode(graph: fx.Graph) -> fx.Node:
    return graph.call_function(torch._C._set_fwd_grad_enabled, (torch._C._is_fwd_grad_enabled(),))


def _restore_inplace_requires_grad(graph: fx.Graph) -> fx.Node:
    functorch = torch._C._functorch  # type: ignore[attr-defined]  # missing in the stubs
    allowed = functorch.get_inplace_requires_grad_allowed()
    return graph.call_function(functorch.set_inplace_requires_grad_allowed, (allowed,))


def _restore_determinism(graph: fx.Graph) -> fx.Node:
    return graph.call_function(
        torch._C._set_deterministic_algorithms,
        (torch.are_deterministic_algorithms_enabled(),),
        {"warn_only": torch.is_deterministic_algorithms_warn_only_enabled()},
    )


def _restore_attention_backends(graph: fx.Graph) -> fx.Node:
    attention = torch.nn.attention
    enabled = attention._cur_sdpa_kernel_backends(with_priority=True)
    backends = [
        graph.call_function(attention._backend_from_string, (backend.name,)) for backend in enabled
    ]
    return graph.call_function(attention._sdpa_kernel, (backends, True))


def find_torch_function(path: str) -> Callable[..., Any] | None:
    """Returns a function of torch by its dotted name, or None when this version has none.

    Args:
        path: Such as `torch.amp._enter_autocast`.
    """
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError:
        try:
            module = operator.attrgetter(module_name.removeprefix("torch."))(torch)
        except AttributeError:
            return None
    return getattr(module, name, None)


def _settings() -> dict[Any, Setting]:
    restores = {
        "torch._C._set_grad_enabled": _restore_grad_mode,
        "torch._C._set_fwd_grad_enabled": _restore_forward_grad_mode,
        "torch._C._functorch.set_inplace_requires_grad_allowed": _restore_inplace_requires_grad,
        "torch._C._set_deterministic_algorithms": _restore_determinism,
        "torch.nn.attention._sdpa_kernel": _restore_attention_backends,
    }
    found = {find_torch_function(path): restore for path, restore in restores.items()}
    return {setter: Setting(setter=setter, restore=r) for setter, r in found.items() if setter}


def _contexts() -> list[Context]:
    paths = [
        ("torch.amp._enter_autocast", "torch.amp._exit_autocast", True),
        (
            "torch.autograd.grad_mode._enter_inference_mode",
            "torch.autograd.grad_mode._exit_inference_mode",
            True,
        ),
        (
            "torch._C._autograd._saved_tensors_hooks_disable",
            "torch._C._autograd._saved_tensors_hooks_enable",
            False,
        ),
        (
            "torch.ops.profiler._record_function_enter_new",
            "torch.ops.profiler._record_function_exit._RecordFunction",
            True,
        ),
        ("torch.cuda._exchange_device", "torch.cuda._maybe_exchange_device", True),
        ("torch.xpu._exchange_device", "torch.xpu._maybe_exchange_device", True),
    ]
    contexts = []
    for enter_path, exit_path, takes_handle in paths:
        entering, leaving = find_torch_function(enter_path), find_torch_function(exit_path)
        if entering is not None and leaving is not None:
            contexts.append(Context(enter=entering, exit=leaving, takes_handle=takes_handle))
    return contexts


_SETTINGS = _settings()
_CONTEXTS = _contexts()
_CONSTANTS = {torch.nn.attention._backend_from_string}  # arguments of markers
_ENTERS: dict[Any, Context] = {context.enter: context for context in _CONTEXTS}
_EXITS: dict[Any, Context] = {context.exit: context for context in _CONTEXTS}
_ENTER_INFERENCE_MODE = find_torch_function("torch.autograd.grad_mode._enter_inference_mode")
