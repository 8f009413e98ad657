"""Traces in a real Phoenix, read back through its API."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import Owner, claim, shard_states
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from hpcbench.schema.records import Response, Times
from hpcbench.tracking.feed import SentCounts
from hpcbench.tracking.phoenix import PhoenixTracker
from tests.help_examples import example
from tests.tracking.servers import Server
from tests.unit.small import experiment, record
from tests.unit.tracked import answer, end, ended, started

pytestmark = pytest.mark.timeout(900)


def answered(folder: Path) -> Experiment:
    """An experiment with one good answer, one that failed, and one sample that was not asked."""
    here = experiment(folder, [record(1), record(2), record(3)])
    write_json(
        here.manifest_file, {**read_json(here.manifest_file), "created": "2026-01-15T10:00:00+0000"}
    )
    here = Experiment(here.path)
    (state,) = shard_states(here, ["rt"])
    taken = claim(here, state, Owner("1", 0, "n", 1))
    assert taken is not None
    times = Times(10**9, 10**9, 10**9, (2 * 10**9,), 3 * 10**9)
    usage = {"prompt_tokens": 11, "completion_tokens": 2}
    taken.record(
        Response("s1", "ok", "Семь", "stop", usage, times, 1, ("a" * 64,), prompt="p/total")
    )
    taken.record(Response("s2", "failed", None, None, None, times, 3, (), "the engine is gone"))
    taken.end("done")
    return here


def asked(url: str, path: str) -> list[dict[str, Any]]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{url}/v1/projects/{path}") as reply:
        found: list[dict[str, Any]] = json.loads(reply.read())["data"]
    return found


def spans(server: Server, project: str) -> list[dict[str, Any]]:
    return asked(server.url, f"{project}/spans?limit=1000")


def samples_of(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.loads(one["attributes"]["metadata"])["sample"] for one in found)


def tracker(server: Server, project: str, **more: Any) -> PhoenixTracker:
    return PhoenixTracker({"url": server.url, "project": project, "timeout": 120, **more})


def test_an_export_says_what_was_asked_and_what_came_back(
    phoenix: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = answered(tmp_path / "home")
    command = [
        *example(
            "export @last --to phoenix --url http://localhost:6006",
            {"@last": here.path, "http://localhost:6006": phoenix.url},
        ),
        *("--project", "traced", "--json"),
    ]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 2
    until = time.monotonic() + 200
    while len(spans(phoenix, "traced")) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    found = spans(phoenix, "traced")
    good, bad = sorted(found, key=lambda one: str(one["status_code"]), reverse=True)
    attributes = good["attributes"]
    assert attributes["llm.input_messages.0.message.content"] == "number 1?"
    assert attributes["output.value"] == "Семь"
    tokens = (attributes["llm.token_count.prompt"], attributes["llm.token_count.completion"])
    assert tokens == (11, 2)
    assert json.loads(attributes["metadata"])["prompt"] == "p/total"
    when = (good["start_time"][:19], good["end_time"][:19])
    assert when == ("2026-01-15T10:00:00", "2026-01-15T10:00:02")
    assert (bad["status_code"], bad["status_message"]) == ("ERROR", "the engine is gone")
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 0, "what is there is not sent again"
    own = {"@last": here.path, "url=http://localhost:6006": f"url={phoenix.url}"}
    line = example("track @last --tracker phoenix --option url=http://localhost:6006", own)
    assert main([*line, "--option", "project=traced"]) == 0


def test_scores_are_annotations_of_traces(phoenix: Server, tmp_path: Path) -> None:
    here, there = ended(tmp_path / "home", 10), tracker(phoenix, "scored")
    assert there.track(here.path) == SentCounts(exchanges=10, state="done")
    found = spans(phoenix, "scored")
    assert set(samples_of(found).values()) == {1}
    ids = "&".join(f"span_ids={one['context']['span_id']}" for one in found)
    notes = asked(phoenix.url, f"scored/span_annotations?limit=100&{ids}")
    scores = {one["span_id"]: one["result"]["score"] for one in notes}
    assert {one["name"] for one in notes} == {"exact_match"}
    right = next(
        one for one in found if json.loads(one["attributes"]["metadata"])["sample"] == "s4"
    )
    assert scores[right["context"]["span_id"]] == 1.0
    assert len(notes) == len(found), "a score a sample; an answer that failed counts as 0"
    assert there.track(here.path) == SentCounts(state="done"), "nothing is new"
    for one in here.tracked_dir.glob("*.jsonl"):
        one.unlink()
    assert there.track(here.path).exchanges == 0, "notes were lost: what is there stays as it is"
    assert len(spans(phoenix, "scored")) == 10


def test_only_as_many_samples_as_were_asked_for(phoenix: Server, tmp_path: Path) -> None:
    here = ended(tmp_path / "home", 10)
    assert tracker(phoenix, "some", samples=6).track(here.path).exchanges == 6
    assert set(samples_of(spans(phoenix, "some"))) == {f"s{number}" for number in range(6)}
    assert tracker(phoenix, "some").track(here.path).exchanges == 4


def test_while_it_runs_samples_come_and_scores_after_the_end(
    phoenix: Server, tmp_path: Path
) -> None:
    here, there = started(tmp_path / "home", 8), tracker(phoenix, "live")
    answer(here, 0)
    first, results = threading.Event(), list[SentCounts]()

    def tell(sent: SentCounts) -> None:
        if sent.exchanges >= 4:
            first.set()

    follower = threading.Thread(
        target=lambda: results.append(there.track(here.path, live=True, tell=tell))
    )
    follower.start()
    assert first.wait(400)
    assert len(spans(phoenix, "live")) == 4
    answer(here, 1)
    end(here, "incomplete")
    follower.join(400)
    assert results == [SentCounts(exchanges=8, state="incomplete")]
    ids = "&".join(f"span_ids={one['context']['span_id']}" for one in spans(phoenix, "live"))
    assert len(asked(phoenix.url, f"live/span_annotations?limit=100&{ids}")) == 8


@pytest.mark.campaign  # test_mlflow has the same of another server
def test_a_phoenix_that_is_killed_and_comes_back_has_everything_once(
    phoenix: Server, tmp_path: Path
) -> None:
    here, there = ended(tmp_path / "home", 60, shard_size=5), tracker(phoenix, "killed")
    killed = threading.Event()

    def kill(sent: SentCounts) -> None:
        if sent.exchanges >= 10 and not killed.is_set():
            killed.set()
            phoenix.kill()

    try:
        with pytest.raises(EnvironmentFault, match="cannot be reached"):
            there.track(here.path, tell=kill)
    finally:
        phoenix.kill()
        phoenix.start()
        phoenix.wait()
    assert killed.is_set()
    there.track(here.path)
    assert samples_of(spans(phoenix, "killed")) == {f"s{number}": 1 for number in range(60)}
