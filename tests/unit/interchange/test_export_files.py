"""Exported files: whole or not there, well-formed, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.cli.main import main
from hpcbench.evaluation import stage
from hpcbench.experiment.layout import Experiment
from hpcbench.interchange import table_files
from hpcbench.interchange.result_tables import Table
from hpcbench.interchange.table_files import FORMATS, Format, write
from tests.campaign import examples
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt

SCHEMA = {"text": polars.String, "number": polars.Float64, "many": polars.List(polars.String)}


def table(rows: Sequence[Sequence[Any]], batch: int = 2) -> Table:
    """A table of rows (text, number, list), so many in a frame."""

    def frames() -> Iterator[polars.DataFrame]:
        for start in range(0, len(rows), batch):
            yield polars.DataFrame(rows[start : start + batch], schema=SCHEMA, orient="row")

    return Table(SCHEMA, frames, len(rows))


ROWS: list[tuple[str | None, float | None, list[str] | None]] = [
    ("да", 0.1, ["a", "b"]),
    (None, None, None),
    ('quoted "x", with\nlines', -1.5, []),
    ("=1+1", 1e-9, ["=1"]),
    ("}\n{", 3, ["}\n{"]),
]


@pytest.mark.parametrize("count", range(6))
@pytest.mark.parametrize("form", ["json", "jsonl", "parquet"])
def test_every_form_holds_every_row_as_it_is(tmp_path: Path, form: Format, count: int) -> None:
    path = tmp_path / "out"
    assert write(table(ROWS[:count]), form, path) == count
    if form == "parquet":
        found = polars.read_parquet(path)
        assert dict(found.schema) == SCHEMA
        assert found.rows() == ROWS[:count]
    else:
        text = path.read_text(encoding="utf-8")
        read = (
            json.loads(text)
            if form == "json"
            else [json.loads(one) for one in text.split("\n")[:-1]]
        )
        assert [tuple(row[name] for name in SCHEMA) for row in read] == ROWS[:count]
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def cells(texts: Sequence[str | None]) -> list[str]:
    """Cells that a spreadsheet reads in a column of texts."""
    buffer = io.BytesIO()
    rows = [(text, 1.0, None) for text in texts]
    for frame in table(rows, batch=max(1, len(rows))).frames():
        buffer.write(table_files._csv(frame, header=False))
    found = list(csv.reader(io.StringIO(buffer.getvalue().decode(), newline="")))
    return [row[0] for row in found]


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "  =1", "＝1+1", "＠x",
     "-1\n=1", "-\n\n=cmd", "+", "-"],
)  # fmt: skip
def test_text_that_a_spreadsheet_may_run_gets_an_apostrophe(text: str) -> None:
    assert cells([text]) == ["'" + text]


@pytest.mark.parametrize(
    "text", ["-1", "+7.5", "-1,250.00", "-3e-5", "a=1", "1+1", "сумма", "'=1", "–1", ""]
)
def test_numbers_and_other_text_stay(text: str) -> None:
    assert cells([text]) == [text]


UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp")

letters = st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cn"])


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(st.text(letters | st.sampled_from("=+-@ \t\r\n\x1f\u200b＝"), max_size=12))
def test_no_cell_begins_like_a_formula_and_nothing_else_is_changed(text: str) -> None:
    (cell,) = cells([text])
    assert cell in (text, "'" + text)
    seen = list(itertools.dropwhile(lambda one: unicodedata.category(one) in UNSEEN, cell))
    if cell and not re.fullmatch(r"[+-]\d[\d.,]*([eE][+-]?\d+)?", cell):
        assert seen[:1] not in [[one] for one in "=+-@＝＋－＠"]
        assert cell[0] not in "\t\r\n"


def test_csv_has_lists_as_json_and_a_header_even_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write(table(ROWS), "csv", path)
    read = list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline="")))
    assert json.loads(read[0]["many"]) == ["a", "b"]
    assert (read[1]["text"], read[1]["number"], read[1]["many"]) == ("", "", "")
    assert read[2]["text"] == ROWS[2][0]
    write(table([]), "csv", path)
    assert path.read_text() == "text,number,many\n"


def test_excel_sees_utf8_by_its_mark(tmp_path: Path) -> None:
    write(table(ROWS), "csv", tmp_path / "a.csv", excel=True)
    assert (tmp_path / "a.csv").read_bytes().startswith(b"\xef\xbb\xbftext,")


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet

    monkeypatch.setattr(table_files, "ROW_GROUP", 10)
    write(table([("a", 1.0, ["b"])] * 95, batch=7), "parquet", tmp_path / "a")
    file = pyarrow.parquet.ParquetFile(tmp_path / "a")
    sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert sum(sizes) == 95
    assert max(sizes) <= 10


@pytest.mark.parametrize("form", FORMATS)
def test_what_breaks_half_way_leaves_the_old_file(tmp_path: Path, form: Format) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    sound = table(ROWS)

    def frames() -> Iterator[Any]:
        yield from sound.frames()
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="the disk went away"):
        write(Table(SCHEMA, frames), form, path)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


# --- the verb -----------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """Four samples, evaluated; one answer looks like a formula."""
    here = experiment(tmp_path, [record(n) for n in range(4)])
    texts = ["0", "=HYPERLINK(1)", "2", "3"]
    write_attempt(here, 0, 1, [response(f"s{n}", text) for n, text in enumerate(texts)])
    stage.evaluate(here)
    return here


def test_rows_go_to_standard_output_and_nothing_else(
    here: Experiment, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["export", "--format", "csv", "--columns", "sample,answer,exact_match"]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert out == "sample,answer,exact_match\ns0,0,1.0\ns1,'=HYPERLINK(1),0.0\ns2,2,1.0\ns3,3,1.0\n"


def test_the_name_of_the_file_tells_the_form_and_json_the_rest(
    here: Experiment, tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "scores.parquet"
    reported = cli.json("export", "--all", "--out", path, "--json")
    assert reported["rows"] == polars.read_parquet(path).height == 4
    assert reported["columns"] == polars.read_parquet(path).columns
    assert reported["bytes"] == path.stat().st_size
    assert reported["experiments"] == [here.id]


def test_damage_is_reported_on_standard_error(here: Experiment, tmp_path: Path, cli: Cli) -> None:
    path = here.shard_responses("rt", 0, 1)
    path.write_bytes(b"{not json}\n" + path.read_bytes())
    said = cli.err("export", "--what", "responses", "--out", tmp_path / "a.jsonl", code=0)
    assert f"{path}: skipped 1 damaged lines" in said


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "no format is given"),
        (["--format", "parquet"], 2, "hpcbench cannot write parquet to standard output"),
        (["--format", "inspect"], 2, "hpcbench cannot write inspect to standard output"),
        (["--format", "csv", "--json"], 2, "--out FILE"),
        (["--format", "json", "--excel", "--out", "x"], 2, "--excel works on CSV only"),
        (["--format", "inspect", "--out", "x", "--where", "a"], 2, "--where works on tables only"),
        (["@last", "--all", "--format", "csv"], 2, "not both"),
        (["--all", "--to", "phoenix"], 2, "work on one experiment"),
        (["--format", "csv", "--out", "."], 2, "it is a folder"),
        (["--format", "csv", "--out", "/proc/x"], 3, "cannot write /proc/x"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    here: Experiment, cli: Cli, words: list[str], code: int, message: str
) -> None:
    reported = cli.both("export", *words, code=code)
    assert message in reported.err + reported.out
