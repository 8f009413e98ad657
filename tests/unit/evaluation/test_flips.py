"""Samples lost and won: which they are, in what order, and how they are written down."""

from __future__ import annotations

import csv
from pathlib import Path

import lxml.html
import pytest

from hpcbench.cli.main import main
from hpcbench.comparison.account import account
from hpcbench.comparison.compare import compare_many
from hpcbench.comparison.flips import ENDS, flips, moves
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from tests.conftest import ROOT
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt

COUNT = 12


def run(folder: Path, answers: dict[int, str | None], metrics: tuple[str, ...]) -> Experiment:
    """Right but for these; None: asked, and failed."""
    records = [record(n, references=[f"answer {n}"]) for n in range(COUNT)]
    here = experiment(folder, records, shard_size=COUNT, metrics=metrics)
    given = [response(f"s{n}", answers.get(n, f"answer {n}")) for n in range(COUNT)]
    write_attempt(here, 0, 1, given)
    evaluate(here)
    return here


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Experiment, Experiment]:
    """The candidate loses s1, s2 and s5 by so much each, and wins s3."""
    metrics = ("exact_match", "cer")
    old = run(tmp_path / "a", {3: "answer x"}, metrics)
    new = run(tmp_path / "b", {1: "answer x", 2: "=cmd|'calc'!A0\x1b[31m", 5: None}, metrics)
    return old, new


def test_flips_are_what_is_not_the_same_lost_first_and_greatest_change_first(
    pair: tuple[Experiment, Experiment],
) -> None:
    (held,) = compare_many(pair[0], [pair[1]])
    exact, cer = held.compared
    assert [(one.sample, one.change) for one in flips(held, exact)] == [
        ("s1", "lost"), ("s2", "lost"), ("s5", "lost"), ("s3", "won"),
    ]  # fmt: skip
    by_cer = flips(held, cer)
    assert [one.sample for one in by_cer if one.change == "lost"] == ["s2", "s5", "s1"]
    lost = by_cer[0].scores[1] - by_cer[0].scores[0]
    assert lost > by_cer[2].scores[1] - by_cer[2].scores[0] > 0
    assert [one.sample for one in flips(held, exact, most=1)] == ["s1", "s3"]
    assert flips(held, exact, most=0) == []


def test_a_flip_tells_both_answers_and_where_its_rows_are(
    pair: tuple[Experiment, Experiment],
) -> None:
    import polars

    (held,) = compare_many(pair[0], [pair[1]])
    failed = next(one for one in flips(held, held.compared[0]) if one.sample == "s5")
    assert failed.answers == ("answer 5", "(failed)")
    assert (failed.document, failed.references, failed.scores) == (
        "doc5",
        ("answer 5",),
        (1.0, 0.0),
    )
    for here, row in zip(pair, failed.rows, strict=True):
        assert polars.read_parquet(here.scores_file("rt"))["sample"][row] == "s5"


def test_flips_are_as_many_as_the_comparison_has_won_and_lost(
    pair: tuple[Experiment, Experiment],
) -> None:
    (held,) = compare_many(pair[0], [pair[1]])
    for compared in held.compared:
        changes = [one.change for one in flips(held, compared)]
        what = compared.comparison
        assert (changes.count("won"), changes.count("lost")) == (what.wins, what.losses)


def test_every_sample_moves_from_one_end_to_another(pair: tuple[Experiment, Experiment]) -> None:
    (held,) = compare_many(pair[0], [pair[1]])
    found = {(one, other): count for one, other, count in moves(held, held.compared[0])}
    assert found == {
        ("right", "right"): 8,
        ("right", "wrong"): 2,
        ("right", "no answer"): 1,
        ("wrong", "right"): 1,
    }
    assert set(ENDS) >= {end for pair in found for end in pair}


def test_a_table_of_flips_runs_nothing_in_a_spreadsheet(
    pair: tuple[Experiment, Experiment], tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "flips.csv"
    words = ["compare", *(str(one.path) for one in pair), "--flips-csv", str(path)]
    printed = cli(*words)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    hostile = [row["candidate_answer"] for row in rows if row["sample"] == "s2"]
    assert all(answer.startswith("'=cmd") for answer in hostile)
    assert "\x1b[31m" not in printed
    assert "s2" in printed


def test_one_sample_is_shown_as_both_answered_it(
    pair: tuple[Experiment, Experiment], cli: Cli
) -> None:
    words = ["compare", *(str(one.path) for one in pair), "--sample"]
    old, new = cli.json(*words, "s1", "--json")["found"]
    assert (old["answer"], new["answer"]) == (["answer 1"], ["answer x"])
    assert old["question"] == ["number 1?"]
    assert old["images"][0].endswith("p.png")
    assert (old["scores"]["exact_match"], new["scores"]["exact_match"]) == (1.0, 0.0)
    assert "\x1b" not in cli(*words, "s2")
    assert "has a sample 'nobody'" in cli.err(*words, "nobody")


@pytest.mark.long
def test_the_page_of_a_comparison_runs_nothing_and_has_all_sections(
    pair: tuple[Experiment, Experiment], tmp_path: Path, cli: Cli
) -> None:
    new = run(tmp_path / "c", {1: "<script>alert(1)</script>"}, ("exact_match",))
    for name in ("page.html", "page.md"):
        words = ["compare", str(pair[0].path), str(new.path), "--report", str(tmp_path / name)]
        assert main(words) == 0
        text = (tmp_path / name).read_text()
        assert "<script>alert" not in text
        for title in ("Results", "Scores", "Samples lost and won", "How to compare again"):
            assert title in text
    assert len(list(tmp_path.glob("flow-*.svg"))) == 1
    assert ".md or .html" in cli.err(*words[:-1], tmp_path / "page.pdf")


@pytest.mark.long
def test_a_flip_on_the_page_leads_to_the_whole_sample(
    pair: tuple[Experiment, Experiment], tmp_path: Path
) -> None:
    words = ["compare", *(str(one.path) for one in pair), "--flips", "50", "--report"]
    assert main([*words, str(tmp_path / "page.html")]) == 0
    page = lxml.html.parse(str(tmp_path / "page.html")).getroot()
    links = [a for a in page.iterfind(".//th/a") if a.get("href", "").startswith("#")]
    assert [a.text for a in links] == ["s1", "s2", "s5", "s3"]
    lost = page.get_element_by_id(links[0].get("href")[1:])
    said = [" ".join(dd.text_content().split()) for dd in lost.iterfind(".//dd")]
    assert said == ["number 1?", "answer 1", "answer 1", "answer 1 x"]
    assert lost.findtext(".//del") == "1"
    assert lost.findtext(".//h4/span") == "lost, exact_match 1.000 → 0.000"
    failed = page.get_element_by_id(links[2].get("href")[1:])
    assert [em.text for em in failed.iterfind(".//em")] == ["none: failed"]
    assert main([*words, str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text()
    for link in links:
        assert f"[{link.text}]({link.get('href')})" in text
        assert f'<a id="{link.get("href")[1:]}"></a>' in text


def test_the_object_names_what_docs_say(pair: tuple[Experiment, Experiment]) -> None:
    page = (ROOT / "docs" / "comparing.md").read_text()
    reported = account(pair[0], [pair[1]])
    (candidate,) = reported["candidates"]
    rows = [*candidate["compared"], *candidate["flips"], *candidate["speed"]]
    comparison = candidate["compared"][0]["comparison"]
    for name in {*reported, *candidate, *comparison, *(key for row in rows for key in row)}:
        assert f"`{name}`" in page, name
