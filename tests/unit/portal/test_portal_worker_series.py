"""Events of workers and readings of their monitors: timelines, strips, causes, read piece by piece."""

from __future__ import annotations

import gc
import gzip
import json
import weakref
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.archiving import fold_workers
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import Lost
from hpcbench.experiment.view.workers import settled
from hpcbench.files import tail
from hpcbench.files.atomic import Appender
from hpcbench.portal import worker_series as room
from hpcbench.portal.models.run_tasks import Phase
from hpcbench.portal.resource_series import card_gb, packed_resources, resources
from hpcbench.portal.timeline import timeline, troubles
from hpcbench.portal.worker_series import Workers, groups_of
from tests.unit.portal.asking import portal_over
from tests.unit.scene import Scene

GPU = {"gpu": 0, "used": 40 * 2**30, "utilisation": 73, "celsius": 61, "watts": 301.5}


def said(scene: Scene, *events: tuple[float, str, dict[str, Any]], job: str = "4711_0") -> None:
    """A worker's events, seconds after the beginning of the scene's last hour."""
    path = scene.experiment.worker_events("g0", f"{job}-0")
    owner = {"job": job, "restart": 0, "host": "h", "pid": 1, "node": "n1"}
    with Appender(path) as log:
        for number, (at, kind, details) in enumerate(events, 1):
            more = {"owner": owner} if kind == "started" else {}
            log.write({"event": kind, "seq": number, "time": at, **more, **details})


def seen(scene: Scene, *readings: dict[str, Any], job: str = "4711_0") -> None:
    with Appender(scene.experiment.worker_monitor("g0", f"{job}-0")) as log:
        for reading in readings:
            log.write(reading)


LIFE: tuple[tuple[float, str, dict[str, Any]], ...] = (
    (100.0, "started", {}),
    (110.0, "model_loading", {"model": "model-a"}),
    (170.0, "model_ready", {"model": "model-a", "seconds": 60,
                            "hardware": {"gpus": ["NVIDIA A100-SXM4-80GB"]}}),
    (171.0, "shard_claimed", {"shard": "a/00000", "attempt": 1}),
    (176.0, "progress", {"shard": "a/00000", "answered": 5}),
    (181.0, "shard_claimed", {"shard": "a/00001", "attempt": 1}),
    (191.0, "finished", {}),
)  # fmt: skip


def lived(root: Path, *events: tuple[float, str, dict[str, Any]]) -> Scene:
    scene = Scene(root)
    scene.submitted(ago=scene.now - 50.0)
    said(scene, *(events or LIFE))
    return scene


def phases(experiment: Experiment, *, ended: bool = True) -> list[tuple[str, float, float | None]]:
    reported: tuple[Phase, ...] = timeline(
        experiment, "a", "model-a", Workers(experiment).look()[0], ended=ended
    )
    return [(one.what, one.begin, one.end) for one in reported]


# --- timeline -----------------------------------------------------------------------------------------


def test_a_timeline_goes_from_the_queue_to_the_end(tmp_path: Path) -> None:
    assert phases(lived(tmp_path).experiment) == [
        ("queued", 50.0, 100.0),
        ("starting", 100.0, 110.0),
        ("loading", 110.0, 170.0),
        ("inference", 171.0, 191.0),
        ("ended", 191.0, 191.0),
    ]


def test_what_still_goes_on_has_no_end(tmp_path: Path) -> None:
    scene = lived(tmp_path, *LIFE[:-1])
    assert phases(scene.experiment, ended=False)[-1] == ("inference", 171.0, None)


def test_of_a_worker_that_was_killed_the_last_word_is_the_end(tmp_path: Path) -> None:
    scene = lived(tmp_path, *LIFE[:5])
    assert phases(scene.experiment)[-1] == ("inference", 171.0, 176.0)


def test_workers_that_did_nothing_for_the_run_task_are_not_in_it(tmp_path: Path) -> None:
    scene = lived(tmp_path)
    said(scene, (120.0, "started", {}), (130.0, "finished", {}), job="4711_1")
    reported = timeline(
        scene.experiment, "a", "model-a", Workers(scene.experiment).look()[0], ended=True
    )
    assert {one.worker for one in reported} == {"g0", "g0.4711_0-0"}


def test_evaluation_ends_when_the_scores_are_written(tmp_path: Path) -> None:
    scene = lived(tmp_path)
    log = scene.experiment.jobs_dir / "4712_0_log.out"
    log.parent.mkdir()
    log.write_text("submitit INFO (1970-01-02 00:00:00,500) - Starting\n")
    scene.experiment.metrics_file.write_text("{}")
    what, begin, end = phases(scene.experiment)[-1]
    assert what == "evaluation"
    assert begin % 1 == 0.5
    assert end == scene.experiment.metrics_file.stat().st_mtime


