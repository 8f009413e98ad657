"""The verb `serve`: one model behind the wrapper, for any OpenAI client; no plan, no Slurm."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets as random
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpcbench import environments, secret
from hpcbench.cli.output import say, transfer_bar
from hpcbench.errors import EnvironmentFault, RunFailed, UserError
from hpcbench.experiment.layout import home
from hpcbench.inference import Client, EngineGone, LoadFailed, load_body
from hpcbench.plugins import Environment
from hpcbench.registry.catalog import user_site
from hpcbench.registry.resolve import load_model
from hpcbench.schema.definitions import Model, Site
from hpcbench.submit.local_data import open_cache
from hpcbench.wrapper.descriptors import allow_many
from hpcbench.wrapper.served_models import Announcement

LOOK_SECONDS = 0.5
"""Seconds between two looks at a running engine's state."""


def serve(arguments: argparse.Namespace) -> int:
    """`hpcbench serve MODEL`: runs until Ctrl-C."""
    allow_many()
    if arguments.port is not None and not 0 < arguments.port < 2**16:
        raise UserError(f"--port {arguments.port} is not a port", remedy="give 1 to 65535")
    site = user_site() or Site(name="default")
    found = load_model(arguments.model, arguments.registry)
    env = {**secret.variables(found.engine_options), **secret.reveal_all(dict(found.env))}
    found = found.model_copy(update={"env": env})
    with transfer_bar() as progress:
        model = open_cache(site, progress).local(found)
    environment = environments.prepare(model.image, home(site) / "cache", site.container, [], say)
    near = os.environ.get("SLURM_TMPDIR") or "/tmp"
    with tempfile.TemporaryDirectory(prefix="hpcbench-", dir=near) as name:
        folder, key = Path(name), random.token_urlsafe(32)
        announcement = Announcement(home(site), key)
        try:
            with _running(model, site, environment, folder, key, arguments) as process:
                served = _served(model, environment, folder, key, process, arguments, announcement)
                asyncio.run(served)
        finally:
            announcement.end()
    say("ended")
    return 0


@contextlib.contextmanager
def _running(
    model: Model,
    site: Site,
    environment: Environment,
    folder: Path,
    key: str,
    arguments: argparse.Namespace,
) -> Iterator[subprocess.Popen[bytes]]:
    """A wrapper as a child process, with its files in a private folder."""
    log = folder / "engine.log"
    for name, text in (("key", key), ("header", f"X-API-Key: {key}")):
        (folder / name).touch(0o600)
        (folder / name).write_text(f"{text}\n")
    log.touch()
    argv = ["python", "-m", "hpcbench.wrapper", "--socket", str(folder / "socket")]
    argv += ["--engine-dir", str(folder), "--log", str(log)]
    if arguments.port is not None:
        argv += ["--port", str(arguments.port), "--host", arguments.host]
    folders = (model.source, arguments.media_root.resolve() if arguments.media_root else None)
    seen = [str(one) for one in folders if one]
    command = environments.wrap(
        environment,
        argv,
        [str(folder), *(f"{one}:{one}:ro" for one in seen)],
        {"HF_HUB_OFFLINE": "1"},
        model.gpus,
        site.container,
    )
    with log.open("ab") as output:
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
            process.stdin.write(f"{key}\n".encode())
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


async def _served(
    model: Model,
    environment: Environment,
    folder: Path,
    key: str,
    process: subprocess.Popen[bytes],
    arguments: argparse.Namespace,
    announcement: Announcement,
) -> None:
    """Load the model, print how to send requests, reload after a crash; returns at a signal to end."""
    stop = asyncio.Event()
    signals = [signal.SIGINT, signal.SIGTERM]
    # If SIGHUP is ignored, nohup wants this process to outlive the terminal.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Client(str(folder / "socket"), key, model.name) as client:
        working = asyncio.ensure_future(
            _keep(client, model, environment, process, folder, arguments, announcement)
        )
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            working.result()
        working.cancel()


async def _keep(
    client: Client,
    model: Model,
    environment: Environment,
    process: subprocess.Popen[bytes],
    folder: Path,
    arguments: argparse.Namespace,
    announcement: Announcement,
) -> None:
    """Keep the engine running: restart it after each crash, until it has crashed too often."""
    await _up(client, process, folder / "engine.log", environment.start_seconds)
    root = arguments.media_root
    body = load_body(
        model,
        model.env,
        media_root=str(root.resolve()) if root else None,
        cpus=len(os.sched_getaffinity(0)),
    )
    deaths = 0
    while True:
        say(f"loading {model.name} with {model.engine}; log: {folder / 'engine.log'}")
        try:
            ready = await client.load(body, model.load_timeout + 30, on_progress=_teller())
        except LoadFailed as failed:
            said = _explained(failed.message, failed.tail, failed.cause)
            fault = EnvironmentFault if failed.cause == "network" else RunFailed
            raise fault(said) from None
        say(f"ready after {ready['seconds']:g} s")
        if deaths == 0:
            announcement.made(
                model=model.name, engine=model.engine, socket=str(folder / "socket"),
                address=_address(arguments),
            )  # fmt: skip
            print(_how_to_ask(folder, model.name, arguments), flush=True)
        while (status := await client.status())["state"] == "ready":
            announcement.beat()
            await asyncio.sleep(LOOK_SECONDS)
        error = status["error"] or {}
        deaths += 1
        if deaths > arguments.restarts:
            said = f"the engine died {deaths} times: {status['reason']}"
            raise RunFailed(_explained(said, error.get("tail", ()), error.get("cause")))
        say(f"{status['reason']}; restarting the engine ({deaths} of {arguments.restarts})")


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


def _address(arguments: argparse.Namespace) -> str:
    """Its address for other programs; empty: it has no port."""
    if arguments.port is None:
        return ""
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    return f"http://{host}:{arguments.port}"


def _how_to_ask(folder: Path, name: str, arguments: argparse.Namespace) -> str:
    """Address and an example call; curl reads the key from a file, so that no argument contains it."""
    where, over = "localhost", f" --unix-socket {folder / 'socket'}"
    sdk = ""
    if arguments.port is not None:
        where, over = _address(arguments).removeprefix("http://"), ""
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
