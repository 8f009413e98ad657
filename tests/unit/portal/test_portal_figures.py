"""Figures for the client: Plotly takes them, they are capped, and tell the same in words and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from hpcbench.portal import figures
from hpcbench.portal.figures import MOST_NAMES, MOST_POINTS, capped, sent
from hpcbench.portal.results_cache import Results
from hpcbench.reporting.figures import Axis, Figure, Flow, Matrix, Series
from tests.unit.reporting.many import answered, right

BUNDLED = {"scatter", "bar", "heatmap", "sankey"}
"""Kinds of traces that the client's Plotly can draw."""

HOURS = {
    "run_task": "a", "model": "org/a", "unit": "GPU", "allocated": 3.0, "used": 2.0, "starting": 0.1,
    "loading": 0.5, "failed_loads": 0.0, "idle": 0.2, "lost": 0.1, "after_last_answer": 0.1,
}  # fmt: skip


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """Two run tasks, one with samples that did not end well."""
    folder = tmp_path_factory.mktemp("figures")
    here = answered(folder, {"a": right(40, 0.9), "b": [*right(38, 0.5), None, None]})
    write_json(here.usage_file, {"hours": [HOURS, {**HOURS, "run_task": "b"}]})
    text = here.metrics_file.read_text().replace("the engine hung up", "<b onload=x> $x$")
    here.metrics_file.write_text(text)  # what an engine said may be anything
    return here


def every(experiment: Experiment) -> Iterator[Any]:
    """All figures there are, of the experiment and its run tasks."""
    results = Results()
    for run_task in (None, "a", "b"):
        for one in figures.names(experiment, results, run_task):
            for theme in ("light", "dark"):
                found = figures.figure(experiment, one.name, results, theme, run_task)
                assert found is not None, one.name
                yield found


@pytest.mark.long
def test_plotly_takes_every_figure_and_the_client_can_draw_it(experiment: Experiment) -> None:
    import plotly.graph_objects as objects

    for found in every(experiment):
        objects.Figure(**found.plotly)
        assert {trace["type"] for trace in found.plotly["data"]} <= BUNDLED, found.name


def test_every_figure_has_words_and_a_table_and_is_plain_json(experiment: Experiment) -> None:
    for found in every(experiment):
        assert found.described
        assert found.rows
        assert {len(row) for row in found.rows} == {len(found.columns)}
        json.dumps(found.model_dump(mode="json"), allow_nan=False)


def test_what_an_engine_said_is_text_and_no_markup(experiment: Experiment) -> None:
    reported = [found for found in every(experiment) if "onload" in json.dumps(found.plotly)]
    assert {one.name for one in reported} == {"causes"}
    assert not any("<b onload" in json.dumps(one.plotly) for one in reported)


def test_there_are_figures_of_quality_speed_resources_and_failures(experiment: Experiment) -> None:
    groups = {one.group for one in figures.names(experiment, Results())}
    assert groups == {"quality", "speed", "resources", "failures"}
    names = {one.name for one in figures.names(experiment, Results(), "a")}
    assert {"distribution-exact_match", "over-time", "latency-histogram", "tokens"} <= names


def test_what_is_not_there_is_none(experiment: Experiment) -> None:
    for name in ("", "nothing", "../metrics", "over-time"):
        assert figures.figure(experiment, name, Results(), "light") is None


def test_a_theme_changes_the_drawing_and_not_the_table() -> None:
    series = Series("s", ("x",), (1.0,))
    figure = Figure("f", "F", "bar", Axis("x", scale="category"), Axis("y"), (series,))
    light, dark = sent(figure, "light"), sent(figure, "dark")
    assert light.rows == dark.rows
    assert light.plotly != dark.plotly


def test_of_an_experiment_that_runs_there_are_no_figures_yet(tmp_path: Path) -> None:
    here = Experiment(tmp_path / "experiments" / "e")
    here.path.mkdir(parents=True)
    assert figures.names(here, Results()) == ()


@pytest.mark.parametrize(
    "damage", [{}, {"run_tasks": {}}, {"version": 99}, [], {"run_tasks": {"a": {}}}]
)
def test_what_is_damaged_makes_fewer_figures_and_no_error(
    tmp_path: Path, experiment: Experiment, damage: Any
) -> None:
    here = Experiment(tmp_path / "experiments" / "e")
    here.path.mkdir(parents=True)
    for name in ("metrics.json", "performance.json", "usage.json"):
        (here.path / name).write_text(json.dumps(damage))
    for run_task in (None, "a"):
        for one in figures.names(here, Results(), run_task):
            figures.figure(here, one.name, Results(), "light", run_task)


# --- caps ---------------------------------------------------------------------------------------------


@given(st.integers(MOST_POINTS + 1, 3 * MOST_POINTS), st.integers(0, 10**6))
def test_a_long_line_keeps_its_extremes_in_few_points(count: int, seed: int) -> None:
    peak = seed % count
    y = tuple(float(place == peak) for place in range(count))
    series = Series("s", tuple(map(float, range(count))), y, mark="line")
    found = capped(Figure("f", "F", "line", Axis("x"), Axis("y"), (series,)))
    (one,) = found.series
    assert len(one.y) <= MOST_POINTS
    assert one.y[one.x.index(float(peak))] == 1.0
    assert "points, the extremes included" in found.notes[0]


def test_many_names_are_cut_and_that_is_reported() -> None:
    names = tuple(f"n{number}" for number in range(2 * MOST_NAMES))
    series = Series("s", names, tuple(map(float, range(len(names)))), low=(0.0,) * len(names),
                    high=(1.0,) * len(names))  # fmt: skip
    found = sent(
        Figure("f", "F", "interval", Axis("x", scale="category"), Axis("y"), (series,)), "light"
    )
    assert len(found.plotly["data"][0]["y"]) == MOST_NAMES
    assert found.notes == (f"The figure shows {MOST_NAMES} of {2 * MOST_NAMES} names.",)


def test_a_large_matrix_is_cut_and_that_is_reported() -> None:
    cells = tuple(tuple(0.5 for _ in range(100)) for _ in range(100))
    names = tuple(f"n{number}" for number in range(100))
    figure = Figure("f", "F", "heatmap", Axis("x"), Axis("y"), matrix=Matrix(names, names, cells))
    found = capped(figure)
    assert found.matrix is not None
    assert len(found.matrix.rows) * len(found.matrix.columns) <= MOST_POINTS
    assert found.notes == ("The figure shows 50 of 100 rows and 100 of 100 columns.",)


def test_flows_can_be_sent() -> None:
    import plotly.graph_objects as objects

    figure = Figure(
        "f", "F", "sankey", Axis("one"), Axis("other"), flows=(Flow("right", "wrong", 3),)
    )
    objects.Figure(**sent(figure, "dark").plotly)
