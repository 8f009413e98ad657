"""SGLang's adapter: its options, its command, and its server on a Unix socket.

The server here is a stand-in, written after SGLang 0.5.23's published source: it reads its command line with
argparse, serves with uvicorn on `--host` and `--port`, warms itself up over that port before it is healthy,
and puts its errors flat. The real one runs in tests/engine/test_sglang_cpu.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hpcbench import plugins
from hpcbench.engines import sglang
from hpcbench.engines.sglang import Installed, SglangEngine, read_options
from hpcbench.errors import UserError
from tests.conftest import ROOT

# The forms in which 0.5.23 declares options.
ARGUMENTS = """\
class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--config", type=str)
        parser.add_argument("--disable-cuda-graph", action=DeprecatedStoreTrueAction)
"""
FIELDS = """\
class Model(msgspec.Struct):
    _NS_PATH = "model"
    model_path: A[str, Arg(help="Weights.", aliases=["--model"])]
    dtype: A[str, Arg(help="Type.", choices=["auto", "half"])] = "auto"
    context_length: A[Optional[int], Arg(help="Tokens.")] = None
    served_model_name: A[Optional[str], "Its name."] = None
    port: A[int, "The port."] = 30000
    disable_radix_cache: A[bool, Arg(help="No prefix cache.", resolvable=True)] = False
    mm_enable_dp_encoder: A[
        Optional[bool], Arg(help="Spread.", action=argparse.BooleanOptionalAction)
    ] = None
    fp8_gemm_runner_backend: A[str, Arg(help="Kernel.", cli_name="--fp8-gemm-backend")] = "auto"
    grpc_worker_threads: A[Optional[int], Arg(no_cli=True)] = None
    allowed_media_domains: A[List[str], "Hosts."] = msgspec.field(default_factory=list)
    plain: int = 1
"""
OPTIONS = {
    *("config", "disable_cuda_graph", "model_path", "model", "dtype", "context_length", "port"),
    *("served_model_name", "disable_radix_cache", "mm_enable_dp_encoder", "fp8_gemm_backend"),
    "allowed_media_domains",
}

SERVER = """\
import argparse, json, os, sys, threading
import requests, uvicorn

state = {"warm": False}

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    status, answer = 200, {"argv": sys.argv[1:], "warm": state["warm"]}
    if scope["path"] == "/health" and not state["warm"]:
        status, answer = 503, {}
    elif scope["path"] == "/v1/chat/completions":
        status, answer = 400, {"object": "error", "message": "No.", "type": "Bad", "code": 400}
    elif scope["path"] == "/nowhere":
        status, answer = 404, {"detail": "Not Found"}
    body = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body[:5], "more_body": True})
    await send({"type": "http.response.body", "body": body[5:]})

