"""A FAKE of RunPod's REST API, because a cloud cannot be had here: after docs.runpod.io/api-reference.

A pod is real in what counts, see `tests/pod.py`: the start command that was asked for, and so a real sshd, on
a port of loopback. Every call is recorded; failures are put in by the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.pod import start_pod
from tests.remote.sshd import free_port

KEY = "rpa_SECRETOFTHETESTS"
POD_KEY = "rpa_OFONEPOD"

RUNPODCTL = """#!{python}
import os, sys, urllib.request
_, remove, pod, name = sys.argv
headers = {{"Authorization": "Bearer " + os.environ["RUNPOD_API_KEY"]}}
asked = urllib.request.Request("{url}/pods/" + name, None, headers, method="DELETE")
urllib.request.urlopen(asked)
"""


@dataclass
class Call:
    """One request."""

    method: str
    path: str
    body: Any
    time: float = field(default_factory=time.time)


@dataclass
class Pod:
    """A rented machine."""

    facts: dict[str, Any]
    port: int
    process: subprocess.Popen[bytes] | None = None


class FakeRunPod:
    """The API's side; attributes are what a test may set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[Call] = []
        self.pods: dict[str, Pod] = {}
        self.price = "0.74"
        self.delay = 0.2
        """Seconds from asking for a pod to its address."""
        self.never_running = False
        self.ends = False
        """Whether a pod ends by itself at once."""
        self.no_sshd = False
        """Whether its start command is not run."""
        self.slow_post = 0.0
        """Seconds until a pod that was asked for exists."""
        self.redirect: str | None = None
        """Where every request is sent instead."""
        self.silent = False
        """Whether requests are taken and never answered."""
        self.failures: list[tuple[str, int, str]] = []
        """Method, HTTP status and text of the next failures, each used once."""
        self.lose_answer = False
        """Whether the next POST makes a pod and then fails."""
        self._made: set[str] = set()
        self._seen_gone: set[str] = set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._ctl = folder / "runpodctl"
        self._ctl.write_text(RUNPODCTL.format(python=sys.executable, url=self.url))
        self._ctl.chmod(0o755)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """End all of it, when the guards of runners that were killed are through."""
        until = time.monotonic() + 5
        while not self._made <= self._seen_gone and time.monotonic() < until:
            time.sleep(0.05)
        self._server.shutdown()
        self._server.server_close()
        for name in list(self.pods):
            self.delete(name)

    def asked(self, method: str) -> list[Call]:
        """Calls of one method."""
        return [call for call in self.calls if call.method == method]

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Answer of the API."""
        for failure in self.failures:
            if failure[0] == method:
                self.failures.remove(failure)
                return failure[1], {"error": failure[2]}
        if method == "POST":
            time.sleep(self.slow_post)
        _, _, name = path.removeprefix("/v1").strip("/").partition("/")
        with self._lock:
            if method == "POST":
                facts = self._create(body)
                if self.lose_answer:
                    self.lose_answer = False
                    return 502, {"error": "bad gateway"}
                return 201, facts
            if not name:
                return 200, [self._facts(pod) for pod in self.pods.values()]
            if name not in self.pods:
                self._seen_gone.add(name)
                return 404, {"error": "pod not found"}
            if method == "DELETE":
                self.delete(name)
                return 204, None
            return 200, self._facts(self.pods[name])

    def delete(self, name: str) -> None:
        """End a pod with all its processes."""
        process = self.pods.pop(name).process
        if process is not None:
            process.kill()
            process.wait()

    def _create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        name = os.urandom(7).hex()
        facts = {
            "id": name,
            "name": body["name"],
            "image": body["imageName"],
            "env": body["env"],
            "costPerHr": self.price,
            "desiredStatus": "RUNNING",
            "publicIp": "",
            "portMappings": None,
        }
        pod = Pod(facts, free_port())
        facts["shown_at"] = time.time() + self.delay
        self.pods[name] = pod
        self._made.add(name)
        command = [*body["dockerEntrypoint"], *body["dockerStartCmd"]]
        pod.process = start_pod(
            self.folder / name,
            ["sleep", "300"] if self.no_sshd else command,
            {"SSH_PORT": str(pod.port), "CTL": str(self._ctl), "RUNPOD_POD_ID": name}
            | {"RUNPOD_API_KEY": POD_KEY, **body["env"]},
        )
        return self._facts(pod)

    def _facts(self, pod: Pod) -> dict[str, Any]:
        facts = {name: value for name, value in pod.facts.items() if name != "shown_at"}
        if time.time() > pod.facts["shown_at"] and not self.never_running:
            facts |= {"publicIp": "127.0.0.1", "portMappings": {"22": pod.port}}
        if self.ends:
            facts["desiredStatus"] = "EXITED"
        return facts


def _handler(fake: FakeRunPod) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = json.loads(body) if body else None
            fake.calls.append(Call(self.command, self.path, asked))
            if fake.silent:
                time.sleep(30)
                return
            if fake.redirect is not None:
                self.send_response(307)
                self.send_header("Location", fake.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if given not in (KEY, POD_KEY):
                status, answer = 401, None
            else:
                status, answer = fake.answer(self.command, self.path, asked)
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names http.server wants

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
