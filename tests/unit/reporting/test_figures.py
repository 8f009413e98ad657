"""A figure says the same in every form, harms no page, and all readers can read it."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from hpcbench.experiment.view.performance_json import Trajectories
from hpcbench.reporting.charts import agents
from hpcbench.reporting.figures import (
    Axis,
    Figure,
    Flow,
    Matrix,
    Series,
    described,
    plotly,
    png,
    svg,
    table,
)
from hpcbench.reporting.figures.flows import laid_out
from hpcbench.reporting.figures.style import (
    COLOURS,
    DASHES,
    INK,
    MARKERS,
    OUTCOMES,
    PAGES,
    contrast,
    look,
    short,
    shortened,
)
from tests.campaign import examples, first

CATEGORY = Axis("run task", scale="category")
HOSTILE = '<script>alert(1)</script> $x_$ & "q" \'r\' ]]> --> \x00\x1b \ud800 \u202e id="a" 日本'


def interval(**more: Any) -> Figure:
    """Two run tasks, two metrics."""
    series = (
        Series("anls ↑", ("a", "b"), (0.5, 0.75), (0.4, None), (0.6, None)),
        Series("cer ↓", ("a", "b"), (0.1, None)),
    )
    return Figure("scores", "Scores", "interval", CATEGORY, Axis("value"), series, **more)


EVERY = {
    "bar": Figure(
        "bar", "Bars", "bar", CATEGORY, Axis("share", "%"),
        (Series("one", ("a", "b"), (1.0, 2.0), (0.5, 1.0), (1.5, 3.0), ("n 5", "")),),
    ),
    "interval": interval(),
    "line": Figure(
        "line", "Over time", "line", Axis("time", scale="time"), Axis("anls"),
        (Series("rt", (1.79e9, 1.791e9), (0.5, 0.6), labels=("e1", "e2"), highlight=(False, True)),),
        marked="the level changed",
    ),
    "scatter": Figure(
        "scatter", "Quality and speed", "scatter", Axis("answers", "1/s", low=0.0), Axis("anls"),
        (Series("m", (1.0, 2.0), (0.5, 0.6), labels=("one", "two"), x_low=(0.9, 1.9), x_high=(1.1, 2.1)),),
    ),
    "histogram": Figure(
        "histogram", "Scores", "histogram", Axis("anls"), Axis("samples"),
        (Series("rt", (0.0, 0.5, 1.0), (3.0, 7.0)), Series("ru", (0.0, 0.5, 1.0), (4.0, 6.0))),
    ),
    "ecdf": Figure(
        "ecdf", "TTFT", "ecdf", Axis("TTFT", "ms", scale="log"), Axis("share"),
        (Series("rt", (10.0, 20.0, 40.0, 800.0), (0.25, 0.5, 0.75, 1.0)),),
    ),
    "heatmap": Figure(
        "heatmap", "Models", "heatmap", Axis("dataset", scale="category"), Axis("anls"),
        matrix=Matrix(("m", "n"), ("d", "e"), ((0.1, None), (0.9, 0.5))),
    ),
    "sankey": Figure(
        "sankey", "Flow", "sankey", Axis("main"), Axis("new"),
        flows=(Flow("right", "right", 5), Flow("right", "wrong", 1), Flow("wrong", "right", 2)),
    ),
}  # fmt: skip


@cache
def drawn(figure: Figure) -> str:
    """The SVG; drawn once for all tests."""
    return svg(figure)


def parsed(figure: Figure) -> Any:
    """The SVG as a tree."""
    return etree.fromstring(drawn(figure).encode())


def words(figure: Figure) -> str:
    """All that is written in the SVG."""
    return " ".join("".join(one.itertext()) for one in parsed(figure).iter("{*}text"))


def holds_no_nan(value: object) -> bool:
    """Whether plain data can be written as JSON that browsers read."""
    return "NaN" not in json.dumps(value) and json.dumps(value, allow_nan=False) is not None


# --- every kind, every form -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
def test_the_same_figure_is_the_same_svg(kind: str) -> None:
    assert svg(EVERY[kind]) == drawn(EVERY[kind])


@pytest.mark.long
@pytest.mark.parametrize("kind", first(2, EVERY))
def test_the_same_figure_is_the_same_png(kind: str) -> None:
    assert png(EVERY[kind], "dark") == png(EVERY[kind], "dark")


@pytest.mark.parametrize("kind", EVERY)
def test_an_svg_describes_itself_to_readers_who_cannot_see_it(kind: str) -> None:
    root = parsed(EVERY[kind])
    assert root.get("role") == "img"
    named = {one.get("id"): one.text for one in root if one.tag.endswith(("title", "desc"))}
    assert named[root.get("aria-labelledby")] == EVERY[kind].title
    assert named[root.get("aria-describedby")] == described(EVERY[kind])
    assert EVERY[kind].title in words(EVERY[kind])


@pytest.mark.parametrize("kind", EVERY)
def test_an_svg_brings_nothing_that_works_on_the_page_around_it(kind: str) -> None:
    root = parsed(EVERY[kind])
    tags = {etree.QName(one).localname for one in root.iter() if isinstance(one.tag, str)}
    assert not tags & {"style", "script", "metadata", "foreignObject", "image"}
    ids = [one.get("id") for one in root.iter() if one.get("id")]
    assert len(ids) == len(set(ids))
    assert all(one.startswith(f"{EVERY[kind].name}-") for one in ids)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawn(EVERY[kind])))
    assert used <= set(ids)


@pytest.mark.parametrize("kind", EVERY)
def test_an_svg_has_the_ink_of_the_page_and_else_a_grey_for_all_pages(kind: str) -> None:
    text = drawn(EVERY[kind])
    assert f"var(--ink, {INK})" in text
    assert not re.search(r"(?<!--ink, )(?<!=\")" + INK, text)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_png_has_the_paper_of_its_theme(theme: Any) -> None:
    import io

    from PIL import Image

    image = Image.open(io.BytesIO(png(EVERY["interval"], theme))).convert("RGB")
    red, green, blue = image.getpixel((2, image.height - 2))  # type: ignore[misc]
    assert f"#{red:02x}{green:02x}{blue:02x}" == PAGES[theme].paper  # type: ignore[index]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", EVERY)
def test_plotly_takes_it_by_its_published_schema(kind: str, theme: Any) -> None:
    import plotly.graph_objects as objects

    made = plotly(EVERY[kind], theme)
    assert set(made) == {"data", "layout"}
    assert made["data"]
    objects.Figure(made)  # refuses any name or value that the schema does not have
    assert holds_no_nan(made)
    assert made["layout"]["meta"]["described"] == described(EVERY[kind])


def test_what_a_ring_means_is_reported_in_every_form() -> None:
    assert "the level changed" in words(EVERY["line"])
    assert plotly(EVERY["line"])["layout"]["meta"]["notes"] == ["Ringed: the level changed."]


@pytest.mark.parametrize("kind", EVERY)
def test_every_figure_has_its_table(kind: str) -> None:
    heads, rows = table(EVERY[kind])
    assert rows
    assert all(len(row) == len(heads) for row in rows)
    assert len(set(heads)) == len(heads)


# --- tables ---------------------------------------------------------------------------------------------


def test_a_table_has_the_values_themselves_and_nothing_for_what_is_unknown() -> None:
    heads, rows = table(interval())
    assert heads == ["series", "run task", "value", "value low", "value high"]
    assert rows == [
        ["anls ↑", "a", 0.5, 0.4, 0.6],
        ["anls ↑", "b", 0.75, None, None],
        ["cer ↓", "a", 0.1, None, None],
        ["cer ↓", "b", None, None, None],
    ]


def test_a_distribution_is_reported_by_its_quantiles() -> None:
    heads, ((name, *cells),) = table(EVERY["ecdf"])
    assert heads == ["TTFT, ms", "5 %", "25 %", "50 %", "75 %", "90 %", "95 %", "99 %", "greatest"]
    assert (name, *cells) == ("rt", 10, 10, 20, 40, 800, 800, 800, 800)


def test_times_rings_flows_cells_and_bins_stand_in_their_tables() -> None:
    assert table(EVERY["line"])[1] == [
        ["2026-09-21 14:13:20", 0.5, "e1", ""],
        ["2026-10-03 04:00:00", 0.6, "e2", "yes"],
    ]
    assert table(EVERY["line"])[0][-1] == "the level changed"
    assert table(EVERY["sankey"]) == (
        ["main", "new", "samples"],
        [["right", "right", 5], ["right", "wrong", 1], ["wrong", "right", 2]],
    )
    assert table(EVERY["heatmap"]) == (["anls", "d", "e"], [["m", 0.1, None], ["n", 0.9, 0.5]])
    assert table(EVERY["histogram"])[1][0] == ["rt", 0.0, 0.5, 3.0]


# --- hostile names and broken numbers -------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERY)
def test_hostile_names_are_text_in_every_form(kind: str) -> None:
    import plotly.graph_objects as objects

    plain = EVERY[kind]
    series = tuple(
        Series(
            HOSTILE, tuple(HOSTILE + x if isinstance(x, str) else x for x in one.x), one.y, one.low, one.high,
            one.labels and (HOSTILE,) * len(one.labels), one.mark, one.highlight, one.x_low, one.x_high,
        )
        for one in plain.series
    )  # fmt: skip
    matrix = Matrix((HOSTILE, "n"), (HOSTILE, "e"), ((1.0, 2.0), (3.0, 4.0)), ((HOSTILE,) * 2,) * 2)
    axes = (Axis(HOSTILE, HOSTILE, plain.x.scale), Axis(HOSTILE, HOSTILE, plain.y.scale))
    figure = Figure(
        "hostile", HOSTILE, plain.kind, *axes, series,
        tuple(Flow(HOSTILE, one.target, one.count) for one in plain.flows),
        matrix if plain.matrix else None, (HOSTILE,), HOSTILE, HOSTILE,
    )  # fmt: skip
    root = parsed(figure)
    assert not [one for one in root.iter("{*}script")]
    assert "<script>alert(1)</script> $x_$" in words(figure)
    assert [one.get("id") for one in root.iter() if one.get("id") == "a"] == []
    png(figure)
    made = plotly(figure)
    objects.Figure(made)
    del made["layout"]["meta"]  # which Plotly does not draw
    text = json.dumps(made)
    assert "<script" not in text
    assert "$" not in text
    for row in [table(figure)[0], *table(figure)[1]]:
        reported = [cell for cell in row if isinstance(cell, str)]
        assert not [cell for cell in reported if re.search("[\x00-\x1f\ud800\u202e]", cell)]


@pytest.mark.long
@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    name=st.text(max_size=60),
    scale=st.sampled_from(["linear", "log", "time"]),
    points=st.lists(
        st.tuples(*[st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))] * 4),
        max_size=6,
    ),
)
def test_any_name_and_any_numbers_can_be_drawn(name: str, scale: Any, points: list[Any]) -> None:
    import plotly.graph_objects as objects

    x, y, low, high = zip(*points, strict=True) if points else ((),) * 4
    xs = tuple(math.nan if one is None else one for one in x)
    series = Series(name, xs, y, low, high, (name,) * len(y), "line")
    figure = Figure(
        "any", name, "line", Axis(name, scale=scale), Axis(name, scale="log"), (series,)
    )
    parsed(figure)
    made = plotly(figure)
    objects.Figure(made)
    assert holds_no_nan(made)
    heads, rows = table(figure)
    assert all(len(row) == len(heads) for row in rows)


@pytest.mark.long
def test_nothing_to_show_says_so() -> None:
    for kind in ("line", "scatter", "ecdf", "histogram", "heatmap", "sankey"):
        figure = Figure("empty", "Empty", kind, Axis("x"), Axis("y"))  # type: ignore[arg-type]
        assert "nothing to show" in words(figure)
        assert png(figure, "dark")
        assert table(figure)[1] == []
        assert holds_no_nan(plotly(figure))
    nan = Series("a", (1.0,), (math.nan,))
    assert "nothing to show" in words(Figure("nan", "", "scatter", Axis("x"), Axis("y"), (nan,)))


@pytest.mark.long
def test_a_single_point_is_drawn_on_every_scale() -> None:
    for scale in ("linear", "log", "time"):
        axes = Axis("x", scale=scale), Axis("y", scale="log")  # type: ignore[arg-type]
        figure = Figure("one", "One", "line", *axes, (Series("a", (1.79e9,), (3.0,)),))
        assert "nothing to show" not in words(figure)


def test_parts_that_do_not_fit_are_refused() -> None:
    axes = Axis("x"), Axis("y")
    with pytest.raises(ValueError, match="do not fit"):
        Figure("f", "", "line", *axes, (Series("a", (1.0,), (1.0, 2.0)),))
    with pytest.raises(ValueError, match="lengths differ"):
        Figure("f", "", "line", *axes, (Series("a", (1.0,), (1.0,), low=()),))
    with pytest.raises(ValueError, match="must be numbers"):
        Figure("f", "", "line", *axes, (Series("a", ("b",), (1.0,)),))
    with pytest.raises(ValueError, match="are categories"):
        Figure("f", "", "bar", *axes, (Series("a", (1.0,), (1.0,)),))
    with pytest.raises(ValueError, match="rows × columns"):
        Figure("f", "", "heatmap", *axes, matrix=Matrix(("a",), ("b", "c"), ((1.0,),)))
    with pytest.raises(ValueError, match="below 0"):
        Figure("f", "", "sankey", *axes, flows=(Flow("a", "b", -1),))
    with pytest.raises(ValueError, match="in the name of a file"):
        Figure("../f", "", "line", *axes)


# --- many -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_of_many_series_the_first_have_colours_and_the_table_has_all() -> None:
    series = tuple(
        Series(f"run-{n}-" + "x" * n, tuple(float(k) for k in range(4)), (1.0, 2.0, 3.0, float(n)))
        for n in range(200)
    )
    figure = Figure("many", "Many", "line", Axis("x"), Axis("y"), series)
    assert "188 more series are grey; the table has all." in words(figure)
    assert len(table(figure)[1]) == 800
    assert len(plotly(figure)["data"]) == 200
    assert svg(figure).count(COLOURS[0]) < 100


@pytest.mark.long
def test_of_many_rows_the_first_are_drawn_and_the_table_has_all() -> None:
    names = tuple(f"organisation/model-{n}-with-a-rather-long-name-{'y' * n}" for n in range(100))
    one = Series("anls", names, tuple(n / 100 for n in range(100)))
    figure = Figure("rows", "Rows", "interval", CATEGORY, Axis("anls"), (one,))
    assert "The first 60 of 100 are drawn; the table has all." in words(figure)
    assert len(table(figure)[1]) == 100
    height = float(parsed(figure).get("height"))
    assert height < 20 * 72


def test_a_long_title_and_its_notes_stay_within_the_picture() -> None:
    figure = interval(notes=("A note. " * 60,))
    figure = Figure(
        **{**{name: getattr(figure, name) for name in Figure.__slots__}, "title": "T " * 200}
    )
    height = float(parsed(figure).get("height"))
    for one in parsed(figure).iter("{*}text"):
        place = re.search(
            r"(?:translate|rotate)\([-\d.]+ ?[ ,]?([-\d.]+)", one.get("transform") or ""
        )
        y = float(one.get("y") or (place[1] if place else 1))
        assert y <= height


# --- what eyes need -------------------------------------------------------------------------------------


def test_colours_stand_out_on_white_and_on_dark_paper() -> None:
    for shade in (*COLOURS, INK):
        for page in PAGES.values():
            assert contrast(shade, page.paper) >= 3
    assert contrast(INK, "#ffffff") >= 4
    assert contrast(INK, PAGES["dark"].paper) >= 4
    for page in PAGES.values():
        assert contrast(page.ink, page.paper) >= 7


def test_series_differ_by_more_than_their_colour() -> None:
    first = [look(place) for place in range(12)]
    for one, other in zip(first, first[1:], strict=False):
        assert one[0] != other[0]
        assert one[1] != other[1]
    whole = {(place % len(COLOURS), *look(place)) for place in range(28)}
    assert len(whole) == 28
    assert len(MARKERS) == len(COLOURS)
    assert len(DASHES) == 4


def test_long_names_are_cut_in_the_middle_and_stay_apart() -> None:
    assert short("a" * 50 + "-int4", 20).endswith("-int4")
    assert len(short("b" * 500, 44)) == 44
    names = [f"{'x' * 60}{n}{'y' * 60}" for n in range(3)]
    assert len(set(shortened(names))) == 3


def test_outcomes_have_one_colour_and_one_order_wherever_they_are_drawn() -> None:
    flows = (
        Flow("wrong", "right", 1),
        Flow("right", "failed", 2),
        Flow("right", "partly right", 3),
    )
    figure = Figure("f", "", "sankey", Axis("a"), Axis("b"), flows=flows, outcomes=True)
    order = ["right", "partly right", "wrong", "failed"]
    left, right, _ = laid_out(flows)
    names = [side.name for side in (*left, *right)]
    assert names == ["right", "wrong", "right", "partly right", "failed"]
    node = plotly(figure, "light")["data"][0]["node"]
    assert node["label"] == names
    assert node["color"] == [OUTCOMES[name] for name in names]
    assert OUTCOMES["right"] == "#009e73"
    assert OUTCOMES["wrong"] == "#d55e00"
    assert node["y"][:2] == sorted(node["y"][:2])
    assert node["y"][2:] == sorted(node["y"][2:])
    assert all(0 < place < 1 for place in node["x"] + node["y"])
    text = svg(figure).lower()
    assert all(OUTCOMES[name] in text for name in order)
    bars = tuple(Series(name, ("rt",), (1.0,)) for name in ("wrong", "right"))
    bar = Figure("b", "", "bar", Axis("a", scale="category"), Axis("b"), bars, outcomes=True)
    found = [one["marker"]["color"] for one in plotly(bar, "light")["data"]]
    assert sorted(found) == sorted([OUTCOMES["wrong"], OUTCOMES["right"]])


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.integers(0, 9)), max_size=12
    )
)
def test_blocks_and_bands_of_a_flow_fit_each_other(flows: list[tuple[str, str, int]]) -> None:
    left, right, ribbons = laid_out([Flow(*one) for one in flows])
    total = sum(count for _, _, count in flows)
    assert sum(side.count for side in left) == sum(side.count for side in right) == total
    for side in (*left, *right):
        assert -1e-9 <= side.low < side.high <= 1 + 1e-9
    for one, other in [*zip(left, left[1:], strict=False), *zip(right, right[1:], strict=False)]:
        assert other.high < one.low
    for ribbon in ribbons:
        source = next(side for side in left if side.name == ribbon.source)
        target = next(side for side in right if side.name == ribbon.target)
        assert source.low - 1e-9 <= ribbon.source_low < ribbon.source_high <= source.high + 1e-9
        assert target.low - 1e-9 <= ribbon.target_low < ribbon.target_high <= target.high + 1e-9


def test_an_axis_of_whole_numbers_has_no_halves() -> None:
    calls = agents.calls("rt", Trajectories(by_calls={"0": 3, "1": 2, "3": 1}))
    assert calls is not None
    assert [row[:2] for row in table(calls)[1]] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    made = plotly(calls)
    assert (made["layout"]["xaxis"]["tick0"], made["layout"]["xaxis"]["dtick"]) == (0, 1)
    assert made["data"][0]["hovertext"][1] == "rt<br>1: 2.00"
    assert not {one for one in words(calls).split() if ".5" in one}
