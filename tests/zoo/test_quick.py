"""A few architectures of different kinds, in every run of the tests; and the judge itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import BambaConfig, Gemma2Config, LlavaConfig, SwinConfig

from tests.zoo.architectures import model_types
from tests.zoo.cases import Case, NoCaseError, make_case
from tests.zoo.excuses import Excuse, excuse_for, read_excuses
from tests.zoo.judging import Mode, Verdict, judge
from tests.zoo.scripts import run_scripts
from tests.zoo.shrinking import Plan, shrink
from thunder import thunderfx

QUICK = {
    "llama": Mode.TRAIN,
    "mixtral": Mode.TRAIN_BFLOAT16,  # experts
    "gpt2": Mode.EVALUATE_BFLOAT16,
    "bert": Mode.EVALUATE_BFLOAT16,  # an encoder with a mask
    "bart": Mode.TRAIN_BFLOAT16,  # an encoder and a decoder
    "vit": Mode.TRAIN_BFLOAT16,
    "resnet": Mode.TRAIN_BFLOAT16,  # buffers that change
    "clip": Mode.EVALUATE,  # images and text
}


@pytest.mark.parametrize(("model_type", "mode"), QUICK.items(), ids=QUICK)
def test_as_in_eager(model_type, mode):
    judgement = judge(make_case(model_type), mode)
    assert judgement.verdict == Verdict.PASSED.value, judgement.problem
    assert judgement.graphs and not judgement.splits


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x)


def line() -> Case:
    torch.manual_seed(0)
    sizes = [{"x": torch.randn(count, 3)} for count in (4, 5)]
    return Case(model=Line(), inputs=sizes[0], other=sizes[1], resized=True)


def wrongly(model: nn.Module, mode: Mode):
    return thunderfx(lambda **inputs: model(**inputs) * 1.05, executors="aten")


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.value)
def test_a_wrong_compiler_is_found(mode):
    judgement = judge(line(), mode, wrongly)
    assert judgement.verdict == Verdict.FAILED.value
    assert not judgement.acceptable
    assert "further from float64" in judgement.problem


def test_what_eager_cannot_run_is_not_judged():
    wide = {"x": torch.ones(2, 5)}
    judgement = judge(Case(model=Line(), inputs=wide, other=wide, resized=False), Mode.TRAIN)
    assert judgement.verdict == Verdict.NOT_IN_EAGER.value
    assert "mat1 and mat2 shapes" in judgement.problem
    assert judgement.acceptable


class Odd(nn.Module):
    def forward(self, x):
        return x * 2 if torch.compiler.is_compiling() else x * 3


class Broken(nn.Module):
    def forward(self, x):
        return x.reshape(7, 7) if torch.compiler.is_compiling() else x


def with_module(model: nn.Module) -> Case:
    case = line()
    return Case(model=model, inputs=case.inputs, other=case.other, resized=True)


@pytest.mark.parametrize("model", [Odd(), Broken()], ids=["Odd", "Broken"])
def test_what_aot_eager_does_is_the_rule(model):
    judgement = judge(with_module(model), Mode.EVALUATE)
    assert judgement.verdict == Verdict.AS_AOT_EAGER.value
    assert judgement.acceptable
    assert judgement.rule


def test_what_aot_eager_does_in_another_way_is_no_excuse():
    judgement = judge(with_module(Odd()), Mode.EVALUATE, wrongly)
    assert judgement.verdict == Verdict.FAILED.value
    assert judgement.rule


def test_sizes_follow_from_names():
    config = shrink(Gemma2Config())
    sizes = (config.hidden_size, config.num_attention_heads, config.head_dim, config.vocab_size)
    assert sizes == (64, 4, 16, 128)
    assert config.layer_types == ["sliding_attention", "full_attention"]  # one of each kind
    assert config.num_hidden_layers == 2


def test_parts_are_shrunk_too():
    config = shrink(LlavaConfig())
    assert (config.text_config.hidden_size, config.vision_config.hidden_size) == (64, 64)
    assert config.text_config.vocab_size > config.image_token_index


def test_stages_keep_their_ratios_and_their_number():
    config = shrink(SwinConfig())
    assert (config.embed_dim, list(config.depths)) == (16, [1, 1, 1, 1])
    assert list(config.num_heads) == [1, 2, 4, 8]
    assert list(shrink(SwinConfig(), plan=Plan(keeps_stages=True)).depths) == [2, 2, 6, 2]


def test_overrides_come_first():
    config = shrink(BambaConfig(), {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1})
    assert (config.mamba_n_heads, config.mamba_d_head) == (8, 16)


def test_what_cannot_be_made_says_why():
    with pytest.raises(NoCaseError, match="part of another architecture"):
        make_case("blip_text_model")


def test_types_are_those_with_a_class():
    types = model_types()
    assert {"llama", "vit", "whisper"} <= set(types)
    assert "blip_text_model" not in types


def test_excuses_are_read(tmp_path):
    path = tmp_path / "excused.txt"
    path.write_text(
        "# why\n\nbert | train | because | of that\ndetr | not made | needs the library x\n"
    )
    excuses = read_excuses(path)
    wanted = Excuse(model_type="bert", what="train", reason="because | of that")
    assert excuse_for(excuses, "bert", "train") == wanted
    assert excuse_for(excuses, "bert", "eval") is None
    assert [excuse.depends_on_environment for excuse in excuses] == [False, True]


def test_scripts_run():
    assert list(run_scripts("llama")) == ["graph0_thunder_0_repro.py"]