def warm_up(url):
    requests.get(url + "/model_info", timeout=10).raise_for_status()
    state["warm"] = True

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    args, _ = parser.parse_known_args()
    threading.Timer(0.3, warm_up, [f"http://{args.host}:{args.port}"]).start()
    config = uvicorn.Config(app, host=args.host, port=args.port, lifespan="off")
    uvicorn.Server(config).run()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a package `sglang` in it."""
    fields = tmp_path / "sglang/srt/arg_groups/fields"
    fields.mkdir(parents=True)
    (tmp_path / "sglang/__init__.py").touch()
    (tmp_path / "sglang/launch_server.py").write_text(SERVER)
    (tmp_path / "sglang/srt/server_args.py").write_text(ARGUMENTS)
    (fields / "model.py").write_text(FIELDS)
    return tmp_path


def spec(**changes: Any) -> plugins.EngineSpec:
    return plugins.EngineSpec(**{"model_path": "/w", "model_name": "m", "socket": "/s", **changes})


def words(command: plugins.Command) -> list[str]:
    """Arguments that SGLang gets."""
    argv = list(command.argv)
    return argv[argv.index("--") + 1 :]


def test_a_model_and_its_dataset_become_sglangs_settings() -> None:
    command = SglangEngine().launch_command(
        spec(dtype="bfloat16", context_length=4096, gpus=2, images=3)
    )
    assert command.argv[:5] == [sys.executable, "-m", "hpcbench.engines.sglang", "--uds", "/s"]
    assert " ".join(words(command)) == (
        "--model-path /w --served-model-name m --dtype bfloat16 --context-length 4096 --tp-size 2"
        " --enable-metrics --log-level-http warning --disable-radix-cache"
        ' --limit-mm-data-per-request {"image": 3}'
    )
    assert command.env["HF_HUB_OFFLINE"] == "1"


def test_images_that_come_again_are_worth_a_cache_and_no_gpu_is_reported() -> None:
    line = words(SglangEngine().launch_command(spec(reuse=True)))
    assert "--disable-radix-cache" not in line
    assert line[line.index("--device") + 1] == "cpu"


def test_options_of_the_definition_win_and_switches_are_left_out_when_off() -> None:
    options = {"disable-radix-cache": False, "enable_metrics": False, "mm_io_worker_num": 8}
    line = words(SglangEngine().launch_command(spec(options=options)))
    assert not [word for word in line if "radix" in word or "metrics" in word]
    assert line[-2:] == ["--mm-io-worker-num", "8"]


def test_several_tokenizers_do_not_warm_up_over_an_unserved_port() -> None:
    line = words(SglangEngine().launch_command(spec(options={"tokenizer_worker_num": 4})))
    assert "--skip-server-warmup" in line


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("dtype", r"'dtype' is set by hpcbench \(set the model's 'dtype'\)"),
        ("port", r"'port' is set by hpcbench \(leave it out\)"),
        ("api-key", "'api_key' is set by hpcbench"),
        ("enable_http2", "'enable_http2' is set by hpcbench"),
    ],
)
def test_options_that_are_not_the_users_are_refused(option: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        SglangEngine().launch_command(spec(options={option: "x"}))


def test_options_are_read_from_the_source(package: Path) -> None:
    assert read_options(package / "sglang") == (OPTIONS, {"mm_enable_dp_encoder"})


def test_a_source_that_looks_otherwise_is_reported(package: Path) -> None:
    (package / "sglang/srt/arg_groups/fields/model.py").write_text("class Model: pass")
    with pytest.raises(ValueError, match="defines no option context_length, dtype"):
        read_options(package / "sglang")


def test_where_the_weights_are_options_are_compared_with_the_installed_version(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(package))
    engine = SglangEngine()
    wrong = {"disable_radix_cach": True}
    engine.launch_command(spec(options=wrong))  # a login node cannot know
    with pytest.raises(UserError, match=r"option of SGLang .* 'disable_radix_cach' \(did you mean"):
        engine.launch_command(spec(model_path=str(package), options=wrong))
    line = words(
        engine.launch_command(
            spec(model_path=str(package), options={"mm_enable_dp_encoder": False})
        )
    )
    assert "--no-mm-enable-dp-encoder" in line
    assert line[line.index("--allowed-media-domains") + 1].endswith(".invalid")


def test_without_its_source_nothing_is_judged(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "sglang/srt/server_args.py").unlink()
    monkeypatch.syspath_prepend(str(package))
    assert sglang.installed() == Installed("?", frozenset(), frozenset())
    command = SglangEngine().launch_command(spec(model_path=str(package), options={"new": 1}))
    assert words(command)[-2:] == ["--new", "1"]


@pytest.fixture
def served(package: Path) -> Iterator[Path]:
    """The stand-in as the wrapper would start it; its socket."""
    with tempfile.TemporaryDirectory(prefix="hs") as folder:  # short: sockets hold 107 bytes
        socket = Path(folder) / "s"
        command = SglangEngine().launch_command(
            spec(socket=str(socket), chat_template="{{ messages }}")
        )
        process = subprocess.Popen(
            command.argv,
            env={
                **os.environ,
                **command.env,
                "PYTHONPATH": f"{package}:{ROOT}",
                "SGLANG_GRPC_PORT": "5",
                "HTTP_PROXY": "http://127.0.0.1:9",  # no server is there
            },
        )
        try:
            yield socket
        finally:
            process.terminate()
            process.wait(20)


async def get(socket: Path, path: str) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
        session.get(f"http://engine{path}") as answer,
    ):
        return answer.status, await answer.json()


async def until_healthy(socket: Path) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            status, answer = await get(socket, "/health")
            if status == 200:
                return answer
        except (OSError, aiohttp.ClientError):
            pass
        await asyncio.sleep(0.05)
    raise AssertionError("it does not come up")


def listening() -> set[int]:
    """TCP ports of this machine that are listened on."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return {int(field[1].partition(":")[2], 16) for field in fields if field[3] == "0A"}


@pytest.mark.long
def test_it_serves_and_warms_up_on_our_socket_and_on_no_port(served: Path) -> None:
    answer = asyncio.run(until_healthy(served))
    assert answer["warm"], "healthy before its own request had reached it"
    assert stat.S_IMODE(served.stat().st_mode) == 0o600
    argv = answer["argv"]
    assert argv[-4:-1] == ["--host", "127.0.0.1", "--port"]
    assert int(argv[-1]) not in listening()
    template = Path(argv[argv.index("--chat-template") + 1])
    assert (template.suffix, template.read_text()) == (".jinja", "{{ messages }}")


@pytest.mark.long
async def test_its_errors_get_openais_form_and_others_stay_as_they_are(served: Path) -> None:
    await until_healthy(served)
    refused, unknown = await get(served, "/v1/chat/completions"), await get(served, "/nowhere")
    assert refused == (400, {"error": {"message": "No.", "type": "Bad", "code": 400}})
    assert unknown == (404, {"detail": "Not Found"})


@pytest.mark.long
def test_naming_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, json; from hpcbench import plugins\n"
        "for name in ('sglang', 'deepseek_ocr', 'deepseek_ocr_sglang'):\n"
        "    plugins.load('engines', name)\n"
        "heavy = {'torch', 'sglang', 'vllm', 'uvicorn', 'urllib3', 'aiohttp'}\n"
        "print(json.dumps(sorted(heavy & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
