"""How many documents: published vectors, simulation, and `hpcbench power`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.main import main
from hpcbench.experiment.layout import Experiment
from hpcbench.statistics import compare, design_effect, detectable, samples_needed
from tests.unit.past import past


@pytest.mark.parametrize(
    ("effect", "rho", "samples"),
    [(0.03, 0.5, 2181), (0.02, 0.5, 4906), (0.05, 0.5, 785), (0.03, 0, 4361), (0.01, 0.7, 11774)],
)
def test_published_vectors(effect: float, rho: float, samples: int) -> None:
    assert samples_needed(effect, 0.5, rho) == samples
    assert samples_needed(-effect, 0.5, rho) == samples
    assert detectable(samples, 0.5, rho) <= effect < detectable(samples - 1, 0.5, rho)


def test_questions_of_one_document_are_worth_fewer() -> None:
    assert design_effect(4, 0.3) == pytest.approx(1.9)
    assert samples_needed(0.03, cluster_size=4, icc=0.3) == math.ceil(2180.2421 * 1.9)
    assert samples_needed(0.03, cluster_size=4, icc=1) == math.ceil(2180.2421 * 4)
    assert samples_needed(0.03, cluster_size=4, icc=0) == 2181


@given(
    st.floats(0.001, 0.5), st.floats(0.1, 2), st.floats(-0.5, 0.95), st.floats(1, 20),
    st.floats(0, 1), st.sampled_from([0.5, 0.8, 0.95]),
)  # fmt: skip
def test_what_is_needed_is_just_enough_to_detect(
    effect: float, sd: float, rho: float, size: float, icc: float, power: float
) -> None:
    samples = samples_needed(effect, sd, rho, cluster_size=size, icc=icc, power=power)
    found = detectable(samples, sd, rho, cluster_size=size, icc=icc, power=power)
    assert found <= effect * (1 + 1e-9)
    if samples > 2:
        less = detectable(samples - 1, sd, rho, cluster_size=size, icc=icc, power=power)
        assert less > effect * (1 - 1e-9) or samples - 1 < 2


def test_so_many_documents_do_find_the_difference_in_80_percent() -> None:
    """Documents of four questions; a difference of 0.15 that correlates with 0.3 within a document."""
    chance = numpy.random.default_rng(2)
    samples = samples_needed(0.15, sd=0.5, rho=0.5, cluster_size=4, icc=0.3)
    count, found = samples // 4, 0
    documents = numpy.repeat(numpy.arange(count), 4)
    for _ in range(300):
        ability = chance.normal(0, math.sqrt(0.25 / 2), count * 4)
        gain = chance.normal(0.15, math.sqrt(0.25 * 0.3), count)[documents]
        gain += chance.normal(0, math.sqrt(0.25 * 0.7), count * 4)
        found += compare(ability, ability + gain, documents).p_value <= 0.05
    assert 0.74 <= found / 300 <= 0.86


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: samples_needed(0), "effect is 0"),
        (lambda: samples_needed(0.1, sd=0), "sd is 0"),
        (lambda: samples_needed(0.1, rho=1), "rho is 1"),
        (lambda: samples_needed(0.1, cluster_size=0.5), "cluster_size is 0.5"),
        (lambda: samples_needed(0.1, icc=-0.1), "icc is -0.1"),
        (lambda: samples_needed(0.1, alpha=5), "alpha is 5"),
        (lambda: samples_needed(0.1, power=80), "power is 80"),
        (lambda: samples_needed(0.1, power=0.001), "less than the false alarms"),
        (lambda: detectable(1), "samples are 1"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# --- hpcbench power -----------------------------------------------------------------------------------


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """What `hpcbench power … --json` tells."""
    assert main(["power", *words, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return found


def scored(root: Path, monkeypatch: pytest.MonkeyPatch, values: Any = None) -> Experiment:
    """An experiment with scores of 300 samples of 100 documents."""
    monkeypatch.setenv("HPCBENCH_HOME", str(root))
    here = past(root, "20261120-1432-plan-aaaa")
    chance = numpy.random.default_rng(1)
    documents = numpy.repeat(numpy.arange(100), 3)
    drawn = chance.normal(0, 0.3, 100)[documents] + chance.normal(0, 0.3, 300)
    table = polars.DataFrame(
        {
            "sample": [f"s{number}" for number in range(300)],
            "document": [f"d{number}" for number in documents],
            "exact_match": drawn if values is None else values,
        }
    )
    path = here.scores_file("rt")
    path.parent.mkdir(parents=True, exist_ok=True)
    table.write_parquet(path)
    return here


def test_documents_for_an_effect(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "--effect", "0.03")
    assert (row["samples"], row["documents"]) == (2181, 2181)
    (row,) = rows(capsys, "--effect=-0.03", "--questions-per-document", "4", "--icc", "0.3")
    assert (row["samples"], row["documents"], row["effect"]) == (4143, 1036, 0.03)
    (row,) = rows(capsys, "--effect", "0.03", "--rho", "0", "--sd", "0.25")
    assert row["samples"] == math.ceil(4360.4841 / 4)


def test_what_documents_can_show(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "--documents", "1036", "--questions-per-document", "4", "--icc", "0.3")
    assert row["effect"] == pytest.approx(0.03, abs=1e-5)
    assert row["samples"] == 4144


def test_without_a_question_it_tells_of_some_effects(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["power"]) == 0
    out = capsys.readouterr().out
    assert "2,181" in out
    assert "80% power" in out
    assert len(rows(capsys)) == 5


def test_scores_of_an_experiment_say_how_they_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scored(tmp_path, monkeypatch)
    (row,) = rows(capsys, "@last")
    assert (row["run_task"], row["metric"], row["documents"]) == ("rt", "exact_match", 100)
    assert row["questions_per_document"] == 3
    assert row["sd"] == pytest.approx(math.sqrt(0.18), rel=0.15)
    assert row["icc"] == pytest.approx(0.5, abs=0.15)
    expected = detectable(300, row["sd"], cluster_size=3, icc=row["icc"])
    assert row["effect"] == pytest.approx(expected)
    (told,) = rows(
        capsys, "@last", "--effect", "0.02", "--sd", "1", "--icc", "0", "--metric", "exact_match"
    )
    assert told["samples"] == samples_needed(0.02, 1)
    assert main(["power", "@last", "--run-task", "rt"]) == 0
    assert "exact_match" in capsys.readouterr().out


def test_scores_that_are_all_alike_are_said_to_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scored(tmp_path, monkeypatch, [1.0] * 300)
    assert main(["power", "@last"]) == 1
    told = capsys.readouterr().err
    assert "rt: exact_match is the same at all samples" in told
    assert "give --sd" in told


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--effect", "0"], 2, "--effect is 0.0"),
        (["--effect", "nan"], 2, "--effect is nan"),
        (["--effect", "0.1", "--documents", "9"], 2, "give one of them"),
        (["--documents", "1"], 2, "--documents is 1"),
        (["--questions-per-document", "0"], 2, "--questions-per-document is 0.0; it is 1 or more"),
        (["--rho", "1"], 2, "rho is 1.0"),
        (["--sd", "-1"], 2, "sd is -1.0"),
        (["--metric", "anls"], 2, "name it"),
        (["nobody"], 2, "no experiment 'nobody'"),
        (["@last", "--run-task", "x"], 2, "unknown run task 'x' (there are: rt)"),
        (["@last", "--metric", "x"], 2, "has no metric x: exact_match"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    message: str,
) -> None:
    scored(tmp_path, monkeypatch)
    assert main(["power", *words]) == code
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_an_experiment_without_scores_is_no_use_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path))
    past(tmp_path, "20261120-1432-plan-aaaa")
    assert main(["power", "@last"]) == 1
    assert "has no scores yet" in capsys.readouterr().err
