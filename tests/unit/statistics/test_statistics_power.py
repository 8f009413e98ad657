"""How many documents: published vectors, simulation, and `hpcbench power`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.experiment.layout import Experiment
from hpcbench.statistics import (
    compare,
    design_effect,
    detectable,
    fewest_documents,
    samples_needed,
    usual_cv,
)
from tests.campaign import examples
from tests.unit.command import Cli
from tests.unit.past import past


@pytest.mark.parametrize(
    ("effect", "rho", "samples"),
    [(0.03, 0.5, 2181), (0.02, 0.5, 4906), (0.05, 0.5, 785), (0.03, 0, 4361), (0.01, 0.7, 11774)],
)
def test_published_vectors_of_the_normal_limit_and_two_more_for_t(
    effect: float, rho: float, samples: int
) -> None:
    """A t-test takes about 1.96² / 2 samples more than the normal one."""
    needed = samples_needed(effect, 0.5, rho, step=0)
    assert needed == samples + 2 == samples_needed(-effect, 0.5, rho, step=0)
    assert detectable(needed, 0.5, rho, step=0) <= effect
    assert effect < detectable(needed - 1, 0.5, rho, step=0)


def test_right_or_wrong_takes_two_over_the_effect_more() -> None:
    """The usual correction for continuity of McNemar's test."""
    assert samples_needed(0.03) == pytest.approx(samples_needed(0.03, step=0) + 2 / 0.03, abs=1)


def test_few_documents_take_one_more_than_tables_of_the_paired_t_test_say() -> None:
    """These tables give 10 pairs for d = 1 at 80 % power; swapping documents is a little weaker."""
    assert samples_needed(1.0, sd=1.0, rho=0.5, step=0) == 11


def test_questions_of_one_document_are_worth_fewer() -> None:
    assert design_effect(4, 0.3, 0) == pytest.approx(1.9)
    assert design_effect(4, 0.3, 0.5) == pytest.approx(2.2)
    alike = samples_needed(0.03, cluster_size=4, cluster_cv=0, icc=1, step=0)
    assert math.ceil(alike / 4) == samples_needed(0.03, step=0) == 2183
    loose = samples_needed(0.03, cluster_size=4, icc=0, step=0)
    assert 2183 < loose < 2190  # a quarter as many documents
    equal = samples_needed(0.03, cluster_size=4, cluster_cv=0, icc=0.3)
    assert equal < samples_needed(0.03, cluster_size=4, icc=0.3)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=50), st.floats(0, 1))
def test_the_design_effect_is_that_of_the_sizes(sizes: list[int], icc: float) -> None:
    """The variance of a mean over clusters of these sizes, summed up cluster by cluster."""
    mean = sum(sizes) / len(sizes)
    cv = numpy.std(sizes) / mean
    exact = sum(size * (1 + (size - 1) * icc) for size in sizes) / sum(sizes)
    assert design_effect(mean, icc, float(cv)) == pytest.approx(exact)


@pytest.mark.parametrize("most", [1, 7, 20])
def test_unknown_sizes_are_supposed_to_be_all_alike_frequent(most: int) -> None:
    sizes = numpy.arange(1, most + 1)
    assert usual_cv(sizes.mean()) == pytest.approx(sizes.std() / sizes.mean())


@pytest.mark.parametrize(("alpha", "documents"), [(0.05, 6), (0.01, 8), (0.5, 2)])
def test_fewer_documents_can_never_show_a_difference(alpha: float, documents: int) -> None:
    assert fewest_documents(alpha) == documents
    assert samples_needed(1e9, alpha=alpha) == documents
    gained = 1 + numpy.arange(documents) / 100
    least = compare(numpy.zeros(documents), gained, numpy.arange(documents)).p_value
    assert least <= alpha < 2 * least


@settings(max_examples=examples(50), deadline=None)
@given(
    st.floats(0.001, 0.5), st.floats(0.1, 2), st.floats(-0.5, 0.95), st.floats(1, 20),
    st.floats(0, 2), st.floats(0, 1), st.sampled_from([0.5, 0.8, 0.95]),
)  # fmt: skip
def test_what_is_needed_is_just_enough_to_detect(
    effect: float, sd: float, rho: float, size: float, cv: float, icc: float, power: float
) -> None:
    shape: Any = {"cluster_size": size, "cluster_cv": cv, "icc": icc, "power": power}
    samples = samples_needed(effect, sd, rho, **shape)
    assert detectable(samples, sd, rho, **shape) <= effect * (1 + 1e-9)
    if samples - 1 >= fewest_documents() * size:
        assert detectable(samples - 1, sd, rho, **shape) > effect * (1 - 1e-9)


