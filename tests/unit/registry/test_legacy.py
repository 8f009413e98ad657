"""Plans of v0.1 become ours: what is written is valid, what is not carried over is said, nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench.data.datasets import open_dataset
from hpcbench.errors import UserError
from hpcbench.prompts import TaskPrompt
from hpcbench.registry.legacy import BASE_COLUMNS, COLUMNS, Imported, import_v01
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.prompt import Prompt
from tests.conftest import ROOT
from tests.unit.small import run_task, sample

REAL = ROOT / "tests/unit/data/v01"
HEAD = ";".join(COLUMNS)
BASE_HEAD = ";".join(BASE_COLUMNS)


@pytest.fixture(autouse=True)
def _no_user_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data_dirs(tmp_path: Path) -> Path:
    """v0.1's folder with one dataset, one collection and one system prompt."""
    folder = tmp_path / "data_dirs"
    dataset = folder / "Datasets/VQA/demo_mini"
    (dataset / "images").mkdir(parents=True)
    (dataset / "images/1.jpg").write_bytes(b"\xff\xd8\xff")
    (dataset / "annotation.csv").write_text(
        "data_index;split;image_path;question;answer;doc_class;question_type;answer_bbox\n"
        "0;test;images/1.jpg;Какой номер?;45 11 123456;passport;Серия и номер паспорта;[1, 2, 3, 4]\n"
        "1;test;images/1.jpg;Кто выдал?;ОВД;passport;Кем выдан;[]\n",
        encoding="utf-8-sig",
    )
    prompts = folder / "PromptCollections/VQA/demo_mini"
    prompts.mkdir(parents=True)
    for name in ("JuliaJu_Qwen2-VL-2B_demo_mini_cer0", "JuliaJu_Qwen2_5-VL-3B_demo_mini_008"):
        (prompts / f"{name}.csv").write_text(
            'prompt;doc_class_question_type;cer\n'
            'Напишите {{ номер }} "как есть";passport Серия и номер паспорта;0.0\n',
            encoding="utf-8-sig",
        )  # fmt: skip
    return folder


def config(folder: Path, *rows: str, head: str = HEAD, encoding: str = "utf-8-sig") -> Path:
    path = folder / "user_config.csv"
    path.write_bytes("\n".join([head, *rows, ""]).encode(encoding))
    return path


def plan_of(found: Imported) -> Path:
    """The plan that an import wrote."""
    assert found.plan is not None
    return found.plan


def run_tasks(found: Imported) -> list[dict[str, Any]]:
    """Run tasks of an imported plan."""
    tasks: list[dict[str, Any]] = yaml.safe_load(plan_of(found).read_text())["run_tasks"]
    return tasks


def row(**cells: str) -> str:
    known = {
        "dataset": "d", "task": "VQA", "framework": "vLLM", "model_name": "m", "metrics": "['CER']",
        "only_evaluate_metrics": "False", "metrics_aggregators": "[]",
    }  # fmt: skip
    return ";".join({**dict.fromkeys(COLUMNS, ""), **known, **cells}[name] for name in COLUMNS)


