"""A keeper's figures as Prometheus' text, read back, and in a worker's log."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from test_keeper import Scripted, keeper
from virtual_time import run

from hpcbench.experiment.view.workers import LimitedWork, WorkerRun
from hpcbench.oauth import token_metrics
from hpcbench.oauth.keeper import TokenFailed
from hpcbench.schema.model import Model
from hpcbench.schema.token_figures import TokenFigures
from hpcbench.status.causes import complaints, grouped
from hpcbench.worker import token_watch
from hpcbench.worker.token_watch import TokenWatch
from tests.conftest import ROOT

OURS = "hpcbench_token_"


def lines() -> list[str]:
    """Texts of a keeper: with a token, and after its server has failed."""

    async def journey() -> list[str]:
        source = Scripted()
        async with keeper(source).running() as kept:
            await kept.wait(10)
            found = [token_metrics.text(kept.look())]
            source.fails = TokenFailed('it said "no\\way"')
            await asyncio.sleep(96)
            return [*found, token_metrics.text(kept.look())]

    return run(journey())


def test_what_is_written_is_read_back() -> None:
    good, bad = (token_metrics.read("vllm:other 1\n" + text) for text in lines())
    assert good is not None
    assert bad is not None
    assert (good.granted, good.failed, good.waits) == ({"full_auth": 1}, {}, 1)
    assert (good.state, good.why) == ("fresh", None)
    assert good.left is not None
    assert good.left > 90
    assert bad.state == "expired"
    assert bad.failed["full_auth"] > 2
    assert bad.why == 'it said "no\\way"'
    assert token_metrics.of_log(["other", token_metrics.line(bad)]) == bad
    assert token_metrics.read("vllm:other 1\n") is None


class News:
    """Keeps events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def write(self, kind: str, /, **details: Any) -> None:
        self.events.append((kind, details))


def test_a_worker_logs_changes_and_why_there_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_watch, "LOOK_SECONDS", 0.01)
    good, bad = lines()
    now = [good]
    auth = {"auth": {"token_url": "https://g/t", "client_id": "c"}}
    model = Model(name="hosted", engine="remote", engine_options=auth)
    news = News()

    async def journey() -> None:
        watch = TokenWatch(news)  # type: ignore[arg-type]
        watch.follow(Model(name="plain", engine="remote"), lambda: 1 / 0)  # type: ignore[arg-type,return-value]
        watch.follow(model, lambda: now[0])
        await asyncio.sleep(0.1)
        now[0] = bad
        await watch.end()
        now[0] = good
        watch.follow(model, lambda: now[0])  # another relay begins to count at nought
        await watch.end()

    asyncio.run(journey())
    assert [kind for kind, _ in news.events] == ["token", "token_failed", "token", "token"]
    assert news.events[1][1]["message"] == 'it said "no\\way"'
    assert [
        details["granted"]["full_auth"] for kind, details in news.events if kind == "token"
    ] == [1, 1, 2]


def test_status_says_what_was_done_for_a_token_and_warns_when_there_is_none() -> None:
    worker = WorkerRun(group="g0", id="1_0-0")
    worker.take({"event": "model_ready", "model": "hosted", "time": 1.0})
    assert not worker.tokens
    got = {"full_auth": 1, "cache": 4}
    said = {"event": "token", "model": "hosted", "state": "stale", "granted": got, "failed": {}}
    worker.take({**said, "time": 2.0})
    assert worker.tokens["hosted"].in_words() == "stale; got 1 by full_auth, 4 by cache"
    further = {"failed": {"full_auth": 2}, "fallbacks": 1, "rejected": 3, "oldest": 3300.4}
    worker.take({**said, **further, "time": 3.0})
    assert worker.tokens["hosted"].in_words() == (
        "stale; got 1 by full_auth, 4 by cache; "
        "2 requests failed, 1 fallback, 3 rejected, oldest 3,300 s"
    )
    why = "no new token: the server is away"
    worker.take({"event": "token_failed", "model": "hosted", "message": why, "time": 4.0})
    worker.take({"event": "limited", "model": "hosted", "message": "12 refused", "time": 5.0})
    alarms = {one.kind: one.message for one in complaints(worker, "slurm") if one.alarm}
    assert alarms == {"token_failed": why, "limited": "12 refused"}


