"""What the attention mask transform gains on a GPU: per attention and per training step.

Compares eager, `torch.compile`, and `torch.compile` after the mask transform and after that of
grouped queries, on transformers' models without an attention mask argument. Rounds alternate
between them, and medians are printed. Run as `python benchmarks/attention_mask.py --help`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import torch
import transformers
from torch._inductor.compile_fx import compile_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.profiler import ProfilerActivity, profile

from thunder.transforms.attention_mask import AttentionMaskTransform, mask_findings
from thunder.transforms.base import AbstractTransform
from thunder.transforms.grouped_query import GroupedQueryTransform

LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 16384,
}
GPT2 = {"vocab_size": 50257, "n_embd": 1024, "n_layer": 4, "n_head": 16, "n_positions": 1024}
BERT = {
    "vocab_size": 30522,
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 512,
}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A model, the shape of its token ids, and what else it is called with."""

    make: Callable[[], torch.nn.Module]
    batch: int
    length: int
    options: dict[str, Any]


def _model(model: str, config: str, options: dict[str, Any]) -> Callable[[], torch.nn.Module]:
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**options))


CASES = {
    "llama": Case(
        make=_model("LlamaForCausalLM", "LlamaConfig", LLAMA),
        batch=2,
        length=2048,
        options={"use_cache": False},
    ),
    "gpt2": Case(
        make=_model("GPT2LMHeadModel", "GPT2Config", GPT2),
        batch=8,
        length=1024,
        options={"use_cache": False},
    ),
    "bert": Case(
        make=_model("BertForMaskedLM", "BertConfig", BERT), batch=16, length=512, options={}
    ),
    "llama-long": Case(
        make=_model("LlamaForCausalLM", "LlamaConfig", LLAMA),
        batch=1,
        length=16384,
        options={"use_cache": False},
    ),
}


def median_ms(functions: Iterable[Callable[[], Any]], rounds: int) -> list[float]:
    """Times functions in turn and returns the median of each, in milliseconds of the device."""
    functions = list(functions)
    times: list[list[float]] = [[] for _ in functions]
    for round_number in range(rounds + 3):
        for function, taken in zip(functions, times, strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            torch.cuda.synchronize()
            if round_number >= 3:
                taken.append(start.elapsed_time(end))
    return [statistics.median(taken) for taken in times]


def one_attention(batch: int, heads: int, length: int, dim: int, dropout: float) -> None:
    """Prints forward and backward of one attention, with the mask as a tensor and natively."""
    options: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    q, k, v, gradient = (torch.randn(batch, heads, length, dim, **options) for _ in range(4))
    for tensor in (q, k, v):
        tensor.requires_grad_()
    mask = torch.ones(length, length, dtype=torch.bool, device="cuda").tril()
    mask = mask.expand(batch, 1, length, length)

    def step(**arguments: Any) -> None:
        out = attention(q, k, v, dropout_p=dropout, **arguments)
        torch.autograd.grad(out, (q, k, v), gradient)

    shape = f"{batch}x{heads}x{length}x{dim} dropout {dropout}"
    tensor, native = median_ms(
        [lambda: step(attn_mask=mask), lambda: step(is_causal=True)], rounds=20
    )
    print(f"attention {shape}: tensor {tensor:.3f} ms, is_causal {native:.3f} ms")
    kinds = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
    for kind in kinds:
        for name, arguments in (("tensor", {"attn_mask": mask}), ("native", {"is_causal": True})):
            try:
                with sdpa_kernel(kind):
                    (taken,) = median_ms([lambda kept=arguments: step(**kept)], rounds=10)
                print(f"    {kind.name} {name}: {taken:.3f} ms")
            except RuntimeError as error:
                print(f"    {kind.name} {name}: {str(error).splitlines()[0]}")


def training_step(case: Case, rounds: int) -> None:
    """Prints a training step under every compiler, and the attention kernels of each."""
    torch._dynamo.reset()  # it stops compiling a function that has been compiled eight times
    with torch.device("cuda"):
        model = case.make().to(torch.bfloat16).train()
    ids = torch.randint(0, 30000, (case.batch, case.length), device="cuda")
    found: list[str] = []
    reference = torch.zeros(())

    def transformed(*transforms: AbstractTransform) -> Callable[..., Any]:
        def backend(graph_module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            started = time.perf_counter()
            for transform in transforms:
                graph_module, _ = transform.apply(graph_module)
            graph_module.recompile()
            taken = (time.perf_counter() - started) * 1e3
            findings = mask_findings(graph_module)
            found.append(f"{len(findings)} masks, {taken:.0f} ms")
            found.extend({finding.reason for finding in findings})
            return compile_fx(graph_module, inputs)

        return backend

    backends = {
        "torch.compile": "inductor",
        "masks": transformed(AttentionMaskTransform()),
        "masks and groups": transformed(AttentionMaskTransform(), GroupedQueryTransform()),
    }
    steps: dict[str, Callable[[], torch.Tensor]] = {}
    for name, backend in {"eager": "eager", **backends}.items():
        compiled = torch.compile(model, backend=backend)

        def step(call: Any = compiled) -> torch.Tensor:
            model.zero_grad()
            loss = call(input_ids=ids, labels=ids, **case.options).loss
            loss.backward()
            return loss

        started = time.perf_counter()
        steps[name] = step
        step()
        torch.cuda.synchronize()
        first = time.perf_counter() - started
        torch.cuda.reset_peak_memory_stats()
        loss = step().item()
        peak = torch.cuda.max_memory_allocated() / 2**30
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        if name == "eager":
            reference = gradient.double()
        error = float((gradient - reference).norm() / reference.norm())
        print(f"    {name}: first step {first:.1f} s, peak {peak:.2f} GiB, loss {loss:.4f}")
        print(f"        gradients differ from eager's by {error:.1e} (with dropout always)")
        print_attention_kernels(step)
    print(f"    findings: {found}")
    for name, taken in zip(steps, median_ms(steps.values(), rounds), strict=True):
        print(f"    {name}: {taken:.2f} ms")


def print_attention_kernels(step: Callable[[], Any]) -> None:
    """Prints the kernels of one step that are attention's, with their time."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    for event in sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total):
        words = ("attention", "attn", "flash", "fmha", "sdpa", "softmax", "cudnn")
        if any(word in event.key.lower() for word in words):
            taken = event.self_device_time_total / 1e3
            print(f"        {taken:7.3f} ms {event.count}x {event.key[:110]}")


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=20, help="measured steps of each compiler")
    parser.add_argument("--attention", action="store_true", help="single attentions as well")
    options = parser.parse_args()
    print(torch.__version__, transformers.__version__, torch.cuda.get_device_name())
    if options.attention:
        one_attention(2, 16, 2048, 128, 0.0)
        one_attention(8, 16, 1024, 64, 0.1)
        one_attention(1, 16, 16384, 128, 0.0)
    for name in options.cases:
        print(name)
        training_step(CASES[name], options.rounds)


if __name__ == "__main__":
    main()