def refusal(folder: Path, *rows: str, **more: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        import_v01(config(folder, *rows, **more), folder / "out")
    assert not (folder / "out").exists()
    assert not list(folder.glob(".out*"))
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


@pytest.mark.parametrize("name", ["user_config_model_eval.csv", "user_config_prompt_eval.csv"])
def test_the_real_files_become_a_plan_that_is_valid_and_reads_its_data(
    tmp_path: Path, data_dirs: Path, name: str
) -> None:
    found = import_v01(REAL / name, tmp_path / "out", REAL / "vlm_base.csv", data_dirs)
    plan = load_plan(plan_of(found), [tmp_path / "out/registries"], mode="dev")
    for one in plan.run_tasks:
        samples = list(open_dataset(one.dataset).iter(0, 10))
        assert samples[0].references == ("45 11 123456",)
        assert samples[0].document == "images/1.jpg"
        assert one.model.image is not None
        assert one.model.image.startswith("docker://ghcr.io/")
    assert len(plan.run_tasks) == (2 if "model" in name else 1)
    assert any("metrics_aggregators" in remark for remark in found.remarks)


def test_a_filtered_row_keeps_only_its_samples(tmp_path: Path, data_dirs: Path) -> None:
    found = import_v01(REAL / "user_config_prompt_eval.csv", tmp_path / "out", None, data_dirs)
    plan = load_plan(plan_of(found), [tmp_path / "out/registries"], mode="dev")
    (sample,) = open_dataset(plan.run_tasks[0].dataset).iter(0, 10)
    assert sample.metadata == {"doc_class": "passport", "question_type": "Серия и номер паспорта"}


def test_a_collection_becomes_one_that_asks_as_v01_did_and_names_each_prompt(
    tmp_path: Path, data_dirs: Path
) -> None:
    found = import_v01(REAL / "user_config_prompt_eval.csv", tmp_path / "out", None, data_dirs)
    plan = load_plan(plan_of(found), [tmp_path / "out/registries"], mode="dev")
    prompt = TaskPrompt(plan.run_tasks[0])
    metadata = {"doc_class": "passport", "question_type": "Серия и номер паспорта"}
    matching = sample(fields={"question": "?"}, metadata=metadata)
    other = sample(fields={"question": "Кто?"}, metadata={**metadata, "question_type": "Кем выдан"})
    assert prompt.build(matching)[-1].text == 'Напишите {{ номер }} "как есть"'
    assert prompt.name(matching).endswith("/passport Серия и номер паспорта")
    assert prompt.build(other)[-1].text == "Кто?"


def prompts_of(folder: Path, *rows: str, data_dirs: Path | None = None) -> list[Prompt]:
    """The prompt of each run task of an import."""
    found = import_v01(config(folder, *rows), folder / "out", None, data_dirs)
    tasks = run_tasks(found)
    definitions = folder / "out/registries/prompts"
    return [
        Prompt.model_validate(yaml.safe_load((definitions / f"{task['prompt']}.yaml").read_text()))
        for task in tasks
    ]


def collection(data_dirs: Path, name: str, *rows: str) -> None:
    path = data_dirs / "PromptCollections/VQA" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["prompt;doc_class_question_type", *rows, ""]))


def test_collections_of_one_file_name_stay_two_prompts(tmp_path: Path, data_dirs: Path) -> None:
    for dataset in ("ds1", "ds2", "ds3"):
        collection(data_dirs, f"{dataset}/prompts.csv", f"Of {dataset.replace('3', '1')}?;a b")
    rows = [
        row(dataset=dataset, prompt_collection=f"{dataset}/prompts.csv")
        for dataset in ("ds1", "ds2", "ds3")
    ]
    first, second, third = prompts_of(tmp_path, *rows, data_dirs=data_dirs)
    assert (first.name, second.name) == ("prompts", "ds2-prompts")
    assert "Of ds1?" in first.prompts[0].user
    assert "Of ds2?" in second.prompts[0].user
    assert third == first


def test_two_system_prompts_stay_two_prompts(tmp_path: Path) -> None:
    rows = [row(system_prompt=text) for text in ("Be short.", "Be strict.", "Be kind.")]
    found = prompts_of(tmp_path, *rows)
    assert [one.system for one in found] == ["Be short.", "Be strict.", "Be kind."]
    assert [one.name for one in found] == [
        "question-system",
        "d-question-system",
        "d-question-system-2",
    ]


def test_a_model_under_two_engines_stays_two_models(tmp_path: Path) -> None:
    found = import_v01(config(tmp_path, row(), row(framework="Hugging Face")), tmp_path / "out")
    tasks = run_tasks(found)
    assert [task["model"] for task in tasks] == ["m", "m-huggingface"]


def test_two_prompts_of_one_kind_in_a_collection_are_reported_at_their_line(
    tmp_path: Path, data_dirs: Path
) -> None:
    collection(data_dirs, "c.csv", "One?;a b", "Two?;a b")
    rows = [row(prompt_collection="c.csv"), row(prompt_collection="c.csv", model_name="n")]
    with pytest.raises(
        UserError, match=r"c\.csv:3: two prompts have the id 'a b'; the other one ends in line 2"
    ) as reported:
        prompts_of(tmp_path, *rows, data_dirs=data_dirs)
    assert len(reported.value.problems) == 1


def test_a_row_that_comes_twice_in_a_collection_is_one_prompt(
    tmp_path: Path, data_dirs: Path
) -> None:
    collection(data_dirs, "c.csv", "One?;a b", "One?;a b", "Two?;a c")
    (found,) = prompts_of(tmp_path, row(prompt_collection="c.csv"), data_dirs=data_dirs)
    assert [one.id for one in found.prompts] == ["a b", "a c"]


def test_a_system_prompt_is_said_as_it_is_whatever_is_in_it(tmp_path: Path) -> None:
    text = "{% raw %}Say {{ it }}{% endraw %} \\ 'so'"
    (found,) = prompts_of(tmp_path, row(system_prompt=text))
    task = run_task(prompt=found.model_dump())
    assert TaskPrompt(task).build(sample())[0].text == text


