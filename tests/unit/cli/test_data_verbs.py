"""The verbs about data, as users type them."""

from __future__ import annotations

import grp
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench.cli.output import _PlainProgress
from hpcbench.data.progress import Moved
from hpcbench.experiment.layout import Experiment
from hpcbench.registry.catalog import load_definition
from hpcbench.reporting.upload import upload_results
from hpcbench.schema.dataset import Dataset
from tests.unit.command import Cli
from tests.unit.small import experiment, record


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))


def a_dataset(folder: Path, count: int = 3) -> Path:
    folder.mkdir(parents=True)
    rows = []
    for number in range(count):
        Image.new("L", (30 + number, 20), number).save(folder / f"{number}.png")
        rows.append(
            {
                "qid": number,
                "image_path": f"{number}.png",
                "question": "Сколько?",
                "answer": f"{number} ₽",
            }
        )
    text = "qid;image_path;question;answer\n" + "".join(
        ";".join(map(str, row.values())) + "\n" for row in rows
    )
    (folder / "answers.csv").write_text(text, encoding="utf-8")
    return folder


def test_a_folder_is_added_checked_and_kept(tmp_path: Path, cli: Cli) -> None:
    a_dataset(tmp_path / "far away")
    source, registry = f"file://{tmp_path}/far%20away", str(tmp_path / "registry")
    out = cli("data", "add", source, "--name", "team/bills", "--out", registry)
    assert "registry/datasets/team/bills.yaml" in out
    more = ("--registry", registry)
    found = cli.json("data", "check", "team/bills", "--out", tmp_path / "sheet", "--json", *more)
    assert (found["samples"], found["fields"], found["formats"]) == (3, {"question": 3}, {"PNG": 3})
    assert found["sizes"] == {"smallest": "30x20", "median": "31x20", "largest": "32x20"}
    with Image.open(tmp_path / "sheet/sheet.png") as sheet:
        assert sheet.width > 1000
    assert "Сколько?" in (tmp_path / "sheet/index.html").read_text()
    (version,) = cli.json("data", "list", "--json")
    assert (version["source"], version["files"]) == (source, 4)
    (synced,) = cli.json("data", "sync", "team/bills", "--json", *more)
    assert synced["path"] == version["path"]
    assert "4 files are unchanged" in cli("data", "verify")


def test_a_folder_of_any_name_gets_a_name_that_definitions_may_have(
    tmp_path: Path, cli: Cli
) -> None:
    odd, registry = a_dataset(tmp_path / "My (Set) №1"), str(tmp_path / "registry")
    out = cli("data", "add", odd, "--out", registry)
    assert "registry/datasets/my_set_1.yaml" in out
    out = cli("data", "add", a_dataset(tmp_path / "Счета"), "--out", registry)
    (scheta,) = (tmp_path / "registry/datasets").glob("scheta+*.yaml")
    assert str(scheta) in out
    assert load_definition(Dataset, scheta)[0].name == "счета"
    out = cli("data", "add", odd, "--name", "set №2", "--out", registry)
    assert load_definition(Dataset, next(scheta.parent.glob("set-*+*.yaml")))[0].name == "set №2"
    said = cli.err("data", "add", odd, "--name", "../set №1", "--out", registry)
    assert "--name '../set №1': a name must be one line" in (reported := said)
    assert "--name set_1" in reported


def test_what_is_broken_is_reported_and_is_an_exit_code(tmp_path: Path, cli: Cli) -> None:
    folder = a_dataset(tmp_path / "d")
    (folder / "1.png").write_text("no image")
    (folder / "2.png").write_bytes((folder / "0.png").read_bytes())
    cli("data", "add", folder, "--out", tmp_path / "r")
    out = tmp_path / "out"
    reported = cli.both("data", "check", "d", "--out", out, "--registry", tmp_path / "r", code=1)
    assert "answers.csv:3: sample '1': " in reported.out
    assert "several documents have the same image: 0, 2" in reported.out
    assert "1 rows or samples of d are unusable" in reported.err
    assert (out / "sheet.png").exists()


