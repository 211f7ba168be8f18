"""What the nodes of a captured graph do besides giving a value.

`mutated_inputs` reads a node: it knows in-place methods, `out=`, assignments and operators whose
schema says so. `has_effects` asks harder: it runs the node on fake tensors and watches the ATen
operators, since a torch function need not say that it draws random numbers or updates statistics.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.effects import has_effects as is_effectful_operator
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from thunder.dynamo.splitting.node_values import fresh_like, value_of

_ASSIGNMENTS = {
    operator.setitem,
    operator.delitem,
    *(
        getattr(operator, f"i{name}")
        for name in (
            *("add", "and", "concat", "floordiv", "lshift", "matmul", "mod"),
            *("mul", "or", "pow", "rshift", "sub", "truediv", "xor"),
        )
    ),
}

# Update their running statistics without saying so in their schemas.
_SILENT_WRITERS = {
    torch.ops.aten.native_batch_norm,
    torch.ops.aten.cudnn_batch_norm,
    torch.ops.aten.miopen_batch_norm,
}


def mutated_inputs(node: fx.Node) -> list[fx.Node]:
    """Returns the inputs that a node changes in place, as far as the node itself tells.

    Args:
        node: A node of a captured graph.
    """
    if node.op not in ("call_function", "call_method"):
        return []
    if isinstance(node.target, OpOverload):
        return _written_arguments(node, node.target)
    if node.target in _ASSIGNMENTS or _is_in_place_name(node) or node.kwargs.get("inplace"):
        return _nodes(node.args[:1])
    return _nodes([node.kwargs.get("out")])


def has_effects(node: fx.Node, *, on_inputs: bool = True) -> bool:
    """Whether leaving out a node whose value is unused could be noticed.

    Args:
        node: A node of a captured graph. When it cannot be told, the answer is yes.
        on_inputs: Whether a change of the inputs that `mutated_inputs` gives counts.
    """
    if node.op not in ("call_function", "call_method"):
        return node.op == "call_module"
    changed = mutated_inputs(node)
    if isinstance(node.target, HigherOrderOperator) or (changed and on_inputs):
        return True
    if not changed and node.is_impure():
        return True
    try:
        args, kwargs, clones = _fresh_arguments(node)
        recorder = _EffectRecorder({_key(t) for n, t in clones.items() if n not in changed})
        with torch.no_grad(), _fake_mode(node), recorder:
            _call(node, args, kwargs)
    except Exception:  # noqa: BLE001 (a probe: any operator may fail in any way on fake tensors)
        return True
    return recorder.found


class _EffectRecorder(TorchDispatchMode):
    """Watches for ATen operators with effects.

    Attributes:
        inputs: Keys of the memory that must not be written to.
        found: Whether an effect was seen.
    """

    def __init__(self, inputs: set[int]) -> None:
        super().__init__()
        self.inputs = inputs
        self.found = False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Looks at one operator and runs it."""
        kwargs = dict(kwargs or {})
        written = _written(func, args, kwargs)
        self.found |= (
            torch.Tag.nondeterministic_seeded in func.tags
            or not func._schema.returns
            or func.overloadpacket in _SILENT_WRITERS
            or is_effectful_operator(func)
            or any(_key(tensor) in self.inputs for tensor in written)
        )
        return func(*args, **kwargs)


def _written(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    given = dict(zip([a.name for a in func._schema.arguments], args, strict=False))
    given |= kwargs
    names = [
        a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    ]
    flat: list[Any] = []
    for name in names:
        value = given.get(name)
        flat += value if isinstance(value, list | tuple) else [value]
    return [each for each in flat if isinstance(each, torch.Tensor)]


def _written_arguments(node: fx.Node, func: OpOverload) -> list[fx.Node]:
    written: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            at_position = node.args[position] if position < len(node.args) else None
            written.append(node.kwargs.get(argument.name, at_position))
    return _nodes(written)


def _nodes(arguments: Sequence[Any]) -> list[fx.Node]:
    found: list[fx.Node] = []
    map_arg(list(arguments), found.append)
    return found


def _is_in_place_name(node: fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def _fresh_arguments(
    node: fx.Node,
) -> tuple[tuple[Any, ...], dict[str, Any], dict[fx.Node, torch.Tensor]]:
    """Makes inputs of the same kind as the node's, which it may change."""
    clones: dict[fx.Node, torch.Tensor] = {}

    def fresh(used: fx.Node) -> Any:
        value = value_of(used)
        if not isinstance(value, torch.Tensor):
            assert value is not None, "the value is not known"
            return value
        assert isinstance(value, FakeTensor), "no plain fake tensor"
        if used not in clones:
            clones[used] = fresh_like(value)
        return clones[used]

    return map_arg(node.args, fresh), map_arg(node.kwargs, fresh), clones


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _fake_mode(node: fx.Node) -> FakeTensorMode:
    """Returns the mode that the node's own value, or an input's, belongs to."""
    for each in (node, *node.all_input_nodes):
        for value in pytree.tree_leaves(value_of(each)):
            if isinstance(value, FakeTensor):
                return value.fake_mode
    raise AssertionError("no fake tensor to go by")


def _call(node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)
