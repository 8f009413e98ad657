"""Lines of `submission.jsonl` about a round of jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hpcbench.errors import DamagedFile
from hpcbench.experiment.submission import Round, Step, rounds, submitted_at, updated
from hpcbench.files.atomic import Appender
from hpcbench.resume.last_job import DEFAULT
from hpcbench.schema.plan import Group
from tests.unit.past import past
from tests.unit.scene import Scene

GROUPS = tuple(
    Group(id=name, image=None, gpus=0, resources=DEFAULT, run_tasks=("rt",), workers=6, throttle=3)
    for name in ("g0", "g1")
)
TWO_ARRAYS = (
    {"event": "intent", "step": "g0", "group": "g0", "workers": 4, "throttle": 2},
    {"event": "submitted", "step": "g0", "job": "7"},
    {"event": "intent", "step": "g0+1", "group": "g0", "first": 4, "workers": 2},
    {"event": "submitted", "step": "g0+1", "job": "8"},
)


def after(*events: Mapping[str, Any]) -> Round:
    now = Round(0, 0.0, GROUPS)
    for event in events:
        now = updated(now, event)
    return now


def test_of_an_intent_it_is_unknown_whether_slurm_took_it_until_its_job_is_named() -> None:
    intended = after(*TWO_ARRAYS[:3])
    assert intended.intents == [Step("g0+1", "g0", 4, 2)]
    assert intended.jobs == {"g0": "7"}
    both = after(*TWO_ARRAYS)
    assert both.intents == []
    assert both.jobs == {"g0": "7", "g0+1": "8"}


def test_a_round_is_handed_over_until_one_more_step_is_intended() -> None:
    assert not after(*TWO_ARRAYS).handed
    handed = after(*TWO_ARRAYS, {"event": "handed", "step": ""})
    assert handed.handed
    assert not updated(handed, {"event": "intent", "step": "finalise"}).handed


def test_a_line_that_is_not_about_steps_changes_nothing() -> None:
    assert after(*TWO_ARRAYS, {"event": "cancelled"}) == after(*TWO_ARRAYS)
    assert after({"event": "submitted", "step": "unknown", "job": "9"}) == after()


def test_what_slurm_refused_or_never_had_is_gone_and_the_other_steps_stay() -> None:
    refused = after(*TWO_ARRAYS, {"event": "refused", "step": "g0+1", "message": "QOSMaxSubmit"})
    assert (list(refused.steps), refused.refused) == (["g0"], "QOSMaxSubmit")
    assert (refused.waiting(GROUPS[0]), refused.deferred) == (2, 8)
    dropped = after(*TWO_ARRAYS, {"event": "dropped", "step": "g0"})
    assert (list(dropped.steps), dropped.refused, dropped.deferred) == (["g0+1"], "", 0)


def test_an_array_that_shrank_or_may_have_more_at_once_is_changed_alone() -> None:
    shrunk = after(*TWO_ARRAYS, {"event": "shrunk", "step": "g0", "workers": 3})
    assert [step.workers for step in shrunk.arrays("g0")] == [3, 2]
    wider = after(*TWO_ARRAYS, {"event": "throttle", "step": "g0+1", "to": 5})
    assert [step.throttle for step in wider.arrays("g0")] == [2, 5]


def test_a_group_is_found_by_its_id() -> None:
    assert after().group("g1") is GROUPS[1]
    with pytest.raises(KeyError, match="g2"):
        after().group("g2")


def test_the_time_of_a_submission_is_that_of_the_line_with_its_job(tmp_path: Path) -> None:
    here = past(tmp_path, "20261120-1432-plan-aaaa", ended=False)
    with Appender(here.submission_file) as log:
        log.write({"event": "round", "round": 0, "time": 1.0, "groups": []})
        log.write({"event": "intent", "step": "g0", "group": "g0", "time": 2.0})
        log.write({"event": "submitted", "step": "g0", "job": "70", "time": 3.0})
        log.write({"event": "throttle", "step": "g0", "to": 4, "time": 4.0})
        log.write({"event": "handed", "step": "", "time": 5.0})
    assert submitted_at(here) == {"70": 3.0}


def test_lines_belong_to_the_round_that_was_started_last(tmp_path: Path) -> None:
    here = past(tmp_path, "20261120-1432-plan-aaaa", ended=False)
    with Appender(here.submission_file) as log:
        for number, excluded in enumerate(([], ["n1"])):
            started = {"round": number, "time": 5.0, "answered": 7 * number, "excluded": excluded}
            log.write({"event": "round", "groups": [asdict(GROUPS[1])], **started})
            log.write({"event": "intent", "step": f"g{number}", "group": "g1"})
    first, second = rounds(here)
    assert (list(first.steps), first.answered, first.excluded) == (["g0"], 0, ())
    assert (list(second.steps), second.answered, second.excluded) == (["g1"], 7, ("n1",))
    assert second.groups == (GROUPS[1],)


@pytest.mark.parametrize(
    ("kind", "member", "value"),
    [
        ("round", "groups", -1), ("round", "groups", [{"id": "g0"}]), ("round", "round", "1"),
        ("round", "time", None), ("round", "excluded", [1]), ("intent", "workers", "4"),
        ("intent", "step", None), ("submitted", "job", [1]), ("submitted", "process", {"pid": 1}),
    ],
)  # fmt: skip
def test_a_damaged_line_that_is_still_json_names_its_file(
    tmp_path: Path, kind: str, member: str, value: object
) -> None:
    scene = Scene(tmp_path)
    scene.submitted()
    path = scene.experiment.submission_file
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    next(line for line in lines if line["event"] == kind)[member] = value
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DamagedFile, match="submission.jsonl is damaged: "):
        rounds(scene.experiment)
