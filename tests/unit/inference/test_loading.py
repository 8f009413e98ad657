"""Loading: the wrapper answers at once, and the client looks until the engine is there or is not.

The wrapper here is a fake that follows the published contract of its control plane; tests/unit/wrapper asks
the real one.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from hpcbench.inference.client import Client, EngineGone, LoadFailed
from tests.unit.inference.talking import run

READY = {
    "state": "ready",
    "engine": "scripted",
    "model_name": "tiny",
    "pid": 7,
    "load_seconds": 1.5,
    "versions": {"python": "3.11"},
}
FAILED = {
    "kind": "engine_exited",
    "cause": "missing_weights",
    "message": "engine ended with exit code 1 while loading: no weights",
    "exit_code": 1,
    "log": "/logs/w.log",
    "tail": ["a", "no weights"],
}


class FakeWrapper:
    """Its control plane: `states` are what /status says, one after the other; the last stays."""

    def __init__(self, *states: dict[str, Any], refusal: tuple[int, dict[str, Any]] | None = None):
        self.states, self.refusal = list(states), refusal
        self.loads: list[dict[str, Any]] = []
        self.unloads: list[dict[str, Any]] = []
        self.polls = 0

    async def load(self, request: web.Request) -> web.Response:
        self.loads.append(await request.json())
        if self.refusal:
            return web.json_response({"error": self.refusal[1]}, status=self.refusal[0])
        return web.json_response({"state": "loading"}, status=202)

    async def status(self, request: web.Request) -> web.Response:
        self.polls += 1
        return web.json_response(self.states.pop(0) if len(self.states) > 1 else self.states[0])

    async def unload(self, request: web.Request) -> web.Response:
        self.unloads.append(await request.json())
        return web.json_response({"state": "empty"})

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Client]:
        app = web.Application()
        app.router.add_post("/v1/model/load", self.load)
        app.router.add_post("/v1/model/unload", self.unload)
        app.router.add_get("/status", self.status)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        with tempfile.TemporaryDirectory(prefix="hb") as folder:
            await web.UnixSite(runner, f"{folder}/s").start()
            try:
                async with Client(f"{folder}/s", "key", "tiny") as client:
                    yield client
            finally:
                await runner.cleanup()


def load(wrapper: FakeWrapper, timeout: float = 20, **options: Any) -> dict[str, Any]:
    async def journey() -> dict[str, Any]:
        async with wrapper.serving() as client:
            return await client.load({"engine": "scripted"}, timeout, **options)

    loaded: dict[str, Any] = run(journey())
    return loaded


def test_load_returns_when_the_engine_is_ready() -> None:
    wrapper = FakeWrapper({"state": "loading"}, {"state": "loading"}, READY)
    assert load(wrapper) == {
        "state": "ready",
        "engine": "scripted",
        "pid": 7,
        "seconds": 1.5,
        "versions": {"python": "3.11"},
    }
    assert wrapper.loads == [{"engine": "scripted", "timeout": 20}]
    assert (wrapper.polls, wrapper.unloads) == (3, [])


def test_progress_is_reported_once_a_line() -> None:
    lines = [None, "reading shard 1", "reading shard 1", "reading shard 2"]
    wrapper = FakeWrapper(*({"state": "loading", "progress": line} for line in lines), READY)
    reported: list[str] = []
    load(wrapper, on_progress=reported.append)
    assert reported == ["reading shard 1", "reading shard 2"]


def test_a_failed_load_says_why() -> None:
    wrapper = FakeWrapper({"state": "loading"}, {"state": "failed", "reason": "x", "error": FAILED})
    with pytest.raises(LoadFailed) as caught:
        load(wrapper)
    error = caught.value
    assert (error.kind, error.cause) == ("engine_exited", "missing_weights")
    assert error.message == str(error) == FAILED["message"]
    assert (error.log, error.tail) == ("/logs/w.log", ("a", "no weights"))


def test_a_failure_without_details_still_has_a_reason() -> None:
    with pytest.raises(LoadFailed, match="it died") as caught:
        load(FakeWrapper({"state": "failed", "reason": "it died", "error": None}))
    assert (caught.value.kind, caught.value.cause, caught.value.tail) == ("unknown", None, ())


@pytest.mark.parametrize(("status", "code"), [(409, "busy"), (422, "bad_request")])
def test_a_refused_load_is_not_waited_for(status: int, code: str) -> None:
    error = {"message": "no", "type": "invalid_request_error", "code": code}
    wrapper = FakeWrapper(READY, refusal=(status, error))
    with pytest.raises(LoadFailed, match="no") as caught:
        load(wrapper)
    assert (caught.value.kind, wrapper.polls) == (code, 0)


def test_an_unload_meanwhile_ends_the_wait() -> None:
    states = ({"state": "loading"}, {"state": "draining"}, {"state": "empty"})
    with pytest.raises(LoadFailed, match="unloaded the model before it was ready") as caught:
        load(FakeWrapper(*states))
    assert caught.value.kind == "stopped"


def test_a_load_that_takes_too_long_is_unloaded() -> None:
    wrapper = FakeWrapper({"state": "loading"})
    with pytest.raises(LoadFailed, match="not ready after 0.3 s") as caught:
        load(wrapper, timeout=0.3)
    assert caught.value.kind == "timeout"
    assert wrapper.unloads == [{"drain_seconds": 0}]


def test_a_wrapper_that_is_gone_is_distinguished_from_a_load_that_failed() -> None:
    async def journey() -> None:
        async with Client("/nowhere", "key", "tiny") as client:
            await client.load({}, 5)

    with pytest.raises(EngineGone, match="does not answer on /nowhere"):
        run(journey())


async def test_unload_gives_those_in_flight_their_time() -> None:
    wrapper = FakeWrapper(READY)
    async with wrapper.serving() as client:
        await client.unload(drain_seconds=5)
    assert wrapper.unloads == [{"drain_seconds": 5}]
