"""YAML definitions: every mistake at its line and column, every name resolved or questioned."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.errors import UserError
from hpcbench.registry.catalog import FOLDERS, Catalog, load_definition
from hpcbench.registry.resolve import load_plan
from hpcbench.registry.source import MAX_BYTES, read, validate
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.package import Package
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site
from tests.campaign import examples

PLAN = """\
schema_version: 1
name: small
description: Überprüfung
parallelism: 2
run_tasks:
  - name: vqa-easy
    ml_task: vqa
    model: org/tiny
    dataset: pages
    prompt: ask
    generation: {max_tokens: 96, temperature: 0.0}
    resources: &small
      cpus: 1
      memory_gb: 3
      time_limit: "00:30:00"
  - name: vqa-hard
    ml_task: vqa
    model: org/tiny
    dataset: pages
    prompt: ask
    metrics: [anls]
    split: hard
    resources: *small
  - shared
seed: 7
"""

DOCUMENTS = {
    "models/org/tiny.yaml": "name: org/tiny\nsource: ../../weights\nengine: vllm\n",
    "datasets/pages.yaml": (
        "name: pages\nsource: ../pages\nannotations: a.jsonl\nfields: [question]\nsplit: easy\n"
    ),
    "prompts/ask.yaml": 'name: ask\nuser: "{{ question }}"\n',
    "run_tasks/shared.yaml": (
        "name: shared\nml_task: vqa\nmodel: org/tiny\ndataset: pages\nprompt: ask\n"
    ),
}


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    return write_registry(tmp_path / "registry")


def write_registry(folder: Path, **changed: str) -> Path:
    for name, text in {**DOCUMENTS, **changed}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def replace(registry: Path, name: str, text: str) -> None:
    path = registry / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def problems(path: Path, model: Any = ExperimentPlan) -> list[str]:
    """Problems of a definition, with the folder cut from the file's name."""
    with pytest.raises(UserError) as caught:
        validate(model, read(path))
    return [str(problem).replace(f"{path.parent}/", "") for problem in caught.value.problems]


