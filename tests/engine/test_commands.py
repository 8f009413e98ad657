"""Engines without their heavy parts: command lines, requests, tokens to text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcbench import plugins
from hpcbench.engines import vllm_options
from hpcbench.engines.chat import ApiError, parse, unpack
from hpcbench.engines.detokenise import Detokeniser
from hpcbench.engines.huggingface import HuggingFaceEngine, threads
from hpcbench.engines.option_flags import flags
from hpcbench.engines.vllm import VllmEngine
from hpcbench.engines.vllm_options import Installed
from hpcbench.errors import UserError


def spec(**changes: Any) -> plugins.EngineSpec:
    return plugins.EngineSpec(
        **{"model_path": "/weights", "model_name": "tiny", "socket": "/s", **changes}
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--some-option"]),
        (False, ["--no-some-option"]),
        (None, []),
        (32, ["--some-option", "32"]),
        (0, ["--some-option", "0"]),
        ("auto", ["--some-option", "auto"]),
        (["a", "b"], ["--some-option", "a", "b"]),
        ({"image": 1}, ["--some-option", '{"image": 1}']),
        ([{"a": 1}], ["--some-option", '[{"a": 1}]']),
    ],
)
def test_a_setting_becomes_words(value: Any, words: list[str]) -> None:
    assert list(flags({"some_option": value})) == words


def vllm(**changes: Any) -> tuple[list[str], dict[str, str]]:
    """The words after the program, and the environment."""
    command = VllmEngine().launch_command(spec(**changes))
    return list(command.argv[5:]), dict(command.env)


def value(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_the_model_definition_becomes_vllms_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    options = {"enforce_eager": True, "max-num-seqs": 32}
    command = VllmEngine().launch_command(
        spec(dtype="bfloat16", context_length=4096, gpus=2, options=options)
    )
    assert list(command.argv) == [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "/weights",
        "--served-model-name", "tiny", "--uds", "/s", "--dtype", "bfloat16",
        "--max-model-len", "4096", "--tensor-parallel-size", "2", "--disable-uvicorn-access-log",
        "--allowed-media-domains", "no-remote-images.invalid",
        "--enforce-eager", "--max-num-seqs", "32",
    ]  # fmt: skip
    assert command.env["HF_HUB_OFFLINE"] == "1"
    assert command.env["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"
    assert "OMP_NUM_THREADS" not in command.env


def test_vllm_on_a_cpu_takes_a_share_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-3")
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    argv, env = vllm()
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in env  # the site's value stays
    assert "OMP_NUM_THREADS" not in env
    assert vllm(cpus=8)[1]["OMP_NUM_THREADS"] == "7"  # one is the API server's
    assert vllm(cpus=1)[1]["OMP_NUM_THREADS"] == "1"
    assert "--tensor-parallel-size" not in argv
    assert "--max-model-len" not in argv


def test_images_seen_once_are_kept_in_no_cache_of_vllm() -> None:
    argv, _ = vllm(images=2)
    assert json.loads(value(argv, "--limit-mm-per-prompt")) == {"image": 2, "video": 0}
    assert value(argv, "--mm-processor-cache-gb") == "0"
    assert "--no-enable-prefix-caching" in argv


def test_images_that_come_again_are_kept() -> None:
    argv, _ = vllm(images=2, reuse=True)
    assert "--limit-mm-per-prompt" in argv
    assert "--mm-processor-cache-gb" not in argv
    assert "--no-enable-prefix-caching" not in argv


def test_of_a_dataset_that_is_not_known_nothing_is_assumed() -> None:
    argv, _ = vllm()
    assert not {"--limit-mm-per-prompt", "--mm-processor-cache-gb"} & set(argv)


def test_what_the_definition_says_wins_over_what_the_dataset_suggests() -> None:
    options = {"limit_mm_per_prompt": {"image": 9}, "enable_prefix_caching": True}
    argv, _ = vllm(images=1, options={**options, "allowed-media-domains": ["host"]})
    assert json.loads(value(argv, "--limit-mm-per-prompt")) == {"image": 9}
    assert argv.count("--limit-mm-per-prompt") == 1
    assert "--enable-prefix-caching" in argv
    assert value(argv, "--allowed-media-domains") == "host"


def test_a_parser_of_tool_calls_is_used() -> None:
    argv, _ = vllm(options={"tool_call_parser": "hermes"})
    assert value(argv, "--tool-call-parser") == "hermes"
    assert "--enable-auto-tool-choice" in argv
    assert "--enable-auto-tool-choice" not in vllm()[0]


def test_files_may_be_named_below_the_root_of_the_media_only() -> None:
    assert value(vllm(media_root="/data")[0], "--allowed-local-media-path") == "/data"
    assert "--allowed-local-media-path" not in vllm()[0]
    with pytest.raises(UserError, match="'allowed_local_media_path' is set by hpcbench"):
        vllm(options={"allowed_local_media_path": "/"})


def test_a_token_is_in_no_command_line() -> None:
    with pytest.raises(UserError, match=r"'hf_token'.*set HF_TOKEN in the model's `env`"):
        vllm(options={"hf-token": "${env:HF_TOKEN}"})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine that has the weights and a vLLM whose `vllm serve` works."""
    options = {"enforce_eager", "max_num_seqs", "disable_log_stats", "api_server_count"}
    known = Installed("0.99.1", True, frozenset(options), frozenset({"disable_log_stats"}))
    monkeypatch.setattr(vllm_options, "installed", lambda: known)
    return {"model_path": str(tmp_path)}


