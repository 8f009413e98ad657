"""The verb `serve`: one model behind the wrapper, for any OpenAI client; no plan, no Slurm."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import os
import re
import secrets as random
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench import environments, secret
from hpcbench.cli.output import say, transfer_bar
from hpcbench.cli.parse import words_of
from hpcbench.errors import EnvironmentFault, RunFailed, UserError
from hpcbench.experiment.layout import home
from hpcbench.inference.client import Client, EngineGone, LoadFailed, load_body
from hpcbench.installed import install_hint, pip, requirements
from hpcbench.plugins import Environment
from hpcbench.registry.auto_stream_interval import with_number
from hpcbench.registry.catalog import user_site
from hpcbench.registry.resolve import load_model
from hpcbench.schema.model import Model
from hpcbench.schema.shared_types import seconds
from hpcbench.schema.site import Site
from hpcbench.submit.local_data import open_cache
from hpcbench.wrapper.descriptors import allow_many
from hpcbench.wrapper.served_models import Announcement

if TYPE_CHECKING:
    from hpcbench.submit.serve_job import ServeJob


@dataclass(frozen=True, slots=True)
class _Served:
    """A model that this process serves."""

    arguments: argparse.Namespace
    site: Site
    model: Model
    environment: Environment
    folder: Path
    """Private folder of the wrapper's files."""
    key: str
    """Which each request needs."""

    @property
    def log(self) -> Path:
        """Output of the wrapper and the engine."""
        return self.folder / "engine.log"


DEFAULT_LIMIT = "01:00:00"
"""Time limit of a job."""

WEB_SOCKET = "websockets>=13"
"""Requirement of the wrapper for WebSocket."""

_LIMIT = r"(\d+-)?\d{1,2}:\d{2}:\d{2}"

LOOK_SECONDS = 0.5
"""Seconds between two looks at a running engine's state."""


def serve(arguments: argparse.Namespace) -> int:
    """`hpcbench serve MODEL`: runs until Ctrl-C or its time limit; `--job`: until its job ends."""
    for option, port in (("--port", arguments.port), ("--grpc-port", arguments.grpc_port)):
        if port is not None and not 0 <= port < 2**16:
            remedy = "give 1 to 65535, or 0 for a free one"
            raise UserError(f"{option} {port} is not a port", remedy=remedy)
    _check_grpc(arguments)
    if arguments.time_limit is not None and not re.fullmatch(_LIMIT, arguments.time_limit):
        remedy = "write it as Slurm does, [D-]HH:MM:SS, e.g. 01:00:00"
        raise UserError(f"--time-limit {arguments.time_limit} is not a time", remedy=remedy)
    site = user_site() or Site(name="default")
    if arguments.stop:
        return _stop(arguments, site)
    if arguments.job:
        return _start(arguments, site)
    if arguments.as_job is None:
        return _serve(arguments, site)
    from hpcbench.submit.serve_job import ending

    with ending(home(site), arguments.as_job):
        if site.executor == "slurm" and arguments.port is None:
            arguments.port, arguments.host = 0, _host_for_others()
        return _serve(arguments, site)


def _check_grpc(arguments: argparse.Namespace) -> None:
    """Refuse what the wrapper would refuse after the weights were fetched."""
    from hpcbench.tracking.server_requests import is_loopback

    files = {"--tls-certificate": arguments.tls_certificate, "--tls-key": arguments.tls_key}
    given = {option: file for option, file in files.items() if file is not None}
    if len(given) == 1:
        (option,) = given
        raise UserError(f"{option} alone is no TLS", remedy=f"give {' and '.join(files)}")
    if given and arguments.grpc_port is None:
        raise UserError("TLS is of gRPC alone", remedy="add --grpc-port, or leave the files out")
    for option, file in given.items():
        if not file.is_file():
            raise UserError(f"{option} {file}: no such file")
    if arguments.grpc_port is not None and not given and not is_loopback(arguments.host):
        remedy = f"give {' and '.join(files)}, or leave --host out"
        raise UserError(f"gRPC at {arguments.host} would not be encrypted", remedy=remedy)


