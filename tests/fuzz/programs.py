"""Generated programs: arguments that may share memory, statements, and outputs of any structure.

Each statement is tried in eager mode while a program is drawn, backward included, and left out
when eager refuses it. So programs are valid whatever is drawn, and shrink line by line.
"""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from tests.dynamo.split_backend import observe

MOST_ELEMENTS = 4096

_SHAPES = ("()", "(3,)", "(4,)", "(1, 4)", "(3, 1)", "(3, 4)", "(4, 4)", "(2, 3, 4)", "(0, 4)")
_ARGUMENTS = (
    "torch.randn({shape})",
    "torch.randn({shape}).requires_grad_()",
    "torch.randn({shape}).to(torch.bfloat16).requires_grad_()",
    "torch.randn({shape}, dtype=torch.float64)",
    "torch.randint(-3, 4, {shape})",
    "torch.randn({shape}) > 0",
    "torch.randn({shape}, dtype=torch.complex64).requires_grad_()",
)
_SHARED = ("{x}", "{x}.detach()", "{x}.detach()[1:]", "{x}.detach().mT", "{x}.detach().flatten()")

_EXPRESSIONS = (
    *(f"torch.{name}({{x}})" for name in ("sin", "tanh", "sigmoid", "abs", "relu", "sign", "neg")),
    *(f"{{x}} {operator} {{y}}" for operator in ("+", "-", "*", "+", "*", "/", ">", "==")),
    *("torch.maximum({x}, {y})", "torch.where({x} > 0, {y}, {x})", "torch.atan2({x}, {y})"),
    *("{x} @ {y}", "torch.cat([{x}, {y}])", "torch.stack([{x}, {y}], -1)", "torch.add({x}, 2)"),
    *("{x} * 1.5", "2 - {x}", "{x} ** 2", "{x} % 3", "{x}.clamp(-1, 1)", "{x} // 2"),
    *("{x}.sum()", "{x}.sum(0)", "{x}.mean(-1, keepdim=True)", "{x}.amax(0)", "{x}.cumsum(0)"),
    *("{x}.softmax(-1)", "{x}.argmax()", "{x}.prod()", "{x}.any()", "{x}.var(-1)", "{x}.norm()"),
    *("{x}.to(torch.bfloat16)", "{x}.float()", "{x}.double()", "{x}.long()", "{x}.bool()"),
    *("{x}.to({y}.dtype)", "{x}.type_as({y})", "{x}.clone()", "{x}.contiguous()", "{x}.flip(0)"),
    *("torch.zeros_like({x})", "{x}.new_ones(4)", "torch.full_like({x}, 2)", "{x}.tril()"),
    *("torch.nn.functional.dropout({x}, 0.5)", "torch.rand_like({x})", "torch.randn(4) * {x}"),
    *("torch.nn.functional.layer_norm({x}, {x}.shape[-1:])", "torch.nn.functional.gelu({x})"),
    *("{x}[{x} > 0]", "{x}[torch.tensor([0, -1])]", "{x}.gather(0, torch.zeros_like({x}).long())"),
)
_VIEWS = (
    *("{x}.mT", "{x}.transpose(0, -1)", "{x}[0]", "{x}[..., 1:]", "{x}[:, None]", "{x}[::2]"),
    *("{x}.expand(2, *{x}.shape)", "{x}.reshape(-1)", "{x}.view(-1)", "{x}.unsqueeze(0)"),
    *("{x}.squeeze()", "{x}.diagonal()", "{x}.chunk(2)[-1]", "{x}.detach()", "{x}.view_as({x})"),
    *("{x}.narrow(0, 1, 1)", "{x}.unfold(0, 2, 1)", "{x}.movedim(0, -1)", "{x}.real", "{x}.conj()"),
    *("torch.view_as_real({x})", "{x}.as_strided((2, 2), (1, 2))", "{x}.view(torch.int32)", "{x}"),
)
_CHANGES = (
    *(
        "{x}.add_({y})",
        "{x}.mul_({y})",
        "{x}.mul_(2)",
        "{x}.sin_()",
        "{x}.copy_({y})",
        "{x} += {y}",
    ),
    *("{x}.zero_()", "{x}.clamp_(-1, 1)", "{x}[0] = {y}", "{x}[..., -1] = 1.5", "{x}[{x} > 0] = 0"),
    *(
        "{x}.masked_fill_({x} > 0, 1)",
        "{x}.relu_()",
        "{x}.t_()",
        "{x}.unsqueeze_(0)",
        "{x}.sub_(1)",
    ),
    *("{x}.index_add_(0, torch.tensor([0]), {y})", "{x}.fill_({y}.sum())", "{x}.bernoulli_(0.5)"),
    *("{x}.detach().add_({y}.detach())", "{x}.view(-1)[0] = 7", "{x}.squeeze_()", "{x}.neg_()"),
)
_PAIRS = (
    *("{x}.chunk(2)", "torch.max({x}, 0)", "torch.sort({x}, 0)", "torch.topk({x}, 1)"),
    *("({x}, {x} * 2)", "({x}[0], {x}[-1])", "torch.aminmax({x})", "torch.frexp({x})"),
)
_BREAKS = (
    "torch._dynamo.graph_break()",
    "if {x}.sum() > 0:\n    {z} = {e}\nelse:\n    {z} = {f}",
    "if {x}.ndim > 1:\n    {z} = {e}\nelse:\n    {z} = {f}",
    "{z} = {y} * int({x}.sum().item() > 0)",
    "for step in range(2):\n    {z} = {e} + step",
)
_MODES = ("no_grad()", "enable_grad()", "autocast('cpu', dtype=torch.bfloat16)")
_RETURNS = ("{}", "[{}]", "({},)", "{{'first': [{}], 'second': 3}}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program with its arguments.

    Attributes:
        arguments: An expression for each argument; later ones may use earlier ones.
        statements: The body, a statement each, which may have several lines.
        result: The expression that is returned.
    """

    arguments: tuple[str, ...]
    statements: tuple[str, ...]
    result: str

    @property
    def names(self) -> str:
        return ", ".join(f"a{at}" for at in range(len(self.arguments)))

    def __repr__(self) -> str:
        """Returns the source, which runs by itself; Hypothesis prints it."""
        made = [f"    a{at} = {expression}" for at, expression in enumerate(self.arguments)]
        body = [f"    {line}" for each in self.statements for line in each.splitlines()]
        lines = [
            *("import torch", "", ""),
            *("def make_arguments(seed):", "    torch.manual_seed(seed)", *made),
            *(f"    return [{self.names}]", "", ""),
            *(f"def program({self.names}):", *body, f"    return {self.result}", ""),
        ]
        return "\n".join(lines)

    def build(self) -> tuple[Callable[..., Any], Callable[[int], list[Any]]]:
        """Returns the function, and what makes its arguments from a seed."""
        return build(repr(self))


def build(source: str) -> tuple[Callable[..., Any], Callable[[int], list[Any]]]:
    """Makes `program` and `make_arguments` of a printed program; Dynamo finds its source."""
    name = "<generated program>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    return namespace["program"], namespace["make_arguments"]


@st.composite
def programs(draw: st.DrawFn, most_statements: int = 12) -> Program:
    """Draws programs."""
    writer = _Writer(draw)
    for _ in range(draw(st.integers(3, most_statements))):
        writer.add_statement()
    return writer.finish()


class _Writer:
    """Writes one program.

    Attributes:
        values: Names of the tensors so far.
        drawn: Those of them that were made with random numbers.
    """

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.arguments: list[str] = []
        for at in range(draw(st.integers(1, 3))):
            self._add_argument(at)
        self.values = [f"a{at}" for at in range(len(self.arguments))]
        self.drawn: list[str] = []
        self.statements: list[str] = []

    def finish(self) -> Program:
        outputs = self.draw(st.lists(st.sampled_from(self.values[::-1]), min_size=1, max_size=4))
        # Compilers leave out what nobody uses, and then draw fewer random numbers than eager.
        outputs += [name for name in self.drawn if name not in outputs]
        result = self.draw(st.sampled_from(_RETURNS)).format(", ".join(outputs))
        return self._program(self.statements, result)

    def add_statement(self) -> None:
        name = f"v{len(self.values)}"
        kind = self.draw(st.integers(0, 19))
        if kind < 7:
            self._try(f"{name} = {self._expression()}", name)
        elif kind < 11:
            self._try(f"{name} = {self._fill(self.draw(st.sampled_from(_VIEWS)))}", name)
        elif kind < 16:
            self._try(self._fill(self.draw(st.sampled_from(_CHANGES))))
        elif kind < 17:
            pair = self._fill(self.draw(st.sampled_from(_PAIRS)))
            self._try(f"{name}, {name}b = {pair}", name, f"{name}b")
        elif kind < 18:
            mode = self.draw(st.sampled_from(_MODES))
            self._try(f"with torch.{mode}:\n    {name} = {self._expression()}", name)
        else:
            template = self.draw(st.sampled_from(_BREAKS))
            self._try(self._fill(template, z=name), *([name] if "{z}" in template else []))

    def _add_argument(self, at: int) -> None:
        if at and self.draw(st.integers(0, 3)) == 0:
            earlier = f"a{self.draw(st.integers(0, at - 1))}"
            expression = self.draw(st.sampled_from(_SHARED)).format(x=earlier)
        else:
            shape = self.draw(st.sampled_from(_SHAPES))
            expression = self.draw(st.sampled_from(_ARGUMENTS)).format(shape=shape)
        program = Program(arguments=(*self.arguments, expression), statements=(), result="0")
        valid = _is_valid(program)
        self.arguments.append(expression if valid else "torch.randn(3, 4)")

    def _expression(self) -> str:
        return self._fill(self.draw(st.sampled_from(_EXPRESSIONS)))

    def _fill(self, template: str, **names: str) -> str:
        # Recent values more often than others: programs get deep.
        pick = st.sampled_from(self.values[::-1])
        found = {name: self.draw(pick) for name in "xy" if f"{{{name}}}" in template}
        for name in "ef":
            if f"{{{name}}}" in template:
                found[name] = self._expression()
        return template.format(**found, **names)

    def _try(self, statement: str, *names: str) -> None:
        """Adds a statement when eager takes it."""
        values = [*self.values, *names]
        statements = [*self.statements, statement]
        if _is_valid(self._program(statements, f"[{', '.join(values)}]")):
            self.statements, self.values = statements, values
            if "rand" in statement or "dropout" in statement:
                self.drawn += names

    def _program(self, statements: list[str], result: str) -> Program:
        return Program(arguments=tuple(self.arguments), statements=tuple(statements), result=result)


def _is_valid(program: Program) -> bool:
    function, make_arguments = program.build()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen = observe(function, make_arguments(0))
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
        return False
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(seen) if torch.is_tensor(leaf)]
    return all(tensor.numel() <= MOST_ELEMENTS for tensor in tensors)
