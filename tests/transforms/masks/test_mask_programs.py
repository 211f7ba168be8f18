"""Generated programs that compute a mask: what is concluded about it is what eager computes.

Programs are Python text, so that a failing one is printed as somebody could have written it.
"""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.transforms.masks.captured import MARK, capture, dense, marked
from thunder.transforms.attention_mask import AttentionMaskTransform, mask_findings
from thunder.transforms.masks.forms import MaskForm

SMALL = st.integers(-3, 3)
POSITIONS = st.sampled_from(
    [
        "torch.arange(n)[:, None]",
        "torch.arange(n).unsqueeze(-1)",
        "torch.arange(n).view(n, 1)",
        "torch.arange(1, n + 1)[:, None]",
        "torch.ones(n, 1, dtype=torch.long).cumsum(0)",
        "torch.arange(m)[None, :]",
        "torch.arange(m).expand(n, m)",
        "torch.cat([torch.arange(2), torch.arange(m - 2) + 2])[None]",
        "torch.arange(m + 1)[1:]",
        "torch.arange(n + m)[torch.arange(n)[:, None] + 1]",
    ]
)
LEAVES = st.sampled_from(
    [
        "torch.ones(n, m, dtype=torch.bool)",
        "torch.zeros(n, m, dtype=torch.bool)",
        "torch.arange(n)[:, None] >= torch.arange(m)",
        "torch.ones(n, m).tril().bool()",
    ]
)


def integers_of(inner):
    return st.one_of(
        st.builds("({} + {})".format, inner, SMALL),
        st.builds("({} - {})".format, inner, inner),
        st.builds("({} * {})".format, inner, SMALL),
        st.builds("(-{})".format, inner),
        st.builds("{}.abs()".format, inner),
        st.builds("torch.maximum({}, {})".format, inner, inner),
        st.builds("torch.minimum({}, {})".format, inner, inner),
    )


INTEGERS = st.recursive(POSITIONS, integers_of, max_leaves=3)
COMPARED = st.builds(
    "({} {} {})".format,
    INTEGERS,
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    st.one_of(INTEGERS, SMALL),
)


def masks_of(inner):
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("&|^"), inner),
        st.builds("(~{})".format, inner),
        st.builds("{}.broadcast_to(n, m).tril({})".format, inner, SMALL),
        st.builds("torch.triu(({}).expand(n, m), diagonal={})".format, inner, SMALL),
        st.builds("torch.where({}, {}, {})".format, inner, inner, inner),
        st.builds("{}.broadcast_to(n, m).clone().masked_fill_({}, True)".format, inner, inner),
        st.builds("({})[:, torch.arange(m)]".format, st.builds("{}.expand(n, m)".format, inner)),
        st.builds("({}).long().ne(0)".format, inner),
    )


MASKS = st.recursive(st.one_of(LEAVES, COMPARED), masks_of, max_leaves=4)


def compiled(source: str):
    names: dict = {"torch": torch}
    exec(f"def mask(n, m):\n    return ({source}).expand(n, m)", names)
    return names["mask"]


@settings(max_examples=40)
@given(MASKS, st.integers(3, 6), st.integers(3, 6))
def test_what_is_known_is_true(source, n, m):
    torch._dynamo.reset()
    mask = compiled(source)
    (tensor,) = marked(capture(lambda: MARK(mask(n, m))))
    if tensor is not None:
        assert torch.equal(dense(tensor), mask(n, m))


def rewritten_form(mask, length: int) -> MaskForm | None:
    """Returns the form that attention over as many queries as keys is given, None for none."""
    found = []

    def backend(graph_module, inputs):
        AttentionMaskTransform().apply(graph_module)
        found.extend(mask_findings(graph_module))
        graph_module.recompile()
        return graph_module

    def attend(x):
        return attention(x, x, x, attn_mask=mask(x.shape[-2], x.shape[-2]))

    x = torch.randn(1, 1, length, 8)
    result = torch.compile(attend, backend=backend, fullgraph=True)(x)
    (finding,) = found
    if finding.rewritten:
        torch.testing.assert_close(result, attend(x))
    return finding.form if finding.rewritten else None


@settings(max_examples=40)
@given(MASKS, st.integers(3, 6))
def test_what_is_rewritten_is_that_mask(source, length):
    torch._dynamo.reset()
    mask = compiled(source)
    ones = torch.ones(length, length, dtype=torch.bool)
    form = rewritten_form(mask, length)
    if form is MaskForm.CAUSAL:
        assert torch.equal(mask(length, length), ones.tril())
    elif form is MaskForm.ALL_TRUE:
        assert torch.equal(mask(length, length), ones)
    else:
        assert form is None


CAUSAL_PARTS = st.sampled_from(
    [
        "torch.ones(n, m, dtype=torch.bool).tril()",
        "(torch.arange(n)[:, None] >= torch.arange(m))",
        "(torch.arange(m)[None] - torch.arange(n)[:, None] < 1)",
        "(~torch.ones(n, m).triu(1).bool())",
        "(torch.ones(n, 1, dtype=torch.long).cumsum(0) > torch.arange(m))",
    ]
)
HARMLESS = st.sampled_from(
    [
        "({} & (torch.arange(m) >= 0))",
        "({} | (torch.arange(m) > torch.arange(n)[:, None] + m))",
        "({} & (torch.arange(n)[:, None] - torch.arange(m) < n))",
        "torch.where(torch.arange(n)[:, None] >= 0, {}, torch.zeros(n, m, dtype=torch.bool))",
        "({}).long().bool()",
        "(~(~{}))",
        "{}.tril(m)",
    ]
)


@settings(max_examples=20)
@given(CAUSAL_PARTS, CAUSAL_PARTS, HARMLESS, st.integers(3, 9))
def test_causal_masks_are_found_however_they_are_written(first, second, frame, length):
    """The proof is complete for what models write, not only sound."""
    torch._dynamo.reset()
    assert (
        rewritten_form(compiled(frame.format(f"({first} & {second})")), length) is MaskForm.CAUSAL
    )


@settings(max_examples=20)
@given(CAUSAL_PARTS, st.integers(0, 5), st.integers(0, 5))
def test_one_flipped_element_is_seen(part, row, column):
    torch._dynamo.reset()
    at = f"(torch.arange(n)[:, None] == {row}) & (torch.arange(m) == {column})"
    assert rewritten_form(compiled(f"{part} ^ ({at})"), 6) is None
