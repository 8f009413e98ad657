"""`hpcbench data add`: ordinary folders, tables and archives become a dataset and a plan that passes."""

from __future__ import annotations

import copy
import io
import json
import os
import pty
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars
import pyarrow
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl import Workbook
from PIL import Image

from hpcbench.cli.main import main
from hpcbench.data.column_roles import look, propose
from hpcbench.data.datasets import open_dataset
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.records import Sample
from tests.campaign import examples
from tests.conftest import ROOT
from tests.unit.command import Cli


@pytest.fixture(autouse=True)
def _away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command is typed in an empty folder, by a user with nothing set up."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))


def page(path: Path, number: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (30 + number, 20), number).save(path)
    return path


def pdf(path: Path, pages: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    more = [Image.new("RGB", (40, 40), "white") for _ in range(pages - 1)]
    Image.new("RGB", (40, 40), "white").save(path, save_all=True, append_images=more)
    return path


def jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Added:
    """Definition that `data add` wrote, read back as `validate` and `submit` read it."""

    def __init__(self, name: str) -> None:
        self.plan = Path(f"{name}-plan.yaml")
        self.definition = yaml.safe_load(Path(f"registries/datasets/{name}.yaml").read_text())
        assert main(["validate", str(self.plan), "--registry", "registries"]) == 0
        (self.task,) = load_plan(self.plan, [Path("registries")]).run_tasks
        self.dataset: Dataset = self.task.dataset

    @property
    def samples(self) -> list[Sample]:
        iterator = open_dataset(self.dataset)
        return list(iterator.iter(0, iterator.count()))


def added(*argv: object, name: str) -> Added:
    assert main(["data", "add", *map(str, argv)]) == 0
    return Added(name)


def refused(cli: Cli, *argv: object, code: int = 2) -> str:
    said = cli.err("data", "add", *argv, code=code).strip().splitlines()
    assert not Path("registries").exists() and not list(Path().glob("*-plan.yaml"))
    return said[-1]


# --- tables ---------------------------------------------------------------------------------------------


def invoices(folder: Path, count: int = 8) -> Path:
    rows = [
        {"id": f"{n:03}", "image": str(page(folder / f"scans/{n}.png", n).relative_to(folder)),
         "vendor": ["ACME", "Foo"][n % 2], "number": f"INV-{n}", "date": f"2024-01-{n + 1:02}",
         "total": f"{n}.50"}
        for n in range(count)
    ]  # fmt: skip
    jsonl(folder / "invoices.jsonl", rows)
    return folder


def test_several_columns_of_answers_become_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = added(invoices(tmp_path / "invoices"), name="invoices")
    assert found.task.ml_task.name == "kie"
    first = found.samples[0]
    wanted = {"vendor": "ACME", "number": "INV-0", "date": "2024-01-01", "total": "0.50"}
    assert (first.id, first.references) == ("000", (wanted,))
    assert first.fields == {"keys": "vendor, number, date, total"}
    reported = capsys.readouterr()
    assert "  hpcbench submit invoices-plan.yaml" in reported.out.splitlines()
    assert "vendor" in reported.err


def test_the_columns_that_are_named_are_the_answer_and_the_others_may_be_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = added(invoices(tmp_path / "invoices"), "--answer", "total,Date", name="invoices")
    assert found.samples[1].references == ({"total": "1.50", "date": "2024-01-02"},)
    assert found.definition["group_by"] == ["vendor"]
    assert "number" in found.definition["mapping"]["metadata"]
    assert "nearly every row has its own" in capsys.readouterr().err


def test_a_column_that_is_none_is_reported_with_what_it_is_like(tmp_path: Path, cli: Cli) -> None:
    said = refused(cli, invoices(tmp_path / "d"), "--answer", "total,vender")
    assert "unknown column 'vender'" in said
    assert "did you mean 'vendor'" in said


def test_the_csv_of_excel_is_read_as_it_is_printed(tmp_path: Path) -> None:
    for number in range(4):
        page(tmp_path / f"Счета/pages/S{number}.PNG", number)
    rows = "".join(f"S{n};1.234,{n}0;0{n + 1}.02.2024\r\n" for n in range(4))
    (tmp_path / "Счета/список.csv").write_text(f"\ufeffФайл;Сумма;Дата\r\n{rows}", encoding="utf-8")
    found = added(tmp_path / "Счета", "--name", "bills", name="bills")
    assert found.samples[3].references == ({"Сумма": "1.234,30", "Дата": "04.02.2024"},)
    assert str(found.samples[3].images[0]).endswith("pages/S3.PNG")


@pytest.mark.parametrize("encoding", ["cp1251", "utf-16", "utf-16-le", "utf-8-sig", "utf-8"])
def test_other_encodings_of_excel_are_read(tmp_path: Path, encoding: str) -> None:
    for number in range(3):
        page(tmp_path / f"d/{number}.png", number)
    text = "файл;вопрос;ответ\r\n" + "".join(
        f"{n}.png;Какая сумма?;Сто рублей {n}\r\n" for n in range(3)
    )
    (tmp_path / "d/a.csv").write_bytes(text.encode(encoding))
    found = added(tmp_path / "d", name="d")
    first = found.samples[0]
    assert (first.fields["question"], first.references) == ("Какая сумма?", ("Сто рублей 0",))


def test_western_letters_are_read_and_doubted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page(tmp_path / "d/1.png")
    (tmp_path / "d/a.csv").write_bytes(
        "image;question;answer\n1.png;Straße?;Müller\n".encode("cp1252")
    )
    assert added(tmp_path / "d", name="d").samples[0].references == ("Müller",)
    assert "read as cp1252" in capsys.readouterr().err


def test_an_unknown_encoding_is_one_line(tmp_path: Path, cli: Cli) -> None:
    page(tmp_path / "d/1.png")
    (tmp_path / "d/a.csv").write_bytes("image,answer\n1.png,東京都千代田区\n".encode("shift_jis"))
    assert "save it as UTF-8" in refused(cli, tmp_path / "d")


def test_a_spreadsheet_is_a_table(tmp_path: Path) -> None:
    book = Workbook()
    book.active.append(["File", "Invoice No", "Total"])
    for number in range(5):
        page(tmp_path / f"d/p{number}.jpg", number)
        book.active.append([f"p{number}.jpg", f"A-{number}", 10.5 + number])
    book.save(tmp_path / "d/answers.xlsx")
    found = added(tmp_path / "d", name="d")
    assert found.samples[0].references == ({"Invoice No": "A-0", "Total": "10.5"},)


@pytest.mark.parametrize(
    "name",
    [
        "images/a/7.png", "images\\a\\7.png", r"C:\scans\a\7.PNG", "a/7", "7",
        "/home/me/x/a/7.png", "./7.png",
    ],
)  # fmt: skip
def test_images_are_found_by_the_end_of_their_path(tmp_path: Path, name: str) -> None:
    page(tmp_path / "d/images/a/7.png")
    page(tmp_path / "d/images/b/8.png")
    jsonl(tmp_path / "d/meta/a.jsonl", [{"image": name, "question": "?", "answer": "A"}])
    image = added(tmp_path / "d", name="d").samples[0].images[0]
    assert str(image) == str(tmp_path / "d/images/a/7.png")


def test_rows_without_their_image_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = invoices(tmp_path / "d")
    (folder / "scans/3.png").unlink()
    found = added(folder, name="d")
    assert found.definition["on_bad"] == "skip"
    assert "left out: 1 of 8 samples with unreadable pages" in capsys.readouterr().err


def test_several_questions_about_a_page_that_is_damaged_are_left_out_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page(tmp_path / "d/0.png")
    (tmp_path / "d/1.png").write_text("no image")
    rows = [{"image": f"{n % 2}.png", "question": f"{n}?", "answer": "A"} for n in range(6)]
    jsonl(tmp_path / "d/a.jsonl", rows)
    assert added(tmp_path / "d", name="d").definition["on_bad"] == "skip"
    assert "left out: 3 of 6 samples" in capsys.readouterr().err
    (tmp_path / "d/0.png").write_text("no image")
    assert main(["data", "add", str(tmp_path / "d"), "--name", "e"]) == 2
    assert "the pages of all 6 samples are unreadable" in capsys.readouterr().err


def test_a_table_none_of_whose_images_is_there_is_one_line(tmp_path: Path, cli: Cli) -> None:
    jsonl(tmp_path / "d/a.jsonl", [{"image": "gone.png", "question": "?", "answer": "A"}])
    assert "column 'image' names pages such as 'gone.png', but none of them exists" in refused(
        cli, tmp_path / "d"
    )


def test_rows_without_an_answer_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"image": page(tmp_path / f"d/{n}.png", n).name, "q": n, "question": "?",
             "answer": "" if n == 1 else "A"} for n in range(4)]  # fmt: skip
    jsonl(tmp_path / "d/a.jsonl", rows)
    found = added(tmp_path / "d", name="d")
    assert len(found.samples) == 3
    said = capsys.readouterr().err
    assert "left out: 1 rows that are not samples" in said
    # Else every run of the plan would end as incomplete, or be refused.
    assert "the plan says min_coverage: 0.67: at most 75 % of the rows can be scored" in said
    assert yaml.safe_load(found.plan.read_text())["min_coverage"] == 0.67