def _stop(arguments: argparse.Namespace, site: Site) -> int:
    """`--stop`: end the jobs of this model or id."""
    from hpcbench.submit import serve_job

    root = home(site)
    for job in serve_job.find(root, arguments.model):
        serve_job.stop(root, job)
        say(f"ended {job.id} ({job.model})")
    return 0


def _start(arguments: argparse.Namespace, site: Site) -> int:
    """`--job`: fetch what the model needs, then let a job serve it."""
    from hpcbench.submit import serve_job

    root = home(site)
    if (
        site.executor == "slurm" and arguments.port is None
        and arguments.grpc_port is not None and arguments.tls_certificate is None
    ):  # fmt: skip
        what = "a job of Slurm serves other hosts, to which gRPC would not be encrypted"
        raise UserError(what, remedy="add --tls-certificate and --tls-key")
    model, _ = _prepared(arguments, site)
    if (file := Path(arguments.model)).is_file():
        arguments.model = str(file.absolute())
    arguments.registry = [one.absolute() for one in arguments.registry]
    for option in ("tls_certificate", "tls_key", "media_root"):
        if (file := getattr(arguments, option)) is not None:
            setattr(arguments, option, file.absolute())
    words = words_of(arguments, leave=("job", "time_limit"))
    job = serve_job.start(root, site, model, words, arguments.time_limit or DEFAULT_LIMIT)
    print(_how_to_end(job, serve_job.folder_of(root, job.id)), flush=True)
    return 0


def _how_to_end(job: ServeJob, folder: Path) -> str:
    what = f"job {job.job} of Slurm" if job.job else "a process of this host"
    return (
        f"{what} serves {job.model} for {job.time_limit / 60:g} min; its id: {job.id}; log: {folder}\n"
        f"end it: hpcbench serve {job.id} --stop"
    )


def _prepared(arguments: argparse.Namespace, site: Site) -> tuple[Model, Environment]:
    """The model with its weights on this machine, and the environment of its engine."""
    found = with_number(load_model(arguments.model, arguments.registry), in_flight=1)
    if found.nodes > 1:
        what = f"`serve` runs an engine on one node, but model '{found.name}' needs {found.nodes}"
        raise UserError(what, remedy="ask it with a plan: `hpcbench submit`")
    env = {**secret.variables(found.engine_options), **secret.reveal_all(dict(found.env))}
    found = found.model_copy(update={"env": env})
    with transfer_bar() as progress:
        model = open_cache(site, progress).local(found)
    packages = _packages(arguments, here=model.image is None)
    environment = environments.prepare(
        model.image, home(site) / "cache", site.container, packages, say
    )
    return model, environment


def _packages(arguments: argparse.Namespace, *, here: bool) -> tuple[str, ...]:
    """Requirements of the wrapper beyond HTTP's, to put beside an image's engine; none for this Python.

    Raises:
        EnvironmentFault: the wrapper runs in this Python, which lacks them.
    """
    wanted: list[str] = []
    if arguments.grpc_port is not None:
        wanted += requirements("grpc")
        if here and not all(map(find_spec, ("grpc", "grpc_reflection"))):
            raise EnvironmentFault("this Python lacks gRPC", remedy=install_hint("grpc"))
    if arguments.web_socket:
        wanted.append(WEB_SOCKET)
        if here and find_spec("websockets") is None:
            remedy = f"{pip('install')} {shlex.quote(WEB_SOCKET)}"
            raise EnvironmentFault("this Python lacks websockets", remedy=remedy)
    return () if here else tuple(wanted)


def _serve(arguments: argparse.Namespace, site: Site) -> int:
    """Serve in this process, until a signal or the time limit."""
    allow_many()
    until = time.time() + seconds(arguments.time_limit) if arguments.time_limit else None
    model, environment = _prepared(arguments, site)
    near = os.environ.get("SLURM_TMPDIR") or "/tmp"
    with tempfile.TemporaryDirectory(prefix="hpcbench-", dir=near) as name:
        key = random.token_urlsafe(32)
        announcement = Announcement(home(site), key, arguments.as_job)
        it = _Served(arguments, site, model, environment, Path(name), key)
        try:
            with _running(it) as process:
                asyncio.run(_until_end(it, process, announcement, until))
        finally:
            announcement.end()
    say("ended")
    return 0


