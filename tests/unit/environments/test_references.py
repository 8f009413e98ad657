"""Image references and what a registry says of them; the registry is a real HTTP server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hpcbench.environments.oci import Reference, resolve
from hpcbench.errors import EnvironmentFault, UserError

DIGEST = "sha256:" + "ab" * 32


class Registry(BaseHTTPRequestHandler):
    """Knows `team/image:1`, `team/hidden:1` (with an anonymous token) and `team/closed:1` (never)."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path.startswith("/token?"):
            self._answer(200, json.dumps({"token": "let-me-in"}).encode())
        elif self.path == "/v2/team/image/manifests/1" or (
            self.path == "/v2/team/hidden/manifests/1"
            and self.headers.get("Authorization") == "Bearer let-me-in"
        ):
            self._answer(200, b"{}", {"Docker-Content-Digest": DIGEST})
        elif self.path == "/v2/team/hidden/manifests/1":
            realm = f"http://{self.headers['Host']}/token"
            challenge = f'Bearer realm="{realm}",service="registry"'
            self._answer(401, b"", {"WWW-Authenticate": challenge})
        else:
            self._answer(403 if "closed" in self.path else 404, b"")

    def _answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
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
def test_what_is_no_reference_is_told(text: str) -> None:
    with pytest.raises(UserError, match="no image reference"):
        Reference.parse(text)


@pytest.mark.parametrize("name", ["image", "hidden"])
def test_a_tag_becomes_the_digest_the_registry_names(registry: str, name: str) -> None:
    assert resolve(Reference.parse(f"docker://{registry}/team/{name}:1"), [registry]) == DIGEST


def test_a_pinned_reference_needs_no_registry() -> None:
    assert resolve(Reference.parse(f"docker://127.0.0.1:9/x@{DIGEST}"), []) == DIGEST


@pytest.mark.parametrize(("name", "what"), [("gone", "MANIFEST_UNKNOWN"), ("closed", "password")])
def test_a_refusal_says_what_to_do(registry: str, name: str, what: str) -> None:
    with pytest.raises(EnvironmentFault, match=what):
        resolve(Reference.parse(f"docker://{registry}/team/{name}:1"), [registry])


def test_a_registry_without_tls_or_answer_is_told_with_the_remedy(registry: str) -> None:
    with pytest.raises(EnvironmentFault, match="insecure_registries"):
        resolve(Reference.parse(f"docker://{registry}/team/image:1"), [])