def test_folded_workers_tell_the_same(tmp_path: Path) -> None:
    scene = lived(tmp_path)
    before = phases(scene.experiment)
    assert fold_workers(scene.experiment, all_ended=True)
    assert not list(scene.experiment.workers_dir.glob("*.events.jsonl"))
    assert phases(scene.experiment) == before


def test_groups_of_a_run_task_are_those_of_all_rounds(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": 10, "b": 10})
    scene.submitted()
    assert groups_of(scene.experiment, "a") <= {one.id for one in scene.experiment.work.groups}
    assert not groups_of(scene.experiment, "nothing")


# --- causes -------------------------------------------------------------------------------------------


def test_what_went_wrong_is_reported_by_cause_with_samples_that_have_no_answer(
    tmp_path: Path,
) -> None:
    scene = lived(
        tmp_path,
        *LIFE[:3],
        (180.0, "shard_failed", {"shard": "a/00000", "message": "disk 7 gone"}),
        (181.0, "shard_failed", {"shard": "a/00001", "message": "disk 8 gone"}),
        (182.0, "shard_failed", {"shard": "b/00001", "message": "another's"}),
        (183.0, "engine_died", {"model": "model-a", "message": "out of memory"}),
    )
    found = Workers(scene.experiment).look()[0]
    errors = [Lost(outcome="failed", message="timeout", count=5)]
    reported = [(one.kind, one.count, one.cause) for one in troubles(found, "a", "model-a", errors)]
    assert reported == [
        ("answers", 5, "failed: timeout"),
        ("shard_failed", 2, "disk 8 gone"),
        ("engine_died", 1, "out of memory"),
    ]


# --- strips -------------------------------------------------------------------------------------------


def test_strips_have_what_the_monitor_saw_and_what_there_is_of_it(tmp_path: Path) -> None:
    scene = lived(tmp_path)
    seen(
        scene,
        {"time": 172.0, "held": 2**30, "cpu": 1.0, "gpus": [GPU]},
        {"time": 174.0, "held": 2**31, "cpu": 4.0, "gpus": [GPU]},
    )
    found = resources(scene.experiment, Workers(scene.experiment))
    strips = {one.what: one for one in found.strips}
    assert list(strips) == [
        "gpu_use", "gpu_memory", "gpu_power", "gpu_temperature", "host_memory", "cpu", "rate",
    ]  # fmt: skip
    assert (strips["gpu_memory"].values, strips["gpu_memory"].limit) == ((40.0, 40.0), 80.0)
    assert strips["cpu"].values == (1.5,)
    assert strips["rate"].values == (
        1.0,
        1.0,
        1.0,
    )  # ten samples a shard: 5 in 5 s, 5 in 5 s, 10 in 10 s
    assert found.until == 191.0
    assert [text for _, text in found.marks] == [
        "g0.4711_0-0: model-a loads", "g0.4711_0-0: model-a is ready",
    ]  # fmt: skip


def test_asking_again_gives_only_what_came_since(tmp_path: Path) -> None:
    scene = lived(tmp_path)
    watched = Workers(scene.experiment)
    seen(scene, {"time": 172.0, "held": 2**30})
    until = resources(scene.experiment, watched).until
    assert until == 191.0
    seen(scene, {"time": 300.0, "held": 2**32})
    later = resources(scene.experiment, watched, since=until)
    assert [(one.what, one.times, one.values) for one in later.strips] == [
        ("host_memory", (300.0,), (4.0,))
    ]
    assert later.marks == ()


def test_only_workers_of_the_run_task_are_read(tmp_path: Path) -> None:
    scene = lived(tmp_path)
    seen(scene, {"time": 172.0, "held": 2**30})
    assert resources(scene.experiment, Workers(scene.experiment), "a").strips
    assert not resources(scene.experiment, Workers(scene.experiment), "b").strips


def test_a_look_that_was_too_short_goes_on_at_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = lived(tmp_path)
    seen(scene, *({"time": 200.0 + number, "held": 2**30} for number in range(500)))
    monkeypatch.setattr(room, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(tail, "BLOCK", 2000)
    watched, looks = Workers(scene.experiment), 1
    while (found := resources(scene.experiment, watched)).partial:
        looks += 1
    assert looks > 5
    assert found.until == 699.0


def test_what_is_remembered_of_workers_is_bounded_as_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = [lived(tmp_path / name) for name in "ab"]
    for scene in scenes:
        seen(scene, *({"time": 200.0 + number, "held": 2**30} for number in range(500)))
    monkeypatch.setattr(room, "KEPT_BYTES", 20_000)
    portal = portal_over(tmp_path)
    readers = []
    for scene in scenes:
        readers.append(room.workers_of(portal, scene.experiment))
        assert room.workers_of(portal, scenes[0].experiment) is readers[0], "there is room yet"
        room.workers_of(portal, scene.experiment).look(monitors=True)
        assert 10_000 < readers[-1].bytes < 20_000
    assert room.workers_of(portal, scenes[1].experiment) is readers[1]
    assert room.workers_of(portal, scenes[0].experiment) is not readers[0]


def test_a_fold_in_between_loses_nothing(tmp_path: Path) -> None:
    scene = lived(tmp_path, *LIFE[:5])
    watched = Workers(scene.experiment)
    seen(scene, {"time": 172.0, "held": 2**30})
    resources(scene.experiment, watched)
    seen(scene, {"time": 182.0, "held": 2**31})
    assert fold_workers(scene.experiment, all_ended=True)
    found = resources(scene.experiment, watched)
    (memory,) = [one for one in found.strips if one.what == "host_memory"]
    assert memory.times == (172.0, 182.0)


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n", b"[1,2]\n", b'{"time":"soon"}\n', b'{"time":NaN,"held":1}\n', b'{"time":true}\n',
        b'{"time":180,"gpus":[1,{"gpu":{},"used":"much"}],"cpu":[]}\n', b"\x00\xff\n", b"\n",
    ],
)  # fmt: skip
def test_what_is_damaged_is_left_out(tmp_path: Path, line: bytes) -> None:
    scene = lived(tmp_path)
    seen(scene, {"time": 172.0, "held": 2**30})
    for path in (
        scene.experiment.worker_monitor("g0", "4711_0-0"),
        scene.experiment.worker_events("g0", "4711_0-0"),
    ):
        with path.open("ab") as file:
            file.write(line)
    seen(scene, {"time": 182.0, "held": 2**30})
    found = resources(scene.experiment, Workers(scene.experiment))
    (memory,) = [one for one in found.strips if one.what == "host_memory"]
    assert memory.times == (172.0, 182.0)
    json.dumps(found.model_dump(mode="json"), allow_nan=False)


