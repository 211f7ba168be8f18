"""The division of keywords between torch.compile and ThunderCompiler."""

from __future__ import annotations

import inspect

import pytest
import torch

from thunder.dynamo.compiler import EntryPoint
from thunder.dynamo.options import Owner, divide_options, known_options, option_parameters
from thunder.errors import OptionError

ISOLATED = (
    {"isolate_recompiles": True}
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters
    else {}
)


def shares(**options):
    divided = divide_options(options)
    return dict(divided.torch_compile), dict(divided.compiler)


def patch_torch_compile(monkeypatch, signature):
    """Makes torch.compile a function of another torch version, by its signature alone."""

    def compile(model=None, **keywords):
        raise AssertionError("only its signature is looked at")

    compile.__signature__ = inspect.signature(signature, eval_str=True)
    monkeypatch.setattr(torch, "compile", compile)


def test_each_keyword_goes_to_whoever_declares_it():
    of_torch, of_thunder = shares(fullgraph=True, dynamic=None, on_failure="raise")
    assert of_torch == {"fullgraph": True, "dynamic": None, **ISOLATED}
    assert of_thunder == {"on_failure": "raise"}


@pytest.mark.parametrize(
    "shared", [{"mode": "max-autotune"}, {"options": {"max_autotune": True}}], ids=repr
)
def test_a_keyword_of_both_goes_to_both(shared):
    of_torch, of_thunder = shares(**shared)
    assert of_torch == {**shared, **ISOLATED}
    assert of_thunder == shared


def test_a_newer_torch_compile_may_share_more_keywords(monkeypatch):
    def newer(model=None, *, backend="inductor", debug=False, fullgraph=False):
        pass

    patch_torch_compile(monkeypatch, newer)
    assert shares(debug=True) == ({"debug": True}, {"debug": True})
    assert known_options()["debug"] is Owner.BOTH


def test_a_newer_torch_compile_with_any_keyword_gets_the_rest(monkeypatch):
    def newer(model=None, *, backend="inductor", mode=None, **more):
        pass

    patch_torch_compile(monkeypatch, newer)
    of_torch, of_thunder = shares(mode="default", contest="off", unheard_of=3)
    assert of_torch == {"mode": "default", "unheard_of": 3}
    assert of_thunder == {"mode": "default", "contest": "off"}
    assert option_parameters()[-1].kind is inspect.Parameter.VAR_KEYWORD
    with pytest.raises(OptionError, match="backend"):
        divide_options({"backend": "inductor"})


def test_keywords_that_may_also_be_positional_are_found(monkeypatch):
    def older(model=None, fullgraph=False, backend="inductor"):
        pass

    patch_torch_compile(monkeypatch, older)
    assert shares(fullgraph=True) == ({"fullgraph": True}, {})
    assert next(iter(known_options())) == "fullgraph"


def test_recompiles_are_isolated_where_torch_can_unless_the_user_decides(monkeypatch):
    def newer(model=None, *, isolate_recompiles=False):
        pass

    def older(model=None):
        pass

    patch_torch_compile(monkeypatch, newer)
    assert shares()[0] == {"isolate_recompiles": True}
    assert shares(isolate_recompiles=False)[0] == {"isolate_recompiles": False}
    assert next(iter(option_parameters())).default is True
    patch_torch_compile(monkeypatch, older)
    assert shares()[0] == {}


def test_what_torch_takes_out_of_options_does_not_reach_the_compiler():
    settings = {"guard_filter_fn": len, "max_autotune": True}
    of_torch, of_thunder = shares(options=settings)
    assert of_torch["options"] == settings
    assert of_thunder["options"] == {"max_autotune": True}


def test_a_call_of_torch_compile_cannot_change_the_options():
    settings = {"guard_filter_fn": len}
    divided = divide_options({"options": settings})
    divided.make_torch_options()["options"].clear()
    assert settings == {"guard_filter_fn": len}
    assert divided.make_torch_options()["options"] == settings


@pytest.mark.parametrize(
    "name, hint",
    [
        ("fullgrap", "did you mean 'fullgraph', an option of torch.compile?"),
        ("transform", "did you mean 'transforms', an option of ThunderCompiler?"),
        ("optionz", "did you mean 'options', an option of both torch.compile and ThunderCompiler?"),
        ("max_autotune", "a setting of Inductor: write options={'max_autotune': 1}"),
        ("model", "did you mean 'mode'"),
    ],
)
def test_an_unknown_keyword_gets_the_nearest_known_one(name, hint):
    with pytest.raises(OptionError) as caught:
        divide_options({name: 1})
    assert isinstance(caught.value, TypeError)
    assert str(caught.value).startswith(f"{name!r} is no option of thunderfx; ")
    assert hint in str(caught.value)


def test_the_entry_point_is_named():
    with pytest.raises(OptionError, match="'zzz' is no option of jit"):
        divide_options({"zzz": 1}, EntryPoint.JIT)


def test_an_unknown_keyword_like_no_other_gets_the_list():
    with pytest.raises(OptionError) as caught:
        divide_options({"zzz": 1})
    for name in known_options():
        assert name in str(caught.value)


def test_backend_is_refused_with_the_reason():
    with pytest.raises(OptionError, match=r"backend=B\) where B is a ThunderCompiler.*executors="):
        divide_options({"backend": "inductor"})


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"fullgraph": 1}, "fullgraph=1 is not accepted; fullgraph= takes bool"),
        ({"dynamic": "auto"}, "dynamic='auto' is not accepted; dynamic= takes bool or None"),
        ({"disable": None}, "disable=None is not accepted; disable= takes bool"),
        ({"mode": 3}, "mode=3 is not accepted; mode= takes str or None"),
        ({"options": ["max_autotune"]}, "options= takes a dict of Inductor settings"),
        ({"mode": "default", "options": {}}, "mode= and options= cannot both be given"),
    ],
    ids=repr,
)
def test_a_wrong_value_is_refused(wrong, message):
    with pytest.raises(OptionError) as caught:
        divide_options(wrong)
    assert message in str(caught.value)


def test_a_bool_is_no_number(monkeypatch):
    def newer(model=None, *, recompile_limit: int | None = None):
        pass

    patch_torch_compile(monkeypatch, newer)
    assert shares(recompile_limit=3) == ({"recompile_limit": 3}, {})
    with pytest.raises(OptionError, match="recompile_limit= takes int or None"):
        divide_options({"recompile_limit": True})


def test_the_parameters_are_the_union_with_types_and_defaults():
    parameters = {parameter.name: parameter for parameter in option_parameters()}
    assert list(parameters) == list(known_options())
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters.values())
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters.values())
    assert parameters["fullgraph"].annotation is bool
    assert parameters["fullgraph"].default is False
    assert parameters["on_failure"].default == "fallback"
    assert "backend" not in parameters
    assert "model" not in parameters
