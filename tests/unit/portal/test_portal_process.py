"""The real process: from `hpcbench portal` to its end, by the command line, raw HTTP and signals."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.cli.portal import _database
from hpcbench.errors import UserError
from hpcbench.portal import addresses, serve
from hpcbench.portal.context import Options
from tests.campaign import first
from tests.conftest import ROOT
from tests.help_examples import example
from tests.unit.command import Cli

pytestmark = pytest.mark.long

CODE = re.compile(r"#t=([A-Za-z0-9_-]{43,})")


@dataclass
class House:
    """A user with a home of his own."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "HPCBENCH_HOME": str(self.folder / "bench"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "PYTHONPATH": str(ROOT),
        }

    @property
    def socket(self) -> Path:
        return self.folder / "run/hpcbench/portal.sock"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A verb, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "hpcbench.cli.main", "portal", *words],
            env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def start(self, *words: str) -> tuple[subprocess.Popen[str], str]:
        """A portal that is up, and what it said."""
        process = subprocess.Popen(
            [sys.executable, "-m", "hpcbench.cli.main", "portal", *words],
            env=self.env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.started.append(process)
        assert process.stdout is not None
        said = ""
        patience = threading.Timer(60, process.kill)
        patience.start()
        while not re.search(
            "^(On this host|If ssh|.*under your proxy's address)", said, re.MULTILINE
        ):
            line = process.stdout.readline()
            assert line, f"it ended, or did not say for a minute that it is up: {said}"
            said += line
        patience.cancel()
        return process, said

    def end(self, process: subprocess.Popen[str]) -> str:
        """Wait for its end; what it said since."""
        said, _ = process.communicate(timeout=60)
        return said


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "bench/experiments").mkdir(parents=True)
    house = House(tmp_path)
    yield house
    for process in house.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


