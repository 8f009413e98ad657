"""The true architectures of DeepSeek-OCR and DeepSeek-OCR-2 with random weights, in a real vLLM and a real
SGLang on a CPU.

Their answers are nonsense, but the path is the real one: prompt form, tokens of a page, the rule against
repetition, marks of places. Both engines get the vision tower in its true size (0.4 billion parameters, made
up when loading) and two small layers of text; they are dense, since SGLang's mixture of experts needs a GPU.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench import plugins
from tests.campaign import first
from tests.cluster.lab import Lab
from tests.conftest import unavailable
from tests.engine import contract

# A start of an engine with the vision tower takes a minute of processor time: one engine answers one page in
# `make test`. What is sent: tests/unit/engines/test_deepseek_ocr_adapters.py.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
MARKS = ("<image>", "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>")
PROMPT = "Free OCR."
CONTEXT = 2048
TEXT = {
    "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "use_mla": False,
    "bos_token_id": 0, "eos_token_id": 1, "max_position_embeddings": 8192, "hidden_size": 1280,
    "intermediate_size": 640, "num_hidden_layers": 2, "first_k_dense_replace": 2,
    "num_attention_heads": 10, "num_key_value_heads": 10, "kv_lora_rank": None,
    "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0,
    "moe_intermediate_size": 64, "n_routed_experts": 4, "n_shared_experts": 2, "n_group": 1,
    "num_experts_per_tok": 2, "topk_group": 1, "topk_method": "greedy", "lm_head": True,
}  # fmt: skip
SAM = {"global_attn_indexes": [2, 5, 8, 11], "heads": 12, "layers": 12, "width": 768}
CLIP = {"heads": 16, "image_size": 224, "layers": 24, "patch_size": 14, "width": 1024}


@dataclass(frozen=True)
class Version:
    """One of the two models."""

    architecture: str
    module: str
    """Its code on the hub, by which SGLang knows it."""
    tower: str
    """Name of its vision tower, and what that is made of."""
    parts: dict[str, Any]
    width: int
    """Features of a page's token before the projector."""
    page: int
    """Tokens of the view of the whole page with its separator."""
    two_tiles: int
    """Those of two tiles beside each other."""
    six_tiles: int
    """Those of three rows of two."""


OCR = Version(
    "DeepseekOCRForCausalLM", "modeling_deepseekocr", "deeplip_b_l",
    {"clip-l-14-224": CLIP, "sam_vit_b": {**SAM, "downsample_channels": [512, 1024]}}, 2048,
    # 16 rows of 16 and a line end; tiles of 10 x 10, each row of theirs with a line end
    page=16 * 17 + 1, two_tiles=10 * 21, six_tiles=30 * 21,
)  # fmt: skip
OCR_2 = Version(
    "DeepseekOCR2ForCausalLM", "modeling_deepseekocr2", "deepencoderv2",
    {"qwen2-0-5b": {"dim": 896}, "sam_vit_b": {**SAM, "downsample_channels": [512, 896]}}, 896,
    page=256 + 1, two_tiles=2 * 144, six_tiles=6 * 144,
)  # fmt: skip


