"""Alone: `hpcbench serve`, and the wrapper on a TCP port with its key in a file."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import numpy
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from hpcbench.cli.main import main
from hpcbench.inference.grpc_client import Connections
from hpcbench.open_inference import chat
from hpcbench.wrapper.__main__ import _listen
from tests.campaign import first
from tests.help_examples import example
from tests.unit.wrapper.running import KEY, ROOT, Wrapper
from tests.user import until

pytestmark = pytest.mark.long


def key_file(folder: Path, mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_text(f"{KEY}\nmore\n")
    path.chmod(mode)
    return path


def health(port: str, key: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/healthz", headers={"X-API-Key": key})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_tcp_port_is_served_where_it_is_asked_for(
    start: Callable[..., Wrapper], tmp_path: Path
) -> None:
    wrapper = start("--port", "0", "--key-file", str(key_file(tmp_path)))
    assert wrapper.process.stdin is not None
    wrapper.process.stdin.close()  # means nothing where the key came from a file
    said = wrapper.errors.read_text()
    [port] = re.findall(r"serving on http://127\.0\.0\.1:(\d+)", said)
    assert health(port, KEY) == 200
    assert health(port, "") == 401
    assert KEY not in said
    wrapper.process.send_signal(signal.SIGTERM)
    assert wrapper.process.wait(20) == 0


def test_every_plane_has_the_limit_of_requests_that_it_was_started_with(
    start: Callable[..., Wrapper],
) -> None:
    limit = 100_000
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        sockets = {"--grpc-socket": f"{folder}/g", "--worker-socket": f"{folder}/w"}
        argv = [word for pair in sockets.items() for word in pair]
        wrapper = start("--request-limit", str(limit), "--web-socket", *argv)

        async def journey() -> None:
            async with wrapper.control() as control:
                await control.loaded(wrapper.body())
                for size, status in ((limit - 1000, 200), (limit, 413)):
                    assert (await control.chat(user="x" * size))[0] == status
                _, offer = await control.ask("POST", "/v1/direct", {"client": "new"})
                assert offer["body_limit"] == limit
                async with control.session.ws_connect("/v1/stream") as socket:
                    await socket.send_json({"id": "1", "request": {"user": "x" * limit}})
                    assert (await socket.receive()).data == 1009
            body = json.dumps({"messages": [], "user": "x" * limit}).encode()
            worker = Connections(sockets["--worker-socket"], KEY)
            async with worker.ask(chat.request("scripted", body, ()), 30) as answer:
                assert (answer.status, ": raise request_mb" in str(await answer.read())) == (
                    413,
                    True,
                )
            await worker.close()
            async with triton_aio.InferenceServerClient(f"unix:{folder}/g") as client:
                text = triton.InferInput("request", [1], "BYTES")
                text.set_data_from_numpy(numpy.array([body], dtype=object))
                with pytest.raises(InferenceServerException, match="RESOURCE_EXHAUSTED"):
                    await client.infer("scripted", [text], headers={"x-api-key": KEY})

        asyncio.run(journey())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "0"], "no key: write it"),
        ([], "give --socket, --port, or both"),
        (
            ["--port", "0", "--key-file", "{open}"],
            "other users may read {open} (mode 0640): chmod 600",
        ),
        (["--port", "0", "--key-file", "{folder}/none"], "No such file or directory"),
        (["--socket", "{folder}/" + "s" * 110], "--socket is longer than 107 bytes"),
        (["--port", "0", "--key-file", "{key}", "--host", "no.such.host.invalid"], "cannot serve"),
        (["--port", "65536", "--key-file", "{key}"], "--port 65536 is not a port"),
        (["--port", "-1", "--key-file", "{key}"], "--port -1 is not a port"),
        (["--port", "0", "--key-file", "{key}", "--request-limit", "0"], "--request-limit 0"),
        (
            [
                "--port",
                "0",
                "--key-file",
                "{key}",
                "--grpc-port",
                "0",
                "--request-limit",
                "2147483648",
            ],
            "--request-limit 2147483648 is more than a message of gRPC may have",
        ),
        (
            [
                "--port",
                "0",
                "--key-file",
                "{key}",
                "--tls-certificate",
                "{key}",
                "--tls-key",
                "{key}",
            ],
            "TLS is of gRPC's port alone: give --grpc-port",
        ),
    ],
)
def test_what_it_cannot_serve_with_is_reported(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "o").mkdir()
    places = {
        "folder": str(tmp_path),
        "key": str(key_file(tmp_path)),
        "open": str(key_file(tmp_path / "o", 0o640)),
    }
    argv = ["--engine-dir", str(tmp_path), "--log", str(tmp_path / "log")]
    argv += [argument.format(**places) for argument in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "hpcbench.wrapper", *argv],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (1, 2)
    assert said.format(**places) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """Short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        yield Path(folder) / "s"