def written(folder: Path, text: str | bytes, name: str = "p.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def resolve(folder: Path, registry: Path, text: str = PLAN) -> ResolvedPlan:
    return load_plan(written(folder, text), [registry])


def refusal(folder: Path, registry: Path, text: str = PLAN) -> list[str]:
    with pytest.raises(UserError) as caught:
        resolve(folder, registry, text)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


# --- source: one file ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("{type: requirement, requirement: near}",
         "unknown key 'requirement' (there are: type, line)"),
        ("{type: git, url: x, rev: v1}", "unknown key 'rev' (did you mean 'ref'?)"),
        ("{type: pypi, name: near, zzz: 1}",
         "unknown key 'zzz' (there are: type, name, version, index)"),
    ],
)  # fmt: skip
def test_an_unknown_key_of_one_of_several_forms_is_answered_with_keys_of_that_form(
    tmp_path: Path, source: str, line: str
) -> None:
    path = tmp_path / "near.yaml"
    path.write_text(f"name: near\nsource: {source}\n")
    with pytest.raises(UserError) as caught:
        validate(Package, read(path))
    assert line in [str(one).partition(": ")[2] for one in caught.value.problems]


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("parallelism: 2", "paralelism: 2",
         "p.yaml:4:1: unknown key 'paralelism' (did you mean 'parallelism'?)"),
        ("parallelism: 2", "xyzzy: 2", "p.yaml:4:1: unknown key 'xyzzy' (there are: "
         "schema_version, name, version, description, notes, metadata, run_tasks, matrix, …)"),
        ("      cpus: 1", "      cpu: 1", "p.yaml:13:7: unknown key 'cpu' (did you mean 'cpus'?)"),
        ("    ml_task: vqa\n    model: org/tiny\n    dataset: pages\n    prompt: ask\n    gen",
         "    ml_tsk: vqa\n    model: org/tiny\n    dataset: pages\n    prompt: ask\n    gen",
         "p.yaml:7:5: unknown key 'ml_tsk' (did you mean 'ml_task'?)"),
        ("{max_tokens: 96, temp", "{max_token: 96, temp",
         "p.yaml:11:18: unknown key 'max_token' (did you mean 'max_tokens'?)"),
        ("  - name: vqa-hard\n    ml_task: vqa\n", "  - name: vqa-hard\n",
         "p.yaml:16:5: key 'ml_task' is missing (add `ml_task: …`)"),
        ("name: small\n", "", "p.yaml:1:1: key 'name' is missing (add `name: …`)"),
        ("parallelism: 2", "parallelism: two", "p.yaml:4:14: parallelism: must be a whole "
         "number, not 'two'"),
        ("max_tokens: 96", "max_tokens: -1",
         "p.yaml:11:30: run_tasks.0.generation.max_tokens: must be greater than 0, not -1"),
        ("  - shared", "  - 7", "p.yaml:24:5: run_tasks.2: YAML reads 7 as a number (put it in "
         "quotes)"),
        ("  - shared", "  - ../shared", "p.yaml:24:5: run_tasks.2: must be one line of text without \\, "
         "with no space at its ends and none of . / ~ @ + - first, not '../shared'"),
        ("    split: hard", "    packages: [7]",
         "p.yaml:22:16: run_tasks.1.packages.0: YAML reads 7 as a number (put it in quotes)"),
        ("    split: hard", "    packages:\n      -",
         "p.yaml:23:8: run_tasks.1.packages.0: must be text, not null"),
        ("    split: hard", "    packages: [[near]]",
         "p.yaml:22:16: run_tasks.1.packages.0: must be text, not ['near']"),
        ("seed: 7", "name: again", "p.yaml:25:1: key 'name' occurs twice (remove one of them)"),
        ("    split: hard", "    split: hard\n    split: easy",
         "p.yaml:23:5: key 'split' occurs twice (remove one of them)"),
        ("seed: 7", "\tseed: 7", "p.yaml:25:1: a tab cannot indent YAML (use spaces)"),
        ("schema_version: 1", "schema_version: 2",
         "p.yaml:1:17: schema_version: must be 1, not 2"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_at_its_place(
    tmp_path: Path, old: str, new: str, reported: str
) -> None:
    assert old in PLAN
    found = problems(written(tmp_path, PLAN.replace(old, new, 1)))
    assert reported in found


def test_all_mistakes_of_a_definition_are_reported_at_once(tmp_path: Path) -> None:
    text = PLAN.replace("seed: 7", "sed: 7").replace("parallelism: 2", "parallelism: 0")
    assert len(problems(written(tmp_path, text))) == 2


def test_a_key_laid_in_by_a_merge_is_reported_at_the_mapping_that_merges_it(tmp_path: Path) -> None:
    text = "name: x\nextra: &e {cpuz: 1}\nrun_tasks:\n  - name: a\n    resources:\n      <<: *e\n"
    assert "p.yaml:6:7: unknown key 'cpuz' (did you mean 'cpus'?)" in problems(
        written(tmp_path, text)
    )


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("", "p.yaml:1:1: not a map of keys to values (begin with `name: …`)"),
        ("# only a comment\n", "p.yaml:1:1: not a map of keys to values (begin with `name: …`)"),
        ("- a\n- b\n", "p.yaml:1:1: not a map of keys to values (begin with `name: …`)"),
        ("just text", "p.yaml:1:1: not a map of keys to values (begin with `name: …`)"),
        (b"name: x\nfoo: \xff\n", "p.yaml:2:6: not UTF-8 (save it as UTF-8 text)"),
        ("name: a\nx: \x00\n", "p.yaml:2:4: character U+0000 is not allowed in YAML (remove it)"),
        ("name: !!timestamp x\n",
         "p.yaml:1:7: a definition cannot contain !!timestamp (remove the tag)"),
        ("name: !!int x\n",
         "p.yaml:1:7: YAML cannot read 'x' as a whole number (put it in quotes)"),
        ("name: !!bool x\n",
         "p.yaml:1:7: YAML cannot read 'x' as true or false (put it in quotes)"),
        ("name: [\n",
         "p.yaml:2:1: expected the node content, but found '<stream end>' (close the bracket)"),
        ("name: a\n---\nname: b\n",
         "p.yaml:2:1: a second definition begins (keep one definition in a file: remove `---`)"),
    ],
)  # fmt: skip
def test_what_is_no_definition_is_reported_at_its_place(
    tmp_path: Path, content: str | bytes, reported: str
) -> None:
    assert problems(written(tmp_path, content)) == [reported]


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    source = read(written(tmp_path, b"\xef\xbb\xbfname: x\n"))
    assert source.data == {"name": "x"}
    assert source.place(("name",), at_key=True)[1:] == (1, 1)


