"""Logins of registries are found where Docker, podman and Apptainer keep them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from hpcbench import secret
from hpcbench.environments.credentials import Login, login_for


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "APPTAINER_DOCKER_USERNAME", "SINGULARITY_DOCKER_USERNAME", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME", "DOCKER_CONFIG", "APPTAINER_CONFIGDIR", "SINGULARITY_CONFIGDIR",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def packed(name: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{name}:{password}".encode()).decode()}


def write(path: Path, **data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def who(host: str, repository: str = "team/image") -> str | None:
    found = login_for(host, repository)
    return found and f"{found.username}:{found.password}"


@pytest.mark.parametrize(
    "place",
    [".docker/config.json", ".config/containers/auth.json", ".apptainer/docker-config.json"],
)
def test_a_login_is_found_in_each_tools_file_by_its_host(home: Path, place: str) -> None:
    write(home / place, auths={"ghcr.io": packed("me", "pass:word")})
    assert who("ghcr.io") == "me:pass:word"
    assert who("quay.io") is None
    assert secret.mask("it was pass:word") == "it was ***"


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io", "index.docker.io"])
def test_docker_hub_has_three_names(home: Path, key: str) -> None:
    write(home / ".docker/config.json", auths={key: packed("me", "secret")})
    assert who("docker.io", "vllm/vllm-openai") == "me:secret"


def test_a_login_of_a_group_goes_before_one_of_the_host(home: Path) -> None:
    write(
        home / ".config/containers/auth.json",
        auths={"h:5000": packed("all", "1"), "h:5000/team": packed("ours", "2")},
    )
    assert who("h:5000") == "ours:2"
    assert who("h:5000", "other/image") == "all:1"


def test_variables_go_before_files_and_named_files_before_others(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home / ".docker/config.json", auths={"h": packed("docker", "1")})
    write(home / "named.json", auths={"h": packed("named", "2")})
    assert who("h") == "docker:1"
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(home / "named.json"))
    assert who("h") == "named:2"
    monkeypatch.setenv("APPTAINER_DOCKER_USERNAME", "env")
    monkeypatch.setenv("APPTAINER_DOCKER_PASSWORD", "3")
    assert who("h") == "env:3"


def test_helper_programs_are_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home / "bin/docker-credential-vault"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\nread host\n[ $1 = get ] || exit 1\n"
        '[ $host = h ] && echo \'{"Username": "v", "Secret": "s3cret"}\' && exit\n'
        '[ $host = t ] && echo \'{"Username": "<token>", "Secret": "long-token"}\' && exit\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    write(home / ".docker/config.json", credsStore="vault")
    assert who("h") == "v:s3cret"
    assert login_for("t") == Login("docker-credential-vault", "<token>", "long-token", True)
    assert who("nobody") is None
    write(home / ".docker/config.json", credHelpers={"h": "vault", "t": "../../evil"})
    assert who("h") == "v:s3cret"
    assert who("t") is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"auths": []}', '{"auths": {"h": 3}}', '{"auths": {"h": {"auth": "!"}}}'],
)
def test_a_file_that_is_none_is_passed_by(home: Path, text: str) -> None:
    (home / ".docker").mkdir()
    (home / ".docker/config.json").write_text(text)
    write(home / ".apptainer/docker-config.json", auths={"h": packed("me", "1234")})
    assert who("h") == "me:1234"


def test_a_login_does_not_show_its_password() -> None:
    assert "hidden" not in repr(Login("file", "me", "hidden"))
