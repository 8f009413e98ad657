"""Image references and what a registry says of them; the registry is a real HTTP server on loopback."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.environments.oci import download_size, resolve
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.schema.image_reference import Reference
from tests.help_examples import example

DIGEST = "sha256:" + "ab" * 32
BASIC = "Basic bWU6c2VjcmV0"
"""me:secret"""

seen: list[tuple[str, str | None]] = []
"""Paths that were asked for, with what they were asked."""


class Registry(BaseHTTPRequestHandler):
    """Knows `team/image:1`, `team/hidden:1` (with anybody's token), `team/basic:1` (with me:secret),

    `team/private:1` (with a token that me:secret or the identity token gets), `team/moved:1` (elsewhere),
    `team/busy:1` (later) and `team/closed:1` (never).
    """

    elsewhere = ""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        seen.append((self.path.partition("?")[0], self.headers.get("Authorization")))
        if self.path.startswith("/token?"):
            known = self.headers.get("Authorization") == BASIC
            token = "let-me-in-too" if known else "let-me-in"
            self._answer(200, json.dumps({"token": token}).encode())
        elif self.path == "/v2/team/basic/manifests/1":
            if self.headers.get("Authorization") == BASIC:
                self._answer(200, b"{}", {"Docker-Content-Digest": DIGEST})
            else:
                self._answer(401, b"", {"WWW-Authenticate": 'Basic realm="here"'})
        elif self.path == "/v2/team/private/manifests/1":
            if self.headers.get("Authorization") == "Bearer let-me-in-too":
                self._answer(200, b"{}", {"Docker-Content-Digest": DIGEST})
            else:
                self._challenge()
        elif self.path == "/v2/team/moved/manifests/1":
            if self.headers.get("Authorization") != BASIC:
                self._answer(401, b"", {"WWW-Authenticate": 'Basic realm="here"'})
            else:
                self._answer(307, b"", {"Location": f"{self.elsewhere}/v2/team/image/manifests/1"})
        elif self.path == "/v2/team/busy/manifests/1":
            self._answer(429, b"")
        elif self.path == "/v2/team/image/manifests/1" or (
            self.path == "/v2/team/hidden/manifests/1"
            and self.headers.get("Authorization") == "Bearer let-me-in"
        ):
            self._answer(200, b"{}", {"Docker-Content-Digest": DIGEST})
        elif self.path == "/v2/team/hidden/manifests/1":
            self._challenge()
        else:
            self._answer(403 if "closed" in self.path else 404, b"")

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        known = "grant_type=refresh_token" in asked and "refresh_token=identity" in asked
        token = "let-me-in-too" if known else "nothing"
        self._answer(200, json.dumps({"access_token": token}).encode())

    def _challenge(self) -> None:
        realm = f"http://{self.headers['Host']}/token"
        challenge = f'Bearer realm="{realm}",service="registry"'
        self._answer(401, b"", {"WWW-Authenticate": challenge})

    def _answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    seen.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag"),
    [
        ("docker://vllm/vllm-openai:v0.33.0", "docker.io", "vllm/vllm-openai", "v0.33.0"),
        ("docker://ubuntu", "docker.io", "library/ubuntu", "latest"),
        ("docker://localhost:5000/a/b/c:1", "localhost:5000", "a/b/c", "1"),
        ("docker://ghcr.io/team/image", "ghcr.io", "team/image", "latest"),
    ],
)
def test_references_are_read_as_docker_does(
    text: str, host: str, repository: str, tag: str
) -> None:
    found = Reference.parse(text)
    assert (found.host, found.repository, found.tag) == (host, repository, tag)


@pytest.mark.parametrize(
    "text", ["docker://", "docker://Upper/Case", "docker://a/b:", "docker://a b"]
)
def test_what_is_no_reference_is_reported(text: str) -> None:
    with pytest.raises(UserError, match="not an image reference"):
        Reference.parse(text)


@pytest.mark.parametrize("name", ["image", "hidden"])
def test_a_tag_becomes_the_digest_the_registry_names(registry: str, name: str) -> None:
    assert resolve(Reference.parse(f"docker://{registry}/team/{name}:1"), [registry]) == DIGEST


def test_the_verb_writes_the_digest_into_the_definition(registry: str, tmp_path: Path) -> None:
    definition = tmp_path / "config/hpcbench/images/vllm-openai.yaml"
    for path, text in (
        (definition, f"name: vllm-openai\nreference: docker://{registry}/team/image:1\n"),
        (
            tmp_path / "config/hpcbench/sites/default.yaml",
            f"name: default\ncontainer: {{insecure_registries: ['{registry}']}}\n",
        ),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert main(example("images lock vllm-openai")) == 0
    assert f"digest: {DIGEST}\n" in definition.read_text()


def test_a_pinned_reference_needs_no_registry() -> None:
    assert resolve(Reference.parse(f"docker://127.0.0.1:9/x@{DIGEST}"), []) == DIGEST


def log_in(host: str, **entry: str) -> None:
    Path(os.environ["REGISTRY_AUTH_FILE"]).write_text(json.dumps({"auths": {host: entry}}))


@pytest.mark.parametrize("name", ["basic", "private"])
def test_a_login_opens_what_is_closed_to_others(registry: str, name: str) -> None:
    reference = Reference.parse(f"docker://{registry}/team/{name}:1")
    with pytest.raises(EnvironmentFault, match=r"without a login .*apptainer registry login"):
        resolve(reference, [registry])
    log_in(registry, auth=BASIC.removeprefix("Basic "))
    assert resolve(reference, [registry]) == DIGEST
    log_in(registry, username="me", password="wrong-one")
    with pytest.raises(EnvironmentFault, match=r"with the login of .*auth.json") as reported:
        resolve(reference, [registry])
    assert "wrong-one" not in str(reported.value)


def test_an_identity_token_is_changed_for_another(registry: str) -> None:
    log_in(registry, identitytoken="identity")
    assert resolve(Reference.parse(f"docker://{registry}/team/private:1"), [registry]) == DIGEST


def test_a_login_is_not_sent_unasked(registry: str) -> None:
    log_in(registry, auth=BASIC.removeprefix("Basic "))
    resolve(Reference.parse(f"docker://{registry}/team/image:1"), [registry])
    assert seen == [("/v2/team/image/manifests/1", None)]


def test_a_login_does_not_follow_to_another_host(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(registry, auth=BASIC.removeprefix("Basic "))
    port = registry.partition(":")[2]
    monkeypatch.setattr(Registry, "elsewhere", f"http://localhost:{port}")
    assert resolve(Reference.parse(f"docker://{registry}/team/moved:1"), [registry]) == DIGEST
    assert seen[-1] == ("/v2/team/image/manifests/1", None)


@pytest.mark.parametrize(
    ("name", "what"),
    [("gone", "MANIFEST_UNKNOWN"), ("closed", "without a login"), ("busy", "too many requests")],
)
def test_a_refusal_says_what_to_do(registry: str, name: str, what: str) -> None:
    with pytest.raises(EnvironmentFault, match=what):
        resolve(Reference.parse(f"docker://{registry}/team/{name}:1"), [registry])


def test_a_registry_without_tls_or_answer_is_reported_with_the_remedy(registry: str) -> None:
    with pytest.raises(EnvironmentFault, match="insecure_registries"):
        resolve(Reference.parse(f"docker://{registry}/team/image:1"), [])


def test_an_image_that_is_pinned_already_is_named_by_its_digest_and_the_remedy_fits(
    registry: str,
) -> None:
    pinned = Reference.parse(f"docker://{registry}/team/image@{DIGEST}")
    with pytest.raises(EnvironmentFault, match=f"image@{DIGEST}") as caught:
        download_size(pinned, [])
    assert "images restore" in (caught.value.remedy or "")
    assert "pin it" not in (caught.value.remedy or "")
