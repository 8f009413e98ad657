"""The history of results: written by many at once, made again from experiments, trends with their changes."""

from __future__ import annotations

import csv
import io
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import polars
import pytest

from hpcbench.cli.main import main
from hpcbench.comparison import history
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_atomic, write_json
from tests.unit.command import Cli
from tests.unit.comparison.judged import ended, speeds, wrong
from tests.unit.dying import Dying

NIGHTS = 20


def night(root: Path, number: int, template: Experiment, value: float) -> Experiment:
    """A further night like a template, with another score."""
    here = Experiment(root / "experiments" / f"2026{1100 + number:04d}-0200-x-aaaa")
    shutil.copytree(template.path, here.path)
    day = f"2026-{11 + number // 28:02d}-{1 + number % 28:02d}"
    write_json(
        here.manifest_file, {**read_json(template.manifest_file), "created": f"{day}T02:00:00+0000"}
    )
    metrics = read_json(here.metrics_file)
    metrics["run_tasks"]["rt"]["metrics"]["exact_match"]["value"] = value
    write_json(here.metrics_file, metrics)
    return Experiment(here.path)


def nights(root: Path, count: int = NIGHTS) -> list[Experiment]:
    """Half of them as good as ever, the rest worse."""
    template = ended(root / "making", "20260101-0200-x-aaaa", wrong(1))
    return [
        night(root, number, template, (0.9 if number < count // 2 else 0.8) + number % 2 / 100)
        for number in range(count)
    ]


def test_a_trend_is_in_order_of_time_and_shows_where_it_changed(tmp_path: Path) -> None:
    made = nights(tmp_path)
    for here in reversed(made):
        history.record(here)
    (found,) = history.trends(tmp_path, "exact_match")
    assert [point.experiment for point in found.points] == [here.id for here in made]
    (change,) = found.changes
    assert change.at == NIGHTS // 2
    assert change.before > change.after


@pytest.mark.long
def test_a_later_start_shows_fewer_points_and_the_same_changes(tmp_path: Path) -> None:
    for here in nights(tmp_path):
        history.record(here)
    (whole,) = history.trends(tmp_path, "exact_match")
    (change,) = whole.changes
    for first in (5, change.at):
        (part,) = history.trends(tmp_path, "exact_match", since=whole.points[first].time)
        assert part.points == whole.points[first:]
        moved = replace(change, at=change.at - first, seen=change.seen - first)
        assert part.changes == (moved,)
    (rest,) = history.trends(tmp_path, "exact_match", since=whole.points[change.at + 1].time)
    assert rest.changes == ()
    assert history.trends(tmp_path, "exact_match", since=whole.points[-1].time + 1) == []


def test_written_twice_it_counts_once_and_the_newest(tmp_path: Path) -> None:
    (here,) = nights(tmp_path, 1)
    history.record(here)
    metrics = read_json(here.metrics_file)
    metrics["run_tasks"]["rt"]["metrics"]["exact_match"]["value"] = 0.5
    write_json(here.metrics_file, metrics)
    history.put_together(history.results_dir(tmp_path))
    history.record(here)
    (found,) = history.trends(tmp_path, "exact_match")
    assert [point.value for point in found.points] == [0.5]


@pytest.mark.long
def test_many_at_once_lose_nothing_though_files_are_put_together_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LOOSE", 3)
    made = nights(tmp_path)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(history.record, made))
    (found,) = history.trends(tmp_path, "exact_match")
    assert len(found.points) == NIGHTS


@pytest.mark.long
def test_killed_anywhere_nothing_is_lost(tmp_path: Path) -> None:
    made = nights(tmp_path, 3)
    for here in made[:2]:
        history.record(here)
    for step in range(60):
        dying = Dying(step)
        with dying():
            history.record(made[2])
            history.put_together(history.results_dir(tmp_path))
        (found,) = history.trends(tmp_path, "exact_match")
        assert {here.id for here in made[:2]} <= {point.experiment for point in found.points}
        if not dying.dead:
            break
    assert len(found.points) == 3


def test_it_is_made_again_from_experiments_and_keeps_those_that_are_gone(tmp_path: Path) -> None:
    made = nights(tmp_path, 4)
    for here in made:
        history.record(here)
    shutil.rmtree(made[0].path)
    folder = history.results_dir(tmp_path)
    (folder / f"{made[1].id}.parquet").write_bytes(b"no parquet")
    reported: list[str] = []
    assert history.rebuild(tmp_path, reported.append) == 3
    (found,) = history.trends(tmp_path, "exact_match")
    assert len(found.points) == 4
    assert len(list(folder.iterdir())) == 1
    (folder / "torn.parquet").write_bytes(b"no parquet")
    history.rebuild(tmp_path, reported.append)
    assert any("is damaged" in line for line in reported)


def test_what_did_not_end_well_or_is_another_thing_is_no_point_of_a_trend(tmp_path: Path) -> None:
    made = nights(tmp_path, 4)
    write_json(made[0].outcome_file, {"version": 1, "round": 0, "state": "incomplete"})
    speeds(made[1], gpu="NVIDIA A100")
    for here in made:
        history.record(here)
    (quality,) = history.trends(tmp_path, "exact_match")
    assert len(quality.points) == 3
    speed = history.trends(tmp_path, "answers_per_s")
    assert sorted((one.signature, len(one.points)) for one in speed) == [
        ("NVIDIA A100", 1), ("NVIDIA H100", 2),
    ]  # fmt: skip


def test_times_of_batches_are_no_points_of_the_trend_of_single_requests(tmp_path: Path) -> None:
    """A plan that says no number was asked one at a time by an earlier version."""
    made = nights(tmp_path, 4)
    plan = made[3].resolved
    tasks = [one.model_copy(update={"at_once": 64}) for one in plan.run_tasks]
    write_atomic(
        made[3].resolved_file, plan.model_copy(update={"run_tasks": tuple(tasks)}).model_dump_json()
    )
    for here in made:
        history.record(Experiment(here.path))
    (quality,) = history.trends(tmp_path, "exact_match")
    assert len(quality.points) == 4
    speed = history.trends(tmp_path, "answers_per_s")
    assert sorted((one.signature, len(one.points)) for one in speed) == [
        ("NVIDIA H100", 3), ("NVIDIA H100, 64 at once", 1),
    ]  # fmt: skip


def test_a_file_of_an_older_version_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    (here,) = nights(tmp_path, 1)
    path = history.record(here)
    polars.read_parquet(path).drop("prompt", "hpcbench").write_parquet(path)
    assert len(history.trends(tmp_path, "exact_match")) == 1


@pytest.mark.parametrize("column", ["run_task", "created", "higher_is_better", "recorded", "model"])
def test_a_file_whose_rows_lack_a_value_is_written_again_from_its_experiment(
    tmp_path: Path, cli: Cli, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    (here,) = nights(tmp_path, 1)
    path = history.record(here)
    rows = polars.read_parquet(path)
    rows.with_columns(polars.lit(None).alias(column)).write_parquet(path)
    assert history.trends(tmp_path, "exact_match") == []
    assert f"{path} is damaged" in caplog.text
    (trend,) = cli.json("history", "exact_match", "--json")
    assert len(trend["points"]) == 1
    assert polars.read_parquet(path)[column].null_count() == 0


# --- the verb ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_verb_finds_what_was_not_recorded_and_shows_it(tmp_path: Path, cli: Cli) -> None:
    nights(tmp_path)
    assert "exact_match" in cli("history").split()
    out = cli("history", "exact_match")
    assert "plan / rt: exact_match ↑" in out
    (reported,) = (line for line in out.splitlines() if "◆ worse: 0.9" in line)
    assert "detected 2026-11-" in reported
    rows = list(csv.DictReader(io.StringIO(cli("history", "exact_match", "--csv"))))
    assert len(rows) == NIGHTS
    assert [row["change"] for row in rows].index("1") == NIGHTS // 2
    (trend,) = cli.json("history", "exact*", "--json", "--since", "2026-11-08", "--plan", "pl*")
    assert len(trend["points"]) == NIGHTS - 7
    (change,) = trend["changes"]
    assert set(change) == {"at", "before", "after", "seen"}
    assert change["at"] == NIGHTS // 2 - 7 < change["seen"] < NIGHTS - 7


@pytest.mark.long
def test_what_cannot_be_meant_is_said_in_a_line(tmp_path: Path, cli: Cli) -> None:
    nights(tmp_path, 2)
    for words, said in (
        (["exact_matsch"], "did you mean 'exact_match'?"),
        (["exact_match", "--since", "yesterday"], "a date such as 2026-11-01"),
        (
            ["exact_match", "--plot", "x.gif"],
            "--plot x.gif has another suffix than .svg, .png or .html",
        ),
        (["*", "--plot", "x.svg"], "FILE.html for all"),
        (["exact_match", "--plan", "none", "--plot", "x.svg"], "no values to plot"),
    ):
        assert said in cli.err("history", *words)


@pytest.mark.long
def test_it_can_be_drawn(tmp_path: Path) -> None:
    nights(tmp_path)
    for name in ("x.svg", "x.png", "x.html"):
        assert main(["history", "exact_match", "--plot", str(tmp_path / name)]) == 0
    assert (tmp_path / "x.svg").read_text().startswith("<")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "x.html").read_text()
    assert "<svg" in page
    assert "<table>" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_who_may_not_read_an_experiment_reads_none_of_its_scores(tmp_path: Path) -> None:
    """Merged files too: the rows of a private experiment do not get into a file of the others."""
    made = nights(tmp_path, 6)
    modes = [0o750, 0o750, 0o700, 0o700, 0o755, 0o755]
    for here, mode in zip(made, modes, strict=True):
        here.path.chmod(mode)
        history.record(here)

    def readers() -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for path in history.results_dir(tmp_path).glob("*.parquet"):
            ids = polars.read_parquet(path)["experiment"].to_list()
            found.setdefault(path.stat().st_mode & 0o777, set()).update(ids)
        return found

    ids = [here.id for here in made]
    wanted = {0o640: {*ids[:2]}, 0o600: {*ids[2:4]}, 0o644: {*ids[4:]}}
    assert readers() == wanted
    history.put_together(history.results_dir(tmp_path))
    assert readers() == wanted
    assert len(list(history.results_dir(tmp_path).glob("*.parquet"))) == 3
    (trend,) = history.trends(tmp_path, "exact_match")
    assert [point.experiment for point in trend.points] == ids


def test_a_rebuild_closes_what_an_earlier_version_left_open(tmp_path: Path) -> None:
    made = nights(tmp_path, 4)
    for here in made:
        here.path.chmod(0o750)
        history.record(here)
    folder = history.results_dir(tmp_path)
    history.put_together(folder)
    (merged,) = folder.glob("*.parquet")
    merged.chmod(0o644)
    assert history.rebuild(tmp_path) == 4
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.parquet")} == {0o640}
    (trend,) = history.trends(tmp_path, "exact_match")
    assert [point.experiment for point in trend.points] == [here.id for here in made]
