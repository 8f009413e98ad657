"""`hpcbench new`: a first plan by a few questions, each with an option, valid before it is written."""

from __future__ import annotations

import json
import os
import pty
import select
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from hpcbench.cli.main import main
from hpcbench.cli.plan_questions import left_out
from hpcbench.registry.model_table import shipped
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.submit.first_plan import Choices, Draft
from tests.fake_nvml import GIB, FakeGpu, FakeNvml
from tests.help_examples import example
from tests.unit.command import Cli

TINY = ("--task", "vqa", "--dataset", "demo_vqa", "--model", "tiny-vlm")

QWEN = "Qwen/Qwen3-VL-8B-Instruct"
FOR_ANY = sum(not one.tasks for one in shipped())
"""Shipped models that read any question; all need GPUs."""

SITE = """\
schema_version: 1
name: default
executor: slurm
slurm:
  partition: gpu
  gpu_gres: gpu:a100
  partitions:
    gpu: {cpus: 48, memory_gb: 200, time_limit: "1:00:00", gpus: {a100: 4}, gpu_memory_gb: {a100: GIB}}
"""

ANSWER = "import sys; sys.argv[0] = 'hpcbench'; from hpcbench.cli.main import entry; entry()"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, nothing set up, no GPU."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HPCBENCH_SITE", str(tmp_path / "site"))
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return work


def site(tmp_path: Path, text: str) -> None:
    """The user's site profile."""
    path = tmp_path / "config/hpcbench/sites/default.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def with_gpus(tmp_path: Path, gib: int) -> None:
    """A profile of a cluster whose nodes have four GPUs of so much memory."""
    site(tmp_path, SITE.replace("GIB", str(gib)))