def test_where_vllm_serve_works_it_is_used(here: dict[str, Any]) -> None:
    command = VllmEngine().launch_command(spec(**here))
    program = ["-m", "vllm.entrypoints.cli.main", "serve", here["model_path"]]
    assert list(command.argv[1:5]) == program


def test_options_are_compared_with_the_vllm_that_is_installed(here: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"vLLM 0\.99\.1 'max_num_seq' \(did you mean 'max_num_se"):
        vllm(**here, options={"max_num_seq": 32})
    assert "--max-num-seqs" in vllm(**here, options={"max_num_seqs": 32})[0]
    # where the weights are not, vLLM is another one
    assert "--max-num-seq" in vllm(options={"max_num_seq": 32})[0]


def test_a_switch_that_has_no_negative_form_is_left_out(here: dict[str, Any]) -> None:
    assert "--disable-log-stats" in vllm(**here, options={"disable_log_stats": True})[0]
    argv, _ = vllm(**here, options={"disable_log_stats": False, "enforce_eager": False})
    assert "--no-disable-log-stats" not in argv
    assert "--no-enforce-eager" in argv


def test_a_gpus_images_are_prepared_by_several_processes(
    here: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    argv, env = vllm(**here, gpus=1, cpus=16, images=1)
    assert value(argv, "--api-server-count") == "4"
    assert env["OMP_NUM_THREADS"] == "1"  # each of them would take all CPUs of the job
    assert value(vllm(**here, gpus=1, cpus=64, images=1)[0], "--api-server-count") == "4"
    assert value(vllm(**here, gpus=1, cpus=11, images=1)[0], "--api-server-count") == "2"
    said = vllm(**here, gpus=1, cpus=16, images=1, options={"api_server_count": 1})
    assert value(said[0], "--api-server-count") == "1"
    assert "OMP_NUM_THREADS" not in said[1]


@pytest.mark.parametrize(
    "changes", [{"gpus": 0}, {"cpus": 7}, {"images": 0}], ids=["no GPU", "few CPUs", "no images"]
)
def test_otherwise_one_process_does(here: dict[str, Any], changes: dict[str, Any]) -> None:
    argv, _ = vllm(**{**here, "gpus": 1, "cpus": 16, "images": 1, **changes})
    assert "--api-server-count" not in argv


def test_the_module_starts_one_process_whatever_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_options, "installed", lambda: Installed("0.99.1", False))
    argv, _ = vllm(model_path=str(tmp_path), gpus=1, cpus=16, images=1)
    assert "--api-server-count" not in argv
    with pytest.raises(UserError, match="'api_server_count' has no effect without `vllm serve`"):
        vllm(model_path=str(tmp_path), options={"api_server_count": 2})


def test_settings_of_structured_outputs_have_their_present_names() -> None:
    assert {"response_format", "structured_outputs"} <= VllmEngine.generation
    assert not VllmEngine.generation & set(VllmEngine.renamed)
    assert VllmEngine.renamed["guided_json"] == "structured_outputs: {json: …}"


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
        "for name in ('huggingface', 'vllm', 'hpcbench.engines.remote:RemoteEngine'):\n"
        "    plugins.load('engines', name)\n"
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
    ask = parse(chat(stop="x", max_tokens=5, temperature=0, seed=3, stream=True), "tiny")
    assert (ask.stops, ask.limit, ask.stream) == (("x",), 5, True)
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
        ({"response_format": {"type": "json_schema"}}, 400, "json_schema is missing"),
        ({"unknown_field": 1}, 400, "does not know the field 'unknown_field'"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(
    changes: dict[str, Any], status: int, message: str
) -> None:
    with pytest.raises(ApiError, match=message) as error:
        parse(chat(**changes), "tiny")
    assert error.value.status == status
    assert error.value.to_json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://host/page.png", "media_not_allowed"),
        ("file:///etc/passwd", "media_not_allowed"),
        ("", "media_not_allowed"),
        ("data:image/png;base64,%%", "invalid_image"),
    ],
)
def test_an_image_must_be_sent_along(url: str, code: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    ask = parse(chat(messages=[{"role": "user", "content": [part]}]), "tiny")
    with pytest.raises(ApiError) as error:
        unpack(ask)
    assert error.value.code == code


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