def test_a_folder_a_missing_file_and_an_endless_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    for path, words in (
        (tmp_path, "is a folder, not a file"),
        (tmp_path / "no.yaml", "no such file"),
        (tmp_path / "large.yaml", "larger than"),
        (Path("/dev/zero"), "is a device, not a file"),
    ):
        with pytest.raises(UserError, match=words):
            read(path)


@pytest.mark.long
@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]\n",
        "a: &a [*a, *a, *a, *a]\n",
        "a: &a {b: *a, c: *a}\n",
        "name: x\nl0: &l0 [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"l{i}: &l{i} [{','.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 12)),
        "a: " + "[" * 5000 + "]" * 5000,
        "a: " + "{a: " * 90 + "1" + "}" * 90,
        "seed: 0x" + "f" * 100_000 + "\nname: x\nrun_tasks: 0x" + "f" * 100_000,
    ],
    ids=["loop", "loop-fan", "loop-map", "bomb", "deep-list", "deep-map", "huge-number"],
)
def test_bombs_and_loops_end_at_once_as_a_mistake_with_a_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError) as caught:
        validate(ExperimentPlan, read(written(tmp_path, text)))
    assert all(problem.line is not None for problem in caught.value.problems)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (ExperimentPlan, PLAN.replace("temperature: 0.0", "temperature: .inf")),
        (ExperimentPlan, PLAN.replace("memory_gb: 3", "memory_gb: .nan")),
        (
            Model,
            DOCUMENTS["models/org/tiny.yaml"] + "engine_options: {since: !!timestamp 2024-01-01}\n",
        ),
        (Model, DOCUMENTS["models/org/tiny.yaml"] + "engine_options: {x: .nan}\n"),
        (Model, DOCUMENTS["models/org/tiny.yaml"] + "engine_options: {x: {1: 2}}\n"),
        (Dataset, DOCUMENTS["datasets/pages.yaml"] + "options: {x: !!set {a}}\n"),
    ],
)
def test_what_json_cannot_hold_is_refused_because_the_experiment_is_written_as_json(
    tmp_path: Path, model: Any, text: str
) -> None:
    assert problems(written(tmp_path, text), model)


def fragments() -> st.SearchStrategy[str]:
    return st.sampled_from(
        ["\t", "\x00", "{", "}", "[", "]", "*small", "&small ", "<<: ", "? ", ": ", "- ", "!!int ",
         "!!binary ", "'", '"', "\n", "  ", "~", ".inf", ".nan", "2024-13-45", "0b_", "1:99:99",
         "%", "@", "|", ">", "\u2028", "é", "=", "a\\0b", "../..", "~nobody/x", "null", "yes: no",
         "1: 2", "[1]: 2", "---\n", "...\n", "#", "9" * 5000, "\ud7ff", "😀"]
    )  # fmt: skip