def own_dataset(folder: Path, references: Sequence[object], **more: object) -> None:
    """`registries/datasets/mine.yaml`, over a table in this folder."""
    data = folder / "pages"
    data.mkdir()
    fields = {name: "x" for name in more.get("fields", ())}  # type: ignore[attr-defined]
    rows = [
        {"id": str(number), "images": ["a.png"], "references": [one], "fields": fields}
        for number, one in enumerate(references)
    ]
    (data / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    definition = {"name": "mine", "source": str(data), "annotations": "rows.jsonl", **more}
    path = folder / "registries/datasets/mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(definition))


def written(path: str | Path) -> dict[str, object]:
    """The one run task of a plan that was written, which is valid."""
    load_plan(Path(path), mode="dev")
    (run_task,) = yaml.safe_load(Path(path).read_text())["run_tasks"]
    return dict(run_task)


# --- what fits together ---------------------------------------------------------------------------------


BENCHMARKS = {
    "vqa": [
        "ai2d", "chartqa", "chartqapro", "docvqa", "foxbench", "infographicvqa", "livexiv_tqa", "livexiv_vqa",
        "mp_docvqa", "mtvqa", "ocrbench", "ocrvqa", "openxvqa", "plotqa", "seedbench_2_plus", "slidevqa",
        "textvqa", "websrc",
    ],
    "ocr": [
        "cc_ocr_languages", "cc_ocr_scene", "fintabnet", "oceanocr", "omnidocbench", "synthdog_en",
        "synthdog_zh", "textcaps",
    ],
}  # fmt: skip
"""Shipped ones that are on the network, not in a folder that is missing here, and scored here."""


@pytest.fixture(scope="module")
def choices() -> Choices:
    """Choices that have read what is shipped."""
    return Choices()


@pytest.mark.long
@pytest.mark.parametrize(
    ("ml_task", "datasets"),
    [
        ("vqa", {"demo_vqa", *BENCHMARKS["vqa"]}),
        ("ocr", {"demo_ocr", *BENCHMARKS["ocr"]}),
        ("ocr_deepseek", {"demo_ocr", *BENCHMARKS["ocr"]}),
        ("kie", {"demo_kie", "cord"}),
        ("classification", {"demo_classification", "doclaynet"}),
        ("page_labels", set()),
        ("page_order", set()),
    ],
)
def test_each_task_has_the_datasets_that_fit_it_and_each_of_them_a_valid_plan(
    choices: Choices, ml_task: str, datasets: set[str]
) -> None:
    task = choices.get(MLTask, ml_task)
    found = choices.datasets(task)
    assert {dataset.name for dataset, _ in found} == datasets
    for dataset, here in found:
        assert here == dataset.name.startswith("demo_")
        metrics = [one.name for one in choices.metrics(task)]
        prompt = choices.prompt(task, dataset)
        draft = Draft(task, dataset, choices.get(Model, "tiny-vlm"), prompt, metrics, 5)
        preview = choices.preview(draft, Path("p.yaml"))
        assert preview.samples("new") == 5


def test_every_task_can_be_scored_by_its_default_metrics() -> None:
    choices = Choices()
    for task in choices.all(MLTask):
        scored = {one.name for one in choices.metrics(task)}
        assert set(task.default_metrics or task.metrics) <= scored, task.name
    assert not choices.unreadable


@pytest.mark.long
@pytest.mark.parametrize(
    ("references", "more", "ml_task", "prompt"),
    [
        (["invoice", "letter"] * 6, {"fields": ["classes"]}, "classification", "classify"),
        ([{"total": "1"}] * 3, {"fields": ["keys"]}, "kie", "kie_json"),
        ([{"total": "1"}] * 3, {}, "kie", "kie_all_json"),
        ([f"line {number}\nline 2" for number in range(9)], {}, "ocr", "ocr_text"),
        (["3 1 2", "1 2", "2, 1"], {}, "page_order", "page_order"),
    ],
)
def test_a_dataset_of_the_users_own_fits_the_tasks_that_its_references_fit(
    folder: Path, references: list[object], more: dict[str, object], ml_task: str, prompt: str
) -> None:
    own_dataset(folder, references, **more)
    choices = Choices()
    fits = {
        task.name
        for task in choices.ml_tasks()
        if "mine" in {dataset.name for dataset, _ in choices.datasets(task)}
    }
    others = {"ocr_deepseek", "page_labels"}
    assert fits - others == {ml_task}
    assert choices.prompt(choices.get(MLTask, ml_task), choices.get(Dataset, "mine")) == prompt


def test_a_prompt_that_is_called_as_the_dataset_is_its_prompt(folder: Path) -> None:
    own_dataset(folder, ["page 1\nline", "page 2\nline"])
    prompt = folder / "registries/prompts/mine.yaml"
    prompt.parent.mkdir()
    prompt.write_text("name: mine\nuser: Read it.\n")
    choices = Choices()
    assert choices.prompt(choices.get(MLTask, "ocr"), choices.get(Dataset, "mine")) == "mine"


def test_a_dataset_whose_folder_is_not_there_is_no_choice(folder: Path) -> None:
    own_dataset(folder, ["page 1\nline", "page 2\nline"])
    (folder / "pages").rename(folder / "elsewhere")
    choices = Choices()
    assert "mine" not in {one.name for one, _ in choices.datasets(choices.get(MLTask, "ocr"))}


# --- models that the site holds -------------------------------------------------------------------------


def models(ml_task: str = "vqa", dataset: str = "demo_vqa") -> tuple[set[str], str]:
    """Models that fit, and what is said of the others."""
    choices = Choices()
    task, data = choices.get(MLTask, ml_task), choices.get(Dataset, dataset)
    prompt = choices.prompt(task, data)
    found = choices.models(Draft(task, data, choices.plain_model(), prompt))
    fitting = {one.model.name for one in found if one.against is None}
    return fitting, left_out([one for one in found if one.against is not None])


@pytest.mark.long
def test_without_gpus_there_are_the_tiny_model_and_endpoints_elsewhere(folder: Path) -> None:
    remote = folder / "registries/models/far.yaml"
    remote.parent.mkdir(parents=True)
    remote.write_text(
        "name: far\nengine: remote\nengine_options: {base_url: 'https://far.example/v1', model: far}\n"
    )
    fitting, others = models()
    assert fitting == {"tiny-vlm", "far"}
    assert others == f"{FOR_ANY} need a GPU, and this machine has none"


@pytest.mark.long
def test_gpus_of_16_gib_hold_small_models(tmp_path: Path) -> None:
    with_gpus(tmp_path, 16)
    fitting, others = models()
    assert {"tiny-vlm", "Qwen/Qwen3-VL-2B-Instruct"} <= fitting
    assert QWEN not in fitting
    assert "GPUs of 16 GiB" in others


@pytest.mark.long
def test_gpus_of_80_gib_hold_all_but_what_needs_more_of_them_than_a_node_has(
    tmp_path: Path,
) -> None:
    with_gpus(tmp_path, 80)
    fitting, others = models()
    assert {QWEN, "Qwen/Qwen2.5-VL-72B-Instruct"} <= fitting
    eight = sum(one.gpus > 4 for one in shipped() if not one.tasks)
    assert others.startswith(
        f"{eight} need more than this site has, for example: partition 'gpu' has 4 GPUs"
    )


@pytest.mark.long
def test_gpus_of_this_machine_count_by_their_number_and_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def on(count: int, gib: int) -> tuple[set[str], str]:
        gpus = [FakeGpu(f"GPU-{number}", total=gib * GIB) for number in range(count)]
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(gpus))
        return models()

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    two_gpus = "Qwen/Qwen2.5-VL-32B-Instruct"
    fitting, others = on(1, 24)
    assert "Qwen/Qwen2.5-VL-3B-Instruct" in fitting
    assert not {QWEN, two_gpus} & fitting
    assert "need more GPU memory than the 24 GiB of this machine's GPUs" in others
    fitting, others = on(1, 80)
    assert QWEN in fitting
    assert two_gpus not in fitting
    fitting, others = on(2, 80)
    assert {QWEN, two_gpus} <= fitting
    larger = sum(one.gpus > 2 for one in shipped() if not one.tasks)
    assert others == f"{larger} need more GPUs than this machine has"


