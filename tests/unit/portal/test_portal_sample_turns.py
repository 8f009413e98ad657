"""An agent's work on a sample, as the portal serves it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from hpcbench.agents.loop import End
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.portal import figures
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.results_cache import Results
from hpcbench.portal.sample_detail import detail_of
from hpcbench.portal.sample_table import SampleTable, sample_table_of
from hpcbench.portal.sample_turns import made_of, turns_of
from hpcbench.portal.samples import SampleFilter, SampleOrder
from hpcbench.portal.static_export import Wanted, write
from tests.unit.agents.trajectories import PNG, Story, lost, write_trajectories
from tests.unit.portal.asking import portal_over
from tests.unit.small import experiment, record

ID = "20261120-1432-plan-aaaa"

WORKS = (
    Story("s0")
    .does(("create_plan", {"steps": ["look", "add"]}, "ok", 0), text="A plan.")
    .does(("crop", {"left": 1}, "ok", 1), ("update_plan", {"step": 1, "status": "done"}, "ok", 0))
    .does(("zoom", {}, "time", 0), ("crop", {"left": 2}, "ok", 1))
    .says("0"),
    Story("s1").does(("crop", {}, "ok", 0)),
)


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """One sample answered, one ended by a limit, one at work, one not started."""
    here = experiment(tmp_path, [record(n) for n in range(4)], agent=True)
    end = End("limit_calls", "", "1 calls", "truncated")
    lines = [line for one in WORKS for line in one.lines]
    at_work = Story("s2").does(("crop", {}, "ok", 1))
    answers = [WORKS[0].response(), WORKS[1].response(end)]
    write_trajectories(here, 0, 1, [*lines, *at_work.lines, lost("s2", 2)], answers, "drained")
    return here


def table(here: Experiment) -> SampleTable:
    return sample_table_of(portal_over(here.path.parents[1]), ID, "rt")


@pytest.mark.parametrize("scored", [False, True])
def test_turns_calls_images_and_plan_of_a_sample(here: Experiment, scored: bool) -> None:
    if scored:
        evaluate(here)
    found = turns_of(table(here), 0)
    assert (found.exit, found.why, found.left_out) == ("answered", "", 0)
    assert [(one.text, one.status) for one in found.plan] == [("look", "done"), ("add", "pending")]
    assert [one.number for one in found.turns] == [1, 2, 3, 4]
    first, second, third, last = found.turns
    assert (first.text, first.begin, last.text) == ("A plan.", 0, "0")
    assert second.begin == pytest.approx(0.75) and third.begin == pytest.approx(1.75)
    assert (second.ttft, second.prompt_tokens, second.completion_tokens) == (0.1, 200, 10)
    below = f"experiments/{ID}/run-tasks/rt/samples/0/made"
    assert second.calls[0].images == (f"{below}/0",) and second.calls[0].numbers == (2,)
    late, again = third.calls
    assert (late.kind, late.text, late.images) == ("time", "no zoom", ())
    assert again.images == (f"{below}/1",) and again.numbers == (3,)
    assert (found.think_seconds, found.tool_seconds) == (2.0, 1.25)
    assert (found.sync_seconds, found.wasted) == (0.04, 1)


def test_a_limit_work_that_goes_on_and_a_sample_not_started(here: Experiment) -> None:
    cut, going, none = (turns_of(table(here), place) for place in (1, 2, 3))
    assert (cut.exit, cut.why) == ("limit_calls", "1 calls")
    assert (going.exit, len(going.turns), going.wasted) == (None, 1, None)
    assert (none.exit, none.turns) == (None, ())


def test_the_detail_says_that_there_are_turns(here: Experiment) -> None:
    assert detail_of(table(here), 0, SampleFilter(), SampleOrder()).agent


def test_images_are_served_whole_and_small(here: Experiment) -> None:
    portal = portal_over(here.path.parents[1])
    own = sample_table_of(portal, ID, "rt")
    assert made_of(portal, own, 0, 0, "full").data == PNG
    with Image.open(io.BytesIO(made_of(portal, own, 0, 1, "thumb").data)) as small:
        assert small.size == (60, 40)
    for place, number in ((0, 2), (3, 0), (9, 0)):
        with pytest.raises(PortalFault):
            made_of(portal, own, place, number, "full")


def test_a_run_task_without_an_agent_has_no_turns(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(0)])
    with pytest.raises(PortalFault, match="no agent"):
        turns_of(table(here), 0)
    assert not detail_of(table(here), 0, SampleFilter(), SampleOrder()).agent


def test_turns_that_are_lost_are_counted(here: Experiment) -> None:
    path = here.shard_turns("rt", 0, 1)
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = json.dumps({"sample": "s0", "turn": 3, "reply": {}}) + "\n"
    path.write_text("".join(lines))
    found = turns_of(table(here), 0)
    assert (len(found.turns), found.left_out) == (2, 2)


def test_the_run_task_has_charts_of_its_agents(here: Experiment) -> None:
    evaluate(here)
    names = {one.name: one.group for one in figures.names(here, Results(), "rt")}
    assert names["calls-rt"] == names["switches-rt"] == "agents"


@pytest.mark.long
def test_a_static_bundle_has_the_turns_and_their_images(here: Experiment, tmp_path: Path) -> None:
    evaluate(here)
    client, out = tmp_path / "client", tmp_path / "out"
    client.mkdir()
    (client / "index.html").write_text(
        "<!doctype html>\n<html><head>\n<title>x</title></head></html>\n"
    )
    write(here, out, Wanted(images=True), client=client)
    names: dict[str, list[object]] = {}
    for path in (out / "data" / "names").iterdir():
        names |= json.loads(path.read_text())
    below = f"experiments/{ID}/run-tasks/rt/samples/0"
    made = sorted(name.rpartition("/")[2] for name in names if name.startswith(f"{below}/made/"))
    assert made == ["0?size=full", "0?size=thumb", "1?size=full", "1?size=thumb"]
    pack, begin, size = names[f"{below}/turns"]
    assert isinstance(begin, int) and isinstance(size, int)
    story = json.loads((out / "data" / "packs" / str(pack)).read_bytes()[begin : begin + size])
    assert (story["exit"], len(story["turns"])) == ("answered", 4)
