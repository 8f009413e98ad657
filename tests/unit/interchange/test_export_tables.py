"""Tables of experiments: every row once, whatever the workers left, with the times of `speed`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench import speed
from hpcbench.errors import RunFailed, UserError
from hpcbench.evaluation import stage
from hpcbench.experiment.archiving import fold
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view import answers
from hpcbench.experiment.view.answers import answer_frames
from hpcbench.files.atomic import Appender, write_json
from hpcbench.interchange import columns
from hpcbench.interchange.columns import TABLES, What, dtype
from hpcbench.interchange.result_tables import Table, Wanted, open_table
from hpcbench.schema.records import Response, Times
from tests.campaign import examples
from tests.conftest import ROOT
from tests.unit.small import experiment, record, response, write_attempt


def whole(table: Table) -> polars.DataFrame:
    """All rows."""
    frames = list(table.frames())
    return polars.concat(frames) if frames else polars.DataFrame(schema=dict(table.schema))


def rows(here: Experiment | Sequence[Experiment], what: What = "responses", **more: Any) -> Any:
    """A table's rows; notes go nowhere."""
    some = [here] if isinstance(here, Experiment) else here
    return whole(open_table(some, Wanted(what, **more), lambda line: None))


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """Eight samples in two shards; the first had two attempts, and one sample has no answer."""
    here = experiment(tmp_path, [record(n) for n in range(8)])
    write_attempt(here, 0, 1, [response("s0", "0"), response("s1", "wrong")], "failed")
    write_attempt(here, 0, 2, [response("s1", "1"), response("s2", "2"), response("s3", None)])
    write_attempt(here, 1, 1, [response(f"s{n}", str(n)) for n in range(4, 8)])
    return here


def test_each_sample_is_reported_once_and_the_lower_attempt_counts(here: Experiment) -> None:
    found = rows(here)
    assert found["sample"].to_list() == [f"s{n}" for n in range(8)]
    assert found["answer"].to_list()[:2] == ["0", "wrong"]
    assert found["attempt"].to_list() == [1, 1, 2, 2, 1, 1, 1, 1]
    assert found["shard"].to_list() == [0] * 4 + [1] * 4
    assert found["experiment"].unique().to_list() == [here.id]


