"""v0.1's answers become experiments with scores, and experiments give v0.1's files back, answer by answer."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcbench.cli.main import main
from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment, all_experiments, find
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.registry.legacy import COLUMNS
from tests.unit.command import Cli

BOM = b"\xef\xbb\xbf"
HEAD = "data_index;split;image_path;question;answer;doc_class;question_type;answer_bbox\n"
NAME = "demo_mini_MODELFRAMEWORK_Qwen2-VL-2B-Instruct_VQA_answers_20250124_125639.csv"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def data_dirs(folder: Path, references: list[str], doc_class: str = "passport") -> Path:
    """v0.1's folder with one dataset; two questions share an image."""
    dataset = folder / "data_dirs/Datasets/VQA/demo_mini"
    (dataset / "images").mkdir(parents=True)
    with (dataset / "annotation.csv").open("w", encoding="utf-8-sig", newline="") as file:
        file.write(HEAD)
        rows = csv.writer(file, delimiter=";")
        for number, reference in enumerate(references):
            name = f"images/{number // 2}.jpg"
            (dataset / name).write_bytes(b"\xff\xd8\xff")
            rows.writerow([number, "test", name, "Номер?", reference, doc_class, "Номер", "[]"])
    return folder / "data_dirs"


def answers(folder: Path, text: str, name: str = NAME) -> Path:
    path = folder / "data_dirs/ModelsAnswers" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8-sig")
    return path


def config(folder: Path, **cells: str) -> Path:
    row = {
        "dataset": "demo_mini", "task": "VQA", "framework": "Hugging Face",
        "model_name": "Qwen2-VL-2B-Instruct", "metrics": "['CER', 'BLEU']",
        "only_evaluate_metrics": "True", "metrics_aggregators": "[]",
    }  # fmt: skip
    cells = {**dict.fromkeys(COLUMNS, ""), **row, **cells}
    path = folder / "user_config.csv"
    path.write_text(f"{';'.join(COLUMNS)}\n{';'.join(cells.values())}\n", encoding="utf-8-sig")
    return path


def brought(tmp_path: Path, place: Path, *words: str) -> Experiment:
    before = {one.id for one in all_experiments(tmp_path / "home")}
    assert main(["import", str(place), "--from", "v01", *words]) == 0
    (new,) = {one.id for one in all_experiments(tmp_path / "home")} - before
    return find(tmp_path / "home", new)


def texts(here: Experiment) -> dict[str, str | None]:
    (one,) = here.resolved.run_tasks
    return {
        name: answer.text
        for _, found in answers_of(here, one.name)
        for name, answer in found.items()
    }


def exported(here: Experiment, out: Path) -> Path:
    assert main(["export", here.id, "--compat", "v01", "--out", str(out)]) == 0
    (path,) = out.rglob("*.csv")
    return path


def test_a_row_that_only_evaluates_becomes_an_experiment_with_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = data_dirs(tmp_path, ["45 11", "ОВД", "Иван"])
    answers(tmp_path, "id;model_answer\n0;45 11\n1;УВД\n")
    answers(tmp_path, "id;model_answer\n0;old\n", NAME.replace("2025", "2024"))
    here = brought(tmp_path, config(tmp_path), "--data-dirs", str(folder))
    reported = capsys.readouterr()
    assert reported.out == f"{here.id}\n"
    assert "1 samples have no answer, and count as failed" in reported.err
    assert "has 2 files of answers: the newest is" in reported.err
    (one,) = here.resolved.run_tasks
    assert (one.model.name, one.dataset.name) == ("Qwen/Qwen2-VL-2B-Instruct", "demo_mini")
    assert texts(here) == {"1": "45 11", "2": "УВД", "3": None}
    found = metrics_of(here).run_tasks[one.name]
    cer = found.metrics["cer"]
    assert cer is not None
    # 5 wrong letters of 12: one of `ОВД`, all of `Иван`. Ids count rows from 0.
    assert cer.value == pytest.approx(5 / 12)
    assert "bleu" in found.metrics
    assert [row.by for level in found.groups for row in level.rows if row.metric == "cer"][0]
    assert not (tmp_path / "imported").exists()


def test_a_filtered_row_takes_only_its_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = data_dirs(tmp_path, ["1", "2"])
    path = folder / "Datasets/VQA/demo_mini/annotation.csv"
    path.write_text(path.read_text("utf-8-sig").replace("2;passport", "2;invoice"), "utf-8-sig")
    answers(tmp_path, "id;model_answer\n0;1\n1;2\n")
    row = config(tmp_path, filter_doc_class="invoice")
    here = brought(tmp_path, row, "--data-dirs", str(folder))
    assert texts(here) == {"2": "2"}
    assert "1 answers belong to no sample of dataset 'demo_mini-invoice'" in capsys.readouterr().err


