"""Fields of configurations that the rules of `shrinking.py` get wrong, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The inner size (hidden size times expansion) is the number of heads times their size.
_INNER = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1}
_SERIES = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2]}

OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    "bamba": _INNER,
    "granitemoehybrid": _INNER,
    "mamba2": {"num_heads": 8},  # as above
    # No lengths of the series are given by default.
    "autoformer": _SERIES,
    "informer": _SERIES,
    "time_series_transformer": _SERIES,
    # Both kinds of layers are needed, and their pattern is longer than two layers by default.
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "jamba": {
        "num_hidden_layers": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    "recurrent_gemma": {"num_hidden_layers": 3},
    # The word that stands for an image has to be known.
    "chameleon": {"vocabulary_map": {"<image>": 100}},
    "emu3": {"vocabulary_map": {"<image>": 100}},
    "lilt": {"hidden_size": 96},  # six coordinates share it
}
