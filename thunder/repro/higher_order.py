"""Higher-order operators that a script writes in terms of the public function behind them.

Dynamo's graphs call operators that exist to be compiled: run eagerly some of them need fx graphs
in their arguments, and Dynamo itself does not take all of them a second time. The functions they
come from do both. Operators that are not in the table are written as the calls they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from thunder.repro.statements import GraphContext
from thunder.repro.triton_kernels import kernel_launch

Writer = Callable[[fx.Node, GraphContext], Iterator[str]]


def special_statements(node: fx.Node, context: GraphContext) -> list[str] | None:
    """Returns the statements for a node with a special form, or None for an ordinary one.

    Args:
        node: A node of the graph.
        context: The graph around it.
    """
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    writer = _WRITERS.get(node.target.name())
    return None if writer is None else list(writer(node, context))


def _checkpoint(node: fx.Node, context: GraphContext) -> Iterator[str]:
    """`tag_activation_checkpoint(body, *args, **kwargs)` comes from `checkpoint`."""
    context.collector.names.modules.add("torch.utils.checkpoint")
    body = _nested(node.args[0], context)
    arguments = context.arguments(node.args, {"use_reentrant": False, **node.kwargs})
    policy = body.meta.get("_checkpoint_context_fn")
    if policy is not None:
        arguments += f", context_fn={context.argument(policy)}"
    yield f"{node.name} = torch.utils.checkpoint.checkpoint({arguments})"


def _nested_region(node: fx.Node, context: GraphContext) -> Iterator[str]:
    """`invoke_subgraph(body, identifier, *args)` comes from the call of a nested region."""
    body, _, *rest = node.args
    yield f"{node.name} = {context.argument(body)}({context.arguments(rest, {})})"


def _hook(node: fx.Node, context: GraphContext) -> Iterator[str]:
    """`register_hook(tensor, body)` comes from the method and gives the tensor."""
    tensor, body = map(context.argument, node.args[:2])
    yield f"{tensor}.register_hook({body})"
    yield f"{node.name} = {tensor}"


def _autograd_function(node: fx.Node, context: GraphContext) -> Iterator[str]:
    """`autograd_function_apply(forward, backward, *args)` comes from an autograd.Function."""
    forward, backward, *rest = node.args
    names = [context.class_names[id(_nested(body, context))] for body in (forward, backward)]
    stem = f"AutogradFunction{len(context.extra_classes)}"
    context.extra_classes[stem] = _function_class(stem, names[0], names[1], node.kwargs)
    yield f"{node.name} = {stem}.apply({context.arguments(rest, {})})"


def _function_class(name: str, forward: str, backward: str, options: dict[str, Any]) -> str:
    # torch before 2.12 gives the bodies a context as their first argument, which they ignore.
    context = "None, " if "args_tensor_mask" in options else ""
    lines = [
        f"forward_of_{name}, backward_of_{name} = {forward}(), {backward}()",
        "",
        "",
        f"class {name}(torch.autograd.Function):",
        "    @staticmethod",
        "    def forward(ctx, *inputs):",
        f"        outputs, ctx.saved = forward_of_{name}({context}*inputs)",
    ]
    for option, mark in _MARKS.items():
        if chosen := list(options.get(option, ())):
            lines.append("        marked = outputs if isinstance(outputs, tuple) else (outputs,)")
            lines.append(f"        ctx.{mark}(*[marked[i] for i in {chosen}])")
    return "\n".join(
        [
            *lines,
            "        return outputs",
            "",
            "    @staticmethod",
            "    def backward(ctx, *gradients):",
            f"        return backward_of_{name}({context}*gradients, *ctx.saved)",
        ]
    )


_MARKS = {
    "non_differentiable_idx": "mark_non_differentiable",
    "dirty_idx": "mark_dirty",
}


def _nested(argument: Any, context: GraphContext) -> Any:
    return operator.attrgetter(str(argument.target))(context.graph_module)


_WRITERS: dict[str, Writer] = {
    "autograd_function_apply": _autograd_function,
    "invoke_subgraph": _nested_region,
    "register_hook": _hook,
    "tag_activation_checkpoint": _checkpoint,
    "triton_kernel_wrapper_mutation": kernel_launch,
}