@pytest.mark.long
def test_deepseek_ocr_is_offered_for_pages_and_alone_for_its_own_task(tmp_path: Path) -> None:
    with_gpus(tmp_path, 80)
    deepseek = {"deepseek-ai/DeepSeek-OCR", "deepseek-ai/DeepSeek-OCR-2"}
    assert not deepseek & models()[0]
    assert deepseek < models("ocr", "demo_ocr")[0]
    assert deepseek == models("ocr_deepseek", "demo_ocr")[0]


def test_jobs_ask_for_what_a_model_needs_and_no_more_than_the_partition_gives(
    tmp_path: Path,
) -> None:
    with_gpus(tmp_path, 80)
    data = ("--task", "vqa", "--dataset", "demo_vqa")
    assert main(["new", "small", *data, "--model", QWEN]) == 0
    assert written("small.yaml")["resources"] == {
        "cpus": 8, "memory_gb": 56, "time_limit": "1:00:00",
    }  # fmt: skip
    assert main(["new", "large", *data, "--model", "Qwen/Qwen2.5-VL-72B-Instruct"]) == 0
    assert written("large.yaml")["resources"] == {
        "cpus": 32, "memory_gb": 176, "time_limit": "1:00:00",
    }  # fmt: skip


# --- without a terminal ---------------------------------------------------------------------------------


def test_all_options_write_a_plan_and_say_what_to_type_next(cli: Cli) -> None:
    printed = cli("new", "first", *TINY, "--metrics", "anls,contains", "--limit", "7")
    run_task = written("first.yaml")
    assert run_task == {
        "name": "first", "ml_task": "vqa", "model": "tiny-vlm", "dataset": "demo_vqa",
        "prompt": "demo_vqa", "metrics": ["anls", "contains"], "limit": 7,
        "generation": {"max_tokens": 256},
    }  # fmt: skip
    assert printed.splitlines() == [
        "wrote first.yaml: vqa on demo_vqa by tiny-vlm, 7 samples; prompt demo_vqa",
        "next:",
        "  hpcbench submit first.yaml --dry-run  show its jobs, change nothing",
        "  hpcbench submit first.yaml --wait     run it, and print the scores",
    ]
    assert main(["validate", "first.yaml"]) == 0


