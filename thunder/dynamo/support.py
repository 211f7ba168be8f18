"""Finds the nodes of a captured graph that cannot be in a thunder region.

AOTAutograd takes nearly everything that Dynamo captures, so there is no list of operators here: a
node is unsupported when the user excluded it, when it is a higher-order operator that AOTAutograd
has no way to trace, when it cannot be run on fake tensors, or when its body holds such a node.
Dynamo has run every node on fake tensors already; only graphs from elsewhere are run again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final
from unittest import mock

import torch
from torch import fx
from torch._library.utils import has_fake_kernel
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from thunder.dynamo.split_reason import SplitReason, SplitReasonKind, describe_exception
from thunder.dynamo.splitting.excluded_ops import ExcludedOp, exclusion_predicate, node_operator
from thunder.dynamo.splitting.node_values import value_of
from thunder.trace.source_lines import source_line

_CALLS = ("call_function", "call_method", "call_module")


def find_unsupported(
    graph_module: fx.GraphModule,
    exclude_ops: Iterable[ExcludedOp] = (),
    *,
    example_inputs: Sequence[Any] = (),
) -> dict[fx.Node, SplitReason]:
    """Finds the nodes that cannot be in a thunder region.

    Args:
        graph_module: A captured graph. When it does not come from Dynamo, nodes get example
            values (`meta["example_value"]`).
        exclude_ops: The operators that the user leaves to Inductor.
        example_inputs: One value for each placeholder, real or fake. Needed when placeholders have
            no example values.

    Returns:
        The reason for each such node, in the order of the graph.

    Raises:
        OptionError: `exclude_ops` names something that is no operator.

    Example:
        >>> import torch
        >>> gm = torch.fx.symbolic_trace(lambda x: x.sinc() + 1)
        >>> found = find_unsupported(gm, ["sinc"], example_inputs=[torch.ones(2)])
        >>> [(node.name, str(reason)) for node, reason in found.items()]
        [('sinc', 'excluded op: sinc is in exclude_ops')]
    """
    is_excluded = exclusion_predicate(exclude_ops)
    failures = propagate_example_values(graph_module, example_inputs)
    found: dict[fx.Node, SplitReason] = {}
    for node in graph_module.graph.nodes:
        reason = _reason(node, is_excluded) or _reason_in_body(node, graph_module, is_excluded)
        if reason is None and node in failures:
            reason = _failure(node, failures[node])
        if reason is not None:
            found[node] = reason
    return found


def propagate_example_values(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any] = ()
) -> dict[fx.Node, Exception]:
    """Gives the nodes of a graph that Dynamo has not seen their example values.

    Args:
        graph_module: A captured graph; `meta["example_value"]` is filled in.
        example_inputs: One value for each placeholder, real or fake.

    Returns:
        What was raised, for each node that failed. What depends on such a node was not run.
    """
    calls = [node for node in graph_module.graph.nodes if node.op in _CALLS]
    if any(value_of(node) is not None for node in calls):
        return {}
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    values = list(example_inputs) or [value_of(node) for node in placeholders]
    if len(values) != len(placeholders) or any(value is None for value in values):
        return {}
    fake_mode = _mode_of(values)
    propagation = _Propagation(graph_module, fake_mode)
    with (
        mock.patch.object(fake_mode, "allow_non_fake_inputs", True),
        fake_mode,
        _same_grad_mode(),
    ):
        propagation.run(*(_fake(value, fake_mode) for value in values))
    return propagation.failures


def _reason(node: fx.Node, is_excluded: Callable[[fx.Node], bool]) -> SplitReason | None:
    if is_excluded(node):
        return SplitReason(
            kind=SplitReasonKind.EXCLUDED_OP,
            info=f"{_operator(node)} is in exclude_ops",
            op=_operator(node),
            source_line=source_line(node),
        )
    if isinstance(node.target, HigherOrderOperator) and not _is_traceable(node.target):
        return SplitReason(
            kind=SplitReasonKind.UNSUPPORTED_HIGHER_ORDER_OP,
            info=f"AOTAutograd has no rule for the higher-order operator {_operator(node)}",
            op=_operator(node),
            source_line=source_line(node),
        )
    return None


def _reason_in_body(
    node: fx.Node, graph_module: fx.GraphModule, is_excluded: Callable[[fx.Node], bool]
) -> SplitReason | None:
    """Looks into the bodies that a higher-order operator is given."""
    if not isinstance(node.target, HigherOrderOperator):
        return None
    for used in node.all_input_nodes:
        body = _attribute(graph_module, used) if used.op == "get_attr" else None
        if not isinstance(body, fx.GraphModule):
            continue
        for inner in body.graph.nodes:
            reason = _reason(inner, is_excluded) or _reason_in_body(inner, body, is_excluded)
            if reason is not None:
                return SplitReason(
                    kind=SplitReasonKind.CONTAINS_UNSUPPORTED,
                    info=f"the body of {_operator(node)} cannot be cut; in it, {reason.info}",
                    op=_operator(node),
                    source_line=reason.source_line or source_line(node),
                )
    return None


def _failure(node: fx.Node, error: Exception) -> SplitReason:
    has_no_rule = _lacks_meta_kernel(node, error)
    return SplitReason(
        kind=SplitReasonKind.NO_META_KERNEL if has_no_rule else SplitReasonKind.FAKE_TENSOR_FAILURE,
        info=(
            f"{_operator(node)} has no rule for the shape and dtype of its result"
            if has_no_rule
            else f"{_operator(node)} cannot be run on fake tensors"
        ),
        op=_operator(node),
        source_line=source_line(node),
        exception=describe_exception(error),
    )


def _operator(node: fx.Node) -> str:
    name = node_operator(node)
    if name is not None:
        return name.name if name.namespace == "aten" else f"{name.namespace}.{name.name}"
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)


def _lacks_meta_kernel(node: fx.Node, error: Exception) -> bool:
    if isinstance(error, UnsupportedOperatorException | NotImplementedError):
        return True
    if isinstance(node.target, OpOverload):
        return not has_fake_kernel(node.target)
    if isinstance(node.target, OpOverloadPacket):
        packet = node.target
        return not all(has_fake_kernel(getattr(packet, name)) for name in packet.overloads())
    return False


def _is_traceable(operator: HigherOrderOperator) -> bool:
    """Whether AOTAutograd's tracing has a rule, or the operator unfolds itself when called."""
    unfolds = not operator.python_key_table and not operator.py_kernels
    return unfolds or ProxyTorchDispatchMode in operator.python_key_table


