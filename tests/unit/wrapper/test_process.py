"""The life of an engine: it starts or says why not, and nothing of it is ever left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hpcbench.wrapper import engine_process, process_tree
from hpcbench.wrapper.app import ControlPlane
from hpcbench.wrapper.supervisor import Load, Supervisor
from tests.campaign import first
from tests.unit.wrapper.running import KEY, ROOT, Control, Wrapper, gone
from tests.unit.wrapper.wayward import FIELDS

pytestmark = pytest.mark.long

Start = Callable[..., Wrapper]
MISSING = "OSError: Error no file named model.safetensors found in directory /weights"


def on(wrapper: Wrapper, journey: Callable[[Control], Any]) -> Any:
    async def run() -> Any:
        async with wrapper.control() as control:
            return await asyncio.wait_for(journey(control), 60)

    return asyncio.run(run())


def fails(wrapper: Wrapper, **body: Any) -> dict[str, Any]:
    """The error of a load that fails."""
    error = on(wrapper, lambda control: control.fails({**wrapper.body(), **body}))["error"]
    assert isinstance(error, dict)
    return error


async def test_loads_answers_unloads_and_loads_again(wrapper: Wrapper) -> None:
    async with wrapper.control() as control:
        empty = await control.status()
        assert (empty["state"], empty["pid"], empty["in_flight"]) == ("empty", None, 0)
        for _ in range(2):
            loaded = await control.loaded(wrapper.body())
            assert (loaded["engine"], loaded["model_name"]) == ("scripted", "scripted")
            assert loaded["versions"]["aiohttp"]
            assert 0 < loaded["load_seconds"] <= loaded["uptime"]
            assert loaded["progress"] is loaded["error"] is loaded["reason"] is None
            code, busy = await control.ask("POST", "/v1/model/load", wrapper.body())
            assert (code, busy["error"]["code"]) == (409, "busy")
            assert (await control.chat())[0] == 200
            assert await control.unload() == (200, {"state": "empty"})
            assert gone([loaded["pid"]], 0.1)
            code, none = await control.chat()
            assert (code, none["error"]["code"]) == (503, "no_model")
            assert none["error"]["message"] == "no model is ready (empty)"
        assert await control.unload() == (200, {"state": "empty"})
        final = await control.status()
        assert (final["state"], final["model_name"]) == ("empty", None)
        assert final["served"] == empty["served"] + 2
    assert list((wrapper.folder / "e").iterdir()) == []


def test_a_failed_load_names_its_cause_and_a_remedy(wrapper: Wrapper) -> None:
    error = fails(wrapper, options={"start": "exit"})
    assert error["message"] == f"engine ended with exit code 1 while loading: {MISSING}"
    assert (error["kind"], error["cause"]) == ("engine_exited", "missing_weights")
    assert "fetch the weights" in error["remedy"]
    assert (error["exit_code"], error["signal"]) == (1, None)
    assert (error["log"], error["tail"][-1]) == (str(wrapper.log), MISSING)
    silent = fails(wrapper, options={"start": "silent"})
    assert silent["message"] == "engine ended with exit code 4 while loading; it wrote nothing"
    assert silent["cause"] == "unknown"
    late = fails(wrapper, timeout=0.7, options={"start": "hang"})
    assert (late["kind"], late["cause"]) == ("timeout", "timeout")
    assert late["message"] == "engine was not ready after 0.7 s"
    unknown = fails(wrapper, engine="scriptd")
    assert (unknown["kind"], unknown["cause"]) == ("bad_engine", "bad_option")
    assert unknown["message"] == "unknown engine plugin 'scriptd' (did you mean 'scripted'?)"
    broken = fails(wrapper, engine="broken")
    assert "no_such_module_anywhere" in broken["message"]
    assert broken["cause"] == "missing_package"


def test_unknown_fields_of_a_load_are_refused(wrapper: Wrapper) -> None:
    body = {**wrapper.body(), "gpu": 1}
    code, answer = on(wrapper, lambda control: control.ask("POST", "/v1/model/load", body))
    assert (code, answer["error"]["code"]) == (422, "bad_request")
    assert answer["error"]["message"] == "gpu: Extra inputs are not permitted"


def test_the_signal_that_ended_it_tells_the_cause(wrapper: Wrapper) -> None:
    for number, name, cause in (
        (signal.SIGKILL, "SIGKILL", "out_of_memory"),
        (signal.SIGILL, "SIGILL", "unsupported_hardware"),
        (signal.SIGSEGV, "SIGSEGV", "unknown"),
    ):
        error = fails(wrapper, engine="wayward", options={"then": f"signal:{number.value}"})
        assert (error["signal"], error["exit_code"]) == (name, None)
        assert error["cause"] == cause


async def test_every_change_of_state_is_reported_as_it_happens(wrapper: Wrapper) -> None:
    async with wrapper.control() as control:
        seen: list[dict[str, Any]] = []

        async def listen() -> None:
            async for status in control.events():
                seen.append(status)
                if status["state"] == "failed":
                    return

        listening = asyncio.ensure_future(listen())
        while not seen:
            await asyncio.sleep(0.01)
        await control.loaded(wrapper.body())
        await control.unload()
        await control.fails(wrapper.body(start="exit"))
        await asyncio.wait_for(listening, 10)
        states = ["empty", "loading", "ready", "draining", "empty", "loading", "failed"]
        # news of progress while it loads, on a slow machine, repeat the state
        assert [state for state, _ in groupby(status["state"] for status in seen)] == states
        assert seen[-1]["error"]["cause"] == "missing_weights"


async def test_progress_is_the_last_line_of_the_log_while_loading(wrapper: Wrapper) -> None:
    bar = ["INFO loading\n", *(f"\rshards: {n}/4" for n in range(1, 4)), "\r"]
    body = {**wrapper.body(**{"print": bar, "then": "serve", "late": True}), "engine": "wayward"}
    async with wrapper.control() as control:
        await control.ask("POST", "/v1/model/load", body)
        reported = []
        while (status := await control.status())["state"] == "loading":
            reported.append(status["progress"])
            await asyncio.sleep(0.005)
        assert "shards: 3/4" in reported
        assert (await control.status())["progress"] is None


async def test_all_that_a_load_says_reaches_the_engine(wrapper: Wrapper) -> None:
    body = {**wrapper.body(), "engine": "wayward", "cpus": 3, "images": 2, "reuse": True}
    async with wrapper.control() as control:
        await control.loaded(body)
        code, answer = await control.chat(model_params={"temperature": 0.1, "top_k": 5})
        assert code == 200
        assert answer["got"] == {**FIELDS, "temperature": 0.1, "top_k": 5, "messages": []}
        reported = answer["told"]
        assert (reported["cpus"], reported["images"], reported["reuse"]) == (3, 2, True)
        assert Path(reported["tmp"]).parent == wrapper.folder / "e"
        part = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
        code, refused = await control.chat(messages=[{"role": "user", "content": [part]}])
        assert (code, refused["error"]["code"]) == (400, "media_not_allowed")


async def test_draining_lets_requests_end_and_takes_no_more(wrapper: Wrapper) -> None:
    async with wrapper.control() as control:
        await control.loaded(wrapper.body(gap=0.15))
        async with streaming(control) as answer:
            unloading = asyncio.ensure_future(control.unload(drain_seconds=30))
            draining = await control.until("draining")
            assert draining["reason"] == "unloading; requests in flight: 1"
            code, refused = await control.chat()
            assert (code, refused["error"]["message"]) == (503, "no model is ready (draining)")
            assert (await answer.read()).endswith(b"data: [DONE]\n\n")
        assert await unloading == (200, {"state": "empty"})


async def test_draining_ends_with_its_time(wrapper: Wrapper) -> None:
    async with wrapper.control() as control:
        loaded = await control.loaded(wrapper.body(gap=600))
        async with streaming(control) as answer:
            assert (await control.unload(drain_seconds=0.1))[0] == 200
            with pytest.raises(aiohttp.ClientError):
                await answer.read()
        assert gone([loaded["pid"]], 0.1)


@contextlib.asynccontextmanager
async def streaming(control: Control) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream whose head has come."""
    body = {"messages": [], "stream": True}
    async with control.session.post("/v1/chat/completions", json=body) as answer:
        yield answer


