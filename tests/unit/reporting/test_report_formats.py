"""Each format says the same in its own words, and what it is given cannot break it."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.reporting.blocks import Section, Text
from hpcbench.reporting.formats import latex, markdown
from hpcbench.reporting.formats.pdf import Pdf
from hpcbench.reporting.report_tables import json_schema
from hpcbench.reporting.writing import report
from hpcbench.schema.outputs import Report
from hpcbench.testing import TABLES, check
from hpcbench.visible import visible
from tests.conftest import ROOT
from tests.unit.command import Cli
from tests.unit.reporting.many import answered

SIGNS = st.text(
    st.sampled_from("ab1 \n_*[]()`~|<>&\\#-+.!@:/{}$%^\"'\u2191\u0416\u200b\x07"), max_size=40
)


def written(here: Experiment, *names: str) -> Path:
    report(here, [Report(name=name, plugin=name) for name in names])
    assert not (here.report_dir / "failed.txt").exists()
    return here.report_dir


# --- JSON -----------------------------------------------------------------------------------------------


def test_the_published_schema_is_that_of_the_tables() -> None:
    shipped = json.loads((ROOT / "registries/schemas/report.json").read_text())
    assert shipped == json_schema(), "run: hpcbench schema --out registries/schemas"


def test_the_artefact_and_the_example_for_plugins_keep_to_the_schema(tmp_path: Path) -> None:
    here = answered(tmp_path, {"good": ["0", "1", "2", None], "bad": ["0", "x", "y", "z"]})
    found = json.loads((written(here, "json") / "report.json").read_text())
    for tables in (found, json.loads(json.dumps(TABLES))):
        jsonschema.Draft202012Validator(json_schema()).validate(tables)
        assert set(tables) == set(json_schema()["required"])
    assert found["metrics"]["run_tasks"]["good"]["coverage"] == 0.75


def test_run_tasks_and_metrics_stand_in_the_order_of_the_plan(tmp_path: Path) -> None:
    """Files of scores sort by name; models are ranked by the metric that the plan names first."""
    tasks = {name: {"metrics": ("exact_match", "anls")} for name in ("b", "a")}
    here = answered(tmp_path, {"b": ["0", "x"], "a": ["0", "y"]}, tasks=tasks)
    found = json.loads((written(here, "json") / "report.json").read_text())
    assert list(found["metrics"]["run_tasks"]) == ["b", "a"]
    assert list(found["metrics"]["run_tasks"]["a"]["metrics"]) == ["exact_match", "anls"]
    assert found["leaders"][0]["metric"] == "exact_match"


# --- Markdown -------------------------------------------------------------------------------------------


@given(SIGNS, st.sampled_from(["", "x "]))
def test_markdown_shows_any_text_as_it_is(text: str, before: str) -> None:
    """Within a line, and at its beginning, where signs make lists and headings."""
    (inline,) = [
        one
        for one in MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .parse(f"{before}{markdown.escaped(text)} x")
        if one.type == "inline"
    ]
    assert {one.type for one in inline.children or []} <= {"text", "text_special"}
    shown = "".join(one.content for one in inline.children or [])
    assert shown.split() == visible(f"{before}{text} x").split()


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("↑ is better. [ ]: 95 % interval", "↑ is better. [ ]: 95 % interval"),
        ("see a]: b", "see a]: b"),
        ("[total]: 12.50", "\\[total]: 12.50"),
        ("[^1]: 12.50", "\\[^1]: 12.50"),
        ("[ ] open", "\\[ ] open"),
        ("[x] done", "\\[x] done"),
        ("[a](b)", "[a]\\(b)"),
    ],
)
def test_markdown_escapes_brackets_only_where_they_are_markup(text: str, written: str) -> None:
    assert markdown.escaped(text) == written


def test_markdown_escapes_what_makes_a_list_only_at_the_beginning() -> None:
    page, _ = markdown.written("t", "", [Section("a", "A", (Text("`one` - [b]: `two` + c"),))])
    assert page.splitlines()[-1] == "`one` - [b]: `two` + c"


@given(SIGNS)
def test_a_cell_of_markdown_stays_one_cell(text: str) -> None:
    table = f"| a | b |\n|---|---|\n| {markdown.escaped(text) or '–'} | x |"
    tokens = MarkdownIt("commonmark").enable("table").parse(table)
    assert sum(one.type == "td_open" for one in tokens) == 2


def test_an_answer_notifies_no_user() -> None:
    assert "@" not in markdown.escaped("ask @everybody")


@pytest.mark.long
def test_links_of_markdown_lead_to_files_that_are_there(tmp_path: Path) -> None:
    here = answered(tmp_path, {"good": ["0", "1", "2", None], "bad": ["0", "x", "y", "z"]})
    folder = written(here, "markdown")
    links = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (folder / "report.md").read_text())
    assert links
    assert all((folder / link).is_file() for link in links)


# --- LaTeX ----------------------------------------------------------------------------------------------


@given(SIGNS)
def test_latex_gets_no_command_out_of_a_name(text: str) -> None:
    reported = latex.escaped(text)
    for known in sorted(latex.SPECIAL.values(), key=len, reverse=True):
        reported = reported.replace(known, "")
    assert not re.search(r"[\\{}$&#%_^~<>|\"\x07]", reported)


def test_latex_marks_the_best_and_tells_intervals(tmp_path: Path) -> None:
    right = [str(n) for n in range(30)]
    here = answered(tmp_path, {"good_1": right, "bad": ["x", *right[1:15], *["y"] * 15]})
    text = (written(here, "latex") / "report.tex").read_text()
    assert r"org/good\_1 & \textbf{1.000} {\scriptsize [" in text
    assert r"org/bad & 0.467 {\scriptsize [" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
@pytest.mark.parametrize("how", ["alone", "included"])
def test_latex_compiles_alone_and_inside_another_document(tmp_path: Path, how: str) -> None:
    tables: dict[str, Any] = json.loads(json.dumps(TABLES))
    name = 'a_b&c%d#e$f{g}h~i^j\\k|l<m>n"o Ж ↑ × –'
    tables["matrix"][0]["rows"][0]["model"] = tables["matrix"][0]["columns"][0]["dataset"] = name
    files = latex.Latex({}).render(tables)
    (tmp_path / "report.tex").write_text(str(files["report.tex"]))
    if how == "included":
        outer = r"\documentclass{article}\usepackage{booktabs}\usepackage[T1,T2A]{fontenc}"
        (tmp_path / "outer.tex").write_text(
            outer + r"\begin{document}Before.\input{report.tex}After.\end{document}"
        )
    argv = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    stem = "report" if how == "alone" else "outer"
    done = subprocess.run([*argv, f"{stem}.tex"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / f"{stem}.pdf").stat().st_size > 1000


# --- PDF ------------------------------------------------------------------------------------------------


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o700 | stat.S_IXUSR)


@pytest.mark.long
def test_without_a_converter_one_line_says_so_and_the_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = answered(tmp_path, {"rt": ["0", "x"]})
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    report(here, [Report(name=name, plugin=name) for name in ("pdf", "markdown")])
    (line,) = (here.report_dir / "failed.txt").read_text().splitlines()
    assert line.startswith(
        "pdf: no PDF: neither chromium nor weasyprint nor wkhtmltopdf is on PATH"
    )
    assert (here.report_dir / "report.md").exists()


@pytest.mark.long
def test_a_converter_that_fails_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "chromium", "echo no display >&2; exit 1")
    program(tmp_path / "bin", "weasyprint", 'test -s "$1" && printf %%PDF-1.7 > "$2"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert Pdf({}).render(TABLES) == {"report.pdf": b"%PDF-1.7"}
    (tmp_path / "bin" / "weasyprint").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(EnvironmentFault, match="no PDF: chromium exited with code 1: no display"):
        Pdf({}).render(TABLES)


def test_a_converter_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "wkhtmltopdf", "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setattr("hpcbench.reporting.formats.pdf.BROWSERS", ())
    with pytest.raises(EnvironmentFault, match="wkhtmltopdf took longer than 0.2 s"):
        Pdf({"timeout": 0.2}).render(TABLES)


# --- all of them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["html", "json", "latex", "markdown"])
def test_built_in_reports_keep_the_contract(tmp_path: Path, name: str) -> None:
    check("reports", plugins.load("reports", name), tmp_path)


def test_a_report_that_fails_is_named_until_it_is_written(tmp_path: Path) -> None:
    here = answered(tmp_path, {"rt": ["0", "x"]})
    failed = here.report_dir / "failed.txt"
    broken = Report(name="odd", plugin="no.such.Class")
    report(here, [broken, Report(name="latex", plugin="latex", options={"sped": True})])
    assert [line.partition(":")[0] for line in failed.read_text().splitlines()] == ["odd", "latex"]
    report(here, [Report(name="latex", plugin="latex")])
    assert [line.partition(":")[0] for line in failed.read_text().splitlines()] == ["odd"]
    report(here, [Report(name="odd", plugin="latex")])
    assert not failed.exists()


# --- the verb -------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    return answered(tmp_path, {"good": ["0", "1", "2", None], "bad": ["0", "x", "y", "z"]})


def test_the_verb_writes_what_is_missing_then_prints_scores_and_paths(
    here: Experiment, cli: Cli
) -> None:
    cli("report")
    assert (here.report_dir / "report.html").exists()
    shown = cli("report")
    assert "exact_match ↑" in shown
    assert f"report: {here.report_dir / 'report.html'}" in shown.replace("\n", "")


def test_the_verb_writes_any_format_anywhere(here: Experiment, tmp_path: Path, cli: Cli) -> None:
    place = tmp_path / "paper"
    cli("report", "@last", "--format", "latex,json", "--to", place)
    assert sorted(path.name for path in place.iterdir()) == ["report.json", "report.tex"]
    assert not here.report_dir.exists()
    assert cli("report", "--format", "markdown", "--to", "-").startswith("# plan: ")
    reported = cli.json("report", "--format", "json", "--to", place, "--json")
    assert reported["files"] == [str(place / "report.json")]


def test_an_unknown_format_is_refused_with_a_guess(here: Experiment, cli: Cli) -> None:
    assert "did you mean 'html'?" in cli.err("report", "--format", "htlm")


def test_a_pdf_that_cannot_be_made_is_the_environments_fault(
    here: Experiment, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no PDF" in cli.err("report", "--format", "pdf,latex", code=3)
    assert (here.report_dir / "report.tex").exists()
