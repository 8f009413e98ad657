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
from hpcbench.files.private import state_folder
from hpcbench.oauth.token_check import check
from tests.help_examples import example

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


def test_login_status_and_forget(
    gateway: Gateway, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["auth", "status"]) == 0
    assert "no tokens" in capsys.readouterr().out
    assert main(example("auth login MODEL", {"MODEL": model})) == 0
    assert main(["auth", "status", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["server"], found["client"], found["token"]) == (
        gateway.token_url,
        "bench",
        "fresh",
    )
    assert 3000 < found["left_seconds"] < 3600
    assert main(["auth", "status"]) == 0
    shown = capsys.readouterr()
    assert "fresh" in shown.out
    assert not any(word in shown.out + shown.err for word in (SECRET, gateway.given[0]))
    assert main(example("auth forget MODEL", {"MODEL": model})) == 0
    assert main(["auth", "forget", str(model)]) == 1
    assert "there is no token of" in capsys.readouterr().err


def test_a_token_is_shown_and_forgotten_without_its_secret(
    gateway: Gateway,
    model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(["auth", "login", str(model)]) == 0
    monkeypatch.delenv("GATEWAY_SECRET")
    assert main(["auth", "login", str(model)]) == 2
    assert "${env:GATEWAY_SECRET}: the variable is not set" in capsys.readouterr().err
    assert main(["auth", "status"]) == 0
    assert "fresh" in capsys.readouterr().out
    assert main(["auth", "forget", str(model)]) == 0
    assert not list(state_folder("auth").glob("*.json"))


def test_status_shows_each_file_and_why_one_cannot_be_read(
    gateway: Gateway, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["auth", "login", str(model)]) == 0
    (good,) = state_folder("auth").glob("*.json")
    damaged, seen = good.with_name("a-damaged.json"), good.with_name("b-open.json")
    damaged.write_text("{")
    damaged.chmod(0o600)
    assert main(["auth", "status", "--json"]) == 0
    capsys.readouterr()
    assert main(["auth", "status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["token"], one["file"]) for one in found] == [
        ("damaged", str(damaged)), ("fresh", str(good)),
    ]  # fmt: skip
    seen.write_text(good.read_text())
    seen.chmod(0o644)
    assert main(["auth", "status"]) == 3
    shown = capsys.readouterr()
    assert "damaged" in shown.out
    assert "fresh" in shown.out
    assert "b-open.json is accessible to other users" in shown.err


def test_login_without_a_place_for_the_token_asks_no_server(
    gateway: Gateway, model: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    assert main(["auth", "login", str(model)]) == 3
    assert "set XDG_STATE_HOME" in capsys.readouterr().err
    assert not gateway.given


def test_a_wrong_secret_is_one_line_before_anything_is_submitted(
    gateway: Gateway, model: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("GATEWAY_SECRET", "not-the-secret")
    assert main(["auth", "login", str(model)]) == 2
    said = capsys.readouterr().err
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


def test_a_good_token_in_the_file_hides_no_wrong_secret(
    gateway: Gateway, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hosted(variable: str) -> dict[str, object]:
        auth = {
            "token_url": gateway.token_url, "client_id": "bench", "client_auth": "client_secret_post",
            "client_secret": f"${{env:{variable}}}",
        }  # fmt: skip
        return {"auth": auth}

    good, wrong = hosted("GATEWAY_SECRET"), hosted("OTHER_SECRET")
    monkeypatch.setenv("OTHER_SECRET", "not-the-secret")
    with pytest.raises(UserError, match="no token for model 'b': the token server answers 401"):
        check([("a", "remote", good), ("b", "remote", wrong)], print)
    assert check([("a", "remote", good)], print) == 1
    assert len(gateway.given) == 1, "the token of the good secret stays"

    monkeypatch.setenv("GATEWAY_SECRET", "not-the-secret")
    with pytest.raises(UserError, match="no token for model 'a'"):
        check([("a", "remote", good)], print)


def test_a_model_without_a_token_server_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.write_text(model.read_text().partition("  auth:")[0])
    assert main(["auth", "login", str(model)]) == 2
    assert "asks no token server" in capsys.readouterr().err


def test_login_takes_a_refresh_token_from_a_pipe(
    gateway: Gateway, model: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    text = model.read_text() + "    grant_type: refresh_token\n"
    model.write_text(text)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["auth", "login", str(model)]) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("first-refresh-token\n"))
    assert main(["auth", "login", str(model)]) == 0
    assert "first-refresh-token" not in "".join(capsys.readouterr())
    assert main(["auth", "forget", str(model)]) == 0
    assert "`hpcbench auth login MODEL` asks for a new one" in capsys.readouterr().err


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