@pytest.mark.long
@settings(max_examples=examples(250), deadline=None)
@given(
    start=st.integers(0, len(PLAN)),
    length=st.integers(0, 12),
    put=st.lists(fragments(), max_size=3).map("".join),
    shuffle=st.one_of(st.none(), st.integers(0, 1000)),
)
def test_a_damaged_plan_is_a_plan_or_a_mistake_with_a_place_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, start: int, length: int, put: str, shuffle: int | None
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    if not folder.is_dir():
        write_registry(folder / "registry")
    text = PLAN[:start] + put + PLAN[start + length :]
    if shuffle is not None:
        lines = text.splitlines(keepends=True)
        random.Random(shuffle).shuffle(lines)
        text = "".join(lines)
    try:
        found = resolve(folder, folder / "registry", text)
    except UserError as error:
        assert error.problems  # noqa: PT017 - a damaged plan may also be a right one
        for problem in error.problems:
            assert problem.file is not None
            assert problem.line is not None
            assert 1 <= problem.line <= len(text.splitlines()) + 1
            assert problem.column is not None
    else:
        assert ResolvedPlan.model_validate_json(found.model_dump_json()) == found


@pytest.mark.long
@settings(max_examples=examples(150), deadline=None)
@given(
    name=st.sampled_from(sorted(DOCUMENTS)),
    place=st.floats(0, 1),
    length=st.integers(0, 6),
    put=fragments(),
)
def test_a_damaged_registry_is_a_mistake_with_a_place_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: float, length: int, put: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz-registry"
    text = DOCUMENTS[name]
    start = int(place * len(text))
    write_registry(folder, **{name: text[:start] + put + text[start + length :]})
    try:
        resolve(folder, folder)
    except UserError as error:
        assert all(problem.line for problem in error.problems)  # noqa: PT017 - as above
    finally:
        write_registry(folder)


# --- catalog: many files ------------------------------------------------------------------------------


def test_a_later_registry_wins(tmp_path: Path, registry: Path) -> None:
    later = tmp_path / "later"
    replace(later, "prompts/ask.yaml", "name: ask\nuser: later\n")
    assert Catalog([registry, later]).get(Prompt, "ask").user == "later"
    assert Catalog([later, registry]).get(Prompt, "ask").user == "{{ question }}"


def test_the_users_registry_lies_between_ours_and_the_given_one(
    tmp_path: Path, registry: Path
) -> None:
    replace(tmp_path / "config/hpcbench", "prompts/ask.yaml", "name: ask\nuser: mine\n")
    replace(tmp_path / "config/hpcbench", "metrics/anls.yaml", "name: anls\nplugin: cer\n")
    assert Catalog().get(Prompt, "ask").user == "mine"
    assert Catalog([registry]).get(Prompt, "ask").user == "{{ question }}"
    assert resolve(tmp_path, registry).run_tasks[1].metrics[0].plugin == "cer"


@pytest.mark.parametrize(
    ("plan", "folder"),
    [("mine/plan.yaml", "mine/registries"), ("mine/experiments/plan.yaml", "mine")],
)
def test_a_plan_brings_the_registry_that_it_is_in_or_else_the_one_beside_it(
    tmp_path: Path, registry: Path, plan: str, folder: str
) -> None:
    replace(tmp_path / folder, "prompts/ask.yaml", "name: ask\nuser: brought\n")
    assert Catalog(plan=tmp_path / plan).get(Prompt, "ask").user == "brought"
    given = Catalog([registry], plan=tmp_path / plan)
    assert given.get(Prompt, "ask").user == "{{ question }}"


def test_a_definition_answers_to_its_name_and_to_its_file(tmp_path: Path, registry: Path) -> None:
    replace(registry, "prompts/ask.yaml", "user: x\nname: «Вопрос» по счёту 2026\n")
    catalog = Catalog([registry])
    for asked in ("ask", "«Вопрос» по счёту 2026", "ASK", "«ВОПРОС» по счёту 2026"):
        assert catalog.get(Prompt, asked).user == "x"
    assert "«Вопрос» по счёту 2026" in catalog.names("prompts")
    one = resolve(tmp_path, registry).run_tasks[0]
    assert one.prompt.name == one.task.prompt == "«Вопрос» по счёту 2026"


