"""Programs with symbolic sizes, and a check that one fusion serves every size."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.executors.nvfuser.edges import normal
from tests.executors.nvfuser.harness import (
    compare,
    compiled_by_aot,
    differentiated,
    executor_for,
    with_reference,
)


def norm_and_views(x, w):
    y = F.gelu(F.layer_norm(x * 2, (16,), w))
    return y.reshape(-1, 16) + x.reshape(-1, 16).sum(0)


def attention_scores(x, w):
    scores = (x * w).unsqueeze(1).expand(-1, 3, -1, -1)
    return F.softmax(scores, -1).transpose(1, 2)


def sizes_as_numbers(x, w):
    return x * x.shape[0] + w / (x.shape[0] * 2 + 1)


def filled(x, w):
    return x + torch.ones(x.shape[0], 1, 1, device=x.device) * w


FUNCTIONS = [norm_and_views, attention_scores, sizes_as_numbers, filled]
BATCHES = (4, 7, 4, 33)


def check(function, device, training):
    compiled, regions = compiled_by_aot(function, executor_for(device), dynamic=True)
    run = differentiated if training else lambda function, given: [function(*given)]
    for batch in BATCHES:
        inputs = [normal(batch, 5, 16, device=device), normal(16, device=device)]
        with torch.set_grad_enabled(training):
            expected, reference = with_reference(lambda *given: run(function, given), inputs)
            compare(run(compiled, inputs), expected, reference, exact_strides=False)
    assert regions
    assert all(len(region.variants) == 1 for region in regions)
    return regions