@contextlib.contextmanager
def _running(it: _Served) -> Iterator[subprocess.Popen[bytes]]:
    """A wrapper as a child process, with its files in a private folder."""
    arguments, folder = it.arguments, it.folder
    for name, text in (("key", it.key), ("header", f"X-API-Key: {it.key}")):
        (folder / name).touch(0o600)
        (folder / name).write_text(f"{text}\n")
    it.log.touch()
    argv = ["python", "-m", "hpcbench.wrapper", "--socket", str(folder / "socket")]
    argv += ["--engine-dir", str(folder), "--log", str(it.log)]
    if arguments.port is not None:
        argv += ["--port", str(arguments.port)]
    if arguments.grpc_port is not None:
        argv += ["--grpc-socket", str(folder / "grpc"), "--grpc-port", str(arguments.grpc_port)]
    argv += ["--host", arguments.host]
    tls = [one.resolve() for one in (arguments.tls_certificate, arguments.tls_key) if one]
    for option, file in zip(("--tls-certificate", "--tls-key"), tls, strict=False):
        argv += [option, str(file)]
    if arguments.web_socket:
        argv.append("--web-socket")
    if (limit := it.model.request_bytes) is not None:
        argv += ["--request-limit", str(limit)]
    media = arguments.media_root.resolve() if arguments.media_root else None
    seen = [str(one) for one in (it.model.source, media, *tls) if one]
    binds = [str(folder), *(f"{one}:{one}:ro" for one in seen)]
    command = environments.wrap(
        it.environment, argv, binds, {"HF_HUB_OFFLINE": "1"}, it.model.gpus, it.site.container
    )
    with it.log.open("ab") as output:
        process = subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdin=subprocess.PIPE,  # its end, for any reason, ends wrapper and engine
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C reaches only this process
        )
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # it has ended: its wait reports that
            process.stdin.write(f"{it.key}\n".encode())
            process.stdin.flush()
        yield process
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _until_end(
    it: _Served, process: subprocess.Popen[bytes], announcement: Announcement, until: float | None
) -> None:
    """Load the model, print how to send requests, reload after a crash; returns when it is to end.

    Args:
        until: end of its time limit, seconds since the epoch; None: it has none. A signal ends it, too.
    """
    stop = asyncio.Event()
    signals = [signal.SIGINT, signal.SIGTERM]
    # If SIGHUP is ignored, nohup wants this process to outlive the terminal.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Client(str(it.folder / "socket"), it.key, it.model.name) as client:
        working = asyncio.ensure_future(_keep(it, client, process, announcement, until))
        stopping = asyncio.ensure_future(stop.wait())
        left = None if until is None else max(0.0, until - time.time())
        done, _ = await asyncio.wait(
            {working, stopping}, timeout=left, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            say("its time limit has ended")
        stopping.cancel()
        if working.done():
            working.result()
        working.cancel()


async def _keep(
    it: _Served,
    client: Client,
    process: subprocess.Popen[bytes],
    announcement: Announcement,
    until: float | None,
) -> None:
    """Keep the engine running: restart it after each crash, until it has crashed too often."""
    await _up(client, process, it.log, it.environment.start_seconds)
    model, root, cpus = it.model, it.arguments.media_root, len(os.sched_getaffinity(0))
    body = load_body(model, model.env, media_root=str(root.resolve()) if root else None, cpus=cpus)
    deaths = 0
    while True:
        say(f"loading {model.name} with {model.engine}; log: {it.log}")
        try:
            ready = await client.load(body, model.load_timeout + 30, on_progress=_teller())
        except LoadFailed as failed:
            said = _explained(failed.message, failed.tail, failed.cause)
            fault = EnvironmentFault if failed.cause == "network" else RunFailed
            raise fault(said) from None
        say(f"ready after {ready['seconds']:g} s")
        if deaths == 0:
            address, socket_file = _address(it), str(it.folder / "socket")
            announcement.made(
                until, model=model.name, engine=model.engine, socket=socket_file, address=address
            )
            print(_other_ways(it, address) + _how_to_ask(it, address), flush=True)
        while (status := await client.status())["state"] == "ready":
            announcement.beat()
            await asyncio.sleep(LOOK_SECONDS)
        error = status["error"] or {}
        deaths += 1
        if deaths > it.arguments.restarts:
            said = f"the engine died {deaths} times: {status['reason']}"
            raise RunFailed(_explained(said, error.get("tail", ()), error.get("cause")))
        say(f"{status['reason']}; restarting the engine ({deaths} of {it.arguments.restarts})")


async def _up(
    client: Client, process: subprocess.Popen[bytes], log: Path, start_seconds: float
) -> None:
    """Wait until the wrapper answers."""
    deadline = time.monotonic() + start_seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").splitlines()
            said = lines[-1] if lines else "its log is empty"
            raise EnvironmentFault(f"the wrapper ended with exit code {process.returncode}: {said}")
        try:
            await client.status()
            return
        except EngineGone:
            await asyncio.sleep(0.1)
    raise EnvironmentFault(f"the wrapper did not answer within {start_seconds:.0f} s")


def _teller() -> Callable[[str], None]:
    """A printer of the engine's messages, at most one line every two seconds."""
    last = 0.0

    def tell(line: str) -> None:
        nonlocal last
        if time.monotonic() - last > 2:
            last = time.monotonic()
            say(f"  {line[:150]}")

    return tell


def _host_for_others() -> str:
    """Address of this node that other nodes reach: its name's, or all of them if its name is local."""
    with contextlib.suppress(OSError, ValueError):
        found = socket.getaddrinfo(socket.gethostname(), None)[0][4][0]
        if not ipaddress.ip_address(found).is_loopback:
            return str(found)
    return "0.0.0.0"  # noqa: S104 - every request needs the key


def _address(it: _Served) -> str:
    """Its address for other programs; empty: it has no port."""
    if (port := it.arguments.port) is None:
        return ""
    if port == 0:  # the wrapper's first lines name the one that it took
        port = int(re.findall(r"serving on http://\S*:(\d+)$", it.log.read_text(), re.MULTILINE)[0])
    return f"http://{_shown(it.arguments.host)}:{port}"


def _shown(host: str) -> str:
    """A host of this machine as others write it before a port."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104
    return f"[{name}]" if ":" in name else name


def _other_ways(it: _Served, address: str) -> str:
    """A line for each way to send requests beside HTTP."""
    lines = ""
    if it.arguments.grpc_port is not None:
        said = it.log.read_text()
        ((tls, port),) = re.findall(r"serving gRPC( with TLS)? on \S*:(\d+)$", said, re.MULTILINE)
        host = _shown(it.arguments.host)
        lines += f"gRPC: unix:{it.folder / 'grpc'}, and{tls} {host}:{port}\n"
    if it.arguments.web_socket:
        where = f"{address.replace('http://', 'ws://')}/v1/stream"
        lines += f"WebSocket: {where if address else '/v1/stream of the socket'}\n"
    return lines


def _how_to_ask(it: _Served, address: str) -> str:
    """Address and an example call; curl reads the key from a file, so that no argument contains it."""
    folder, name = it.folder, it.model.name
    where, over = "localhost", f" --unix-socket {folder / 'socket'}"
    sdk = ""
    if address:
        where, over = address.removeprefix("http://"), ""
        key = f"open('{folder / 'key'}').read().strip()"
        sdk = f"OpenAI's SDK: OpenAI(base_url='http://{where}/v1', api_key={key})\n"
    body = f'{{"model": "{name}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return (
        f"socket: {folder / 'socket'}\nkey: {folder / 'key'}\n{sdk}"
        f"curl -sS -H @{folder / 'header'}{over} http://{where}/v1/chat/completions "
        f"-H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )


def _explained(message: str, tail: Any, cause: str | None) -> str:
    """A failure with the log's last lines, as the folder will be removed."""
    lines = [f"    {line}" for line in list(tail)[-10:]]
    return "\n".join([message + (f" (cause: {cause})" if cause else ""), *lines])