@pytest.mark.parametrize(
    "text",
    ["name: Two Words # said so\nuser: x\n", "name: 'Two Words'\nuser: x\n", '"name": "Two Words"\nuser: x\n',
     "name: >-\n  Two\n  Words\nuser: x\n", "{name: Two Words, user: x}\n", "name: Two\n  Words\nuser: x\n",
     'name: "Two\\x20Words"\nuser: x\n', "user: x\nname:   Two Words   \n", "name: Two Words"],
)  # fmt: skip
def test_a_name_is_found_however_yaml_writes_it(registry: Path, text: str) -> None:
    replace(registry, "prompts/other.yaml", text)
    assert Catalog([registry]).key("prompts", "Two Words") == "other"


def test_two_files_that_answer_to_one_name_are_both_named(tmp_path: Path, registry: Path) -> None:
    replace(registry, "prompts/copy.yaml", "name: ask\nuser: copied\n")
    what = "2 definitions of prompts/ answer to the name 'ask': registry/prompts/ask.yaml and "
    what += "registry/prompts/copy.yaml (rename one of them)"
    assert refusal(tmp_path, registry) == [
        f"p.yaml:10:13: {what}", f"p.yaml:20:13: {what}", f"registry/run_tasks/shared.yaml:5:9: {what}",
    ]  # fmt: skip


def test_case_counts_where_two_names_differ_only_in_it(registry: Path) -> None:
    replace(registry, "prompts/other.yaml", "name: ASK\nuser: loud\n")
    catalog = Catalog([registry])
    assert catalog.get(Prompt, "ASK").user == "loud"
    assert catalog.get(Prompt, "ask").user == "{{ question }}"
    with pytest.raises(UserError, match="write the name of one of them in its own case"):
        catalog.get(Prompt, "Ask")


def test_a_later_registry_overrides_by_name_too(tmp_path: Path, registry: Path) -> None:
    later = tmp_path / "later"
    replace(later, "prompts/elsewhere.yaml", "name: ask\nuser: later\n")
    assert Catalog([registry, later]).get(Prompt, "ask").user == "later"
    assert Catalog([later, registry]).get(Prompt, "ask").user == "{{ question }}"


def test_shipped_definitions_are_called_as_their_files() -> None:
    catalog = Catalog()
    for model, kind in FOLDERS.items():
        for name in catalog.names(kind):
            assert catalog.get(model, name).name == name == catalog.key(kind, name)


def test_names_leave_out_overlays_and_know_folders(registry: Path) -> None:
    replace(registry, "models/org/tiny.dev.yaml", "name: org/tiny\n")
    assert "org/tiny" in Catalog([registry]).names("models")
    assert "org/tiny.dev" not in Catalog([registry]).names("models")


def test_a_registry_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        Catalog([tmp_path / "nowhere"])


def test_a_plan_is_not_held_to_its_files_name(tmp_path: Path) -> None:
    plan, _ = load_definition(ExperimentPlan, written(tmp_path, PLAN, "other.yaml"))
    assert plan.name == "small"


# --- resolve: the whole plan --------------------------------------------------------------------------


def test_a_good_plan_is_resolved_with_defaults_and_survives_json(
    tmp_path: Path, registry: Path
) -> None:
    found = resolve(tmp_path, registry)
    easy, hard, shared = found.run_tasks
    assert [metric.name for metric in easy.metrics] == ["anls", "exact_match"]
    assert [metric.name for metric in hard.metrics] == ["anls"]
    assert (easy.dataset.split, hard.dataset.split) == ("easy", "hard")
    assert shared.task.generation.max_tokens == 1024
    assert found.executor == "local"
    assert ResolvedPlan.model_validate_json(found.model_dump_json()) == found


