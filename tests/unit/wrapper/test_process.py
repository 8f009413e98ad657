"""The life of an engine: it starts or says why not, and nothing of it is ever left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.inference import Client, EngineGone, LoadFailed
from hpcbench.schema.records import Message, Request
from tests.unit.wrapper.running import KEY, Wrapper, gone

Start = Callable[[], Wrapper]


def ask(client: Client) -> Any:
    return client.ask(Request("s1", (Message("user", "?"),), {"max_tokens": 5}, 30))


def fails(wrapper: Wrapper, timeout: float = 30, **body: Any) -> LoadFailed:
    async def load() -> LoadFailed:
        async with wrapper.client() as client:
            with pytest.raises(LoadFailed) as caught:
                await client.load({**wrapper.body(), **body}, timeout)
            status = await client.status()
            assert status["state"] == "failed"
            assert status["last_error"] == caught.value.message
            return caught.value

    return asyncio.run(load())


def test_loads_answers_unloads_and_loads_again(start: Start) -> None:
    wrapper = start()

    async def journey() -> None:
        async with wrapper.client() as client:
            empty = await client.status()
            assert (empty["state"], empty["pid"], empty["in_flight"]) == ("empty", None, 0)
            for _ in range(2):
                loaded = await client.load(wrapper.body(), 30)
                assert (loaded["state"], loaded["engine"]) == ("ready", "scripted")
                assert loaded["versions"]["aiohttp"]
                status = await client.status()
                assert (status["state"], status["pid"]) == ("ready", loaded["pid"])
                assert status["model_name"] == "scripted"
                with pytest.raises(LoadFailed, match="a model is here already") as busy:
                    await client.load(wrapper.body(), 30)
                assert busy.value.kind == "busy"
                assert (await ask(client)).outcome == "ok"
                await client.unload()
                assert gone([loaded["pid"]], 0.1)
                with pytest.raises(EngineGone, match="no model is ready"):
                    await ask(client)
            await client.unload()
            final = await client.status()
            assert (final["state"], final["served"]) == ("empty", 2)

    asyncio.run(journey())
    assert list((wrapper.folder / "e").iterdir()) == []


def test_a_failed_load_names_its_cause(start: Start) -> None:
    wrapper = start()
    cause = "OSError: Error no file named model.safetensors found in directory /weights"
    error = fails(wrapper, options={"start": "exit"})
    assert error.message == f"engine ended with exit code 1 while loading: {cause}"
    assert (error.kind, error.log) == ("engine_exited", str(wrapper.log))
    assert error.tail[-1] == cause
    silent = fails(wrapper, options={"start": "silent"})
    assert silent.message == "engine ended with exit code 4 while loading; it wrote nothing"
    late = fails(wrapper, timeout=1.5, options={"start": "hang"})
    assert late.kind == "timeout"
    assert late.message == "engine was not ready after 1.5 s"
    unknown = fails(wrapper, engine="scriptd")
    assert unknown.kind == "bad_engine"
    assert unknown.message == "unknown engines plugin 'scriptd' (did you mean 'scripted'?)"
    assert "no_such_module_anywhere" in fails(wrapper, engine="broken").message
    with pytest.raises(LoadFailed, match="gpu: Extra inputs are not permitted"):
        asyncio.run(load_with(wrapper, gpu=1))


async def load_with(wrapper: Wrapper, **body: Any) -> dict[str, Any]:
    async with wrapper.client() as client:
        return await client.load({**wrapper.body(), **body}, 30)


def test_an_engine_that_breaks_off_but_lives_is_asked_again(start: Start) -> None:
    wrapper = start()

    async def journey() -> None:
        async with wrapper.client() as client:
            await client.load(wrapper.body(plan=["drop", "cut", "ok"]), 30)
            response = await ask(client)
            assert (response.outcome, response.tries) == ("ok", 3)

    asyncio.run(journey())


def test_unload_ends_a_load_that_hangs(start: Start) -> None:
    wrapper = start()

    async def both() -> None:
        async with wrapper.client() as client:
            loading = asyncio.ensure_future(client.load(wrapper.body(start="hang"), 60))
            while (await client.status())["pid"] is None:
                await asyncio.sleep(0.02)
            await client.unload()
            with pytest.raises(LoadFailed, match="unloaded while loading"):
                await loading
            assert (await client.status())["state"] == "empty"

    asyncio.run(both())


def test_an_engine_that_dies_is_seen_and_can_be_loaded_again(start: Start) -> None:
    wrapper = start()

    async def journey() -> None:
        async with wrapper.client() as client:
            await client.load(wrapper.body(plan=["ok", "die"]), 30)
            assert (await ask(client)).outcome == "ok"
            with pytest.raises(EngineGone, match="engine ended with exit code 3 while serving"):
                await ask(client)
            status = await client.status()
            assert (status["state"], status["pid"], status["in_flight"]) == ("failed", None, 0)
            await client.load(wrapper.body(plan=["die_early"]), 30)
            with pytest.raises(EngineGone, match="exit code 3"):
                await ask(client)
            loaded = await client.load(wrapper.body(), 30)
            os.kill(loaded["pid"], signal.SIGKILL)
            with pytest.raises(EngineGone, match=r"SIGKILL \(out of memory\?\)"):
                await ask(client)

    asyncio.run(journey())


@pytest.mark.parametrize("options", [{}, {"ignore_term": True}, {"children": True}])
def test_the_engine_ends_when_standard_input_does(start: Start, options: dict[str, Any]) -> None:
    wrapper = start()
    pids = wrapper.pids_of(**options)
    assert wrapper.process.stdin is not None
    wrapper.process.stdin.close()
    assert wrapper.process.wait(20) == 0
    assert gone(pids, 0.1)
    assert not wrapper.socket.exists()


def test_sigterm_ends_an_open_stream_too(start: Start) -> None:
    wrapper = start()
    pids = wrapper.pids_of(gap=30, children=True)

    async def interrupted() -> None:
        async with wrapper.client() as client:
            asking = asyncio.ensure_future(ask(client))
            while not (await client.status())["in_flight"]:
                await asyncio.sleep(0.02)
            wrapper.process.send_signal(signal.SIGTERM)
            with pytest.raises(EngineGone):
                await asking

    asyncio.run(interrupted())
    assert wrapper.process.wait(20) == 0
    assert gone(pids, 0.1)


def test_standard_input_may_end_while_the_engine_loads(start: Start) -> None:
    wrapper = start()
    with pytest.raises((LoadFailed, EngineGone)):
        asyncio.run(close_while_loading(wrapper))
    assert wrapper.process.wait(20) == 0
    assert gone([int(pid) for pid in (wrapper.folder / "pids").read_text().split()], 0.1)


async def close_while_loading(wrapper: Wrapper) -> None:
    async with wrapper.client() as client:
        pids = wrapper.folder / "pids"
        body = wrapper.body(start="hang", children=True, pids=str(pids))
        loading = asyncio.ensure_future(client.load(body, 60))
        while not pids.exists() or not pids.read_text():
            await asyncio.sleep(0.02)
        assert wrapper.process.stdin is not None
        wrapper.process.stdin.close()
        await loading


def test_a_wrapper_that_is_killed_takes_its_engine_along(start: Start) -> None:
    wrapper = start()
    pids = wrapper.pids_of(children=True, ignore_term=True)
    wrapper.process.kill()
    wrapper.process.wait()
    assert gone(pids)


def test_secrets_stand_in_no_log_and_no_argument_list(start: Start) -> None:
    wrapper = start()
    token = "hf_secretsecretsecret"
    env = {"HF_TOKEN": token, "PLAIN_SETTING": "enabled"}
    error = fails(wrapper, env=env, options={"say": "HF_TOKEN", "start": "exit"})
    assert token not in "".join(error.tail)
    assert "HF_TOKEN is ***" in error.tail
    with pytest.raises(LoadFailed) as wrong:
        asyncio.run(load_with(wrapper, env=env, timeout=-1, gpus=token))
    assert token not in wrong.value.message
    pids = wrapper.pids_of()
    for pid in (*pids, wrapper.process.pid):
        for name in ("cmdline", "environ"):
            content = Path(f"/proc/{pid}/{name}").read_bytes()
            assert KEY.encode() not in content
    written = wrapper.log.read_text() + wrapper.errors.read_text()
    assert KEY not in written


def test_nobody_else_may_open_its_sockets_and_no_port_is_open(start: Start) -> None:
    wrapper = start()
    [pid] = wrapper.pids_of()
    assert stat.S_IMODE(wrapper.socket.stat().st_mode) == 0o600
    [private] = (wrapper.folder / "e").iterdir()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    listening = {line[9] for line in table if line[3] == "0A"}
    for owner in (pid, wrapper.process.pid):
        links = [str(link.readlink()) for link in Path(f"/proc/{owner}/fd").iterdir()]
        assert not listening & {link[8:-1] for link in links if link.startswith("socket:[")}
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(wrapper.socket))
