"""What preparation tells engines of a dataset: how many images a request has, whether any comes again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench.launch.measure import measure
from hpcbench.schema.plan import Measured
from tests.unit.small import record, resolved, run_task, write_dataset


def told(folder: Path, records: Sequence[dict[str, Any]], **task: Any) -> Measured:
    data = write_dataset(folder / "data", records)
    for name in ("p", "q", "r"):
        Image.new("RGB", (4, 4)).save(data / f"{name}.png")
    return measure(resolved(run_task(dataset={"source": str(data)}, **task)), hashes=False)


def test_pages_that_come_once_want_no_cache(tmp_path: Path) -> None:
    found = told(tmp_path, [record(0, images=["p.png"]), record(1, images=["q.png", "r.png"])])
    assert (found.images, found.reuse) == ({"rt": 2}, {"rt": False})


def test_several_questions_about_a_page_do(tmp_path: Path) -> None:
    found = told(tmp_path, [record(0, images=["p.png"]), record(1, images=["p.png"])])
    assert (found.images, found.reuse) == ({"rt": 1}, {"rt": True})


@pytest.mark.parametrize("limit", [1, 2])
def test_only_the_samples_that_are_asked_count(tmp_path: Path, limit: int) -> None:
    records = [record(0, images=["p.png"]), record(1, images=["p.png", "q.png"])]
    found = told(tmp_path, records, limit=limit)
    assert (found.images, found.reuse) == ({"rt": limit}, {"rt": limit == 2})


def test_a_model_without_weights_has_nothing_to_hash(tmp_path: Path) -> None:
    found = told(tmp_path, [record(0)], model={"engine": "remote", "source": ""})
    assert found.model_hashes == {"m": "none"}
