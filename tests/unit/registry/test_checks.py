"""Cross-checks: every mistake is found before anything is submitted, at its line, all at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from hpcbench.errors import UserError
from hpcbench.planning import plan_work
from hpcbench.plugins import PromptSpec
from hpcbench.prompts import TemplatePrompt
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.resolve import load_plan, look
from hpcbench.registry.source import Loc, parse, validate
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.shared_types import LastJob
from hpcbench.submit.image_check import stated_share
from hpcbench.submit.sbatch import sbatch_text
from tests.unit.registries import DEFINITIONS, PLAN, Files
from tests.unit.small import measured

HASH = "0" * 40

SITE = """\
name: default
executor: slurm
slurm:
  partition: gpu
  max_array_size: 1001
  partitions:
    gpu: {time_limit: "1-00:00:00", cpus: 64, memory_gb: 500, gpus: {a100: 4}, gpu_memory_gb: {a100: 40}}
    cpu: {time_limit: "02:00:00", cpus: 128, memory_gb: 250, gpus: {}}
    anything: {}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.delenv("RUN_MODE", raising=False)
    monkeypatch.chdir(tmp_path)
    return Files(tmp_path)


def with_model(files: Files, text: str) -> None:
    files.write("models/org/tiny.yaml", f"name: org/tiny\nsource: ../../weights\n{text}")


# --- what documents say of each other -------------------------------------------------------------------


def test_a_prompt_asks_only_for_fields_the_dataset_has(files: Files) -> None:
    files.write("prompts/ask.yaml", "name: ask\nuser: '{{ doc_type }}: {{ qestion }} {{ page }}'\n")
    assert files.refusal() == [
        "p.yaml:7:13: prompt 'ask' uses {{ page }}: unknown field 'page' of dataset 'pages' "
        "(there are: doc_type, question) (list it under the dataset's `fields` or `group_by`)",
        "p.yaml:7:13: prompt 'ask' uses {{ qestion }}: unknown field 'qestion' of dataset 'pages' "
        "(did you mean 'question'?)",
    ]


@pytest.mark.parametrize("kind", ["yaml", "csv"])
def test_conditions_of_a_prompt_name_what_the_dataset_has(files: Files, kind: str) -> None:
    if kind == "yaml":
        entries = "prompts:\n  - {id: a, user: A, when: {doc_tpye: x, dataset: pages, task: vqa}}\n"
    else:
        entries = "collection: c.csv\n"
        files.write("prompts/c.csv", "id;user;doc_tpye;dataset\na;A;x;pages\n")
    files.write("prompts/ask.yaml", f"name: ask\nuser: '{{{{ question }}}}'\n{entries}")
    assert files.refusal() == [
        "p.yaml:7:13: prompt 'ask' has `when: {doc_tpye: …}` in 'a': unknown field 'doc_tpye' of "
        "dataset 'pages' (did you mean 'doc_type'?)"
    ]


TWO_DATASETS = (
    PLAN
    + """\
  - {name: second, ml_task: vqa, model: org/tiny, dataset: forms, prompt: ask}
"""
)


@pytest.mark.parametrize("when", ["{dataset: forms, field: total}", "{doc_type: form, field: x}"])
def test_a_collection_may_be_for_several_datasets(files: Files, when: str) -> None:
    files.write(
        "datasets/forms.yaml",
        "name: forms\nsource: ../forms\nannotations: a.jsonl\nfields: [field, question]\n"
        "group_by: [doc_type]\n",
    )
    files.write(
        "prompts/ask.yaml",
        "name: ask\nuser: Read.\nprompts:\n"
        "  - {id: a, user: '{{ question }}', when: {dataset: pages}}\n"
        f"  - {{id: b, user: 'The {{{{ field }}}}?', when: {when}}}\n",
    )
    assert len(files.resolved(TWO_DATASETS).run_tasks) == 2
    files.write(
        "prompts/ask.yaml", "name: ask\nuser: A\nprompts: [{id: b, user: B, when: {feld: x}}]\n"
    )
    (reported,) = files.refusal(TWO_DATASETS)
    assert (
        "prompt 'ask' has `when: {feld: …}` in 'b': unknown field 'feld' of dataset 'pages'"
        in reported
    )


SHARED = """\
name: ask
user: '{{ question }}'
prompts:
  - {id: a, user: 'This form: {{ question }}', when: {doc_type: form}}
  - {id: b, user: 'The {{ field }}?', when: {field: total}}
"""


def test_a_collection_for_several_datasets_may_be_used_with_one_of_them(files: Files) -> None:
    files.write(
        "datasets/forms.yaml",
        "name: forms\nsource: ../forms\nannotations: a.jsonl\nfields: [field, question]\n",
    )
    files.write("datasets/broken.yaml", "name: [broken\n")
    files.write("prompts/ask.yaml", SHARED)
    assert files.resolved()
    assert files.resolved("only: [first]\n" + TWO_DATASETS)
    task = files.write(
        "run_tasks/one.yaml",
        "name: one\nml_task: vqa\nmodel: org/tiny\ndataset: forms\nprompt: ask\n",
    )
    assert not look("run_tasks", task, Catalog([files.registry])).problems
    files.write("prompts/ask.yaml", SHARED.replace("field: total", "feld: total"))
    (reported,) = files.refusal()
    assert (
        "prompt 'ask' has `when: {feld: …}` in 'b': unknown field 'feld' of dataset 'pages'"
        in reported
    )


@pytest.mark.parametrize(
    ("when", "reported"),
    [
        (
            "dataset: HME100k",
            "unknown dataset 'HME100k' (there are: FIRST, …) (for a column, map it as `source_dataset`, "
            "and use that name in `when`)",
        ),
        ("dataset: pagse", "unknown dataset 'pagse' (did you mean 'pages'?)"),
        ("task: vqaa", "unknown ML task 'vqaa' (did you mean 'vqa'?)"),
    ],
)
def test_a_prompt_for_a_definition_that_is_not_there_is_reported(
    files: Files, when: str, reported: str
) -> None:
    prompt = "name: ask\nuser: A\nprompts:\n  - {id: b, user: B, when: {%s}}\n"
    files.write("prompts/ask.yaml", prompt % when)
    files.write("datasets/forms.yaml", DEFINITIONS["datasets/pages.yaml"].replace("pages", "forms"))
    first = ", ".join(Catalog([files.registry]).names("datasets")[:8])
    reported = reported.replace("FIRST", first)
    assert files.refusal(TWO_DATASETS) == [
        f"p.yaml:7:13: prompt 'ask' has `when: {{{when}}}` in 'b': {reported}"
    ]
    files.write("prompts/ask.yaml", prompt % "dataset: ' forms ', task: kie")
    assert files.resolved()


class OfOneDataset(TemplatePrompt):
    """A strategy that breaks over all datasets but its own."""

    def __init__(self, spec: PromptSpec) -> None:
        if spec.dataset:
            raise KeyError(spec.dataset)
        super().__init__(spec)