def test_a_column_that_is_mostly_empty_is_no_answer_unless_named(tmp_path: Path, cli: Cli) -> None:
    for number in range(4):
        page(tmp_path / f"d/{number}.png")
    rows = [
        {"image": f"{n}.png", "question": "Total?", "seen by": "M." if n == 1 else "", "sum": f"1{n}"}
        for n in range(4)
    ]  # fmt: skip
    table = jsonl(tmp_path / "d/a.jsonl", [{**row, "sum": ""} for row in rows])
    said = refused(cli, tmp_path / "d", "--annotations", table)
    assert "'seen by' is mostly empty: 1 of 4 rows have a value" in said
    named = added(table, "--answer", "seen by", "--name", "named", name="named")
    assert len(named.samples) == 1
    jsonl(table, rows)
    found = added(table, name="a")
    assert (found.definition["mapping"]["references"], len(found.samples)) == ("sum", 4)


@given(
    st.lists(
        st.tuples(st.sampled_from(["text", "label", "sum", "seen by", "note"]), st.integers(0, 8)),
        unique_by=lambda one: one[0],
        min_size=1,
    )
)
def test_no_sparse_column_is_proposed_silently(columns: list[tuple[str, int]]) -> None:
    rows = [
        {
            "file": f"{n}.png",
            **{name: f"{name} {n}" if n < filled else "" for name, filled in columns},
        }
        for n in range(8)
    ]
    roles = propose(look(rows, lambda name: name.endswith(".png")), 8)
    assert roles is not None
    sparse = {name for name, filled in columns if 0 < filled < 4}
    for name in sparse & {*roles.answers}:
        assert name in ("text", "label"), "only its name makes it an answer"
        assert "mostly empty" in roles.of(name)
        assert not {"text", "label", "sum", "seen by"} & {
            one for one, filled in columns if filled >= 4
        }


