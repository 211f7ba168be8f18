"""Chooses which of torch's attention kernels runs, where torch's own choice is not wanted.

torch picks by device, dtype and shape, and mostly well. Where another kernel is measured to be
faster, or more exact, this transform names it in the graph, forward and backward.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, final

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._pytree import tree_leaves

from thunder.errors import OptionError
from thunder.transforms.attention_call import attention_call
from thunder.transforms.base import AbstractTransform, Stage

_log = logging.getLogger(__name__)


def attention_by_flash(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`scaled_dot_product_attention` by the flash attention kernel."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(*args, **kwargs)


def attention_by_efficient(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`scaled_dot_product_attention` by the memory-efficient kernel."""
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return scaled_dot_product_attention(*args, **kwargs)


def attention_by_cudnn(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`scaled_dot_product_attention` by cuDNN's kernel."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(*args, **kwargs)


def attention_by_math(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`scaled_dot_product_attention` in matrix products and a softmax."""
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(*args, **kwargs)


_BY_BACKEND: dict[SDPBackend, Callable[..., torch.Tensor]] = {
    SDPBackend.FLASH_ATTENTION: attention_by_flash,
    SDPBackend.EFFICIENT_ATTENTION: attention_by_efficient,
    SDPBackend.CUDNN_ATTENTION: attention_by_cudnn,
    SDPBackend.MATH: attention_by_math,
}


def by_backend(backend: SDPBackend) -> Callable[..., torch.Tensor]:
    """Returns `scaled_dot_product_attention` by one kernel.

    Args:
        backend: One that `AttentionBackendTransform` takes.
    """
    return _BY_BACKEND[backend]


@final
class AttentionBackendTransform(AbstractTransform):
    """Has attention run by one kernel, wherever that kernel can.

    A call that the kernel refuses (its device, dtype, shape or mask) stays as it is; the logger
    `thunder.transforms.attention_backend` says why at level INFO.

    Example:
        >>> import torch, thunder
        >>> from torch.nn.attention import SDPBackend
        >>> from thunder.transforms import AttentionBackendTransform
        >>> def attend(x):
        ...     return torch.nn.functional.scaled_dot_product_attention(x, x, x)
        >>> f = thunder.jit(
        ...     attend,
        ...     executors=["aten"],
        ...     transforms=[AttentionBackendTransform(SDPBackend.MATH)],
        ... )
        >>> x = torch.randn(1, 2, 4, 8)
        >>> torch.testing.assert_close(f(x), attend(x))
        >>> "_scaled_dot_product_flash" in str(thunder.last_traces(f)[-1])
        False
    """

    stage = Stage.CAPTURED

    def __init__(self, backend: SDPBackend) -> None:
        """Makes the transform.

        Args:
            backend: The kernel, as in `torch.nn.attention.sdpa_kernel`.

        Raises:
            OptionError: It names no kernel.
        """
        if backend not in _BY_BACKEND:
            known = ", ".join(f"SDPBackend.{one.name}" for one in _BY_BACKEND)
            raise OptionError(f"backend={backend!r} is no attention kernel; use one of {known}")
        self._backend = backend

    @property
    def name(self) -> str:
        """Such as `"attention by FLASH_ATTENTION"`."""
        return f"attention by {self._backend.name}"

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns what it was made with, by which scripts print it."""
        return {"backend": self._backend}

    def apply(self, graph_module: fx.GraphModule) -> tuple[fx.GraphModule, bool]:
        """Names the kernel in each call of attention, in the graph and in bodies that it calls.

        Args:
            graph_module: A graph from Dynamo.

        Returns:
            The same graph module, and whether a call was changed.
        """
        changed = False
        for module in graph_module.modules():
            if not isinstance(module, fx.GraphModule):
                continue
            for node in module.graph.nodes:
                if attention_call(node) is not None and self._takes(node):
                    node.target = by_backend(self._backend)
                    changed = True
            module.recompile()
        return graph_module, changed

    def _takes(self, node: fx.Node) -> bool:
        """Whether the kernel can run a call, found out on its fake values."""
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda source: source.meta.get("example_value")
        )
        fakes = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        if not fakes:
            _log.info("%s stays as it is: nothing is known of its inputs", node)
            return False
        try:
            with fakes[0].fake_mode:
                by_backend(self._backend)(*args, **kwargs)
        except (RuntimeError, GuardOnDataDependentSymNode) as error:
            _log.info("%s stays as it is: %s", node, error)
            return False
        return True