async def test_unload_ends_a_load_that_hangs(wrapper: Wrapper) -> None:
    async with wrapper.control() as control:
        await control.ask("POST", "/v1/model/load", wrapper.body(start="hang"))
        while (pid := (await control.status())["pid"]) is None:
            await asyncio.sleep(0.02)
        assert await control.unload() == (200, {"state": "empty"})
        assert gone([pid], 0.1)
        assert (await control.status())["error"] is None
        await control.loaded(wrapper.body())


async def test_an_engine_that_dies_is_seen_and_can_be_loaded_again(wrapper: Wrapper) -> None:
    async with wrapper.control() as control:
        await control.loaded(wrapper.body(plan=["ok", "die_early"]))
        assert (await control.chat())[0] == 200
        code, answer = await control.chat()
        assert (code, answer["error"]["code"]) == (503, "no_model")
        assert "engine ended with exit code 3 while serving" in answer["error"]["message"]
        assert answer["error"]["kind"] == "engine_exited"
        status = await control.status()
        assert (status["state"], status["in_flight"]) == ("failed", 0)
        loaded = await control.loaded(wrapper.body(plan=["die"]))
        with pytest.raises(aiohttp.ClientError):
            async with streaming(control) as answer:
                await answer.read()
        await control.until("failed")
        loaded = await control.loaded(wrapper.body())
        os.kill(loaded["pid"], signal.SIGKILL)
        killed = (await control.until("failed"))["error"]
        assert killed["message"].startswith("engine was ended by SIGKILL (out of memory?)")
        assert (killed["cause"], killed["signal"]) == ("out_of_memory", "SIGKILL")


