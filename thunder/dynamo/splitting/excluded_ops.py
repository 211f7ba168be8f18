"""Which nodes the user's `exclude_ops` means.

An operator has many spellings in a captured graph: `torch.sinc`, `torch.special.sinc`,
`Tensor.sinc`, `sinc_`, `aten.sinc`; `torch.add` is also `+` and `+=`. All spellings have one
`OperatorName`, and nodes are compared by it. A function of the user's own, put into graphs by
`torch.compiler.allow_in_graph`, is compared by identity.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._dynamo import trace_rules
from torch._library.custom_ops import CustomOpDef
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket, _higher_order_ops
from torch.overrides import get_testing_overrides

from thunder.errors import OptionError, nearest

ExcludedOp = str | Callable[..., Any]

_ATEN, _HIGHER_ORDER = "aten", "higher_order"

_PROPERTIES = {"H": "matrix_H", "T": "numpy_T"}
"""Properties of tensors whose operators are called otherwise; torch 2.14 captures these."""

# Source: the alias groups of torch/csrc/jit/passes/normalize_ops.cpp; a test compares them with
# the aliases that torch's operator database declares.
_ALIASES = {
    "absolute": "abs",
    "adjoint": "mH",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "det": "linalg_det",
    "divide": "div",
    "expit": "sigmoid",
    "fix": "trunc",
    "gammainc": "igamma",
    "gammaincc": "igammac",
    "gammaln": "lgamma",
    "ger": "outer",
    "greater": "gt",
    "greater_equal": "ge",
    "inverse": "linalg_inv",
    "less": "lt",
    "less_equal": "le",
    "linalg_matmul": "matmul",
    "linalg_matrix_exp": "matrix_exp",
    "matrix_power": "linalg_matrix_power",
    "moveaxis": "movedim",
    "multigammaln": "mvlgamma",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "orgqr": "linalg_householder_product",
    "psi": "digamma",
    "row_stack": "vstack",
    "subtract": "sub",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "true_divide": "div",
}
# Python's operators, as in `operator` and in the names of magic methods, without underscores.
_PYTHON_OPERATORS = {
    "and": "bitwise_and",
    "floordiv": "floor_divide",
    "invert": "bitwise_not",
    "lshift": "bitwise_left_shift",
    "mod": "remainder",
    "or": "bitwise_or",
    "pos": "positive",
    "rshift": "bitwise_right_shift",
    "truediv": "div",
    "xor": "bitwise_xor",
}
_IN_PLACE_OR_REFLECTED = {
    prefix + name
    for prefix in "ir"
    for name in (*_PYTHON_OPERATORS, "add", "matmul", "mul", "pow", "sub")
} - {"ipos", "rpos", "iinvert", "rinvert"}
# What Dynamo puts into graphs for these functions.
_HIGHER_ORDER_FUNCTIONS = {
    "checkpoint": "tag_activation_checkpoint",
    "map": "map_impl",
    "while_loop": "while_loop",
}


class OperatorName(NamedTuple):
    """The one name of an operator.

    Attributes:
        namespace: `aten` for everything that torch itself brings.
        name: Without prefixes, suffixes and aliases.
    """

    namespace: str
    name: str


def exclusion_predicate(exclude_ops: Iterable[ExcludedOp]) -> Callable[[fx.Node], bool]:
    """Makes a test for nodes that `exclude_ops` means.

    Args:
        exclude_ops: Callables (torch functions and methods, `torch.ops` operators, functions
            given to `torch.compiler.allow_in_graph`) or names such as `"sinc"`, `"torch.sinc"`,
            `"aten.sinc"`, `"my_library::my_op"`.

    Returns:
        A function of a node of a captured graph.

    Raises:
        OptionError: One of them cannot be an operator of a graph.

    Example:
        >>> import torch
        >>> gm = torch.fx.symbolic_trace(lambda x: torch.special.sinc(x).cos() + x.sinc())
        >>> excluded = exclusion_predicate([torch.sinc])
        >>> [node.name for node in gm.graph.nodes if excluded(node)]
        ['special_sinc', 'sinc']
    """
    names: set[OperatorName] = set()
    functions: set[Callable[..., Any]] = set()
    for excluded in exclude_ops:
        name = _parse(excluded) if isinstance(excluded, str) else operator_name(excluded)
        if name is not None:
            names.add(name)
        elif callable(excluded):
            functions.add(_node_function(excluded))
        else:
            raise OptionError(f"exclude_ops takes callables and names, not {excluded!r}")

    def is_excluded(node: fx.Node) -> bool:
        if node.op == "call_function" and node.target in functions:
            return True
        return bool(names) and node_operator(node) in names

    return is_excluded


def node_operator(node: fx.Node) -> OperatorName | None:
    """Returns the operator that a node calls, or None when it calls none that has a name.

    Python's operators count when the result is a tensor, not between sizes and numbers.

    Args:
        node: A node of a captured graph.
    """
    if node.op == "call_method":
        return _torch_name(str(node.target))
    if node.op != "call_function":
        return None
    if node.target is getattr:
        return _torch_name(str(node.args[1]))
    if _module(node.target) == "_operator" and not _may_be_tensor(node):
        return None
    return operator_name(node.target)


def operator_name(function: Any) -> OperatorName | None:
    """Returns the operator that a callable stands for.

    Args:
        function: A torch function or method, an operator of `torch.ops`, or one of `operator`.

    Returns:
        Its name; None when it does not belong to torch.
    """
    if isinstance(function, CustomOpDef):
        function = function._opoverload
    if isinstance(function, HigherOrderOperator):
        return OperatorName(_HIGHER_ORDER, function.__name__)
    if isinstance(function, OpOverload | OpOverloadPacket):
        qualified = (
            function._schema.name
            if isinstance(function, OpOverload)
            else function._qualified_op_name
        )
        namespace, _, name = qualified.partition("::")
        return _torch_name(name) if namespace == _ATEN else OperatorName(namespace, name)
    name = getattr(function, "__name__", None)
    if name is None or isinstance(function, type):
        return None
    if _is_torch_function(function) or _module(function) == "_operator":
        return _torch_name(name)
    name = _HIGHER_ORDER_FUNCTIONS.get(name, name)
    if _module(function).partition(".")[0] == "torch" and name in _higher_order_ops:
        return OperatorName(_HIGHER_ORDER, name)
    return None


def _torch_name(name: str) -> OperatorName:
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
    name = name.removeprefix("special_").rstrip("_")
    if name in _IN_PLACE_OR_REFLECTED:
        name = name[1:]
    name = _PYTHON_OPERATORS.get(name, name)
    name = _PROPERTIES.get(name, name)
    return OperatorName(_ATEN, _ALIASES.get(name, name))


def _parse(text: str) -> OperatorName:
    """Finds the operator that a name given by the user means."""
    namespace, colons, name = text.partition("::")
    if colons:
        if hasattr(getattr(torch.ops, namespace), name):
            return _torch_name(name) if namespace == _ATEN else OperatorName(namespace, name)
    elif "." in text:
        found = _find_dotted(text)
        if found is not None:
            return found
    else:
        known = _known_names()
        for candidate in (_torch_name(text), OperatorName(_HIGHER_ORDER, text)):
            if candidate in known:
                return candidate
        custom = [each for each in known if each.name == text]
        if len(custom) == 1:
            return custom[0]
    last = text.replace("::", ".").rpartition(".")[2]
    close = nearest(last, {name.name for name in _known_names()})
    hint = f"; did you mean {close!r}?" if close else ""
    raise OptionError(
        f"exclude_ops: there is no operator {text!r}{hint} Names look like 'sinc', 'torch.sinc', "
        "'aten.sinc' or 'my_library::my_op'"
    )


def _find_dotted(text: str) -> OperatorName | None:
    path = text.removeprefix("torch.").removeprefix("ops.")
    path = f"nn.functional.{path[2:]}" if path.startswith("F.") else path
    if path.startswith("operator."):
        found = getattr(operator, path.removeprefix("operator."), None)
        return operator_name(found) if callable(found) else None
    for root in (torch, torch.ops):
        found: Any = root
        try:
            for part in path.split("."):
                found = getattr(found, part)
            name = operator_name(found)
        except (AttributeError, RuntimeError, TypeError):
            continue
        if name is not None:
            return name
    return None


def _known_names() -> set[OperatorName]:
    """All operators there are now; custom ones may be registered at any time."""
    known = {_torch_name(name) for name in dir(torch.Tensor) if not name.startswith("_")}
    known |= {_torch_name(function.__name__) for function in _torch_functions()}
    known |= {OperatorName(_HIGHER_ORDER, name) for name in _higher_order_ops}
    for qualified in torch._C._dispatch_get_all_op_names():
        namespace, _, name = qualified.partition("::")
        name = name.partition(".")[0]
        known.add(_torch_name(name) if namespace == _ATEN else OperatorName(namespace, name))
    return {name for name in known if not name.name.startswith("_")}


@functools.lru_cache(maxsize=1)
def _torch_functions() -> frozenset[Callable[..., Any]]:
    return frozenset(f for f in get_testing_overrides() if hasattr(f, "__name__"))


def _is_torch_function(function: Callable[..., Any]) -> bool:
    if getattr(function, "__objclass__", None) is torch._C.TensorBase:
        return True
    if isinstance(function, types.BuiltinFunctionType):
        return _module(function).partition(".")[0] == "torch"
    return isinstance(function, Hashable) and function in _torch_functions()


def _node_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Checks that a function that is not torch's can be a node at all."""
    if not isinstance(function, type) and trace_rules.is_callable_allowed(function):
        return function
    name = getattr(function, "__qualname__", type(function).__name__)
    what = "is a class" if isinstance(function, type) else "is no operator of torch"
    raise OptionError(
        f"exclude_ops: {name} {what}: its operators are captured one by one, so it is never in a "
        "graph. Name those operators, or mark the function with torch.compiler.allow_in_graph"
    )


def _module(function: Any) -> str:
    return getattr(function, "__module__", None) or ""


def _may_be_tensor(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    return value is None or isinstance(value, torch.Tensor)