def test_few_short_answers_that_come_again_are_classes(tmp_path: Path) -> None:
    rows = [{"file": page(tmp_path / f"d/{n}.png", n).name, "category": ["letter", "form"][n % 2]}
            for n in range(10)]  # fmt: skip
    jsonl(tmp_path / "d/a.jsonl", rows)
    found = added(tmp_path / "d", name="d")
    assert found.task.ml_task.name == "classification"
    assert found.samples[0].fields == {"classes": "form, letter"}


def test_long_answers_are_the_text_of_a_page(tmp_path: Path) -> None:
    rows = [{"filename": page(tmp_path / f"d/{n}.png", n).name, "words": n,
             "transcription": f"The whole text of page {n}\nin lines of it"} for n in range(4)]  # fmt: skip
    jsonl(tmp_path / "d/a.jsonl", rows)
    assert added(tmp_path / "d", name="d").task.ml_task.name == "ocr"


def test_one_question_may_be_asked_of_every_page(tmp_path: Path) -> None:
    found = added(
        invoices(tmp_path / "d"), "--question", "What is the total?", "--answer", "total", name="d"
    )
    assert found.task.ml_task.name == "vqa"
    assert (found.samples[1].fields, found.samples[1].references) == (
        {"question": "What is the total?"}, ("1.50",)
    )  # fmt: skip


def test_a_question_that_is_nearly_a_column_is_refused(tmp_path: Path, cli: Cli) -> None:
    said = refused(cli, invoices(tmp_path / "d"), "--question", "vendr", "--answer", "total")
    assert said.startswith("unknown column 'vendr' (did you mean 'vendor'?) (for a question")


def test_a_full_stop_in_a_column_of_words_divides_no_name(tmp_path: Path) -> None:
    page(tmp_path / "d/1.png")
    row = {"image": "1.png", "Invoice No.": "7", "Inv. Date": "1 May"}
    jsonl(tmp_path / "d/a.jsonl", [row])
    found = added(tmp_path / "d", "--answer", "Invoice No.,Inv. Date", name="d")
    assert found.samples[0].references == ({"Invoice No.": "7", "Inv. Date": "1 May"},)
    assert found.samples[0].fields == {"keys": "Invoice No., Inv. Date"}


