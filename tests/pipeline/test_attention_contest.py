"""The contest between attention kernels. On a CPU it is held between two kernels that exist there.

What it decides between torch's kernels on a GPU is in tests/gpu/test_contest.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from thunder.pipeline import attention_contest as contest_module
from thunder.pipeline.attention_contest import AttentionContest, attention_contest, hold
from thunder.pipeline.attention_problem import AttentionProblem, TensorFacts, attention_problem
from thunder.pipeline.options import make_options
from thunder.transforms.attention_backend import attention_by_flash, attention_by_math

KERNELS = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))


@pytest.fixture
def kernels_of_a_cpu(monkeypatch):
    monkeypatch.setattr(AttentionProblem, "kernels", lambda problem: list(KERNELS))
    monkeypatch.setattr(
        contest_module, "_KERNELS", [*KERNELS, SDPBackend.EFFICIENT_ATTENTION], raising=True
    )


@pytest.fixture
def math_is_slow(monkeypatch):
    times = {"MATH": 50.0, "FLASH_ATTENTION": 10.0}
    measured = []

    def measure(ready, devices):
        measured.append(list(ready))
        for prepare in ready.values():
            prepare()()
        return {name: times[name] for name in ready}

    monkeypatch.setattr(contest_module, "times_in_turns", measure)
    return measured


def facts(*shape, dtype=torch.float32, requires_grad=False):
    x = torch.empty(shape)
    return TensorFacts(
        shape=shape,
        stride=x.stride(),
        dtype=dtype,
        device=x.device,
        requires_grad=requires_grad,
    )


def problem(**changes):
    x = facts(2, 3, 32, 8, requires_grad=True)
    plain = AttentionProblem(
        query=x, key=x, value=x, attn_mask=None, is_causal=True, scale=None, enable_gqa=False
    )
    return replace(plain, **changes)


def captured(function, *inputs):
    graphs = []

    def keep(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module

    torch._dynamo.reset()
    torch.compile(function, backend=keep)(*inputs)
    return graphs[0]


def attend(x):
    return scaled_dot_product_attention(x * 2, x, x).sin() + scaled_dot_product_attention(x, x, x)


def calls_in(graph_module):
    targets = (scaled_dot_product_attention, attention_by_flash, attention_by_math)
    return [node.target for node in graph_module.graph.nodes if node.target in targets]


def test_kernels_are_judged_and_timed():
    verdict = hold(problem(), KERNELS)
    assert verdict is not None and not verdict.rejected
    assert list(verdict.milliseconds) == ["MATH", "FLASH_ATTENTION"]
    assert all(ms > 0 for ms in verdict.milliseconds.values())


def test_one_kernel_is_no_contest():
    assert hold(problem(), KERNELS[:1]) is None


def test_a_wrong_kernel_is_rejected(monkeypatch):
    def by_backend(kernel):
        is_wrong = kernel is SDPBackend.FLASH_ATTENTION
        return lambda *args, **kwargs: (
            scaled_dot_product_attention(*args, **kwargs) * (1.001 if is_wrong else 1)
        )

    monkeypatch.setattr(contest_module, "by_backend", by_backend)
    verdict = hold(problem(), KERNELS)
    assert verdict is not None and verdict.winner == "MATH"
    assert "is not accurate" in verdict.rejected["FLASH_ATTENTION"]


def test_a_kernel_with_another_layout_is_rejected(monkeypatch):
    def by_backend(kernel):
        def attention(*args, **kwargs):
            result = scaled_dot_product_attention(*args, **kwargs)
            if kernel is SDPBackend.FLASH_ATTENTION:
                return result.transpose(1, 2).contiguous().transpose(1, 2)
            return result.contiguous()

        return attention

    monkeypatch.setattr(contest_module, "by_backend", by_backend)
    verdict = hold(problem(), KERNELS)
    assert verdict is not None and verdict.winner == "MATH"
    assert verdict.rejected == {"FLASH_ATTENTION": "returns another memory layout"}


def test_a_problem_of_one_group_has_the_kernels_shape():
    x, y = facts(4, 6, 16, 8), facts(4, 2, 16, 8)
    whole = problem(query=x, key=y, value=y, enable_gqa=True, attn_mask=facts(4, 1, 16, 16))
    part = whole.of_one_group()
    assert (part.query.shape, part.key.shape) == ((1, 3, 16, 8), (1, 1, 16, 8))
    assert part.attn_mask is not None and part.attn_mask.shape == (1, 1, 16, 16)
    assert part.score_bytes == 8 * 3 * 16 * 16


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize("stride", [(256, 256, 16, 1), (0, 0, 16, 1), (16, 16, 0, 1)])
def test_masks_have_the_layout_and_rows_that_hide_everything(dtype, stride):
    mask = TensorFacts(
        shape=(2, 3, 16, 16),
        stride=stride,
        dtype=dtype,
        device=torch.device("cpu"),
        requires_grad=False,
    ).make_mask()
    assert (mask.shape, mask.stride(), mask.dtype) == ((2, 3, 16, 16), stride, dtype)
    if stride[-2]:
        hidden = ~mask if dtype is torch.bool else mask == -torch.inf
        assert hidden[0, 0, 0].all() and 0 < hidden[..., 2:, :].float().mean() < 0.5


def test_calls_are_read_from_the_graph():
    x = torch.randn(2, 3, 16, 8, requires_grad=True).transpose(1, 2)
    graph_module = captured(lambda x: scaled_dot_product_attention(x, x, x, scale=0.5), x)
    (found,) = filter(None, map(attention_problem, graph_module.graph.nodes))
    assert (found.query.shape, found.query.stride) == (tuple(x.shape), x.stride())
    assert (found.scale, found.is_causal, found.query.requires_grad) == (0.5, False, True)
    result, *gradients = found.run(scaled_dot_product_attention, found.make_inputs())
    assert result.shape == x.shape and len(gradients) == 3
    assert "cpu" not in repr(found)  # ranks have devices of their own


def mask_that_learns(x):
    return scaled_dot_product_attention(x, x, x, attn_mask=x @ x.mT)


def draws(x):
    return scaled_dot_product_attention(x, x, x, dropout_p=0.5)


def in_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return scaled_dot_product_attention(x, x, x)


def one_head_fewer_dimensions(x):
    return scaled_dot_product_attention(x[0], x[0], x[0])


@pytest.mark.parametrize(
    "function", [mask_that_learns, draws, in_autocast, one_head_fewer_dimensions]
)
def test_what_cannot_be_measured_alone_is_left_to_torch(function):
    graph_module = captured(function, torch.randn(2, 3, 16, 8, requires_grad=True))
    assert not list(filter(None, map(attention_problem, graph_module.graph.nodes)))


def test_symbolic_sizes_are_left_to_torch():
    x = torch.randn(2, 3, 16, 8)
    torch._dynamo.mark_dynamic(x, 2)
    graph_module = captured(attend, x)
    assert not list(filter(None, map(attention_problem, graph_module.graph.nodes)))


@pytest.mark.usefixtures("kernels_of_a_cpu")
def test_the_winner_is_named_in_equal_calls_and_measured_once(math_is_slow, tmp_path):
    x = torch.randn(2, 3, 16, 8)
    graph_module, contest = captured(attend, x), AttentionContest(measures=True, device_type="cpu")
    changed, is_changed = contest.apply(graph_module)
    assert is_changed and calls_in(changed) == [attention_by_flash] * 2
    assert math_is_slow == [["MATH", "FLASH_ATTENTION"]]
    torch.testing.assert_close(changed(x)[0], attend(x))
    (verdict, again) = contest.verdicts.values()
    assert verdict is again and verdict.milliseconds == {"MATH": 10.0, "FLASH_ATTENTION": 2.0}

    known = AttentionContest(measures=False, device_type="cpu")
    found, is_changed = known.apply(captured(attend, x))
    assert is_changed and calls_in(found) == [attention_by_flash] * 2
    assert all(verdict.cached for verdict in known.verdicts.values())
    assert len(math_is_slow) == 1 and len(list(tmp_path.rglob("*.json"))) == 1


@pytest.mark.usefixtures("kernels_of_a_cpu", "math_is_slow")
def test_another_shape_or_flag_is_another_contest():
    x = torch.randn(2, 3, 16, 8)
    AttentionContest(measures=True, device_type="cpu").apply(captured(attend, x))
    known = AttentionContest(measures=False, device_type="cpu")
    known.apply(captured(attend, x[:1]))
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
        known.apply(captured(attend, x))
    assert known.verdicts == {}


@pytest.mark.usefixtures("kernels_of_a_cpu", "math_is_slow")
def test_programs_that_name_kernels_or_want_determinism_keep_theirs():
    def named(x):
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(x, x, x)

    x = torch.randn(2, 3, 16, 8)
    contest = AttentionContest(measures=True, device_type="cpu")
    assert contest.apply(captured(named, x))[1] is False
    torch.use_deterministic_algorithms(True)
    try:
        assert contest.apply(captured(attend, x))[1] is False
    finally:
        torch.use_deterministic_algorithms(False)
    assert contest.verdicts == {}


@pytest.mark.usefixtures("kernels_of_a_cpu")
def test_a_kernel_that_fails_leaves_torchs_choice(monkeypatch):
    def fail(ready, devices):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(contest_module, "times_in_turns", fail)
    contest = AttentionContest(measures=True, device_type="cpu")
    graph_module, is_changed = contest.apply(captured(attend, torch.randn(2, 3, 16, 8)))
    assert not is_changed and calls_in(graph_module) == [scaled_dot_product_attention] * 2


def test_executors_that_were_chosen_have_no_contest():
    assert attention_contest(make_options(executors=["inductor"], contest="full")) is None
    assert attention_contest(make_options(contest="off")) is None
    assert attention_contest(make_options(contest="full")) is not None
