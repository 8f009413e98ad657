# ruff: noqa: E501 - entries of architectures are as wide as they are
"""Checkpoints of the architectures that transformers knows, with random weights of a tiny shape.

    python -m tests.engine.architectures          # their names
    echo gemma3 FOLDER | python -m tests.engine.architectures write

A checkpoint has all that the hub's has: configuration, weights, tokenizer, processor, chat template. The
configuration is the library's own default with small numbers in it; what an architecture needs besides, its
entry here says. The tokenizer has a token for each byte, so any prompt can be written in it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.registry.model_table import shipped

WIDTH = 64
"""Features of a text token; every vision part ends in so many."""

SMALL: Mapping[str, Any] = {
    "hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "depth": 2, "num_heads": 4, "embed_dim": WIDTH,
    "out_hidden_size": WIDTH, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "hidden_size_per_layer_input": 16, "max_position_embeddings": 16384,
    "max_window_layers": 2, "projection_dim": WIDTH, "layer_types": None, "mlp_layer_types": None,
    "per_layer_config": None,
}  # fmt: skip
"""Number of a configuration → its small value, wherever the default has it; None: left to the library."""

TEMPLATE = """\
{%- for message in messages -%}
{%- if message['content'] is string -%}{{- message['content'] -}}
{%- else -%}
{%- for part in message['content'] -%}
{%- if part['type'] in ('image', 'image_url') -%}{{- 'IMAGE' -}}
{%- elif part['type'] == 'text' -%}{{- part['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- ' A:' -}}{%- endif -%}
"""

END, PAD, BEGIN = "<|end|>", "<|pad|>", "<|begin|>"

MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}


@dataclass(frozen=True)
class Architecture:
    """Needs of a tiny checkpoint of one architecture besides small numbers."""

    families: tuple[str, ...]
    """`family` of the model definitions that are of it: transformers' configuration names a checkpoint of the
    family, or the definition or the hub's `config.json` names the architecture. Of `x` and `x_moe`, models named
    `…-A3B` are of the second."""
    image: str
    """Place of an image in the prompt, as its processor looks for it."""
    tokens: tuple[str, ...]
    """Its special tokens."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Attribute of the tokenizer → special token, where its processor reads it there."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Key of the configuration → special token whose number belongs there."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Further values of the configuration, `text_config` and `vision_config` inside it."""
    processor: Mapping[str, Any] = field(default_factory=dict)
    """Options of its processor."""
    images: Mapping[str, Any] = field(default_factory=dict)
    """Options of its image processor."""
    videos: Mapping[str, Any] = field(default_factory=dict)
    """Options of its video processor."""
    processor_of: str = ""
    """Architecture whose processor it has, where the library names none."""
    only: tuple[str, ...] = ()
    """Definitions that are of it, where their family is of several architectures."""


def _qwen(
    families: tuple[str, ...],
    text: Mapping[str, Any],
    vision: Mapping[str, Any],
    patch: int = 16,
    **more: Any,
) -> Architecture:
    return Architecture(
        families, "<|vision_start|><|image_pad|><|vision_end|>",
        ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
        ids={"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>",
             "vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"},
        config={"text_config": text, "vision_config": vision},
        images={"size": {"shortest_edge": 3136, "longest_edge": 100352}, "patch_size": patch}, **more,
    )  # fmt: skip


_SIGLIP = {"image_size": 56, "patch_size": 14}
_GLM = (
    "<|begin_of_image|>", "<|end_of_image|>", "<|image|>", "<|begin_of_video|>",
    "<|end_of_video|>", "<|video|>",
)  # fmt: skip
_GLM_IDS = dict(zip(
    ("image_start_token_id", "image_end_token_id", "image_token_id", "video_start_token_id",
     "video_end_token_id", "video_token_id"), _GLM, strict=True,
))  # fmt: skip


def _glm(
    *families: str, text: Mapping[str, Any] | None = None, of: str = "", only: tuple[str, ...] = ()
) -> Architecture:
    rope = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 2],
    }
    return Architecture(
        families, "".join((_GLM[0], _GLM[2], _GLM[1])), _GLM, ids=_GLM_IDS,
        config={"text_config": {"rope_parameters": rope, **(text or {})}, "vision_config": {"image_size": 56}},
        images={"size": {"shortest_edge": 3136, "longest_edge": 100352}}, processor_of=of, only=only,
    )  # fmt: skip


_MOE = {"moe_intermediate_size": 32}
_HYBRID = {
    "layer_types": ["linear_attention", "full_attention"],
    "rope_parameters": {
        **MROPE,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 2],
        "mrope_interleaved": True,
    },
}
_GEMMA = ("<start_of_image>", "<end_of_image>", "<image_soft_token>")
_GEMMA_NAMES = {"boi_token": _GEMMA[0], "eoi_token": _GEMMA[1], "image_token": _GEMMA[2]}

