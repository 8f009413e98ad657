"""Definitions of v0.2 in today's spelling: the same meaning, the same comments, and only what must change."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.main import main
from hpcbench.registry.rewrite import in_todays_spelling
from hpcbench.registry.source import parse
from hpcbench.registry.upgrade import upgrade
from tests.unit.command import Cli

HERE = Path("x.yaml")

RUN_TASK = """\
# Prices of 2025
name: "snils"   # of the pilot
ml_task: VQA
# the model
model:
  name: Qwen/Qwen2-VL-2B-Instruct   # small
  framework: "Hugging Face" # slow
  # the image
  docker_image: ghcr.io/a/b:1
  package_manager: uv  # our choice
  engine_params:
    max_model_len: 4096 # tokens
    seed: 1
  params: {temperature: 0.1, max_tokens: 64} # sampling
# at the end
dataset: demo_mini
metrics:
  - anls
  - latency # always
  - {name: cer, backend: native}
custom_packages:
  - name: mine
    source:
      git:
        url: https://e.org/x.git # theirs
        ref: v1
# last
"""

TODAY = """\
# Prices of 2025
schema_version: 1
name: "snils"   # of the pilot
ml_task: VQA
# the model
model:
  name: Qwen/Qwen2-VL-2B-Instruct   # small
  engine: "huggingface" # slow
  # the image
  image: docker://ghcr.io/a/b:1
  # our choice
  engine_options:
    seed: 1
  context_length: 4096 # tokens
# at the end
dataset: demo_mini
metrics:
  - anls
  - latency_mean # always
  - cer
packages:
  - name: mine
    source:
      url: https://e.org/x.git # theirs
      ref: v1
      type: git
generation: {temperature: 0.1, max_tokens: 64} # sampling
# last
"""


def test_a_run_task_keeps_its_comments_quotes_and_order() -> None:
    assert in_todays_spelling("run_tasks", HERE, RUN_TASK) == TODAY
    assert in_todays_spelling("run_tasks", HERE, TODAY) == TODAY


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (
            "run_tasks",
            'name: "q"\nml_task: "VQA"\nmodel: {name: "Qwen2-VL", framework: "vllm"}\ndataset: "d"\n',
            'schema_version: 1\nname: "q"\nml_task: "VQA"\nmodel: {name: "Qwen2-VL", engine: "vllm"}\n'
            'dataset: "d"\n',
        ),
        ("experiments", 'name: "Grand"\nparallelism: 4\ntasks:\n  - "a" # first\n',
         'schema_version: 1\nname: "Grand"\nparallelism: 4\nrun_tasks:\n  - "a" # first\n'),
        ("metrics",
         'schema_version: "0.2" # old\nname: a\nclass_path: my.mod.Anls\nparams:\n  x: 1\n',
         "schema_version: 1 # old\nname: a\nplugin: my.mod.Anls\noptions:\n  x: 1\n"),
        ("packages", "name: p\nsource: git+https://e.org/x.git@v1 # c",
         "schema_version: 1\nname: p\nsource: {type: git, url: 'https://e.org/x.git', ref: v1} # c\n"),
        (
            "run_tasks",
            "name: x\nml_task: vqa\ndataset: d\n"
            "model: {name: m, framework: vllm,  # c\n  params: {temperature: 0}}\n",
            "schema_version: 1\nname: x\nml_task: vqa\ndataset: d\n"
            "# c\nmodel: {name: m, engine: vllm}\ngeneration: {temperature: 0}\n",
        ),
        (
            "datasets",
            "\ufeffname: d\r\ntype: my.x.Y\r\npath: ../data\r\n",
            "\ufeffschema_version: 1\r\nname: d\r\niterator: my.x.Y\r\nsource: ../data\r\n"
            "fields:\r\n- question\r\n",
        ),
    ],
)  # fmt: skip
def test_only_what_must_change_changes(kind: str, before: str, after: str) -> None:
    assert in_todays_spelling(kind, HERE, before) == after


def test_what_shares_a_value_by_an_anchor_is_written_whole_below_its_comments() -> None:
    text = (
        "name: p\n# both\ntasks:\n"
        "  - {name: a, ml_task: VQA, model: &one {name: m, framework: vllm}, dataset: d}\n"
        "  - {name: b, ml_task: VQA, model: *one, dataset: d}\n"
    )
    after = in_todays_spelling("experiments", HERE, text)
    assert after.startswith("# both\nschema_version: 1\nname: p\n")
    assert parse(HERE, after).data == wanted("experiments", text)


def wanted(kind: str, text: str) -> object:
    return {"schema_version": 1, **upgrade(kind, parse(HERE, text)).data}


PARTS = [
    "name: x", "ml_task: VQA", "dataset: d", "notes: 'a # b'", "description: |\n  # no comment\n  text",
    "metrics:\n- anls\n- latency\n- {name: cer}", "metrics: [ttft, anls]",
    "prompt_config:\n  user_prompt: ask",
    "custom_packages:\n  - name: mine\n    source: {pypi: {name: p}}\n  - name: other\n    source: ./here",
]  # fmt: skip
MODELS = [
    "model: {name: m, framework: vLLM, params: {temperature: 0}}",
    "model:\n  params:\n    temperature: 0\n  name: m\n  framework: vllm\n  engine_params: {dtype: auto}",
    "model:\n    name: m\n    engine_params:\n        dtype: auto\n        x: 1\n    framework: vllm",
]


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A run task of v0.2 with comments in places where YAML allows them."""
    parts = draw(st.lists(st.sampled_from(PARTS), unique_by=lambda one: one.partition(":")[0]))
    parts = draw(st.permutations([*parts, draw(st.sampled_from(MODELS))]))
    found, number = list[str](), 0
    for line in "\n".join(parts).split("\n"):
        inside = line.strip() in ("# no comment", "text") or line.endswith("|")
        if not inside and draw(st.booleans()):
            indent = line[: len(line) - len(line.lstrip())]
            found.append(f"{indent}# above {(number := number + 1)}.")
        with_end = not inside and draw(st.booleans())
        found.append(f"{line} # end {(number := number + 1)}." if with_end else line)
    return "\n".join(found) + draw(st.sampled_from(["", "\n", "\n\n# tail\n"]))


