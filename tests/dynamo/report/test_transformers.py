"""Every script that is written for a transformers model runs green in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import transformers as hf

from thunder.dynamo.report import save_thunderfx_repros

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}


def llama():
    ids = torch.randint(0, 64, (2, 8))
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES, use_cache=False))
    return model.train(), {"input_ids": ids, "labels": ids}


def bert():
    model = hf.BertForSequenceClassification(hf.BertConfig(**SIZES))
    inputs = {"input_ids": torch.randint(0, 64, (2, 8)), "labels": torch.tensor([0, 1])}
    return model.train(), inputs  # with dropout


@pytest.mark.slow
@pytest.mark.parametrize("make", [llama, bert])
def test_scripts_run(make, tmp_path):
    model, inputs = make()
    paths = save_thunderfx_repros(model, tmp_path, **inputs)
    assert len(paths) == 6
    for path in paths:
        ended = subprocess.run(
            [sys.executable, str(path)],
            cwd=path.anchor,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{path.name}: {ended.stderr[-2000:]}"
