"""Agents' work in ATIF and in Inspect's log. Inspect's own reader opens it in tests/packages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.agents.loop import End
from hpcbench.cli.main import main
from hpcbench.evaluation import stage
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.records import ToolCall
from tests.unit.agents.trajectories import PNG, Story, write_trajectories
from tests.unit.interchange.atif_schema import check
from tests.unit.small import experiment, record, response, write_attempt

WORKS = (
    Story("s0")
    .does(("create_plan", {"steps": ["look"]}, "ok", 0), text="First a plan.")
    .does(("crop", {"left": 1}, "ok", 1), ("crop", "{", "arguments", 0), ("zoom", {}, "time", 0))
    .says("0"),
    Story("s1")
    .does(("hand_over", {"agent": "checker"}, "ok", 0), agent="reader")
    .says("1", agent="checker"),
    Story("s2").does(("crop", [], "arguments", 0)),  # type: ignore[arg-type]
    Story("s3").says("half \ud83d"),
)
END = End("limit_calls", "", "100 calls", "truncated")


def agents(folder: Path) -> Experiment:
    """Four samples of an agent, and one that was never asked."""
    here = experiment(folder, [record(n) for n in range(5)], shard_size=5, agent=True)
    lines = [line for one in WORKS for line in one.lines]
    answers = [one.response(END if one.sample == "s2" else None) for one in WORKS]
    write_trajectories(here, 0, 1, lines, answers, "failed")
    stage.evaluate(here)
    return here


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    agents(folder)
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(home))


def written(folder: Path, form: str) -> Path:
    assert main(["export", "@last", "--format", form, "--out", str(folder)]) == 0
    (path,) = [one for one in folder.iterdir() if one.is_file()]
    return path


def test_every_document_is_a_trajectory_of_atif(tmp_path: Path) -> None:
    path = written(tmp_path, "atif")
    assert path.name == "rt.atif.jsonl"
    documents = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for one in documents:
        check(one)
    assert [one["extra"]["sample"] for one in documents] == ["s0", "s1", "s2", "s3"]
    first, second, cut, _ = documents
    models = {one.get("model_name") for one in first["steps"] if one["source"] == "agent"}
    assert models == {first["agent"]["model_name"]}
    assert [one["source"] for one in first["steps"]] == ["user", "agent", "agent", "agent"]
    assert first["steps"][1]["message"] == "First a plan."
    assert first["steps"][-1]["message"] == "0"
    crop, broken, late = first["steps"][2]["observation"]["results"]
    (text, image) = crop["content"]
    assert text["text"] == "crop of turn 2"
    assert (tmp_path / image["source"]["path"]).read_bytes() == PNG
    assert (broken["extra"]["kind"], late["extra"]["kind"]) == ("arguments", "time")
    assert first["steps"][2]["tool_calls"][1]["extra"] == {"arguments": "{"}
    assert first["steps"][2]["metrics"]["prompt_tokens"] == 200
    assert first["final_metrics"]["total_prompt_tokens"] == 600
    assert first["extra"]["scores"] == {"exact_match": 1}
    assert [one.get("extra", {}).get("agent") for one in second["steps"]] == [
        None,
        "reader",
        "checker",
    ]
    assert (cut["extra"]["exit"], cut["extra"]["why"]) == ("limit_calls", "100 calls")
    assert len(list((tmp_path / "images").iterdir())) == 1, "one image, once"


def test_ids_that_engines_repeat_or_leave_out_become_unique(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = (
        Story("s0")
        .does(("crop", {}, "ok", 0), ("crop", {}, "ok", 0))
        .does(("crop", {}, "ok", 0))
        .says("0")
    )
    story.turns = [
        replace(
            turn, calls=tuple(ToolCall(name, "crop", "{}") for name in names[: len(turn.calls)])
        )
        for turn, names in zip(story.turns, (["a", ""], ["a"], []), strict=True)
    ]
    here = experiment(tmp_path, [record(0)], agent=True)
    write_trajectories(here, 0, 1, story.lines, [story.response()])
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path))
    document = json.loads(written(tmp_path / "out", "atif").read_text())
    check(document)


def test_an_answer_at_once_is_a_trajectory_of_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = experiment(tmp_path, [record(0), record(1)], prompt={"system": "Be short."})
    write_attempt(here, 0, 1, [response("s0", "0", reasoning="so"), response("s1", None)])
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path))
    one, failed = map(json.loads, written(tmp_path / "out", "atif").read_text().splitlines())
    check(one)
    check(failed)
    assert [step["source"] for step in one["steps"]] == ["system", "user", "agent"]
    assert one["steps"][-1]["reasoning_content"] == "so"
    assert [step["source"] for step in failed["steps"]] == ["system", "user"]


def test_inspect_s_log_has_messages_calls_and_events(tmp_path: Path) -> None:
    log = json.loads(written(tmp_path, "inspect-json").read_text(encoding="utf-8"))
    first, _, cut, _ = log["samples"]
    assert [one["role"] for one in first["messages"]] == [
        "user", "assistant", "tool", "assistant", "tool", "tool", "tool", "assistant",
    ]  # fmt: skip
    calls: list[Any] = first["messages"][3]["tool_calls"]
    assert [one["function"] for one in calls] == ["crop", "crop", "zoom"]
    assert calls[1]["arguments"] == {"raw": "{"} and calls[1]["parse_error"]
    looked, broken, late = first["messages"][4:7]
    (name,) = first["attachments"]
    assert looked["content"][1] == {"type": "image", "image": f"attachment://{name}"}
    assert (broken["error"]["type"], late["error"]["type"]) == ("parsing", "timeout")
    assert [one["event"] for one in first["events"]] == [
        "model", "tool", "model", "tool", "tool", "tool", "model",
    ]  # fmt: skip
    assert first["events"][-1]["working_start"] == pytest.approx(2.0)
    assert first["metadata"]["trajectory"]["exit"] == "answered"
    assert cut["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert first["total_time"] == pytest.approx(2.5)
