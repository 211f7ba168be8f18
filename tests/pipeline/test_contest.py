"""The contest, with entrants whose speed and faults are known."""

from __future__ import annotations

import json
import os
import stat
import time

import pytest
import torch
import torch.multiprocessing as mp

import thunder
from thunder import jit, thunderfx
from thunder.errors import OptionError
from thunder.executors import AbstractFusionExecutor, OperatorExecutor, register_executor
from thunder.executors.registry import deregister_executor
from thunder.pipeline.verdicts import ContestVerdict

SIZE = 192


class Remembering(AbstractFusionExecutor):
    """Runs a region once and returns copies of what came out: faster than any computation."""

    version = "1"

    def __init__(self, name="remembering", change=lambda values: values, spoil=lambda inputs: None):
        self._name = name
        self._change = change
        self._spoil = spoil
        self.compiled = 0

    @property
    def name(self):
        return self._name

    def check(self, node):
        return None

    def compile(self, graph_module, example_inputs, context):
        self.compiled += 1
        known = {}

        def run(*inputs):
            if not known:
                known["results"] = self._change(graph_module(*inputs))
            self._spoil(inputs)
            return [value.clone() for value in known["results"]]

        return run


@pytest.fixture
def enter(tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))
    names = []

    def enter(executor):
        names.append(register_executor(executor, enter_contest=True).name)
        return executor

    yield enter
    for name in names:
        deregister_executor(name)


def slow(x):
    """Takes milliseconds, whoever computes it."""
    for _ in range(8):
        x = torch.mm(x, x) * (2 / SIZE)  # keeps numbers around their size
    return x


def verdicts(f):
    return [one for record in thunder.compile_stats(f).compiles for one in record.verdicts.values()]


def cached_files(tmp_path):
    return sorted((tmp_path / "cache").rglob("*.json"))


def test_the_fastest_correct_entrant_runs_the_graph_and_the_trace_says_so(enter, tmp_path):
    enter(Remembering())
    x = torch.rand(SIZE, SIZE)
    f = jit(slow, contest="full")
    with torch.no_grad():
        torch.testing.assert_close(f(x), slow(x))
    (verdict,) = verdicts(f)
    assert verdict.winner == "remembering"
    assert list(verdict.milliseconds) == ["inductor", "remembering"]
    assert verdict.milliseconds["remembering"] < verdict.milliseconds["inductor"]
    trace = thunder.last_traces(f)[-1]
    assert [symbol.sym.executor for symbol in thunder.examine.get_fusion_symbols(trace)] == [
        "remembering"
    ]
    assert "# contest: remembering was chosen over inductor\n" in str(trace)
    assert "remembering was chosen over inductor (inductor " in str(thunder.compile_stats(f))
    (file,) = cached_files(tmp_path)
    assert json.loads(file.read_text())["winner"] == "remembering"


def test_a_known_verdict_is_used_without_measuring(enter, tmp_path):
    executor = enter(Remembering())
    x = torch.rand(SIZE, SIZE)
    with torch.no_grad():
        jit(slow, contest="full")(x)
        measured = executor.compiled
        f = jit(lambda x: slow(x))
        f(x)
    assert executor.compiled == measured + 1
    (verdict,) = verdicts(f)
    assert verdict.cached and verdict.winner == "remembering"
    with torch.no_grad():
        off = jit(slow, contest="off")
        off(x)
    assert verdicts(off) == [] and executor.compiled == measured + 1


def test_without_a_verdict_inductor_runs_and_nothing_is_measured(enter, tmp_path):
    executor = enter(Remembering())
    f = jit(slow)
    with torch.no_grad():
        f(torch.rand(SIZE, SIZE))
    assert verdicts(f) == [] and executor.compiled == 0 and cached_files(tmp_path) == []


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda values: [value * 1.01 for value in values], "is not accurate"),
        (lambda values: [value.t().contiguous().t() for value in values], "memory layout"),
        (lambda values: [value.double() for value in values], "memory layout"),
        (lambda values: 1 / 0, "failed (ZeroDivisionError: division by zero)"),
    ],
    ids=["wrong", "strides", "dtype", "raises"],
)
def test_a_fast_entrant_that_is_not_correct_is_rejected(enter, change, reason):
    enter(Remembering(change=change))
    x = torch.rand(SIZE, SIZE)
    f = jit(slow, contest="full")
    with torch.no_grad():
        torch.testing.assert_close(f(x), slow(x))
    (verdict,) = verdicts(f)
    assert verdict.winner == "inductor" and list(verdict.milliseconds) == ["inductor"]
    assert reason in verdict.rejected["remembering"]
    assert "remembering: " in str(thunder.last_traces(f)[-1]).split("def ")[0]


def test_an_entrant_that_leaves_another_random_state_is_rejected(enter):
    enter(Remembering(spoil=lambda inputs: torch.rand(1)))
    f = jit(slow, contest="full")
    with torch.no_grad():
        f(torch.rand(SIZE, SIZE))
    assert verdicts(f)[0].rejected == {"remembering": "leaves another random state behind"}


