"""Programs are judged on equal inputs and equal random numbers."""

import torch

from thunder.pipeline.judged_run import call_results, copy_values, judge_run


def _program(function):
    return lambda inputs: call_results(function, inputs)


def test_copies_keep_strides_offsets_and_shared_memory():
    base = torch.arange(12.0)
    one, other = base[2:8].view(2, 3).t(), base[4:]
    wide = base[:1].expand(5)
    copies = copy_values([one, {"x": other}, wide, 3])
    assert copies[0].stride() == one.stride()
    assert copies[0].storage_offset() == 2
    assert copies[2].stride() == (0,)
    assert copies[3] == 3
    copies[1]["x"].zero_()
    assert copies[0].tolist() == [[2.0, 0.0], [3.0, 0.0], [0.0, 0.0]]
    assert base.tolist() == list(range(12))


def test_copies_are_leaves_with_the_same_grad_flag():
    x = torch.ones(2, requires_grad=True) * 2
    copy = copy_values([x, torch.nn.Parameter(torch.ones(1))])
    assert copy[0].is_leaf
    assert copy[0].requires_grad
    assert isinstance(copy[1], torch.nn.Parameter)


def test_in_place_updates_and_dropout_are_no_difference():
    def function(x):
        return torch.nn.functional.dropout(x.mul_(3), 0.5)

    x = torch.ones(100)
    assert judge_run(_program(function), _program(lambda x: function(x)), [x]).accurate
    assert x.sum() == 100


def test_an_update_that_is_missing_is_wrong():
    verdict = judge_run(_program(lambda x: x.add_(1)), _program(lambda x: x + 1), [torch.ones(2)])
    assert [output.name for output in verdict.wrong] == ["['inputs afterwards']['0']"]


def test_ill_conditioned_results_are_no_alarm():
    """The order of a sum whose terms cancel decides all digits."""
    x = torch.cat([torch.randn(5000), torch.zeros(1)])
    x = torch.cat([x, -x.flip(0)])
    plain = _program(lambda x: x.sum())
    assert judge_run(plain, _program(lambda x: x.flip(0).cumsum(0)[-1]), [x]).accurate


def test_donated_inputs_may_be_written_to_by_the_judged_program_alone():
    def overwrites(x):
        return x.add_(1)

    inputs = [torch.ones(2)]
    plain = _program(lambda x: x + 1)
    assert not judge_run(plain, _program(overwrites), inputs).accurate
    assert judge_run(plain, _program(overwrites), inputs, donated=[0]).accurate
    assert not judge_run(plain, _program(overwrites), inputs, donated=[1]).accurate
    written = _program(overwrites)
    assert not judge_run(written, plain, inputs, donated=[0]).accurate
