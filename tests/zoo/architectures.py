"""The architectures that transformers knows, and the classes to try for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

MAPPINGS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_BACKBONE_MAPPING_NAMES",
    "MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES",
    "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES",
    "MODEL_FOR_MASK_GENERATION_MAPPING_NAMES",
    "MODEL_FOR_KEYPOINT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_KEYPOINT_MATCHING_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TO_IMAGE_MAPPING_NAMES",
)
"""Where to look for a type's class, classes that compute a loss by themselves first."""


def model_types() -> list[str]:
    """Returns the types with a class that the `AutoModel` classes know.

    The other configurations are of parts that only exist in other models, which have types too.
    """
    return sorted(name for name in CONFIG_MAPPING_NAMES if _class_names(name))


def default_config(model_type: str) -> PreTrainedConfig:
    return CONFIG_MAPPING[model_type]()


def model_classes(model_type: str) -> Iterator[type[PreTrainedModel]]:
    """Yields the classes of a type, each once.

    Args:
        model_type: A configuration's type, such as `llama`.
    """
    for name in _class_names(model_type):
        yield getattr(transformers, name)


def _class_names(model_type: str) -> list[str]:
    names: list[str] = []
    for mapping in MAPPINGS:
        found: Any = getattr(modeling_auto, mapping).get(model_type, ())
        names += (found,) if isinstance(found, str) else found
    return list(dict.fromkeys(names))