def test_a_backward_that_writes_to_the_users_gradient_is_rejected(enter):
    """Only saved values that nobody else reads may be overwritten."""
    enter(Remembering(spoil=lambda inputs: [x.zero_() for x in inputs if x.shape == (SIZE, 2)]))
    x = torch.rand(SIZE, SIZE, requires_grad=True)
    slope = torch.ones(SIZE, 2)
    f = thunderfx(lambda x: slow(x)[:, :2].contiguous(), contest="full")
    f(x).backward(slope)
    assert torch.equal(slope, torch.ones(SIZE, 2))
    (record,) = thunder.compile_stats(f).compiles
    backward = record.verdicts["thunder_0 backward"]
    assert "inputs afterwards" in backward.rejected["remembering"]


def test_a_verdict_ends_with_the_version_of_an_executor(enter, tmp_path):
    """An executor that was changed is judged again."""
    executor = enter(Remembering())
    x = torch.rand(SIZE, SIZE)
    with torch.no_grad():
        jit(slow, contest="full")(x)
        executor.version = "2"
        executor._change = lambda values: [value * 2 for value in values]
        f = jit(lambda x: slow(x), contest="full")
        torch.testing.assert_close(f(x), slow(x))
    assert "is not accurate" in verdicts(f)[0].rejected["remembering"]
    assert len(cached_files(tmp_path)) == 2


@pytest.mark.parametrize("why", ["no version", "a failure"])
def test_what_may_not_last_is_not_kept(enter, tmp_path, why):
    executor = enter(Remembering())
    if why == "no version":
        executor.version = None
    else:
        executor._change = lambda values: 1 / 0
    f = jit(slow, contest="full")
    with torch.no_grad():
        f(torch.rand(SIZE, SIZE))
    assert len(verdicts(f)) == 1 and cached_files(tmp_path) == []


def test_an_entrant_without_hope_is_not_timed_to_the_end(enter):
    runs = []
    enter(Remembering(spoil=lambda inputs: [runs.append(1), time.sleep(0.2)]))
    f = jit(slow, contest="full")
    with torch.no_grad():
        f(torch.rand(SIZE, SIZE))
    assert verdicts(f)[0].winner == "inductor" and len(runs) == 2 + 3  # layouts, values, times


def test_a_table_of_operators_may_enter(enter):
    calls = []

    def counted(x):
        calls.append(1)
        return torch.tanh(x)

    enter(OperatorExecutor("table", {"aten.tanh": counted}))
    f = jit(lambda x: slow(x).tanh(), contest="full")
    x = torch.rand(SIZE, SIZE)
    with torch.no_grad():
        torch.testing.assert_close(f(x), slow(x).tanh())
    assert calls and {*verdicts(f)[0].milliseconds} == {"inductor", "table"}


def test_each_direction_is_decided_and_gradients_are_right(enter):
    enter(Remembering())
    x = torch.rand(SIZE, SIZE, requires_grad=True)
    f = thunderfx(slow, contest="full")
    (gradient,) = torch.autograd.grad(f(x).sum(), x)
    (expected,) = torch.autograd.grad(slow(x).sum(), x)
    torch.testing.assert_close(gradient, expected)
    (record,) = thunder.compile_stats(f).compiles
    assert list(record.verdicts) == ["thunder_0 forward", "thunder_0 backward"]


def test_nothing_of_the_run_is_seen_outside(enter):
    """The input is written to once, and the random numbers are those of one run."""
    enter(Remembering())

    def step(x, counter):
        counter.add_(1)
        return slow(x) + torch.rand(SIZE, SIZE), counter * 2

    x, counter, expected_counter = torch.rand(SIZE, SIZE), torch.zeros(3), torch.zeros(3)
    torch.manual_seed(3)
    first = jit(step, contest="off")(x, expected_counter)
    after = torch.rand(1)
    torch._dynamo.reset()
    torch.manual_seed(3)
    f = jit(step, contest="full")
    second = f(x, counter)
    assert torch.equal(torch.rand(1), after)
    assert torch.equal(counter, expected_counter) and torch.equal(counter, torch.ones(3))
    if verdicts(f)[0].winner == "inductor":
        torch.testing.assert_close(first, second)


