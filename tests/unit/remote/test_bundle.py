"""Parcel of a plan: the definitions it names, what they name by path, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.errors import UserError
from hpcbench.remote.plan_bundle import Bundle, bundle, rewritten

ROOT = "/home/there/hpcbench/remote"

RUN_TASK = {
    "name": "vqa", "ml_task": "vqa", "model": "tiny-vlm", "dataset": "mine", "prompt": "demo_vqa",
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCBENCH_SITE", str(tmp_path / "site"))
    monkeypatch.delenv("RUN_MODE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.jsonl").write_text("{}\n")
    (tmp_path / "data/.hidden").write_text("secret")
    definition(tmp_path, "datasets/mine", source="../../data", annotations="a.jsonl")
    return tmp_path


def definition(here: Path, name: str, **fields: Any) -> Path:
    path = here / "registries" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"schema_version": 1, "name": name.partition("/")[2].removesuffix(".dev"), **fields}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def write_plan(here: Path, *run_tasks: Any, **fields: Any) -> Path:
    path = here / "plan.yaml"
    data = {"schema_version": 1, "name": "plan", "run_tasks": list(run_tasks), **fields}
    path.write_text("# my plan\n" + yaml.safe_dump(data, sort_keys=False))
    return path


def bundled(
    plan: Path,
    settings: Sequence[str] = (),
    present: Collection[str] = (),
    mode: Any = "prod",
    registries: Sequence[Path] = (),
) -> Bundle:
    return bundle(
        plan,
        registries,
        settings,
        mode,
        root=ROOT,
        present=lambda paths: [path for path in paths if path in present],
    )


def sent(made: Bundle) -> dict[str, bytes]:
    """Path there → content."""
    found = {}
    for parcel in made.parcels:
        for file in parcel.files:
            content = made.contents[file.sha256]
            data = content if isinstance(content, bytes) else content.read_bytes()
            found[f"{ROOT}/{parcel.name}/{file.path}"] = data
    return found


def definitions(made: Bundle) -> dict[str, Any]:
    """`KIND/NAME` → what the definition says there."""
    folder = made.plan.rpartition("/")[0]
    return {
        path.removeprefix(folder).partition("/registry-")[2].partition("/")[2]: yaml.safe_load(data)
        for path, data in sent(made).items()
        if path.startswith(folder) and "/registry-" in path
    }


def test_the_plan_its_definitions_and_their_data_go_along_and_find_each_other(here: Path) -> None:
    made = bundled(write_plan(here, RUN_TASK))
    files = sent(made)
    assert files[made.plan] == (here / "plan.yaml").read_bytes()
    assert list(definitions(made)) == ["datasets/mine.yaml"]
    data = definitions(made)["datasets/mine.yaml"]["source"]
    assert files[f"{data}/a.jsonl"] == b"{}\n"
    assert not any(".hidden" in path for path in files)
    assert all(registry.startswith(f"{ROOT}/") for registry in made.registries)
    assert made.here[data] == str(here / "data")


def test_definitions_that_the_plan_does_not_name_stay_here(here: Path) -> None:
    definition(here, "datasets/other", source="../../no-such-folder")
    definition(here, "sites/lab", ssh={"host": "lab"})
    assert list(definitions(bundled(write_plan(here, RUN_TASK)))) == ["datasets/mine.yaml"]


def test_the_same_plan_is_the_same_bundle_and_a_word_in_it_moves_no_data(here: Path) -> None:
    def names(made: Bundle) -> set[str]:
        return {parcel.name for parcel in made.parcels}

    first, again = (bundled(write_plan(here, RUN_TASK)) for _ in range(2))
    changed = bundled(write_plan(here, RUN_TASK, description="another"))
    assert names(first) == names(again)
    assert first.plan == again.plan
    assert len(names(first) & names(changed)) == len(names(first)) - 1


def test_a_path_that_is_absolute_and_there_stays(here: Path) -> None:
    definition(here, "datasets/mine", source="/lustre/data", annotations="a.jsonl")
    made = bundled(write_plan(here, RUN_TASK), present=["/lustre/data"])
    assert definitions(made)["datasets/mine.yaml"]["source"] == "/lustre/data"
    assert made.stay == ["/lustre/data"]
    assert len(made.parcels) == 1


def test_an_absolute_path_that_is_only_here_goes_along(here: Path) -> None:
    definition(here, "datasets/mine", source=str(here / "data"), annotations="a.jsonl")
    made = bundled(write_plan(here, RUN_TASK))
    assert definitions(made)["datasets/mine.yaml"]["source"].startswith(ROOT)


def test_a_path_that_is_nowhere_is_reported_at_its_line(here: Path) -> None:
    definition(here, "datasets/mine", source="/lustre/none", annotations="a.jsonl")
    with pytest.raises(
        UserError,
        match="datasets/mine.yaml:3:9: /lustre/none exists neither on this machine nor on the cluster",
    ):
        bundled(write_plan(here, RUN_TASK))


def test_mistakes_in_definitions_are_reported_before_anything_goes(here: Path) -> None:
    definition(here, "datasets/mine", sourc="x")
    with pytest.raises(UserError, match="did you mean 'source'"):
        bundled(write_plan(here, RUN_TASK))


def test_a_name_that_is_not_known_here_may_be_known_there(here: Path) -> None:
    task = {**RUN_TASK, "model": "only-there"}
    assert list(definitions(bundled(write_plan(here, task)))) == ["datasets/mine.yaml"]


@pytest.mark.parametrize("kind", ["yaml", "csv"])
def test_definitions_that_conditions_of_a_prompt_mean_go_along_without_their_data(
    here: Path, kind: str
) -> None:
    for name, field in (("forms", "field"), ("bills", "sum"), ("other", "question")):
        definition(here, f"datasets/{name}", source="../../no-such-folder", fields=[field])
    definition(here, "datasets/broken", fields=3)
    definition(here, "ml_tasks/mine", plugin="vqa", metrics=["anls"])
    if kind == "csv":
        (here / "c.csv").write_text("id;user;dataset;task;sum\na;A;bills;;\nb;B;;mine;\nc;C;;;1\n")
        (here / "d.csv").write_text("id;user;field\na;A;total\n")
        entries: dict[str, Any] = {"collection": "../../c.csv"}
        definition(here, "prompts/more", collection="../../d.csv", user="D")
    else:
        whens = ({"dataset": "bills"}, {"task": "mine"}, {"sum": 1})
        entries = {
            "prompts": [{"id": f"{i}", "user": "A", "when": when} for i, when in enumerate(whens)]
        }
        definition(
            here, "prompts/more", prompts=[{"id": "a", "user": "A", "when": {"field": "total"}}]
        )
    definition(here, "prompts/mine", user="B", **entries)
    tasks = [{**RUN_TASK, "name": name, "prompt": name} for name in ("mine", "more")]
    found = definitions(bundled(write_plan(here, *tasks)))
    assert sorted(found) == [
        "datasets/bills.yaml", "datasets/forms.yaml", "datasets/mine.yaml", "ml_tasks/mine.yaml",
        "prompts/mine.yaml", "prompts/more.yaml",
    ]  # fmt: skip
    assert found["datasets/bills.yaml"]["source"] == "../../no-such-folder"


def test_everything_a_definition_names_goes_along_too(here: Path) -> None:
    (here / "image").mkdir()
    (here / "image/Dockerfile").write_text("FROM x\nCOPY more.txt /\n")
    (here / "image/more.txt").write_text("more")
    (here / "lone").mkdir()
    (here / "lone/engine.def").write_text("Bootstrap: docker\nFrom: x\n")
    (here / "lone/large").write_text("not needed")
    (here / "plugins").mkdir()
    (here / "plugins/pyproject.toml").write_text("[project]\nname='x'\n")
    (here / "shots.png").write_bytes(b"png")
    (here / "prompts.csv").write_text("id;user\n1;hi\n")
    definition(here, "images/mine", recipe="../../image/Dockerfile")
    definition(here, "models/mine", source="hf://a/b", engine="vllm", image="mine")
    definition(here, "models/base", source="hf://a/b", engine="vllm")
    definition(
        here, "prompts/mine", user="hi", collection="../../prompts.csv",
        examples=[{"answer": "1", "images": ["../../shots.png"]}],
    )  # fmt: skip
    definition(
        here, "packages/mine", source={"type": "local", "path": "../../plugins"},
        provides={"metrics": ["my_metric"]},
    )  # fmt: skip
    definition(here, "metrics/mine", plugin="my_metric")
    tasks = [
        {**RUN_TASK, "model": "mine", "prompt": "mine", "metrics": ["mine"]},
        {**RUN_TASK, "name": "b", "model": {"name": "base", "image": "lone/engine.def"}},
    ]

    made = bundled(write_plan(here, *tasks))

    there, files = definitions(made), sent(made)
    assert files[there["prompts/mine.yaml"]["examples"][0]["images"][0]] == b"png"
    assert files[there["prompts/mine.yaml"]["collection"]].startswith(b"id")
    recipe = there["images/mine.yaml"]["recipe"]
    assert recipe.endswith("/Dockerfile")
    assert files[recipe.replace("Dockerfile", "more.txt")] == b"more"
    assert files[f"{there['packages/mine.yaml']['source']['path']}/pyproject.toml"]
    plan = yaml.safe_load(files[made.plan])
    assert files[plan["run_tasks"][1]["model"]["image"]].startswith(b"Bootstrap")
    assert b"not needed" not in files.values()


def test_text_before_and_after_a_path_stays(here: Path) -> None:
    (here / "layout").mkdir()
    (here / "layout/index.json").write_text("{}")
    definition(here, "models/mine", source="hf://a/b", engine="vllm", image="oci:../../layout:v1")
    made = bundled(write_plan(here, {**RUN_TASK, "model": "mine"}))
    image = definitions(made)["models/mine.yaml"]["image"]
    assert image.startswith(f"oci:{ROOT}/")
    assert image.endswith("/layout:v1")


def test_an_environment_of_this_machine_is_refused(here: Path) -> None:
    definition(here, "models/mine", source="hf://a/b", engine="vllm", image="venv:../../data")
    with pytest.raises(UserError, match="cannot send an environment"):
        bundled(write_plan(here, {**RUN_TASK, "model": "mine"}))


def test_overlays_go_along_in_dev_only(here: Path) -> None:
    (here / "small").mkdir()
    (here / "small/a.jsonl").write_text("small\n")
    definition(here, "datasets/mine.dev", source="../../small")
    plan = write_plan(here, RUN_TASK)
    assert list(definitions(bundled(plan))) == ["datasets/mine.yaml"]
    made = bundled(plan, mode="dev")
    there = definitions(made)
    assert there["datasets/mine.yaml"]["source"] == "../../data", "what is laid over is not carried"
    assert sent(made)[f"{there['datasets/mine.dev.yaml']['source']}/a.jsonl"] == b"small\n"


def test_a_path_in_a_setting_goes_along(here: Path) -> None:
    (here / "small").mkdir()
    (here / "small/a.jsonl").write_text("small\n")
    settings = [f"datasets/mine:source={here}/small", "run_tasks.vqa.limit=3"]
    made = bundled(write_plan(here, RUN_TASK), settings)
    assert made.settings[1] == "run_tasks.vqa.limit=3"
    left, _, value = made.settings[0].partition("=")
    assert left == "datasets/mine:source"
    assert sent(made)[f"{yaml.safe_load(value)}/a.jsonl"] == b"small\n"


def test_of_two_registries_with_one_definition_the_last_counts_there_too(here: Path) -> None:
    (here / "other/datasets").mkdir(parents=True)
    (here / "other/datasets/mine.yaml").write_text(
        "schema_version: 1\nname: mine\nsource: hf://x/y\n"
    )
    made = bundled(write_plan(here, RUN_TASK), registries=[here / "other"])
    assert [one["source"] for one in definitions(made).values()] == ["hf://x/y"]


def test_replacing_keeps_comments_quotes_of_others_and_anchors() -> None:
    text = (
        "# c\nname: &n 'x'   # why\nsource: &s ../a\nother: *s\nflow: {a: \"../b\", b: 1}\n"
        "long: >-\n  ../c\nlast: 1\n"
    )
    edits = {
        (3, 9): ("../a", "/new a"), (5, 11): ("../b", "/'b'"), (6, 7): ("../c", "/c"),
    }  # fmt: skip
    changed = rewritten(text, edits)
    assert yaml.safe_load(changed) == {
        "name": "x", "source": "/new a", "other": "/new a", "flow": {"a": "/'b'", "b": 1},
        "long": "/c", "last": 1,
    }  # fmt: skip
    assert "# why" in changed


def test_a_path_that_a_merge_brings_is_reported() -> None:
    with pytest.raises(UserError, match="write it in full"):
        rewritten("a: 1\nsource: b\n", {(2, 1): ("../x", "/y")})


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_any_path_can_be_written_into_a_definition(path: str) -> None:
    changed = rewritten("a: [x, y]\nb: z\n", {(1, 5): ("x", path)})
    assert yaml.safe_load(changed) == {"a": [path, "y"], "b": "z"}


def test_a_path_with_an_anchor_goes_along(here: Path) -> None:
    path = here / "registries/datasets/mine.yaml"
    path.write_text(
        "schema_version: 1\nname: mine\nsource: &data '../../data'\nannotations: a.jsonl\n"
        "notes: *data\n"
    )
    there = definitions(bundled(write_plan(here, RUN_TASK)))["datasets/mine.yaml"]
    assert there["source"] == there["notes"]
    assert there["source"].startswith(ROOT)