def test_a_strategy_that_breaks_over_a_dataset_is_reported(files: Files) -> None:
    strategy = f"{__name__}:{OfOneDataset.__name__}"
    files.write("prompts/ask.yaml", f"name: ask\nuser: A\nstrategy: {strategy}\n")
    assert files.refusal() == [f"p.yaml:7:13: plugin '{strategy}' fails: KeyError: 'pages'"]


def test_a_prompt_cannot_mean_a_column_that_a_definitions_name_hides(files: Files) -> None:
    pages = DEFINITIONS["datasets/pages.yaml"].replace("[doc_type]", "[doc_type, dataset]")
    files.write("datasets/pages.yaml", pages)
    refused = [
        "p.yaml:7:13: prompt 'ask' uses 'dataset', which is the name of the dataset's definition, not the "
        "column of dataset 'pages' (map that column to another name)"
    ]
    files.write("prompts/ask.yaml", "name: ask\nuser: '{{ dataset }}'\n")
    assert files.refusal() == refused
    prompt = "name: ask\nuser: B\nprompts: [{id: a, user: A, when: {dataset: iiit5k}}]\n"
    files.write("prompts/ask.yaml", prompt)
    assert files.refusal() == refused
    files.write("prompts/ask.yaml", prompt.replace("iiit5k", "pages"))
    assert files.resolved()


def test_an_example_may_depend_on_the_ml_task(files: Files) -> None:
    prompt = (
        "name: ask\nuser: \"{{ question if task == 'vqa' else field }}\"\n"
        "examples: [{fields: {question: What?}, answer: That}]\n"
    )
    pages = DEFINITIONS["datasets/pages.yaml"].replace("[question]", "[question, field]")
    files.write("datasets/pages.yaml", pages)
    files.write("prompts/ask.yaml", prompt)
    assert files.resolved()
    files.write("prompts/ask.yaml", prompt.replace("vqa", "kie"))
    assert files.refusal() == [
        "p.yaml:7:13: prompt 'ask': example 1: 'field' is undefined (there are: dataset, question, task)"
    ]


def test_a_prompt_that_is_no_template_is_reported_in_its_own_file(files: Files) -> None:
    files.write("prompts/ask.yaml", "name: ask\nuser: '{{ question'\n")
    (reported,) = files.refusal()
    assert reported.startswith(
        "registry/prompts/ask.yaml:2:7: the prompt is not a valid Jinja2 template"
    )


def test_a_split_is_one_that_the_dataset_has(files: Files) -> None:
    assert files.refusal(PLAN + "    split: esay\n") == [
        "p.yaml:8:12: unknown split 'esay' of dataset 'pages' (did you mean 'easy'?)"
    ]


def test_a_metric_scores_what_the_ml_task_reads_answers_into(files: Files) -> None:
    files.write(
        "ml_tasks/odd.yaml", "name: odd\nplugin: vqa\noutput: text\nmetrics: [kie_f1_micro]\n"
    )
    assert files.refusal(PLAN.replace("vqa", "odd")) == [
        "p.yaml:3:5: metric 'kie_f1_micro' scores object, but ML task 'odd' reads answers into text "
        "(name a metric that scores text)"
    ]


def test_options_of_plugins_are_known_and_right(files: Files) -> None:
    files.write("metrics/anls.yaml", "name: anls\nplugin: anls\noptions: {cse: lower}\n")
    files.write(
        "datasets/pages.yaml", DEFINITIONS["datasets/pages.yaml"] + "options: {record: x}\n"
    )
    assert files.refusal() == [
        "registry/datasets/pages.yaml:7:11: unknown option 'record' (did you mean 'records'?)",
        "registry/metrics/anls.yaml:3:11: unknown option 'cse' (did you mean 'case'?)",
    ]


def test_a_metric_of_a_stated_version_is_of_that_version(files: Files) -> None:
    files.write("metrics/anls.yaml", "name: anls\nplugin: anls\nversion: v2\n")
    assert files.refusal() == [
        "registry/metrics/anls.yaml:3:10: metric 'anls' has version 1 here, not v2 "
        "(write `version: 1`, if its scores are what you want)"
    ]


def test_settings_and_options_are_known_to_the_engine(files: Files) -> None:
    with_model(files, "engine: huggingface\nengine_options: {atn_implementation: sdpa}\n")
    reported = files.refusal(PLAN + "    generation: {extra: {no_such: 5}}\n")
    assert reported[0].startswith(
        "p.yaml:8:35: unknown generation setting 'no_such' of engine 'hugg"
    )
    assert reported[1:] == [
        "registry/models/org/tiny.yaml:4:18: unknown engine option 'atn_implementation' "
        "(did you mean 'attn_implementation'?)",
    ]


def test_a_setting_that_the_engine_would_refuse_in_every_request_is_reported(files: Files) -> None:
    plan = PLAN + "    generation: {extra: {mm_processor_kwargs: {max_pixels: 9}}}\n"
    for options in ("{}", "{trust_request_mm_kwargs: false}"):
        with_model(files, f"engine: vllm\nengine_options: {options}\n")
        assert files.refusal(plan) == [
            "p.yaml:8:47: engine 'vllm' refuses every request with 'mm_processor_kwargs', unless it starts "
            "with trust_request_mm_kwargs (add `trust_request_mm_kwargs: true` to the engine_options of "
            "model 'org/tiny')"
        ]
    for name in ("trust_request_mm_kwargs", "trust-request-mm-kwargs"):
        with_model(files, f"engine: vllm\nengine_options: {{{name}: true}}\n")
        extra = files.resolved(plan).run_tasks[0].task.generation.extra
        assert extra == {"mm_processor_kwargs": {"max_pixels": 9}}


def test_an_option_that_hpcbench_sets_itself_is_refused_with_the_field_to_use(files: Files) -> None:
    with_model(files, "engine: vllm\nengine_options: {max-model-len: 4096}\n")
    (reported,) = files.refusal()
    assert "'max_model_len' is set by hpcbench (set the model's 'context_length')" in reported


def test_an_image_holds_the_engine(files: Files) -> None:
    with_model(files, "engine: vllm\nimage: sg\n")
    files.write(
        "images/sg.yaml",
        f"name: sg\nreference: docker://x/sg:1\ndigest: sha256:{'a' * 64}\nengines: [sglang]\n",
    )
    assert files.refusal() == [
        "registry/models/org/tiny.yaml:4:8: image 'sg' contains sglang, not vllm"
    ]
    files.write(
        "images/sg.yaml", f"name: sg\nreference: docker://x/sg:1\ndigest: sha256:{'a' * 64}\n"
    )
    found = files.resolved().run_tasks[0].model
    assert found.image == f"docker://x/sg:1@sha256:{'a' * 64}"


def test_a_chat_template_is_there_and_is_one_and_its_text_is_kept(files: Files) -> None:
    with_model(files, "engine: vllm\nchat_template: chat.jinja\n")
    (reported,) = files.refusal()
    assert "chat.jinja: no such file" in reported
    files.write("models/org/chat.jinja", "{% for m in messages %}")
    (reported,) = files.refusal()
    assert "not a valid Jinja2 template" in reported
    files.write("models/org/chat.jinja", "{{ messages }}")
    assert files.resolved().run_tasks[0].model.chat_template == "{{ messages }}"


