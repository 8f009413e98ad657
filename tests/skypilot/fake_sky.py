"""A FAKE of the program `sky`, because a cloud cannot be had here: exit codes and words of SkyPilot 0.14.1.

Its words were copied from the real program (2026-11-29), which was run with its real server on a Slurm
cluster of this machine. The program is a stub that asks this process; a cluster is a machine of
`tests/pod.py` with a real sshd. Every call is recorded; failures are put in by the tests.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.pod import start_pod
from tests.remote.sshd import free_port, new_key

STUB = """#!{python}
import json, sys, urllib.request
words = sys.argv[1:]
task = open(words[-1]).read() if words[-1].endswith(".json") else None
asked = urllib.request.Request("{url}", json.dumps([words, task]).encode())
code, out, err = json.load(urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(asked))
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""

START = """
mkdir -p /root/.ssh /run/sshd /etc/profile.d
printf '%s\\n' "$PUBLIC_KEY" > /root/.ssh/authorized_keys
export -p > /etc/profile.d/container_env_var.sh
ssh-keygen -q -t ed25519 -N '' -f /run/host
exec /usr/sbin/sshd -D -e -h /run/host -o UsePAM=no -o PasswordAuthentication=no
"""
"""Does in a container as SkyPilot does, as far as it can be seen from outside."""

INFO = """SkyPilot client version: 0.14.1, commit: 7e595970a806dcc9eefadf459f399edf1733e962
Using SkyPilot API server and dashboard: http://127.0.0.1:46580
├── Status: ApiServerStatus.HEALTHY, commit: 7e595970a806dcc9eefadf459f399edf1733e962, version: 0.14.1
└── User: root (fcd1e5cf)
"""
DOWN = """SkyPilot client version: 0.14.1, commit: 7e595970a806dcc9eefadf459f399edf1733e962
Could not connect to SkyPilot API server at http://127.0.0.1:9
├── To re-login to the API server: sky api login --relogin -e http://127.0.0.1:9
└── To logout the server: sky api logout
"""
UNKNOWN = "Cluster(s) not found: \x1b[1m{name}\x1b[0m.\n"


@dataclass
class Call:
    """One call of the program."""

    words: list[str]
    task: Any
    time: float = field(default_factory=time.time)


@dataclass
class Cluster:
    """A machine."""

    state: str = "INIT"
    process: subprocess.Popen[bytes] | None = None


class FakeSky:
    """SkyPilot's side; attributes are what a test may set. `HOME` must be `home` for its callers."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        self.calls: list[Call] = []
        self.clusters: dict[str, Cluster] = {}
        self.planning = 0.0
        """Seconds of a launch until SkyPilot lists the machine; it can be cancelled."""
        self.pending: dict[str, threading.Event] = {}
        self.delay = 0.2
        """Seconds of a launch until the machine can be reached."""
        self.sshd = True
        """Whether machines can be reached."""
        self.server_up = True
        self.failures: list[tuple[str, str]] = []
        """Verb and message of the next failures, each used once."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.program = folder / "sky"
        url = f"http://127.0.0.1:{self._server.server_port}/"
        self.program.write_text(STUB.format(python=sys.executable, url=url))
        self.program.chmod(0o755)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """End all of it."""
        self._server.shutdown()
        self._server.server_close()
        for name in list(self.clusters):
            self.delete(name)

    def asked(self, verb: str) -> list[Call]:
        """Calls of one verb."""
        return [call for call in self.calls if call.words[0] == verb]

    def rented(self) -> list[Call]:
        """Launches that were no plan."""
        return [call for call in self.asked("launch") if "--dryrun" not in call.words]

    def delete(self, name: str) -> None:
        """End a machine with all its processes: as SkyPilot does, and as a cloud that preempts does."""
        process = self.clusters.pop(name).process
        if process is not None:
            process.kill()
            process.wait()

    def answer(self, words: list[str], task: Any) -> tuple[int, str, str]:
        """Exit code, output and errors of a call."""
        self.calls.append(Call(words, task))
        verb = words[0]
        for failure in self.failures:
            if failure[0] == verb:
                self.failures.remove(failure)
                return 1, "", failure[1]
        if words[:2] == ["api", "status"]:
            name = words[words.index("--cluster") + 1]
            listed = [{"request_id": name, "name": "sky.launch"}] if name in self.pending else []
            return 0, json.dumps(listed, indent=2) + "\n", ""
        if words[:2] == ["api", "cancel"]:
            self.pending[words[-1]].set()
            return 0, "", ""
        if verb == "api":
            return 0, INFO if self.server_up else DOWN, ""
        if verb == "launch":
            return self._launch(words[words.index("--cluster") + 1], "--dryrun" in words)
        name = words[-1]
        if verb == "down":
            with self._lock:
                if name not in self.clusters:
                    return 0, UNKNOWN.format(name=name), ""
                self.delete(name)
            return 0, f"Terminating cluster {name}...done.\n", ""
        assert verb == "status", words
        listed = [
            {"name": one, "status": cluster.state}
            for one, cluster in self.clusters.items()
            if name.startswith("--") or name == one
        ]
        before = UNKNOWN.format(name=name) if not listed and not name.startswith("--") else ""
        return 0, before + json.dumps(listed, indent=2) + "\n", ""

    def _launch(self, name: str, plan: bool) -> tuple[int, str, str]:
        if plan:
            return 0, f"Running on cluster: {name}\n", ""
        stop = self.pending[name] = threading.Event()
        stop.wait(self.planning)
        with self._lock:
            del self.pending[name]
            if stop.is_set():
                return 1, "", "sky.exceptions.RequestCancelled: cancelled\n"
        port = free_port()
        kept = self.home / ".sky/generated"
        for part in ("ssh", "ssh-keys"):
            (kept / part).mkdir(parents=True, exist_ok=True)
        key = new_key(kept / f"ssh-keys/{name}.key")
        with self._lock:
            cluster = self.clusters[name] = Cluster()
            cluster.process = start_pod(
                self.folder / name,
                ["sh", "-c", START if self.sshd else "sleep 300"],
                {"SSH_PORT": str(port), "PUBLIC_KEY": Path(f"{key}.pub").read_text().strip()},
            )
        time.sleep(self.delay)
        (kept / "ssh" / name).write_text(
            f"Host {name}\n  HostName 127.0.0.1\n  User root\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
            f"  StrictHostKeyChecking no\n  UserKnownHostsFile=/dev/null\n  Port {port}\n"
        )
        cluster.state = "UP"
        return 0, f"✓ Cluster launched: {name}.\n", ""


def _handler(fake: FakeSky) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 - the name http.server wants
            words, task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = fake.answer(words, json.loads(task) if task else None)
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with contextlib.suppress(OSError):  # the caller was killed
                self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