class Line(http.client.HTTPConnection):
    """HTTP over the portal's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self.path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


def ask(
    house: House, method: str, path: str, body: Any = None, **given: str
) -> tuple[int, dict[str, str], Any]:
    line = Line(house.socket)
    try:
        headers = {"X-Hpcbench": "1", "Content-Type": "application/json", **given}
        line.request(method, path, None if body is None else json.dumps(body), headers)
        found = line.getresponse()
        text = found.read()
        cookies = [one.split(";")[0] for one in found.headers.get_all("set-cookie") or ()]
        return found.status, {"Cookie": "; ".join(cookies)}, json.loads(text) if text else None
    finally:
        line.close()


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_from_the_first_line_to_the_last(house: House) -> None:
    process, said = house.start("--allow-edit", "--idle-hours", "2")
    assert f":{house.socket} " in said
    assert "-o ExitOnForwardFailure=yes -L 127.0.0.1:8787:" in said
    assert f"@{addresses.real_host()}" in said
    code = CODE.search(said)
    assert code is not None
    assert f"?{code[1]}" not in said, "in the fragment, nowhere else"

    status, cookies, session = ask(house, "POST", "/api/v1/session", {"code": code[1]})
    assert (status, session["may_edit"], session["may_submit"]) == (200, True, False)
    assert session["tunnel"] in said
    assert ask(house, "POST", "/api/v1/session", {"code": code[1]})[0] == 401, "used up"
    assert ask(house, "GET", "/api/v1/experiments", **cookies)[0] == 200

    again = house.run()
    assert again.returncode == 0
    assert f"already runs on this host (pid {process.pid})" in again.stdout
    fresh = CODE.search(house.run(*example("portal url")[1:]).stdout)
    assert fresh is not None
    assert ask(house, "POST", "/api/v1/session", {"code": fresh[1]})[0] == 200
    links = json.loads(house.run("url", "--json").stdout)
    assert CODE.search(links["link"])
    shown = json.loads(house.run(*example("portal status")[1:], "--json").stdout)
    assert (shown["running"], shown["pid"], shown["idle_hours"]) == (True, process.pid, 2.0)
    assert "may edit" in house.run("status").stdout

    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == max(10, ours), "yields to others"
    proc = Path(f"/proc/{process.pid}/status").read_text()
    assert "Umask:\t0077" in proc
    modes = {path.name: path.lstat().st_mode & 0o777 for path in house.socket.parent.iterdir()}
    assert {name: mode for name, mode in modes.items() if mode != 0o600} == {}
    assert house.socket.parent.stat().st_mode & 0o777 == 0o700

    held = [code[1], fresh[1], (house.socket.parent / "portal.token").read_text().strip()]
    held += [one.split("=", 1)[1] for one in cookies["Cookie"].split("; ")]
    seen = [Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    for file in (
        *house.folder.rglob("*.log*"),
        *house.folder.rglob("*.jsonl"),
        *house.socket.parent.glob("*.json"),
    ):
        seen.append(file.read_bytes())
    assert len(seen) > 4
    for word in held:
        assert not [text for text in seen if word.encode() in text], "no secret in argv, env, logs"

    assert house.run(*example("portal stop")[1:]).stdout == "the portal has ended\n"
    assert "the portal has ended" in house.end(process)
    assert process.returncode == 0
    assert not house.socket.exists()
    assert house.run("status").returncode == 1
    gone = house.run("url")
    assert gone.returncode == 3
    assert "no portal of yours runs on this host" in gone.stderr


def test_a_restart_ends_all_sessions_and_keeps_tokens(house: House) -> None:
    process, said = house.start(*example("portal")[1:])
    code = CODE.search(said)
    assert code is not None
    _, cookies, _ = ask(house, "POST", "/api/v1/session", {"code": code[1]})
    assert ask(house, "GET", "/api/v1/session", **cookies)[0] == 200
    made = house.run("token", "create", "--scope", "read", "--days", "1", "plots")
    bearer = {"Authorization": f"Bearer {made.stdout.strip()}"}
    assert "hpcbench shows it only now" in made.stderr
    assert ask(house, "GET", "/api/v1/session", **bearer)[0] == 200
    owner = (house.socket.parent / "portal.token").read_text().strip()
    process.kill()  # not asked: what lies around must not hinder the next
    house.end(process)
    process, _ = house.start()
    assert ask(house, "GET", "/api/v1/session", **cookies)[0] == 401
    assert ask(house, "POST", "/api/v1/session/refresh", **cookies)[0] == 401
    assert ask(house, "GET", "/api/v1/session", Authorization=f"Bearer {owner}")[0] == 401
    assert ask(house, "GET", "/api/v1/session", **bearer)[0] == 200
    (row,) = json.loads(house.run("token", "list", "--json").stdout)
    assert (row["name"], row["scopes"]) == ("plots", ["read"])
    revoke = example("portal token revoke TOKEN", {"TOKEN": row["id"]})
    assert house.run(*revoke[1:]).stdout == "revoked\n"
    assert ask(house, "GET", "/api/v1/session", **bearer)[0] == 401
    assert house.run("token", "revoke", row["id"]).returncode == 2
    owner = (house.socket.parent / "portal.token").read_text().strip()
    process.send_signal(signal.SIGTERM)
    house.end(process)
    words = example("portal --allow-edit --allow-submit --plans .")
    process, _ = house.start(*words[1:], "--keep")
    assert (house.socket.parent / "portal.token").read_text().strip() == owner


@pytest.mark.parametrize("number", first(1, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
def test_it_ends_in_order_on_a_signal_with_a_stream_open(
    house: House, number: signal.Signals
) -> None:
    process, _ = house.start()
    owner = (house.socket.parent / "portal.token").read_text().strip()
    line = Line(house.socket)
    line.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {owner}"})
    stream = line.getresponse()
    assert stream.readline() == b"retry: 2000\n"
    process.send_signal(number)
    assert "the portal has ended" in house.end(process)
    assert process.returncode == 0
    stream.read()
    line.close()
    assert not house.socket.exists()
    assert not (house.socket.parent / "portal.json").exists()


def test_unused_for_long(house: House) -> None:
    process, _ = house.start("--idle-hours", "0.0001")
    assert "the portal stops: it got no request for 0.0001 h" in house.end(process)
    assert process.returncode == 0


def test_on_a_port_too(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = house.run("--tcp", "--port", str(port))
        assert busy.returncode == 3
        assert "address already in use" in busy.stderr
        assert "another user may listen there" in busy.stderr
    assert not house.socket.exists()
    process, said = house.start("--tcp", "--port", str(port))
    assert f"-L 127.0.0.1:8787:127.0.0.1:{port} " in said
    assert f"http://localhost:{port}/#t=" in said
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    line.request("GET", "/healthz")
    assert line.getresponse().read() == b"ok\n"
    line.close()
    table = Path(f"/proc/{process.pid}/net/tcp").read_text()
    own = [row.split()[1] for row in table.splitlines() if f":{port:04X} 00000000:0000 " in row]
    assert {end.split(":")[0] for end in own} == {"0100007F"}, "on the loopback only"


def test_behind_a_proxy(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    _, said = house.start(
        *example(
            "portal --tcp --port 8080 --listen 0.0.0.0 --proxy-address 10.0.0.7 --root-path /node/n1/8080",
            {"8080": port},
        )[1:]
    )
    assert "/node/n1/8080" in said
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    line.request("GET", "/api/v1/experiments")
    status = line.getresponse().status
    line.close()
    assert status in (401, 403), "it is not the proxy that asks"


def test_a_squatted_folder_stops_it_before_it_starts(house: House) -> None:
    (house.folder / "run/hpcbench").mkdir()
    (house.folder / "run/hpcbench").chmod(0o777)
    found = house.run()
    assert found.returncode == 3
    assert "open to other users" in found.stderr
    assert "#t=" not in found.stdout


def test_it_ends_itself_when_it_grows_too_large(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in house.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(serve, "MEMORY", 1000)
    before = os.umask(0o022)
    os.umask(before)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        assert main(["portal"]) == 3
    finally:
        os.umask(before)
        if os.geteuid() == 0:
            os.setpriority(os.PRIO_PROCESS, 0, nice)
    assert "the portal stopped itself: it used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"listen": "0.0.0.0", "tcp": True}, "would open the portal to the network"),
        ({"listen": "::", "tcp": True}, "would open the portal to the network"),
        ({"listen": "example.org", "tcp": True}, "IP address"),
        ({"port": 80}, "add --tcp"),
        ({"listen": "10.0.0.1", "proxy_addresses": ("10.0.0.2",)}, "add --tcp"),
        ({"proxy_addresses": ("proxy",), "tcp": True}, "IP address"),
    ],
)
def test_what_would_open_it_is_refused(given: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UserError, match=wrong):
        serve.check(serve.Settings(Path("/x"), Options(Path("/x")), **given))
    behind = {"listen": "10.0.0.1", "tcp": True, "proxy_addresses": ("10.0.0.2",)}
    serve.check(serve.Settings(Path("/x"), Options(Path("/x")), **behind))  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["x", "/x/..//", "/x y", "/x;", "/x\r\nSet-Cookie:", "//x"])
def test_a_prefix_is_a_path(prefix: str) -> None:
    with pytest.raises(UserError, match="is not a path"):
        serve.check(serve.Settings(Path("/x"), Options(Path("/x"), root_path=prefix)))


def test_the_password_of_the_index_is_in_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    said = cli.err("portal", "--index", "postgresql://me:hunter2@db/x")
    assert "ps" in said
    assert "hunter2" not in said
    (tmp_path / "word").write_text("hunter2\n")
    (tmp_path / "word").chmod(0o600)
    url = _database(f"postgresql://me:${{file:{tmp_path}/word}}@db/x")
    assert url == "postgresql://me:hunter2@db/x"
    assert _database(None) is None


def test_the_link_has_a_host_name_of_its_own() -> None:
    state: dict[str, Any] = {
        "site": "", "host": "login03.example.edu", "port": None, "root_path": "", "tunnel": "ssh …",
    }  # fmt: skip
    assert addresses.links(state, "C")["link"] == "http://login03.localhost:8787/#t=C"
    assert addresses.links({**state, "site": "My_Cluster"}, "C")["link"].startswith(
        "http://my-cluster.l"
    )
    assert addresses.links({**state, "site": "…"}, "C")["link"].startswith(
        "http://hpcbench.localhost"
    )
    assert addresses.links({**state, "root_path": "/node/n/1"}, "C") == {"path": "/node/n/1/#t=C"}
    assert "under your proxy's address" in addresses.how_to_reach({**state, "root_path": "/n"}, "C")


def test_the_command_line_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["portal", "--help"])
    said = capsys.readouterr().out
    assert "hpcbench portal url" in said
    assert "--allow-submit" in said
