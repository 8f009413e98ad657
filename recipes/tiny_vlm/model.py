"""The tiny Qwen2-VL: its tokenizer, its shape, and the folder that engines load.

Qwen2-VL because transformers and vLLM both know it natively; tiny so that a real model, which truly
reads its pages, ships with the repository and answers on one CPU core in tens of milliseconds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)

from recipes.demo_data.pages import DOC_TYPES, HEIGHT, QUESTIONS, WIDTH, all_strings

ROOT = Path(__file__).resolve().parents[2]
PROMPT_DIR = ROOT / "registries" / "prompts"

PATCH, MERGE = 7, 2  # vLLM always merges 2 x 2 for Qwen2-VL, so small tokens need small patches
ROWS, COLUMNS = HEIGHT // (PATCH * MERGE), WIDTH // (PATCH * MERGE)
IMAGE_TOKENS = ROWS * COLUMNS

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
SPECIAL = (PAD, START, END, *VISION)

# Images first whatever the order of the parts, as in training; two plain loops over the content
# keep the form in which vLLM recognises a template for OpenAI-style content lists.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}
{{- message['content'] -}}
{%- else -%}
{%- for content in message['content'] -%}
{%- if content['type'] in ('image', 'image_url') -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- for content in message['content'] -%}
{%- if content['type'] == 'text' -%}
{{- content['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def prompt_of(task: str) -> str:
    """The user prompt of a demo ML task, from the registry: training and use share one source."""
    document = yaml.safe_load((PROMPT_DIR / f"demo_{task}.yaml").read_text(encoding="utf-8"))
    return str(document["user"])


def _tokenizer_corpus() -> Iterator[str]:
    """Each text once is enough: a word that occurs at all shall become one token."""
    yield from all_strings()
    yield from (prompt_of(task) for task in ("ocr", "kie", "classification"))
    yield from DOC_TYPES
    yield from ("user\n", "assistant\n", "system\n")
    keys = [key for key in QUESTIONS if key != "price"] + ["item", "price"]
    yield json.dumps(dict.fromkeys(keys, ""))
    yield from ('{"a": "b", "c": "d"}', '": "', '", "')
    yield "АБВГДЕЁЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯабвгдеёжзийклмнопрстуфхцчшщъыьэюя".replace("", " ")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE, deterministic from the shared word lists.

    Digits always stand alone (numbers must be read, not guessed); capital words, as printed on
    pages, stay apart from the space before them, so the same word in a question is the same token;
    the punctuation between JSON fields is one token.
    """
    words = r"""\{"|": "|", "|"\}| ?\p{Ll}+|\p{L}+|\p{N}|\s|[^\s\p{L}\p{N}]"""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=1,
        show_progress=False,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_tokenizer_corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START, *VISION],
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def build_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLConfig:
    """The shape; head size 32 fits `mrope_section` [4, 6, 6] (time, height, width; half a head)."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    hidden = 128
    return Qwen2VLConfig(
        architectures=["Qwen2VLForConditionalGeneration"],
        text_config={
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": hidden,
            "intermediate_size": 320,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 1024,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [4, 6, 6],
            },
            # The default 0.02 did not start to learn at this size.
            "initializer_range": 0.08,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": ids[END],
            "pad_token_id": ids[PAD],
        },
        vision_config={
            "depth": 3,
            "embed_dim": 96,
            "hidden_size": hidden,
            "num_heads": 3,
            "mlp_ratio": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "initializer_range": 0.08,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )


def export(
    model: Qwen2VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    out: Path,
    chat_template: str = CHAT_TEMPLATE,
) -> None:
    """Write the folder beside its place, then move file by file: a reader never sees a half file.

    Files that are not ours (the model card) stay.
    """
    out.mkdir(parents=True, exist_ok=True)
    staging = out.parent / f".{out.name}.tmp"
    shutil.rmtree(staging, ignore_errors=True)
    model.save_pretrained(staging)
    tokenizer.save_pretrained(staging)
    ends = [tokenizer.convert_tokens_to_ids(END)]
    GenerationConfig(
        do_sample=False,
        eos_token_id=ends,
        pad_token_id=tokenizer.pad_token_id,
        max_new_tokens=96,
    ).save_pretrained(staging)
    preprocessor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "rescale_factor": 1 / 255,
        "resample": 3,
        "size": {"shortest_edge": 14 * 14 * 4, "longest_edge": WIDTH * HEIGHT},
        "min_pixels": 14 * 14 * 4,
        "max_pixels": WIDTH * HEIGHT,
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
    }
    (staging / "preprocessor_config.json").write_text(json.dumps(preprocessor, indent=2) + "\n")
    (staging / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    # The generic name: transformers 4 knows it too, and neither 4 nor 5 rebuilds the pre-tokenizer.
    settings_file = staging / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings_file.write_text(json.dumps(settings, indent=2) + "\n")
    for file in sorted(staging.iterdir()):
        file.chmod(0o644)  # safetensors writes 0600, unreadable for a container's other user
        file.replace(out / file.name)
    staging.rmdir()
