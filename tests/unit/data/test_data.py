"""Datasets as they lie: samples in order, mistakes at their line, hashes of the very bytes."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from hpcbench.data.table import TableDataset
from hpcbench.data.tree import content_hash, folder_files
from hpcbench.errors import UserError
from hpcbench.plugins import DatasetSpec
from tests.unit.small import record, write_dataset


def dataset(folder: Path, split: str | None = None) -> TableDataset:
    return TableDataset(DatasetSpec(folder, "a.jsonl", split))


def test_samples_come_in_the_files_order_and_only_those_of_the_split(tmp_path: Path) -> None:
    records = [record(number, split="odd" if number % 2 else "even") for number in range(7)]
    write_dataset(tmp_path, records)
    odd = dataset(tmp_path, "odd")
    assert odd.count() == 3
    assert [sample.id for sample in odd.iter(0, 3)] == ["s1", "s3", "s5"]
    assert [sample.id for sample in odd.iter(1, 2)] == ["s3"]
    assert dataset(tmp_path).count() == 7
    (first,) = odd.iter(0, 1)
    assert first.images == (tmp_path / "p.png",)
    assert first.references == ("1",)


def test_a_stop_beyond_the_end_costs_nothing(tmp_path: Path) -> None:
    write_dataset(tmp_path, [record(number) for number in range(3)])
    found = dataset(tmp_path).iter(1, 10**18)
    assert [sample.id for sample in found] == ["s1", "s2"]


def test_questions_without_a_document_belong_to_their_image(tmp_path: Path) -> None:
    one = record(1)
    del one["document"]
    write_dataset(tmp_path, [one])
    (sample,) = dataset(tmp_path).iter(0, 1)
    assert sample.document == "p.png"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"id": "x", "images": ["p.png"]}', "key 'references' is missing"),
        ('{"id": "x", "images": [], "references": ["1"]}', "'images' must be a list"),
        ('{"id": "s1", "images": ["p.png"], "references": ["1"]}', "id 's1' occurs twice"),
        ('{"id": "x", "images": ["p"], "references": ["1"], "colour": 1}', "unknown key 'colour'"),
    ],
)
def test_a_wrong_line_is_reported_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    write_dataset(tmp_path, [record(1), record(2)])
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=message) as caught:
        dataset(tmp_path).count()
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (str(tmp_path / "a.jsonl"), 3)


def test_a_split_that_is_not_there_is_reported(tmp_path: Path) -> None:
    write_dataset(tmp_path, [record(1, split="easy")])
    with pytest.raises(UserError, match="no sample of split 'eazy'"):
        dataset(tmp_path, "eazy").count()


def test_the_hash_is_that_of_sha256sums_own_output(tmp_path: Path) -> None:
    write_dataset(tmp_path, [record(1)])
    sums = subprocess.run(
        ["sha256sum", "a.jsonl", "p.png"], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    files = dataset(tmp_path).files()
    assert content_hash(tmp_path, files) == "sha256:" + hashlib.sha256(sums).hexdigest()


def test_the_hash_changes_with_any_byte_and_any_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two")
    seen = {content_hash(tmp_path, folder_files(tmp_path))}
    (tmp_path / "b").write_bytes(b"twO")
    seen.add(content_hash(tmp_path, folder_files(tmp_path)))
    (tmp_path / "b").rename(tmp_path / "c")
    seen.add(content_hash(tmp_path, folder_files(tmp_path)))
    assert len(seen) == 3


def test_the_cache_spares_reading_and_notices_a_change(tmp_path: Path) -> None:
    cache, file = tmp_path / "cache" / "hashes.json", tmp_path / "big"
    file.write_bytes(b"one")
    first = content_hash(tmp_path, [file], cache)
    assert cache.exists()
    assert content_hash(tmp_path, [file], cache) == first
    file.write_bytes(b"other")
    assert content_hash(tmp_path, [file], cache) != first


def test_a_cache_that_cannot_be_read_or_written_is_no_error(tmp_path: Path) -> None:
    file, cache = tmp_path / "big", tmp_path / "hashes.json"
    file.write_bytes(b"one")
    cache.write_text("not json")
    expected = content_hash(tmp_path, [file])
    assert content_hash(tmp_path, [file], cache) == expected
    assert content_hash(tmp_path, [file], Path("/proc/hashes.json")) == expected


def test_a_missing_image_and_a_missing_folder_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        content_hash(tmp_path, [tmp_path / "gone.png"])
    with pytest.raises(UserError, match="no such folder"):
        folder_files(tmp_path / "gone")
