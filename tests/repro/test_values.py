"""Values, functions and operators as source that gives them again."""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
import re
import sys
import types

import pytest
import torch
from torch.nn import functional

from tests.repro.capture import load
from thunder.repro import SaysHowItWasMade, ValueSource, callable_source, value_source
from thunder.repro.collecting import SourceCollector, is_installed
from thunder.repro.functions import find_definition
from thunder.repro.operators import write_operator

FACTOR = 3
TABLE = torch.tensor([1.0, 2.0])


def without_address(value) -> str:
    """Returns the same name for a value in every process, which pytest-xdist needs."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def helper(x):
    return x * FACTOR


def transform(graph_module: torch.fx.GraphModule, count: int = FACTOR, *, text="a'b\n{}") -> int:
    """Has defaults, annotations, a nested function and globals."""

    def inner(y: int) -> int:
        return helper(y) + count + len(text)

    result: int = inner(graph_module)
    return operator.add(result, int(TABLE.sum()))


@functools.lru_cache
def decorated(x):
    return x + 1


def uses_something_unprintable(x):
    return x + len(UNPRINTABLE)


UNPRINTABLE = object()


def recursive(n):
    return 1 if n == 0 else n * recursive(n - 1)


def make_adder(amount):
    return lambda x: x + amount


@dataclasses.dataclass(frozen=True)
class Option:
    level: int
    name: str = "x"


class Sayer:
    def __init__(self, *, level, hook):
        self.level, self.hook = level, hook

    def constructor_arguments(self):
        return {"level": self.level, "hook": self.hook}

    def method(self, x):
        return x + self.level


class Silent:
    pass


class Colour(enum.Enum):
    RED = 1


def evaluate(source: ValueSource):
    namespace: dict = {}
    exec("\n".join([*source.imports, *source.definitions]), namespace)
    return eval(source.expression, namespace)


PLAIN = [
    1,
    "it's \"quoted\"\n{x} '''",
    b"\x00'",
    None,
    True,
    float("inf"),
    complex(1, float("-inf")),
    (1,),
    (),
    [1, [2]],
    {"a": (1, None), 2: []},
    slice(1, None, 2),
    range(3),
    ...,
    torch.float16,
    torch.device("cpu"),
    torch.strided,
    torch.channels_last,
    torch.Size([1, 2]),
    torch.sin,
    torch._C._nn.linear,
    torch.Tensor.add_,
    torch.nn.functional.gelu,
    torch.nn.Linear,
    torch.ops.aten.sin,
    torch.ops.aten.sin.default,
    torch.ops.higher_order.cond,
    torch.nn.attention.SDPBackend.MATH,
    torch.distributed.ReduceOp.SUM,
    operator.itemgetter,
    len,
    dataclasses.Field,
]


@pytest.mark.parametrize("value", PLAIN, ids=without_address)
def test_importable_and_literal_values(value):
    source = value_source(value)
    assert source.faithful and not source.notes
    assert evaluate(source) == value


def test_not_a_number():
    found = evaluate(value_source(float("nan")))
    assert found != found


def test_tensors_are_listed():
    for tensor in (torch.tensor([[1.5, float("nan")]]), torch.tensor(3), torch.zeros(0, 2)):
        made = evaluate(value_source(tensor))
        torch.testing.assert_close(made, tensor, equal_nan=True, rtol=0, atol=0)
    assert value_source(torch.zeros(100, 100)).missing == ("a torch.Tensor",)


def test_function_of_the_program_is_written_out():
    source = value_source(transform)
    assert source.faithful
    assert "import tests" not in "\n".join(source.imports)
    assert evaluate(source)(4) == transform(4)
    assert "FACTOR = 3" in source.definitions


def test_decorators_are_left_out():
    assert evaluate(value_source(decorated.__wrapped__))(1) == 2


def test_recursive_function():
    assert evaluate(value_source(recursive))(5) == 120


def test_lambdas_and_closures_keep_their_own_variables():
    first, second = evaluate(value_source([make_adder(1), make_adder(20)]))
    assert (first(0), second(0)) == (1, 20)
    pair = [lambda x: x + 1, lambda x: x + 2]
    assert [f(0) for f in evaluate(value_source(pair))] == [1, 2]


def test_partial_and_method():
    assert evaluate(value_source(functools.partial(helper, x=2)))() == 6
    source = value_source(Sayer(level=2, hook=helper).method)
    assert evaluate(source)(1) == 3


def test_function_that_refers_to_the_unprintable_is_imported_with_a_note():
    source = value_source(uses_something_unprintable)
    assert source.expression == "tests.repro.test_values.uses_something_unprintable"
    assert any("tests.repro.test_values" in note for note in source.notes)


def test_function_of_main_that_cannot_be_written_is_a_gap():
    function = types.FunctionType(
        uses_something_unprintable.__code__, {"UNPRINTABLE": object(), "__name__": "__main__"}
    )
    function.__module__ = "__main__"
    source = value_source([function, 1])
    assert source.missing == ("the function __main__.uses_something_unprintable",)
    assert evaluate(source) == [1]
    assert "# FILL IN: the function __main__.uses_something_unprintable" in source.expression


def test_objects_that_say_how_they_were_made():
    assert evaluate(value_source(Option(2))) == Option(2)
    sayer = Sayer(level=2, hook=[helper])
    assert isinstance(sayer, SaysHowItWasMade)
    made = evaluate(value_source({"hook": sayer}))["hook"]
    assert made.level == 2 and made.hook[0](1) == 3


def test_a_gap_is_marked_and_named():
    source = value_source([Silent(), 2, (Silent(),)])
    assert not source.faithful
    assert source.missing == ("a tests.repro.test_values.Silent",)
    assert evaluate(source) == [2, ()]
    assert source.expression.count("# FILL IN: a tests.repro.test_values.Silent") == 2
    assert value_source(Silent()).expression == "None"


def test_a_call_with_a_gap_in_it_is_a_gap():
    source = value_source([Sayer(level=1, hook=Silent()), functools.partial(helper, Silent()), 2])
    assert evaluate(source) == [2]
    assert source.expression.count("FILL IN") == 2


def test_nothing_in_the_text_names_this_machine():
    text = str(value_source([Silent(), object(), {"x": Silent}]))
    assert "0x" not in text and "/" not in text


def test_what_is_installed():
    assert is_installed("torch") and is_installed("json") and is_installed("math")
    assert is_installed("torch._C._nn") and is_installed("thunder.repro")
    assert not is_installed("__main__") and not is_installed("tests.repro.test_values")
    assert not is_installed("no_such_module")


def test_definition_is_found_only_when_it_is_clear():
    two = [lambda x: x + 1, lambda x: x + 2]
    assert [find_definition(f).body.right.value for f in two] == [1, 2]
    namespace: dict = {}
    exec("def made(x):\n    return x", namespace)
    assert find_definition(namespace["made"]) is None
    assert not value_source(namespace["made"]).faithful


def test_names_do_not_clash():
    collector = SourceCollector(reserved={"x"})
    assert not collector.define("x", "x = 1")
    assert collector.define("y", "y = 1") and collector.define("y", "y = 1")
    assert not collector.define("y", "y = 2")


OPERATORS = """
import torch

