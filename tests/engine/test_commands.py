"""What engines are without their heavy parts: command lines, requests, tokens to text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from hpcbench import plugins
from hpcbench.engines.chat import ApiError, parse, unpack
from hpcbench.engines.detokenise import Detokeniser
from hpcbench.engines.huggingface import HuggingFaceEngine, threads
from hpcbench.engines.vllm import VllmEngine
from hpcbench.errors import UserError


def spec(**changes: Any) -> plugins.EngineSpec:
    return plugins.EngineSpec(
        **{"model_path": "/weights", "model_name": "tiny", "socket": "/s", **changes}
    )


def test_vllm_options_become_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    options = {
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "max-num-seqs": 32,
        "limit_mm_per_prompt": {"image": 1},
        "allowed_origins": ["a", "b"],
        "seed": None,
    }
    command = VllmEngine().launch_command(
        spec(dtype="bfloat16", context_length=4096, gpus=2, options=options)
    )
    assert command.argv[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    words = [
        "--model",
        "/weights",
        "--served-model-name",
        "tiny",
        "--uds",
        "/s",
        "--dtype",
        "bfloat16",
        "--max-model-len",
        "4096",
        "--tensor-parallel-size",
        "2",
        "--disable-uvicorn-access-log",
        "--enforce-eager",
        "--no-enable-prefix-caching",
        "--max-num-seqs",
        "32",
        "--limit-mm-per-prompt",
        "JSON",
        "--allowed-origins",
        "a",
        "b",
    ]
    words[words.index("JSON")] = '{"image": 1}'
    assert list(command.argv[3:]) == words
    assert command.env["HF_HUB_OFFLINE"] == "1"
    assert "OMP_NUM_THREADS" not in command.env


def test_vllm_on_a_cpu_takes_a_share_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    command = VllmEngine().launch_command(spec())
    assert command.env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "OMP_NUM_THREADS" not in command.env  # the site's word stands
    assert "--tensor-parallel-size" not in command.argv
    assert "--max-model-len" not in command.argv


def test_options_that_are_not_the_users_are_refused() -> None:
    with pytest.raises(UserError, match=r"'dtype' is set by hpcbench \(set the model's 'dtype'\)"):
        VllmEngine().launch_command(spec(options={"dtype": "float16"}))
    with pytest.raises(UserError, match=r"'port' is set by hpcbench \(leave it out\)"):
        VllmEngine().launch_command(spec(options={"port": 8000}))
    with pytest.raises(UserError, match="did you mean 'processor'"):
        HuggingFaceEngine().launch_command(spec(options={"procesor": {}}))


def test_hugging_face_starts_this_package() -> None:
    options = {"processor": {"max_pixels": 100}}
    command = HuggingFaceEngine().launch_command(
        spec(gpus=1, context_length=512, dtype="float16", options=options)
    )
    line = list(command.argv)
    assert line[1:3] == ["-m", "hpcbench.engines.huggingface"]
    assert json.loads(line[line.index("--options") + 1]) == options
    assert line[line.index("--context-length") + 1] == "512"
    assert command.env["HF_HUB_OFFLINE"] == "1"


def test_naming_an_engine_imports_nothing_heavy() -> None:
    code = (
        "import sys; from hpcbench import plugins\n"
        "for name in ('huggingface', 'vllm'): plugins.load('engines', name)\n"
        "heavy = {'torch', 'transformers', 'vllm', 'fastapi', 'PIL', 'numpy', 'polars'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_threads_are_the_sites_word_first() -> None:
    assert threads({"OMP_NUM_THREADS": "3,2", "SLURM_CPUS_PER_TASK": "9"}) == 3
    assert threads({"OMP_NUM_THREADS": "0", "SLURM_CPUS_PER_TASK": "9"}) == 9
    assert threads({}) >= 1


def chat(**changes: Any) -> bytes:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}], **changes}
    return json.dumps(body).encode()


def test_a_request_is_read() -> None:
    ask = parse(chat(stop="x", max_tokens=5, temperature=0, unknown_field=1, seed=3), "tiny")
    assert (ask.stops, ask.limit, ask.stream) == (("x",), 5, False)
    assert parse(chat(stop=["a", ""]), "tiny").stops == ("a",)
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "text", "text": "read"},
    ]
    messages, images = unpack(parse(chat(messages=[{"role": "user", "content": parts}]), "tiny"))
    assert images == [b"ABC"]
    assert messages[0]["content"] == [{"type": "image"}, {"type": "text", "text": "read"}]


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"model": "other"}, 404, "the model 'other' does not exist"),
        ({"messages": []}, 400, "messages: "),
        ({"max_tokens": 0}, 400, "max_tokens: "),
        ({"n": 2}, 400, "n: "),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format is not supported"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(
    changes: dict[str, Any], status: int, message: str
) -> None:
    with pytest.raises(ApiError, match=message) as error:
        parse(chat(**changes), "tiny")
    assert error.value.status == status
    assert error.value.to_json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("url", ["http://host/page.png", "data:image/png;base64,%%", ""])
def test_an_image_must_be_sent_along(url: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    ask = parse(chat(messages=[{"role": "user", "content": [part]}]), "tiny")
    with pytest.raises(ApiError) as error:
        unpack(ask)
    assert error.value.code == "invalid_image"


def as_bytes(ids: Sequence[int]) -> str:
    """A tokenizer whose tokens are single bytes."""
    return bytes(ids).decode(errors="replace")


def spell(text: str, *stops: str) -> tuple[list[str], Detokeniser]:
    detokeniser = Detokeniser(as_bytes, stops)
    pieces = []
    for byte in text.encode():
        pieces.append(detokeniser.push(byte))
        if detokeniser.stopped:
            break
    return [*pieces, detokeniser.end()], detokeniser


def test_only_whole_characters_are_handed_out() -> None:
    text = "aé漢🙂z"
    pieces, _ = spell(text)
    assert "".join(pieces) == text
    assert [piece for piece in pieces if piece] == list(text)
    detokeniser = Detokeniser(as_bytes)
    assert detokeniser.push(0xC3) == ""
    assert detokeniser.end() == ""  # the answer ended within a character


def test_nothing_of_a_stop_text_is_handed_out() -> None:
    pieces, detokeniser = spell("total 12\nENDless", "\nEND")
    assert ("".join(pieces), detokeniser.stopped) == ("total 12", True)
    pieces, detokeniser = spell("a\nE\nEb", "\nEND")
    assert ("".join(pieces), detokeniser.stopped) == ("a\nE\nEb", False)
    pieces, detokeniser = spell("one##", "###", "x")
    assert ("".join(pieces), detokeniser.stopped) == ("one##", False)
