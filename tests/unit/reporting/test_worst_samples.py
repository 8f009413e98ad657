"""Worst samples: with what was asked and what differs, and with images as long as there are any."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.experiment.layout import Experiment
from hpcbench.reporting.gather import gather
from hpcbench.reporting.worst_samples import diff
from hpcbench.reporting.writing import report
from hpcbench.schema.outputs import Report
from tests.unit.reporting.many import answered
from tests.unit.small import record

TEXT = st.text(st.sampled_from("ab cд\n\t"), max_size=30)


@given(TEXT, TEXT)
def test_a_diff_holds_both_texts_word_by_word(one: str, other: str) -> None:
    pieces = diff(one, other)
    assert " ".join(text for kind, text in pieces if kind != "added").split() == one.split()
    assert " ".join(text for kind, text in pieces if kind != "lost").split() == other.split()


def test_words_that_are_the_same_stay() -> None:
    assert diff("total 12.50 EUR", "total 12,50 EUR now") == [
        ("same", "total"), ("lost", "12.50"), ("added", "12,50"), ("same", "EUR"), ("added", "now"),
    ]  # fmt: skip


def test_objects_are_compared_field_by_field_whatever_their_order(tmp_path: Path) -> None:
    records = [record(0, references=[{"total": "1", "date": "2"}])]
    answer = '{"date": "2", "total": "7"}'
    tasks = {"rt": {"plugin": "kie", "metrics": ("kie_f1_micro",)}}
    here = answered(tmp_path, {"rt": [answer]}, records, tasks=tasks)
    (one,) = gather(here)["worst"]["rt"]
    assert [text for kind, text in one["diff"] if kind == "lost"] == ['"1"']
    assert [text for kind, text in one["diff"] if kind == "added"] == ['"7"']


def test_of_several_references_the_nearest_is_shown(tmp_path: Path) -> None:
    records = [record(0, references=["nothing alike", "12.50 EUR"])]
    here = answered(tmp_path, {"rt": ["12.50 USD"]}, records)
    (one,) = gather(here)["worst"]["rt"]
    assert (one["reference"], one["others"]) == ("12.50 EUR", 1)


def test_the_worst_come_first_with_what_was_asked_and_none_that_are_right(tmp_path: Path) -> None:
    here = answered(tmp_path, {"rt": ["0", "wrong", "wrong too", "3", None]})
    some = gather(here, worst=10)["worst"]["rt"]
    assert [one["sample"] for one in some] == ["s1", "s2", "s4"]
    assert some[0]["prompt"] == "number 1?"
    assert some[0]["images"][0].endswith("p.png")
    assert (some[2]["answer"], some[2]["diff"]) == (None, [])
    assert [one["sample"] for one in gather(here, worst=1)["worst"]["rt"]] == ["s1"]


def pictured(folder: Path, count: int = 4) -> Experiment:
    """All answers are wrong, and every sample has an image of its own."""
    from PIL import Image

    records = [record(n, images=[f"{n}.png"]) for n in range(count)]
    here = answered(folder, {"rt": ["wrong"] * count}, records)
    for number in range(count):
        Image.effect_noise((900, 700), 40 + number).save(folder / "data" / f"{number}.png")
    return here


def html(here: Experiment, **options: Any) -> str:
    report(here, [Report(name="html", plugin="html", options=options)])
    assert not (here.report_dir / "failed.txt").exists()
    return (here.report_dir / "report.html").read_text()


@pytest.mark.long
def test_images_stand_in_the_page_small_and_named(tmp_path: Path) -> None:
    text = html(pictured(tmp_path))
    assert text.count('src="data:image/webp;base64,') == 3
    assert 'alt="Image 1 of sample s0, thumbnail: 0.png"' in text


@pytest.mark.long
def test_images_keep_to_their_budget_and_can_be_left_out(tmp_path: Path) -> None:
    here = pictured(tmp_path)
    whole = html(here)
    sizes = [len(one) for one in re.findall(r'data:image[^"]*', whole)]
    assert html(here, images_mb=1.5 * max(sizes) / 2**20).count("data:image") == 1
    assert "data:image" not in html(here, images=False)
    assert len(html(here, worst=1)) < len(whole)


@pytest.mark.long
@pytest.mark.parametrize("fate", ["gone", "moved", "broken image"])
def test_a_dataset_that_is_gone_costs_images_and_prompts_and_nothing_else(
    tmp_path: Path, fate: str
) -> None:
    here = pictured(tmp_path)
    if fate == "gone":
        shutil.rmtree(tmp_path / "data")
    elif fate == "moved":
        lines = (tmp_path / "data" / "a.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / "data" / "a.jsonl").write_text("".join(reversed(lines)))
    else:
        for path in (tmp_path / "data").glob("*.png"):
            path.write_bytes(b"no image")
    text = html(here)
    assert "data:image" not in text
    assert "<h4>s0" in text
    assert ("number 0?" in text) == (fate == "broken image"), "another sample is never shown for it"