ARCHITECTURES: Mapping[str, Architecture] = {
    "qwen2_vl": _qwen(("Qwen2-VL",), {"rope_parameters": MROPE}, {"hidden_size": WIDTH}, 14),
    "qwen2_5_vl": _qwen(("Qwen2.5-VL", "NuMarkdown", "Nanonets-OCR", "MiMo-VL"),
                        {"rope_parameters": MROPE}, {"fullatt_block_indexes": [1]}, 14),
    "qwen3_vl": _qwen(("Qwen3-VL",), {"rope_parameters": MROPE},
                      {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 16}),
    "qwen3_vl_moe": _qwen(("Qwen3-VL",), {"rope_parameters": MROPE},
                          {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 16}, processor_of="qwen3_vl"),
    "qwen3_5": _qwen(("Qwen3.5", "Qwen3.6"), _HYBRID, {"num_position_embeddings": 16}),
    "qwen3_5_moe": _qwen(("Qwen3.5", "Qwen3.6"), _HYBRID, {"num_position_embeddings": 16}),
    "gemma3": Architecture(
        ("Gemma 3",), _GEMMA[0], _GEMMA, named=_GEMMA_NAMES,
        ids={"boi_token_index": _GEMMA[0], "eoi_token_index": _GEMMA[1], "image_token_index": _GEMMA[2]},
        config={"mm_tokens_per_image": 4, "vision_config": _SIGLIP, "text_config": {"query_pre_attn_scalar": 16}},
        processor={"image_seq_length": 4}, images={"size": {"height": 56, "width": 56}},
    ),
    "gemma4": Architecture(
        ("Gemma 4",), "<|image|>", ("<|image>", "<image|>", "<|image|>", "<|video|>", "<|audio>", "<audio|>", "<|audio|>"),
        named={"boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>", "video_token": "<|video|>",
               "boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>"},
        ids={"boi_token_id": "<|image>", "eoi_token_id": "<image|>", "image_token_id": "<|image|>",
             "video_token_id": "<|video|>", "audio_token_id": "<|audio|>"},
        config={"vision_config": {"model_type": "gemma4_vision"},
                "text_config": {"per_layer_config": {"1": {"head_dim": 16, "num_key_value_heads": 2}}}},
        only=("google/gemma-4-E2B-it", "google/gemma-4-E4B-it", "google/gemma-4-26B-A4B-it", "google/gemma-4-31B-it"),
    ),
    "internvl": Architecture(
        ("InternVL3", "InternVL3.5"), "<IMG_CONTEXT>", ("<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
        named={"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
               "video_token": "<video>"},
        ids={"image_token_id": "<IMG_CONTEXT>"},
        config={"image_seq_length": 4, "vision_config": {"image_size": [56, 56], "patch_size": [14, 14]}},
        processor={"image_seq_length": 4}, images={"size": {"height": 56, "width": 56}},
    ),
    "mistral3": Architecture(
        ("Mistral Small", "Ministral 3"), "[IMG]", ("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        ids={"image_token_index": "[IMG]"}, config={"vision_config": {"image_size": 112, "patch_size": 14}},
        processor={"patch_size": 14, "spatial_merge_size": 2}, images={"size": {"longest_edge": 112}, "patch_size": 14},
    ),
    "llava": Architecture(
        ("Pixtral",), "[IMG]", ("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        ids={"image_token_index": "[IMG]"},
        config={"vision_config": {"model_type": "pixtral", "image_size": 112, "patch_size": 14},
                "vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
        processor={"patch_size": 14}, images={"size": {"longest_edge": 112}, "patch_size": 14},
        processor_of="mistral3",
    ),
    "idefics3": Architecture(
        ("Granite-Docling", "SmolDocling"), "<image>",
        ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"),
        ids={"image_token_id": "<image>"},
        config={"scale_factor": 2, "vision_config": {"image_size": 56, "patch_size": 14}},
        processor={"image_seq_len": 4},
        images={"size": {"longest_edge": 112}, "max_image_size": {"longest_edge": 56}},
    ),
    "smolvlm": Architecture(
        ("SmolVLM",), "<image>", ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"),
        named={"image_token": "<image>", "fake_image_token": "<fake_token_around_image>",
               "global_image_token": "<global-img>"},
        ids={"image_token_id": "<image>"},
        config={"scale_factor": 2, "vision_config": {"image_size": 56, "patch_size": 14}},
        processor={"image_seq_len": 4},
        images={"size": {"longest_edge": 112}, "max_image_size": {"longest_edge": 56}},
    ),
    "lfm2_vl": Architecture(
        ("LFM2.5-VL",), "<image>",
        ("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
        named={"image_token": "<image>", "image_start_token": "<|image_start|>",
               "image_end_token": "<|image_end|>", "image_thumbnail": "<|img_thumbnail|>"},
        ids={"image_token_id": "<image>"},
        config={"text_config": {"layer_types": ["conv", "full_attention"]}},
        images={"max_image_tokens": 16, "min_image_tokens": 4, "do_image_splitting": False},
    ),
    "llava_onevision": Architecture(
        ("LLaVA-OneVision",), "<image>", ("<image>", "<video>"),
        ids={"image_token_index": "<image>", "image_token_id": "<image>", "video_token_id": "<video>"},
        config={"vision_config": _SIGLIP, "image_grid_pinpoints": [[56, 112], [112, 56]]},
        processor={"num_image_tokens": 16, "vision_feature_select_strategy": "full"},
        images={"size": {"height": 56, "width": 56}, "image_grid_pinpoints": [[56, 112], [112, 56]]},
    ),
    "llava_next": Architecture(
        (), "<image>", ("<image>",), ids={"image_token_index": "<image>", "image_token_id": "<image>"},
        config={"vision_config": {"model_type": "siglip_vision_model", **_SIGLIP},
                "image_grid_pinpoints": [[56, 112], [112, 56]], "vision_feature_select_strategy": "full", "vision_feature_layer": -1},
        processor={"patch_size": 14, "vision_feature_select_strategy": "full"},
        images={"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56},
                "image_grid_pinpoints": [[56, 112], [112, 56]]},
    ),
    "glm4v": _glm("GLM-V", only=("zai-org/GLM-4.1V-9B-Thinking",)),
    "glm4v_moe": _glm("GLM-V", text=_MOE, of="glm4v", only=("zai-org/GLM-4.5V",)),
    "glm_ocr": _glm("GLM-OCR", of="glm46v"),
    "paddleocr_vl": Architecture(
        ("PaddleOCR-VL",), "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        ("<|IMAGE_START|>", "<|IMAGE_END|>", "<|IMAGE_PLACEHOLDER|>", "<|VIDEO|>"),
        named={"image_token": "<|IMAGE_PLACEHOLDER|>"},
        ids={"image_token_id": "<|IMAGE_PLACEHOLDER|>", "video_token_id": "<|VIDEO|>",
             "vision_start_token_id": "<|IMAGE_START|>", "vision_end_token_id": "<|IMAGE_END|>"},
        config={"text_config": {"rope_parameters": MROPE}, "vision_config": {"image_size": 56}},
        images={"size": {"shortest_edge": 3136, "longest_edge": 100352}},
    ),
    "minicpmv4_6": Architecture(
        ("MiniCPM-V",), "<|image_pad|>",
        ("<image>", "</image>", "<image_id>", "</image_id>", "<slice>", "</slice>", "<|image_pad|>", "<|video_pad|>"),
        named={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "image_start_token": "<image>",
               "image_end_token": "</image>", "slice_start_token": "<slice>", "slice_end_token": "</slice>",
               "image_id_start_token": "<image_id>", "image_id_end_token": "</image_id>"},
        ids={"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"},
        config={"text_config": _HYBRID, "insert_layer_id": 0, "vision_config": {"image_size": 56, "patch_size": 14, "insert_layer_id": 0}},
        only=("openbmb/MiniCPM-V-4.6",),
    ),
    "hunyuan_vl": Architecture(
        ("HunyuanOCR",), "<img><image></img>", ("<img>", "</img>", "<image>", "<newline>"),
        named={"image_token": "<image>", "image_start_token": "<img>", "image_end_token": "</img>"},
        ids={"image_token_id": "<image>", "im_start_id": "<img>", "im_end_id": "</img>", "im_newline_id": "<newline>"},
        config={"text_config": {"head_dim": 16, "rope_parameters": {**MROPE, "mrope_section": [2, 2, 2, 2]}}},
    ),
    "ernie4_5_vl_moe": Architecture(
        ("ERNIE-4.5-VL",), "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        ("<|IMAGE_START|>", "<|IMAGE_END|>", "<|IMAGE_PLACEHOLDER|>", "<|VIDEO_START|>", "<|VIDEO_END|>",
         "<|VIDEO_PLACEHOLDER|>"),
        named={"image_token": "<|IMAGE_PLACEHOLDER|>", "image_start_token": "<|IMAGE_START|>",
               "image_end_token": "<|IMAGE_END|>", "video_token": "<|VIDEO_PLACEHOLDER|>",
               "video_start_token": "<|VIDEO_START|>", "video_end_token": "<|VIDEO_END|>"},
        ids={"image_token_id": "<|IMAGE_PLACEHOLDER|>", "image_start_token_id": "<|IMAGE_START|>",
             "image_end_token_id": "<|IMAGE_END|>", "video_token_id": "<|VIDEO_PLACEHOLDER|>",
             "video_start_token_id": "<|VIDEO_START|>", "video_end_token_id": "<|VIDEO_END|>"},
        config={"text_config": {"moe_intermediate_size": [32, 32], "moe_k": 2, "moe_num_experts": 4,
                                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                    "mrope_section": [3, 3, 2]}}},
        images={"size": {"shortest_edge": 3136, "longest_edge": 100352}}, videos={"draw_on_frames": False},
    ),
    "glm46v": _glm("GLM-V", only=("zai-org/GLM-4.6V",)),
    "lighton_ocr": Architecture(
        ("LightOnOCR",), "<|image_pad|>", ("<|image_pad|>", "<|vision_pad|>", "<|vision_end|>"),
        named={"image_token": "<|image_pad|>", "image_break_token": "<|vision_pad|>", "image_end_token": "<|vision_end|>"},
        ids={"image_token_id": "<|image_pad|>"}, config={"vision_config": {"image_size": 112, "patch_size": 14}},
        processor={"patch_size": 14, "spatial_merge_size": 2},
        images={"size": {"longest_edge": 112}, "patch_size": 14},
    ),
}  # fmt: skip


def names() -> list[str]:
    """Architectures that have an entry."""
    return list(ARCHITECTURES)


def definitions(name: str) -> list[str]:
    """Shipped model definitions of an architecture."""
    one, found = ARCHITECTURES[name], []
    for model in shipped():
        mixture = bool(re.search(r"-A\d+B", model.name))
        twin = f"{name}_moe" in ARCHITECTURES or name.removesuffix("_moe") != name
        of_it = model.family in one.families and (not one.only or model.name in one.only)
        if of_it and (one.only or not twin or mixture == name.endswith("_moe")):
            found.append(model.name)
    return found


def write(name: str, folder: Path) -> None:
    """Write a checkpoint of an architecture into a folder."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    one, auto = ARCHITECTURES[name], _auto()
    tokenizer = _tokenizer(one)
    ids = {key: tokenizer.convert_tokens_to_ids(token) for key, token in one.ids.items()}
    kind = CONFIG_MAPPING[name]
    values = _merged(_small(kind().to_dict(), tokenizer), {**one.config, **ids})
    torch.manual_seed(1)
    model = transformers.AutoModelForImageTextToText.from_config(kind(**values))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.to(torch.float32).save_pretrained(folder)
    auto(one.processor_of or name, tokenizer, one).save_pretrained(folder)


def _auto() -> Any:
    import inspect

    import transformers
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
    from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING_NAMES

    def made(name: str, tokenizer: Any, one: Architecture) -> Any:
        kind = getattr(transformers, PROCESSOR_MAPPING_NAMES[name])
        takes = inspect.signature(kind.__init__).parameters
        parts: dict[str, Any] = {}
        for part, known, options in (
            ("image_processor", IMAGE_PROCESSOR_MAPPING_NAMES, one.images),
            ("video_processor", VIDEO_PROCESSOR_MAPPING_NAMES, one.videos),
            ("feature_extractor", FEATURE_EXTRACTOR_MAPPING_NAMES, {}),
        ):
            if part in takes:
                of = known[name] if isinstance(known[name], str) else known[name]["torchvision"]
                parts[part] = getattr(transformers, of)(**options)
        template = TEMPLATE.replace("IMAGE", one.image)
        return kind(tokenizer=tokenizer, chat_template=template, **parts, **one.processor)

    return made


def _tokenizer(one: Architecture) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={one: n for n, one in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = list(dict.fromkeys([PAD, BEGIN, END, *one.tokens]))
    tokenizer.add_special_tokens([AddedToken(word, normalized=False) for word in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, bos_token=BEGIN,
        extra_special_tokens=dict(one.named), model_max_length=8192,
    )  # fmt: skip


def _small(values: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """A configuration with small numbers; parts inside it, too."""
    found = dict(values)
    for key, value in values.items():
        if key in ("vocab_size", "vocab_size_per_layer_input"):
            found[key] = len(tokenizer)
        elif key in ("eos_token_id", "pad_token_id", "bos_token_id"):
            found[key] = getattr(tokenizer, key)
        elif key in SMALL and value is not None:
            found[key] = SMALL[key]
        elif isinstance(value, Mapping) and key.endswith("_config"):
            found[key] = _small(value, tokenizer)
    return found


def _merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(values)
    for key, value in over.items():
        below = found.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping) and key.endswith("_config")
        found[key] = _merged(below, value) if both else value
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        for line in sys.stdin:
            wanted, where = line.split(maxsplit=1)
            write(wanted, Path(where.strip()))
            print(wanted, flush=True)
    else:
        print("\n".join(names()))
