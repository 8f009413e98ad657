"""Definitions of VLMHyperBench v0.2: read as they are; each word is obeyed, or refused at its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.data.datasets import open_dataset
from hpcbench.data.language import language_of, of_texts
from hpcbench.errors import UserError
from hpcbench.experiment.layout import new_id
from hpcbench.prompts import TaskPrompt
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.resolve import check_registries, load_plan
from hpcbench.registry.rewrite import rewritten
from hpcbench.registry.source import Source, parse
from hpcbench.registry.upgrade import prompt_of, upgrade
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.run_task import RunTask
from hpcbench.submit.local_data import localise, open_cache
from tests.unit.command import Cli
from tests.unit.v02 import DOCUMENTS, QUESTIONS, v02_registry, write


@pytest.fixture(autouse=True)
def _ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def translated(kind: str, text: str) -> Source:
    return upgrade(kind, parse(Path("x.yaml"), text))


def refused(kind: str, text: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        translated(kind, text)
    return [str(problem) for problem in caught.value.problems]


# --- the definitions of v0.2's users ----------------------------------------------------------------------


@pytest.mark.long
def test_the_definitions_of_v02_are_valid_unchanged(tmp_path: Path, cli: Cli) -> None:
    registry = v02_registry(tmp_path)
    plan = registry / "experiments/benchmark_2025.yaml"
    cli("validate", plan)
    for name in ("Grand VLM Benchmark 2025", "grand vlm benchmark 2025", "benchmark_2025"):
        cli("validate", name, "--registry", registry)
    cli("validate", "--registry", registry)
    assert (registry / "ml_tasks/vqa.yaml").read_bytes() == (
        DOCUMENTS / "ml_tasks/vqa.yaml"
    ).read_bytes()
    resolved = load_plan(plan)  # its own registry is where it lies
    assert resolved.plan.name == "Grand VLM Benchmark 2025"
    assert resolved.plan.parallelism == 4
    qwen, llava = resolved.run_tasks
    assert (qwen.name, qwen.model.name, qwen.model.engine) == ("qwen_docvqa_ru", "Qwen2-VL", "vllm")
    assert (qwen.ml_task.name, qwen.task.ml_task, qwen.ml_task.plugin) == ("VQA", "VQA", "vqa")
    assert (llava.name, llava.model.name, llava.task.metrics) == (
        "llava_docvqa_ru", "LLaVA 1.5", ("anls", "cer"),
    )  # fmt: skip
    assert [one.name for one in qwen.metrics] == ["anls"]
    assert new_id(resolved.plan.name).count("Grand-VLM-Benchmark-2025+") == 1


def test_a_run_task_without_a_prompt_is_asked_in_the_datasets_language(tmp_path: Path) -> None:
    registry = v02_registry(tmp_path)
    resolved = load_plan(registry / "experiments/benchmark_2025.yaml", [registry])
    one = resolved.run_tasks[0]
    assert (one.prompt.name, sorted(one.default_prompts)) == ("vqa_short", ["en", "ru"])
    here = localise(resolved, open_cache(resolved.site))
    assert [one.prompt.name for one in here.run_tasks] == ["vqa_short_ru"] * 2
    assert not here.run_tasks[0].default_prompts
    write(registry, "datasets/docvqa_ru.yaml",
          "name: docvqa_ru\nsource: ../../data\niterator: v01\nfields: [question]\n"
          "language: en\n")  # fmt: skip
    resolved = load_plan(registry / "experiments/benchmark_2025.yaml", [registry])
    assert resolved.run_tasks[0].prompt.name == "vqa_short"
    assert not resolved.run_tasks[0].default_prompts


def test_every_ml_task_has_a_prompt_in_both_languages() -> None:
    catalog = Catalog()
    for name in catalog.names("ml_tasks"):
        ml_task = catalog.get(MLTask, name)
        assert ml_task.prompt is not None or set(ml_task.prompts) == {"en", "ru"}
        for prompt in ml_task.prompts.values():
            assert catalog.key("prompts", prompt)


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["Кто?"], "ru"),
        (["Who?"], "en"),
        ([], "en"),
        (["2026"], "en"),
        (["ИНН of ООО «Ромашка»"], "ru"),
    ],
)
def test_the_language_is_that_of_most_letters(texts: list[str], language: str) -> None:
    assert of_texts(texts) == language


def test_a_dataset_that_cannot_be_read_is_reported_elsewhere(tmp_path: Path) -> None:
    assert language_of(Dataset(name="x", source=str(tmp_path), annotations="no.csv")) == "en"


def test_the_same_file_in_an_old_and_a_new_folder_is_two_definitions(tmp_path: Path) -> None:
    registry = v02_registry(tmp_path)
    write(registry, "tasks/vqa.yaml", "name: VQA\nentry_point: vqa\n")
    with pytest.raises(UserError) as caught:
        load_plan(registry / "experiments/benchmark_2025.yaml", [registry])
    reported = [str(problem) for problem in caught.value.problems]
    assert reported[0].startswith(
        f"{registry}/run_tasks/qwen_vqa.yaml:2:10: 2 definitions of ml_tasks/ answer"
    )
    assert f"{registry}/ml_tasks/vqa.yaml" in reported[0]
    assert f"{registry}/tasks/vqa.yaml" in reported[0]


# --- words that are obeyed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("ml_tasks", "name: T\nentry_point: vlmhyperbench.tasks.ocr",
         {"plugin": "ocr", "prompts": {"en": "ocr_text", "ru": "ocr_text_ru"}}),
        ("ml_tasks", "name: T\nentry_point: tasks.classification.__main__", {"plugin": "classification",
                                                                            "output": "label"}),
        ("ml_tasks", "name: T\nentry_point: my.module.Task\nprompt: p", {"plugin": "my.module.Task"}),
        ("ml_tasks", "name: T\nentry_point: my.tasks.stamps", {"module": "my.tasks.stamps", "plugin": "vqa",
                                                                "sample_fields": None, "prompts": None}),
        ("ml_tasks", "name: T\nenvironment: {entry_point: vlmhyperbench.tasks.stamps}",
         {"module": "vlmhyperbench.tasks.stamps"}),
        ("ml_tasks", "name: T\nenvironment: {entry_point: vlmhyperbench.tasks.kie, default_packages: [a]}\n"
         "required_packages: [b]", {"plugin": "kie", "output": "object", "required_packages": ["b", "a"]}),
        ("ml_tasks", "name: T\nentry_point: vqa\nsupported_frameworks: [vLLM, Hugging Face]\n"
         "supported_reports: [html]", {"engines": ["vllm", "huggingface"], "reports": ["html"]}),
        ("ml_tasks", "name: T\nplugin: vqa\ndataset_interface: {type: vlmhyperbench.datasets.VQADataset, "
         "required_fields: [image_path, question, answer]}",
         {"iterator": "v01", "sample_fields": ["question"]}),
        ("ml_tasks", "name: T\nentry_point: vqa\nsupported_metrics: [Latency, anls, structural_fidelity]",
         {"metrics": ["latency_mean", "anls", "schema_valid"]}),
        ("run_tasks", "name: R\nmodel: {name: M, framework: HF}\n"
         "metrics: [ttft, tpot, throughput, peak_memory]",
         {"metrics": ["ttft_mean", "tpot", "tokens_per_second", "peak_gpu_memory"]}),
        ("ml_tasks", "name: T\nentry_point: vqa\ncustom_packages: [{name: m, source: git+https://x/y.git@v1}]",
         {"required_packages": [{"name": "m", "source": {"type": "git", "url": "https://x/y.git",
                                                          "ref": "v1"}}]}),
        ("run_tasks", "name: R\nmetrics: [{name: anls, backend: native}, cer]", {"metrics": ["anls", "cer"]}),
        ("run_tasks", "name: R\nmodel: {name: M, framework: HF, package_manager: uv, engine_params: "
         "{max_model_len: 4096, dtype: float16, tensor_parallel_size: 2, x: 1}}",
         {"model": {"name": "M", "engine": "huggingface", "engine_options": {"x": 1}, "context_length": 4096,
                    "dtype": "float16", "gpus": 2}}),
        ("run_tasks", "name: R\ncustom_packages: [{name: p, source: 'mine==1.2'}, {name: q, source: ./q}]",
         {"packages": [{"name": "p", "source": {"type": "pypi", "name": "mine", "version": "1.2"}},
                       {"name": "q", "source": {"type": "local", "path": "./q"}}]}),
        ("run_tasks", "name: R\nprompt_config: prompts.json",
         {"prompt": {"name": "prompts of R", "collection": "prompts.json"}}),
        ("run_tasks", "name: R\nprompt_config: {user_prompt: u, type_mapping: {}}",
         {"prompt": {"name": "prompts of R", "user": "u"}}),
        ("packages", "name: P\nsource: {local: {path: x, editable: false}}",
         {"source": {"type": "local", "path": "x", "editable": False}}),
        ("packages", "name: P\nsource: {type: pypi, name: p}\ninstall_args: {extras: [a], --index-url: u}",
         {"source": {"type": "pypi", "name": "p", "index": "u"}, "install_args": {"extras": ["a"]}}),
        ("metrics", "name: M\nclass_path: vlmhyperbench.metrics.text.CERMetric", {"plugin": "cer"}),
        ("metrics", "name: M\nclass_path: mine.Metric\nparams: {a: 1}",
         {"plugin": "mine.Metric", "options": {"a": 1}}),
        ("datasets", "name: D\ntype: vlmhyperbench.data.VqaDataset\npath: d",
         {"iterator": "v01", "source": "d", "fields": ["question"],
          "group_by": ["doc_class", "question_type"]}),
        ("datasets", "name: D\npath: s3://b/d", {"iterator": "v01", "source": "s3://b/d"}),
        ("datasets", "name: D\npath: d\nannotations: a.jsonl", {"annotations": "a.jsonl", "iterator": None}),
        ("datasets", "name: D\npath: d\ntype: mine.Pages",
         {"iterator": "mine.Pages", "fields": ["question"], "group_by": None}),
        ("ml_tasks", "name: T\nentry_point: vqa", {"plugin": "vqa", "sample_fields": ["question"]}),
        ("models", "name: M\nframework: vLLM\ndocker_image: a/b:1",
         {"engine": "vllm", "image": "docker://a/b:1", "source": "hf://M"}),
        ("run_tasks", "name: R\nmodel: {name: M, params: {top_k: 5, temperature: 0, min_p: 0.1}}",
         {"model": {"name": "M"}, "generation": {"temperature": 0, "extra": {"top_k": 5, "min_p": 0.1}}}),
        ("datasets", "name: D\ntype: VQADataset\npath: d", {"iterator": "v01"}),
        ("datasets", "name: D\ntype: vqa\npath: d", {"iterator": "v01"}),
        ("datasets", "name: D\ntype: my_vqa\npath: d", {"iterator": "my_vqa"}),
        ("metrics", "name: M\nclass_path: CERMetric", {"plugin": "cer"}),
        ("ml_tasks", "name: T\nentry_point: vqa\nenvironment:\ndataset_interface: ~\ncustom_packages:",
         {"plugin": "vqa", "iterator": None}),
        ("experiments", "name: E\ntasks: [a, {name: b, model: {name: M, framework: vllm}}]",
         {"run_tasks": ["a", {"name": "b", "model": {"name": "M", "engine": "vllm"}}]}),
    ],
)  # fmt: skip
def test_a_word_of_v02_is_obeyed(kind: str, text: str, expected: dict[str, Any]) -> None:
    found = translated(kind, text + "\n")
    assert {key: found.data.get(key) for key in expected} == expected
    assert not found.data.keys() - KINDS[kind].model_fields.keys()


def test_a_plan_is_found_by_its_name_and_two_of_one_name_are_an_error(
    tmp_path: Path, capsys: Any
) -> None:
    registry = v02_registry(tmp_path)
    for name, text in {"счета": "Счета 2026", "twin": "GRAND VLM Benchmark 2025"}.items():
        write(registry, f"experiments/{name}.yaml", f"name: {text}\ntasks: [qwen_docvqa_ru]\n")

    def said(name: str, code: int) -> str:
        assert main(["validate", name, "--registry", str(registry)]) == code
        printed = capsys.readouterr()
        return str(printed.out + printed.err)

    assert "Счета 2026 is valid" in said("СЧЕТА 2026", 0)
    assert "Grand VLM Benchmark 2025 is valid: 2 run" in said("Grand VLM Benchmark 2025", 0)
    both = said("grand vlm benchmark 2025", 2)
    assert "2 definitions of experiments/ answer to the name" in both
    assert f"{registry}/experiments/benchmark_2025.yaml" in both
    assert f"{registry}/experiments/twin.yaml" in both
    assert said("Счета 2025", 2) == (
        "Счета 2025: no such file, and no plan of this name (did you mean 'Счета 2026'?)\n"
    )
    assert "no plan of this name (check the path, or add --registry DIR)" in said("nothing", 2)
    assert said("nothing.yaml", 2) == "nothing.yaml: no such file (check the path)\n"


# --- words that are refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "reported"),
    [
        ("ml_tasks", "name: T\nentry_point: vlmhyperbench.tasks.vqaa",
         "x.yaml:2:1: unknown task of v0.2 'vlmhyperbench.tasks.vqaa' (did you mean 'vlm"),
        ("ml_tasks", "name: T\nenvironment: {image: x}",
         "x.yaml:2:15: unknown key 'image' (write `entry_point`"),
        ("run_tasks", "name: R\nmodel: {name: M, package_manager: conda}",
         "x.yaml:2:18: packages cannot be installed with 'conda' beside an image (write pip or uv"),
        ("run_tasks", "name: R\nmetrics: [{name: bleu, backend: sacrebleu}]",
         "x.yaml:2:24: there is no backend 'sacrebleu' (write a definition in metrics/"),
        ("run_tasks", "name: R\nmetrics:\n- {name: bleu, params: {a: 1}}",
         "x.yaml:3:16: a metric in a list has no 'params'"),
        ("run_tasks", "name: R\nmetrics: [{name: anls, version: '1.0.0'}]",
         "x.yaml:2:24: '1.0.0' is no version of a metric here (leave it out, or write a whole number: `vers"),
        ("run_tasks", "name: R\nprompt_config: {users: x}",
         "x.yaml:2:1: prompt_config: unknown key 'users' (there are: fixed_prompt,"),
        ("packages", "name: P\nsource: {type: pypi, name: p}\ninstall_args: {no_deps: true}",
         "x.yaml:3:16: hpcbench does not install packages with 'no_deps' (remove it"),
        ("ml_tasks", "name: T\nentry_point: vqa\ndataset_interface: {required_fields: question}",
         "x.yaml:3:21: required_fields: must be a list: [A, B], not 'question'"),
        ("ml_tasks", "name: T\nentry_point: vqa\ncustom_packages: ./mine",
         "x.yaml:3:1: custom_packages: must be a list: [A, B], not './mine'"),
        ("packages", "name: P\nsource: '???'", "x.yaml:2:1: '???' is no source of a package"),
        ("metrics", "name: M\nclass_path: vlmhyperbench.metrics.Oracle",
         "x.yaml:2:1: hpcbench has no metric plugin for v0.2's 'vlmhyperbench.metrics.Oracle'"),
        ("models", "name: M\nframework: vllm\nparams: {temperature: 1}",
         "x.yaml:3:1: a model has no 'params'"),
    ],
)  # fmt: skip
def test_another_word_is_refused_at_its_line(kind: str, text: str, reported: str) -> None:
    (problem,) = refused(kind, text + "\n")
    assert problem.startswith(reported)


def test_what_a_translated_definition_lacks_is_reported_at_its_own_lines(tmp_path: Path) -> None:
    registry = v02_registry(tmp_path)
    text = (DOCUMENTS / "ml_tasks/vqa.yaml").read_text()
    plan = registry / "experiments/benchmark_2025.yaml"
    write(registry, "ml_tasks/vqa.yaml", text.replace('"torch"', '"no-such-dist>=2", "torch"'))
    assert "no-such-dist>=2" in load_plan(plan, [registry]).host_packages
    write(registry, "ml_tasks/vqa.yaml", text.replace('"torch"', '"no such dist", "torch"'))
    with pytest.raises(UserError) as caught:
        load_plan(plan, [registry])
    (reported,) = map(str, caught.value.problems)
    assert reported.startswith(f"{registry}/ml_tasks/vqa.yaml:3:31: unknown package 'no such dist'")


RUN_TASK = (
    'name: llava_docvqa_ru\nml_task: VQA\nmodel: {name: "LLaVA 1.5", framework: vllm}\n'
    "dataset: docvqa_ru\nmetrics: [anls, cer]\n"
)


@pytest.mark.parametrize(
    ("name", "text", "reported"),
    [
        ("experiments/benchmark_2025.yaml", "name: B\ntasks: qwen_docvqa_ru\n",
         "2:8: tasks: must be a list: [A, B], not 'qwen_docvqa_ru'"),
        ("experiments/benchmark_2025.yaml", 'name: "B\ntasks: ["qwen_docvqa_ru"]\n',
         "2:10: expected <block end>, but found '<scalar>' (check the quotes of the line before)"),
        ("experiments/benchmark_2025.yaml", "name: B\n  tasks: []\n",
         "2:8: mapping values are not allowed here (check the indentation; quote a text with a colon)"),
        ("experiments/benchmark_2025.yaml", 'name: "B"\n  tasks:\n - qwen_docvqa_ru\n',
         "2:3: expected <block end>, but found '<block mapping start>' (let keys of one map begin in one"
         " column)"),
        ("experiments/benchmark_2025.yaml", "name: B\ntasks: [qwen_docvqa_ru]\n---\nname: C\n",
         "3:1: a second definition begins (keep one definition in a file: remove `---`)"),
        ("experiments/benchmark_2025.yaml", "name: B\ntasks:\n\u00a0\u00a0- qwen_docvqa_ru\n",
         "4:1: could not find expected ':' (write `key: value`, with plain spaces before it)"),
        ("experiments/benchmark_2025.yaml", "nаme: B\ntasks: [qwen_docvqa_ru]\n",
         "1:1: unknown key 'nаme' (did you mean 'name'?)"),
        ("ml_tasks/vqa.yaml", "name: VQA\nentry_point: 5\n",
         "2:14: entry_point: YAML reads 5 as a number (put it in quotes)"),
        ("run_tasks/other.yaml", RUN_TASK.replace("vllm}", "vllm, engine_params: {max_model_len: 4k}}"),
         "3:76: model.engine_params.max_model_len: must be a whole number, not '4k'"),
        ("run_tasks/other.yaml", RUN_TASK.replace("vllm}", "vllm, engine_params: [max_model_len]}"),
         "3:60: model.engine_params: must be a map: {KEY: VALUE}, not ['max_model_len']"),
        ("ml_tasks/vqa.yaml", "name: VQA\nsupported_metrics: [anls, cer]\n",
         "1:1: key 'entry_point' is missing (add `entry_point: …`)"),
        ("ml_tasks/vqa.yaml", "name: VQA\nentry_point: tasks.vqa\nenvironment: python\n",
         "3:1: environment: must be a map: {entry_point, default_packages}, not 'python'"),
        ("run_tasks/other.yaml", f"{RUN_TASK}custom_packages: [{{name: x, source: {{svn: {{url: a}}}}}}]\n",
         "6:37: custom_packages.0.source: 'type' must be 'local', 'git', 'pypi', 'requirement', not "
         "{'url': 'a', 'type': 'svn'}"),
        ("ml_tasks/vqa.yaml", "name: VQA\nentry_point: tasks.vqa\nsupported_metrics: [anlss, cer]\n",
         "3:21: unknown metric 'anlss' (did you mean 'anls'?)"),
        ("ml_tasks/vqa.yaml", "name: VQA\nentry_point: tasks.vqa\nsupported_frameworks: [vlm]\n",
         "3:24: unknown engine plugin 'vlm' (did you mean 'vllm'?)"),
        ("ml_tasks/vqa.yaml", "name: VQA\nentry_point: 'python -m vqa'\n",
         "2:14: unknown task plugin 'python -m vqa' (there are: classification, judge, kie, ocr, vqa)"),
        ("ml_tasks/vqa.yaml", "name: VQA\nentry_point: tasks.vqa\nrequired_packages: [./mine]\n",
         "3:21: required_packages.0: must be a package's name or a requirement such as `torch>=2.4`; write a "
         "folder as {name: NAME, source: {type: local, path: FOLDER}} and an address as NAME @ URL, not "
         "'./mine'"),
        ("run_tasks/other.yaml", RUN_TASK.replace("vllm}", "vllm, params: {temprature: 1}}"),
         "3:66: unknown generation setting 'temprature' of engine 'vllm' (did you mean 'temperature'?)"),
        ("run_tasks/other.yaml", RUN_TASK.replace("vllm}", "vllm, docker_image: 'A/b:1'}"),
         "3:59: 'docker://A/b:1' is not an image reference (write docker://HOST/REPOSITORY:TAG, in lower "
         "case)"),
        ("run_tasks/other.yaml", RUN_TASK.replace("[anls, cer]", "[anls, wer]"),
         "5:17: ML task 'VQA' lists anls, cer and no metric 'wer' (name one of these, or add it to the list "
         "in {registry}/ml_tasks/vqa.yaml)"),
        ("experiments/benchmark_2025.yaml", "name: B\ntasks: [5]\n",
         "2:9: tasks.0: YAML reads 5 as a number (put it in quotes)"),
        ("run_tasks/other.yaml", f"{RUN_TASK}prompt_config: {{user_prompt: '{{{{ question'}}\n",
         "6:16: the prompt is not a valid Jinja2 template: unexpected end of template, expected 'end of "
         "print statement'."),
        ("run_tasks/other.yaml", f"{RUN_TASK}prompt_config: no/such.json\n",
         "6:16: {registry}/run_tasks/no/such.json: no such file (there is no folder "
         "{registry}/run_tasks/no)"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_at_its_place_in_the_words_of_the_definition(
    tmp_path: Path, name: str, text: str, reported: str
) -> None:
    registry = v02_registry(tmp_path)
    write(registry, name, text)
    with pytest.raises(UserError) as caught:
        load_plan(registry / "experiments/benchmark_2025.yaml")
    (problem,) = map(str, caught.value.problems)
    assert problem == f"{registry}/{name}:{reported.replace('{registry}', str(registry))}"


def test_a_file_that_is_no_yaml_is_named_beside_the_name_that_it_may_have(tmp_path: Path) -> None:
    registry = v02_registry(tmp_path)
    write(registry, "run_tasks/other.yaml", "name: 'llava_docvqa_ru'\n\tml_task: VQA\n")
    with pytest.raises(UserError) as caught:
        load_plan(registry / "experiments/benchmark_2025.yaml")
    missing, unread = map(str, caught.value.problems)
    assert "unknown run task 'llava_docvqa_ru'" in missing
    assert unread.startswith(f"{registry}/run_tasks/other.yaml:2:1: a tab cannot indent YAML")


def test_a_file_with_another_ending_is_named_beside_the_name_that_it_may_have(
    tmp_path: Path,
) -> None:
    registry = v02_registry(tmp_path)
    (registry / "run_tasks/other.yaml").rename(registry / "run_tasks/other.yml")
    with pytest.raises(UserError) as caught:
        load_plan(registry / "experiments/benchmark_2025.yaml")
    missing, unread = map(str, caught.value.problems)
    assert "unknown run task 'llava_docvqa_ru'" in missing
    assert unread == (
        f"{registry}/run_tasks/other.yml:1:1: a definition's file that does not end in .yaml is not read "
        "(rename it to other.yaml)"
    )
    with pytest.raises(UserError) as caught:  # of all definitions, whether one is missed or not
        check_registries([registry])
    assert unread in map(str, caught.value.problems)
    with pytest.raises(UserError) as caught:
        rewritten(registry)
    assert [str(one) for one in caught.value.problems] == [unread]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ml_tasks/vqa.yaml", "name: VQA\ndescription: ~\nentry_point: vqa\nrequired_packages:\nmetadata:\n"),
        ("run_tasks/other.yaml", RUN_TASK.replace("[anls, cer]", "") + "reports:\ncustom_packages:\n"),
        ("run_tasks/other.yaml", RUN_TASK.replace("vllm}", "vllm, engine_params: , env: ~}")),
        ("run_tasks/other.yaml", RUN_TASK.replace("[anls, cer]", "[anls, ANLS, cer]")),
        ("experiments/benchmark_2025.yaml", "parallelism:\ntasks: [llava_docvqa_ru]\nname: 2025-11-29\n"),
        ("experiments/benchmark_2025.yaml", "%YAML 1.2\n---\nname: B \t#\ntasks: [QWEN_docvqa_RU]\n...\n"),
        ("experiments/benchmark_2025.yaml", '\ufeff{"name": "文档 🚀",\r\n "tasks": ["other"]}\r\n'),
        ("experiments/benchmark_2025.yaml",
         "tasks:\n- &a {name: x, ml_task: vqa, model: Qwen2-VL, dataset: docvqa_ru}\n- {<<: *a, name: y}\n"
         "name: B\n"),
    ],
)  # fmt: skip
def test_a_key_without_a_value_and_any_order_or_notation_is_read(
    tmp_path: Path, name: str, text: str
) -> None:
    registry = v02_registry(tmp_path)
    (registry / name).write_bytes(text.encode())
    found = load_plan(registry / "experiments/benchmark_2025.yaml", [registry])
    assert len(found.run_tasks) in (1, 2)
    for one in found.run_tasks:
        names = [metric.name for metric in one.metrics]
        assert len(names) == len(set(names)) > 0


def test_a_key_of_a_map_without_a_value_is_refused(tmp_path: Path) -> None:
    registry = v02_registry(tmp_path)
    write(registry, "run_tasks/other.yaml", RUN_TASK.replace("vllm}", "vllm, env: {HOME: }}"))
    with pytest.raises(UserError) as caught:
        load_plan(registry / "experiments/benchmark_2025.yaml")
    (problem,) = map(str, caught.value.problems)
    assert problem.startswith(f"{registry}/run_tasks/other.yaml:3:")
    assert "model.env.HOME: must be text, not null" in problem


def test_what_a_definition_narrows_is_checked(tmp_path: Path) -> None:
    registry = v02_registry(tmp_path)
    write(registry, "ml_tasks/vqa.yaml",
          "name: VQA\nentry_point: vlmhyperbench.tasks.vqa\nsupported_metrics: [anls]\n"
          "supported_frameworks: [sglang]\nsupported_reports: [html]\n"
          "dataset_interface: {type: coco}\n")  # fmt: skip
    write(registry, "run_tasks/qwen_vqa.yaml",
          (DOCUMENTS / "run_tasks/qwen_vqa.yaml").read_text() + "reports: [HTML, pdf]\n")  # fmt: skip
    write(registry, "run_tasks/other.yaml", "name: llava_docvqa_ru\nml_task: VQA\nmodel: Qwen2-VL\n"
          "dataset: docvqa_ru\nmetrics: [cer]\n")  # fmt: skip
    with pytest.raises(UserError) as caught:
        load_plan(registry / "experiments/benchmark_2025.yaml", [registry])
    reported = [str(one).removeprefix(f"{registry}/run_tasks/") for one in caught.value.problems]
    add = f"(name one of these, or add it to the list in {registry}/ml_tasks/vqa.yaml)"
    assert reported == [
        f"qwen_vqa.yaml:3:8: ML task 'VQA' lists sglang and no engine 'vllm' {add}",
        "qwen_vqa.yaml:4:10: ML task 'VQA' is for datasets of iterator 'coco', not 'v01'",
        f"qwen_vqa.yaml:6:17: ML task 'VQA' lists html and no report 'pdf' {add}",
        f"other.yaml:3:8: ML task 'VQA' lists sglang and no engine 'vllm' {add}",
        "other.yaml:4:10: ML task 'VQA' is for datasets of iterator 'coco', not 'v01'",
        f"other.yaml:5:11: ML task 'VQA' lists anls and no metric 'cer' {add}",
    ]


# --- prompts --------------------------------------------------------------------------------------------


def test_a_fixed_half_leaves_the_other_half_to_the_types() -> None:
    found = prompt_of({"prompt_config": {
        "system_prompt": "s", "user_prompt": "u", "fixed_system_prompt": "S",
        "type_mapping": {"invoice": {"user_prompt": "i"}, "form": {"system_prompt": "f"}},
    }})  # fmt: skip
    assert found == {
        "user": "u", "system": "S",
        "prompts": [
            {"id": "invoice", "when": {"doc_type": "invoice"}, "user": "i", "system": "S"},
            {"id": "form", "when": {"doc_type": "form"}, "user": "u", "system": "S"},
        ],
    }  # fmt: skip
    assert prompt_of({"user_prompt": "u", "fixed_prompt": "F"}) == {"user": "F"}


@pytest.mark.parametrize(
    "config",
    [{}, {"user_prompt": 7}, {"type_mapping": {"a": "b"}}, {"type_mapping": {"a": {}}}, {"x": 1}],
)
def test_a_prompt_config_of_another_form_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="prompt_config"):
        prompt_of(config)


def test_a_json_file_of_v02_is_a_prompt(tmp_path: Path) -> None:
    registry = v02_registry(tmp_path)
    write(registry, "prompts.json", '{"prompt_config": {"system_prompt": "Ты эксперт.", "user_prompt": '
          '"{{ question }}", "type_mapping": {}}}')  # fmt: skip
    text = (DOCUMENTS / "run_tasks/qwen_vqa.yaml").read_text()
    write(registry, "run_tasks/qwen_vqa.yaml", f"{text}prompt_config: ../prompts.json\n")
    plan = registry / "experiments/benchmark_2025.yaml"
    one = load_plan(plan, [registry]).run_tasks[0]
    assert (one.task.prompt, one.prompt.name) == ("prompts of qwen_docvqa_ru",) * 2
    assert (one.prompt.user, one.prompt.system) == ("{{ question }}", "Ты эксперт.")
    write(registry, "prompts.json", '{"prompt_config": []}')
    with pytest.raises(UserError, match=r"prompts.json:1:1: prompt_config must be a map"):
        load_plan(plan, [registry])


def test_types_are_those_of_doc_class_where_the_annotation_has_no_doc_type(tmp_path: Path) -> None:
    registry = v02_registry(tmp_path)
    text = (DOCUMENTS / "run_tasks/qwen_vqa.yaml").read_text()
    config = (
        "prompt_config:\n  user_prompt: u\n  type_mapping:\n"
        "    invoice: {user_prompt: 'of {{ doc_type }}: {{ question }}'}\n"
    )
    write(registry, "run_tasks/qwen_vqa.yaml", text + config)
    one = load_plan(registry / "experiments/benchmark_2025.yaml").run_tasks[0]
    (sample, *_) = open_dataset(one.dataset).iter(0, 1)
    assert TaskPrompt(one).build(sample)[-1].text == f"of invoice: {QUESTIONS[0]}"


def test_todays_definitions_are_not_touched() -> None:
    for kind, text in (("run_tasks", "name: R\nml_task: vqa\nmodel: M\ndataset: D\n"),
                       ("packages", "name: P\nsource: {type: local, path: x}\n")):  # fmt: skip
        source = parse(Path("x.yaml"), text)
        assert upgrade(kind, source) is source


def test_the_fixture_is_a_run_task_of_v02() -> None:
    found = translated("run_tasks", (DOCUMENTS / "run_tasks/qwen_vqa.yaml").read_text())
    assert RunTask.model_validate(found.data).metrics == ("anls",)


def test_an_own_module_needs_no_prompt_and_what_it_cannot_do_is_refused_at_its_line(
    tmp_path: Path,
) -> None:
    registry = v02_registry(tmp_path)
    write(registry, "ml_tasks/own.yaml", "name: Own\nentry_point: my_project.tasks.own\n"
          "required_packages: [my-project, pillow]\n")  # fmt: skip
    plan = write(registry, "experiments/own.yaml",
                 "name: own\ntasks:\n  - {name: a, ml_task: Own, model: {name: Qwen2-VL, framework: vllm},"
                 " dataset: docvqa_ru, metrics: [anls]}\n")  # fmt: skip
    resolved = load_plan(plan, [registry])
    (own,) = resolved.run_tasks
    assert (own.ml_task.module, own.prompt.name, own.prompt.user) == (
        "my_project.tasks.own", "none", "",
    )  # fmt: skip
    assert own.engine_packages == ("my-project", "pillow")
    assert (resolved.host_packages, dict(own.metric_packages)) == ((), {})
    shot = "{name: p, user: u, examples: [{fields: {}, answer: x}]}"
    text = plan.read_text().replace(
        "metrics: [anls]",
        f"metrics: [anls], concurrency: 9, rate: 2, protocol: grpc, prompt: {shot}",
    )
    plan.write_text(text + "max_requests: 5\n")
    with pytest.raises(UserError) as caught:
        load_plan(plan, [registry])
    reported = [str(problem).partition("own.yaml:")[2] for problem in caught.value.problems]
    assert [one.partition(" (")[0] for one in reported] == [
        "3:124: module 'my_project.tasks.own' asks the model itself, so 'rate' has no effect",
        "3:133: module 'my_project.tasks.own' asks the model itself, so 'protocol' has no effect",
        "3:157: prompt 'p' has examples, which module 'my_project.tasks.own' does not get",
        "4:15: 'max_requests' does not limit module 'my_project.tasks.own', which asks the model itself",
    ]