def test_unknown_names_suggest_the_nearest_and_all_are_reported_at_once(
    tmp_path: Path, registry: Path
) -> None:
    text = PLAN.replace("model: org/tiny", "model: org/tinny", 1)
    text = text.replace("- shared", "- sharde").replace(
        "ml_task: vqa\n    model: org/tiny\n", "ml_task: vqq\n    model: org/tiny\n"
    )
    assert refusal(tmp_path, registry, text) == [
        "p.yaml:8:12: unknown model 'org/tinny' (did you mean 'org/tiny'?)",
        "p.yaml:17:14: unknown ML task 'vqq' (did you mean 'vqa'?)",
        "p.yaml:24:5: unknown run task 'sharde' (did you mean 'shared'?)",
    ]  # fmt: skip


def test_unknown_names_are_reported_beside_values_that_do_not_fit(
    tmp_path: Path, registry: Path
) -> None:
    text = PLAN.replace("model: org/tiny", "model: org/tinny", 1).replace("- shared", "- sharde")
    text += "limit: many\nsite: 3\nmatrix: [{ml_task: vqq, models: [org/tinny], datasets: 7}, x]\n"
    reported = "\n".join(refusal(tmp_path, registry, text))
    for what in ("unknown model 'org/tinny'", "unknown run task 'sharde'", "unknown ML task 'vqq'"):
        assert what in reported
    assert "limit: must be a whole number, not 'many'" in reported
    assert "matrix.0.datasets: must be a list" in reported


def test_a_value_that_is_no_name_is_reported_once(tmp_path: Path, registry: Path) -> None:
    text = PLAN.replace("model: org/tiny", "model: 'a b'", 1)
    assert len(refusal(tmp_path, registry, text)) == 1


def test_a_name_far_from_all_lists_what_there_is(tmp_path: Path, registry: Path) -> None:
    reported = refusal(tmp_path, registry, PLAN.replace("prompt: ask", "prompt: xxxxxx", 1))
    assert len(reported) == 1
    assert reported[0].startswith("p.yaml:10:13: unknown prompt 'xxxxxx' (there are: ask, ")


def test_a_mistake_in_a_named_run_task_is_reported_in_its_own_file(
    tmp_path: Path, registry: Path
) -> None:
    replace(registry, "run_tasks/shared.yaml",
            "name: shared\nml_task: vqa\nmodel: nope\ndataset: pages\nprompt: ask\n")  # fmt: skip
    reported = refusal(tmp_path, registry)
    assert len(reported) == 1
    assert reported[0].startswith("registry/run_tasks/shared.yaml:3:8: unknown model 'nope'")


def test_a_metric_must_belong_to_the_ml_task(tmp_path: Path, registry: Path) -> None:
    assert refusal(tmp_path, registry, PLAN.replace("[anls]", "[anls, kie_f1_micro]")) == [
        "p.yaml:21:21: metric 'kie_f1_micro' scores object, but ML task 'vqa' reads answers into text "
        "(name a metric that scores text, such as ned_micro)"
    ]
    named = resolve(tmp_path, registry, PLAN.replace("[anls]", "[accuracy, bleu, rouge_l, ANLS]"))
    assert [one.name for one in named.run_tasks[1].metrics] == [
        "accuracy",
        "bleu",
        "rouge_l",
        "anls",
    ]


def test_a_list_of_metrics_narrows_an_ml_task(tmp_path: Path, registry: Path) -> None:
    replace(
        registry, "ml_tasks/vqa.yaml", "name: vqa\nplugin: vqa\nmetrics: [anls, CER]\nprompt: ask\n"
    )
    assert refusal(tmp_path, registry, PLAN.replace("[anls]", "[Anls, cer, wer]")) == [
        "p.yaml:21:26: ML task 'vqa' lists anls, CER and no metric 'wer' (name one of these, or add it to "
        "the list in registry/ml_tasks/vqa.yaml)"
    ]


