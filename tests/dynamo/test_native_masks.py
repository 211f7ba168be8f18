"""Which graphs have their attention masks looked at, and what happens when that fails.

On a real device: tests/gpu/test_attention_mask.py. Here a CUDA input is a fake tensor.
"""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention

from thunder.dynamo import thunderfx
from thunder.dynamo.native_masks import give_native_masks
from thunder.errors import FallbackWarning, TransformError
from thunder.pipeline.options import make_options
from thunder.transforms.attention_mask import AttentionMaskTransform


def attend(x):
    position = torch.arange(x.shape[-2])
    mask = position[:, None] >= position[None, :]
    return scaled_dot_product_attention(x, x, x, attn_mask=mask)


def captured(*, cuda: bool):
    graphs = []

    def backend(graph_module, inputs):
        del inputs
        graphs.append(graph_module)
        return graph_module

    torch.compile(attend, backend=backend)(torch.randn(1, 2, 4, 8))
    (graph_module,) = graphs
    if cuda:
        with FakeTensorMode():
            on_cuda = torch.empty(1, 2, 4, 8, device="cuda")
        (placeholder,) = graph_module.graph.find_nodes(op="placeholder")
        placeholder.meta["example_value"] = on_cuda
    return graph_module


def masks(graph_module):
    return [
        node.kwargs.get("attn_mask")
        for node in graph_module.graph.nodes
        if node.target is scaled_dot_product_attention
    ]


@pytest.mark.parametrize(
    ("cuda", "executors", "rewritten"),
    [(True, "auto", True), (False, "auto", False), (True, "inductor", False)],
)
def test_masks_are_looked_at_on_cuda_where_executors_are_automatic(cuda, executors, rewritten):
    result, findings = give_native_masks(captured(cuda=cuda), make_options(executors=executors))
    assert [finding.rewritten for finding in findings] == ([True] if rewritten else [])
    assert all((mask is None) is rewritten for mask in masks(result))
    assert len(masks(result)) == 1


def fail(self, graph_module):
    graph_module.graph.create_node("placeholder", "rubbish")
    raise ValueError("no luck")


def test_a_failure_leaves_the_graph_as_it_was(monkeypatch):
    monkeypatch.setattr(AttentionMaskTransform, "apply", fail)
    with pytest.warns(FallbackWarning, match=r"no luck.*Attention masks stay as they are"):
        result, findings = give_native_masks(captured(cuda=True), make_options())
    x = torch.randn(1, 2, 4, 8)
    torch.testing.assert_close(result(x)[0], attend(x))
    assert findings == ()
    with pytest.raises(TransformError, match="no luck"):
        give_native_masks(captured(cuda=True), make_options(on_failure="raise"))


def test_what_was_found_is_in_the_summary():
    compiled = thunderfx(attend, executors=["aten"])
    compiled(torch.randn(1, 2, 4, 8))
    (info,) = compiled._backend.subgraph_infos
    assert info.mask_findings == ()
    assert "attention masks" not in str(info)
