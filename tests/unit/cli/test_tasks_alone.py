"""`python -m hpcbench.tasks.vqa` scores answers without a cluster, as `hpcbench submit` would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.tasks.alone import main
from tests.unit.small import record, response, write_dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data", [record(number) for number in range(4)])


def scored(
    folder: Path, responses: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> dict[str, float]:
    arguments = [
        "--dataset",
        str(folder),
        "--annotations",
        "a.jsonl",
        "--responses",
        str(responses),
    ]
    assert main("vqa", [*arguments, "--json", *more]) == 0
    table = json.loads(capsys.readouterr().out)
    return {
        "coverage": table["coverage"],
        **{name: entry["value"] for name, entry in table["metrics"].items()},
    }


ANSWERS = {"s0": "0", "s1": "1", "s2": "wrong"}


def test_answers_in_every_form_score_the_same(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, plain, csv = tmp_path / "ours.jsonl", tmp_path / "plain.jsonl", tmp_path / "v01.csv"
    ours.write_text(
        "".join(json.dumps(response(k, v).to_json()) + "\n" for k, v in ANSWERS.items())
    )
    plain.write_text("".join(json.dumps({"id": k, "answer": v}) + "\n" for k, v in ANSWERS.items()))
    csv.write_text(
        "id;model_answer\n" + "".join(f"{k};{v}\n" for k, v in ANSWERS.items()),
        encoding="utf-8-sig",
    )
    expected = {"coverage": 0.75, "anls": 0.5, "exact_match": 0.5}
    for path in (ours, plain, csv):
        assert scored(folder, path, capsys) == expected
    assert scored(folder, csv, capsys, "--metrics", "cer") == {"coverage": 0.75, "cer": 1.5}
    assert {"anls", "cer"} <= scored(folder, csv, capsys, "--metrics", "anls, cer").keys()


def test_a_v01_table_without_ids_has_a_row_for_each_sample(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "v01.csv"
    path.write_text(
        "question;model_answer\n" + "".join(f"?;{n}\n" for n in (0, 1, 7, 3)), "utf-8-sig"
    )
    assert scored(folder, path, capsys)["exact_match"] == 0.75
    path.write_text("question;model_answer\n?;0\n", "utf-8-sig")
    arguments = ["--dataset", str(folder), "--annotations", "a.jsonl", "--responses", str(path)]
    assert main("vqa", arguments) == 2
    assert "1 rows without an id, but 4 samples" in capsys.readouterr().err


def test_a_table_is_printed_for_people(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "s0", "text": "0"}\n')
    assert (
        main(
            "vqa", ["--dataset", str(folder), "--annotations", "a.jsonl", "--responses", str(path)]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "exact_match" in out
    assert "samples: 4 asked: 1 responded, 3 failed" in out


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('{"id": "s9", "text": "x"}\n', "1 answers belong to no sample of the dataset, e.g. 's9'"),
        ('{"id": "s0"}\n', "a.jsonl:1: needs id and one of text, answer"),
        ("{", "a.jsonl:1:2: not JSON"),
        ("[]", "a.jsonl:1: not a JSON object"),
    ],
)
def test_what_is_no_answer_is_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reported: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    assert (
        main(
            "vqa", ["--dataset", str(folder), "--annotations", "a.jsonl", "--responses", str(path)]
        )
        == 2
    )
    assert reported in capsys.readouterr().err