@pytest.mark.long
@pytest.mark.parametrize(("effect", "icc"), [(0.15, 0.3), (0.5, 0.6)], ids=["many", "a dozen"])
def test_so_many_unequal_documents_do_find_the_difference_in_80_percent(
    effect: float, icc: float
) -> None:
    """Documents of 1 to 20 questions; 400 comparisons: within 0.8 ± 0.06 in 99.7 % of cases."""
    chance = numpy.random.default_rng(2)
    samples = samples_needed(effect, sd=0.5, rho=0.5, cluster_size=10.5, icc=icc, step=0)
    count, found = math.ceil(samples / 10.5), 0
    for _ in range(400):
        documents = numpy.repeat(numpy.arange(count), chance.integers(1, 21, count))
        ability = chance.normal(0, 0.5, len(documents))
        gain = chance.normal(effect, math.sqrt(0.25 * icc), count)[documents]
        gain += chance.normal(0, math.sqrt(0.25 * (1 - icc)), len(documents))
        found += compare(ability, ability + gain, documents).verdict == "better"
    assert 0.74 <= found / 400 <= 0.87


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: samples_needed(0), "effect is 0"),
        (lambda: samples_needed(0.1, sd=0), "sd is 0"),
        (lambda: samples_needed(0.1, rho=1), "rho is 1"),
        (lambda: samples_needed(0.1, cluster_size=0.5), "cluster_size is 0.5"),
        (lambda: samples_needed(0.1, cluster_cv=-1), "cluster_cv is -1"),
        (lambda: samples_needed(0.1, icc=-0.1), "icc is -0.1"),
        (lambda: samples_needed(0.1, step=-1), "step is -1"),
        (lambda: samples_needed(0.1, alpha=5), "alpha is 5"),
        (lambda: samples_needed(0.1, power=80), "power is 80"),
        (lambda: samples_needed(0.1, power=0.001), "it must be above alpha"),
        (lambda: detectable(1), "samples are 1"),
        (lambda: detectable(20, cluster_size=4), "5 documents can show no difference"),
        (lambda: usual_cv(0.5), "cluster_size is 0.5"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# --- hpcbench power -----------------------------------------------------------------------------------


def rows(cli: Cli, *words: str) -> list[dict[str, Any]]:
    """Rows of `hpcbench power … --json`."""
    found: list[dict[str, Any]] = cli.json("power", *words, "--json")["rows"]
    return found


def scored(
    root: Path, monkeypatch: pytest.MonkeyPatch, values: Any = None, documents: Any = None
) -> Experiment:
    """An experiment with scores of 300 samples of 100 documents."""
    monkeypatch.setenv("HPCBENCH_HOME", str(root))
    here = past(root, "20261120-1432-plan-aaaa")
    chance = numpy.random.default_rng(1)
    if documents is None:
        documents = numpy.repeat(numpy.arange(100), 3)
    drawn = chance.normal(0, 0.3, 100)[documents] + chance.normal(0, 0.3, 300)
    table = polars.DataFrame(
        {
            "sample": [f"s{number}" for number in range(300)],
            "document": [f"d{number}" for number in documents],
            "outcome": "ok",
            "invalid": False,
            "exact_match": drawn if values is None else values,
        }
    )
    path = here.scores_file("rt")
    path.parent.mkdir(parents=True, exist_ok=True)
    table.write_parquet(path)
    return here


def test_documents_for_an_effect(cli: Cli) -> None:
    (row,) = rows(cli, "--effect", "0.03")
    assert (row["samples"], row["documents"], row["questions_cv"]) == (2249, 2249, 0)
    (row,) = rows(cli, "--effect=-0.03", "--questions-per-document", "4", "--icc", "0.3")
    assert (row["samples"], row["documents"], row["effect"]) == (4871, 1218, 0.03)
    assert row["questions_cv"] == 0.5
    (row,) = rows(cli, "--effect", "0.03", "--rho", "0", "--sd", "0.25")
    assert row["samples"] == samples_needed(0.03, 0.25, 0)


def test_what_is_assumed_of_documents_is_printed(cli: Cli) -> None:
    asked = ["power", "--effect", "0.03", "--questions-per-document", "4"]
    reported = cli(*asked)
    assert "assumed: documents have 1 to 7 samples" in reported
    assert "assumed: differences within a document are uncorrelated" in reported
    assert "assumed" not in cli(*asked, "--icc", "0.3", "--questions-cv", "0")


def test_what_documents_can_show(cli: Cli) -> None:
    (row,) = rows(cli, "--documents", "1218", "--questions-per-document", "4", "--icc", "0.3")
    assert row["effect"] == pytest.approx(0.03, abs=5e-5)
    assert row["samples"] == 4872
    equal = ("--documents", "1218", "--questions-per-document", "4", "--icc", "0.3")
    (less,) = rows(cli, *equal, "--questions-cv", "0")
    assert less["effect"] < row["effect"]


def test_without_a_question_it_tells_of_some_effects(cli: Cli) -> None:
    out = cli("power")
    assert "2,249" in out
    assert "80 % power" in out
    assert len(rows(cli)) == 5


def test_scores_of_an_experiment_say_how_they_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    scored(tmp_path, monkeypatch)
    (row,) = rows(cli, "@last")
    assert (row["run_task"], row["metric"], row["documents"]) == ("rt", "exact_match", 100)
    assert row["questions_per_document"] == 3
    assert row["sd"] == pytest.approx(math.sqrt(0.18), rel=0.15)
    assert row["icc"] == pytest.approx(0.5, abs=0.15)
    assert (row["questions_cv"], row["step"]) == (0, 0)
    expected = detectable(300, row["sd"], cluster_size=3, cluster_cv=0, icc=row["icc"], step=0)
    assert row["effect"] == pytest.approx(expected)
    (reported,) = rows(
        cli, "@last", "--effect", "0.02", "--sd", "1", "--icc", "0", "--metric", "exact_match"
    )
    assert reported["samples"] == samples_needed(0.02, 1, cluster_size=3, step=0)
    assert "exact_match" in cli("power", "@last", "--run-task", "rt")


def test_sizes_of_documents_are_those_of_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    scored(tmp_path, monkeypatch, documents=numpy.repeat(numpy.arange(75), [1, 7, 4] * 25))
    (row,) = rows(cli, "@last")
    assert row["questions_per_document"] == 4
    assert row["questions_cv"] == pytest.approx(math.sqrt(6) / 4)
    (other,) = rows(cli, "@last", "--questions-per-document", "10")
    assert other["questions_cv"] == pytest.approx(usual_cv(10))


def test_the_message_about_too_few_documents_says_how_many_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    scored(tmp_path, monkeypatch, documents=numpy.repeat(numpy.arange(5), 60))
    assert len(rows(cli, "@last")) == 5
    assert "has 5 documents, too few to show any difference" in cli.err("power", "@last", code=0)


def test_scores_that_are_all_alike_are_said_to_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    scored(tmp_path, monkeypatch, [1.0] * 300)
    reported = cli.err("power", "@last", code=1)
    assert "rt: exact_match is the same for all samples" in reported
    assert "give --sd" in reported


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--effect", "0"], 2, "--effect 0.0 is not a finite number other than 0"),
        (["--effect", "0.1", "--documents", "9"], 2, "--effect and --documents exclude each other"),
        (["--documents", "5"], 2, "--documents 5 is too small: fewer than 6 show no difference"),
        (["--questions-cv", "-1"], 2, "cluster_cv is -1.0; it must be 0 or more"),
        (["--questions-per-document", "0"], 2, "--questions-per-document 0.0 is invalid"),
        (["--rho", "1"], 2, "rho is 1.0"),
        (["--sd", "-1"], 2, "sd is -1.0"),
        (["--icc", "1.5"], 2, "icc is 1.5"),
        (["--metric", "anls"], 2, "(name an experiment)"),
        (["nobody"], 2, "no experiment 'nobody'"),
        (["@last", "--run-task", "x"], 2, "unknown run task 'x' (there are: rt)"),
        (["@last", "--metrics", "exact_match,x"], 2,
         "has no metric 'x' (its metrics: exact_match)"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
    words: list[str],
    code: int,
    message: str,
) -> None:
    scored(tmp_path, monkeypatch)
    reported = cli.err("power", *words, code=code)
    assert message in reported
    assert reported.count("\n") == 1


def test_an_experiment_without_scores_is_no_use_yet(tmp_path: Path, cli: Cli) -> None:
    past(tmp_path, "20261120-1432-plan-aaaa")
    assert "has no scores yet" in cli.err("power", "@last", code=1)
