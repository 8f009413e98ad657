"""Overlays: what lies over what, where every value came from, and `--set` as the last word."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.main import main
from hpcbench.errors import UserError
from hpcbench.registry.catalog import Catalog, run_mode
from hpcbench.registry.settings import Setting
from hpcbench.registry.source import overlay, parse
from hpcbench.schema.model import Model
from hpcbench.schema.prompt import Prompt
from tests.conftest import ROOT
from tests.unit.command import Cli
from tests.unit.registries import PLAN, Files


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("HPCBENCH_SITE", str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    return Files(tmp_path)


def laid(base: str, *over: str) -> dict[str, object]:
    source = parse(Path("base.yaml"), base)
    for number, text in enumerate(over):
        source = overlay(source, parse(Path(f"over{number}.yaml"), text))
    data: dict[str, object] = source.data
    return data


# --- the rules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "over", "result"),
    [
        ("a: {b: 1, c: 2}", "a: {c: 3, d: 4}", {"a": {"b": 1, "c": 3, "d": 4}}),
        ("a: [1, 2]", "a: [3]", {"a": [3]}),
        ("a: [1, 2]", "+a: [3]", {"a": [1, 2, 3]}),
        ("b: 1", "+a: [3]", {"b": 1, "a": [3]}),
        ("a: {b: 1, c: 2}", "a: {b: null}", {"a": {"c": 2}}),
        ("a: 1\nb: 2", "a: null", {"b": 2}),
        ("a: {b: 1}", "a: 5", {"a": 5}),
        ("a: 5", "a: {b: 1}", {"a": {"b": 1}}),
        ("a: {b: {c: [1]}}", "a: {b: {+c: [2]}}", {"a": {"b": {"c": [1, 2]}}}),
        ("a: 1", "nothing: null", {"a": 1}),
    ],
)
def test_maps_merge_lists_replace_plus_appends_and_null_deletes(
    base: str, over: str, result: object
) -> None:
    assert laid(base, over) == result


@pytest.mark.parametrize(
    ("base", "over", "reported"),
    [
        (
            "a: 5",
            "b: 1\n+a: [3]",
            "over.yaml:2:5: '+a' appends to a list, but 'a' is not a list in the lower definition",
        ),
        ("a: [5]", "+a: 3", "over.yaml:1:5: '+a' must be a list"),
    ],
)
def test_a_plus_without_lists_is_reported_at_its_place(base: str, over: str, reported: str) -> None:
    with pytest.raises(UserError) as caught:
        overlay(parse(Path("base.yaml"), base), parse(Path("over.yaml"), over))
    assert str(caught.value) == reported


plain = st.recursive(
    st.integers() | st.booleans() | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner)
    ),
    max_leaves=8,
)
maps = st.dictionaries(st.text("xyz", min_size=1, max_size=2), plain, max_size=4)


def as_yaml(data: object) -> str:
    import yaml

    return yaml.safe_dump(data)


@pytest.mark.long
@given(base=maps, over=maps)
def test_an_overlay_wins_wherever_it_speaks_and_changes_nothing_else(
    base: dict[str, object], over: dict[str, object]
) -> None:
    both = laid(as_yaml(base) if base else "{}", as_yaml(over) if over else "{}")
    assert set(both) == set(base) | set(over)
    for key, value in both.items():
        if key not in over:
            assert value == base[key]
        elif not isinstance(over[key], dict) or not isinstance(base.get(key), dict):
            assert value == over[key]
    assert laid(as_yaml(both) if both else "{}", as_yaml(over) if over else "{}") == both


@pytest.mark.long
@given(base=maps, over=maps)
def test_every_value_of_the_result_has_a_place_in_one_of_the_files(
    base: dict[str, object], over: dict[str, object]
) -> None:
    source = overlay(
        parse(Path("base"), as_yaml(base) if base else "{}"),
        parse(Path("over"), as_yaml(over) if over else "{}"),
    )

    def walk(data: object, loc: tuple[str | int, ...]) -> None:
        assert loc in source.marks
        entries = (
            data.items()
            if isinstance(data, dict)
            else enumerate(data if isinstance(data, list) else ())
        )
        for key, value in entries:
            walk(value, (*loc, key))

    walk(source.data, ())


# --- registries -----------------------------------------------------------------------------------------


def test_the_search_path_is_shipped_site_user_project_then_given(
    files: Files, tmp_path: Path
) -> None:
    said = []
    for registry in ("site", "config/hpcbench", "registries", "given"):
        files.write("prompts/vote.yaml", f"name: vote\nuser: {registry}\n", registry)
        given = [tmp_path / "given"] if registry == "given" else []
        said.append(Catalog(given).get(Prompt, "vote").user)
    assert said == ["site", "config/hpcbench", "registries", "given"]


def test_an_overlay_counts_in_dev_only(files: Files) -> None:
    files.write("models/org/tiny.dev.yaml", "dtype: float32\nengine_options: {max_num_seqs: 4}\n")
    assert Catalog([files.registry], mode="prod").get(Model, "org/tiny").dtype == "auto"
    model = Catalog([files.registry], mode="dev").get(Model, "org/tiny")
    assert (model.dtype, dict(model.engine_options)) == ("float32", {"max_num_seqs": 4})


def test_an_overlay_of_a_later_registry_lies_over_a_definition_below(
    files: Files, tmp_path: Path
) -> None:
    files.write("models/org/tiny.dev.yaml", "dtype: float32\n", "later")
    catalog = Catalog([files.registry, tmp_path / "later"], mode="dev")
    assert catalog.get(Model, "org/tiny").dtype == "float32"
    assert [path.name for path in catalog.files("models", "org/tiny")] == [
        "tiny.yaml",
        "tiny.dev.yaml",
    ]


def test_a_definition_of_a_later_registry_hides_overlays_below_it(
    files: Files, tmp_path: Path
) -> None:
    files.write("models/org/tiny.dev.yaml", "dtype: float32\n")
    files.write("models/org/tiny.yaml", "name: org/tiny\nsource: x\nengine: vllm\n", "later")
    catalog = Catalog([files.registry, tmp_path / "later"], mode="dev")
    assert catalog.get(Model, "org/tiny").dtype == "auto"
    assert len(catalog.hidden("models", "org/tiny")) == 2


def test_a_mistake_in_an_overlay_is_reported_in_the_overlay(files: Files) -> None:
    files.write("models/org/tiny.dev.yaml", "# for laptops\ndtyp: float32\n")
    assert files.refusal(mode="dev") == [
        "registry/models/org/tiny.dev.yaml:2:1: unknown key 'dtyp' (did you mean 'dtype'?)"
    ]


def test_a_path_in_an_overlay_is_relative_to_the_overlay(files: Files, tmp_path: Path) -> None:
    files.write("models/org/tiny.dev.yaml", "source: here\n", "later")
    found = files.resolved(mode="dev", more=[tmp_path / "later"])
    assert found.run_tasks[0].model.source == str(tmp_path / "later/models/org/here")


def test_a_plan_has_an_overlay_of_its_own(files: Files) -> None:
    (files.folder / "p.dev.yaml").write_text("parallelism: 7\n")
    assert files.resolved(mode="dev").plan.parallelism == 7
    assert files.resolved(mode="prod").plan.parallelism == 1


def test_run_mode_is_prod_or_dev_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUN_MODE", raising=False)
    assert run_mode() == "prod"
    monkeypatch.setenv("RUN_MODE", "test")
    with pytest.raises(UserError, match="RUN_MODE is 'test'"):
        run_mode()


# --- --set ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "read"),
    [
        ("parallelism=3", lambda plan: plan.plan.parallelism == 3),
        ("run_tasks.0.limit=5", lambda plan: plan.run_tasks[0].task.limit == 5),
        ("run_tasks.first.limit=5", lambda plan: plan.run_tasks[0].task.limit == 5),
        ("run_tasks.first.generation.max_tokens=9",
         lambda plan: plan.run_tasks[0].task.generation.max_tokens == 9),
        ("run_tasks.first.metrics=[anls]", lambda plan: len(plan.run_tasks[0].metrics) == 1),
        ("models/org/tiny:dtype=float16", lambda plan: plan.run_tasks[0].model.dtype == "float16"),
        ("models/org/tiny:engine_options.max_num_seqs=4",
         lambda plan: plan.run_tasks[0].model.engine_options["max_num_seqs"] == 4),
        ("+reports=[markdown]", lambda plan: [one.name for one in plan.reports] == ["markdown", "html"]),
        ("description=a = b", lambda plan: plan.plan.description == "a = b"),
        ("parallelism=null", lambda plan: plan.plan.parallelism == 1),
    ],
)  # fmt: skip
def test_set_is_the_last_overlay(files: Files, setting: str, read: object) -> None:
    text = PLAN + "parallelism: 2\nreports: [markdown, html]\n"
    assert read(files.resolved(text, setting))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("setting", "reported"),
    [
        ("parallelism", "must have the form path.to.key=value"),
        ("=3", "must have the form path.to.key=value"),
        ("a..b=3", "must have the form path.to.key=value"),
        ("modles/x:a=1", "unknown kind of definition 'modles' (did you mean 'models'?)"),
        ("parallelism=[1", "expected ',' or ']'"),
        ("run_tasks.frist.limit=1", "unknown entry 'frist' (did you mean 'first'?)"),
        ("name.x=1", "there is no 'x' in 'small'"),
        ("parallelism=many", "parallelism: must be a whole number"),
        ("paralelism=2", "unknown key 'paralelism' (did you mean 'parallelism'?)"),
        ("load.requests=0", "load.requests: must be greater than 0"),
        ("models/org/other:dtype=float16", "the plan does not use models/org/other"),
        ("+run_tasks=5", "`+` appends a list to a list"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_own_text(
    files: Files, setting: str, reported: str
) -> None:
    (problem,) = files.refusal(PLAN, setting)
    assert problem.startswith(f"--set {setting}: ")
    assert reported in problem


@given(st.text(max_size=40))
def test_any_text_is_a_setting_or_a_mistake(text: str) -> None:
    try:
        Setting.read(text)
    except UserError as error:
        assert error.problems  # noqa: PT017 - most text is no setting


# --- the command line -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "mistakes"),
    [
        ("submit PLAN --limit 0 --pilot -1", ["--limit 0: limit: must", "--pilot -1: pilot: must"]),
        ("submit PLAN --set limit=0 --max-gpu-hours 0", ["--set limit=0: ", "--max-gpu-hours 0.0: "]),
        ("load PLAN --requests 0 --dry-run", ["--requests 0: load.requests: must"]),
        ("ab PLAN --a model.dtype=float1 --b model.dtype=float16 --metric anls --limit 0",
         ["--limit 0: ", "--a model.dtype=float1: "]),
    ],
)  # fmt: skip
def test_a_mistake_names_the_option_that_the_user_typed(
    words: str, mistakes: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    plan = ROOT / "examples/demo/plan.yaml"
    lines = cli.err(
        *([str(plan) if word == "PLAN" else word for word in words.split()])
    ).splitlines()
    assert len(lines) == len(mistakes)
    for line, start in zip(lines, mistakes, strict=True):
        assert line.startswith(start)


def test_show_resolved_tells_where_every_value_came_from(
    files: Files, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUN_MODE", "dev")
    files.write("models/org/tiny.dev.yaml", "dtype: float32\n")
    arguments = ["registry", "show", "models/org/tiny", "--resolved", "--registry", files.registry]
    lines = {
        line.split(":")[0]: line
        for line in cli(*arguments, "--set", "models/org/tiny:gpus=0").splitlines()
    }
    assert lines["engine"].endswith("registry/models/org/tiny.yaml:3")
    assert lines["dtype"].endswith("registry/models/org/tiny.dev.yaml:1")
    assert lines["gpus"].endswith("# --set models/org/tiny:gpus=0:1")
    assert lines["load_timeout"].endswith("# default")


def test_where_tells_what_counts_and_what_does_not(files: Files, cli: Cli) -> None:
    files.write("prompts/ask.yaml", "name: ask\nuser: older\n", "registries")
    files.write("prompts/ask.dev.yaml", "user: newer\n")
    out = cli("registry", "where", "ask", "--registry", files.registry).splitlines()
    assert out[0] == f"{files.registry}/prompts/ask.yaml  (--registry)"
    assert sorted(line.rpartition("(")[2] for line in out[1:]) == [
        "--registry, not used)",
        "project, not used)",
    ]


def test_diff_shows_what_differs_and_says_so_by_its_exit_code(files: Files, cli: Cli) -> None:
    files.write("prompts/two.yaml", "name: two\nuser: x\n")
    arguments = ["--registry", str(files.registry)]
    printed = cli("registry", "diff", "prompts/ask", "prompts/two", *arguments, code=1)
    assert "-user: '{{ question }}'\n+user: x" in printed
    assert main(["registry", "diff", "ask", "ask", *arguments]) == 0


def test_programs_get_problems_as_data(files: Files, cli: Cli) -> None:
    plan = files.plan(PLAN.replace("dataset: pages", "dataset: pagse"))
    (problem,) = cli.json("validate", plan, "--registry", files.registry, "--json", code=2)[
        "problems"
    ]
    assert (problem["file"], problem["line"], problem["column"]) == (str(plan), 6, 14)
    assert problem["message"].startswith("unknown dataset 'pagse' (did you mean 'pages'?)")


@pytest.mark.long
def test_a_refusal_as_data_is_for_people_also_a_line_unless_one_terminal_shows_both(
    files: Files, cli: Cli
) -> None:
    plan = files.plan(PLAN.replace("dataset: pages", "dataset: pagse"))
    words = ["submit", str(plan), "--registry", str(files.registry), "--json"]
    shown = cli.both(*words, code=2)
    (problem,) = json.loads(shown.out)["problems"]
    assert problem["message"] in shown.err and f"{plan}:6:14: " in shown.err
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "hpcbench.cli.main", *words],
        stdout=theirs,
        stderr=theirs,
        check=False,
    )
    assert done.returncode == 2
    assert json.loads(os.read(ours, 65536)) == {"problems": [problem]}
    os.close(ours)
    os.close(theirs)


@pytest.mark.long
def test_a_refusal_whose_data_is_not_read_is_no_bug(files: Files) -> None:
    plan = files.plan(PLAN.replace("dataset: pages", "dataset: pagse"))
    words = ["validate", str(plan), "--registry", str(files.registry), "--json"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-u", "-m", "hpcbench.cli.main", *words],
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{plan}:6:14: unknown dataset 'pagse'")
    assert done.stderr.count("\n") == 1
