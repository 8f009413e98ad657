"""A vision-language model of true size with random weights, for figures of speed and memory.

Qwen2-VL's architecture in the widths of its 2B model, with two layers more, which makes 2.1 B parameters: the
vocabulary is the tiny model's, since no tokenizer can be fetched where this runs. Its answers are noise, so
they end at `max_tokens`; it computes for each token and holds in memory as much as a real one.

    python benchmarks/gpu/random_vlm.py FOLDER [--layers 30]
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from transformers import AutoTokenizer, GenerationConfig, Qwen2VLConfig
from transformers import Qwen2VLForConditionalGeneration as Qwen2VL

TINY = Path(__file__).resolve().parents[2] / "examples/demo/model"


def main() -> None:
    """Write the folder that engines load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=30, help="fewer for a try without a GPU")
    args = parser.parse_args()
    parameters = write(args.folder, args.layers)
    print(f"{args.folder}: {parameters / 1e9:.2f} B parameters")


def write(folder: Path, layers: int) -> int:
    """Make it; returns how many parameters it has."""
    folder.mkdir(parents=True, exist_ok=True)
    tiny = json.loads((TINY / "config.json").read_text())
    config = Qwen2VLConfig(
        architectures=["Qwen2VLForConditionalGeneration"],
        text_config={
            "vocab_size": tiny["text_config"]["vocab_size"],
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": layers,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32768,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [16, 24, 24],
            },
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": tiny["text_config"]["eos_token_id"],
            "pad_token_id": tiny["text_config"]["pad_token_id"],
        },
        vision_config={
            "depth": min(32, layers + 4),
            "embed_dim": 1280,
            "hidden_size": 1536,
            "num_heads": 16,
            "mlp_ratio": 4,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        tie_word_embeddings=True,
        **{
            name: tiny[name]
            for name in tiny
            if name.endswith("_token_id") and name != "eos_token_id"
        },
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen2VL(config).to(torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    # Random weights would end an answer at random; and only tokens with text make a chunk.
    silent = [
        token for token in range(tiny["text_config"]["vocab_size"]) if not tokenizer.decode([token])
    ]
    model.generation_config = GenerationConfig(
        do_sample=False,
        eos_token_id=tiny["text_config"]["eos_token_id"],
        pad_token_id=tiny["text_config"]["pad_token_id"],
        suppress_tokens=sorted({*silent, tiny["text_config"]["eos_token_id"]}),
    )
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (TINY / name).exists():
            shutil.copy(TINY / name, folder)
    processing = json.loads((TINY / "preprocessor_config.json").read_text())
    processing |= {
        "patch_size": 14,
        "merge_size": 2,
        "min_pixels": 56 * 56,
        "max_pixels": 28 * 28 * 1280,
    }
    processing |= {"size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processing))
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    main()