def test_metrics_are_needed_somewhere(tmp_path: Path, registry: Path) -> None:
    replace(registry, "ml_tasks/vqa.yaml", "name: vqa\nplugin: vqa\nprompt: ask\n")
    reported = refusal(tmp_path, registry)
    assert reported[0] == (
        "p.yaml:7:14: key 'metrics' is missing, and ML task 'vqa' names no metric (add `metrics: […]`)"
    )


def test_a_dataset_must_have_the_fields_its_ml_task_needs(tmp_path: Path, registry: Path) -> None:
    replace(registry, "datasets/pages.yaml", "name: pages\nsource: x\nannotations: a.jsonl\n")
    assert (
        "p.yaml:9:14: dataset 'pages' has no field 'question' that ML task 'vqa' needs (if every "
        "sample has it, list it under the dataset's `fields`)" in refusal(tmp_path, registry)
    )


def test_a_prompt_is_needed_somewhere(tmp_path: Path, registry: Path) -> None:
    replace(registry, "ml_tasks/own.yaml", "name: own\nplugin: vqa\ndefault_metrics: [anls]\n")
    text = PLAN.replace("ml_task: vqa", "ml_task: own", 1).replace("    prompt: ask\n", "", 1)
    reported = refusal(tmp_path, registry, text)
    assert reported == [
        "p.yaml:6:5: key 'prompt' is missing, and the ML task names no prompt (add `prompt: …`)"
    ]
    resolved = resolve(tmp_path, registry, PLAN.replace("    prompt: ask\n", "", 1))
    assert resolved.run_tasks[0].prompt.name == "vqa_short"


@pytest.mark.parametrize(
    ("generation", "laid_over", "most"),
    [
        ("", (), 7000),
        ("    generation: {seed: 3}\n    repeats: 2\n", (), 7000),
        ("    generation: {max_tokens: 1024}\n", (), 1024),
        ("", ("run_tasks.page.generation.max_tokens=9",), 9),
    ],
    ids=["no word", "another setting", "the plan", "--set"],
)
def test_an_ml_task_says_how_long_answers_are_unless_the_run_task_does(
    tmp_path: Path, registry: Path, generation: str, laid_over: tuple[str, ...], most: int
) -> None:
    task = "name: page\n    ml_task: ocr_deepseek\n    model: org/tiny\n    dataset: pages\n"
    text = f"name: small\nrun_tasks:\n  - {task}{generation}"
    found = load_plan(written(tmp_path, text), [registry], laid_over).run_tasks
    assert {one.task.generation.max_tokens for one in found} == {most}


def test_pages_that_deepseek_ocr_reads_fit_its_context_with_their_answers() -> None:
    """SGLang refuses a request whose prompt and `max_tokens` are more than the context."""
    catalog = Catalog()
    page, prompt = 1 + 6 * 144 + 256 + 1, 50  # the begin token, the largest page of either model
    answer = catalog.get(MLTask, "ocr_deepseek").max_tokens
    assert answer is not None
    for name in ("deepseek-ai/DeepSeek-OCR", "deepseek-ai/DeepSeek-OCR-2"):
        context = catalog.get(Model, name).context_length
        assert context is not None
        assert page + prompt + answer <= context


def test_two_run_tasks_of_one_name_are_refused(tmp_path: Path, registry: Path) -> None:
    reported = refusal(tmp_path, registry, PLAN.replace("vqa-hard", "shared"))
    assert reported == ["p.yaml:24:5: run task 'shared' occurs twice (rename one of them)"]


@pytest.mark.parametrize(
    ("definition", "text", "reported"),
    [
        ("models/org/tiny.yaml", "name: org/tiny\nsource: x\nengine: vlm\n",
         "unknown engine plugin 'vlm' (did you mean 'vllm'?)"),
        ("prompts/ask.yaml", "name: ask\nuser: x\nstrategy: templat\n",
         "unknown prompt plugin 'templat' (did you mean 'template'?)"),
        ("metrics/anls.yaml", "name: anls\nplugin: anlss\n",
         "unknown metric plugin 'anlss' (did you mean 'anls'?)"),
    ],
)  # fmt: skip
def test_a_missing_plugin_is_found_before_anything_runs(
    tmp_path: Path, registry: Path, definition: str, text: str, reported: str
) -> None:
    replace(registry, definition, text)
    assert any(reported in problem for problem in refusal(tmp_path, registry))


