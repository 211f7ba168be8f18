"""A Triton kernel of your own as an executor: SwiGLU, `silu(gate) * up`, in one kernel.

An executor claims nodes of ATen graphs and compiles the regions that they form. This one claims
each `silu` whose only use is a multiplication, and that multiplication; Inductor takes the rest.
The backward pass is another graph, in which nothing is claimed, so Inductor computes it.

    python examples/triton_executor.py
    TRITON_INTERPRET=1 python examples/triton_executor.py --device cpu
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports] - comes with CUDA builds of torch
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import fx
from torch.nn.functional import silu

import thunder
from thunder.executors import AbstractFusionExecutor, Refusal, RegionContext

ATEN = torch.ops.aten


@triton.jit
def swiglu_kernel(gate: Any, up: Any, out: Any, size: int, BLOCK: tl.constexpr) -> None:
    """Computes a block of silu(gate) * up in float32."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    x = tl.load(gate + places, mask=inside).to(tl.float32)
    y = tl.load(up + places, mask=inside).to(tl.float32)
    result = x / (1 + tl.exp(-x)) * y
    tl.store(out + places, result.to(out.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Launches the kernel.

    Args:
        gate: Contiguous, of any shape, floating point.
        up: Contiguous, of gate's shape and dtype.

    Returns:
        silu(gate) * up, contiguous, of the same shape and dtype.
    """
    out = torch.empty_like(gate)
    size = gate.numel()
    if size:
        grid = (triton.cdiv(size, 1024),)
        swiglu_kernel[grid](gate, up, out, size, BLOCK=1024)  # pyright: ignore[reportIndexIssue]
    return out


class SwigluExecutor(AbstractFusionExecutor):
    """Runs `silu(gate) * up` by one Triton kernel."""

    max_nodes = 2

    def __init__(self, device_type: str = "cuda") -> None:
        """Makes the executor for one kind of device."""
        self._device_type = device_type

    @property
    def name(self) -> str:
        """`"triton_swiglu"`."""
        return "triton_swiglu"

    def undecomposed_ops(self) -> tuple[torch._ops.OpOverload, ...]:
        """Keeps silu in one piece, so that `check` can recognize it."""
        return (ATEN.silu.default,)

    def check(self, node: fx.Node) -> Refusal | None:
        """Accepts both nodes of the pattern."""
        found = swiglu_of(node)
        if found is None:
            return Refusal("no silu(gate) * up")
        gate, up = (source.meta["val"] for source in found)
        if gate.device.type != self._device_type:
            return Refusal(f"not on {self._device_type}")
        same = (gate.shape, gate.dtype) == (up.shape, up.dtype)
        if not same or not gate.is_contiguous() or not up.is_contiguous():
            return Refusal("not two contiguous tensors of one shape and dtype")
        return None

    def worthwhile(self, nodes: Sequence[fx.Node]) -> Refusal | None:
        """Wants the whole pattern, not one half of it."""
        return None if len(nodes) == 2 else Refusal("half of the pattern")

    def compile(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], context: RegionContext
    ) -> Callable[..., Sequence[Any]]:
        """Returns a callable that launches the kernel."""
        (node,) = graph_module.graph.find_nodes(op="call_function", target=ATEN.mul.Tensor)
        inputs = graph_module.graph.find_nodes(op="placeholder")
        found = swiglu_of(node)
        assert found is not None
        gate, up = (inputs.index(source) for source in found)
        return lambda *values: [swiglu(values[gate], values[up])]


def swiglu_of(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Returns gate and up of the pattern that a node belongs to, or None.

    Args:
        node: The silu, or the multiplication.
    """
    if node.target is ATEN.silu.default and len(node.users) == 1:
        node = next(iter(node.users))
    if node.target is not ATEN.mul.Tensor or len(node.all_input_nodes) != 2:
        return None
    for product, up in (node.all_input_nodes, node.all_input_nodes[::-1]):
        if product.target is ATEN.silu.default and len(product.users) == 1:
            return product.all_input_nodes[0], up
    return None


def feed_forward(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """Computes the block of a Llama layer that the pattern is from."""
    return (silu(x @ gate) * (x @ up)) @ down


def main() -> None:
    """Compiles a feed-forward block with the executor and compares it with eager."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rest", default="inductor", help="who takes what is not the pattern")
    options = parser.parse_args()

    torch.manual_seed(0)
    shapes = ((64, 128), (128, 256), (128, 256), (256, 128))
    made = [torch.randn(shape, device=options.device) / 8 for shape in shapes]
    inputs = [x.requires_grad_() for x in made]
    executor = SwigluExecutor(torch.device(options.device).type)
    f = thunder.thunderfx(feed_forward, executors=[executor, options.rest])
    torch.testing.assert_close(f(*inputs), feed_forward(*inputs))
    gradients = torch.autograd.grad(f(*inputs).sum(), inputs)
    expected = torch.autograd.grad(feed_forward(*inputs).sum(), inputs)
    torch.testing.assert_close(gradients, expected)
    print(thunder.last_traces(f)[-1])
    fusions = thunder.examine.get_fusion_symbols(thunder.last_traces(f)[-1])
    print("fusions:", *(symbol.sym.name for symbol in fusions))


if __name__ == "__main__":
    main()