def test_an_output_schema_is_a_json_schema_of_an_object(files: Files) -> None:
    text = "name: form\nplugin: kie\nmetrics: [kie_f1_micro]\noutput: {}\noutput_schema: {{type: {}}}\n"
    files.write("ml_tasks/form.yaml", text.format("object", "objct"))
    (reported,) = files.refusal(PLAN.replace("vqa", "form"))
    assert reported.startswith("registry/ml_tasks/form.yaml:5:16: not a valid JSON Schema: 'objct'")
    files.write("ml_tasks/form.yaml", text.format("label", "string"))
    reported = files.refusal(PLAN.replace("vqa", "form"))
    assert any(
        "form.yaml:5:16: output_schema of labels needs an `enum`" in line for line in reported
    )
    files.write("ml_tasks/form.yaml", text.format("text", "object"))
    reported = files.refusal(PLAN.replace("vqa", "form"))
    assert (
        reported[-1]
        == "registry/ml_tasks/form.yaml:5:16: output_schema does not fit `output: text` "
        "(write `output: object`)"
    )


MODEL_TASK = (
    "name: form\nplugin: kie\nmetrics: [truncated_share]\noutput: object\noutput_model: {}\n"
)


@pytest.mark.parametrize(
    ("model", "reported"),
    [
        ("no_such_module.Form", "output_model no_such_module.Form cannot be imported"),
        ("json.JSONDecoder", "output_model json.JSONDecoder is not a pydantic model"),
        ("Form", "output_model Form is not a pydantic model"),
    ],
)
def test_an_output_model_is_a_pydantic_model(files: Files, model: str, reported: str) -> None:
    files.write("ml_tasks/form.yaml", MODEL_TASK.format(model))
    (line,) = files.refusal(PLAN.replace("vqa", "form"))
    assert line.startswith(f"registry/ml_tasks/form.yaml:5:15: {reported}")


def test_a_metric_of_readings_fits_every_ml_task(files: Files) -> None:
    files.write(
        "ml_tasks/form.yaml", "name: form\nplugin: vqa\nmetrics: [truncated_share, valid_json]\n"
    )
    files.resolved(PLAN.replace("vqa", "form"))


# --- the site -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "resources", "reported"),
    [
        ("gpus: 1", 'time_limit: "2-00:00:00"', "8:29: {of} allows at most 1-00:00:00, not "
         "2-00:00:00 {less}"),
        ("gpus: 1", "cpus: 65", "8:23: {of} has at most cpus: 64, not 65 {less}"),
        ("gpus: 1", "memory_gb: 600", "8:28: {of} has at most memory_gb: 500, not 600 {less}"),
        ("gpus: 1", "partition: cpu", "5:12: partition 'cpu' has no GPU, but model 'org/tiny' needs one "
         "{less}"),
        ("gpus: 0", "partition: cpus", "8:28: unknown partition 'cpus' (did you mean 'cpu'?) "
         "(`hpcbench init --force` asks Slurm again)"),
        ("gpus: 1", "gpu_type: a10", "8:27: unknown GPU type 'a10' of partition 'gpu' (did you mean "
         "'a100'?)"),
        ("gpus: 8", "cpus: 1", "5:12: {of} has 4 GPUs on a node, but model 'org/tiny' needs 8 on one "
         "node {less}"),
        ("gpu_memory_gb: 80", "cpus: 1", "5:12: {of} has GPUs of 40 GiB, but model 'org/tiny' needs "
         "80 GB on each (use more `gpus`, a smaller or quantised model, or another partition)"),
    ],
)  # fmt: skip
def test_resources_fit_the_site(files: Files, model: str, resources: str, reported: str) -> None:
    files.write("sites/default.yaml", SITE)
    with_model(files, f"engine: vllm\n{model}\n")
    reported = "p.yaml:" + reported.format(
        of="partition 'gpu'", less="(request less, or another `partition`)"
    )
    assert files.refusal(PLAN + f"    resources: {{{resources}}}\n") == [reported]


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ('    resources: {time_limit: "00:02:59"}\n', "8:29: {drains}: 179 s {why}"),
        ("max_job_minutes: 5\n", None),
    ],
)
def test_a_worker_has_time_to_work_before_slurm_warns_it_of_its_limit(
    files: Files, line: str, reported: str | None
) -> None:
    files.write("sites/default.yaml", SITE)
    drains = "workers drain 90 s before their time limit, and Slurm may warn them 30 s earlier"
    why = (
        "leave no time to work (at least 3 minutes, or a smaller `slurm.drain_seconds` in the site "
        "profile)"
    )
    if reported is not None:
        assert files.refusal(PLAN + line) == ["p.yaml:" + reported.format(drains=drains, why=why)]
    files.resolved(PLAN + line.replace("00:02:59", "00:03:00"))
    files.resolved(PLAN + line + "executor: local\n")
    files.write("sites/default.yaml", SITE + "  drain_seconds: 270\n")
    assert "270 s before" in files.refusal(PLAN + line)[0]


def test_a_job_that_gets_a_whole_node_fills_it_with_engines(files: Files) -> None:
    whole = SITE.replace("gpus: {a100: 4}", "whole_nodes: true, gpus: {a100: 4}")
    files.write("sites/default.yaml", whole)
    room = "    resources: {{cpus: {cpus}, memory_gb: {memory}}}\n"
    for model, cpus, memory, engines in (
        ("gpus: 1", 8, 32, 4),
        ("gpus: 2", 8, 32, 2),
        ("gpus: 1", 32, 32, 2),
        ("gpus: 1", 8, 200, 2),
        ("gpus: 1\nreplicas_per_node: 1", 8, 32, 1),
        ("gpus: 1\nnodes: 2", 8, 32, 1),
    ):
        with_model(files, f"engine: vllm\n{model}\n")
        found = files.resolved(PLAN + room.format(cpus=cpus, memory=memory))
        assert found.run_tasks[0].model.replicas_per_node == engines, (model, cpus, memory)
        (group,) = plan_work(found, measured(found)).groups
        text = sbatch_text(files.folder, found, group)
        gpus = int(model[6]) * engines
        assert f"--gres=gpu:a100:{gpus}" in text or f"--gres=gpu:{gpus}" in text
        assert f"--cpus-per-task={cpus * engines}" in text
        assert f"--mem={memory * engines * 1024}M" in text
    files.write("sites/default.yaml", SITE)
    with_model(files, "engine: vllm\ngpus: 1\n")
    assert files.resolved(PLAN).run_tasks[0].model.replicas_per_node == 1


@pytest.mark.parametrize(
    ("model", "resources", "reported"),
    [
        ("replicas_per_node: 5", "cpus: 1", "has 4 GPUs on a node, but 5 engines of 'org/tiny' need 5"),
        ("replicas_per_node: 4", "cpus: 20", "has at most cpus: 64, but 4 engines of 'org/tiny' on a node "
         "need 80"),
    ],
)  # fmt: skip
def test_engines_of_one_job_fit_its_node(
    files: Files, model: str, resources: str, reported: str
) -> None:
    files.write("sites/default.yaml", SITE)
    with_model(files, f"engine: vllm\n{model}\n")
    fewer = "(lower the model's `replicas_per_node`, or request less for each)"
    assert files.refusal(PLAN + f"    resources: {{{resources}, memory_gb: 8}}\n") == [
        f"p.yaml:5:12: partition 'gpu' {reported} {fewer}"
    ]