def test_the_limits_of_a_gateway_are_one_warning_however_each_worker_words_them() -> None:
    worker = WorkerRun(group="g0", id="1_0-0")
    for time, model, held in (
        (1.0, "a", "429 until 12:00"),
        (2.0, "a", "requests waited for what remains"),
        (3.0, "b", "429 until 12:00"),
    ):
        message = f"the gateway of {model} limits the rate (3 requests refused, 2 s waited): {held}"
        worker.take({"event": "limited", "model": model, "message": message, "time": time})
    first, second = grouped(complaints(worker, "slurm"))
    assert (first.models, first.count) == (("a",), 2)
    assert first.cause.endswith("waited for what remains"), "the last words count"
    assert (second.models, second.count) == (("b",), 1)


def test_workers_figures_are_summed() -> None:
    one = TokenFigures.of(
        {"granted": {"full_auth": 1}, "seconds": {"full_auth": 0.5}, "longest": 0.5, "oldest": 9.0}
    )
    two = TokenFigures.of(
        {"granted": {"cache": 2}, "failed": {"cache": 1}, "seconds": {"cache": 0.1}, "oldest": 3.0}
    )
    whole = one.then(replace(two, fallbacks=2, state="stale"))
    assert whole.granted == {"cache": 2, "full_auth": 1}
    assert whole.seconds == {"cache": 0.1, "full_auth": 0.5}
    assert (whole.failed, whole.longest, whole.fallbacks) == ({"cache": 1}, 0.5, 2)
    assert (whole.oldest, whole.state) == (9, "stale")
    assert TokenFigures.of(whole.to_json()) == whole


@pytest.mark.parametrize(
    "damaged",
    [
        {"granted": 7},
        {"failed": {"full_auth": "x"}},
        {"seconds": None},
        {"age": []},
        {"waits": float("inf")},
    ],
)
def test_a_damaged_event_changes_no_figure(damaged: dict[str, Any]) -> None:
    worker = WorkerRun(group="g0", id="1_0-0")
    said = {"event": "token", "model": "hosted", "granted": {"cache": 2}}
    worker.take(said)
    for one in (damaged, {"waits": {}}):
        worker.take({**said, "granted": {"cache": 5}, **one})
    del said["model"]
    worker.take(said)
    assert worker.tokens["hosted"].granted == {"cache": 2}
    worker.take({"event": "limited", "model": "hosted", "refused": 3, "waits": 2})
    worker.take({"event": "limited", "model": "hosted", "refused": "many"})
    worker.take({"event": "limited", "refused": 4})
    assert worker.limits == {"hosted": LimitedWork(3, 2, 0.0)}


def test_the_last_event_of_a_worker_has_the_age_of_its_token_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_watch, "LOOK_SECONDS", 0.01)
    ages = [1.0, 2.0, 7.5]
    auth = {"auth": {"token_url": "https://g/t", "client_id": "c"}}
    model, news = Model(name="hosted", engine="remote", engine_options=auth), News()
    others = "\n".join(line for line in lines()[0].splitlines() if "_age_" not in line)

    def metrics() -> str:
        age = ages.pop(0) if len(ages) > 1 else ages[0]
        return f"{others}\nhpcbench_token_age_seconds {age}\n"

    async def journey() -> None:
        watch = TokenWatch(news)  # type: ignore[arg-type]
        watch.follow(model, metrics)
        while len(ages) > 1:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        ages[:] = [0.5]  # a new token
        await watch.end()

    asyncio.run(journey())
    assert [kind for kind, _ in news.events] == ["token", "token"]
    assert (news.events[0][1]["age"], news.events[0][1]["oldest"]) == (1, 1)
    assert (news.events[-1][1]["age"], news.events[-1][1]["oldest"]) == (0.5, 7.5)


@pytest.mark.long
def test_nothing_imports_the_client_before_it_is_used() -> None:
    import subprocess
    import sys

    code = (
        "import sys, hpcbench.engines.remote, hpcbench.submit.oauth_tokens, hpcbench.cli.parse\n"
        "print(*(one for one in ('aiohttp', 'oauthlib', 'hpcbench.oauth.keeper') if one in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=ROOT,
    )  # fmt: skip
    assert done.stdout.strip() == ""
