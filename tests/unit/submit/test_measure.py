"""Findings of preparation in a dataset: images of a request, whether any comes again, unusable samples."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench.errors import UserError
from hpcbench.schema.metric import Metric
from hpcbench.schema.plan import Measured
from hpcbench.schema.records import PromptEntry, PromptExample
from hpcbench.submit.measure import measure, scaling_of
from tests.unit.small import record, resolved, run_task, write_dataset


def reported(folder: Path, records: Sequence[dict[str, Any]], **task: Any) -> Measured:
    data = write_dataset(folder / "data", records)
    for name in ("p", "q", "r"):
        Image.new("RGB", (4, 4)).save(data / f"{name}.png")
    return measure(resolved(run_task(dataset={"source": str(data)}, **task)), hashes=False)


def test_pages_that_come_once_want_no_cache(tmp_path: Path) -> None:
    found = reported(tmp_path, [record(0, images=["p.png"]), record(1, images=["q.png", "r.png"])])
    assert (found.images, found.reuse) == ({"rt": 2}, {"rt": False})


def test_several_questions_about_a_page_do(tmp_path: Path) -> None:
    found = reported(tmp_path, [record(0, images=["p.png"]), record(1, images=["p.png"])])
    assert (found.images, found.reuse) == ({"rt": 1}, {"rt": True})


@pytest.mark.parametrize("limit", [1, 2])
def test_only_the_samples_that_are_asked_count(tmp_path: Path, limit: int) -> None:
    records = [record(0, images=["p.png"]), record(1, images=["p.png", "q.png"])]
    found = reported(tmp_path, records, limit=limit)
    assert (found.images, found.reuse) == ({"rt": limit}, {"rt": limit == 2})


def test_a_model_without_weights_has_nothing_to_hash(tmp_path: Path) -> None:
    found = reported(tmp_path, [record(0)], model={"engine": "remote", "source": ""})
    assert found.model_hashes == {"m": "none"}


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("preprocessor_config.json", '{"max_pixels": 9, "image_mean": [0.5]}', {"max_pixels": 9}),
        ("processor_config.json", '{"image_processor": {"size": {"height": 8}}}', {"size": {"height": 8}}),
        ("preprocessor_config.json", '{"image_mean": [0.5]}', {}),
        ("preprocessor_config.json", "[1]", {}),
        ("preprocessor_config.json", "{", {}),
        ("config.json", '{"size": 1}', {}),
    ],
)  # fmt: skip
def test_how_a_processor_scales_images_is_read_beside_the_weights(
    tmp_path: Path, file: str, text: str, found: dict[str, Any]
) -> None:
    (tmp_path / file).write_text(text)
    assert scaling_of(tmp_path) == found


def test_the_image_of_an_example_comes_with_every_sample(tmp_path: Path) -> None:
    example = PromptExample("1", {"question": "?"}, (str(tmp_path / "data/r.png"),))
    prompt = {"examples": (example,)}
    once = reported(tmp_path, [record(0, images=["p.png"])], prompt=prompt)
    assert (once.images, once.reuse) == ({"rt": 2}, {"rt": False})
    records = [record(0, images=["p.png"]), record(1, images=["q.png"])]
    assert reported(tmp_path, records, prompt=prompt).reuse == {"rt": True}


def test_the_image_of_an_example_is_examined_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    data = write_dataset(tmp_path / "data", [record(0)])
    Image.new("RGB", (4, 4)).save(data / "p.png")
    (data / "r.png").write_text("no image")
    example = PromptExample("1", {"question": "?"}, (str(data / "r.png"),))
    task = run_task(dataset={"source": str(data)}, prompt={"examples": (example,)})
    with pytest.raises(
        UserError, match=r"r\.png: prompt 'p': the image of an example cannot be read"
    ):
        measure(resolved(task))


def test_entries_that_no_sample_gets_are_reported(tmp_path: Path) -> None:
    data = write_dataset(
        tmp_path / "data", [record(n, metadata={"doc_type": "bill"}) for n in range(2)]
    )
    entries = (
        PromptEntry("bill", "A", when={"doc_type": "bill"}),
        PromptEntry("letter", "B", when={"doc_type": "letter"}),
        PromptEntry("other", "C", when={"dataset": "other"}),
    )
    prompt = {"prompts": entries}
    tasks = [
        run_task("one", dataset={"source": str(data)}, prompt=prompt),
        run_task(
            "two", dataset={"source": str(data), "name": "other"}, prompt={**prompt, "user": None}
        ),
    ]
    said: list[str] = []
    measure(resolved(tasks[0]), hashes=False, say=said.append)
    assert said == ["prompts/p: no selected sample uses 'letter', 'other'"]
    with pytest.raises(UserError, match="prompts/p: prompts 'bill' and 'other' match sample 's0'"):
        measure(resolved(*tasks), hashes=False)


def test_a_field_that_every_sample_lacks_is_one_line_that_names_what_there_is(
    tmp_path: Path,
) -> None:
    lacking = [record(number, fields={"text": "x"}) for number in range(60)]
    data = write_dataset(tmp_path / "data", lacking)
    task = run_task(dataset={"source": str(data)}, prompt={"user": "{{ question }}"})
    with pytest.raises(UserError) as caught:
        measure(resolved(task), hashes=False)
    (line,) = str(caught.value).splitlines()
    assert "sample 's0': 'question' is undefined (there are: dataset, " in line
    assert "text)" in line
    assert line.endswith("; 59 more times")


def test_rows_that_lack_the_same_key_are_one_line(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", [record(number) for number in range(60)])
    rows = [f'{{"id": "s{number}", "image": "p.png"}}' for number in range(60)]
    (data / "a.jsonl").write_text("\n".join(rows))
    with pytest.raises(UserError) as caught:
        measure(resolved(run_task(dataset={"source": str(data)})), hashes=False)
    (line,) = str(caught.value).splitlines()
    assert line.endswith("; 59 more times, in lines 2, 3, 4, 5, 6, …")


# --- what cannot be used --------------------------------------------------------------------------------


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))


def examined(folder: Path, records: Sequence[dict[str, Any]], **task: Any) -> Measured:
    """The same with images examined; a bad one is skipped."""
    data = write_dataset(folder / "data", records)
    for name in ("p", "q"):
        Image.new("RGB", (4, 4)).save(data / f"{name}.png")
    dataset = {"source": str(data), "on_bad": task.pop("on_bad", "skip")}
    model = {"engine": "remote", "source": ""}
    plan = {"min_coverage": task.pop("min_coverage", 0)}
    say = task.pop("say", lambda line: None)
    return measure(resolved(run_task(dataset=dataset, model=model, **task), **plan), say=say)


def noise(file: Path, size: int) -> int:
    """An image file that compression cannot shrink; gives its bytes."""
    Image.frombytes("L", (1000, size // 1000), os.urandom(size)).save(file)
    return file.stat().st_size


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(
    ("how", "reported"),
    [
        ({}, r"sample 's1' make a request of 2.1\d MB, .* takes at most 2.00 MB.*`request_mb: 3`"),
        ({"protocol": "grpc"}, None),  # 1.6 MB as they are
        ({"images": "file"}, None),
        ({"limit": 1}, None),
        ({"request_mb": 3}, None),
        ({"request_mb": None}, None),
    ],
)
def test_a_request_that_the_wrapper_would_refuse_is_reported_before_it_is_submitted(
    tmp_path: Path, how: dict[str, Any], reported: str | None
) -> None:
    task: dict[str, Any] = {"request_mb": 2, **how}
    model = {"engine": "remote", "source": "", "request_mb": task.pop("request_mb")}
    data = write_dataset(
        tmp_path / "data", [record(0, images=["q.png"]), record(1, images=["q.png", "r.png"])]
    )
    assert sum(noise(data / f"{name}.png", 800_000) for name in "qr") < 1_610_000
    said: list[str] = []
    plan = resolved(run_task(dataset={"source": str(data)}, model=model, **task))
    measure(plan, say=said.append)
    found = [line for line in said if line.startswith("! ")]
    assert len(found) == (reported is not None)
    assert all(re.search(reported or "", line) for line in found)
    said.clear()
    measure(plan, hashes=False, say=said.append)
    assert said == [], "a preview reads no sizes of a million files"


def bad(number: int) -> dict[str, Any]:
    return record(number, references=[])


def gone(number: int, **more: Any) -> dict[str, Any]:
    return record(number, images=["gone.png"], **more)


@pytest.mark.usefixtures("_home")
def test_samples_of_the_whole_dataset_are_counted_whatever_is_asked(tmp_path: Path) -> None:
    found = examined(tmp_path, [record(0), bad(1), record(2), record(3)], limit=1)
    assert (found.samples, found.dataset_samples) == ({"rt": 1}, {"rt": 3})


@pytest.mark.usefixtures("_home")
def test_an_image_that_is_not_there_is_skipped_or_reported_with_its_row(tmp_path: Path) -> None:
    found = examined(tmp_path, [record(0), gone(1)])
    assert (found.samples, found.skipped, found.unusable) == ({"rt": 1}, {"rt": 1}, {"rt": 1})
    with pytest.raises(UserError, match=r"a.jsonl:2: sample 's1': .*gone.png: No such file"):
        examined(tmp_path, [record(0), gone(1)], on_bad="fail")
    Image.new("L", (4, 4)).save(tmp_path / "data/gone.png")
    assert examined(tmp_path, [record(0), gone(1)]).skipped == {}


@pytest.mark.usefixtures("_home")
def test_what_could_only_end_as_incomplete_is_refused_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    rows = [record(0), record(1), gone(2), gone(3), bad(4)]
    with pytest.raises(UserError) as refused:
        examined(tmp_path, rows, min_coverage=0.9)
    *each, whole = refused.value.problems
    assert [(one.line, "gone.png" in one.message) for one in each] == [
        (3, True),
        (4, True),
        (5, False),
    ]
    assert "3 of 5 samples cannot be used, and min_coverage requires 90 %" in whole.message
    assert whole.remedy is not None
    assert "`hpcbench data check d` lists all" in whole.remedy
    assert "min_coverage: 0.4 to run the others" in whole.remedy
    said: list[str] = []
    assert examined(tmp_path, rows, min_coverage=0.4, say=said.append).skipped == {"rt": 3}
    (line,) = [one for one in said if "left out" in one]
    assert "3 samples are left out, 2 of them without a readable page, and count against" in line
    assert examined(tmp_path, rows, min_coverage=0.9, limit=2).samples == {"rt": 2}


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(
    ("limit", "skipped"), [(1, 0), (2, 0), (3, 1), (4, 2), (5, 4), (6, 4), (None, 4)]
)
def test_with_a_limit_only_entries_before_the_last_sample_count(
    tmp_path: Path, limit: int | None, skipped: int
) -> None:
    rows = [record(0), record(1), bad(2), record(3), gone(4), record(5), bad(6), bad(7)]
    found = examined(tmp_path, rows, limit=limit)
    assert found.unusable == {"rt": 4}
    assert found.skipped == ({"rt": skipped} if skipped else {})


@pytest.mark.usefixtures("_home")
def test_where_and_sample_count_what_can_be_judged(tmp_path: Path) -> None:
    kinds: list[dict[str, Any]] = [{"metadata": {"kind": kind}} for kind in ("a", "b")]
    rows = [
        record(0, **kinds[0]),
        gone(1, **kinds[0]),
        gone(2, **kinds[1]),
        bad(3),
        record(4, **kinds[1]),
    ]
    assert examined(tmp_path, rows, where="kind == 'a'").skipped == {"rt": 1}
    assert examined(tmp_path, rows, sample={"size": 1}).skipped == {}
    assert examined(tmp_path, rows, sample={"size": 9}).skipped == {"rt": 3}
    assert examined(tmp_path, rows, sample={"size": 1}).unusable == {"rt": 3}


def test_a_dry_run_does_without_metrics_of_packages_that_are_not_built(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", [record(0, images=["p.png"])])
    Image.new("RGB", (4, 4)).save(data / "p.png")
    task = run_task(dataset={"source": str(data)})
    own = Metric(name="own", plugin="not_built_yet", package="own-metrics")
    task = task.model_copy(update={"metrics": (*task.metrics, own)})
    assert measure(resolved(task), hashes=False).samples == {"rt": 1}
    with pytest.raises(UserError, match="unknown metric plugin 'not_built_yet'"):
        measure(resolved(task))
