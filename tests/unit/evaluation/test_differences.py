"""Differences of configuration: named by their place, in one order, without what always differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcbench.comparison.differences import config_differences
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.records import PromptExample
from tests.unit.past import past
from tests.unit.small import run_task


def paths(one: Experiment, other: Experiment, *pairs: tuple[str, str]) -> dict[str, Any]:
    return {each.path: (each.one, each.other) for each in config_differences(one, other, pairs)}


def in_manifest(here: Experiment, **more: Any) -> Experiment:
    manifest = json.loads(here.manifest_file.read_text())
    here.manifest_file.write_text(json.dumps({**manifest, **more}))
    return Experiment(here.path)


def test_the_same_plan_on_another_day_differs_in_nothing(tmp_path: Path) -> None:
    one = in_manifest(past(tmp_path, "a"), created="yesterday", host="n1", id="a")
    other = in_manifest(past(tmp_path, "b"), created="today", host="n2", id="b")
    assert config_differences(one, other) == []


def test_an_option_a_prompt_and_a_metric_are_named_by_their_places(tmp_path: Path) -> None:
    one = past(tmp_path, "a", run_task(model={"engine_options": {"max_model_len": 4096}}))
    changed = run_task(
        model={"engine_options": {"max_model_len": 8192}},
        prompt={"user": "Read: {{ question }}"},
        metrics=("exact_match", "anls"),
        generation={"max_tokens": 7},
    )
    found = paths(one, past(tmp_path, "b", changed))
    assert found["run_tasks.rt.model.engine_options.max_model_len"] == (4096, 8192)
    assert found["run_tasks.rt.prompt.user"] == ("{{ question }}", "Read: {{ question }}")
    assert found["run_tasks.rt.metrics.anls.name"] == (None, "anls")
    assert found["run_tasks.rt.generation.max_tokens"][1] == 7


def test_where_images_of_examples_lie_is_no_difference(tmp_path: Path) -> None:
    example = PromptExample("1", {"question": "?"})
    one, other = (
        past(tmp_path, name, run_task(prompt={"examples": (replace(example, images=(path,)),)}))
        for name, path in (("a", "/here/1.png"), ("b", "/there/1.png"))
    )
    assert config_differences(one, other) == []


def test_hashes_packages_and_images_of_the_manifest_are_compared(tmp_path: Path) -> None:
    one = past(tmp_path, "a", model="1", dataset="1")
    other = past(tmp_path, "b", model="2", dataset="2")
    images = [
        {"": {"kind": "venv", "digest": f"sha256:{n}", "versions": {"torch": n}}} for n in "12"
    ]
    one = in_manifest(one, environments=images[0], packages={"polars": "1"}, python="3.10.1")
    other = in_manifest(other, environments=images[1], packages={"polars": "2"}, python="3.11.7")
    assert paths(one, other) == {
        "run_tasks.rt.dataset.hash": ("sha256:1", "sha256:2"),
        "run_tasks.rt.image.digest": ("sha256:1", "sha256:2"),
        "run_tasks.rt.model.hash": ("sha256:1", "sha256:2"),
        "run_tasks.rt.image.versions.torch": ("1", "2"),
        "packages.polars": ("1", "2"),
        "python": ("3.10.1", "3.11.7"),
    }


def test_what_all_run_tasks_have_is_reported_once(tmp_path: Path) -> None:
    def tasks(dtype: str, tokens: int) -> list[Any]:
        return [
            run_task("a", model={"dtype": dtype}),
            run_task("b", model={"dtype": dtype}, generation={"max_tokens": tokens}),
        ]

    one, other = (
        past(tmp_path, "a", *tasks("float16", 5)),
        past(tmp_path, "b", *tasks("float32", 6)),
    )
    assert paths(one, other) == {
        "run_tasks.*.model.dtype": ("float16", "float32"),
        "run_tasks.b.generation.max_tokens": (5, 6),
    }


def test_run_tasks_of_other_names_are_compared_where_they_are_paired(tmp_path: Path) -> None:
    one = past(tmp_path, "a", run_task("old"))
    other = past(tmp_path, "b", run_task("new", concurrency=4))
    assert config_differences(one, other) == []
    assert paths(one, other, ("old", "new")) == {"run_tasks.old=new.concurrency": (1, 4)}


def test_what_auto_came_to_is_compared_and_not_the_word(tmp_path: Path) -> None:
    def auto(count: int) -> Any:
        return run_task(concurrency="auto").model_copy(update={"at_once": count})

    one, other = past(tmp_path, "a", run_task(concurrency=64)), past(tmp_path, "b", auto(64))
    assert paths(one, other) == {}
    assert paths(one, past(tmp_path, "c", auto(1))) == {"run_tasks.rt.concurrency": (64, 1)}


def test_folders_are_no_difference_and_the_order_is_always_the_same(tmp_path: Path) -> None:
    one = past(tmp_path, "a", run_task(model={"source": "/scratch/one/m", "dtype": "float16"}))
    other = past(tmp_path, "b", run_task(model={"source": "/data/two/m"}, concurrency=4))
    found = list(paths(one, other))
    assert "run_tasks.rt.model.source" not in found
    assert found == sorted(found)
    assert found == list(paths(other, one))