def test_a_shard_larger_than_a_block_is_reported_the_same(
    here: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(here)
    monkeypatch.setattr(answers, "BLOCK", 300)
    assert rows(here).equals(before)
    assert len(list(answer_frames(here, "rt", lambda path, lines: None))) > 2


def test_folded_files_are_read_like_loose_ones(here: Experiment) -> None:
    before = {what: rows(here, what) for what in ("responses", "events")}
    assert fold(here, "rt")
    for what, found in before.items():
        assert rows(here, what).equals(found)  # type: ignore[arg-type]


def test_damaged_lines_are_left_out_and_counted(here: Experiment) -> None:
    path = here.shard_responses("rt", 1, 1)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = b'{"sample_id":"s4","outc\n'
    lines[1] = b"\0" * 40 + b"\n"
    lines[2] = json.dumps({**json.loads(lines[2]), "outcome": "splendid"}).encode() + b"\n"
    path.write_bytes(b"".join(lines) + b'{"sample_id":"torn')
    table = open_table([here], Wanted("responses"), lambda line: None)
    assert whole(table)["sample"].to_list() == ["s0", "s1", "s2", "s3", "s7"]
    assert dict(table.damaged) == {
        str(path): 3
    }  # a torn last line is no damage: its worker was killed


def test_half_a_surrogate_pair_is_written_as_its_escape(here: Experiment) -> None:
    path = here.shard_responses("rt", 1, 1)
    with Appender(path.with_name("00001.2.responses.jsonl")) as file:
        file.write(response("s9", "smile \ud83d!").to_json())
    write_attempt(here, 1, 2, [])
    assert rows(here).filter(sample="s9")["answer"].item() == "smile \\ud83d!"


def test_what_hpcbench_did_not_ask_has_no_times(here: Experiment) -> None:
    path = here.shard_responses("rt", 1, 1)
    path.write_bytes(b"")
    with Appender(path) as file:
        file.write(
            response("s4", "4", tries=0, times=Times(0, 0, None, (), 0), usage=None).to_json()
        )
    found = rows(here, columns=["*_ms", "*_ns", "chunk_ms", "prompt_tokens"]).tail(1)
    assert found.null_count().row(0) == (1,) * found.width


stamps = st.integers(0, 2**40)


@st.composite
def responses(draw: st.DrawFn) -> Response:
    """A response with any times in order, as a worker could have written it."""
    start, send, first = sorted(draw(st.lists(stamps, min_size=3, max_size=3)))
    chunks = tuple(sorted(draw(st.lists(st.integers(first, first + 2**34), max_size=5))))
    outcome = draw(st.sampled_from(["ok", "truncated", "refused", "invalid", "failed"]))
    counted = draw(st.booleans()) and bool(chunks)
    tokens = sorted(draw(st.lists(st.integers(1, 9), min_size=len(chunks), max_size=len(chunks))))
    count = st.integers(0, 99)
    usage = draw(
        st.none()
        | st.fixed_dictionaries({"prompt_tokens": count}, optional={"completion_tokens": count})
    )
    return response(
        "s0",
        draw(st.none() | st.text()),
        outcome=outcome,
        usage=usage,
        tries=draw(st.integers(1, 3)),
        times=Times(
            start,
            send,
            draw(st.none() | st.just(first)),
            chunks,
            max((first, *chunks)),
            scheduled=draw(st.none() | stamps),
            empty=tuple(sorted(draw(st.lists(st.integers(send, first + 2**34), max_size=2)))),
            tokens=tuple(tokens) if counted else (),
        ),
    )


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(responses(), st.booleans())
def test_times_are_those_of_speed(
    tmp_path_factory: pytest.TempPathFactory, one: Response, damaged: bool
) -> None:
    here = experiment(tmp_path_factory.mktemp("e"), [record(0)])
    write_attempt(here, 0, 1, [one])
    if damaged:
        with here.shard_responses("rt", 0, 1).open("ab") as file:
            file.write(b"{}\n")
    (row,) = rows(here, columns=["*", "chunk_ms"]).rows(named=True)
    answered = one.outcome in ("ok", "truncated")
    for name, latency in speed.LATENCIES.items():
        expected = latency(one) if answered else None
        assert row[name] == (None if expected is None else pytest.approx(expected, abs=1e-6)), name
    assert row["chunk_ms"] == [
        pytest.approx((at - one.times.send) / 1e6) for at in one.times.chunks
    ]
    assert row["done_ms"] == pytest.approx((one.times.done - one.times.send) / 1e6)
    assert row["completion_tokens"] == (one.usage or {}).get("completion_tokens")
    assert row["answer"] == one.text


def test_scores_are_a_row_a_sample_with_its_metrics(here: Experiment) -> None:
    stage.evaluate(here)
    found = rows(here, "scores")
    assert found["exact_match"].to_list() == [1, 0, 1, 0, 1, 1, 1, 1]
    assert found["references"].to_list()[3] == ["3"]
    assert found["model"].to_list() == ["m"] * 8
    assert "exact_match.numerator" not in found.columns
    assert "exact_match.numerator" in rows(here, "scores", columns=["*"]).columns


def test_rows_are_chosen_by_any_column(here: Experiment) -> None:
    stage.evaluate(here)
    assert rows(here, "scores", where="exact_match < 1")["sample"].to_list() == ["s1", "s3"]
    assert rows(here, "responses", where="'wrong' in answer")["sample"].to_list() == ["s1"]
    assert rows(here, "events", where="kind == 'failed' and shard == 0").height == 1
    assert rows(here, "metrics", where="metric == 'exact_match' and kind == 'score'").height == 1


def test_a_missing_value_compares_with_nothing_and_is_reported(here: Experiment) -> None:
    stage.evaluate(here)
    notes: list[str] = []
    table = open_table([here], Wanted("responses", where="ttft_ms > 0"), notes.append)
    assert whole(table).height == 7  # the failed one has no latency
    assert notes == [
        "1 rows lack a value that the filter compares, and are left out: where 'ttft_ms > 0': "
        "'>' not supported between instances of 'NoneType' and 'int'"
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"where": "speed >"}, "is not a valid expression"),
        ({"where": "sped > 1"}, "'sped' is undefined"),
        ({"where": "sample + 1"}, "can only concatenate str"),
        ({"columns": ["anser"]}, "did you mean 'answer'"),
        ({"run_tasks": ["rtt"]}, "did you mean 'rt'"),
    ],
)
def test_a_wrong_wish_is_one_line(here: Experiment, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        rows(here, "responses", **more)


def test_metrics_have_their_intervals(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(n) for n in range(40)])
    write_attempt(here, 0, 1, [response(f"s{n}", str(n)) for n in range(4)])
    stage.evaluate(here)
    found = rows(here, "metrics")
    score = found.filter(kind="score").row(0, named=True)
    reported = json.loads(here.metrics_file.read_text())["run_tasks"]["rt"]["metrics"][
        "exact_match"
    ]
    for name in ("value", "low", "high", "n", "signature"):
        assert score[name] == reported[name]
    assert score["coverage"] == 0.1
    assert {"ttft_ms", "answers_per_s"} & set(found.filter(kind="speed")["metric"])


