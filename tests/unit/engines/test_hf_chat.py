"""Requests to the Hugging Face engine: read, refused, and which images it may open."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.engines.chat import ApiError, ChatRequest, parse, unpack
from hpcbench.engines.detokenise import Detokeniser
from hpcbench.engines.huggingface import HuggingFaceEngine
from hpcbench.errors import UserError
from hpcbench.plugins import EngineSpec


def body(**changes: Any) -> bytes:
    plain = {"model": "tiny", "messages": [{"role": "user", "content": "?"}]}
    return json.dumps({**plain, **changes}).encode()


def refused(**changes: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parse(body(**changes), "tiny")
    assert error.value.status == 400
    return error.value


def test_a_setting_that_would_not_be_honoured_is_refused_by_name() -> None:
    error = refused(vllm_xargs={"ngram_size": 30})
    assert (error.code, error.message) == (
        "unsupported",
        "this engine does not know the field 'vllm_xargs'",
    )
    assert refused(logit_bias={"5": 1}).code == "unsupported"
    assert refused(add_generation_prompt=False).code == "unsupported"
    assert "best_of" in refused(stream_options={"best_of": 2}).message
    assert refused(logprobs=True).code == "invalid_request"


def test_null_is_as_good_as_left_out() -> None:
    nothing = dict.fromkeys(["temperature", "top_k", "tools", "logit_bias", "stream_options"])
    ask = parse(body(**nothing, user="someone", logprobs=False), "tiny")
    assert (ask.temperature, ask.top_k, ask.stream_options) == (None, None, None)


def test_every_setting_the_engine_declares_is_read() -> None:
    assert HuggingFaceEngine.generation <= set(ChatRequest.model_fields)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": -1},
        {"top_p": 0},
        {"min_p": 2},
        {"repetition_penalty": 0},
        {"presence_penalty": 3},
        {"min_tokens": -1},
        {"stop_token_ids": ["x"]},
        {"seed": 2**64},
    ],
)
def test_a_setting_out_of_range_is_named(changes: dict[str, Any]) -> None:
    error = refused(**changes)
    assert error.code == "invalid_request"
    assert error.message.startswith(next(iter(changes)))


def test_a_form_of_answer_is_any_object_or_a_schema() -> None:
    def schema(form: Any) -> Any:
        return parse(body(response_format=form), "tiny").schema_wanted

    described = {"name": "x", "schema": {"type": "array"}, "strict": True}
    assert schema({"type": "text"}) is None
    assert schema({"type": "json_object"}) == {"type": "object"}
    assert schema({"type": "json_schema", "json_schema": described}) == {"type": "array"}
    assert refused(response_format={"type": "json_schema"}).message == (
        "response_format: json_schema is missing"
    )
    assert refused(response_format={"type": "regex"}).code == "invalid_request"
    both = refused(response_format={"type": "json_object"}, min_tokens=3)
    assert both.code == "unsupported"


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def opened(*urls: str, root: Path | None = None) -> list[bytes]:
    parts = [image(url) for url in urls]
    ask = parse(body(messages=[{"role": "user", "content": parts}]), "tiny")
    return unpack(ask, root)[1]


def failed(url: str, root: Path | None = None) -> str:
    with pytest.raises(ApiError) as error:
        opened(url, root=root)
    assert error.value.status == 400
    return error.value.code


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "media"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a page.png").write_bytes(b"page")
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


def test_images_keep_their_order_however_they_are_sent(root: Path) -> None:
    data = f"data:image/png;base64,{base64.b64encode(b'sent').decode()}"
    file = (root / "deep" / "a page.png").as_uri()
    assert "%20" in file
    assert opened(data, file, data, root=root) == [b"sent", b"page", b"sent"]
    assert opened(file.replace("file://", "file://localhost"), root=root) == [b"page"]


def test_a_link_inside_the_root_is_followed_but_none_leads_out(root: Path) -> None:
    (root / "inside").symlink_to(root / "deep" / "a page.png")
    (root / "outside").symlink_to(root.parent / "secret")
    (root / "circle").symlink_to(root / "circle")
    assert opened(f"file://{root}/inside", root=root) == [b"page"]
    assert failed(f"file://{root}/outside", root) == "media_not_allowed"
    assert failed(f"file://{root}/circle", root) in ("media_not_allowed", "invalid_image")


@pytest.mark.parametrize(
    "url",
    [
        "file://{root}/../secret",
        "file://{root}/%2e%2e/secret",
        "file://{root}-beside/x",
        "file://otherhost{root}/deep/a%20page.png",
        "file:///etc/passwd",
        "file://{root}/%00",
        "http://host/page.png",
        "https://host/page.png",
        "/etc/passwd",
        "",
    ],
)
def test_nothing_outside_the_root_is_opened(url: str, root: Path) -> None:
    assert failed(url.format(root=root), root) == "media_not_allowed"


def test_without_a_root_no_file_may_be_named(root: Path) -> None:
    assert failed(f"file://{root}/deep/a%20page.png") == "media_not_allowed"


def test_what_is_no_image_at_all_is_the_requests_fault(root: Path) -> None:
    assert failed(f"file://{root}/none.png", root) == "invalid_image"
    assert failed(f"file://{root}/deep", root) == "invalid_image"
    assert failed("data:image/png;base64,%%") == "invalid_image"
    assert failed("data:image/png,abc") == "invalid_image"


def test_stop_texts_count_from_the_least_number_of_tokens_on() -> None:
    detokeniser = Detokeniser(lambda ids: bytes(ids).decode(errors="replace"), ["b"], min_tokens=3)
    text = "".join(detokeniser.push(byte) for byte in b"abbab")
    assert (text, detokeniser.stopped) == ("abba", True)


def spec(**changes: Any) -> EngineSpec:
    return EngineSpec(**{"model_path": "/w", "model_name": "tiny", "socket": "/s", **changes})


def test_the_media_root_reaches_the_server() -> None:
    line = list(HuggingFaceEngine().launch_command(spec(media_root="/data/pages")).argv)
    assert line[line.index("--media-root") + 1] == "/data/pages"
    assert "--media-root" not in HuggingFaceEngine().launch_command(spec()).argv


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_bach": 4}, "did you mean 'max_batch'"),
        ({"max_batch": 0}, "'max_batch' is 0; it must be a whole number, at least 1"),
        ({"max_batch": True}, "'max_batch' is True; it must be a whole number"),
        ({"batch_wait_ms": "10"}, "'batch_wait_ms' is '10'; it must be a number, 0 or more"),
        ({"processor": 3}, "'processor' is 3; it must be a mapping"),
        ({"dtype": "float16"}, r"'dtype' is set by hpcbench \(set the model's 'dtype'\)"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        HuggingFaceEngine().launch_command(spec(options=options))
