"""The attention kernel that was asked for runs, and where it cannot, torch's choice does."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

import thunder
from thunder import thunderfx
from thunder.errors import OptionError
from thunder.transforms import AttentionBackendTransform

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))
FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def attend(x):
    return scaled_dot_product_attention(x * 2, x, x, is_causal=True).sin()


def compiled(function, backend, **options):
    transforms = [AttentionBackendTransform(backend)]
    return thunderfx(function, executors=["aten"], transforms=transforms, **options)


def inputs():
    return torch.randn(2, 3, 16, 8, requires_grad=True)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_the_kernel_runs_forward_and_backward(backend):
    x = inputs()
    f = compiled(attend, backend)
    torch.testing.assert_close(f(x), attend(x))
    (gradient,) = torch.autograd.grad(f(x).sum(), x)
    (expected,) = torch.autograd.grad(attend(x).sum(), x)
    torch.testing.assert_close(gradient, expected)
    texts = [
        str(traces[-1]) for traces in (thunder.last_traces(f), thunder.last_backward_traces(f))
    ]
    assert [FLASH in text for text in texts] == [backend is SDPBackend.FLASH_ATTENTION] * 2


def test_attention_inside_a_checkpoint():
    x = inputs()
    f = compiled(lambda x: checkpoint(attend, x, use_reentrant=False), SDPBackend.MATH)
    torch.testing.assert_close(f(x), attend(x))
    assert FLASH not in str(thunder.last_traces(f)[-1])


def test_what_the_kernel_refuses_stays_and_the_log_says_why(caplog):
    x = inputs()
    f = compiled(attend, SDPBackend.EFFICIENT_ATTENTION)
    with caplog.at_level(logging.INFO, logger="thunder.transforms.attention_backend"):
        torch.testing.assert_close(f(x), attend(x))
    assert "scaled_dot_product_attention stays as it is: No " in caplog.text
    assert FLASH in str(thunder.last_traces(f)[-1])


def test_sizes_stay_symbolic():
    f = compiled(attend, SDPBackend.MATH, dynamic=True)
    for length in (16, 24, 9):
        x = torch.randn(2, 3, length, 8)
        torch.testing.assert_close(f(x), attend(x))
    misses = thunder.compile_stats(f).cache_misses
    # Before torch 2.13, MATH run on fake tensors to see whether it can fixes their sizes.
    assert misses == 1 or (RELEASE < (2, 13) and misses == 3)


def test_scripts_make_the_transform(tmp_path):
    x = inputs()
    f = compiled(attend, SDPBackend.MATH)
    f(x)
    (path,) = thunder.dynamo.save_reproducer(f, tmp_path)
    assert "AttentionBackendTransform(backend=" in path.read_text()
    done = subprocess.run(
        [sys.executable, path, "--check_consistency"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("wrong", ["flash", SDPBackend.OVERRIDEABLE, None], ids=str)
def test_no_kernel_of_that_name(wrong):
    with pytest.raises(OptionError, match=r"use one of SDPBackend\.FLASH_ATTENTION, "):
        AttentionBackendTransform(wrong)