def test_a_model_has_the_image_of_its_framework(tmp_path: Path) -> None:
    base = tmp_path / "base.csv"
    base.write_text(
        "framework;model_family;model_name;docker_image\n"
        "vLLM;f;m;base/vllm\nHugging Face;f;m;base/hf\n;f;n;base/other\n"
    )
    rows = [row(), row(framework="hugging face"), row(model_name="n")]
    found = import_v01(config(tmp_path, *rows), tmp_path / "out", base)
    images = [
        yaml.safe_load((tmp_path / f"out/registries/models/{task['model']}.yaml").read_text())[
            "image"
        ]
        for task in run_tasks(found)
    ]
    assert images == ["docker://base/vllm", "docker://base/hf", "docker://base/other"]


def test_a_model_has_no_image_of_another_framework(tmp_path: Path) -> None:
    base = tmp_path / "base.csv"
    base.write_text("framework;model_family;model_name;docker_image\nHugging Face;Qwen;m;base/hf\n")
    found = import_v01(config(tmp_path, row()), tmp_path / "out", base)
    model = yaml.safe_load((tmp_path / "out/registries/models/m.yaml").read_text())
    assert (model["family"], model.get("image")) == ("Qwen", None)
    assert found.remarks == (
        "model m is in vlm_base.csv for Hugging Face, not for vLLM: its definition names no image",
        "hpcbench looks for dataset d in Datasets/VQA/d: name another folder with --data-dirs",
    )


@pytest.mark.parametrize("known", [True, False])
def test_the_name_of_a_missing_system_prompt_is_never_its_text(
    tmp_path: Path, data_dirs: Path, known: bool
) -> None:
    rows = config(tmp_path, row(system_prompt="strict_v2.txt"))
    found = import_v01(rows, tmp_path / "out", None, data_dirs if known else None)
    reported = "no such file: SystemPrompts/strict_v2.txt; row 2 sends no system prompt"
    assert reported in found.remarks
    assert "strict_v2" not in "".join(path.read_text() for path in found.written)


def test_what_is_not_carried_over_is_said(tmp_path: Path) -> None:
    rows = [
        row(),
        row(metrics="['BLEU', 'ANLS', 'CIDEr']"),
        row(only_evaluate_metrics="True"),
        row(framework="SGLang"),
    ]
    found = import_v01(config(tmp_path, *rows), tmp_path / "out")
    reported = "\n".join(found.remarks)
    assert "hpcbench has no metric CIDEr: row 3 leaves it out" in reported
    assert "no answers ModelsAnswers/d_*_m_VQA_answers_*.csv (name v0.1's folder" in reported
    assert "row 4, which only scores them, is left out" in reported
    assert "sglang" not in reported.lower()
    assert "model m is not in vlm_base.csv" in reported
    tasks = run_tasks(found)
    assert [task["name"] for task in tasks] == ["d-m-vqa", "d-m-vqa-2", "d-m-vqa-3"]
    assert tasks[1]["metrics"] == ["bleu", "anls"]
    assert (
        (tmp_path / "out/registries/models" / f"{tasks[2]['model']}.yaml")
        .read_text()
        .count("sglang")
    )


def test_columns_that_v01_does_not_have_are_named(tmp_path: Path) -> None:
    files = {}
    for name, text in {
        "user_config.csv": f"{';'.join(COLUMNS)};note\n{row()};mine\n",
        "base.csv": f"{';'.join(BASE_COLUMNS)};module;adapter\nvLLM;M;m;a/b:1;x;y\n",
    }.items():
        (files.setdefault(name, tmp_path / name)).write_text(text, encoding="utf-8-sig")
    found = import_v01(files["user_config.csv"], tmp_path / "out", files["base.csv"])
    assert [one for one in found.remarks if "not one of v0.1" in one] == [
        "column 'note' of user_config.csv is not one of v0.1, and is left out",
        "column 'adapter' of base.csv is not one of v0.1, and is left out",
    ]


def test_a_metric_that_the_ml_task_lacks_is_left_out(tmp_path: Path) -> None:
    rows = [row(task="KIE", metrics="['CER']")]
    found = import_v01(config(tmp_path, *rows), tmp_path / "out")
    assert any("ML task kie has no metric cer: row 2" in one for one in found.remarks)
    assert "metrics" not in run_tasks(found)[0]