@pytest.mark.long
def test_what_has_a_default_needs_no_option(folder: Path, cli: Cli) -> None:
    own_dataset(folder, ["3 1 2", "1 2", "2, 1"])
    said = cli.both("new", "--task", "page_order")
    assert said.err.splitlines() == [
        "--dataset mine: the only one that fits page_order",
        "--model tiny-vlm: the only one that fits; left out: "
        f"{FOR_ANY} need a GPU, and this machine has none",
    ]
    run_task = written("mine-tiny-vlm.yaml")
    assert (run_task["metrics"], run_task["limit"]) == (["kendall_tau", "position_accuracy"], 50)
    assert main(["new", "--task", "page_order", "--limit", "0"]) == 0
    assert "limit" not in written("mine-tiny-vlm-2.yaml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--task is missing, and hpcbench asks questions only in a terminal (choices: agent, cla"),
        (["--task", "vqa"], "--dataset is missing, and hpcbench asks questions only in a terminal (choices"),
        (["--task", "page_order"], "no dataset of the registries fits page_order (`hpcbench data"),
        (["--task", "vqaa"], "unknown ML task 'vqaa' (did you mean 'vqa'?)"),
        (["--task", "vqa", "--dataset", "demo_vga"], "unknown dataset 'demo_vga' (did you mean 'demo_vqa'?)"),
        (["--task", "vqa", "--dataset", "."], ". is a folder, and --dataset takes the name of a dataset ("),
        ([*TINY[:5], "tiny-vml"], "unknown model 'tiny-vml' (did you mean 'tiny-vlm'?)"),
        ([*TINY, "--prompt", "demo_vq"], "unknown prompt 'demo_vq' (did you mean 'demo_vqa'?)"),
        ([*TINY, "--metrics", "anl"], "unknown metric 'anl' (did you mean 'anls'?)"),
        ([*TINY, "--metrics", "kie_f1_micro"], "metric 'kie_f1_micro' scores object"),
        ([*TINY, "--limit", "-1"], "--limit -1 is negative (0 takes all samples)"),
        (["a/b", *TINY], "'a/b' cannot name a plan: a name must be one line of text without \\ and /"),
        (["--out", ".", *TINY], "'' cannot name a plan"),
        (["mine", "--out", "..", *TINY], "..: is a folder (name a file: --out FILE.yaml)"),
        (["--task", "ocr_deepseek", "--dataset", "demo_ocr"], "no model of the registries fits this site: 2"),
        (["--task", "vqa", "--dataset", "demo_ocr", "--prompt", "ocr_text"], "dataset 'demo_ocr' has no"),
        (["--task", "vqa", "--dataset", "demo_vqa", "--prompt", "kie_json"], "prompt 'kie_json' uses"),
        (["--task", "ocr", "--dataset", "demo_kie", *TINY[4:], "--metrics", "cer"], "metric 'cer' cannot"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_one_line_and_writes_nothing(
    words: list[str], said: str, folder: Path, cli: Cli
) -> None:
    (line,) = cli.err("new", *words).splitlines()
    assert line.startswith(said)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("words", [["mine"], ["mine.yaml"], ["other", "--out", "mine.yaml"]])
def test_a_file_that_is_there_stays_as_it_is(words: list[str], folder: Path, cli: Cli) -> None:
    (folder / "mine.yaml").write_text("of mine")
    said = cli.err("new", *words, *TINY)
    assert said == "mine.yaml: this file exists already (choose another NAME)\n"
    assert (folder / "mine.yaml").read_text() == "of mine"


def test_a_file_is_named_with_its_folder_and_its_plan_by_the_name() -> None:
    assert main(["new", "plans/mine.yaml", *TINY]) == 0
    assert written("plans/mine.yaml")["name"] == "mine"
    assert main(["new", "called", "--out", "plans/other.yaml", *TINY]) == 0
    assert written("plans/other.yaml")["name"] == "called"


def test_dry_run_prints_the_plan_and_writes_nothing(folder: Path, cli: Cli) -> None:
    said = cli.both("new", "mine", "--dry-run", *TINY)
    assert yaml.safe_load(said.out)["name"] == "mine"
    assert said.err.startswith("dry run, not written: vqa on demo_vqa by tiny-vlm, 50 samples")
    assert list(folder.iterdir()) == []


def test_a_model_that_does_not_fit_is_taken_by_its_name_with_what_is_to_be_done_first(
    cli: Cli,
) -> None:
    said = cli.both("new", "big", "--task", "vqa", "--dataset", "docvqa", "--model", QWEN)
    assert f"model '{QWEN}' needs a GPU, but this machine has no visible GPU" in said.err
    assert f"to fetch: model {QWEN}, about 17.6 GB" in said.err
    assert "to fetch: dataset docvqa" in said.err
    assert f"! fix before submission: model '{QWEN}' is not locked" in said.err.replace(
        said.err.partition("submission: ")[2].partition("model ")[0], ""
    )
    commands = [line.split("  ")[1] for line in said.out.splitlines() if line[2:10] == "hpcbench"]
    assert commands == [
        f"hpcbench models fetch {QWEN}",
        f"hpcbench models verify {QWEN}",
        "hpcbench submit big.yaml --dry-run",
        "hpcbench submit big.yaml --wait",
    ]


def test_further_registries_are_named_in_the_commands(
    tmp_path: Path, folder: Path, cli: Cli
) -> None:
    own_dataset(folder, ["page 1\nline", "page 2\nline"])
    (folder / "registries").rename(tmp_path / "more")
    words = ["--task", "ocr", "--dataset", "mine", "--model", "tiny-vlm"]
    assert main(["new", "p", *words]) == 2
    printed = cli("new", "p", *words, "--registry", "../more")
    assert "hpcbench submit p.yaml --wait --registry ../more" in printed


# --- at a terminal --------------------------------------------------------------------------------------


def dialogue(folder: Path, answers: Sequence[str], *words: str) -> tuple[int, str]:
    """Exit code and screen of `hpcbench new` at a terminal, whose questions get these answers."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, "-c", ANSWER, *example("new"), *words])  # noqa: S606
    screen, waiting = "", list(answers)
    while select.select([terminal], [], [], 120)[0]:
        try:
            screen += os.read(terminal, 65536).decode()
        except OSError:  # its end
            break
        if screen.endswith("]: "):
            assert waiting, screen
            os.write(terminal, f"{waiting.pop(0)}\n".encode())
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert not waiting, screen
    return code, screen.replace("\r\n", "\n")


@pytest.mark.long
def test_a_few_questions_make_a_plan(folder: Path) -> None:
    """A typo is answered, numbers stand for choices, an empty line takes the value in brackets."""
    answers = ["vqqa", "8", "", "tiny-vlm", "exact_match,anls", "twenty", "20", "a/b", "mine"]
    code, screen = dialogue(folder, answers)
    assert code == 0, screen
    assert "unknown answer 'vqqa' (did you mean 'vqa'?)" in screen
    assert f"left out: {FOR_ANY} need a GPU, and this machine has none" in screen
    assert "a whole number, or all" in screen
    assert "'a/b' cannot name a plan" in screen
    assert "Models whose" not in screen
    run_task = written(folder / "mine.yaml")
    assert (run_task["ml_task"], run_task["dataset"]) == ("vqa", "demo_vqa")
    assert (run_task["metrics"], run_task["limit"]) == (["exact_match", "anls"], 20)
    assert screen.endswith("run it, and print the scores\n")


@pytest.mark.long
def test_all_models_can_be_listed_with_why_they_do_not_fit(folder: Path) -> None:
    words = ["mine", *TINY[:4], "--all-models", "--metrics", "anls", "--limit", "5"]
    code, screen = dialogue(folder, [QWEN], *words)
    assert code == 0, screen
    assert "(does not fit: needs a GPU, but this machine has no visible GPU)" in screen
    assert f"model '{QWEN}' needs a GPU, but this machine has no visible GPU (" in screen
    assert written(folder / "mine.yaml")["model"] == QWEN


@pytest.mark.long
def test_data_of_the_users_own_comes_first_and_other_models_can_be_had(folder: Path) -> None:
    own_dataset(folder, [f"page {number}\nline" for number in range(9)])
    words = ["--task", "ocr", "--metrics", "cer", "--limit", "5"]
    code, screen = dialogue(folder, ["", "", "first"], *words)
    assert code == 0, screen
    assert "Dataset [mine]: " in screen
    assert "for a model behind an API use `engine: remote`" in screen
    assert written("first.yaml")["dataset"] == "mine"


@pytest.mark.long
def test_what_an_option_says_is_not_asked_and_a_folder_leads_to_data_add(folder: Path) -> None:
    code, screen = dialogue(folder, ["own", "my pages"], "mine", "--task", "ocr")
    assert code == 0, screen
    assert "Task" not in screen
    assert "hpcbench data add 'my pages'" in screen
    assert "hpcbench new mine --task ocr" in screen
    assert list(folder.iterdir()) == []
