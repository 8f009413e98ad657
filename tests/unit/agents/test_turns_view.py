"""The reader of turns: which lines count, and that damage loses only itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.agents.trajectory import Trajectory
from hpcbench.experiment.archiving import fold
from hpcbench.experiment.claims import release, shard_states
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.turns import shard_turns, turns_of
from hpcbench.files.archive import Folder
from tests.unit.agents.trajectories import Story, lost, write_trajectories
from tests.unit.small import experiment, record


def looked(sample: str, answer: str = "42") -> Story:
    return Story(sample).does(("crop", {"left": 1}, "ok", 1)).says(answer)


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    return experiment(tmp_path, [record(number) for number in range(4)])


def interleaved(*story: Story) -> list[Any]:
    return [line for turn in zip(*(one.lines for one in story), strict=True) for line in turn]


@pytest.mark.parametrize("folded", [False, True])
def test_each_sample_has_its_lines_from_a_loose_file_or_a_folded_one(
    here: Experiment, folded: bool
) -> None:
    story = [looked(f"s{number}", str(number)) for number in range(4)]
    write_trajectories(here, 0, 1, interleaved(*story), [one.response() for one in story])
    if folded:
        assert fold(here, "rt")
    assert turns_of(here, "rt", 0, "s2") == story[2].lines
    assert turns_of(here, "rt", 0, "s9") == []
    turns = shard_turns(here, "rt", 0)
    assert turns.samples == ["s0", "s1", "s2", "s3"]
    assert Trajectory.of("s3", turns.of("s3")).turns == story[3].turns


def test_only_the_wanted_lines_are_read(here: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    story = [looked(f"s{number}") for number in range(4)]
    write_trajectories(here, 0, 1, interleaved(*story), [])
    turns = shard_turns(here, "rt", 0)
    read: list[int] = []
    part = Folder.part

    def counted(self: Folder, name: str, at: int, size: int) -> bytes:
        read.append(size)
        return part(self, name, at, size)

    monkeypatch.setattr(Folder, "part", counted)
    assert turns.of("s1") == story[1].lines
    assert len(read) == 2
    assert turns.of("s1", most=1) == story[1].lines[:1], "a limit of bytes leaves out later turns"


def test_the_lower_attempt_s_turn_wins_and_a_later_attempt_goes_on(here: Experiment) -> None:
    first, second = looked("s0", "1"), looked("s0", "2")
    write_trajectories(here, 0, 1, first.lines[:1], [], "drained")
    write_trajectories(here, 0, 2, second.lines, [second.response()])
    lines = turns_of(here, "rt", 0, "s0")
    assert [line["turn"] for line in lines] == [1, 1, 2]
    assert [turn.text for turn in Trajectory.of("s0", lines).turns] == ["", "2"]


def test_a_withdrawn_sample_begins_again(here: Experiment) -> None:
    first, second = looked("s0", "1"), looked("s0", "2")
    write_trajectories(here, 0, 1, first.lines, [first.response()])
    (state,) = shard_states(here, ["rt"])
    assert release(here, state, "again", reopen=True, withdrawn=["s0"])
    assert turns_of(here, "rt", 0, "s0") == []
    write_trajectories(here, 0, 3, second.lines, [second.response()])
    assert Trajectory.of("s0", turns_of(here, "rt", 0, "s0")).turns == second.turns


DAMAGE = [
    b"\n", b"{}\n", b"[1]\n", b'{"sample":3,"turn":1}\n', b"\xff\xfe\n", b'{"sample":"s0"}\n',
    b'{"sample":"s', b'{"sample":"s0","turn":"x","reply":{}}\n', b'{"sample":"s0","turn":1}\n',
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_loses_only_itself(here: Experiment, damage: bytes) -> None:
    story = looked("s0")
    write_trajectories(here, 0, 1, story.lines, [story.response()])
    path = here.shard_turns("rt", 0, 1)
    path.write_bytes(damage.rstrip(b"\n") + b"\n" + path.read_bytes())
    assert turns_of(here, "rt", 0, "s0") == story.lines


@pytest.mark.parametrize(
    "line",
    [
        {"turn": 2, "reply": {}},
        {"turn": 2, "intent": {"id": 3}},
        {"turn": 2, "intent": 3},
        {"reply": {}},
        {**looked("s0").lines[0], "turn": 2, "results": 3},
    ],
)
def test_a_line_with_sound_json_and_wrong_parts_ends_the_trajectory(line: dict[str, Any]) -> None:
    story = looked("s0")
    found = Trajectory.of("s0", [story.lines[0], line, story.lines[1]])
    assert found.turns == story.turns[:1]


def test_a_plan_whose_steps_are_damaged_is_no_crash() -> None:
    story = Story("s0").does(("create_plan", '{"steps": ["a"]}', "ok", 0))
    broken = json.loads(json.dumps(story.lines[0]).replace("steps", "stops"))
    assert Trajectory.of("s0", [broken]).plan == []


def test_ids_with_quotes_and_other_scripts_are_found(here: Experiment) -> None:
    story = [looked(name) for name in ('a"b', "счёт\n1", "\ud800", "s" * 5000)]
    write_trajectories(here, 0, 1, interleaved(*story), [])
    for one in story:
        assert turns_of(here, "rt", 0, one.sample) == one.lines


def test_a_call_before_its_result_is_among_the_lines(here: Experiment) -> None:
    story = looked("s0")
    write_trajectories(here, 0, 1, [story.lines[0], lost("s0", 2)], [])
    found = Trajectory.of("s0", turns_of(here, "rt", 0, "s0"))
    assert found.lost is not None and found.lost.tool == "pay"