def test_damage_is_found_and_repaired(tmp_path: Path, cli: Cli) -> None:
    a_dataset(tmp_path / "d")
    source = f"file://{tmp_path}/d"
    (synced,) = cli.json("data", "sync", source, "--json")
    broken = Path(synced["path"]) / "1.png"
    good, stat = broken.read_bytes(), broken.stat()
    broken.write_bytes(good[:-1] + b"?")
    os.utime(broken, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "1.png is damaged" in cli("data", "verify", code=1)
    assert "1.png was repaired" in cli("data", "verify", "--repair")
    assert broken.read_bytes() == good
    assert "files are unchanged" in cli("data", "verify")


def spoil(path: Path) -> bytes:
    """Flip bits of a file without a trace in its size and times; returns what was in it."""
    good, stat = path.read_bytes(), path.stat()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return good


def a_model(folder: Path, source: str) -> tuple[str, ...]:
    """A definition of a model `m`; returns how to name its registry."""
    (folder / "models").mkdir(parents=True)
    text = f"schema_version: 1\nname: m\nsource: {source}\nengine: huggingface\n"
    (folder / "models/m.yaml").write_text(text)
    return ("--registry", str(folder))


def weights(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"w" * 1000)
    return folder


@pytest.mark.long
def test_weights_in_the_cache_are_read_on_request_and_repaired(tmp_path: Path, cli: Cli) -> None:
    more = a_model(tmp_path / "r", f"file://{weights(tmp_path / 'm')}")
    (fetched,) = cli.json("models", "fetch", "m", "--json", *more)
    assert "content_hash: sha256:" in cli("models", "verify", "m", *more)
    assert "m matches its definition" in cli("models", "verify", "m", *more)
    broken = Path(fetched["path"]) / "model.safetensors"
    good = spoil(broken)
    said = cli("models", "verify", "m", *more, code=1)
    assert "model.safetensors is damaged" in said
    assert "matches its definition" not in said
    said = cli("models", "verify", "m", "--repair", *more)
    assert "model.safetensors was repaired" in said
    assert "m matches its definition" in said
    assert broken.read_bytes() == good


def test_damaged_weights_are_not_locked(tmp_path: Path, cli: Cli) -> None:
    more = a_model(tmp_path / "r", f"file://{weights(tmp_path / 'm')}")
    (fetched,) = cli.json("models", "fetch", "m", "--json", *more)
    spoil(Path(fetched["path"]) / "model.safetensors")
    cli("models", "verify", "m", *more, code=1)
    assert "content_hash" not in (tmp_path / "r/models/m.yaml").read_text()


@pytest.mark.parametrize("lost", [["model.safetensors"], ["model.safetensors", "config.json"]])
def test_what_is_locked_after_a_repair_knows_the_files_that_were_missing(
    tmp_path: Path, cli: Cli, lost: list[str]
) -> None:
    more = a_model(tmp_path / "r", f"file://{weights(tmp_path / 'm')}")
    (fetched,) = cli.json("models", "fetch", "m", "--json", *more)
    for name in lost:
        (Path(fetched["path"]) / name).unlink()
    cli("models", "verify", "m", "--repair", *more)
    assert "m matches its definition" in cli("models", "verify", "m", *more)


def test_weights_in_a_folder_are_read_again_however_often_they_were_hashed(
    tmp_path: Path, cli: Cli
) -> None:
    more = a_model(tmp_path / "r", str(weights(tmp_path / "m")))
    cli("models", "verify", "m", *more)
    assert "m matches its definition" in cli("models", "verify", "m", *more)
    spoil(tmp_path / "m/model.safetensors")
    assert "the files have another hash: sha256:" in cli.err("models", "verify", "m", *more)


@pytest.mark.parametrize("by", ["url", "key"])
def test_weights_without_a_definition_are_verified_by_url_or_key(
    tmp_path: Path, cli: Cli, by: str
) -> None:
    url = f"file://{weights(tmp_path / 'm')}"
    (fetched,) = cli.json("models", "fetch", url, "--json")
    name = url if by == "url" else Path(fetched["path"]).parent.name[:8]
    assert "2 files are unchanged" in cli("models", "verify", name)
    spoil(Path(fetched["path"]) / "config.json")
    assert "config.json is damaged" in cli("models", "verify", name, code=1)
    assert "config.json was repaired" in cli("models", "verify", name, "--repair")


def test_an_unknown_model_is_reported(cli: Cli) -> None:
    assert "did you mean 'tiny-vlm'?" in cli.err("models", "verify", "tiny-vml")


def test_pruning_tells_first_and_takes_the_oldest(tmp_path: Path, cli: Cli) -> None:
    for name in ("one", "two"):
        a_dataset(tmp_path / name)
        cli("data", "sync", f"file://{tmp_path}/{name}")
    assert cli("data", "prune", "--free", "1") == "", "an experiment may be about to use it"
    for number, one in enumerate(versions(cli)):
        os.utime(Path(one["path"]).parent / "used", (9 - number, 9 - number))
    dry = cli("data", "prune", "--free", "0.0000001", "--dry-run")
    assert f"file://{tmp_path}/one" in dry
    assert f"file://{tmp_path}/two" not in dry
    assert len(cli.json("data", "list", "--json")) == 2
    assert cli("data", "prune", "--free", "0.0000001") == dry
    (left,) = cli.json("data", "list", "--json")
    assert left["source"] == f"file://{tmp_path}/two"


def versions(cli: Cli) -> list[dict[str, Any]]:
    """The one that was used last comes first."""
    found: list[dict[str, Any]] = cli.json("data", "list", "--json")
    return found


def test_pruning_takes_what_was_used_today_only_if_asked(tmp_path: Path, cli: Cli) -> None:
    a_dataset(tmp_path / "d")
    cli("data", "sync", f"file://{tmp_path}/d")
    assert cli("data", "prune", "--older", "1") == ""
    assert f"file://{tmp_path}/d" in cli("data", "prune", "--older", "0")
    assert versions(cli) == []


def test_pruning_counts_what_several_versions_share_when_the_last_goes(
    tmp_path: Path, cli: Cli
) -> None:
    folder = a_dataset(tmp_path / "d")
    (folder / "large.bin").write_bytes(bytes(5000))
    for number in range(2):
        (folder / "note.txt").write_text("x" * number)
        cli("data", "sync", f"file://{folder}")
    older = versions(cli)[1]["path"]
    os.utime(Path(older).parent / "used", (1, 1))
    assert "1 versions (0 bytes)" in cli.err("data", "prune", "--older", "1", "--dry-run", code=0)
    assert "2 versions (5." in cli.err("data", "prune", "--older", "0", "--dry-run", code=0)


def test_an_empty_cache_is_said_to_be_empty(tmp_path: Path, cli: Cli) -> None:
    said = cli.err("data", "prune", "--free", "1", code=0)
    assert f"{tmp_path}/home/cache/datasets has nothing else" in said
    cli("data", "sync", f"file://{a_dataset(tmp_path / 'd')}")
    printed = cli.err("data", "prune", "--free", "1", code=0)
    assert "cannot free more: the other versions are in use" in printed


def test_experiments_of_others_that_cannot_be_read_keep_what_they_may_use(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, days in (("old", 31), ("new", 5)):
        a_dataset(tmp_path / name)
        (one,) = cli.json("data", "sync", f"file://{tmp_path}/{name}", "--json")
        long_ago = time.time() - days * 86400
        os.utime(Path(one["path"]).parent / "used", (long_ago, long_ago))
    theirs = experiment(tmp_path / "home", [record(1)]).path
    access = os.access
    monkeypatch.setattr(
        os,
        "access",
        lambda path, how: theirs not in (Path(path), *Path(path).parents) and access(path, how),
    )
    assert "rt" not in cli("list")
    out = cli("data", "prune", "--older", "3")
    assert f"file://{tmp_path}/old" in out
    assert f"file://{tmp_path}/new" not in out
    long_ago = time.time() - 40 * 86400
    os.utime(theirs, (long_ago, long_ago))
    assert f"file://{tmp_path}/new" in cli("data", "prune", "--older", "3")


@pytest.mark.parametrize("readable", [True, False])
def test_an_experiment_that_is_removed_meanwhile_needs_nothing(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    source = f"file://{a_dataset(tmp_path / 'set')}"
    cli("data", "sync", source)
    going = experiment(tmp_path / "home", [record(1)]).path
    access = os.access

    def goes(path: str | Path, how: int) -> bool:
        if going in (Path(path), *Path(path).parents):
            if readable or Path(path) == going:
                shutil.rmtree(going, ignore_errors=True)
            return readable
        return access(path, how)

    monkeypatch.setattr(os, "access", goes)
    assert source in cli("data", "prune", "--older", "0")
    assert not going.exists()


def test_one_that_cannot_be_repaired_does_not_stand_in_the_way_of_others(
    tmp_path: Path, cli: Cli
) -> None:
    broken = []
    for name in ("one", "two", "three"):
        source = a_dataset(tmp_path / name)
        (synced,) = cli.json("data", "sync", f"file://{source}", "--json")
        broken.append(Path(synced["path"]) / "1.png")
        broken[-1].write_bytes(b"?")
    (tmp_path / "two/1.png").unlink()
    reported = cli.both("data", "verify", "--repair", "--json", code=1)
    assert "1 files are still damaged" in reported.err
    errors = {Path(one["source"]).name: one.get("error", "") for one in json.loads(reported.out)}
    assert "has changed since" in errors.pop("two")
    assert errors == {"one": "", "three": ""}
    assert [path.stat().st_size > 1 for path in broken] == [True, False, True]
    output = cli("data", "verify", "--repair", code=1)
    assert "two: 1.png is damaged" in output


def test_a_name_comes_before_the_beginning_of_a_key(tmp_path: Path, cli: Cli) -> None:
    registry = tmp_path / "r"
    sources = [f"file://{a_dataset(tmp_path / name)}" for name in ("one", "two")]
    cli("data", "sync", *sources)
    first, second = versions(cli)
    name = first["key"][:5]
    cli("data", "add", second["source"], "--name", name, "--out", registry)
    (found,) = cli.json("data", "verify", name, "--json", "--registry", registry)
    assert found["key"] == second["key"]
    (found,) = cli.json("data", "verify", first["key"][:6], "--json")
    assert found["key"] == first["key"]


def test_what_is_brought_is_shared_as_the_site_says(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = grp.getgrgid(os.getgid() if os.geteuid() else grp.getgrnam("users").gr_gid)
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/default.yaml").write_text(
        f"schema_version: 1\nname: default\numask: '002'\ngroup: {group.gr_name}\n"
    )
    monkeypatch.setenv("HPCBENCH_SITE", str(tmp_path))
    before = os.umask(0o077)
    try:
        source = a_dataset(tmp_path / "d")
        (synced,) = cli.json("data", "sync", f"file://{source}", "--json")
    finally:
        os.umask(before)
    made = [Path(synced["path"]), *Path(synced["path"]).rglob("*"), tmp_path / "home/cache"]
    assert {path.stat().st_gid for path in made} == {group.gr_gid}
    assert {oct(path.stat().st_mode) for path in made if path.is_dir()} == {"0o42775"}
    assert {oct(path.stat().st_mode) for path in made if path.is_file()} == {"0o100664"}


def test_piped_progress_has_a_rate_of_what_moved_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tell = _PlainProgress()
    tell(Moved("listing x"))
    tell(Moved("fetching", 50 << 20, 170 << 20, 1, 3))  # of an earlier try
    now += 20
    tell(Moved("fetching", 90 << 20, 170 << 20, 2, 3))
    assert capsys.readouterr().err.splitlines() == [
        "listing x",
        "fetching: 50.0 MiB of 170.0 MiB, 1 of 3 files",
        "fetching: 90.0 MiB of 170.0 MiB, 2 of 3 files, 2.0 MiB/s, 0:00:40 left",
    ]


def test_a_prompt_is_shown_as_the_model_gets_it(cli: Cli) -> None:
    asked = ("prompts", "show", "demo_vqa", "--sample", "easy-0001-code", "--prompt", "demo_vqa")
    shown = cli.json(*asked, "--model", "tiny-vlm", "--json")
    assert shown["prompt"] == "demo_vqa"
    assert shown["messages"][0]["text"] == "Which code is given?"
    assert shown["chat_template"] == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Which code is given?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert "easy/0001.png" in cli(*asked)
    said = cli.err("prompts", "show", "demo_vqa", "--sample", "none")
    assert "no sample has the id 'none'" in said


def a_registry(folder: Path, user: str, **models: str) -> Path:
    """A registry with the dataset `d`, the prompts `plain` and `other`, and models by their definitions."""
    a_dataset(folder / "d", 1)
    registry = folder / "registry"
    definitions = {
        "datasets/d": f"name: d\nsource: {folder}/d\nannotations: answers.csv\nfields: [question]\n"
        "mapping: {id: qid, images: image_path, references: answer, fields: {question: question}}\n"
        "options: {delimiter: ';'}\n",
        "prompts/plain": f"name: plain\nuser: {json.dumps(user)}\n",
        "prompts/other": "name: other\nuser: Other?\n",
        **{f"models/{name}": f"name: {name}\n{text}\n" for name, text in models.items()},
    }
    for name, text in definitions.items():
        path = registry / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"schema_version: 1\n{text}")
    return registry


def test_texts_are_shown_to_the_letter(tmp_path: Path, cli: Cli) -> None:
    text = "Is it :key: or\t[bold]a\ttab[/bold]?  " + "long " * 60
    registry = a_registry(tmp_path, text)
    shown = cli("prompts", "show", "d", "--prompt", "plain", "--registry", registry)
    assert f"\n{text}\n" in shown


REMOTE = "source: ''\nengine: remote\nengine_options: {base_url: 'https://x.example/v1', model: x}"


def test_a_model_without_a_template_here_still_gets_its_messages_shown(
    tmp_path: Path, cli: Cli
) -> None:
    registry = a_registry(tmp_path, "{{ question }}", far=REMOTE)
    asked = (
        "prompts",
        "show",
        "d",
        "--prompt",
        "plain",
        "--model",
        "far",
        "--registry",
        str(registry),
    )
    shown = cli.json(*asked, "--json")
    assert (shown["messages"][0]["text"], shown["chat_template"]) == ("Сколько?", None)
    assert shown["no_chat_template"].endswith(
        "the weights of model 'far' are not on this machine, so its chat template is unknown"
    )
    assert "Сколько?" in cli(*asked)


def test_of_a_plans_run_tasks_the_one_that_is_meant_is_shown(tmp_path: Path, cli: Cli) -> None:
    registry = a_registry(tmp_path, "{{ question }}", far=REMOTE)
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "schema_version: 1\nname: p\nexecutor: local\nmatrix:\n"
        "  - {ml_task: vqa, models: [far], datasets: [d], prompts: [plain, other]}\n"
    )
    asked = ("prompts", "show", "d", "--plan", str(plan), "--registry", str(registry), "--json")
    reported = cli.err(*asked)
    assert "several run tasks of 'd' send different prompts: far-d-plain, far-d-other" in reported
    assert cli.json(*asked, "--prompt", "other")["prompt"] == "other"
    by_name = ("prompts", "show", "far-d-plain", *asked[3:])
    assert cli.json(*by_name)["prompt"] == "plain"
    assert "the name or the dataset 'd' with prompt 'none'" in cli.err(*asked, "--prompt", "none")
    assert "--plan sets the ML task already" in cli.err(*asked, "--task", "vqa")


@pytest.mark.long
def test_the_commands_that_adding_a_folder_tells_can_be_typed(tmp_path: Path, cli: Cli) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    Image.new("L", (30, 20)).save(pages / "1.png")
    (pages / "1.txt").write_text("all of it")
    reported = cli("data", "add", pages, "--out", tmp_path / "r").splitlines()
    commands = [line.split()[1:] for line in reported if line.startswith("  hpcbench")]
    assert [words[:1] for words in commands] == [["submit"], ["data"], ["prompts"]]
    assert "pages" in cli(*commands[0], "--dry-run")
    cli(*commands[1], "--out", tmp_path / "sheet")
    assert "1.png" in cli(*commands[2])
    said = cli.err("prompts", "show", "pages", "--registry", tmp_path / "r")
    assert "arguments.yaml" not in (why := said)
    assert "dataset 'pages' has no field 'question' that ML task 'vqa' needs" in why


@pytest.mark.parametrize(
    ("column", "answer", "shown"),
    [
        ("question", "A", "\nWhich?"),
        ("keys", '{"Which?": "A"}', "Extract these fields from the document: Which?"),
        ("classes", "A", "Which of these is the document: Which?"),
        ("instruction", "A", "\nWhich?"),
    ],
)
def test_a_folder_with_columns_for_prompts_is_shown_with_a_prompt_for_them(
    tmp_path: Path, cli: Cli, column: str, answer: str, shown: str
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    Image.new("L", (30, 20)).save(folder / "1.png")
    row = {"image": "1.png", column: "Which?", "answer": answer}
    (folder / "a.jsonl").write_text(json.dumps(row))
    more = ("--out", str(tmp_path / "r"), "--model", "Qwen/Qwen2.5-VL-3B-Instruct")
    reported = cli("data", "add", folder, *more).splitlines()
    (command,) = (line.split()[1:] for line in reported if line.startswith("  hpcbench prompts"))
    assert shown in cli(*command)


def test_a_look_at_a_plans_prompts_needs_no_locks(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUN_MODE", "prod")
    registry = a_registry(
        tmp_path, "{{ question }}", far="source: hf://org/m\nengine: huggingface\n"
    )
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "schema_version: 1\nname: p\nexecutor: local\nrun_tasks:\n"
        "  - {name: t, ml_task: vqa, model: far, dataset: d, prompt: plain}\n"
    )
    asked = ("prompts", "show", "t", "--plan", str(plan), "--registry", str(registry), "--json")
    assert cli.json(*asked)["prompt"] == "plain"


def test_a_template_that_breaks_is_no_bug_of_hpcbench(tmp_path: Path, cli: Cli) -> None:
    registry = a_registry(tmp_path, "{{ question + 1 }}")
    asked = ("prompts", "show", "d", "--prompt", "plain", "--registry", str(registry))
    assert "prompts/plain: prompt `user` for sample '0': TypeError" in cli.err(*asked)


# --- results go out -------------------------------------------------------------------------------------


def finished(tmp_path: Path, **plan: Any) -> Experiment:
    here = experiment(tmp_path / "home", [record(1), record(2)])
    (here.path / "report").mkdir()
    (here.path / "report/report.md").write_text("# отчёт")
    (here.path / "workers").mkdir()
    (here.path / "workers/w.log").write_text("a log")
    data = json.loads(here.resolved_file.read_text())
    data["plan"].update(plan)
    here.resolved_file.write_text(json.dumps(data))
    return Experiment(here.path)


def test_results_go_out_once_and_again_only_what_changed(tmp_path: Path, cli: Cli) -> None:
    here = finished(tmp_path)
    to = f"file://{tmp_path}/out"
    (first,) = cli.json("upload", here.path, "--to", to, "--json")
    place = tmp_path / "out" / here.id
    assert first["sent"] >= 4
    assert (place / "report/report.md").read_text() == "# отчёт"
    assert not (place / "workers").exists()
    listed = json.loads((place / "hpcbench-upload.json").read_text())["files"]
    assert {one["path"] for one in listed} >= {"manifest.json", "report/report.md"}
    (again,) = cli.json("upload", here.path, "--to", to, "--json")
    assert again["sent"] == 0
    (here.path / "report/report.md").write_text("# другой")
    (third,) = cli.json("upload", here.path, "--to", to, "--json")
    assert third["sent"] == 1


def test_a_place_that_fails_is_named_and_the_others_get_theirs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = [{"url": f"file://{tmp_path}/file/x"}, {"url": f"file://{tmp_path}/good"}]
    here = finished(tmp_path, upload=places)
    bad, good = upload_results(here)
    assert "cannot upload to" in bad["error"]
    assert good["sent"] >= 4
    (tmp_path / "file").unlink()
    bad, good = upload_results(here)
    assert (bad["sent"] >= 4, good["sent"]) == (True, 0)


def test_nowhere_to_upload_to_is_reported(tmp_path: Path, cli: Cli) -> None:
    here = finished(tmp_path)
    said = cli.err("upload", here.path)
    assert "no destination for the upload (`--to URL`, or `upload:` in the plan)" in said
