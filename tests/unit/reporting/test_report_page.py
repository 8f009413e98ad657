"""All readers can read the HTML report, offline, and nothing in it can run or fetch."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lxml import html as parser

from hpcbench.files.atomic import read_json, write_json
from hpcbench.reporting.formats import EVERY
from hpcbench.reporting.writing import report
from hpcbench.schema.outputs import Report
from hpcbench.testing import TABLES, VERDICT
from tests.unit.reporting.many import answered

HOSTILE = (
    '<img src=x onerror="alert(1)"><script>alert(1)</script> [x](javascript:alert(1)) | `a` @all'
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of two models with groups, failures, a gate's verdict, usage, and hostile answers."""
    folder = tmp_path_factory.mktemp("page")
    records = [
        {
            "id": f"s{n}", "images": ["p.png"], "document": f"d{n}", "references": [str(n)],
            "fields": {"question": HOSTILE}, "metadata": {"doc_type": HOSTILE if n % 2 else "b"},
        }
        for n in range(30)
    ]  # fmt: skip
    good = [str(n) if n > 3 else HOSTILE for n in range(30)]
    bad = [None if n < 5 else HOSTILE if n < 20 else str(n) for n in range(29)]
    bad.append("19")  # one digit is wrong
    dataset = {"source": str(folder / "data"), "group_by": ("doc_type",)}
    tasks = {
        name: {"dataset": dataset, "metrics": ("exact_match", "anls")} for name in ("good", "bad")
    }
    here = answered(folder, {"good": good, "bad": bad}, records, tasks=tasks, description=HOSTILE)
    write_json(here.verdict_file, VERDICT)
    hours: dict[str, Any] = {
        "run_task": "good", "model": HOSTILE, "unit": "GPU", "allocated": 2.0, "used": 1.0,
        "starting": 0.1, "loading": 0.2, "failed_loads": 0.0, "idle": 0.3, "lost": 0.0,
        "after_last_answer": 0.4,
    }  # fmt: skip
    write_json(here.usage_file, {
        "hours": [hours], "waited": None, "energy_wh": None, "gpu_utilisation": {}, "complete": True,
        "source": "slurm",
    })  # fmt: skip
    metrics = read_json(here.metrics_file)
    metrics["run_tasks"]["bad"]["errors"][0]["message"] = HOSTILE
    write_json(here.metrics_file, metrics)
    report(here)
    assert not (here.report_dir / "failed.txt").exists()
    return (here.report_dir / "report.html").read_text()


@pytest.fixture(scope="module")
def tree(page: str) -> Any:
    return parser.document_fromstring(page)


@pytest.mark.long
def test_every_section_is_there_in_order(tree: Any) -> None:
    # This experiment has no arms, published scores, judges, repeats or agents. Arms are in
    # tests/unit/comparison/test_interim.py, published scores in test_published.py beside this file, judges
    # in tests/unit/judging, the others in tests/unit/evaluation/test_agents.py and test_repeats.py.
    absent = ("arms", "published", "judges", "repeats", "agents")
    there = [one for one in EVERY if one not in absent]
    assert [one.get("id") for one in tree.iter("h2")] == there


def test_nothing_can_run_and_nothing_is_fetched(page: str, tree: Any) -> None:
    assert not list(tree.iter("script", "iframe", "object", "embed", "link", "form", "base"))
    for element in tree.iter():
        if not isinstance(element.tag, str):
            continue
        for name, value in element.attrib.items():
            assert not name.startswith("on"), (element.tag, name)
            if name in ("src", "href", "action", "data", "xlink:href", "srcset"):
                assert value.startswith(("#", "data:image/")), value
    (policy,) = tree.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert policy.startswith("default-src 'none'")
    assert "script" not in policy
    head = page[: page.index("</style>")]
    assert "url(" not in head
    assert "@import" not in head


def test_answers_and_names_are_text(page: str, tree: Any) -> None:
    assert "<img src=x" not in page
    assert HOSTILE in [one.text_content() for one in tree.iter("dd")]


def test_headings_go_down_one_level_at_a_time(tree: Any) -> None:
    levels = [int(one.tag[1]) for one in tree.iter("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))


def test_every_table_has_a_caption_and_says_what_its_heads_are_of(tree: Any) -> None:
    tables = list(tree.iter("table"))
    assert len(tables) > 8
    for table in tables:
        assert (table.findtext("caption") or "").strip()
        heads = table.findall("thead/tr/th")
        assert {one.get("scope") for one in heads} == {"col"}
        for row in table.findall("tbody/tr"):
            assert row[0].tag == "th"
            assert row[0].get("scope") == "row"
            assert len(row) == len(heads)


def test_every_picture_has_a_name(tree: Any) -> None:
    pictures = tree.xpath("//*[local-name()='svg']")
    assert len(pictures) > 3
    for one in pictures:
        box = one.xpath("ancestor::*[@role='img']")
        assert box
        assert len(box[0].get("aria-label")) > 10
    assert all(one.get("alt") for one in tree.iter("img"))


def test_ids_are_unique_and_links_lead_somewhere(page: str, tree: Any) -> None:
    ids = Counter(re.findall(r'\sid="([^"]+)"', page))
    assert [one for one, count in ids.items() if count > 1] == []
    for target in re.findall(r'href="#([^"]+)"', page) + re.findall(r"url\(#([^)]+)\)", page):
        assert target in ids, target


def test_what_scrolls_can_be_reached_by_keyboard(tree: Any) -> None:
    for one in [*tree.xpath("//div[@class='wide']"), *tree.iter("pre")]:
        assert one.get("tabindex") == "0"
    (nav,) = tree.iter("nav")
    assert nav.get("aria-label")
    assert tree.get("lang") == "en"
    assert tree.xpath("//title/text()")


def test_colours_of_text_have_contrast_in_both_themes(page: str) -> None:
    """WCAG 2.2, 1.4.3: at least 4.5 : 1."""
    style = page[page.index("<style>") : page.index("</style>")]
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", one)) for one in
                   re.findall(r":root \{(.*?)\n\s*\}", style, re.DOTALL)[:2])  # fmt: skip
    for theme in (light, dark):
        for ink, paper in [("ink", "paper"), ("soft", "paper"), ("link", "paper"), ("ink", "lead"),
                           ("warn", "warn-tint"), ("lost", "lost-tint"), ("added", "added-tint"),
                           ("ink", "tint"), ("soft", "tint")]:  # fmt: skip
            assert contrast(theme[ink], theme[paper]) >= 4.5, (ink, paper)


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_sections_can_be_chosen_and_left_out() -> None:
    from hpcbench.reporting.formats.html import Html

    def shown(**options: Any) -> list[str]:
        page = Html(options).render(TABLES)["report.html"]
        assert isinstance(page, str)
        return [one.get("id") for one in parser.document_fromstring(page).iter("h2")]

    assert shown(sections=["worst", "verdict"]) == ["verdict", "worst"], "in their own order"
    assert "provenance" not in shown(without=["provenance"])
    assert "worst" not in shown(worst=0)


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    here = answered(tmp_path, {"rt": ["0", "wrong"]})
    report(here, [Report(name="html", plugin="html", options={"sections": ["verdicts"]})])
    assert (here.report_dir / "failed.txt").read_text().startswith("html: ")