def stale(path: Path) -> None:
    """A socket whose owner was killed."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def test_the_socket_of_a_killed_wrapper_gives_way_to_the_next(socket_path: Path) -> None:
    stale(socket_path)
    with _listen(socket_path) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(socket_path))
        assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
        with pytest.raises(OSError, match="in use"), _listen(socket_path):
            pass
        listener.accept()[0].close()  # still ours
    assert not socket_path.exists()


def test_nothing_but_a_dead_socket_of_ours_gives_way(
    socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket_path.write_text("somebody's file")
    with pytest.raises(OSError, match="in use"), _listen(socket_path):
        pass
    assert socket_path.read_text() == "somebody's file"
    socket_path.unlink()
    other = socket_path.with_name("other")
    stale(other)
    socket_path.symlink_to(other)
    with pytest.raises(OSError, match="in use"), _listen(socket_path):
        pass
    assert other.exists()
    socket_path.unlink()
    stale(socket_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OSError, match="in use"), _listen(socket_path):
        pass
    assert socket_path.exists()


@pytest.mark.parametrize(("key", "status"), [("", 401), (KEY, 200)])
def test_a_websocket_upgrade_is_answered_as_any_request(
    start: Callable[..., Wrapper], key: str, status: int
) -> None:
    wrapper = start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(wrapper.socket))
        client.sendall(
            f"GET /healthz HTTP/1.1\r\nHost: w\r\nX-API-Key: {key}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert client.recv(4096).startswith(f"HTTP/1.1 {status} ".encode())


class Serving:
    """`hpcbench serve` of a scripted engine, as a process."""

    def __init__(self, folder: Path, options: str, *arguments: str, model: str = "") -> None:
        document = folder / "m.yaml"
        document.write_text(
            "schema_version: 1\nname: m\nsource: weights\ngpus: 0\n"
            f"engine: tests.scripted_engine:ScriptedEngine\nengine_options: {options}\n"
        )
        (folder / "weights").mkdir(exist_ok=True)
        self.out, self.err = folder / "out", folder / "err"
        environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        environment |= {"XDG_CONFIG_HOME": str(folder), "HPCBENCH_HOME": str(folder / "home")}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "hpcbench.cli.main",
                    "serve",
                    model or str(document),
                    *arguments,
                ],
                stdout=out,
                stderr=err,
                env=environment,
            )

    def until(self, text: str, times: int = 1) -> str:
        """Wait until it has said so; gives all it said."""
        end = time.monotonic() + 60
        while (said := self.out.read_text() + self.err.read_text()).count(text) < times:
            assert self.process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.05)
        return said


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    running: list[Serving] = []

    def one(options: str, *arguments: str, model: str = "") -> Serving:
        running.append(Serving(tmp_path, options, *arguments, model=model))
        return running[-1]

    yield one
    for each in running:
        each.process.send_signal(signal.SIGINT)
        each.process.wait(60)


@pytest.mark.parametrize("reported", first(1, [signal.SIGINT, signal.SIGHUP]))
def test_serve_tells_how_to_ask_and_ends_on_ctrl_c_or_with_its_terminal(
    serving: Callable[..., Serving], reported: signal.Signals
) -> None:
    one = serving("{}")
    one.until("curl ")
    said = one.out.read_text()
    [key] = re.findall("^key: (.*)$", said, re.M)
    assert Path(key).stat().st_mode & 0o077 == 0
    assert Path(key).with_name("header").stat().st_mode & 0o077 == 0
    assert Path(key).read_text().strip() not in said + one.err.read_text()
    asked = subprocess.run(
        ["bash", "-c", said.splitlines()[-1]], capture_output=True, text=True, timeout=60
    )
    assert '"The total is ' in asked.stdout, asked
    one.process.send_signal(reported)
    assert one.process.wait(60) == 0
    assert one.err.read_text().endswith("ended\n")
    assert not Path(key).parent.exists()


def test_serve_outlives_its_terminal_under_nohup(serving: Callable[..., Serving]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited
    try:
        one = serving("{}")
    finally:
        signal.signal(signal.SIGHUP, before)
    one.until("curl ")
    one.process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        one.process.wait(1)


def test_serve_starts_an_engine_that_died_again_but_not_for_ever(
    serving: Callable[..., Serving], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    one = serving(f'{{pids: "{pids}"}}', "--restarts", "1")
    for deaths in (1, 2):
        one.until("ready after", deaths)
        os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)
    assert one.process.wait(60) == 1
    said = one.err.read_text()
    assert "restarting the engine (1 of 1)" in said
    assert "the engine died 2 times: engine was ended by SIGKILL (out of memory?)" in said
    assert "(cause: out_of_memory)" in said


def test_serve_ends_on_its_time_limit(serving: Callable[..., Serving]) -> None:
    one = serving("{}", "--time-limit", "00:00:01", "--port", "0")
    assert one.process.wait(60) == 0
    assert one.err.read_text().endswith("its time limit has ended\nended\n")


def test_serve_announces_the_free_port_that_it_took(
    serving: Callable[..., Serving], tmp_path: Path
) -> None:
    one = serving("{}", *example("serve tiny-vlm --port 8000", {"8000": 0})[2:])
    said = one.until("curl ")
    [port] = re.findall(r"http://127\.0\.0\.1:(\d+)/v1/chat", said)
    [path] = (tmp_path / "home" / "serving").glob("*.json")
    assert json.loads(path.read_text())["address"] == f"http://127.0.0.1:{port}"


def test_serve_has_the_limit_of_requests_of_the_models_definition(
    serving: Callable[..., Serving],
) -> None:
    one = serving("{}\nrequest_mb: 1.5", "--port", "0")
    said = one.until("curl ")
    [where] = re.findall(r"http://127\.0\.0\.1:\d+/v1/chat/completions", said)
    [key] = re.findall("^key: (.*)$", said, re.M)
    headers = {"X-API-Key": Path(key).read_text().strip()}

    async def journey() -> None:
        async with aiohttp.ClientSession(headers=headers) as session:
            for size, status in ((1_400_000, 200), (1_500_000, 413)):
                body = json.dumps({"model": "m", "messages": [], "user": "x" * size})
                async with session.post(where, data=io.BytesIO(body.encode())) as answer:
                    refused = "1500000 bytes: raise request_mb" in await answer.text()
                    assert (answer.status, refused) == (status, status == 413)

    asyncio.run(journey())


def test_serve_offers_grpc_and_websocket_where_they_are_asked_for(
    serving: Callable[..., Serving],
) -> None:
    words = example("serve tiny-vlm --grpc-port 8001", {"8001": 0})[2:]
    one = serving("{}", *words, "--port", "0", "--web-socket")
    said = one.until("curl ")
    [path, port] = re.findall(r"^gRPC: unix:(\S+), and 127\.0\.0\.1:(\d+)$", said, re.M)[0]
    [address] = re.findall(r"^WebSocket: (ws://127\.0\.0\.1:\d+/v1/stream)$", said, re.M)
    assert Path(path).stat().st_mode & 0o777 == 0o600
    [key] = re.findall("^key: (.*)$", said, re.M)
    secret = Path(key).read_text().strip()
    assert secret not in said

    async def journey() -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        for where in (f"unix:{path}", f"127.0.0.1:{port}"):
            async with triton_aio.InferenceServerClient(where) as client:
                text = triton.InferInput("request", [1], "BYTES")
                text.set_data_from_numpy(numpy.array([json.dumps(body).encode()], dtype=object))
                with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
                    await client.infer("m", [text], headers={"x-api-key": "wrong"})
                found = await client.infer("m", [text], headers={"x-api-key": secret})
                assert b"The total is " in found.as_numpy("response")[0]
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as websocket:
            await websocket.send_json({"key": secret})
            await websocket.send_json({"id": "1", "request": body})
            frames = [await websocket.receive_json() for _ in range(3)]
            assert frames[0]["status"] == 200
            assert "The total is " in frames[1]["chunk"]["choices"][0]["message"]["content"]
            assert frames[2] == {"id": "1", "final": True}

    asyncio.run(journey())


def test_a_job_serves_until_it_is_stopped(serving: Callable[..., Serving], tmp_path: Path) -> None:
    """Where the site has no Slurm the job is a process, which outlives the command."""
    one = serving("{}", "--job")
    assert one.process.wait(60) == 0
    assert "a process of this host serves m for 60 min" in one.out.read_text()
    folder = tmp_path / "home" / "serving"
    until(lambda: list(folder.glob("*.json")), 60, "the model")
    [ready] = folder.glob("*.json")
    ends = json.loads(ready.read_text())["ends"]
    assert 3500 < ends - time.time() < 3600
    [job] = folder.glob("*/job.json")
    pid = json.loads(job.read_text())["process"]["pid"]
    ended = serving("{}", "--stop", model="m")
    assert ended.process.wait(60) == 0, ended.err.read_text()
    until(lambda: not Path(f"/proc/{pid}").exists(), 60, "its end")
    assert list(folder.iterdir()) == []


def test_a_job_that_cannot_load_its_model_keeps_the_reason(
    serving: Callable[..., Serving], tmp_path: Path
) -> None:
    assert serving("{start: exit}", "--job").process.wait(60) == 0
    folder = tmp_path / "home" / "serving"
    until(lambda: list(folder.glob("*/failed")), 60, "the reason")
    [failed] = folder.glob("*/failed")
    assert "missing_weights" in failed.read_text()
    [log] = failed.parent.glob("*.out")
    said = "engine ended with exit code 1 while loading"
    until(lambda: said in log.read_text(), 60, "the job's message")


def test_serve_tells_why_a_model_cannot_be_loaded(serving: Callable[..., Serving]) -> None:
    one = serving("{start: exit}")
    assert one.process.wait(60) == 1
    said = one.err.read_text()
    assert "hpcbench: engine ended with exit code 1 while loading: OSError: Error no file" in said
    assert "(cause: missing_weights)" in said
    assert "    Traceback (most recent call last):" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.yaml"], "none.yaml: no such file"),
        (["tiny-vln"], "unknown model 'tiny-vln' (did you mean 'tiny-vlm'?)"),
        (["tiny-vlm", "--port", "65536"], "--port 65536 is not a port"),
        (["tiny-vlm", "--time-limit", "1h"], "--time-limit 1h is not a time"),
        (["tiny-vlm", "--grpc-port", "65536"], "--grpc-port 65536 is not a port"),
        (["tiny-vlm", "--grpc-port", "0", "--tls-key", "k"], "--tls-key alone is no TLS"),
        (["tiny-vlm", "--tls-key", "k", "--tls-certificate", "c"], "TLS is of gRPC alone"),
        (
            ["tiny-vlm", "--grpc-port", "0", "--tls-key", "/no/k", "--tls-certificate", "/no/c"],
            "--tls-certificate /no/c: no such file",
        ),
        (["tiny-vlm", "--grpc-port", "0", "--host", "0.0.0.0"], "would not be encrypted"),
        (["tiny-vlm", "--stop"], "no job serves 'tiny-vlm'"),
    ],
)
def test_serve_tells_what_it_cannot_do(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["serve", *arguments]) == 2
    assert said in capsys.readouterr().err
