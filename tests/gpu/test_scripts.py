"""Scripts of graphs on CUDA: user Triton kernels, devices, the check against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.repro.capture import AOT_EAGER, Captured, run_together
from tests.repro.programs import custom_gradient, small
from thunder.repro import torch_compile_source

triton = pytest.importorskip("triton", reason="comes with CUDA builds of torch")
tl = pytest.importorskip("triton.language", reason="comes with CUDA builds of torch")

BLOCK = 64
OFFSET = tl.constexpr(3)


@triton.jit
def shifted(x):
    return x + OFFSET


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, count, SIZE: tl.constexpr):
    index = tl.program_id(axis=0) * SIZE + tl.arange(0, SIZE)
    mask = index < count
    x = tl.load(x_ptr + index, mask=mask)
    y = tl.load(y_ptr + index, mask=mask)
    tl.store(out_ptr + index, shifted(x) + y, mask=mask)


@triton.autotune(
    configs=[triton.Config({"SIZE": 32}), triton.Config({"SIZE": 64}, num_warps=8)], key=["count"]
)
@triton.jit
def tuned_kernel(x_ptr, out_ptr, count, SIZE: tl.constexpr):
    index = tl.program_id(axis=0) * SIZE + tl.arange(0, SIZE)
    mask = index < count
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=mask) * 2, mask=mask)


def with_kernels(x, y):
    out, doubled = torch.empty_like(x), torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), SIZE=BLOCK)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["SIZE"]),)](x, doubled, x.numel())
    return out.sin() + doubled


def attention(q, k, v):
    return F.dropout(F.scaled_dot_product_attention(q, k, v, is_causal=True), 0.2)


def inputs_of(program):
    if program is with_kernels:
        return torch.randn(300, device="cuda"), torch.randn(300, device="cuda")
    if program is small:
        x = torch.randn(6, 4, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        return x, torch.randint(0, 6, (500,), device="cuda"), torch.rand(500, 4).cuda() > 0.7
    if program is attention:
        return [
            torch.randn(2, 4, 64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        ]
    return [torch.randn(4, 4, device="cuda", requires_grad=True) for _ in range(2)]


@pytest.mark.parametrize("program", [with_kernels, small, attention, custom_gradient])
def test_scripts_run_and_agree_with_eager(program, tmp_path):
    captured = Captured(program, *inputs_of(program))
    paths = []
    for name, compiler in {"aot": AOT_EAGER, "inductor": torch_compile_source()}.items():
        for store in (False, True):
            script = captured.script(compiler, store_inputs=store)
            assert script.module.faithful
            paths.append(script.write(tmp_path / f"{name}_{store}.py"))
    results = run_together((path, "--check_consistency") for path in paths)
    assert results.pop("thunder")[0] == "False"
    assert {name: code for name, (code, _) in results.items() if code != "0"} == {}
    assert "WRONG" not in str(results)
    if program is with_kernels:
        assert "@triton.jit\ndef add_kernel(" in paths[0].read_text()