@pytest.mark.parametrize(
    ("model", "whole", "engines", "gpus"),
    [
        ("gpu_memory_share: 0.45", False, 2, 1),
        ("gpu_memory_share: 0.3\nreplicas_per_node: 4", False, 4, 2),
        ("gpu_memory_share: 0.25\nreplicas_per_node: 1", False, 1, 1),
        ("gpu_memory_share: 0.45", True, 8, 4),
    ],
)
def test_engines_that_share_a_gpu_ask_for_fewer_gpus_and_say_their_share(
    files: Files, model: str, whole: bool, engines: int, gpus: int
) -> None:
    site = SITE.replace("gpus: {a100: 4}", "whole_nodes: true, gpus: {a100: 4}") if whole else SITE
    files.write("sites/default.yaml", site)
    with_model(files, f"engine: vllm\n{model}\n")
    found = files.resolved(PLAN + "    resources: {cpus: 4, memory_gb: 16}\n")
    (group,) = plan_work(found, measured(found)).groups
    assert (group.replicas, group.job_gpus, group.worker_gpus) == (engines, gpus, gpus / engines)
    text = sbatch_text(files.folder, found, group)
    assert f"--gres=gpu:a100:{gpus}" in text or f"--gres=gpu:{gpus}" in text
    assert f"--cpus-per-task={4 * engines}" in text
    assert stated_share(found.run_tasks[0].model) == float(model[18:22])


@pytest.mark.parametrize(
    ("model", "reported"),
    [
        ("engine: vllm\ngpus: 2\ngpu_memory_share: 0.4", ":5:19: engines that share a GPU have one "
         "each, but the model has `gpus: 2` (set `gpus: 1`, or remove `gpu_memory_share`)"),
        ("engine: sglang\ngpu_memory_share: 0.4", ":4:19: engine 'sglang' has no option for a share of "
         "a GPU's whole memory (use `engine: vllm`)"),
        ("engine: vllm\ngpu_memory_share: 0.4\nengine_options: {gpu-memory-utilization: 0.5}",
         ":5:42: `gpu_memory_share` sets the engine option 'gpu-memory-utilization' (remove one of them)"),
        ("engine: vllm\ngpu_memory_share: 0.4\nlarger: [{gpus: 2}]", ":5:9: larger shapes with more GPUs "
         "are for engines that share none (remove `gpus` from the shapes, or `gpu_memory_share`)"),
        ("engine: vllm\ngpu_memory_share: 0.7", ":4:19: "),
    ],
)  # fmt: skip
def test_a_share_of_a_gpu_is_for_engines_that_can_keep_to_it(
    files: Files, model: str, reported: str
) -> None:
    files.write("sites/default.yaml", SITE)
    with_model(files, f"{model}\n")
    (found,) = files.refusal(PLAN)
    assert found.startswith(f"registry/models/org/tiny.yaml{reported}"), found


def test_the_gpu_type_of_a_run_task_is_what_slurm_is_asked_for(files: Files) -> None:
    files.write("sites/default.yaml", SITE + "  gpu_gres: gpu:v100\n")
    found = files.resolved(PLAN + "    resources: {gpu_type: a100}\n")
    (group,) = plan_work(found, measured(found)).groups
    assert "--gres=gpu:a100:1" in sbatch_text(files.folder, found, group)


def test_the_site_counts_only_for_what_runs_on_it(files: Files) -> None:
    files.write("sites/default.yaml", SITE)
    with_model(files, "engine: vllm\ngpus: 8\n")
    files.resolved(PLAN + "executor: local\n")
    files.write("sites/default.yaml", SITE.replace("executor: slurm", "executor: local"))
    files.resolved()
    assert "has 4 GPUs on a node" in files.refusal(PLAN + "executor: slurm\n")[0]


def test_what_the_profile_does_not_know_is_not_checked(files: Files) -> None:
    files.write("sites/default.yaml", SITE)
    with_model(files, "engine: vllm\ngpus: 8\n")
    files.resolved(PLAN + "    resources: {cpus: 1000, partition: anything}\n")


def test_more_workers_than_an_array_may_have_are_no_mistake(files: Files) -> None:
    files.write("sites/default.yaml", SITE)  # its MaxArraySize is 1001: they become several arrays
    files.resolved(PLAN + "parallelism: 2000\n")


# --- prod and dev ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "reported"),
    [
        ("source: hf://org/tiny\nengine: vllm\n", "2:9: model 'org/tiny' is not locked"),
        (
            "source: x\nengine: vllm\nimage: docker://a/b:1\n",
            "4:8: image docker://a/b:1 is not locked",
        ),
    ],
)
def test_prod_refuses_what_can_move(files: Files, model: str, reported: str) -> None:
    files.write("models/org/tiny.yaml", f"name: org/tiny\n{model}")
    (problem,) = files.refusal()
    assert f"registry/models/org/tiny.yaml:{reported}" in problem
    assert "RUN_MODE=dev" in problem
    files.resolved(mode="dev")


def test_prod_refuses_an_image_definition_whose_tag_can_move(files: Files) -> None:
    files.write("models/org/tiny.yaml", "name: org/tiny\nsource: x\nengine: vllm\nimage: mine\n")
    files.write("images/mine.yaml", "name: mine\nreference: docker://a/b:1\n")
    (problem,) = files.refusal()
    assert "registry/models/org/tiny.yaml:4:8: image 'mine' is not locked" in problem
    assert "`hpcbench images lock mine`" in problem
    files.resolved(mode="dev")
    locked = f"name: mine\nreference: docker://a/b:1\ndigest: sha256:{'1' * 64}\n"
    files.write("images/mine.yaml", locked)
    assert files.resolved().run_tasks[0].model.image == f"docker://a/b:1@sha256:{'1' * 64}"


@pytest.mark.parametrize("lock", [f"revision: '{HASH}'", f"content_hash: sha256:{'1' * 64}"])
def test_prod_takes_what_is_locked(files: Files, lock: str) -> None:
    files.write(
        "models/org/tiny.yaml", f"name: org/tiny\nsource: hf://org/tiny\nengine: vllm\n{lock}\n"
    )
    assert files.resolved().run_tasks[0].model.source == "hf://org/tiny"


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ("{type: local, path: .}", "2:9: package 'mine' is a local folder, which can change"),
        ("{type: git, url: https://x/y.git}", "2:9: package 'mine' names no commit or tag"),
        ("{type: pypi, name: y}", "2:9: package 'mine' names no version"),
        ("{type: local, path: nowhere}", "2:29: no such folder: "),
        ("{type: local, path: ../../p.yaml}", "2:29: not a folder: "),
        (
            "{type: gti, url: x}",
            "2:9: source: 'type' must be 'local', 'git', 'pypi', 'requirement', not",
        ),
    ],
)
def test_prod_takes_packages_that_are_the_same_tomorrow(
    files: Files, source: str, reported: str
) -> None:
    files.write("packages/mine.yaml", f"name: mine\nsource: {source}\n")
    (problem,) = files.refusal(PLAN + "    packages: [mine]\n")
    assert problem.startswith(f"registry/packages/mine.yaml:{reported}")


