"""A request's body on its way: unchanged, or changed no more than was asked."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.wrapper.bodies import Bodies, Refused, laid_under

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)
SPACE = st.text(alphabet=" \t\r\n", max_size=3)
PLAIN = Bodies({}, checked=False, media_root=None)


@given(body=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_without_rules_bytes_stay_what_they_are(body: bytes) -> None:
    if b'"model_params"' not in body:
        assert PLAIN.prepared(body) is body


@given(fields=OBJECTS, body=OBJECTS, before=SPACE, after=SPACE, indent=st.sampled_from([None, 1]))
def test_laying_fields_under_a_body_is_merging_json(
    fields: dict[str, Any], body: dict[str, Any], before: str, after: str, indent: int | None
) -> None:
    text = json.dumps(body, indent=indent)
    raw = f"{before}{text[0]}{after}{text[1:]}".encode()
    got = Bodies(fields, checked=False, media_root=None).prepared(raw)
    if "model_params" not in body:
        assert json.loads(got) == {**fields, **body}
        assert got.endswith(raw.lstrip()[1:].lstrip())


@given(body=st.binary(max_size=50).filter(lambda body: not body.lstrip().startswith(b"{")))
def test_what_is_no_object_passes_as_it_is(body: bytes) -> None:
    assert laid_under(body, b'"a":1') == body


@given(fields=OBJECTS, params=OBJECTS, body=OBJECTS)
def test_model_params_count_more_than_the_models_fields_and_less_than_the_request(
    fields: dict[str, Any], params: dict[str, Any], body: dict[str, Any]
) -> None:
    raw = json.dumps({**body, "model_params": params}).encode()
    rules = Bodies(fields, checked=False, media_root=None)
    explicit = {name: value for name, value in body.items() if name != "model_params"}
    assert json.loads(rules.prepared(raw)) == {**fields, **params, **explicit}


@pytest.mark.parametrize(
    "body",
    [b'{"model_params": 1}', b'{"model_params": ', b'["model_params"]', b'"model_params"' * 9],
)
def test_a_body_that_must_be_read_and_cannot_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        PLAIN.prepared(body)
    assert refused.value.code == "bad_request"


def test_the_words_model_params_in_a_message_change_nothing() -> None:
    body = b'{"messages": [{"content": "what are \\"model_params\\"?"}], "seed" : 1}'
    assert PLAIN.prepared(body) is body


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    with pytest.raises(Refused):
        PLAIN.prepared(b'{"model_params": ' + b"[" * 200_000)
    for depth in range(900, 1500):  # where Python's readers and writers differ in how deep they go
        body = b'{"messages": %s%s}' % (b"[" * depth, b"]" * depth)
        with contextlib.suppress(Refused):
            Bodies({}, checked=True, media_root=None).prepared(body)


def asking(url: object, kind: str = "image_url") -> bytes:
    part = {"type": kind, kind: {"url": url}}
    return json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "a b.png").write_bytes(b"png")
    (tmp_path / "secret").write_text("x")
    (folder / "out").symlink_to(tmp_path)
    (folder / "in").symlink_to(folder / "a b.png")
    return folder


def test_media_below_the_root_may_be_named(root: Path) -> None:
    rules = Bodies({}, checked=True, media_root=str(root))
    for url in (
        "data:image/png;base64,AAAA",
        f"file://{root}/a%20b.png",
        f"file://{root}/in",
        f"file://{root}/sub/../a%20b.png",
    ):
        body = asking(url)
        assert rules.prepared(body) is body
    schema = {"properties": {"image_url": {"type": "string"}}}
    body = json.dumps({"messages": [], "response_format": schema}).encode()
    assert rules.prepared(body) is body


@pytest.mark.parametrize("kind", ["image_url", "video_url", "audio_url"])
def test_no_other_media_may_be_named(root: Path, kind: str) -> None:
    rules = Bodies({}, checked=True, media_root=str(root))
    for url in (
        f"file://{root}/../secret",
        f"file://{root}/%2e%2e/secret",
        f"file://{root}/out/secret",
        f"file://{root}/x#/../../secret",
        f"file://{root}/x%00",
        f"file://{root}secret",
        f"file:{root}/a%20b.png",
        f"file://localhost{root}/a%20b.png",
        f"FILE://{root}/a%20b.png",
        f"{root}/a b.png",
        "file:///" + "x/" * 5000,
        "file:///etc/passwd",
        "http://127.0.0.1/a.png",
        "https://example.org/a.png",
        "AAAA",
        "",
        None,
        7,
        ["data:x"],
    ):
        with pytest.raises(Refused) as refused:
            rules.prepared(asking(url, kind))
        assert refused.value.code == "media_not_allowed"
        assert not url or str(url) not in refused.value.message
        assert "secret" not in refused.value.message


def test_media_hide_neither_in_strings_nor_in_model_params_nor_behind_a_name_used_twice() -> None:
    rules = Bodies({}, checked=True, media_root=None)
    bare = b'{"messages": [{"content": [{"type": "image_url", "image_url": "/etc/passwd"}]}]}'
    moved = b'{"model_params": ' + asking("/etc/passwd") + b"}"
    for body, code in (
        (bare, "media_not_allowed"),
        (moved, "media_not_allowed"),
        (b'{"messages": [], "messages": []}', "bad_request"),
        (asking("data:x").replace(b'"url"', b'"url": "/etc/passwd", "url"'), "bad_request"),
        (b"[]", "bad_request"),
        (b"\xff", "bad_request"),
    ):
        with pytest.raises(Refused) as refused:
            rules.prepared(body)
        assert refused.value.code == code
