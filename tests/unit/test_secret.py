"""Secrets are references; what they hold is seen nowhere but where it is used."""

from __future__ import annotations

import html
import json
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from hpcbench import secret
from hpcbench.errors import EnvironmentFault


def test_a_reference_is_what_the_variable_or_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hf_abcdef")
    (tmp_path / "key").write_text("s3cr3t-key\n")
    assert secret.reveal("x ${env:MY_TOKEN} y") == "x hf_abcdef y"
    data = {"a": ["${env:MY_TOKEN}", 1], "b": f"${{file:{tmp_path}/key}}"}
    assert secret.reveal_all(data) == {"a": ["hf_abcdef", 1], "b": "s3cr3t-key"}
    assert secret.mask("the key s3cr3t-key of hf_abcdef") == "the key *** of ***"
    reported = {"error": ["hf_abcdef", {"key": "a s3cr3t-key"}], "seconds": 1.5, "none": None}
    assert secret.mask_all(reported) == {
        "error": ["***", {"key": "a ***"}], "seconds": 1.5, "none": None,
    }  # fmt: skip


def test_text_without_references_stays_as_it_is() -> None:
    assert secret.reveal("$HOME ${x} {{ y }} ${other:z}") == "$HOME ${x} {{ y }} ${other:z}"


def test_what_cannot_be_had_is_reported_by_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(EnvironmentFault, match=r"\$\{env:NOT_SET\}: the variable is not set"):
        secret.reveal("${env:NOT_SET}")
    (tmp_path / "empty").touch()
    assert [
        why for why, _ in secret.missing(f"${{file:{tmp_path}/empty}} ${{file:{tmp_path}/no}}")
    ] == [
        f"${{file:{tmp_path}/empty}}: the file is empty",
        f"${{file:{tmp_path}/no}}: no such file",
    ]


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("HF_TOKEN", "hf_x", True),
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("DB_PASSWORD", "x", True),
        ("OPENAI_API_KEY", "x", True),
        ("HF_TOKEN", "${env:HF_TOKEN}", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("MONKEY", "banana", False),
        ("HF_TOKEN", "", False),
    ],
)
def test_a_secret_in_plain_text_is_known_by_its_name(name: str, value: str, wrong: bool) -> None:
    assert secret.written_out(name, value) is wrong


@pytest.mark.parametrize(
    "value",
    ['pä ss/wo+rd&1:<x>"?', "plain-secret-42", "a  b\tc  long secret", 's3cr3t/+&="a\\b'],
)
def test_a_secret_is_masked_in_every_form_in_which_a_server_repeats_it(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret, "_revealed", set())
    monkeypatch.setattr(secret, "_by_length", ())
    raw = value.encode()
    forms = {
        "plain": value, "one line": " ".join(value.split()), "query": quote_plus(value),
        "path": quote(value, safe=""), ".NET": quote_plus(value).lower(), "json": json.dumps(value),
        "json text": json.dumps(value, ensure_ascii=False), "html": html.escape(value),
        "json in json": json.dumps(json.dumps(value)), "json in html": html.escape(json.dumps(value)),
        "html in html": html.escape(html.escape(value)), "url in json": json.dumps(quote(value)),
        "url in url": quote(quote(value, safe=""), safe=""), "html in json": json.dumps(html.escape(value)),
        "python": repr(value), "hex": raw.hex(), "HEX": raw.hex().upper(),
        "base64": b64encode(raw).decode(), "url64": urlsafe_b64encode(raw).decode().rstrip("="),
        **{f"inside {n}": b64encode(b"client:id"[:n] + raw + b":more").decode() for n in range(5)},
    }  # fmt: skip
    secret.remember(value)
    for name, form in forms.items():
        masked = secret.mask(f"unknown secret {form} of client")
        assert "***" in masked, name
        assert masked.startswith("unknown secret ") and masked.endswith(" of client"), name
        assert not any(part in masked for part in (form, value)), name