def test_a_package_brings_the_plugins_it_says(files: Files) -> None:
    files.write(
        "packages/mine.yaml",
        "name: mine\nsource: {type: pypi, name: mine, version: '1'}\nprovides: {metrics: [closeness]}\n",
    )
    files.write("metrics/anls.yaml", "name: anls\nplugin: closeness\n")
    assert list(files.resolved().packages) == ["mine"]
    files.write("metrics/anls.yaml", "name: anls\nplugin: closenes\npackage: mine\n")
    assert files.refusal() == [
        "registry/metrics/anls.yaml:2:9: unknown metric plugin 'closenes' of package 'mine' "
        "(did you mean 'closeness'?) (if the package has it, add it to `provides` in "
        "registry/packages/mine.yaml)"
    ]


def test_a_package_of_an_engine_goes_beside_the_engine_only(files: Files) -> None:
    files.write(
        "packages/mine.yaml",
        "name: mine\nsource: {type: pypi, name: mine, version: '1'}\nprovides: {engines: [fast]}\n",
    )
    with_model(files, "engine: fast\n")
    found = files.resolved()
    assert found.run_tasks[0].engine_packages == ("mine",)
    assert found.host_packages == ()
    assert found.run_tasks[0].environment == " + mine"


def test_grpc_needs_protobuf_here_and_beside_the_engine(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = PLAN + "    protocol: grpc\n"
    found = files.resolved(plan, mode="dev").run_tasks[0]
    assert found.engine_packages == ()  # it runs in this Python
    with_model(files, "engine: vllm\nimage: docker://vllm/vllm-openai:v1\n")
    found = files.resolved(plan, mode="dev").run_tasks[0]
    assert [one.partition(">")[0] for one in found.engine_packages] == ["protobuf"]
    assert files.resolved(mode="dev").run_tasks[0].engine_packages == ()
    monkeypatch.setattr("hpcbench.registry.plugin_checks.is_met", lambda requirement: False)
    (reported,) = files.refusal(plan, mode="dev")
    assert reported.startswith("p.yaml:8:15: `protocol: grpc` needs protobuf>=")
    assert "install" in reported
    (reported,) = files.refusal(PLAN + "    protocol: soap\n", mode="dev")
    assert "protocol" in reported and "'http' or 'grpc'" in reported


def test_grpc_takes_the_route_through_the_wrapper_alone(files: Files) -> None:
    plan = PLAN + "    protocol: grpc\n"
    for allowed in ("", "    route: proxied\n"):
        assert files.resolved(plan + allowed, mode="dev").run_tasks[0].task.protocol == "grpc"
    assert files.refusal(plan + "    route: direct\n", mode="dev") == [
        "p.yaml:9:12: `protocol: grpc` goes through the wrapper, so `route: direct` is not possible "
        "(remove `route`, or write `route: proxied`)"
    ]
    files.resolved(PLAN + "    route: direct\n", mode="dev")


def test_a_class_by_its_dotted_path_is_a_plugin(files: Files) -> None:
    files.write("metrics/anls.yaml", "name: anls\nplugin: hpcbench.metrics.text.Anls\n")
    files.resolved()
    files.write("metrics/anls.yaml", "name: anls\nplugin: hpcbench.metrics.text.Anlss\n")
    (reported,) = files.refusal()
    assert "cannot be imported: AttributeError" in reported
    files.write("metrics/anls.yaml", "name: anls\nplugin: not_there_at_all.Metric\n")
    (reported,) = files.refusal()
    assert "needs module 'not_there_at_all', which is not installed" in reported


# --- secrets --------------------------------------------------------------------------------------------


def test_secrets_are_references_that_can_be_had(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with_model(files, "engine: vllm\nenv: {HF_TOKEN: '${env:HF_TOKEN}', SPEED: fast}\n")
    assert files.refusal() == [
        "registry/models/org/tiny.yaml:4:17: ${env:HF_TOKEN}: the variable is not set "
        "(export it before you submit)"
    ]
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    assert "hf_verysecret" not in files.resolved().model_dump_json()
    with_model(files, "engine: vllm\nenv: {HF_TOKEN: hf_verysecret}\n")
    (reported,) = files.refusal()
    assert "HF_TOKEN contains a secret in plain text" in reported
    assert "hf_verysecret" not in reported


@pytest.mark.parametrize(
    "option",
    [
        "download_token: verysecret",
        "s3-secret-access-key: verysecret",
        "ssl_keyfile_password: verysecret",
        "model_loader_extra_config: {inner: {api_key: verysecret}}",
    ],
)
def test_engine_options_hold_no_secrets(files: Files, option: str) -> None:
    with_model(files, f"engine: vllm\nengine_options: {{{option}}}\n")
    (reported,) = files.refusal()
    assert "contains a secret in plain text" in reported
    assert "env" in reported
    assert "verysecret" not in reported


AUTH = """
  auth:
    grant_type: client_credentials
    token_url: https://gateway.example/oauth/token
    client_id: bench
    client_secret: ${env:GATEWAY_SECRET}
"""
REMOTE = "engine: remote\ngpus: 0\nengine_options:\n  base_url: https://g.example/v1\n  model: m"


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("client_secret: ${env:GATEWAY_SECRET}", "client_secret: plain-secret",
         ":12:20: client_secret contains a secret in plain text (write ${env:NAME}"),
        ("grant_type: client_credentials", "grant_typ: password",
         ":9:5: unknown option 'grant_typ' (did you mean 'grant_type'?)"),
        ("https://gateway", "http://gateway", ":10:5: option 'auth.token_url': http:// would send secrets"),
        ("token_url: https://gateway.example/oauth/token", "token_url: nowhere",
         ":10:5: option 'auth.token_url': write https://HOST/PATH"),
        ("    client_id: bench\n", "", ":8:3: option 'auth': 'client_id' is missing"),
        ("env:GATEWAY_SECRET", "env:GATEWAY_NOT_SET",
         ":12:20: ${env:GATEWAY_NOT_SET}: the variable is not set"),
    ],
)  # fmt: skip
def test_mistakes_in_auth_are_reported_at_their_place(
    files: Files, monkeypatch: pytest.MonkeyPatch, old: str, new: str, reported: str
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "very-secret")
    with_model(files, REMOTE + AUTH)
    assert "very-secret" not in files.resolved().model_dump_json()
    assert old in AUTH
    with_model(files, REMOTE + AUTH.replace(old, new))
    (found,) = files.refusal()
    assert reported in found
    assert "plain-secret" not in found