@pytest.mark.parametrize(
    ("image", "absolute"),
    [
        ("img/vllm.sif", "{}/models/org/img/vllm.sif"),
        ("hf/Dockerfile", "{}/models/org/hf/Dockerfile"),
        ("img/own.def", "{}/models/org/img/own.def"),
        ("oci:img/layout:1", "oci:{}/models/org/img/layout:1"),
        ("docker-daemon:me/engine:1", "docker-daemon:me/engine:1"),
        ("oci-archive:../x.tar", "oci-archive:{}/models/x.tar"),
        ("docker-archive:/a/x.tar", "docker-archive:/a/x.tar"),
        ("venv:../../venv", "venv:{}/venv"),
        ("docker://vllm/vllm-openai:v1", "docker://vllm/vllm-openai:v1"),
    ],
)
def test_paths_are_relative_to_their_definition_and_become_absolute(
    tmp_path: Path, registry: Path, image: str, absolute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUN_MODE", "dev")  # prod takes no tag
    replace(registry, "models/org/tiny.yaml",
            DOCUMENTS["models/org/tiny.yaml"] + f"image: {image!r}\n")  # fmt: skip
    found = resolve(tmp_path, registry).run_tasks[0]
    assert found.model.source == str(registry / "weights")
    assert found.dataset.source == str(registry / "pages")
    assert found.model.image == absolute.format(registry)


def test_a_home_that_does_not_exist_is_no_crash(tmp_path: Path, registry: Path) -> None:
    text = DOCUMENTS["datasets/pages.yaml"].replace("../pages", "~nobody-of-that-name/x")
    replace(registry, "datasets/pages.yaml", text)
    assert (
        resolve(tmp_path, registry).run_tasks[0].dataset.source.endswith("~nobody-of-that-name/x")
    )


def test_origins_say_which_file_each_definition_came_from(tmp_path: Path, registry: Path) -> None:
    origins = resolve(tmp_path, registry).origins
    assert origins["models/org/tiny"] == str(registry / "models/org/tiny.yaml")
    assert origins["prompts/ask"] == str(registry / "prompts/ask.yaml")
    assert origins["run_tasks/shared"] == str(registry / "run_tasks/shared.yaml")


def test_without_a_site_the_users_default_counts_and_else_a_local_one(
    tmp_path: Path, registry: Path
) -> None:
    assert resolve(tmp_path, registry).site.executor == "local"
    replace(tmp_path / "config/hpcbench", "sites/default.yaml", "name: default\nexecutor: slurm\n")
    assert resolve(tmp_path, registry).executor == "slurm"
    assert resolve(tmp_path, registry, PLAN + "executor: local\n").executor == "local"
    reported = refusal(tmp_path, registry, PLAN + "site: defalt\n")
    assert reported == ["p.yaml:26:7: unknown site 'defalt' (did you mean 'default'?)"]


def test_every_definition_we_ship_is_right() -> None:
    catalog = Catalog()
    for model, kind in ((Model, "models"), (Dataset, "datasets"), (Prompt, "prompts"),
                        (RunTask, "run_tasks"), (Site, "sites")):  # fmt: skip
        for name in catalog.names(kind):
            assert catalog.get(model, name).name == name


def test_a_misspelt_key_is_reported_once_and_not_as_missing_too(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("name: p\nrun_tasks:\n  - {name: a, ml_task: x, modle: m, dataset: d}\n")
    with pytest.raises(UserError) as caught:
        validate(ExperimentPlan, read(path))
    assert [str(problem) for problem in caught.value.problems] == [
        f"{path}:3:27: unknown key 'modle' (did you mean 'model'?)"
    ]