SCALE = 2.0


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


@torch.library.custom_op("repro_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return twice(x)


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


doubled.register_autograd(lambda ctx, g: g * SCALE)


@torch.library.custom_op("repro_tests::bump_", mutates_args={"x"})
def bump_(x: torch.Tensor, by: float = 1.5) -> None:
    x.add_(by)


@bump_.register_fake
def _(x, by=1.5):
    return None


@torch.library.custom_op("repro_tests::by_device", mutates_args=(), device_types="cpu")
def by_device(x: torch.Tensor) -> torch.Tensor:
    return x + 1


torch.library.define("repro_tests::plain", "(Tensor x) -> Tensor")
torch.library.impl("repro_tests::plain", "cpu", lambda x: x.clone())
"""


@pytest.fixture(scope="module")
def operators(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program_with_operators.py"
    path.write_text(OPERATORS)
    module = load(path)
    sys.modules["program_with_operators"] = module
    module.__dict__["__file__"] = str(path)
    yield module
    del sys.modules["program_with_operators"]


@pytest.mark.parametrize("name", ["doubled", "bump_", "by_device"])
def test_custom_operator_is_defined_again(operators, name):
    collector = SourceCollector()
    operator_ = getattr(torch.ops.repro_tests, name).default
    written = write_operator(operator_, collector)
    assert written == f"torch.ops.repro_tests.{name}.default"
    assert not collector.missing
    text = "\n".join([*collector.imports(), *collector.definitions.values()])
    assert "program_with_operators" not in text
    # Under another name, since this process has the operator already.
    again: dict = {}
    exec(text.replace("repro_tests::", "repro_tests_again::"), again)
    made = getattr(torch.ops.repro_tests_again, name).default
    assert str(made._schema).replace("_again", "") == str(operator_._schema)
    x = torch.ones(2, requires_grad=name == "doubled")
    if name == "bump_":
        made(x)
        assert x.tolist() == [2.5, 2.5]
        return
    value = made(x)
    assert value.tolist() == [2, 2]
    if name == "doubled":
        value.sum().backward()
        assert x.grad.tolist() == [2, 2]


def test_operator_without_source_is_a_gap(operators):
    collector = SourceCollector()
    write_operator(torch.ops.repro_tests.plain.default, collector)
    (gap,) = collector.missing
    assert "repro_tests::plain(Tensor x) -> Tensor" in gap


def test_operators_of_torch_need_nothing():
    collector = SourceCollector()
    assert write_operator(torch.ops.aten.add, collector) == "torch.ops.aten.add"
    assert write_operator(torch.ops.prims.sin.default, collector) == "torch.ops.prims.sin.default"
    assert set(collector.imports()) <= {"import torch", "import torch._prims"}
    assert not collector.definitions


def run_callable(source, *inputs):
    namespace: dict = {}
    support = "class Keywords:\n    def __init__(self, function, names): self.all = function, names"
    exec("\n".join([*source.imports, support, *source.definitions]), namespace)
    return eval(source.construction, namespace)(*inputs)


def test_plain_function_as_what_a_script_runs():
    source = callable_source(helper)
    assert source.faithful
    assert run_callable(source, 2) == 6
    with_keywords = callable_source(helper, keywords=["x"])
    assert with_keywords.construction == "Keywords(helper, ['x'])"
    hooked = torch.nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *args: None)
    gap = callable_source(hooked)
    assert not gap.faithful and gap.construction.startswith("fill_in('torch.nn")


aten = torch.ops.aten
operators_of_torch = torch.ops
MADE_UP = types.ModuleType("made.up")


def calls_operators(x):
    return aten.sin(operators_of_torch.aten.cos(functional.relu(x)))


def make_with_module():
    import math as m  # noqa: PLC0415 - a module in a closure is the point

    return lambda x: m.floor(x)


def refers_to_a_made_up_module(x):
    return x + MADE_UP.number


def test_objects_that_pose_as_modules_are_no_imports():
    source = callable_source(calls_operators)
    assert source.faithful and not source.notes
    assert set(source.imports) == {"import torch", "import torch.nn.functional"}
    x = torch.linspace(-1, 1, 4)
    torch.testing.assert_close(run_callable(source, x), calls_operators(x))
    assert run_callable(callable_source(make_with_module()), 1.5) == 1


def test_modules_that_nobody_can_import_are_gaps():
    assert value_source([MADE_UP]).missing == ("the module made.up",)
    assert value_source([sys.modules["__main__"]]).missing == ("the module __main__",)
    assert value_source(torch.ops.thunder_unknown).notes == (
        "uses operators of torch.ops.thunder_unknown: import here what defines them",
    )


def test_a_gap_in_a_function_of_main_is_marked_where_it_is():
    namespace = dict(vars(sys.modules[__name__]), __name__="__main__")
    function = types.FunctionType(refers_to_a_made_up_module.__code__, namespace)
    source = callable_source(function)
    assert source.missing == ("MADE_UP, the module made.up",)
    assert "MADE_UP = None  # FILL IN: MADE_UP, the module made.up" in source.definitions
    assert source.construction == "refers_to_a_made_up_module"


def test_names_of_the_script_itself_are_not_taken():
    namespace = dict(vars(sys.modules[__name__]), __name__="__main__")
    function = types.FunctionType(helper.__code__, namespace, "run")
    source = callable_source(function)
    assert source.construction == "run_1"
