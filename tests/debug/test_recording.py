"""Names of regions in profiles."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity

from thunder.debug import recorded, recording, region_scope

NAME = "inductorFusion3 model.py:12"


def names(profile: torch.profiler.profile) -> list[str]:
    return [event.key for event in profile.key_averages()]


def test_profiles_show_a_region_around_its_operators():
    def region(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    run = recorded(region, NAME)
    x = torch.ones(2)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], acc_events=True) as profile:
        assert torch.equal(run(x), x.sin())
        with region_scope("other"):
            x.cos()
    assert {NAME, "other"} <= set(names(profile))
    (outer,) = [event for event in profile.events() or () if event.name == NAME]
    assert "aten::sin" in [child.name for child in outer.cpu_children]


def test_autograds_profiler_and_backward_threads():
    run = recorded(torch.sin, NAME)

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return run(gradient)

    y = Backward.apply(torch.ones(2, requires_grad=True))
    profile = torch.autograd.profiler.profile()
    with profile:
        y.sum().backward()
    assert NAME in [event.name for event in profile.function_events or ()]


def test_nothing_is_recorded_without_a_profiler(monkeypatch):
    def record(name: str) -> None:
        raise AssertionError("recorded although no profiler runs")

    monkeypatch.setattr(recording, "_RecordFunctionFast", record)
    assert recorded(max, NAME)(1, 2) == 2
    with region_scope(NAME):
        pass


def test_errors_pass_through_and_close_the_region():
    def fail() -> None:
        raise ValueError("inside")

    run = recorded(fail, NAME)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], acc_events=True) as profile:
        with pytest.raises(ValueError, match="inside"):
            run()
        torch.ones(2).sin()
    (outer,) = [event for event in profile.events() or () if event.name == NAME]
    assert outer.cpu_children == []
    with pytest.raises(ValueError, match="inside"):
        run()


def test_regions_may_nest_and_recur():
    # torch merges an event with its only child of the same name, hence two names.
    def count_down(number: int) -> int:
        return 0 if number == 0 else pair[(number - 1) % 2](number - 1)

    pair = [recorded(count_down, "even"), recorded(count_down, "odd")]
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], acc_events=True) as profile:
        assert pair[0](4) == 0
    found = [event.name for event in profile.events() or ()]
    assert (found.count("even"), found.count("odd")) == (3, 2)