def test_both_kinds_of_rows_become_a_plan_and_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUN_MODE", "dev")
    folder = data_dirs(tmp_path, ["1", "2"])
    answers(tmp_path, "id;model_answer\n0;1\n1;2\n")
    path = config(tmp_path)
    lines = path.read_text("utf-8-sig").splitlines()
    path.write_text("\n".join([*lines, lines[1].replace("True", "False")]), "utf-8-sig")
    words = ("--data-dirs", str(folder), "--out", str(tmp_path / "out"))
    assert main(["import", str(path), "--from", "v01", *words, "--dry-run"]) == 0
    assert not (tmp_path / "out").exists()
    assert not list(all_experiments(tmp_path / "home"))
    here = brought(tmp_path, path, *words)
    assert (
        main(["validate", f"{tmp_path}/out/plan.yaml", "--registry", f"{tmp_path}/out/registries"])
        == 0
    )
    assert here.resolved.run_tasks[0].dataset.name == "demo_mini"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("id;model_answer\nx;1\n",
         "answers_20250124_125639.csv:2: id 'x' is not the number of a row"),
        ("id;model_answer\n0;1;2\n",
         "answers_20250124_125639.csv:2: the row has more or fewer columns"),
        ('id;model_answer\n0;"1\n', "answers_20250124_125639.csv:2: not valid CSV"),
        ("id;model_answer\n9;1\n", "none of 1 answers belongs to a sample of dataset 'demo_mini'"),
    ],
)  # fmt: skip
def test_damaged_answers_are_named_and_nothing_is_made(
    tmp_path: Path, cli: Cli, text: str, reported: str
) -> None:
    folder = data_dirs(tmp_path, ["1"])
    answers(tmp_path, text)
    assert reported in cli.err("import", config(tmp_path), "--from", "v01", "--data-dirs", folder)
    assert not list(all_experiments(tmp_path / "home"))


def test_an_export_is_v01s_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = data_dirs(tmp_path, ["1", "2", "3"])
    answers(tmp_path, 'id;model_answer\n2;"a ""b""; c"\n0;=1+1\n')
    here = brought(tmp_path, config(tmp_path), "--data-dirs", str(folder))
    path = exported(here, tmp_path / "out")
    reported = capsys.readouterr()
    assert path.read_bytes() == BOM + b'id;model_answer\r\n0;=1+1\r\n2;"a ""b""; c"\r\n'
    assert "1 samples have no answer, and no row" in reported.err
    created = here.manifest.created[:19]
    digits = "".join(one for one in created.replace("T", "_") if one not in ":-")
    assert path.name == f"demo_mini_Hugging Face_Qwen2-VL-2B-Instruct_VQA_answers_{digits}.csv"
    assert str(path) in reported.out
    assert main(["export", here.id, "--compat", "v01"]) == 2
    assert "name a folder: --out" in capsys.readouterr().err


def test_answers_alone_are_imported_with_the_dataset_that_the_command_names(
    tmp_path: Path, cli: Cli
) -> None:
    folder = data_dirs(tmp_path, ["1", "2"])
    path = answers(tmp_path, "id;model_answer\n0;1\n1;3\n", NAME.replace("MODELFRAMEWORK", "vLLM"))
    assert "--dataset NAME|FOLDER|FILE" in cli.err("import", path, "--from", "v01")
    definition = tmp_path / "demo_mini.yaml"
    source = folder / "Datasets/VQA/demo_mini"
    definition.write_text(f"schema_version: 1\nname: demo_mini\nsource: {source}\niterator: v01\n")
    words = ("--dataset", str(definition), "--metrics", "exact_match", "--model", "org/m")
    here = brought(tmp_path, path, *words)
    (one,) = here.resolved.run_tasks
    assert one.model.name == "org/m"
    found = metrics_of(here).run_tasks[one.name].metrics["exact_match"]
    assert found is not None
    assert found.value == 0.5
    assert exported(here, tmp_path / "out").name.startswith("demo_mini_vLLM_m_")


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)


@pytest.mark.long
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        WORDS | st.sampled_from(["a;b", '"', "a\r\nb", "\r", "\u2028", "\ufeff", "\x0b;"]),
        min_size=1,
        max_size=4,
    )
)
def test_an_export_imported_again_keeps_every_answer(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    given_texts: list[str],
) -> None:
    tmp_path = tmp_path_factory.mktemp("round")
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    folder = data_dirs(tmp_path, ["1"] * len(given_texts))
    path = answers(tmp_path, "")
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file, delimiter=";", lineterminator="\r\n")
        rows.writerows([("id", "model_answer"), *enumerate(given_texts)])
    first = brought(tmp_path, config(tmp_path), "--data-dirs", str(folder))
    assert list(texts(first).values()) == given_texts
    again = exported(first, tmp_path / "out")
    assert again.read_bytes() == path.read_bytes()
    path.unlink()
    again.rename(path.with_name(again.name))
    second = brought(tmp_path, config(tmp_path), "--data-dirs", str(folder))
    assert second.id != first.id
    assert texts(second) == texts(first)


def test_json_says_what_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = data_dirs(tmp_path, ["1"])
    answers(tmp_path, "id;model_answer\n0;1\n")
    here = brought(tmp_path, config(tmp_path), "--data-dirs", str(folder), "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["plan"], found["experiments"]) == (None, [here.id])
    assert main(["export", here.id, "--compat", "v01", "--out", str(tmp_path / "o"), "--json"]) == 0
    assert [one["answers"] for one in json.loads(capsys.readouterr().out)["files"]] == [1]