def test_an_engine_that_dies_talking_is_reported_as_dead(start: Start) -> None:
    wrapper = start()  # its log grows large

    async def journey(control: Control) -> None:
        await control.loaded({**wrapper.body(), "engine": "wayward"})
        begin = time.monotonic()
        dying = asyncio.ensure_future(control.chat(answer="death"))
        while time.monotonic() < begin + 0.5:
            await asyncio.sleep(0.05)
        for code, answer in (await control.chat(), await dying):
            assert (code, answer["error"]["code"]) == (503, "no_model")
            assert answer["error"]["kind"] == "engine_exited"
            assert "engine ended with exit code 3 while serving" in answer["error"]["message"]

    on(wrapper, journey)


async def test_an_engine_that_drops_one_request_but_lives_stays(wrapper: Wrapper) -> None:
    async with wrapper.control() as control:
        await control.loaded(wrapper.body(plan=["drop"]))
        code, answer = await control.chat()
        assert (code, answer["error"]["code"]) == (502, "engine_unreachable")
        assert (await control.chat())[0] == 200


async def test_a_stalled_engine_is_ended_with_a_diagnosis(wrapper: Wrapper) -> None:
    options = {"answer": "silence", "print": ["last words\n"]}
    body = {**wrapper.body(**options), "engine": "wayward", "stall_timeout": 0.3}
    async with wrapper.control() as control:
        loaded = await control.loaded(body)
        code, answer = await control.chat()
        assert (code, answer["error"]["cause"]) == (503, "stalled")
        status = await control.until("failed")
        error = status["error"]
        assert (error["kind"], error["cause"]) == ("stalled", "stalled")
        assert error["message"].startswith("the engine has sent nothing for ")
        assert error["message"].endswith("requests in flight: 1")
        assert error["tail"][-1] == "last words"
        await control.unload()
        assert gone([loaded["pid"]], 0.1)


async def test_a_slow_stream_is_no_stall(wrapper: Wrapper) -> None:
    async with wrapper.control() as control:
        await control.loaded({**wrapper.body(gap=0.3), "stall_timeout": 1.5})
        async with streaming(control) as answer:
            assert (await answer.read()).endswith(b"data: [DONE]\n\n")  # eight times 0.3 s
        assert (await control.status())["state"] == "ready"


async def unread(control: Control) -> aiohttp.ClientResponse:
    """An answer without an end that its client does not read."""
    body = {"messages": [], "stream": True, "answer": "flood"}
    return await control.session.post("/v1/chat/completions", json=body)


async def test_a_client_that_does_not_read_is_no_stall_of_the_engine(wrapper: Wrapper) -> None:
    body = {**wrapper.body(), "engine": "wayward", "stall_timeout": 1}
    async with wrapper.control() as control:
        await control.loaded(body)
        answer = await unread(control)
        await asyncio.sleep(3.5)
        assert (await control.status())["state"] == "ready"
        # another request begins a new silence, not one as long as the unread answer has waited
        assert (await control.chat())[0] == 200
        answer.close()