def test_collectives_and_operators_of_the_users_are_not_run_more_often(enter):
    calls = []

    @torch.library.custom_op("contest_test::count", mutates_args=())
    def count(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.clone()

    @count.register_fake
    def _(x):
        return torch.empty_like(x)

    enter(Remembering())
    f = jit(lambda x: slow(count(x)), contest="full")
    with torch.no_grad():
        f(torch.rand(SIZE, SIZE))
    assert len(calls) == 1 and verdicts(f) == []


def test_a_winner_that_fails_later_gives_way_to_inductor(enter):
    executor = enter(Remembering())
    x = torch.rand(SIZE, SIZE)
    with torch.no_grad():
        jit(slow, contest="full")(x)
        executor._change = lambda values: 1 / 0
        f = thunderfx(lambda x: slow(x))
        with pytest.warns(thunder.errors.FallbackWarning, match="ZeroDivisionError"):
            torch.testing.assert_close(f(x), slow(x))
    (trace,) = thunder.last_traces(f)
    (fusion,) = thunder.examine.get_fusion_symbols(trace)
    assert fusion.sym.executor == "inductor" and "contest" not in str(trace).split("def ")[0]


@pytest.mark.parametrize(
    "content",
    ["", "null", "[]", '{"winner": "nobody", "milliseconds": {}, "rejected": {}}', '{"winner": 1}'],
    ids=["empty", "null", "list", "unknown", "torn"],
)
def test_a_file_that_is_no_verdict_counts_as_none(enter, tmp_path, content):
    executor = enter(Remembering())
    x = torch.rand(SIZE, SIZE)
    with torch.no_grad():
        jit(slow, contest="full")(x)
        (file,) = cached_files(tmp_path)
        file.write_text(content)
        compiled = executor.compiled
        f = jit(lambda x: slow(x))
        torch.testing.assert_close(f(x), slow(x))
    assert verdicts(f) == [] and executor.compiled == compiled


def test_what_a_file_says_stays_a_comment(enter, tmp_path):
    enter(Remembering())
    x = torch.rand(SIZE, SIZE)
    with torch.no_grad():
        jit(slow, contest="full")(x)
        (file,) = cached_files(tmp_path)
        verdict = {"winner": "inductor", "milliseconds": {}, "rejected": {"x": "\nimport os\r'''"}}
        file.write_text(json.dumps(verdict))
        f = jit(lambda x: slow(x))
        f(x)
    text = str(thunder.last_traces(f)[-1])
    assert "x: " in text and "import os" not in [line.strip() for line in text.splitlines()]


def test_a_cache_that_cannot_be_written_changes_nothing(enter, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "file"))
    enter(Remembering())
    x = torch.rand(SIZE, SIZE)
    f = jit(slow, contest="full")
    with torch.no_grad():
        torch.testing.assert_close(f(x), slow(x))
    assert verdicts(f)[0].winner == "remembering"


def test_the_cache_has_the_users_umask_and_its_default_is_the_users(enter, tmp_path, monkeypatch):
    monkeypatch.delenv("THUNDER_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    enter(Remembering())
    before = os.umask(0o077)
    try:
        with torch.no_grad():
            jit(slow, contest="full")(torch.rand(SIZE, SIZE))
    finally:
        os.umask(before)
    (file,) = cached_files(tmp_path)
    assert file.parent == tmp_path / "cache" / "thunder" / "verdicts"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_other_sizes_and_entrants_have_verdicts_of_their_own(enter, tmp_path):
    enter(Remembering())
    with torch.no_grad():
        jit(slow, contest="full")(torch.rand(SIZE, SIZE))
        jit(slow, contest="full")(torch.rand(SIZE, SIZE))
        assert len(cached_files(tmp_path)) == 1
        jit(slow, contest="full", dynamic=False)(torch.rand(64, 64))
        assert len(cached_files(tmp_path)) == 2
        enter(Remembering("another"))
        jit(slow, contest="full")(torch.rand(SIZE, SIZE))
    assert len(cached_files(tmp_path)) == 3


def test_an_entrant_takes_what_inductor_takes():
    mine = OperatorExecutor("mine", {"aten.gelu": torch.nn.functional.gelu})
    with pytest.raises(OptionError, match=r"cannot enter the contest: .*aten\.gelu"):
        register_executor(mine, enter_contest=True)


def test_a_verdict_in_words():
    verdict = ContestVerdict(
        winner="nvfuser", milliseconds={"inductor": 0.25, "nvfuser": 0.125}, rejected={"aten": "no"}
    )
    assert verdict.sentence == "contest: nvfuser was chosen over inductor; aten: no"
    assert str(verdict) == f"{verdict.sentence} (inductor 0.25 ms, nvfuser 0.125 ms)"


def _rank(rank, folder, results):
    os.environ["THUNDER_CACHE_DIR"] = f"{folder}/{rank}"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    # Each rank would choose another entrant by itself.
    register_executor(Remembering("zero"), enter_contest=True)
    register_executor(Remembering("one"), enter_contest=True)
    wrong = "one" if rank == 0 else "zero"
    thunder.executors.get_executor(wrong)._change = lambda values: [x + 1 for x in values]
    f = jit(slow, contest="full")
    x = torch.rand(SIZE, SIZE)
    with torch.no_grad():
        torch.testing.assert_close(f(x), slow(x))
    results[rank] = verdicts(f)[0].winner
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_ranks_agree_on_the_verdict_of_the_first(tmp_path):
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_rank, (str(tmp_path), results), nprocs=2)
        assert results[0] == results[1] and results[0] in ("zero", "one")