def test_a_torn_last_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    scene = lived(tmp_path)
    watched = Workers(scene.experiment)
    path = scene.experiment.worker_monitor("g0", "4711_0-0")
    path.write_bytes(b'{"time":172.0,"he')
    assert not [one for one in resources(scene.experiment, watched).strips if one.what != "rate"]
    with path.open("ab") as file:
        file.write(b'ld":1073741824}\n')
    strips = resources(scene.experiment, watched).strips
    assert [one.values for one in strips if one.what == "host_memory"] == [(1.0,)]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("NVIDIA A100-SXM4-80GB", 80.0), ("NVIDIA H100 80GB HBM3", 80.0), ("Tesla V100-PCIE-16GB", 16.0),
        ("NVIDIA GeForce RTX 4090", None), ("", None),
    ],
)  # fmt: skip
def test_a_cards_memory_is_known_where_its_name_says_it(name: str, size: float | None) -> None:
    assert card_gb(name) == size


def test_workers_that_the_cache_drops_are_freed_without_a_collection(tmp_path: Path) -> None:
    """The portal collects rarely, and readings take megabytes."""
    found = Workers(lived(tmp_path).experiment)
    found.look(monitors=True)
    kept = weakref.ref(found)
    gc.disable()
    try:
        del found
        assert kept() is None
    finally:
        gc.enable()


def test_devices_of_folded_workers_are_kept_until_a_worker_writes_again(tmp_path: Path) -> None:
    scene = lived(tmp_path, *LIFE)
    looks: list[int] = []

    def devices() -> dict[str, Any]:
        def workers() -> Workers:
            looks.append(1)
            return Workers(scene.experiment)

        made = packed_resources(scene.experiment, workers, None)
        answer: dict[str, Any] = json.loads(gzip.decompress(made))
        return answer

    assert settled(scene.experiment) is None
    first, same = devices(), devices()
    assert first == same
    assert len(looks) == 2, "a worker that could still write is looked at each time"
    seen(scene, {"time": 172.0, "gpus": [GPU], "held": 2**30})
    assert {one["what"] for one in devices()["strips"]} > {one["what"] for one in first["strips"]}
    assert fold_workers(scene.experiment, all_ended=True)
    before, looks[:] = devices(), []
    assert devices() == before
    assert not looks
    said(scene, *LIFE, job="4712_0")  # a resumed round
    assert len(devices()["strips"]) > len(before["strips"])
    assert fold_workers(scene.experiment, all_ended=True)
    assert len(devices()["strips"]) > len(before["strips"])
