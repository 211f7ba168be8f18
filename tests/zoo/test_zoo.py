"""Hugging Face models of many families do compiled what they do in eager mode.

make zoo                                  everything, op by op
ZOO_EXECUTORS=auto make zoo               the same through Inductor; takes long
"""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

import thunder
from thunder import thunderfx

sys.path.insert(0, str(Path(__file__).parent))
from models import MODELS, Case  # pyright: ignore[reportMissingImports]

EXECUTORS = os.environ.get("ZOO_EXECUTORS", "aten")
TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}


def losses_and_state(model, case: Case, compiled):
    """Two training steps and one evaluation: outputs, gradients, parameters and buffers."""
    results = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for _ in range(2):
        torch.manual_seed(11)
        optimizer.zero_grad()
        outputs = compiled(**case.inputs)
        outputs.loss.backward()
        results.append([t.detach() for t in tensors(outputs)])
        results.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
        results[-1] = {n: g.clone() for n, g in results[-1].items()}
        optimizer.step()
    model.eval()
    with torch.no_grad():
        results.append(tensors(compiled(**case.inputs)))
    results.append({n: b.clone() for n, b in model.named_buffers()})
    return results


def tensors(outputs):
    leaves = tree_leaves(dict(outputs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("name", MODELS)
def test_as_in_eager(name):
    torch.manual_seed(5)
    case: Case = MODELS[name]()
    for module in case.model.modules():  # Inductor draws other numbers than eager
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for value in ("hidden_dropout", "attention_dropout", "activation_dropout", "dropout"):
        for module in case.model.modules():
            if isinstance(getattr(module, value, None), float):
                setattr(module, value, 0.0)
    twin = copy.deepcopy(case.model)
    expected = losses_and_state(case.model, case, case.model)
    compiled = thunderfx(twin, executors=EXECUTORS, on_failure="raise")
    got = losses_and_state(twin, case, compiled)
    torch.testing.assert_close(got, expected, **TOLERANCE)
    infos = thunder.get_subgraph_info(compiled)
    assert infos
    assert not [reason for info in infos for reason in info.split_reasons]
