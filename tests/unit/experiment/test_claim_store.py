"""Claims as files, as the board asks for them."""

from __future__ import annotations

from pathlib import Path

from hpcbench.experiment.claim_store import ClaimStore
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.event_log import EventLog
from tests.unit.small import experiment, record, write_attempt


def test_what_earlier_runs_of_a_worker_claimed_is_known_from_their_events(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(number) for number in range(40)])
    for job, restart, index in (("1_0", 0, 3), ("1_0", 1, 5), ("1_0", 2, 7), ("1_1", 0, 9)):
        with EventLog(here.worker_events("g0", f"{job}-{restart}")) as log:
            log.write("started")
            log.write("shard_claimed", shard=f"rt/{index:05d}", attempt=1)
    again = ClaimStore(here, "g0", Owner("1_0", 2, "host", 1))
    assert again.left_behind() == {"rt": {3, 5}}
    assert ClaimStore(here, "g0", Owner("1_0", 0, "host", 1)).left_behind() == {}


def test_a_second_claim_of_an_attempt_misses_and_leaves_nothing(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(number) for number in range(8)])
    shard = here.work.shards[0]
    first, second = (ClaimStore(here, "g0", Owner(f"1_{place}", 0, "host", 1)) for place in (0, 1))
    taken = first.claim(shard, 1)
    assert taken is not None
    before = sorted(here.shards_dir("rt").iterdir())
    assert second.claim(shard, 1) is None
    assert sorted(here.shards_dir("rt").iterdir()) == before
    assert list(second.claimed("rt")) == [0]
    taken.abandon()


def test_answers_of_earlier_experiments_are_a_claim_if_they_are_all_or_a_worker_followed(
    tmp_path: Path,
) -> None:
    here = experiment(tmp_path, [record(number) for number in range(16)])
    for index, attempt, end in (
        (0, 0, "done"),
        (1, 0, "released"),
        (2, 0, "released"),
        (2, 1, "done"),
    ):
        write_attempt(here, index, attempt, [], end)
    assert sorted(ClaimStore(here, "g0", Owner("1_0", 0, "host", 1)).claimed("rt")) == [0, 2]


def test_the_attempt_that_is_claimed_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(number) for number in range(4)])
    (shard,) = here.work.shards_of(("rt",))
    for attempt in (1, 2, 3):
        taken = ClaimStore(here, "g0", Owner("7_0", 0, "n1", 1)).claim(shard, attempt)
        assert taken is not None and taken.attempt == attempt
        taken.end("drained")


def test_a_model_is_busy_while_other_workers_of_the_group_load_it_or_have_it(
    tmp_path: Path,
) -> None:
    here = experiment(tmp_path, [record(number) for number in range(4)])
    reported: dict[tuple[str, str], list[tuple[str, str | None]]] = {
        ("g0", "1_0-0"): [("model_loading", "own")],
        ("g0", "1_1-0"): [("model_loading", "a")],
        ("g0", "1_2-0"): [("model_loading", "b"), ("model_ready", "a"), ("shard_claimed", None)],
        ("g0", "1_3-0"): [("model_ready", "a"), ("finished", None)],
        ("g0", "1_4-0"): [("model_loading", "a"), ("model_failed", "a")],
        ("g0", "1_5-0"): [("model_ready", "b")],
        ("g1", "2_0-0"): [("model_ready", "a")],
    }
    for (group, worker), events in reported.items():
        with EventLog(here.worker_events(group, worker)) as log:
            for kind, model in events:
                log.write(kind, **({"model": model} if model else {}))  # type: ignore[arg-type]
    assert ClaimStore(here, "g0", Owner("1_0", 0, "host", 1)).busy() == {"a": 2, "b": 1}