@pytest.mark.parametrize("place", ["gateway:", "engine_options:\n  gateway:"])
def test_the_older_form_of_auth_is_read(
    files: Files, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "very-secret")
    with_model(files, REMOTE + AUTH)
    today = files.resolved().run_tasks[0].model.engine_options
    inner = AUTH.strip().replace("auth:\n", "").replace("\n    ", "\n        ").strip()
    older = f"gateway:\n    auth_type: jwt\n    jwt:\n        {inner}\n"
    options = "engine_options:\n  base_url: https://g.example/v1\n  model: m\n"
    if place != "gateway:":
        older = "  " + older.replace("\n", "\n  ").rstrip() + "\n"
        text = f"engine: remote\ngpus: 0\n{options}{older}"
    else:
        text = f"engine: remote\ngpus: 0\n{options}{older}"
    with_model(files, text)
    found = files.resolved().run_tasks[0].model.engine_options
    assert found == {**today, "auth": {"type": "jwt", **today["auth"]}}  # type: ignore[dict-item]
    with_model(files, text.replace("client_id: bench", "client_idd: bench"))
    assert any("unknown option 'client_idd'" in reported for reported in files.refusal())


@pytest.mark.parametrize(
    ("gateway", "today"),
    [
        ("{auth_type: bearer, bearer: {token: '${env:GATEWAY_SECRET}'}}",
         {"type": "bearer", "token": "${env:GATEWAY_SECRET}"}),
        ("{auth_type: bearer, token: '${env:GATEWAY_SECRET}'}",
         {"type": "bearer", "token": "${env:GATEWAY_SECRET}"}),
        ("{auth_type: none, none: {}, bearer: null}", {"type": "none"}),
        ("{auth_type: none, jwt: {token_url: 'https://t.example', client_id: b}}", {"type": "none"}),
    ],
)  # fmt: skip
def test_the_older_form_of_a_gateway_without_a_token_server_is_read(
    files: Files, monkeypatch: pytest.MonkeyPatch, gateway: str, today: dict[str, str]
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "very-secret")
    with_model(files, f"{REMOTE}\ngateway: {gateway}\n")
    assert files.resolved().run_tasks[0].model.engine_options["auth"] == today


def test_the_model_behind_an_older_gateway_has_the_name_of_its_definition(files: Files) -> None:
    gateway = "gateway: {base_url: 'https://g.example/v1', auth_type: none}\n"
    with_model(files, f"engine: remote\ngpus: 0\n{gateway}")
    model = files.resolved().run_tasks[0].model
    assert model.engine_options["model"] == model.name
    with_model(files, f"{REMOTE}\ngateway: {{auth_type: none}}\n")
    assert files.resolved().run_tasks[0].model.engine_options["model"] == "m"


def test_options_about_tokens_are_no_secrets(files: Files) -> None:
    options = {
        "tokenizer": "/models/other", "tokenizer_mode": "slow", "eos_token_id": "2", "max_tokens": "9",
        "hf_overrides": {"image_token": "<image>", "image_token_id": 7, "pad_token": "[PAD]"},
        "secret": "/run/secrets/key", "stop_token_ids": "1,2", "monkey": "banana", "key": "x",
    }  # fmt: skip
    with_model(files, f"engine: vllm\nengine_options: {json.dumps(options)}\n")
    files.resolved()


# --- run tasks from matrices and repeats ----------------------------------------------------------------

MATRIX = """\
name: grid
matrix:
  - ml_task: vqa
    models: [org/tiny, org/two]
    datasets: [pages, more]
    prompts: [ask]
    limit: 5
    exclude: [{model: org/two, dataset: more}]
    include: [{name: extra, ml_task: vqa, model: org/two, dataset: more, prompt: ask, limit: 1}]
"""


@pytest.fixture
def grid(files: Files) -> Files:
    files.write("models/org/two.yaml", "name: org/two\nsource: x\nengine: vllm\n")
    files.write(
        "datasets/more.yaml", DEFINITIONS["datasets/pages.yaml"].replace("pages\n", "more\n", 1)
    )
    return files


def test_a_matrix_is_written_out_without_what_it_excludes(grid: Files) -> None:
    found = grid.resolved(MATRIX).run_tasks
    assert [(one.name, one.task.limit) for one in found] == [
        ("org.tiny-pages", 5),
        ("org.tiny-more", 5),
        ("org.two-pages", 5),
        ("extra", 1),
    ]


def test_mistakes_in_a_matrix_are_reported_at_the_name(grid: Files) -> None:
    text = MATRIX.replace("org/two]", "org/tow]").replace("dataset: more}]", "dataset: mor}]")
    assert grid.refusal(text) == [
        "p.yaml:4:24: unknown model 'org/tow' (did you mean 'org/two'?)",
        "p.yaml:8:15: excludes no cell of this matrix (check its names)",
    ]


def test_two_cells_of_one_name_are_refused(grid: Files) -> None:
    (reported,) = grid.refusal(MATRIX.replace("[pages, more]", "[pages, pages]").replace(
        "exclude: [{model: org/two, dataset: more}]", "exclude: [{model: org/two}]"))  # fmt: skip
    assert reported == "p.yaml:4:14: run task 'org.tiny-pages' occurs twice (rename one of them)"


def test_repeats_differ_in_seed_and_name(files: Files) -> None:
    found = files.resolved(
        PLAN + "    repeats: 3\n    generation: {seed: 10, temperature: 0.7}\n"
    ).run_tasks
    assert [(one.name, one.task.generation.seed) for one in found] == [
        ("first-r1", 10), ("first-r2", 11), ("first-r3", 12),
    ]  # fmt: skip


# --- sweeps ---------------------------------------------------------------------------------------------


def test_a_sweep_is_one_run_task_a_point_with_its_own_way_of_sending(files: Files) -> None:
    load = "load: {concurrency: [1, 8], rate: [2, 0.5], arrival: constant, requests: 40, slo: {ttft_ms: 500}}"
    found = files.resolved(PLAN + f"    limit: 99\n    {load}\n").run_tasks
    assert [(one.name, one.task.concurrency, one.task.rate) for one in found] == [
        ("first-c1", 1, None), ("first-c8", 8, None), ("first-r2.0", 1024, 2), ("first-r0.5", 1024, 0.5),
    ]  # fmt: skip
    for one in found:
        assert one.sweep == "first"
        assert (one.task.arrival, one.task.limit, one.task.warm_up) == ("constant", 40, 8)
        assert one.task.slo.ttft_ms == 500


def test_every_repeat_has_a_sweep_of_its_own(files: Files) -> None:
    found = files.resolved(PLAN + "    repeats: 2\n    load: {concurrency: [1, 2]}\n").run_tasks
    assert [(one.name, one.sweep) for one in found] == [
        ("first-r1-c1", "first-r1"), ("first-r1-c2", "first-r1"),
        ("first-r2-c1", "first-r2"), ("first-r2-c2", "first-r2"),
    ]  # fmt: skip


def test_the_plans_sweep_replaces_a_run_tasks_own(grid: Files) -> None:
    own = MATRIX.replace("    limit: 5\n", "    load: {rate: [1]}\n")
    found = grid.resolved(
        own + "load: {concurrency: [4]}\nonly: [org.tiny-more, extra]\n"
    ).run_tasks
    assert [one.name for one in found] == ["org.tiny-more-c4", "extra-c4"]
    assert grid.resolved(own).run_tasks[0].name == "org.tiny-pages-r1.0"