def test_events_are_reported_with_their_logs(here: Experiment) -> None:
    with Appender(here.worker_events("g0", "4711_0-1")) as file:
        file.write({"event": "alarm", "seq": 1, "time": 1.5, "what": "=evil", "run_task": "rt"})
    found = rows(here, "events")
    worker = found.filter(source="workers/g0.4711_0-1").row(0, named=True)
    assert (worker["group"], worker["worker"], worker["sort"]) == ("g0", "4711_0-1", "warning")
    assert worker["time"].timestamp() == 1.5
    assert json.loads(worker["details"]) == {"run_task": "rt", "what": "=evil"}
    shard = found.filter(source="shards/rt/00000.2")
    assert shard["kind"].to_list() == ["claimed", "done"]
    assert shard["attempt"].to_list() == [2, 2]


def test_resources_are_reported_of_experiment_run_task_and_job(here: Experiment) -> None:
    hours = {
        "run_task": "rt",
        "model": "m",
        "unit": "GPU",
        "allocated": 0.5,
        "used": 0.25,
        "idle": 0.25,
    }
    write_json(
        here.usage_file,
        {
            "version": 1,
            "source": "slurm",
            "hours": [hours],
            "energy_wh": 12.5,
            "energy_source": "slurm",
        },
    )
    owner = {"job": "4711_0", "restart": 1, "node": "n1"}
    with Appender(here.worker_events("g0", "4711_0-1")) as file:
        file.write({"event": "started", "seq": 1, "time": 100.0, "owner": owner})
        file.write({"event": "finished", "seq": 2, "time": 160.0})
    stage.evaluate(here)
    found = {row["scope"]: row for row in rows(here, "resources").rows(named=True)}
    assert found["experiment"]["energy_wh"] == 12.5
    assert found["run_task"]["allocated_s"] == 1800
    assert found["run_task"]["used_s"] == found["run_task"]["idle_s"] == 900
    assert found["run_task"]["loading_s"] is None  # not known is not nothing
    job = found["job"]
    gpus = here.work.groups[0].gpus
    assert (job["node"], job["seconds"], job["allocated_s"]) == ("n1", 60, 60 * gpus)


def test_requests_for_tokens_are_reported_by_worker_and_kind(here: Experiment) -> None:
    assert rows(here, "token_refresh_metrics").height == 0
    model = here.resolved.run_tasks[0].model.name
    owner = {"job": "4711_0", "restart": 1, "node": "n1"}
    token = {
        "event": "token", "model": model, "granted": {"full_auth": 1, "cache": 4},
        "failed": {"full_auth": 2}, "seconds": {"full_auth": 1.5, "cache": 0.1}, "longest": 0.75,
        "fallbacks": 1, "rejected": 3, "waits": 7, "wait_seconds": 2.5, "age": 12.0,
    }  # fmt: skip
    with Appender(here.worker_events("g0", "4711_0-1")) as file:
        file.write({"event": "started", "seq": 1, "time": 100.0, "owner": owner})
        file.write({**token, "seq": 2, "time": 110.0, "granted": {"full_auth": 1}})
        file.write({**token, "seq": 3, "time": 120.0})
    found = {
        row["refresh_type"]: row for row in rows(here, "token_refresh_metrics").rows(named=True)
    }
    assert set(found) == {"cache", "full_auth"}
    whole = found["full_auth"]
    assert (whole["refreshes"], whole["failures"], whole["duration_s"]) == (1, 2, 1.5)
    assert (whole["worker"], whole["node"], whole["model"]) == ("4711_0-1", "n1", model)
    assert (whole["fallbacks"], whole["rejected"], whole["waits"]) == (1, 3, 7)
    assert (whole["token_age_s"], whole["time"].timestamp()) == (12.0, 120.0)
    assert (found["cache"]["refreshes"], found["cache"]["failures"]) == (4, 0)


def test_of_all_experiments_a_broken_one_is_left_out_and_reported(
    tmp_path: Path, here: Experiment
) -> None:
    other = Experiment(here.path.with_name("20261121-0000-broken-aaaa"))
    other.path.mkdir()
    other.manifest_file.write_text("{}")
    stage.evaluate(here)
    notes: list[str] = []
    table = open_table([here, other], Wanted("scores"), notes.append)
    assert whole(table).height == 8
    assert len(notes) == 1
    assert other.id in notes[0]


def test_one_experiment_without_scores_says_how_to_get_them(here: Experiment) -> None:
    with pytest.raises(RunFailed, match="hpcbench score"):
        rows(here, "scores")


@pytest.mark.parametrize("what", list(TABLES))
def test_every_column_has_the_type_and_the_words_of_the_docs(here: Experiment, what: What) -> None:
    stage.evaluate(here)
    found = rows(here, what, columns=["*"]).schema
    for column in TABLES[what]:
        if columns.is_pattern(column):
            ending = column.name.replace("METRIC", "")
            names = [
                name for name in found if name.startswith("exact_match") and name.endswith(ending)
            ]
            if column.name == "METRIC":
                names = ["exact_match"]
            assert all(found[name] == dtype(column.kind) for name in names), column
        else:
            assert found[column.name] == dtype(column.kind), column
    assert columns.markdown() in (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