@pytest.mark.parametrize(
    ("question", "answer"), [("Q", "A"), ("asked", "said"), ("prompt", "response")]
)
def test_a_question_is_known_by_its_name_or_its_mark(
    tmp_path: Path, question: str, answer: str
) -> None:
    rows = [
        {"file": page(tmp_path / f"d/{n}.png").name, question: f"What is {n}?", answer: str(n)}
        for n in range(4)
    ]
    jsonl(tmp_path / "d/a.jsonl", rows)
    found = added(tmp_path / "d", name="d")
    assert found.task.ml_task.name == "vqa"
    assert found.samples[2].fields == {"question": "What is 2?"}
    assert found.samples[2].references == ("2",)


@pytest.mark.parametrize(
    "answer",
    [{"total": "1", "lines": [{"name": "a"}]}, '{"total": "1", "date": "x"}'],
    ids=["object", "JSON as text"],
)
def test_an_answer_that_is_an_object_is_one_for_extraction(tmp_path: Path, answer: Any) -> None:
    page(tmp_path / "d/1.png")
    jsonl(tmp_path / "d/a.jsonl", [{"image": "1.png", "ground_truth": answer}])
    found = added(tmp_path / "d", name="d")
    assert found.task.ml_task.name == "kie"
    wanted = json.loads(answer) if isinstance(answer, str) else answer
    assert found.samples[0].references == (wanted,)


def test_columns_inside_an_object_may_be_named(tmp_path: Path) -> None:
    page(tmp_path / "d/1.png")
    jsonl(tmp_path / "d/a.jsonl", [{"image": "1.png", "f": {"total": "1", "date": "x"}}])
    found = added(tmp_path / "d", "--answer", "f.total,f.date", name="d")
    assert found.samples[0].references == ({"total": "1", "date": "x"},)


def test_a_list_inside_of_json_is_found(tmp_path: Path) -> None:
    page(tmp_path / "d/1.png")
    rows = [{"img": "1.png", "question": "?", "answers": ["A", "B"]}]
    (tmp_path / "d/a.json").write_text(json.dumps({"version": 1, "set": {"items": rows}}))
    assert added(tmp_path / "d", name="d").samples[0].references == ("A", "B")


