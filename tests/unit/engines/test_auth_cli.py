"""`hpcbench auth` and the question for a token before anything is submitted, against a stand-in server."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
from test_remote_auth import SECRET, Gateway, gateway

from hpcbench.cli.main import main
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.oauth.interactive import check
from tests.help_examples import example
from tests.unit.command import Cli

__all__ = ["gateway"]

MODEL = """\
name: hosted
engine: remote
engine_options:
  base_url: {url}
  model: big
  auth:
    token_url: {token_url}
    client_id: bench
    client_auth: client_secret_post
    client_secret: ${{env:GATEWAY_SECRET}}
"""


@pytest.fixture
def model(gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GATEWAY_SECRET", SECRET)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "models" / "hosted.yaml"
    path.parent.mkdir()
    path.write_text(MODEL.format(url=gateway.url, token_url=gateway.token_url))
    return path


def test_login_status_and_forget(gateway: Gateway, model: Path, cli: Cli) -> None:
    assert "no tokens" in cli("auth", "status")
    assert main(example("auth login MODEL", {"MODEL": model})) == 0
    (found,) = cli.json("auth", "status", "--json")
    assert (found["server"], found["client"], found["token"]) == (
        gateway.token_url,
        "bench",
        "fresh",
    )
    assert 3000 < found["left_seconds"] < 3600
    shown = cli.both("auth", "status")
    assert "fresh" in shown.out
    assert not any(word in shown.out + shown.err for word in (SECRET, gateway.given[0]))
    assert main(example("auth forget MODEL", {"MODEL": model})) == 0
    assert "there is no token of" in cli.err("auth", "forget", model, code=1)


def test_a_wrong_secret_is_one_line_before_anything_is_submitted(
    gateway: Gateway, model: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "not-the-secret")
    said = cli.err("auth", "login", model)
    assert "invalid_client: no client has the secret ***" in said
    assert said.count("\n") == 1
    options = {
        "base_url": gateway.url, "model": "big",
        "auth": {"token_url": gateway.token_url, "client_id": "bench",
            "client_secret": "${env:GATEWAY_SECRET}"},
    }  # fmt: skip
    with pytest.raises(
        UserError, match="no token for model 'hosted': the token server answers 401"
    ):
        check([("hosted", "remote", options), ("other", "vllm", {})], print)
    away = {**options, "auth": {**options["auth"], "token_url": "http://localhost:9/t"}}  # type: ignore[dict-item]
    lines: list[str] = []
    assert check([("hosted", "remote", away)], lines.append) == 0
    assert "so its workers will ask" in lines[0]


def test_submission_gets_the_token_that_workers_begin_with(gateway: Gateway, model: Path) -> None:
    options = {
        "auth": {
            "token_url": gateway.token_url, "client_id": "bench", "client_auth": "client_secret_post",
            "client_secret": "${env:GATEWAY_SECRET}",
        }
    }  # fmt: skip
    for _ in range(2):
        assert check([("a", "remote", options), ("b", "remote", options)], print) == 1
    assert len(gateway.given) == 1


def test_a_model_without_a_token_server_is_refused(model: Path, cli: Cli) -> None:
    model.write_text(model.read_text().partition("  auth:")[0])
    assert "asks no token server" in cli.err("auth", "login", model)


def test_login_takes_a_refresh_token_from_a_pipe(
    gateway: Gateway, model: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    text = model.read_text() + "    grant_type: refresh_token\n"
    model.write_text(text)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["auth", "login", str(model)]) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("first-refresh-token\n"))
    assert "first-refresh-token" not in "".join(cli.both("auth", "login", model))


@pytest.mark.long
def test_doctor_asks_each_token_server_and_changes_nothing(
    gateway: Gateway,
    model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def said() -> list[tuple[str, str]]:
        with contextlib.suppress(EnvironmentFault):
            main(["doctor", "--json", "--registry", str(model.parent.parent)])
        found = json.loads(capsys.readouterr().out)
        return [(one["state"], one["detail"]) for one in found if one["name"] == "token"]

    twin = model.with_name("twin.yaml")
    twin.write_text(model.read_text().replace("name: hosted", "name: twin"))
    assert said() == [("ok", f"hosted: {gateway.token_url} gives tokens that live 3600 s")]
    assert len(gateway.given) == 1
    assert main(["auth", "status"]) == 0
    assert "no tokens" in capsys.readouterr().out
    monkeypatch.setenv("GATEWAY_SECRET", "wrong-key-here")
    ((state, detail),) = said()
    assert state == "failed"
    assert "the token server answers 401: invalid_client: no client has the secret ***" in detail
    monkeypatch.delenv("GATEWAY_SECRET")
    for state, detail in said():
        assert (state, "GATEWAY_SECRET" in detail) == ("warning", True)
