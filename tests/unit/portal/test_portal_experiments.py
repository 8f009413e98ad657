"""Lists, the page of an experiment and the palette, by real requests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.follower import Follower
from hpcbench.portal.index import open_index
from hpcbench.portal.state_sentence import sentence
from hpcbench.status import Eta, ExperimentStatus, GpuUse, ShardCounts, WorkerStatus
from tests.unit.past import past, takes
from tests.unit.portal.rows import entry, run_task
from tests.unit.portal.test_portal_index_entries import evaluated, table
from tests.unit.portal.unguarded import Unguarded, unguarded
from tests.unit.small import run_task as planned


def experiment(home: Path, name: str, *tasks: str) -> Experiment:
    """One that has ended, with scores."""
    here = past(home, name, *(planned(task, model={"name": f"model-{task}"}) for task in tasks))
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[asdict(one) for one in here.work.groups])
        log.write("handed")
    for task in tasks:
        for shard in range(4):
            answered = range(10 * shard, 10 * shard + 10)
            takes(here, ("17_0", 0), shard, 100.0, 160.0, answered, name=task)
    evaluated(here, **{task: table(0.5 + number / 10) for number, task in enumerate(tasks)})
    return here


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    home = tmp_path_factory.mktemp("home")
    for number in range(7):
        experiment(home, f"2026112{number}-1432-plan-aaa{number}", "a", "b")
    damaged = experiment(home, "20261101-0000-plan-dddd", "a")
    damaged.resolved_file.write_text("{")
    index = open_index(f"sqlite:///{tmp_path_factory.mktemp('index') / 'x.sqlite'}", home)
    found = Portal(home, Options(home), index, Hub())
    follower = Follower(found)
    while not follower._whole.is_set():
        follower.round()
    yield found
    follower.stop()
    index.close()


@pytest.fixture(scope="module")
def api(portal: Portal) -> Iterator[Unguarded]:
    with unguarded(portal) as found:
        yield found


NEWEST = "20261126-1432-plan-aaa6"


def get(api: Unguarded, path: str, **query: object) -> object:
    """The body of an answer that went well."""
    answer = api.ask("GET", f"{path}?{urlencode(query, doseq=True)}")
    assert answer.status == 200, answer.body
    return answer.body


def test_experiments_come_newest_first_and_page_by_page(api: Unguarded) -> None:
    first = api.ask("GET", "experiments?limit=5").body
    rest = api.ask("GET", f"experiments?limit=5&after={quote(first['next'])}").body
    found = [row["id"] for row in (*first["items"], *rest["items"])]
    assert found[0] == NEWEST
    assert found[-1] == "20261101-0000-plan-dddd"
    assert len(found) == len(set(found)) == first["total"] == 8
    assert rest["next"] is None


def test_filters_and_facets(api: Unguarded) -> None:
    answer = api.ask("GET", "experiments?state=unreadable&state=lost").body
    assert [row["state"] for row in answer["items"]] == ["unreadable"]
    assert (
        api.ask("GET", "experiments?model=model-a&dataset=d&plan=plan&text=AAA6").body["total"] == 1
    )
    facets = {one["field"]: one["counts"] for one in api.ask("GET", "experiments/facets").body}
    assert facets["state"] == [["done", 7], ["unreadable", 1]]
    tasks = api.ask("GET", f"run-task-facets?experiment={NEWEST}").body
    assert {one["field"]: one["counts"] for one in tasks}["model"] == [
        ["model-a", 1],
        ["model-b", 1],
    ]


def test_run_tasks_of_one_and_of_all(api: Unguarded) -> None:
    own = api.ask("GET", f"experiments/{NEWEST}/run-tasks?sort=score&order=desc").body
    assert [row["name"] for row in own["items"]] == ["b", "a"]
    assert own["items"][0]["latency_p95"] == 2.5
    every = api.ask("GET", "run-tasks?model=model-b&limit=200").body
    assert every["total"] == 7
    assert every["items"][0]["experiment"] == NEWEST


def test_the_page_of_an_experiment(api: Unguarded) -> None:
    found = api.ask("GET", f"experiments/{NEWEST}").body
    assert found["row"]["id"] == found["status"]["id"] == NEWEST
    assert found["sentence"] == "All 2 run tasks done."
    (matrix,) = found["matrices"]
    assert [row["model"] for row in matrix["rows"]] == ["model-a", "model-b"]
    assert matrix["rows"][1]["cells"][0]["score"]["value"] == 0.6
    assert len(found["row"]["trend"]) == 7


def test_kept_answers_are_those_of_the_index_and_the_report_as_they_are(
    api: Unguarded, portal: Portal
) -> None:
    before = api.ask("GET", "experiments?limit=3").body
    assert api.raw("GET", "experiments?limit=3", Accept_Encoding="gzip").headers[
        "content-encoding"
    ] == ("gzip")
    assert api.ask("GET", "experiments?limit=3").body == before
    portal.index.put([entry("newer", [run_task(experiment="newer")], created=1e10)])
    assert api.ask("GET", "experiments?limit=3").body["items"][0]["id"] == "newer"
    portal.index.remove(["newer"])
    assert api.ask("GET", "experiments?limit=3").body == before
    assert api.ask("GET", f"experiments/{NEWEST}").body["reports"] == []
    folder = Experiment(portal.home / "experiments" / NEWEST).report_dir
    folder.mkdir()
    (folder / "report.html").write_text("x")
    assert api.ask("GET", f"experiments/{NEWEST}").body["reports"] == ["report.html"]
    shutil.rmtree(folder)


def test_the_page_of_one_that_cannot_be_read(api: Unguarded) -> None:
    found = api.ask("GET", "experiments/20261101-0000-plan-dddd").body
    assert found["status"] is None
    assert "cannot be read" in found["sentence"]
    assert found["matrices"] == []


def test_shards_of_a_run_task(api: Unguarded) -> None:
    first = api.ask("GET", f"experiments/{NEWEST}/objects/a?limit=3").body
    rest = api.ask("GET", f"experiments/{NEWEST}/objects/a?limit=3&after={first['next']}").body
    assert [one["index"] for one in (*first["items"], *rest["items"])] == [0, 1, 2, 3]
    assert first["items"][0]["state"] == "done"
    assert first["total"] == 4
    assert rest["next"] is None


def test_the_palette(api: Unguarded) -> None:
    assert api.ask("GET", "search?text=aaa6").body[0]["experiment"] == NEWEST
    hits = api.ask("GET", "search?text=model&limit=1").body
    assert [(hit["kind"], hit["count"]) for hit in hits] == [("model", 7)]


@pytest.mark.parametrize(
    "path",
    ["experiments", "experiments/facets", f"experiments/{NEWEST}", f"experiments/{NEWEST}/run-tasks",
     "run-tasks", "run-task-facets", "search?text=a"],
)  # fmt: skip
def test_who_has_the_newest_answer_gets_none(api: Unguarded, portal: Portal, path: str) -> None:
    first = api.ask("GET", path)
    again = api.ask("GET", path, If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, None)
    assert "no-cache" in first.headers["cache-control"]
    row = portal.index.experiment(NEWEST)
    assert row is not None
    portal.index.put(
        [
            entry(
                "other",
                [run_task(experiment="other")],
                updated=row.updated + portal.index.version(),
            )
        ]
    )
    changed = api.ask("GET", path, If_None_Match=first.headers["etag"])
    assert changed.status == (304 if NEWEST in path else 200)
    portal.index.remove(["other"])


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("experiments?after=nonsense", 400, "bad_request"),
        ("experiments?after=%00", 400, "bad_request"),
        ("run-tasks?after=bm9uZQ", 400, "bad_request"),
        (f"experiments/{NEWEST}/objects/a?after=-1", 400, "bad_request"),
        (f"experiments/{NEWEST}/objects/a?after=99999999999999999999", 400, "bad_request"),
        (f"experiments/{NEWEST}/objects/none", 404, "not_found"),
        ("experiments/none", 404, "not_found"),
        ("experiments/none/run-tasks", 404, "not_found"),
        ("experiments/..%2F..%2Fetc/run-tasks", 404, "not_found"),
        ("experiments/%00", 404, "not_found"),
        (f"experiments/{'x' * 300}", 422, "bad_request"),
        ("experiments?sort=body", 422, "bad_request"),
        ("experiments?limit=1000", 422, "bad_request"),
        (f"experiments?text={'x' * 300}", 422, "bad_request"),
        ("search", 422, "bad_request"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked(api: Unguarded, path: str, status: int, code: str) -> None:
    answer = api.ask("GET", path)
    assert answer.status == status, answer.body
    assert answer.body["code"] == code


def test_hostile_texts_are_only_texts(api: Unguarded) -> None:
    for text in ("%00", "%ED%A0%80", "'%20OR%201=1", "%25", "_", "%F0%9F%98%80", "%5C"):
        for path in ("experiments?text=", "run-tasks?model=", "search?text=", "experiments?plan="):
            assert api.ask("GET", path + text).status == 200


def test_one_that_is_there_and_not_read_yet_is_asked_for_again(
    api: Unguarded, portal: Portal
) -> None:
    write_json(past(portal.home, "20261231-0000-plan-new1").outcome_file, {})
    answer = api.ask("GET", "experiments/20261231-0000-plan-new1")
    assert (answer.status, answer.body["code"]) == (503, "busy")


# --- the sentence -----------------------------------------------------------------------------------------


def status(**more: object) -> ExperimentStatus:
    values: dict[str, object] = {
        "time": 1.0, "id": "e1", "state": "running", "path": "/x", "executor": "slurm", "round": 1,
        "samples": 1, "max_resubmits": 2, "answered": 1, "shards": ShardCounts(), "run_tasks": (), **more,
    }  # fmt: skip
    return ExperimentStatus(**values)


def test_a_sentence_says_what_is_done_when_and_how_busy_it_is() -> None:
    row = entry(state="running", run_tasks=[run_task(str(number)) for number in range(200)]).row
    row = row.model_copy(update={"tasks_by_state": {"done": 132, "failed": 3, "running": 65}})
    gpus = tuple(GpuUse(gpu=number, utilisation=71.0) for number in range(4))
    worker = WorkerStatus(
        id="1-0", group="g0", job="1", node="n", state="working", since=0.0, heard=0.0, gpus=gpus
    )
    eta = Eta(low=1000.0 - 300, likely=1000.0, high=1000.0 + 360, confidence=0.8, text="")
    said = sentence(row, status(eta=eta, workers=(worker,)), now=1000.0)
    assert said.startswith("132 of 200 run tasks done, 3 failed, done about ")
    assert said.endswith(" ± 6 min, 4 GPUs 71 % busy.")


def test_a_sentence_says_the_day_where_it_is_another() -> None:
    row = entry(state="running").row.model_copy(update={"tasks_by_state": {"running": 1}})
    eta = Eta(low=3e5, likely=3.2e5, high=4e5, confidence=0.8, waits=True, text="")
    said = sentence(row, status(eta=eta), now=0.0)
    assert " Jan " in said
    assert "h after its jobs start." in said


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("pending", "0 of 1 run task done, waiting for Slurm."),
        ("paused", "0 of 1 run task done, paused."),
        ("lost", "0 of 1 run task done, all its jobs have disappeared."),
        ("cancelled", "0 of 1 run task done, cancelled."),
    ],
)
def test_a_sentence_says_why_nothing_happens(state: str, said: str) -> None:
    row = entry(state=state).row.model_copy(update={"tasks_by_state": {"pending": 1}})
    assert sentence(row, None) == said


def test_a_sentence_that_was_cut_ends_with_the_mark_of_the_cut() -> None:
    row = entry(state="failed").row.model_copy(update={"tasks_by_state": {"pending": 1}})
    said = sentence(row, status(reason="its engine said that a file is not fu …"))
    assert said.endswith("not fu …")