@final
class _Propagation(fx.Interpreter):
    """Runs a graph on fake tensors, past nodes that fail.

    Attributes:
        failures: What was raised, for each node that failed.
    """

    _UNKNOWN = object()

    def __init__(self, graph_module: fx.GraphModule, fake_mode: FakeTensorMode) -> None:
        super().__init__(graph_module)
        self.fake_mode = fake_mode
        self.failures: dict[fx.Node, Exception] = {}

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Makes attributes fake too: running must not change the real ones."""
        return _fake(super().get_attr(target, args, kwargs), self.fake_mode)

    def run_node(self, n: fx.Node) -> Any:
        """Runs one node, unless an input of it failed."""
        if any(self.env.get(used) is self._UNKNOWN for used in n.all_input_nodes):
            return self._UNKNOWN
        try:
            value = super().run_node(n)
        except Exception as error:  # noqa: BLE001 (a probe: any operator may fail in any way)
            self.failures[n] = error
            return self._UNKNOWN
        if n.op != "output" and not isinstance(value, torch.nn.Module):
            n.meta["example_value"] = value
        return value


def _mode_of(values: Sequence[Any]) -> FakeTensorMode:
    for value in values:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeTensorMode(shape_env=ShapeEnv())


def _fake(value: Any, fake_mode: FakeTensorMode) -> Any:
    """Makes a fake tensor of its own, so that running changes none that others hold."""
    if isinstance(value, FakeTensor):
        with torch.no_grad():
            return torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=value.device
            ).requires_grad_(value.requires_grad)
    if isinstance(value, torch.Tensor):
        return fake_mode.from_tensor(value, static_shapes=True)
    return value


def _same_grad_mode() -> contextlib.AbstractContextManager[Any]:
    return torch.set_grad_enabled(torch.is_grad_enabled())


def _attribute(graph_module: fx.GraphModule, node: fx.Node) -> Any:
    found: Any = graph_module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found