def write_checkpoint(folder: Path, version: Version) -> int:
    """A checkpoint without weights, byte by byte tokenizer; the id of `<|ref|>`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = [BOS, EOS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={word: n for n, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [BOS, EOS, PAD, *MARKS]
    tokenizer.add_special_tokens([AddedToken(word, normalized=False) for word in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    names |= {"tokenizer_class": "LlamaTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    config = {
        "architectures": [version.architecture],
        "auto_map": {"AutoModel": f"{version.module}.{version.architecture}"},
        "model_type": "deepseek_vl_v2",
        "torch_dtype": "bfloat16",
        "tile_tag": "2D",
        "global_view_pos": "head",
        "candidate_resolutions": [[1024, 1024]],
        "language_config": {**TEXT, "vocab_size": tokenizer.get_vocab_size()},
        "projector_config": {
            "input_dim": version.width,
            "n_embed": 1280,
            "projector_type": "linear",
        },
        "vision_config": {"image_size": 1024, "model_name": version.tower, "width": version.parts},
    }
    (folder / "config.json").write_text(json.dumps(config))
    pictures = {"candidate_resolutions": [[1024, 1024]], "patch_size": 16, "downsample_ratio": 4}
    pictures |= {"image_token": "<image>", "processor_class": "DeepseekVLV2Processor"}
    (folder / "processor_config.json").write_text(json.dumps(pictures))
    number: int = tokenizer.token_to_id("<|ref|>")
    return number


@dataclass(frozen=True)
class Reader:
    """One of the engines, and how to ask it."""

    name: str
    version: Version
    engine: contract.Engine
    fields: dict[str, Any]
    """Settings that hpcbench adds to every request."""
    bias: dict[str, Any]
    """Field of a request that makes `<|ref|>` the likeliest token, always."""

    def ask(self, width: int, height: int, **fields: Any) -> tuple[str, int]:
        """Answer of 8 tokens to an image of this size, and tokens of the prompt."""
        messages = contract.ask(PROMPT, page(width, height))
        body = {**self.fields, "messages": messages, "max_tokens": 8, **fields}
        text, reason, usage = asyncio.run(self.engine.answer(**body))
        assert (reason, usage["completion_tokens"]) == ("length", 8)
        return text, usage["prompt_tokens"]


def page(width: int, height: int) -> str:
    """An image as a data URI."""
    file = io.BytesIO()
    # Not an even gradient: vLLM takes tiles whose normalised values add up to 0 for none, and ends.
    image = Image.linear_gradient("L").resize((width, height)).point(lambda value: value // 2)
    image.convert("RGB").save(file, "PNG")
    return contract.data_uri(file.getvalue())


VLLM = "hpcbench.engines.deepseek_ocr:DeepSeekOcrOnVllm"
SGLANG = "hpcbench.engines.deepseek_ocr:DeepSeekOcrOnSglang"
OPTIONS: dict[str, dict[str, Any]] = {
    # A page takes half a minute: the same page is not encoded again, and none is made up at the start.
    VLLM: {
        "enforce_eager": True,
        "max_num_seqs": 2,
        "enable_prefix_caching": True,
        "skip_mm_profiling": True,
    },
    SGLANG: {
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "max_total_tokens": 4096,
        "mem_fraction_static": 0.5,
    },
}


EVERY = {
    "vllm-2": (VLLM, OCR_2), "sglang": (SGLANG, OCR), "vllm": (VLLM, OCR), "sglang-2": (SGLANG, OCR_2),
}  # fmt: skip


def on_engines(count: int) -> pytest.MarkDecorator:
    """A test on all engines, of which so many are no campaign."""
    params = [pytest.param(one, id=name) for name, one in EVERY.items()]
    return pytest.mark.parametrize("reader", first(count, params), indirect=True, scope="module")


@pytest.fixture(scope="module")
def reader(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reader]:
    """The checkpoint in one engine, with a rule that bites at once: no pair of tokens twice."""
    name, version = request.param
    try:
        lab = Lab.current()
        python = lab.vllm()
        if name == SGLANG:
            python = lab.sglang()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no engine for CPUs: {error}")
    weights = tmp_path_factory.mktemp("deepseek-ocr")
    ref = write_checkpoint(weights, version)
    options = {**OPTIONS[name], "load_format": "dummy", "ngram_size": 2, "whitelist_token_ids": []}
    reported = {"model_path": str(weights), "options": options, "context_length": CONTEXT}
    spec = plugins.EngineSpec(model_name="tiny", socket="/s", **reported)
    fields = dict(plugins.load("engines", name)().request_fields(spec))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "TORCHDYNAMO_DISABLE", "1"
        )  # else PyTorch compiles with g++ and Python's headers
        # In bfloat16 a page costs half as much, but on a processor without instructions for it vLLM takes
        # minutes. SGLang ends in float32 at a page with tiles.
        short = name == SGLANG or "bf16" in Path("/proc/cpuinfo").read_text()
        dtype = "bfloat16" if short else "float32"
        with contract.started(name, python, dtype=dtype, **reported) as engine:
            yield Reader(name, version, engine, fields, {"logit_bias": {str(ref): 100}})


@on_engines(0)
@pytest.mark.parametrize(
    ("width", "height", "tiles"),
    [
        (640, 480, None),
        (1280, 640, "two_tiles"),
        (1600, 2400, "six_tiles"),
    ],
)
def test_a_page_has_the_tokens_of_gundam(
    reader: Reader, width: int, height: int, tiles: str | None
) -> None:
    tokens = reader.version.page + (getattr(reader.version, tiles) if tiles else 0)
    _, found = reader.ask(width, height)
    assert found == 1 + tokens + len(f"\n{PROMPT}")  # the beginning, the page, a token a byte


@on_engines(1)
def test_every_request_keeps_the_rule_and_the_marks(reader: Reader) -> None:
    text, _ = reader.ask(640, 480, **reader.bias)
    assert text.startswith("<|ref|><|ref|>")
    assert text.count("<|ref|><|ref|>") == 1, "a pair came twice"


@on_engines(0)
def test_it_is_the_rule_that_ends_the_repetition(reader: Reader) -> None:
    off = {"vllm_xargs": {}, "custom_logit_processor": None, "custom_params": None}
    text, _ = reader.ask(640, 480, **reader.bias, **off)
    assert text == "<|ref|>" * 8


@on_engines(0)
def test_it_is_the_setting_that_keeps_the_marks(reader: Reader) -> None:
    text, _ = reader.ask(640, 480, **reader.bias, skip_special_tokens=True)
    assert "<|ref|>" not in text


@on_engines(0)
def test_an_answer_as_long_as_the_context_is_too_long_for_sglang(reader: Reader) -> None:
    """Hence the ML task's `max_tokens`, which leaves room for the page."""
    messages = contract.ask(PROMPT, page(640, 480))
    body = {**reader.fields, "messages": messages, "max_tokens": CONTEXT}
    status, reported = asyncio.run(reader.engine.post(**body, stop=["\ufffd"]))
    assert status == (400 if reader.name == SGLANG else 200), reported
