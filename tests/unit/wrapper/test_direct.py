"""The direct route: the engine gets and the wrapper counts the same, and faults come to the same."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

from hpcbench.inference import client as client_module
from hpcbench.inference import direct
from hpcbench.inference.client import Client, EngineGone, LoadFailed
from hpcbench.schema.load import Route as Way
from hpcbench.schema.records import Response
from hpcbench.wrapper.app import Wrapper as App
from hpcbench.wrapper.bodies import Bodies, same_rules
from hpcbench.wrapper.direct import DirectClients, Report
from hpcbench.wrapper.masking import Mask
from hpcbench.wrapper.memory import Peaks
from hpcbench.wrapper.supervisor import Route, Supervisor
from tests.mock_openai import Script, Server
from tests.unit.inference.talking import TEXT, request
from tests.unit.wrapper.running import KEY, Control, Wrapper, gone

WAYS: tuple[Way, ...] = ("direct", "proxied")
PLAIN = Bodies({}, checked=False, media_root=None)
LOAD = {"engine": "scripted", "model_path": "/weights", "model_name": "tiny"}


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAUSE", 0.001)


class Door:
    """A wrapper in this process, around a scripted engine in this process."""

    def __init__(self, folder: Path, engine: Server, supervisor: Supervisor, port: int) -> None:
        self.folder, self.engine, self.supervisor = folder, engine, supervisor
        self.port = port

    def client(self, **options: Any) -> Client:
        return Client(str(self.folder / "w"), KEY, "tiny", **{"rules": same_rules, **options})


@contextlib.asynccontextmanager
async def door(
    script: Script | None = None,
    bodies: Bodies = PLAIN,
    body_limit: int = 2**20,
    hidden: Sequence[str] = (),
) -> AsyncIterator[Door]:
    with tempfile.TemporaryDirectory(prefix="hb") as name:
        folder = Path(name)
        supervisor = Supervisor(folder, folder / "log", mask=Mask(hidden))
        with socket.socket(socket.AF_UNIX) as local, socket.socket() as tcp:
            local.bind(str(folder / "w"))
            tcp.bind(("127.0.0.1", 0))
            app = App(supervisor, KEY, body_limit)
            server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical"))
            server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
            serving = asyncio.ensure_future(server.serve(sockets=[local, tcp]))
            async with Server(folder / "e", script) as engine:
                to_engine = aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(folder / "e"))
                )
                supervisor.state = "ready"
                mask = Mask(hidden)
                supervisor.route = Route(to_engine, bodies, Peaks(), mask, folder / "e")
                while not server.started:
                    await asyncio.sleep(0.005)
                yield Door(folder, engine, supervisor, tcp.getsockname()[1])
                await to_engine.close()
            server.should_exit = True
            await serving


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


async def both(door: Door, *asked: Any) -> list[list[Response]]:
    """The same requests by one route and by the other."""
    found = []
    for way in WAYS:
        async with door.client() as client:
            assert await client.take(way) == way
            found.append([await client.ask(one) for one in asked])
    return found


def test_the_engine_gets_the_same_request_without_the_key_and_answers_are_the_same() -> None:
    async def journey() -> None:
        rules = Bodies({"skip_special_tokens": False}, checked=False, media_root=None)
        async with door(bodies=rules) as here:
            (one,), (other,) = await both(here, request())
            assert (one.text, one.outcome) == (other.text, other.outcome) == (TEXT, "ok")
            assert (one.usage, one.times.tokens) == (other.usage, other.times.tokens)
            first, second = here.engine.seen
            assert first["raw"] == second["raw"]
            assert json.loads(first["raw"])["skip_special_tokens"] is False
            for headers in (first["headers"], second["headers"]):
                assert KEY not in str(headers)
            assert first["headers"] == {
                name: value for name, value in second["headers"].items() if name in first["headers"]
            }

    run(journey())


def test_the_wrapper_counts_what_it_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "REPORT_SECONDS", 0.02)

    async def journey() -> None:
        async with door(Script(plan=["ok", "status:400"], gap=0.05)) as here:
            meter = here.supervisor.meter
            async with here.client() as client:
                assert await client.take("direct") == "direct"
                asking = asyncio.ensure_future(client.ask(request()))
                while not meter.at_engine:
                    await asyncio.sleep(0.005)
                assert here.supervisor.status()["in_flight"] == 1
                await asking
                await client.ask(request("s2"))
                while meter.at_engine or meter.served < 2:
                    await asyncio.sleep(0.005)
            assert meter.codes == {200: 1, 400: 1}
            assert meter.bytes_in == sum(len(one["raw"]) for one in here.engine.seen)
            assert meter.bytes_out > len(TEXT)
            assert "hpcbench_wrapper_first_byte_seconds_count 2.0" in _metrics(meter)

    run(journey())


@pytest.mark.parametrize("way_out", ["exit", "proxied", "load"])
def test_a_client_that_leaves_the_route_reports_its_last_requests(way_out: str) -> None:
    async def journey() -> None:
        async with door(Script(gap=0.4)) as here:
            meter = here.supervisor.meter
            async with here.client() as client:
                assert await client.take("direct") == "direct"
                asking = asyncio.ensure_future(client.ask(request()))
                while not meter.at_engine:
                    await asyncio.sleep(0.005)
                await asking
                if way_out == "proxied":
                    assert await client.take("proxied") == "proxied"
                elif way_out == "load":
                    with pytest.raises(LoadFailed):  # there is one
                        await client.load({**LOAD, "timeout": 1}, 1)
                if way_out != "exit":
                    assert (meter.at_engine, meter.served, meter.codes[200]) == (0, 1, 1)
            assert (meter.at_engine, meter.served, meter.codes[200]) == (0, 1, 1)

    run(journey())


def _metrics(meter: Any) -> str:
    from prometheus_client import generate_latest

    return generate_latest(meter).decode()


def test_errors_are_masked_and_what_the_rules_refuse_is_refused_in_the_wrappers_words() -> None:
    async def journey() -> None:
        rules = Bodies({}, checked=True, media_root=None)
        script = Script(plan=["status:400"] * 2)
        async with door(script, rules, 2**12, hidden=["scripted 400"]) as here:
            page = here.folder / "page.png"
            page.write_bytes(b"pixels")
            far = request("far", page)
            long = request("long", stop=["x" * 2**13])
            one, other = await both(here, request(), long)
            for a, b in zip(one, other, strict=True):
                assert (a.outcome, a.error, a.tries) == (b.outcome, b.error, b.tries)
            too_large = (
                "the request is larger than 4096 bytes: raise request_mb in the model's definition, "
                "or the wrapper's --request-limit"
            )
            assert [a.error for a in one] == ["***", too_large]
            async with here.client(files_under=here.folder) as client:
                await client.take("direct")
                refused = await client.ask(far)
                assert refused.outcome == "invalid"
                assert "the model was loaded without one" in (refused.error or "")
            assert len(here.engine.seen) == 2

    run(journey())


def test_an_error_within_a_stream_is_masked_by_both_routes() -> None:
    async def journey() -> None:
        script = Script(plan=["error_event"] * 6)
        async with door(script, hidden=["scripted error"]) as here:
            for [found] in await both(here, request()):
                assert (found.outcome, found.error, found.tries) == ("failed", "HTTP 500: ***", 3)

    run(journey())


def test_only_a_client_with_the_key_on_the_unix_socket_learns_the_socket() -> None:
    async def journey() -> None:
        async with door() as here:
            local = aiohttp.UnixConnector(str(here.folder / "w"))
            async with aiohttp.ClientSession("http://w", connector=local) as session:
                for key, status in ((KEY, 200), (KEY[:-1], 401)):
                    headers = {"X-API-Key": key}
                    async with session.post(
                        "/v1/direct", headers=headers, json={"client": "c"}
                    ) as answer:
                        assert answer.status == status
                        assert ("socket" in await answer.json()) is (status == 200)
            async with (
                aiohttp.ClientSession(
                    f"http://127.0.0.1:{here.port}", headers={"X-API-Key": KEY}
                ) as far,
                far.post("/v1/direct", json={"client": "c"}) as answer,
            ):
                assert answer.status == 404

    run(journey())


def test_where_the_socket_is_not_here_requests_are_proxied() -> None:
    async def journey() -> None:
        async with door() as here:
            route = here.supervisor.route
            assert route is not None
            object.__setattr__(route, "socket", here.folder / "elsewhere")
            for options in ({}, {"rules": None}):
                async with here.client(**options) as client:
                    assert await client.take("direct") == "proxied"
                    assert (await client.ask(request())).text == TEXT

    run(journey())


def test_an_engine_is_silent_while_all_its_clients_say_so_and_no_longer_than_they_are_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clients = DirectClients()
    assert (clients.in_flight, clients.silent) == (0, 0.0)
    clients.offered("s")
    clients.take(Report(client="a", socket="s", in_flight=2, silent=30))
    assert (clients.in_flight, clients.silent) == (2, 30.0)
    now = 104.0
    clients.take(Report(client="b", socket="s", in_flight=1, silent=1))
    assert (clients.in_flight, clients.silent) == (3, 1.0)
    now = 106.0  # a has not been heard for 6 s: it may have been stopped
    assert (clients.in_flight, clients.silent) == (1, 1.0)
    clients.take(Report(client="b", socket="s"))
    assert (clients.in_flight, clients.silent) == (0, 0.0)


# --- faults, with wrappers and engines as processes ---------------------------------------------------


async def fate(
    wrapper: Wrapper, way: Way, body: dict[str, Any], work: Callable[[Client, Control], Any]
) -> tuple[Any, Any]:
    """A client's view of a fault by a route, and the wrapper's view of the engine then."""
    async with wrapper.control() as control, wrapper.client() as client:
        await control.loaded({**wrapper.body(), **body})
        assert await client.take(way) == way
        try:
            got: Any = await work(client, control)
        except EngineGone as error:
            got = str(error)
        status = await control.status()
        why = status["error"] or {}
        await control.unload()
        return got, (status["state"], why.get("kind"), why.get("cause"), why.get("message"))


async def one(client: Client, control: Control) -> Any:
    answer = await client.ask(request())
    return answer.outcome, answer.error, answer.tries, answer.text


async def many(client: Client, control: Control) -> Any:
    """Kill the engine while it answers."""
    asking = [asyncio.ensure_future(client.ask(request(f"s{n}"))) for n in range(8)]
    while (status := await control.status())["in_flight"] < 8:
        await asyncio.sleep(0.01)
    os.kill(status["pid"], signal.SIGKILL)
    done = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(error) for error in done} == {EngineGone}
    return str(done[0])


FAULTS: dict[str, tuple[dict[str, Any], tuple[Any, ...], str]] = {
    "ends before it answers": (
        {"options": {"plan": ["ok", "die_early"]}},
        (one, one),
        "exit code 3",
    ),
    "ends while it answers": ({"options": {"plan": ["die"]}}, (one,), "exit code 3"),
    "is killed": ({"options": {"gap": 30}}, (many,), "ended by SIGKILL"),
    "drops one request": ({"options": {"plan": ["drop"]}}, (one,), "ok"),
    "stalls": (
        {"engine": "wayward", "options": {"answer": "silence"}, "stall_timeout": 0.3},
        (one,),
        "the engine has sent nothing for",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_comes_to_the_same_by_both_routes(wrapper: Wrapper, fault: str) -> None:
    body, works, said = FAULTS[fault]

    async def journey() -> list[Any]:
        async def work(client: Client, control: Control) -> Any:
            return [await each(client, control) for each in works]

        return [await fate(wrapper, way, body, work) for way in WAYS]

    direct, proxied = run(journey())
    assert said in str(direct)
    assert re.sub(r"\d+ s;", "N s;", str(direct)) == re.sub(r"\d+ s;", "N s;", str(proxied))


@pytest.mark.long
def test_an_error_of_the_engine_waits_for_a_stopped_wrapper(
    wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.inference.direct._PATIENCE", 0.1)

    async def refused(client: Client, control: Control) -> Any:
        wrapper.process.send_signal(signal.SIGSTOP)
        asking = asyncio.ensure_future(client.ask(request()))
        await asyncio.wait({asking}, timeout=0.5)
        wrapper.process.send_signal(signal.SIGCONT)
        answer = await asking
        return answer.outcome, answer.error

    async def journey() -> None:
        got, _ = await fate(wrapper, "direct", {"options": {"plan": ["status:404"]}}, refused)
        assert got == ("failed", "HTTP 404: scripted 404")

    run(journey())


@pytest.mark.long
def test_a_slow_stream_by_the_direct_route_is_no_stall(wrapper: Wrapper) -> None:
    async def journey() -> None:
        body = {"options": {"gap": 0.5}, "stall_timeout": 1.2}
        got, reported = await fate(wrapper, "direct", body, one)
        assert (got, reported) == (("ok", None, 1, TEXT), ("ready", None, None, None))

    run(journey())


@pytest.mark.long
def test_draining_lets_direct_requests_end_and_takes_no_more(wrapper: Wrapper) -> None:
    async def journey() -> None:
        async with wrapper.control() as control, wrapper.client() as client:
            await control.loaded(wrapper.body(gap=0.3))
            await client.take("direct")
            asking = asyncio.ensure_future(client.ask(request()))
            await asyncio.sleep(0.1)
            unloading = asyncio.ensure_future(client.unload(drain_seconds=30))
            await control.until("draining")
            with pytest.raises(EngineGone, match=r"no model is ready \(draining\)"):
                await client.ask(request("late"))
            assert (await asking).text == TEXT
            await unloading
            with pytest.raises(EngineGone, match="no model is ready"):
                await client.take("direct")

    run(journey())


@pytest.mark.long
def test_draining_by_another_client_lets_a_request_end_that_was_not_reported_yet(
    wrapper: Wrapper,
) -> None:
    async def journey() -> None:
        async with wrapper.control() as control, wrapper.client() as client:
            await control.loaded(wrapper.body(gap=0.4))
            await client.take("direct")
            asking = asyncio.ensure_future(client.ask(request()))
            await asyncio.sleep(0.1)
            unloading = asyncio.ensure_future(control.unload(drain_seconds=30))
            answer = await asking
            assert (answer.outcome, answer.text) == ("ok", TEXT)
            assert (await unloading)[0] == 200
            # a client that has reported need not be waited for
            await control.loaded(wrapper.body())
            assert await client.take("direct") == "direct"
            await client.ask(request())
            begin = time.monotonic()
            await client.unload(drain_seconds=30)
            assert time.monotonic() - begin < 1

    run(journey())


@pytest.mark.long
def test_a_client_whose_engine_was_replaced_gets_its_answers_from_the_next_one(
    wrapper: Wrapper,
) -> None:
    async def journey() -> None:
        async with wrapper.control() as control, wrapper.client() as client:
            await control.loaded(wrapper.body())
            await client.take("direct")
            await client.ask(request())
            await control.unload()
            await control.loaded(wrapper.body())
            answers = [await client.ask(request()) for _ in range(2)]
            assert [(one.outcome, one.text) for one in answers] == [("ok", TEXT)] * 2
            # The client may have heard of the end by its report before it asks.
            assert answers[0].tries <= 2 and answers[1].tries == 1
            assert await client.take("direct") == "direct"
            assert (await client.ask(request())).text == TEXT

    run(journey())


@pytest.mark.long
def test_reports_on_an_earlier_engine_do_not_end_the_next_one(wrapper: Wrapper) -> None:
    async def journey() -> None:
        async with wrapper.control() as control:
            await control.loaded(wrapper.body())
            _, offer = await control.ask("POST", "/v1/direct", {"client": "new"})
            late = {"client": "c", "socket": offer["socket"], "in_flight": 1, "silent": 9.0}
            assert (await control.ask("POST", "/v1/direct", late))[0] == 200
            await control.unload()
            await control.loaded({**wrapper.body(), "stall_timeout": 1})
            assert (await control.status())["in_flight"] == 0
            await control.ask("POST", "/v1/direct", late)
            await asyncio.sleep(1.5)
            status = await control.status()
            assert (status["state"], status["in_flight"]) == ("ready", 0)

    run(journey())


@pytest.mark.long
def test_a_killed_wrapper_is_noticed_by_direct_clients(start: Callable[..., Wrapper]) -> None:
    wrapper = start()
    pids = wrapper.pids_of(gap=600)

    async def journey() -> None:
        async with wrapper.client() as client:
            assert await client.take("direct") == "direct"
            asking = asyncio.ensure_future(client.ask(request()))
            await asyncio.sleep(0.2)
            wrapper.process.kill()
            with pytest.raises(EngineGone, match="the wrapper does not answer"):
                await asking

    run(journey())
    assert gone(pids)