async def test_an_unread_answer_hides_no_stall_of_another_request(wrapper: Wrapper) -> None:
    body = {**wrapper.body(), "engine": "wayward", "stall_timeout": 1}
    async with wrapper.control() as control:
        await control.loaded(body)
        answer = await unread(control)
        await asyncio.sleep(0.5)
        code, refused = await control.chat(answer="silence")
        assert (code, refused["error"]["cause"]) == (503, "stalled")
        assert "; requests in flight: 1" in refused["error"]["message"]
        answer.close()


async def test_an_engine_whose_first_process_is_a_zombie_is_ended(
    wrapper: Wrapper, tmp_path: Path
) -> None:
    now = tmp_path / "now"
    body = {**wrapper.body(then="undead", now=str(now)), "engine": "wayward"}
    async with wrapper.control() as control:
        loaded = await control.loaded(body)
        now.touch()
        error = (await control.until("failed"))["error"]
        assert error["kind"] == "engine_zombie"
        assert "some of its threads still run" in error["message"]
        await control.unload()
        assert not Path(f"/proc/{loaded['pid']}").exists()


@contextlib.asynccontextmanager
async def supervised(folder: Path, body: dict[str, Any]) -> AsyncIterator[Supervisor]:
    """A supervisor in this process, its engine ready."""
    supervisor = Supervisor(folder, folder / "log")
    supervisor.load(Load(**body))
    while supervisor.state == "loading":
        await asyncio.sleep(0.01)
    assert supervisor.route is not None
    try:
        yield supervisor
    finally:
        await supervisor.close()


def test_an_idle_engine_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "look_seconds", 0.02)
    monkeypatch.setattr(Supervisor, "probe_seconds", 0.1)
    body = {"engine": "tests.scripted_engine:ScriptedEngine", "model_path": "/w", "model_name": "m"}

    async def journey(folder: Path) -> None:
        async with supervised(folder, {**body, "stall_timeout": 0.3}) as supervisor:
            assert supervisor.route is not None
            pid = supervisor.status()["pid"]
            os.kill(pid, signal.SIGSTOP)
            while supervisor.state == "ready":
                await asyncio.sleep(0.01)
            error = supervisor.error()
            assert error is not None
            assert "has not answered /health" in error["message"]
            assert error["cause"] == "stalled"
            os.kill(pid, signal.SIGCONT)  # else SIGTERM would wait

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        asyncio.run(asyncio.wait_for(journey(Path(folder)), 60))


@pytest.mark.parametrize(
    ("number", "cause", "said"),
    [
        (signal.SIGKILL, "out_of_memory", "engine was ended by SIGKILL (out of memory?)"),
        (signal.SIGSEGV, "unknown", "engine was ended by SIGSEGV"),
    ],
)
def test_what_a_request_met_long_ago_does_not_tell_why_an_engine_ended(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, cause: str, said: str
) -> None:
    monkeypatch.setattr(engine_process, "RECENT", 0.2)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    old = ["jinja2.exceptions.TemplateError: After the optional system message\n"]
    body = {"engine": "tests.unit.wrapper.wayward:WaywardEngine", "options": {"print": old}}
    body |= {"model_path": "/w", "model_name": "m"}

    async def journey(folder: Path) -> None:
        async with supervised(folder, body) as supervisor:
            await asyncio.sleep(0.3)
            os.kill(supervisor.status()["pid"], number)
            while supervisor.state == "ready":
                await asyncio.sleep(0.01)
            error = supervisor.error()
            assert error is not None
            assert (error["cause"], error["signal"]) == (cause, number.name)
            assert error["message"] == f"{said} while serving; it wrote nothing in its last 0 s"
            assert error["tail"][-1] == old[0].strip()

    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        asyncio.run(asyncio.wait_for(journey(Path(folder)), 60))