def test_images_in_the_table_are_pages_too(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    data = io.BytesIO()
    Image.new("L", (30, 20)).save(data, "PNG")
    held = [{"bytes": data.getvalue(), "path": None}] * 3
    polars.DataFrame(
        {"image": held, "query": ["a?", "b?", "c?"], "label": ["1", "2", "3"]}
    ).write_parquet(tmp_path / "d/train-00000.parquet")
    found = added(tmp_path / "d", name="d")
    assert [one.fields["question"] for one in found.samples] == ["a?", "b?", "c?"]


def test_what_hugging_faces_datasets_saved_is_asked_by_its_test_split(tmp_path: Path) -> None:
    data = io.BytesIO()
    Image.new("L", (30, 20)).save(data, "PNG")
    for split in ("train", "test"):
        folder = tmp_path / "d" / split
        folder.mkdir(parents=True)
        images = [{"bytes": data.getvalue(), "path": None}] * 6
        table = pyarrow.table({"image": images, "label": [0, 1] * 3})
        place = str(folder / "data.arrow")
        with pyarrow.OSFile(place, "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as out:
            out.write_table(table)
        (folder / "state.json").write_text(
            json.dumps({"_data_files": [{"filename": "data.arrow"}]})
        )
        label = {"_type": "ClassLabel", "names": ["form", "bill"]}
        (folder / "dataset_info.json").write_text(json.dumps({"features": {"label": label}}))
    (tmp_path / "d/dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    found = added(tmp_path / "d", name="d")
    assert (found.task.ml_task.name, found.dataset.split) == ("classification", "test")
    assert found.samples[1].references == ("bill",)
    assert found.samples[1].fields == {"classes": "bill, form"}


def test_numbers_and_flags_may_be_answers(tmp_path: Path) -> None:
    rows = [
        {"image": page(tmp_path / f"d/{n}.png", n).name, "question": "?", "answer": n}
        for n in range(3)
    ]
    jsonl(tmp_path / "d/a.jsonl", rows)
    assert len(added(tmp_path / "d", name="d").samples) == 3
    rows = [{"image": f"{n % 3}.png", "label": n % 2 == 0} for n in range(9)]
    jsonl(tmp_path / "d/a.jsonl", rows)
    assert added(tmp_path / "d", "--name", "e", name="e").task.ml_task.name == "classification"


def test_an_id_that_comes_twice_is_no_id(tmp_path: Path) -> None:
    page(tmp_path / "d/1.png")
    rows = [{"id": "a", "image": "1.png", "question": f"{n}?", "answer": "x"} for n in range(3)]
    jsonl(tmp_path / "d/a.jsonl", rows)
    assert [one.id for one in added(tmp_path / "d", name="d").samples] == ["1", "2", "3"]


def test_the_table_of_the_test_split_is_taken_and_the_others_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page(tmp_path / "d/1.png")
    for split in ("train", "test"):
        jsonl(tmp_path / f"d/{split}.jsonl", [{"image": "1.png", "question": split, "answer": "x"}])
    assert added(tmp_path / "d", name="d").samples[0].fields["question"] == "test"
    assert "not read: train.jsonl" in capsys.readouterr().err


def test_a_table_may_be_named_itself(tmp_path: Path) -> None:
    folder = invoices(tmp_path / "d")
    (folder / "another.jsonl").write_text("not JSON")
    assert len(added(folder / "invoices.jsonl", name="invoices").samples) == 8


def test_a_table_elsewhere_is_linked_beside_the_pages_and_nothing_of_the_users_is_changed(
    tmp_path: Path,
) -> None:
    for number in range(3):
        pdf(tmp_path / f"scans/doc{number}.pdf", number + 1)
    answers = tmp_path / "office/answers.csv"
    answers.parent.mkdir()
    answers.write_text("file,total\n" + "".join(f"doc{n},{n}.00\n" for n in range(3)))
    found = added(tmp_path / "scans", "--annotations", answers, name="scans")
    assert [len(one.images) for one in found.samples] == [1, 2, 3]
    assert found.samples[2].references == ({"total": "2.00"},)
    assert sorted(path.name for path in (tmp_path / "scans").iterdir()) == [
        "doc0.pdf", "doc1.pdf", "doc2.pdf",
    ]  # fmt: skip


def test_entries_of_an_object_by_the_names_of_pages_are_rows(tmp_path: Path) -> None:
    rows = {
        page(tmp_path / f"d/img/{n}.png", n).name: {"total": f"{n}", "date": "x"} for n in range(4)
    }
    (tmp_path / "d/labels.json").write_text(json.dumps(rows))
    found = added(tmp_path / "d", name="d")
    assert found.samples[3].references == ({"total": "3", "date": "x"},)
    classes = {f"{n}.png": ["a", "b"][n % 2] for n in range(4)}
    (tmp_path / "d/labels.json").write_text(json.dumps(classes))
    assert added(tmp_path / "d", "--task", "classification", "--name", "e", name="e").samples[
        1
    ].references == ("b",)


def test_what_donut_is_trained_on_is_read_without_its_wrapping(tmp_path: Path) -> None:
    page(tmp_path / "d/1.png")
    wanted = {"total": "1", "menu": [{"nm": "tea"}]}
    row = {"file_name": "1.png", "ground_truth": json.dumps({"gt_parse": wanted})}
    jsonl(tmp_path / "d/metadata.jsonl", [row])
    found = added(tmp_path / "d", name="d")
    assert (found.samples[0].references, found.samples[0].fields["keys"]) == (
        (wanted,),
        "total, menu",
    )


def test_a_column_of_pages_chooses_those_of_a_document(tmp_path: Path) -> None:
    pdf(tmp_path / "d/a.pdf", 3)
    (tmp_path / "d/q.csv").write_text("pdf,page,question,answer\na.pdf,1,x?,1\na.pdf,3,y?,2\n")
    found = added(tmp_path / "d", name="d")
    assert [[str(one.name) for one in sample.images] for sample in found.samples] == [  # type: ignore[union-attr]
        ["a.pdf#page=1"], ["a.pdf#page=3"],
    ]  # fmt: skip


def test_a_second_column_of_pages_is_left_out_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"front": page(tmp_path / f"d/{n}f.png", n).name, "back": page(tmp_path / f"d/{n}b.png", n).name,
             "name": f"Bob {n}", "no": f"{n}"} for n in range(4)]  # fmt: skip
    jsonl(tmp_path / "d/a.jsonl", rows)
    assert added(tmp_path / "d", name="d").samples[0].references == ({"name": "Bob 0", "no": "0"},)
    assert "also names pages" in capsys.readouterr().err


def test_a_table_without_a_header_is_one_line(tmp_path: Path, cli: Cli) -> None:
    for number in range(3):
        page(tmp_path / f"d/{number}.png", number)
    (tmp_path / "d/gt.csv").write_text("0.png,a\n1.png,b\n2.png,c\n")
    assert "its first line is not a header" in refused(cli, tmp_path / "d")


def test_boxes_are_no_text(tmp_path: Path, cli: Cli) -> None:
    page(tmp_path / "d/images/0.png")
    (tmp_path / "d/labels").mkdir()
    (tmp_path / "d/labels/0.txt").write_text("0 0.5 0.5 0.1 0.1\n1 0.2 0.3 0.1 0.1\n")
    assert "no references for them" in refused(cli, tmp_path / "d")


# --- without a table ------------------------------------------------------------------------------------


def test_pages_alone_are_one_line_that_tells_how_to_say_the_answers(
    tmp_path: Path, cli: Cli
) -> None:
    pdf(tmp_path / "d/a.pdf")
    pdf(tmp_path / "d/b.pdf", 2)
    said = refused(cli, tmp_path / "d")
    assert "2 pages (2 .pdf), but no references for them" in said
    assert "--annotations FILE" in said


@pytest.mark.parametrize(
    ("ending", "text", "task"),
    [
        ("txt", "All the text of this page number {n}, which is a long one", "ocr"),
        ("md", "# Page {n}", "ocr"),
        ("json", '{{"total": "{n}", "date": "x"}}', "kie"),
    ],
)
@pytest.mark.parametrize("where", ["", "labels/"])
def test_files_beside_pages_or_in_another_folder_are_their_answers(
    tmp_path: Path, ending: str, text: str, task: str, where: str
) -> None:
    for number in range(3):
        pdf(tmp_path / f"d/{'pages/' if where else ''}{number}.pdf")
        path = tmp_path / f"d/{where}{number}.{ending}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(n=number))
    found = added(tmp_path / "d", name="d")
    assert (found.task.ml_task.name, len(found.samples)) == (task, 3)


@pytest.mark.parametrize("top", ["", "images/", "data/pages/"])
@pytest.mark.parametrize("split", ["", "test/"])
def test_a_folder_a_class_is_a_classification(tmp_path: Path, top: str, split: str) -> None:
    for name in ("receipt", "form"):
        for number in range(3):
            page(tmp_path / f"d/{top}{split}{name}/{number}.png", number)
            if split:
                page(tmp_path / f"d/{top}train/{name}/{number}.png", number)
    found = added(tmp_path / "d", name="d")
    assert found.task.ml_task.name == "classification"
    assert found.task.task.split == ("test" if split else None)
    assert {one.references for one in found.samples} == {("receipt",), ("form",)}
    assert found.samples[0].fields == {"classes": "form, receipt"}


def test_folders_by_year_are_no_classes(tmp_path: Path, cli: Cli) -> None:
    pdf(tmp_path / "d/2023/a.pdf")
    pdf(tmp_path / "d/2024/b.pdf")
    assert "no references for them" in refused(cli, tmp_path / "d")


# --- archives -------------------------------------------------------------------------------------------


def zipped(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as out:
        for path in sorted(folder.rglob("*")):
            out.write(path, path.relative_to(folder.parent))
    return archive


@pytest.mark.long
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_an_archive_is_unpacked_beside_itself_once(
    tmp_path: Path, cli: Cli, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    folder, archive = invoices(tmp_path / "far/set"), tmp_path / f"bills.{kind}"
    if kind == "zip":
        zipped(folder, archive)
    else:
        with tarfile.open(archive, "w:gz" if kind == "tar.gz" else "w") as out:
            out.add(folder, "set")
    cli("data", "add", archive, "--dry-run")
    assert not (tmp_path / "bills").exists()
    found = added(archive, name="bills")
    assert found.definition["source"] == str(tmp_path / "bills/set")
    assert len(found.samples) == 8
    assert f"unpacked into {tmp_path / 'bills'}" in capsys.readouterr().err
    added(archive, "--name", "again", name="again")
    (tmp_path / "bills/set/more.txt").write_text("mine")
    assert "with other files than the archive" in cli.err("data", "add", archive, "--name", "third")


def test_names_that_windows_wrote_into_a_zip_are_read(tmp_path: Path) -> None:
    for number in range(3):
        page(tmp_path / f"far/AAAA {number}.png", number)
    (tmp_path / "far/list.csv").write_bytes(
        ("Файл;Сумма\r\n" + "".join(f"Счёт {n};{n},50\r\n" for n in range(3))).encode("cp1251")
    )
    archive = zipped(tmp_path / "far", tmp_path / "bills.zip")
    archive.write_bytes(archive.read_bytes().replace(b"AAAA", "Счёт".encode("cp866")))
    found = added(archive, name="bills")
    assert found.samples[2].references == ({"Сумма": "2,50"},)
    assert str(found.samples[2].images[0]) == str(tmp_path / "bills/far/Счёт 2.png")


def _evil(kind: str, path: Path) -> None:
    if kind in ("link", "device"):
        with tarfile.open(path, "w") as out:
            one = tarfile.TarInfo("pages/1.png")
            one.type, one.linkname = (
                (tarfile.SYMTYPE if kind == "link" else tarfile.CHRTYPE),
                "/etc/passwd",
            )
            out.addfile(one)
        return
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        if kind == "bomb":
            _fill_many_times(archive)
            return
        name = {
            "above": "../x.png",
            "absolute": "/tmp/x.png",
            "drive": "C:\\x.png",
            "twice": "a/x",
        }[kind]
        archive.writestr(name, b"x")
        if kind == "twice":
            archive.writestr("a", b"x")


def _fill_many_times(archive: zipfile.ZipFile) -> None:
    """Put in 20 files of 100 MiB, compressed once."""
    archive.writestr("00.txt", bytes(100 << 20))
    [one] = archive.filelist
    file = archive.fp
    assert file is not None
    file.seek(0)
    written = file.read()
    for number in range(1, 20):
        again = copy.copy(one)
        again.filename, again.header_offset = f"{number:02}.txt", file.tell()
        file.write(written.replace(b"00.txt", again.filename.encode(), 1))
        archive.filelist.append(again)
    archive.start_dir = file.tell()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("above", "leads out of the folder"), ("absolute", "leads out of the folder"),
        ("drive", "leads out of the folder"), ("twice", "occurs twice"), ("link", "is a link or a device"),
        ("device", "is a link or a device"),
        pytest.param("bomb", "unpack to 2.0 GiB", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_an_archive_that_would_do_harm_is_refused_and_nothing_of_it_stays(
    tmp_path: Path, cli: Cli, kind: str, why: str
) -> None:
    archive = tmp_path / ("x.tar" if kind in ("link", "device") else "x.zip")
    _evil(kind, archive)
    assert why in refused(cli, archive)
    assert {path.name for path in tmp_path.iterdir()} <= {"cwd", "home", "config", archive.name}


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("x.zip", b"PK\x03\x04nothing", "cannot be unpacked"),
        ("x.tar", b"nothing", "cannot be unpacked"),
        ("x.tgz", b"\x1f\x8b nothing", "cannot be unpacked"),
        ("x.7z", b"", "not an archive that hpcbench can unpack"),
        ("x.zip", b"PK\x05\x06" + bytes(18), "the archive has no files"),
    ],
)
def test_what_is_no_archive_is_one_line(
    tmp_path: Path, cli: Cli, name: str, data: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert why in refused(cli, tmp_path / name)


def test_an_encrypted_archive_is_one_line(tmp_path: Path, cli: Cli) -> None:
    archive = zipped(invoices(tmp_path / "far/set"), tmp_path / "x.zip")
    data = bytearray(archive.read_bytes())
    place = data.find(b"PK\x01\x02")
    data[place + 8] |= 1  # the flag of the first member, in the directory
    archive.write_bytes(data)
    assert "is encrypted" in refused(cli, archive)


# --- what is written ------------------------------------------------------------------------------------


def test_nothing_that_is_there_is_overwritten(tmp_path: Path, cli: Cli) -> None:
    folder = invoices(tmp_path / "d")
    added(folder, name="d")
    before = Path("d-plan.yaml").read_text()
    assert "this definition exists already" in cli.err("data", "add", folder, "--answer", "total")
    Path("registries/datasets/d.yaml").unlink()
    said = cli.err("data", "add", folder, "--answer", "total")
    assert "d-plan.yaml: this plan exists already (--force replaces" in said
    assert Path("d-plan.yaml").read_text() == before
    assert main(["data", "add", str(tmp_path / "d"), "--force", "--answer", "total"]) == 0
    assert "total" in str(Added("d").definition["mapping"]["references"])


def test_a_dry_run_writes_nothing(tmp_path: Path, cli: Cli) -> None:
    assert "ml_task: kie" in cli("data", "add", invoices(tmp_path / "d"), "--dry-run")
    assert not list(Path().iterdir())


def test_a_task_that_cannot_score_the_answers_is_refused(tmp_path: Path, cli: Cli) -> None:
    folder = invoices(tmp_path / "d")
    assert "did you mean 'kie'" in refused(cli, folder, "--task", "kei")
    assert "has one answer, but --answer names 2 columns" in refused(
        cli, folder, "--task", "ocr", "--answer", "total,date"
    )


@pytest.mark.long
def test_the_plan_sets_no_limit_of_pages(tmp_path: Path) -> None:
    pdf(tmp_path / "d/a.pdf", 3)
    (tmp_path / "d/a.csv").write_text("file,total\na.pdf,5\n")
    assert main(["data", "add", str(tmp_path / "d"), "--model", "Qwen/Qwen2.5-VL-3B-Instruct"]) == 0
    (task,) = yaml.safe_load(Path("d-plan.yaml").read_text())["run_tasks"]
    assert task["model"] == "Qwen/Qwen2.5-VL-3B-Instruct"


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30),
    st.lists(st.text(max_size=5), max_size=3), st.dictionaries(NAMES, st.text(max_size=5), max_size=3),
)  # fmt: skip
USUAL = st.sampled_from(
    ["id", "image", "question", "answer", "label", "text", "keys", "classes", "split", "total"]
)


@pytest.mark.long
@settings(max_examples=examples(60))
@given(
    st.lists(st.dictionaries(USUAL | NAMES, CELLS, max_size=6), min_size=1, max_size=6), st.data()
)
def test_whatever_table_is_taken_passes_validation(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("d")
    page(folder / "d/1.png")
    key = data.draw(st.sampled_from(["image", "file", "Scan No."]))
    jsonl(folder / "d/a.jsonl", [{**row, key: "1.png"} for row in rows])
    out = folder / "registries"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code = main(["data", "add", "d", "--out", str(out)])
        assert code in (0, 2)
        if code == 0:
            assert main(["validate", "d-plan.yaml", "--registry", str(out)]) == 0
            assert main(["submit", "d-plan.yaml", "--registry", str(out), "--dry-run"]) == 0
        else:
            assert not (folder / "d-plan.yaml").exists()


def test_columns_of_a_table_are_read_without_keeping_it() -> None:
    rows = ({"file": f"{n}.png", "total": str(n), "note": "same"} for n in range(10_000))
    columns = look(rows, lambda name: name.endswith(".png"))
    assert [(one.name, one.filled, one.distinct) for one in columns] == [
        ("file", 10_000, 10_000), ("total", 10_000, 10_000), ("note", 10_000, 1),
    ]  # fmt: skip
    assert all(len(one.values) <= 200 for one in columns)
    roles = propose(columns, 10_000)
    assert roles is not None
    assert (roles.images, roles.answers, roles.left["note"]) == (
        "file", ["total"], "no group: every row has the same value",
    )  # fmt: skip


# --- at a terminal --------------------------------------------------------------------------------------


def typed(folder: Path, lines: Sequence[str], *argv: str) -> str:
    """Screen of a person at a terminal who types these lines."""
    above, below = pty.openpty()
    command = [sys.executable, "-c", "from hpcbench.cli.main import main; raise SystemExit(main())"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "TERM": "dumb"}
    process = subprocess.Popen(
        [*command, "data", "add", *argv],
        stdin=below,
        stderr=below,
        stdout=below,
        cwd=folder,
        env=env,
    )
    os.close(below)
    os.write(above, "".join(f"{line}\n" for line in lines).encode())
    seen = b""
    try:
        while block := os.read(above, 4096):
            seen += block
    except OSError:  # the other end is closed
        pass
    os.close(above)
    assert process.wait(timeout=60) == 0, seen.decode()
    return seen.decode()


@pytest.mark.long
def test_a_person_is_asked_and_an_empty_line_takes_the_proposal(tmp_path: Path) -> None:
    invoices(tmp_path / "bills")
    seen = typed(Path.cwd(), ["", "", ""], str(tmp_path / "bills"))
    assert "Columns of the right answer, separated by commas [vendor, number, date, total]" in seen
    assert Added("bills").task.ml_task.name == "kie"


@pytest.mark.long
def test_a_person_may_choose_otherwise(tmp_path: Path) -> None:
    invoices(tmp_path / "bills")
    typed(Path.cwd(), ["total", "vqa", "What is the total?", "vendor"], str(tmp_path / "bills"))
    found = Added("bills")
    assert found.task.ml_task.name == "vqa"
    assert found.samples[0].fields["question"] == "What is the total?"
    assert found.definition["group_by"] == ["vendor"]