def test_only_names_run_tasks_that_there_are(grid: Files) -> None:
    assert grid.refusal(MATRIX + "only: [extra, org.tiny-page]\n") == [
        "p.yaml:10:15: unknown run task 'org.tiny-page' of this plan (did you mean 'org.tiny-pages'?)"
    ]


def test_a_sweep_without_points_and_a_rate_without_room_are_refused(files: Files) -> None:
    (reported,) = files.refusal(PLAN + "    load: {requests: 5}\n")
    assert reported.startswith("p.yaml:8:11: a sweep needs points (add `concurrency: [1, 2, 4]` or")
    (reported,) = files.refusal(PLAN + "    rate: 2.5\n")
    assert reported.startswith("p.yaml:8:11: a rate of 2.5 requests per second cannot have `concu")
    (reported,) = files.refusal(PLAN + "    rate: 2.5\n    concurrency: 1\n")
    assert reported.startswith("p.yaml:8:11: a rate of 2.5 requests per second needs more than one")
    files.resolved(PLAN + "    rate: 2.5\n    concurrency: 64\n")
    reported = files.refusal(PLAN + "    rate: 2.5\n    concurrency: auto\n")
    assert reported == [
        "p.yaml:9:18: a rate of 2.5 requests per second cannot have `concurrency: auto`: requests that "
        "are due would wait (use `load: {rate: [2.5]}`, or a limit that no request reaches: "
        "`concurrency: 256`)"
    ]


def test_a_point_that_comes_twice_and_one_that_is_none_are_refused(files: Files) -> None:
    (reported,) = files.refusal(PLAN + "    load: {concurrency: [2, 2]}\n")
    assert "run task 'first-c2' occurs twice" in reported
    (reported,) = files.refusal(PLAN + "    load: {concurrency: [0]}\n")
    assert reported.startswith("p.yaml:8:26:")


def test_a_long_name_is_cut_so_that_its_points_still_differ(files: Files) -> None:
    plan = PLAN.replace("first", "x" * 79) + "    load: {concurrency: [1, 128]}\n"
    names = [one.name for one in files.resolved(plan).run_tasks]
    assert len(set(names)) == 2
    assert all(len(name) <= 80 for name in names)


def test_concurrency_is_a_number_or_left_to_the_engine(files: Files) -> None:
    said = [
        files.resolved(PLAN + f"    concurrency: {word}\n").run_tasks[0] for word in ("3", "auto")
    ]
    assert [(one.task.concurrency, one.in_flight) for one in said] == [(3, 3), ("auto", 64)]
    assert files.resolved(PLAN).run_tasks[0] == said[1]
    (reported,) = files.refusal(PLAN + "    concurrency: some\n")
    assert reported.startswith("p.yaml:8:18:")


def test_weights_are_named_unless_the_engine_serves_none(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("models/org/tiny.yaml", "name: org/tiny\nengine: vllm\n")
    (reported,) = files.refusal()
    assert "key 'source' is missing: engine 'vllm' reads weights (add `source: hf://" in reported
    monkeypatch.setattr("hpcbench.engines.vllm.VllmEngine.weights", False, raising=False)
    assert files.resolved().run_tasks[0].model.source == ""


def test_a_plan_without_any_run_task_is_refused(files: Files) -> None:
    assert files.refusal("name: empty\n") == ["p.yaml:1:1: a plan needs 'run_tasks' or 'matrix'"]


def test_stages_follow_on_each_other(files: Files) -> None:
    files.resolved(PLAN + "stages: [inference]\n")
    (reported,) = files.refusal(PLAN + "stages: [inference, reporting]\n")
    assert reported.startswith(
        "p.yaml:8:9: stages must follow one another without a gap (write one"
    )


def test_notifiers_and_trackers_are_known_with_their_options(files: Files) -> None:
    reported = files.refusal(
        PLAN
        + "notifications:\n  - {plugin: webhok}\n  - {plugin: command, options: {argvs: [x]}}\n"
        "trackers:\n  - {plugin: jsonl}\n"
    )
    assert reported == [
        "p.yaml:9:14: unknown notifier plugin 'webhok' (did you mean 'webhook'?)",
        "p.yaml:10:23: option 'argv' is missing",
        "p.yaml:10:33: unknown option 'argvs' (did you mean 'argv'?)",
        "p.yaml:12:5: option 'path' is missing",
    ]


def test_a_model_is_used_with_changes(files: Files) -> None:
    choice = "{name: org/tiny, engine_options: {max_num_seqs: 2}, env: {A: b}}"
    plan = PLAN.replace("model: org/tiny", f"model: {choice}")
    model = files.resolved(plan).run_tasks[0].model
    assert model.name.startswith("org/tiny (max_num_seqs=2, env.A=")
    assert (model.source, dict(model.engine_options), dict(model.env)) == (
        str(files.registry / "weights"),
        {"max_num_seqs": 2},
        {"A": "b"},
    )


# --- words of VLMHyperBench v0.2 ------------------------------------------------------------------------

V02_RUN = """\
name: snils
version: "1.0.0"
ml_task: vqa
model:
  name: org/tiny
  framework: vllm
  docker_image: vllm/vllm-openai:v0.14.0
  package_manager: uv
  engine_params: {max_num_seqs: 2}
  env: {A: b}
  params: {temperature: 0.5, max_tokens: 77}
dataset: pages
metrics: [anls]
reports: [markdown]
custom_packages:
  - {name: mine, source: {type: local, path: ../mine, editable: true}, install_args: {}}
"""


def test_a_run_task_of_v02_is_valid_as_it_is(files: Files) -> None:
    files.write("mine/pyproject.toml", "")
    files.write("runs/snils.yaml", V02_RUN)
    files.write("tasks/vqa.yaml",
                "name: vqa\nentry_point: hpcbench.tasks.vqa.Vqa\nsupported_metrics: [anls]\n"
                "supported_frameworks: [vllm]\nprompt: ask\n")  # fmt: skip
    files.write(
        "metrics/anls.yaml", "name: anls\nclass_path: hpcbench.metrics.text.Anls\nparams: {}\n"
    )
    files.write("datasets/pages.yaml",
                "name: pages\ntype: hpcbench.data.table.TableDataset\npath: ../pages\nannotations: a.jsonl\n"
                "fields: [question]\n")  # fmt: skip
    plan = "name: old\nparallelism: 1\ntasks: [snils]\n"
    (one,) = files.resolved(plan, mode="dev").run_tasks
    assert one.model.image == "docker://vllm/vllm-openai:v0.14.0"
    assert one.model.engine == "vllm"
    assert dict(one.model.engine_options) == {"max_num_seqs": 2}
    assert (one.task.generation.temperature, one.task.generation.max_tokens) == (0.5, 77)
    assert one.dataset.source == str(files.registry / "pages")
    assert [metric.plugin for metric in one.metrics] == ["hpcbench.metrics.text.Anls"]


def test_mistakes_in_old_words_are_reported_where_they_are(files: Files) -> None:
    files.write("runs/snils.yaml", V02_RUN.replace("temperature: 0.5", "temperature: hot"))
    reported = files.refusal("name: old\ntasks: [snils]\n", mode="dev")
    assert reported == [
        "registry/runs/snils.yaml:11:25: model.params.temperature: must be a number, not 'hot'"
    ]


def test_todays_form_is_held_to_todays_words(files: Files) -> None:
    reported = files.refusal("schema_version: 1\nname: old\ntasks: [x]\n")
    assert reported == ["p.yaml:3:1: unknown key 'tasks' (did you mean 'run_tasks'?)"]


@pytest.mark.parametrize(
    ("version", "reported"),
    [
        ("7", "this hpcbench does not know schema_version 7 (install a newer hpcbench-vlm)"),
        ("'one'", "this hpcbench does not know schema_version 'one' (write 1, or"),
        ("true", "this hpcbench does not know schema_version true"),
    ],
)
def test_an_unknown_version_is_refused_with_the_remedy(
    files: Files, version: str, reported: str
) -> None:
    (problem,) = files.refusal(f"schema_version: {version}\n" + PLAN)
    assert problem.startswith(f"p.yaml:1:17: {reported}")


# --- YAML's traps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("description: no\n", "p.yaml:8:14: description: YAML reads a bare yes, no, on, off, true or false "
         "as false (put the word in quotes)"),
        ("version: 1.10\n", "p.yaml:8:10: version: YAML reads 1.1 as a number (put it in quotes)"),
        ("metadata: {on: 1}\n", "p.yaml:8:12: YAML reads the key 'on' as true or false (put it in quotes)"),
        ("metadata: {1: 1}\n", "p.yaml:8:12: YAML reads the key '1' as a whole number (put it in quotes)"),
        ("metadata: {~: 1}\n", "p.yaml:8:12: YAML reads the key '~' as null (put it in quotes)"),
        ("max_resubmits: yes\n", "p.yaml:8:16: max_resubmits: must be a whole number, not true (write a "
         "number; YAML's yes, no, on and off are true and false)"),
        ("min_coverage: on\n", "p.yaml:8:15: min_coverage: must be a number, not true (write a number; "
         "YAML's yes, no, on and off are true and false)"),
        ("limit: 1:30\n", "p.yaml:8:8: limit: must be a whole number, not '1:30'"),
        ("limit: 1e3\n", "p.yaml:8:8: limit: must be a whole number, not '1e3'"),
        ("metadata: {x: !!binary aGk=}\n", "p.yaml:8:15: a definition cannot contain !!binary (remove "
         "the tag)"),
        ("metadata: !mine {x: 1}\n", "p.yaml:8:11: a definition cannot contain !mine (remove the tag)"),
        ("metadata: {<<: 5}\n", "p.yaml:8:16: << can only merge maps"),
    ],
)  # fmt: skip
def test_what_yaml_makes_of_a_word_is_reported(files: Files, text: str, reported: str) -> None:
    assert files.refusal(PLAN + text) == [reported]


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("version: 2024-01-02\n", "version", "2024-01-02"),
        ("version: 0e5\n", "version", "0e5"),
        ("version: 1_000\n", "version", "1_000"),
        ("limit: 1_000\n", "limit", 1000),
        ("limit: 010\n", "limit", 10),  # 8 in YAML 1.1
        ("limit: '20'\n", "limit", 20),
        ("shard_minutes: 1e1\n", "shard_minutes", 10.0),
        ("last_job: {time_limit: 12:30:00}\n", "last_job", LastJob(time_limit="12:30:00")),  # 45,000 there
        ("metadata: {a: 010, b: 2024-01-02, c: 8:30, d: 0x1F, e: yes, 2024-01-02: f}\n", "metadata",
         {"a": "010", "b": "2024-01-02", "c": "8:30", "d": 31, "e": True, "2024-01-02": "f"}),
    ],
)  # fmt: skip
def test_what_versions_of_yaml_read_as_two_values_is_what_was_written(
    files: Files, text: str, key: str, expected: object
) -> None:
    assert getattr(files.resolved(PLAN + text).plan, key) == expected


