"""Inductor without Dynamo in the calls: the adapter, and at the same time source for scripts.

The function here depends on torch alone, so that a script that compares with Inductor needs no
thunder: `source_for_scripts` gives its text.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch._dynamo
import torch._inductor
from torch import fx

IMPORTS = (
    "import copy",
    "import torch",
    "import torch._dynamo",
    "import torch._inductor",
    "from torch import fx",
)
"""What the text of `inductor_without_dynamo` needs."""


def inductor_without_dynamo(
    function: Callable[..., Any], options: Mapping[str, Any]
) -> Callable[..., Any]:
    """Compiles an fx graph with Inductor in the first call; other callables are captured then.

    Later calls must be like the first one.
    """
    compiled: list[Any] = []

    def compile_for(inputs: list[Any]) -> Any:
        if isinstance(function, fx.GraphModule):
            graph = copy.deepcopy(function)
        else:
            capture = torch._dynamo.export(
                function, aten_graph=False, assume_static_by_default=True
            )
            graph = capture(*inputs).graph_module
        return torch._inductor.compile(graph, inputs, options=dict(options))

    def call(*inputs: Any) -> Any:
        if not compiled:
            compiled.append(compile_for(list(inputs)))
        return compiled[0](*inputs)

    return call


def source_for_scripts() -> str:
    """Returns the text of `inductor_without_dynamo`, without annotations.

    Example:
        >>> source_for_scripts().splitlines()[0]
        'def inductor_without_dynamo(function, options):'
    """
    tree = ast.parse(inspect.getsource(inductor_without_dynamo))
    return ast.unparse(ast.fix_missing_locations(_Unannotated().visit(tree)))


class _Unannotated(ast.NodeTransformer):
    """Removes annotations, whose names a script does not import."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        return ast.Assign(targets=[node.target], value=node.value)