async def answered(supervisor: Supervisor, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Status and JSON of what the control plane says to a POST."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: Any) -> None:
        sent.append(message)

    await ControlPlane(supervisor, 2**20)({"path": path, "method": "POST"}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_what_survived_sigkill_is_reported_and_nothing_is_loaded_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_process, "GRACE", 0.1)
    monkeypatch.setattr(engine_process, "GIVE_UP", 0.3)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    body = {"engine": "tests.scripted_engine:ScriptedEngine", "model_path": "/w", "model_name": "m"}

    async def journey(folder: Path) -> None:
        async with supervised(folder, {**body, "options": {"plan": ["die_early"]}}) as supervisor:
            pid = supervisor.status()["pid"]
            with monkeypatch.context() as deaf:
                # nothing can be made to survive SIGKILL but by the kernel: one that is not sent it
                for sending in ("send", "kill"):
                    deaf.setattr(process_tree, sending, lambda *_: set())
                code, reported = await answered(supervisor, "/v1/model/unload", {})
                assert (code, reported["error"]["code"]) == (500, "not_gone")
                assert f"processes survived SIGKILL: {pid}" in reported["error"]["message"]
                for path, asked in (("/v1/model/load", body), ("/v1/model/unload", {})):
                    code, reported = await answered(supervisor, path, asked)
                    assert (code, reported["error"]["code"]) == (500, "not_gone")
                assert supervisor.status()["error"]["kind"] == "not_gone"
            os.kill(pid, signal.SIGKILL)
            assert gone([pid])
            assert (await answered(supervisor, "/v1/model/load", body))[0] == 202
            while supervisor.state == "loading":
                await asyncio.sleep(0.01)
            assert supervisor.state == "ready"

    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        asyncio.run(asyncio.wait_for(journey(Path(folder)), 60))


def test_a_load_that_waits_for_an_engine_that_does_not_go_fails_of_that_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_process, "GRACE", 0.1)
    monkeypatch.setattr(engine_process, "GIVE_UP", 0.5)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    body = {"engine": "tests.scripted_engine:ScriptedEngine", "model_path": "/w", "model_name": "m"}

    async def journey(folder: Path) -> None:
        options = {"children": True, "pids": str(folder / "pids")}
        async with supervised(folder, {**body, "options": options}) as supervisor:
            first, *children = [int(pid) for pid in (folder / "pids").read_text().split()]
            with monkeypatch.context() as deaf:
                for sending in ("send", "kill"):
                    deaf.setattr(process_tree, sending, lambda *_: set())
                os.kill(first, signal.SIGKILL)
                while supervisor.state == "ready":
                    await asyncio.sleep(0.01)
                supervisor.load(Load(**{**body, "model_name": "next"}))
                states = set()
                while (status := supervisor.status())["state"] == "loading":
                    states.add((status["state"], status["reason"]))
                    await asyncio.sleep(0.01)
                assert states == {("loading", None)}
                assert (status["state"], status["model_name"]) == ("failed", "next")
                assert status["error"]["kind"] == "not_gone"
                assert supervisor.meter.starts == 1
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            assert gone(children)

    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        asyncio.run(asyncio.wait_for(journey(Path(folder)), 60))


@pytest.mark.parametrize("options", first(1, [{"children": True}, {}, {"ignore_term": True}]))
def test_the_engine_ends_when_standard_input_does(start: Start, options: dict[str, Any]) -> None:
    wrapper = start()
    pids = wrapper.pids_of(**options)
    assert wrapper.process.stdin is not None
    wrapper.process.stdin.close()
    assert wrapper.process.wait(20) == 0
    assert gone(pids, 0.1)
    assert not wrapper.socket.exists()


def test_sigterm_ends_open_streams_and_events_too(start: Start) -> None:
    wrapper = start()
    pids = wrapper.pids_of(gap=30, children=True)

    async def journey(control: Control) -> None:
        events = control.events()
        assert (await anext(events))["state"] == "ready"
        async with streaming(control) as answer:
            wrapper.process.send_signal(signal.SIGTERM)
            with pytest.raises(aiohttp.ClientError):
                await answer.read()
        assert [status["state"] async for status in events] == ["draining", "empty"]

    on(wrapper, journey)
    assert wrapper.process.wait(20) == 0
    assert gone(pids, 0.1)