def test_an_unknown_task_is_left_out_and_the_rest_is_imported(tmp_path: Path) -> None:
    found = import_v01(config(tmp_path, row(task="RPO"), row()), tmp_path / "out")
    assert any("unknown task 'RPO'" in one and "row 2 is left out" in one for one in found.remarks)
    assert [task["name"] for task in run_tasks(found)] == ["d-m-vqa"]


@pytest.mark.parametrize(
    ("cells", "reported"),
    [
        ({"task": "VQQ"}, "no row can be imported; unknown task 'VQQ'"),
        ({"framework": "vLM"}, "user_config.csv:2: unknown framework 'vLM' (did you mean 'vLLM'?)"),
        ({"metrics": "[CER]"},
         "user_config.csv:2: metrics: '[CER]' is not a list of texts (write a list such as ['CER'])"),
        ({"metrics": "__import__('os')"}, "is not a list of texts"),
        ({"metrics_aggregators": "5"}, "metrics_aggregators: '5' is not a list of texts"),
        ({"model_name": ""}, "user_config.csv:2: model_name: must be one line of text without"),
        ({"model_name": "../m"}, "user_config.csv:2: model_name: must be one line of text without"),
        ({"dataset": ""}, "user_config.csv:2: dataset: must be one line of text without"),
        ({"dataset": "a/../../b"},
         "user_config.csv:2: dataset: 'a/../../b' leads out of v0.1's folder"),
        ({"prompt_collection": "../p.csv"},
         "prompt_collection: '../p.csv' leads out of v0.1's folder"),
        ({"only_evaluate_metrics": "1"}, "only_evaluate_metrics: must be True or False, not '1'"),
    ],
)  # fmt: skip
def test_a_wrong_cell_is_reported_at_its_line_and_nothing_is_written(
    tmp_path: Path, cells: dict[str, str], reported: str
) -> None:
    assert reported in refusal(tmp_path, row(**cells))[0]


def test_all_wrong_rows_are_reported_at_once(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, row(framework="x"), row(), row(framework="y"))) == 2


def test_what_is_no_such_file_is_reported(tmp_path: Path) -> None:
    assert (
        "no column 'dataset'" in refusal(tmp_path, row(), head=HEAD.replace("dataset", "datset"))[0]
    )
    assert refusal(tmp_path) == ["user_config.csv: the file has no rows"]
    assert "the row has more or fewer columns" in refusal(tmp_path, row() + ";more")[0]
    twice = refusal(tmp_path, row() + ";x", head=f"{HEAD};dataset")
    assert twice == ["user_config.csv:1: column 'dataset' occurs twice (rename one of them)"]
    assert "not UTF-8" in refusal(tmp_path, row(dataset="Ы"), encoding="cp1251")[0]
    assert "no row can be imported" in refusal(tmp_path, row(only_evaluate_metrics="True"))[0]


def test_other_files_of_an_import_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: no such folder .check --data-dirs."):
        import_v01(config(tmp_path, row()), tmp_path / "out", None, tmp_path / "nowhere")
    base = tmp_path / "vlm_base.csv"
    base.write_text(f"{BASE_HEAD}\nvLLM;F;m;a:1\nvLLM;F;m;a:1\nVLLM;F;m;a:2\n")
    with pytest.raises(
        UserError, match=r"vlm_base.csv:4: another row of VLLM m .remove one of them."
    ):
        import_v01(config(tmp_path, row()), tmp_path / "out", base)


@pytest.mark.parametrize("separator", [",", "\t", " ; "])
def test_other_separators_and_spaces_are_read(tmp_path: Path, separator: str) -> None:
    cells = row(metrics="['CER']").replace(";", separator)
    found = import_v01(config(tmp_path, cells, head=HEAD.replace(";", separator)), tmp_path / "out")
    assert run_tasks(found)[0]["metrics"] == ["cer"]


def test_line_ends_and_marks_of_windows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(("\ufeff" + "\r\n".join([HEAD, row(dataset="Набор")]) + "\r\n").encode())
    found = import_v01(path, tmp_path / "out")
    assert run_tasks(found)[0]["name"] == "nabor-m-vqa"


def test_nothing_that_is_there_is_overwritten(tmp_path: Path) -> None:
    path = config(tmp_path, row())
    import_v01(path, tmp_path / "out")
    before = (tmp_path / "out/plan.yaml").read_bytes()
    with pytest.raises(UserError, match="exists already"):
        import_v01(path, tmp_path / "out")
    assert (tmp_path / "out/plan.yaml").read_bytes() == before
    shutil.rmtree(tmp_path / "out")