@given(documents())
def test_every_meaning_and_every_comment_is_kept(text: str) -> None:
    after = in_todays_spelling("run_tasks", HERE, text)
    assert parse(HERE, after).data == wanted("run_tasks", text)
    comments = re.findall(r"# (?:above \d+\.|end \d+\.|tail)", text)
    assert sorted(re.findall(r"# (?:above \d+\.|end \d+\.|tail)", after)) == sorted(comments)
    assert in_todays_spelling("run_tasks", HERE, after) == after


# --- the verb -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A registry of v0.2 with one definition that is in today's form."""
    for name, text in {
        "runs/snils.yaml": RUN_TASK,
        "metrics/cer.yaml": "schema_version: 1\nname: cer\nplugin: cer\n",
        "experiments/pilot.yaml": "name: pilot\ntasks: [snils]\n",
    }.items():
        (tmp_path / "r" / name).parent.mkdir(parents=True)
        (tmp_path / "r" / name).write_text(text)
    return tmp_path / "r"


def files(folder: Path) -> dict[str, str]:
    return {
        str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()
    }


def test_a_folder_is_rewritten_where_it_is(folder: Path, cli: Cli) -> None:
    before = files(folder)
    shown = cli.both("import", folder, "--from", "v02", "--dry-run")
    assert "-custom_packages:\n" in shown.out
    assert "\n+packages:\n" in shown.out
    assert f"+++ {folder}/run_tasks/snils.yaml" in shown.out
    assert "2 files would be rewritten" in shown.err
    assert files(folder) == before
    assert cli("import", folder, "--from", "v02") == shown.out
    assert files(folder) == {
        "run_tasks/snils.yaml": TODAY,
        "metrics/cer.yaml": before["metrics/cer.yaml"],
        "experiments/pilot.yaml": "schema_version: 1\nname: pilot\nrun_tasks: [snils]\n",
    }
    (folder / "frameworks").mkdir()
    (folder / "frameworks/vllm.yaml").write_text("name: vllm\ndefault_backend_class: a.B\n")
    printed = cli.both("import", folder, "--from", "v02", "--json")
    assert json.loads(printed.out) == {
        "written": True, "files": [], "left": [str(folder / "frameworks/vllm.yaml")],
    }  # fmt: skip
    assert printed.err.startswith(
        f"! {folder}/frameworks/vllm.yaml is left as it is: no kind of definition has a folder frameworks/"
    )


def test_after_a_kill_the_rest_is_done(folder: Path) -> None:
    (folder / "run_tasks").mkdir()
    (folder / "run_tasks/snils.yaml").write_text(TODAY)  # and the old file is still there
    assert main(["import", str(folder), "--from", "v02"]) == 0
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("name", "text", "reported"),
    [
        ("reports/a.yaml", "name: [", "reports/a.yaml:"),
        ("runs/b.yaml", "name: b\nml_task: VQA\ndataset: d\nmodel: {name: m, package_manager: conda}\n",
         "runs/b.yaml:4:18: packages cannot be installed with 'conda'"),
        ("run_tasks/snils.yaml", "name: other\n", "run_tasks/snils.yaml exists already"),
    ],
)  # fmt: skip
def test_one_mistake_leaves_all_files_as_they_are(
    folder: Path, cli: Cli, name: str, text: str, reported: str
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    before = files(folder)
    assert reported in cli.err("import", folder, "--from", "v02")
    assert files(folder) == before


def test_what_is_no_registry_is_refused(tmp_path: Path, folder: Path, cli: Cli) -> None:
    for place, reported in (
        (tmp_path / "none", "no such folder"),
        (tmp_path, "has no definitions"),
    ):
        assert reported in cli.err("import", place, "--from", "v02")
    assert "leave --out out" in cli.err("import", folder, "--from", "v02", "--out", "x")