def test_a_client_that_does_not_read_leaves_no_traceback_at_the_end(start: Start) -> None:
    wrapper = start()
    wrapper.pids_of(pieces=["x"] * 20_000)
    body = json.dumps({"messages": [], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: w\r\nX-API-Key: {KEY}\r\n"

    async def written(control: Control) -> float:
        async with control.session.get("/metrics") as answer:
            text = await answer.text()
        [found] = re.findall(r"^hpcbench_wrapper_response_bytes_total (\S+)", text, re.M)
        return float(found)

    async def journey(control: Control) -> None:
        before = -1.0
        while (now := await written(control)) != before or not now:  # until all buffers are full
            before = now
            await asyncio.sleep(0.5)

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(wrapper.socket))
        client.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        on(wrapper, journey)
        wrapper.process.send_signal(signal.SIGTERM)
        assert wrapper.process.wait(20) == 0
    assert "Traceback" not in wrapper.errors.read_text()


def test_standard_input_may_end_while_the_engine_loads(start: Start) -> None:
    wrapper = start()
    pids = wrapper.folder / "pids"

    async def journey(control: Control) -> None:
        body = wrapper.body(start="hang", children=True, pids=str(pids))
        await control.ask("POST", "/v1/model/load", body)
        while not pids.exists() or not pids.read_text():
            await asyncio.sleep(0.02)
        assert wrapper.process.stdin is not None
        wrapper.process.stdin.close()

    on(wrapper, journey)
    assert wrapper.process.wait(20) == 0
    assert gone([int(pid) for pid in pids.read_text().split()], 0.1)


def test_a_wrapper_that_is_killed_takes_its_engine_along(start: Start) -> None:
    wrapper = start()
    pids = wrapper.pids_of(children=True, ignore_term=True)
    wrapper.process.kill()
    wrapper.process.wait()
    assert gone(pids)


def test_secrets_stand_in_no_log_no_status_and_no_argument_list(wrapper: Wrapper) -> None:
    token = "a-secret-of-no-known-shape"
    env = {"HF_TOKEN": token, "PLAIN_SETTING": "enabled"}
    error = fails(wrapper, env=env, options={"say": "HF_TOKEN", "start": "exit"})
    assert token not in str(error)
    assert "HF_TOKEN is ***" in error["tail"]
    body = {**wrapper.body(), "env": env, "timeout": -1, "gpus": token}
    code, wrong = on(wrapper, lambda control: control.ask("POST", "/v1/model/load", body))
    assert code == 422
    assert token not in str(wrong)
    pids = wrapper.pids_of()
    for pid in (*pids, wrapper.process.pid):
        for name in ("cmdline", "environ"):
            content = Path(f"/proc/{pid}/{name}").read_bytes()
            assert KEY.encode() not in content
    written = wrapper.log.read_text() + wrapper.errors.read_text()
    assert KEY not in written
    assert token not in written
    assert "HF_TOKEN is ***" in written


def test_all_output_is_in_the_log_when_the_engine_has_ended(wrapper: Wrapper) -> None:
    line = f"{'x' * 100}\n"
    options = {"print": [line], "times": 30_000, "then": "exit:3"}
    begin = wrapper.log.stat().st_size
    assert fails(wrapper, engine="wayward", options=options)["tail"][-1] == "x" * 100
    with wrapper.log.open() as file:
        file.seek(begin)
        headline, *lines = file.readlines()
    assert headline.startswith("-- hpcbench starts ")
    assert lines == [line] * 30_000


async def test_a_process_that_escapes_and_keeps_the_log_open_holds_nothing_up(
    wrapper: Wrapper,
) -> None:
    pids = wrapper.folder / "pids"
    async with wrapper.control() as control:
        await control.loaded({**wrapper.body(then="escape", pids=str(pids)), "engine": "wayward"})
        escaped = int(pids.read_text())
        try:
            assert await asyncio.wait_for(control.unload(), 20) == (200, {"state": "empty"})
            assert not gone([escaped], 0)
            await control.loaded(wrapper.body())
        finally:
            os.kill(escaped, signal.SIGKILL)


def sockets_of(pid: int) -> set[str]:
    """Inodes of a process's sockets; what is closed while we look is none of them."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found


def test_no_other_user_may_open_its_sockets_and_no_port_is_open(wrapper: Wrapper) -> None:
    [pid] = wrapper.pids_of()
    assert stat.S_IMODE(wrapper.socket.stat().st_mode) == 0o600
    [private] = (wrapper.folder / "e").iterdir()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    listening = {line[9] for line in table if line[3] == "0A"}
    for owner in (pid, wrapper.process.pid):
        assert not listening & sockets_of(owner)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(wrapper.socket))


async def test_memory_of_the_engine_is_seen_while_it_lives(wrapper: Wrapper) -> None:
    async with wrapper.control() as control:
        await control.loaded(wrapper.body())
        peak = 0.0
        while not peak or peak < 5:  # at first it is a Python that has hardly started
            peak = (await control.chat())[1]["metrics"]["peak_memory_mb"]
        assert peak < 500  # a Python with aiohttp