def _numbers(model: type[BaseModel], loc: Loc = ()) -> Iterator[Loc]:
    """Places of all fields that have a number and cannot be true; also in blocks below."""
    for name, field in model.model_fields.items():
        yield from _numbers_in(field.annotation, (*loc, name))


def _numbers_in(annotation: Any, loc: Loc) -> Iterator[Loc]:
    if annotation in (int, float):
        yield loc
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _numbers(annotation, loc)
    else:
        of = get_origin(annotation)
        inner: Loc = (0,) if of is tuple else ("k",) if of is Mapping else ()
        for one in () if bool in get_args(annotation) else get_args(annotation):
            yield from _numbers_in(one, (*loc, *inner))


@pytest.mark.parametrize("kind", KINDS)
def test_true_is_no_number_in_any_field(kind: str, tmp_path: Path) -> None:
    for loc in _numbers(KINDS[kind]):
        data: Any = True
        for part in reversed(loc):
            data = [data] if part == 0 else {part: data}
        source = parse(tmp_path / "d.yaml", yaml.safe_dump({"name": "d", **data}))
        with pytest.raises(UserError) as caught:
            validate(KINDS[kind], source)
        said = [str(one) for one in caught.value.problems if "number" in str(one)]
        assert any("not true (write a number" in one for one in said), (loc, caught.value.problems)


def test_every_kind_has_a_folder_and_a_resolved_plan_survives_json(files: Files) -> None:
    found = files.resolved()
    assert type(found).model_validate_json(found.model_dump_json()) == found
    assert set(KINDS) >= {"packages", "images", "reports", "sites", "experiments"}
    assert json.loads(found.model_dump_json())["mode"] == "prod"
    assert load_plan(files.plan(), [files.registry]) == found


# --- budgets ------------------------------------------------------------------------------------------


def test_a_budget_of_money_needs_prices_in_one_currency(files: Files) -> None:
    paid = PLAN + "max_cost: 5\n"
    (said,) = files.refusal(paid)
    assert "max_cost needs `prices`, and no model of the plan has them (add `prices`" in said
    text = (files.registry / "models/org/tiny.yaml").read_text()
    files.write("models/org/tiny.yaml", text + "prices: {input: 1, output: 2, currency: euro}\n")
    assert any("currency" in line for line in files.refusal(paid))
    files.write("models/org/tiny.yaml", text + "prices: {input: 1, output: 2, currency: EUR}\n")
    assert files.resolved(paid).run_tasks[0].model.prices is not None
    (said,) = files.refusal(PLAN + "max_cost: 0.001\n")
    assert "max_cost pays no request of 'first', whose answer alone may take 0.002048 EUR" in said


def test_a_budget_of_tokens_pays_at_least_one_answer(files: Files) -> None:
    (said,) = files.refusal(PLAN + "max_tokens: 1000\n")
    assert "max_tokens pays no request of 'first', whose answer alone may take 1,024" in said
    assert "raise it, or lower the run task's `generation.max_tokens`" in said
    assert files.resolved(PLAN + "max_tokens: 1024\n").plan.max_tokens == 1024
