"""Packages that are not installed: from a folder, a git repository and an index, all the way to scores.

The examples of `examples/plugins` are used as a user would use them; the repository and the index are made by
the test, on this machine. Nothing here needs a model: the echo engine answers.
"""

from __future__ import annotations

import base64
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from hpcbench.cli.plugin_skeletons import package as package_of
from hpcbench.plugins import REQUIRED
from tests.campaign import first
from tests.help_examples import example
from tests.unit.earlier import WHOLE, unpack

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples/plugins").iterdir())
TOKEN = "very-secret-token-of-the-index"


@dataclass
class Bench:
    """An ordinary user's shell in a project of her own."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str | Path, mode: str = "prod", code: int = 0) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "hpcbench.cli.main", *map(str, arguments)],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=900,
            env={
                **os.environ, "HPCBENCH_HOME": str(self.folder / "home"), "RUN_MODE": mode,
                "XDG_CONFIG_HOME": str(self.folder / "config"), **self.environ,
            },
        )  # fmt: skip
        assert done.returncode == code, (
            f"{done.returncode}: {done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        )
        return done

    def write(self, name: str, data: object) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else yaml.safe_dump(data), encoding="utf-8")
        return path


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """uv's cache of what it has fetched and unpacked, for all tests: what they build is their own."""
    return tmp_path_factory.mktemp("uv")


@pytest.fixture
def bench(tmp_path: Path, downloads: Path) -> Bench:
    cache = tmp_path / "home/cache"
    cache.mkdir(parents=True)
    (cache / "uv").symlink_to(downloads)
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All examples as wheels, as their authors would upload them."""
    folder = tmp_path_factory.mktemp("wheels")
    argv = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", *argv, *EXAMPLES], check=True, capture_output=True)
    return folder


class Index:
    """A simple index (PEP 503) over a folder of wheels; with a password if asked for."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        self.asked: list[str] = []
        expected = "Basic " + base64.b64encode(f"user:{password}".encode()).decode()
        asked = self.asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                if password is not None and self.headers.get("Authorization") != expected:
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="index"')
                    self.end_headers()
                    return
                parts = self.path.strip("/").split("/")
                wheel = folder / parts[-1]
                if wheel.suffix == ".whl" and wheel.is_file():
                    self._send(wheel.read_bytes(), "application/octet-stream")
                    return
                name = parts[-1].replace("-", "_")
                found = sorted(folder.glob(f"{name}-*.whl"))
                if not found:
                    self.send_error(404)
                    return
                links = "".join(f'<a href="/files/{one.name}">{one.name}</a>' for one in found)
                self._send(f"<html><body>{links}</body></html>".encode(), "text/html")

            def _send(self, data: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.port = self.server.server_address[1]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def index(wheels: Path) -> Iterator[Index]:
    served = Index(wheels, TOKEN)
    yield served
    served.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A bare repository with all examples, tag v1."""
    bare, work = tmp_path / "plugins.git", tmp_path / "work"
    shutil.copytree(ROOT / "examples/plugins", work, ignore=shutil.ignore_patterns("__pycache__"))
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for argv in (
        ["init", "-q", "-b", "main", str(work)],
        ["-C", str(work), "add", "-A"],
        ["-C", str(work), *who, "commit", "-qm", "examples"],
        ["-C", str(work), *who, "tag", "-a", "v1", "-m", "first"],
        ["clone", "-q", "--bare", str(work), str(bare)],
    ):
        subprocess.run(["git", *argv], check=True, capture_output=True)
    return bare


KINDS = {
    "amount-metric": ("metrics", "amount_match"), "csv-report": ("reports", "csv"),
    "echo-engine": ("engines", "echo"), "feed-notifier": ("notifiers", "feed"),
    "history-tracker": ("trackers", "history"), "keyvalue-parser": ("parsers", "keyvalue"),
    "language-prompt": ("prompts", "by_language"), "sidecar-dataset": ("datasets", "sidecar"),
    "yesno-task": ("tasks", "yesno"), "zip-storage": ("storage", "zip"),
}  # fmt: skip


PLAIN = "hpcbench-example-interpreter-environment"
"""An example that no definition names: an ML task requires it as pip would write it."""


def write_project(bench: Bench, source: Any, required: Sequence[str] = ()) -> Path:
    """A plan that uses ten packages; `source(name)` says where each comes from.

    `required`: what an ML task requires besides, as pip writes it.
    """
    data = bench.folder / "data"
    data.mkdir()
    (bench.folder / "weights").mkdir()
    (bench.folder / "weights/config.json").write_text("{}")
    for number in range(6):
        Image.new("L", (8, 8), number).save(data / f"{number}.png")
        (data / f"{number}.txt").write_text("1 234,50 €", encoding="utf-8")
    zipped = bench.folder / "zipped"
    zipped.mkdir()
    lines = [
        {"id": str(n), "images": ["p.png"], "fields": {"question": "Is it signed?"}, "references": ["yes"],
         "metadata": {"language": "ru"}, "document": str(n)}
        for n in range(4)
    ]  # fmt: skip
    (zipped / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = {"Да, yes": "1,234.50 EUR"}
    (zipped / "b.jsonl").write_text(
        json.dumps({"id": "b", "images": ["p.png"], "references": [read]}) + "\n"
    )
    Image.new("L", (8, 8)).save(zipped / "p.png")
    shutil.make_archive(str(bench.folder / "pages"), "zip", zipped)
    for name, (kind, plugin) in KINDS.items():
        definition = {"name": name, "source": source(name), "provides": {kind: [plugin]}}
        bench.write(f"registries/packages/{name}.yaml", definition)
    definitions: dict[str, dict[str, Any]] = {
        "models/echo": {"source": "../../weights", "engine": "echo", "gpus": 0},
        "models/yes": {"source": "../../weights", "engine": "echo", "gpus": 0,
                       "env": {"MY_TOKEN": "${env:INDEX_PASSWORD}"},
                       "engine_options": {"answer": "Да, yes: 1,234.50 EUR"}},
        "datasets/scans": {"source": "../../data", "iterator": "sidecar"},
        "datasets/zipped": {"source": f"zip://{bench.folder}/pages.zip", "annotations": "a.jsonl",
                            "fields": ["question"], "group_by": ["language"]},
        "datasets/lines": {"source": f"zip://{bench.folder}/pages.zip", "annotations": "b.jsonl"},
        "metrics/amount_match": {"plugin": "amount_match", "options": {"currency": True}, "version": "1"},
        "prompts/by_language": {"strategy": "by_language", "user": "Read.",
                                "options": {"templates": {"ru": "Вопрос: {question}"}}},
        "prompts/read": {"user": "Read the total."},
        "reports/csv": {"plugin": "csv", "options": {"delimiter": ";"}},
        "ml_tasks/amount": {"plugin": "ocr", "metrics": ["amount_match"], "prompt": "read",
                            "required_packages": list(required)},
        "ml_tasks/yesno": {"plugin": "yesno", "metrics": ["accuracy"], "output": "label",
                           "sample_fields": ["question"], "prompt": "by_language"},
        "ml_tasks/lines": {"plugin": "kie", "parser": "keyvalue", "output": "object",
                           "metrics": ["kie_f1_micro"], "prompt": "read"},
    }  # fmt: skip
    for name, definition in definitions.items():
        body = {"name": name.partition("/")[2], **definition}
        bench.write(f"registries/{name}.yaml", body)
    tasks = [
        {"name": "amounts", "ml_task": "amount", "model": "yes", "dataset": "scans"},
        {"name": "signed", "ml_task": "yesno", "model": "yes", "dataset": "zipped"},
        {"name": "lined", "ml_task": "lines", "model": "yes", "dataset": "lines"},
        {"name": "echoed", "ml_task": "yesno", "model": "echo", "dataset": "zipped"},
    ]
    plan = {
        "name": "packages", "executor": "local", "run_tasks": tasks, "reports": ["csv", "markdown"],
        "pilot": 0,  # of what an echo says nothing can be read
        "trackers": [{"plugin": "history", "options": {"path": str(bench.folder / "history.jsonl")}}],
        "notifications": [{"plugin": "feed", "options": {"path": str(bench.folder / "feed.xml")}}],
    }  # fmt: skip
    return bench.write("plan.yaml", plan)


def source_of(kind: str, name: str, repository: Path, index: Index) -> dict[str, Any]:
    """Where an example comes from, as its definition says it; `mixed`: a third each."""
    if kind == "mixed":
        kind = kind_of(name)
    if kind == "local":
        return {"type": "local", "path": str(ROOT / "examples/plugins" / name)}
    if kind == "git":
        return {"type": "git", "url": f"file://{repository}", "ref": "v1", "subdirectory": name}
    url = f"http://user:${{env:INDEX_PASSWORD}}@127.0.0.1:{index.port}/simple"
    return {"type": "pypi", "name": f"hpcbench-example-{name}", "version": "1.0.0", "index": url}


def kind_of(name: str) -> str:
    """The kind of source that an example has where the sources are mixed."""
    return ("local", "git", "pypi")[sorted(KINDS).index(name) % 3]


@pytest.mark.parametrize("kind", first(1, ["mixed", "local", "git", "pypi"]))
def test_a_plan_runs_on_packages_from_a_folder_a_repository_and_an_index(
    bench: Bench, kind: str, repository: Path, index: Index
) -> None:
    bench.environ["INDEX_PASSWORD"] = TOKEN
    bench.environ["UV_INDEX"] = f"http://user:{TOKEN}@127.0.0.1:{index.port}/simple"
    required = ["packaging>=20", f"{PLAIN}>=1,<2"]
    plan = write_project(bench, lambda name: source_of(kind, name, repository, index), required)
    mode = "prod" if kind in ("git", "pypi") else "dev"

    # Nothing that the echo says can be read, so that its run task has failed.
    done = bench.run("submit", plan, "--wait", "--json", mode=mode, code=1)

    status = json.loads(done.stdout)
    (experiment,) = (bench.folder / "home/experiments").iterdir()
    metrics = json.loads((experiment / "metrics.json").read_text())["run_tasks"]
    assert status["state"] == "incomplete"
    states = {one["name"]: one["state"] for one in status["run_tasks"]}
    assert states == {"amounts": "done", "signed": "done", "lined": "done", "echoed": "failed"}
    assert metrics["amounts"]["metrics"]["amount_match"]["value"] == 1.0
    assert (
        metrics["amounts"]["metrics"]["amount_match"]["signature"]
        == "amount_match|currency:compared|v1"
    )
    assert metrics["signed"]["metrics"]["accuracy"]["value"] == 1.0
    assert metrics["lined"]["metrics"]["kie_f1_micro"]["value"] == 1.0
    assert metrics["echoed"]["metrics"]["accuracy"] is None, "invalid answers are left out"
    assert metrics["echoed"]["invalid"] == 4
    assert (experiment / "report/metrics.csv").read_text().splitlines()[0].startswith("experiment;")
    assert not (experiment / "report/failed.txt").exists()
    history = (bench.folder / "history.jsonl").read_text().splitlines()
    assert {json.loads(line)["run_task"] for line in history} == {
        "amounts",
        "signed",
        "lined",
        "echoed",
    }
    assert f"{experiment.name} is incomplete" in (bench.folder / "feed.xml").read_text()
    manifest = json.loads((experiment / "manifest.json").read_text())
    locked, installed = manifest["plugin_packages"], manifest["locks"][""]
    assert set(locked) == {*KINDS, *required}
    (plain,) = [one for one in installed if one.startswith(f"{PLAIN}==1.")]
    assert "--hash=sha256:" in plain
    assert not any(one.startswith("packaging") for one in installed), "this Python has it"
    if kind in ("mixed", "git"):
        head = subprocess.run(["git", "-C", str(repository), "rev-parse", "v1^{commit}"],
                              capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
        (name, *_) = (one for one in KINDS if kind == "git" or kind_of(one) == "git")
        assert locked[name] == f"file://{repository}@{head}#subdirectory={name}"
    if kind in ("mixed", "pypi"):
        assert index.asked
    written = subprocess.run(["grep", "-rl", TOKEN, str(bench.folder)], capture_output=True)
    assert written.stdout == b"", "a secret was written"


def test_examples_stand_alone_and_know_hpcbench_by_its_protocols_only(bench: Bench) -> None:
    folders = os.pathsep.join(map(str, EXAMPLES))
    settings = bench.write("pytest.ini", "[pytest]\n")
    own_tests(settings, EXAMPLES, folders)
    names = ", ".join(next(folder.glob("*.py")).stem for folder in EXAMPLES)
    imported = subprocess.run(
        [sys.executable, "-c", f"import sys, {names}; print('hpcbench' in sys.modules)"],
        env={**os.environ, "PYTHONPATH": folders}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert imported.stdout.strip() == "False", "a core imports hpcbench"


def test_examples_and_new_packages_keep_the_contracts_of_their_kinds(
    bench: Bench, tmp_path: Path
) -> None:
    written = []
    for kind in REQUIRED:
        name = f"{kind.removesuffix('s')}_new"
        for path, text in package_of(kind, name).items():
            bench.write(f"{name}/{path}", text)
        written.append(bench.folder / name)
    settings = bench.write("pytest.ini", "[pytest]\n")
    own_tests(settings, written, os.pathsep.join(map(str, written)))
    target = tmp_path / "installed"
    argv = ["pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, "-m", *argv, *EXAMPLES, *written], check=True)
    done = subprocess.run([sys.executable, "-m", "tests.packages.contracts", str(target)],
                          cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
    rows = json.loads(done.stdout)
    assert [row for row in rows if row[2]] == []
    assert {row[0].partition("/")[0] for row in rows} == set(REQUIRED)
    assert len({row[0] for row in rows}) == len(EXAMPLES) + len(REQUIRED)


def own_tests(settings: Path, folders: list[Path], path: str) -> None:
    """Run the tests that packages bring along, in one process."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(settings)]
    done = subprocess.run(
        [*argv, *(str(folder / "tests") for folder in folders)], cwd=settings.parent,
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", first(1, sorted(REQUIRED, key=lambda kind: kind != "metrics")))
def test_a_new_package_is_built_and_checked(bench: Bench, kind: str) -> None:
    bench.run("plugins", "new", kind, "word_share")
    own = {"examples/plugins/amount-metric": "hpcbench-word-share"}
    words = example("plugins check examples/plugins/amount-metric", own)
    rows = json.loads(bench.run(*words, "--json").stdout)
    assert {row["plugin"] for row in rows} == {f"{kind}/word_share"}
    assert [row["problem"] for row in rows] == [None] * len(rows)


def test_a_broken_contract_is_reported_in_words_and_by_the_exit_code(bench: Bench) -> None:
    bench.run("plugins", "new", "parsers", "shaky")
    module = bench.folder / "hpcbench-shaky/hpcbench_shaky.py"
    module.write_text(module.read_text().replace("lines[-1] if lines else None", "lines[-1]"))
    done = bench.run("plugins", "check", "hpcbench-shaky", code=1)
    assert (
        "✗ parsers/shaky: It reads or refuses any answer without an exception, twice the same"
        in done.stdout
    )
    assert "IndexError" in done.stdout
    assert "(hpcbench-shaky/hpcbench_shaky.py:" in done.stdout, "the user's file, not a copy of it"
    assert "Traceback" not in done.stderr


def package(bench: Bench, name: str, dependencies: list[str], point: str = "x") -> None:
    """A little package of a metric that depends on something."""
    bench.write(f"{name}/{name}.py", "class Metric:\n    api = 1\n")
    bench.write(
        f"{name}/pyproject.toml",
        f'[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\ndependencies = {dependencies}\n'
        f'[project.entry-points."hpcbench.metrics"]\n{point} = "{name}:Metric"\n'
        f'[tool.hatch.build.targets.wheel]\nonly-include = ["{name}.py"]\n',
    )
    bench.write(
        f"registries/packages/{name}.yaml",
        {"name": name, "source": {"type": "local", "path": f"../../{name}", "editable": False},
         "provides": {"metrics": ["closeness"]}},
    )  # fmt: skip
    bench.write("registries/metrics/anls.yaml", {"name": "anls", "plugin": "closeness"})
    names = {"ml_task": "vqa", "model": "tiny-vlm", "dataset": "demo_vqa", "prompt": "demo_vqa"}
    task = {"name": "a", **names, "generation": {"max_tokens": 96}}
    bench.write("plan.yaml", {"name": "p", "run_tasks": [task]})


def test_a_package_that_needs_another_version_of_what_is_there_is_refused_with_both(
    bench: Bench,
) -> None:
    from importlib.metadata import version

    package(bench, "stubborn", ["packaging==23.0"], point="closeness")
    done = bench.run("validate", "plan.yaml", "--packages", mode="dev", code=2)
    assert done.stderr.splitlines()[-1] == (
        f"stubborn needs packaging 23.0, but packaging {version('packaging')} is installed "
        "(use another version of the package, or an image with the needed version)"
    )


def test_a_package_may_depend_on_hpcbench_by_its_distributions_name(bench: Bench) -> None:
    bench.run("plugins", "new", "parsers", "friend")
    project = bench.folder / "hpcbench-friend/pyproject.toml"
    text = project.read_text()
    project.write_text(text.replace("dependencies = []", 'dependencies = ["hpcbench-vlm>=0.1"]'))
    bench.run("plugins", "check", "hpcbench-friend")
    project.write_text(text.replace("dependencies = []", 'dependencies = ["hpcbench"]'))
    done = bench.run("plugins", "check", "hpcbench-friend", code=2)
    assert done.stderr.splitlines()[-1] == (
        "hpcbench-friend depends on 'hpcbench', which is another project's distribution "
        "(depend on 'hpcbench-vlm' in pyproject.toml, or remove the dependency)"
    )


def test_a_package_that_lacks_an_entry_point_it_declares_is_refused(bench: Bench) -> None:
    package(bench, "liar", [], point="other")
    done = bench.run("validate", "plan.yaml", "--packages", mode="dev", code=2)
    assert (
        "package 'liar' provides no metrics plugin 'closeness': it has no such entry point"
        in done.stderr
    )
    assert "registries/packages/liar.yaml:4:" in done.stderr


def test_a_package_whose_plugin_does_not_fit_is_found_before_anything_runs(bench: Bench) -> None:
    package(bench, "unfit", [], point="closeness")
    done = bench.run("validate", "plan.yaml", "--packages", mode="dev", code=2)
    assert (
        "plugin 'closeness' of kind metrics (unfit:Metric of unfit 1.0) lacks score" in done.stderr
    )


def test_a_package_that_cannot_be_built_is_one_line(bench: Bench) -> None:
    package(bench, "broken", [], point="closeness")
    bench.write("broken/pyproject.toml", "[project]\nname = 5\n")
    done = bench.run("validate", "plan.yaml", "--packages", mode="dev", code=3)
    assert done.stderr.splitlines()[-1].startswith("hpcbench: package 'broken' cannot be built: ")


def test_prod_takes_a_tag_and_no_branch(bench: Bench, repository: Path) -> None:
    package(bench, "moving", [], point="closeness")
    for ref, code, reported in (
        ("main", 2, "main is a branch of file://"),
        ("v9", 2, "has no commit, tag or branch 'v9'"),
        ("v1", 2, "has no such entry point"),
    ):
        source = {
            "type": "git",
            "url": f"file://{repository}",
            "ref": ref,
            "subdirectory": "amount-metric",
        }
        bench.write("registries/packages/moving.yaml",
                    {"name": "moving", "source": source, "provides": {"metrics": ["closeness"]}})  # fmt: skip
        assert reported in bench.run("validate", "plan.yaml", "--packages", code=code).stderr


def test_two_who_want_the_same_package_build_it_once(bench: Bench) -> None:
    bench.run("plugins", "new", "metrics", "closeness", "--out", "closeness")
    package(bench, "unused", [], point="closeness")
    (bench.folder / "registries/packages/unused.yaml").unlink()
    bench.write("registries/packages/mine.yaml", {
        "name": "mine", "source": {"type": "local", "path": "../../closeness", "editable": False},
        "provides": {"metrics": ["closeness"]}})  # fmt: skip
    reported: list[str] = []

    def validate() -> None:
        reported.append(bench.run("validate", "plan.yaml", "--packages", mode="dev").stderr)

    threads = [threading.Thread(target=validate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reported) == 3
    assert sum("building package mine" in one for one in reported) == 1
    assert len(list((bench.folder / "home/cache/wheels").iterdir())) == 1
    assert len(list((bench.folder / "home/cache/plugins").iterdir())) == 1


@pytest.mark.parametrize("of_experiment", [True, False], ids=["experiment", "file"])
def test_score_takes_a_metric_of_a_package_that_is_not_installed(
    bench: Bench, of_experiment: bool
) -> None:
    bench.run("plugins", "new", "metrics", "same_total")
    bench.write("registries/packages/same-total.yaml", {
        "name": "same-total", "source": {"type": "local", "path": "../../hpcbench-same-total"},
        "provides": {"metrics": ["same_total"]}})  # fmt: skip
    metric = {"name": "same_total", "plugin": "same_total", "package": "same-total"}
    bench.write("registries/metrics/same_total.yaml", metric)
    if of_experiment:
        unpack(bench.folder / "home")
        words = [WHOLE]
    else:
        row = json.loads((ROOT / "examples/demo/data/vqa.jsonl").read_text().splitlines()[0])
        answer = {"id": row["id"], "answer": row["references"][0]}
        bench.write("answers.jsonl", json.dumps(answer) + "\n")
        words = ["answers.jsonl", "--dataset", "demo_vqa", "--ml-task", "vqa"]
    done = bench.run("score", *words, "--metrics", "same_total", "--json")
    (row, *_) = json.loads(done.stdout)["rows"]
    assert (row["metric"], row["n"] > 0) == ("same_total", True)
    assert "building package same-total" in done.stderr


def test_every_verb_sees_the_plugins_of_a_package_in_the_registry(bench: Bench) -> None:
    """One package with an iterator, a prompt, a metric and a report; its definitions name no package."""
    provides, points = {}, ""
    for kind in ("datasets", "prompts", "metrics", "reports"):
        name = f"own_{kind.removesuffix('s')}"
        provides[kind] = [name]
        for path, text in package_of(kind, name).items():
            if path == "pyproject.toml":
                points += text[text.index("[project.entry-points") : text.index("[tool.")]
                project = text
            elif path.endswith(".py") and "/" not in path:
                bench.write(f"own/{path}", text)
    head, tail = (
        project.partition("[project.entry-points")[0],
        '[tool.hatch.build]\ninclude = ["*.py"]\n',
    )
    bench.write("own/pyproject.toml", head + points + tail)
    source = {"type": "local", "path": "../../own"}
    bench.write(
        "registries/packages/own.yaml", {"name": "own", "source": source, "provides": provides}
    )
    (bench.folder / "pages").mkdir()
    for name in ("invoice_1", "letter_1"):
        Image.new("L", (40, 30), 200).save(bench.folder / f"pages/{name}.png")
    pages = {"source": "../../pages", "annotations": "", "iterator": "own_dataset"}
    bench.write("registries/datasets/pages.yaml", {"name": "pages", **pages})
    bench.write(
        "registries/prompts/ask.yaml",
        {"name": "ask", "strategy": "own_prompt", "user": "What is it?"},
    )
    bench.write("registries/metrics/words.yaml",
                {"name": "words", "plugin": "own_metric", "options": {"lower": False}})  # fmt: skip
    unpack(bench.folder / "home")

    assert "2 samples" in bench.run("data", "check", "pages", "--out", "sheet").stdout
    words = ("prompts", "show", "pages", "--prompt", "ask", "--task", "classification")
    assert "This is a document. What is it?" in bench.run(*words).stdout
    for name in ("own_metric", "words"):
        assert (
            f"case:{'lower' if name == 'own_metric' else 'as-is'}"
            in bench.run("metrics", "show", name).stdout
        )
    for name in ("own_metric", "words"):
        (row, *_) = json.loads(bench.run("score", WHOLE, "--metrics", name, "--json").stdout)[
            "rows"
        ]
        assert (row["metric"], row["n"] > 0) == (name, True)
    bench.run("report", WHOLE, "--format", "own_report", "--to", "out")
    assert "`hpcbench metrics show own_metric` builds it" in bench.run("metrics", "list").stdout
    assert "packages/own" in bench.run("plugins", "list", "prompts").stdout

    assert "not checked: plugins of own" in bench.run("validate").stderr
    assert "not checked" not in bench.run("validate", "--packages").stderr
    bench.write("registries/metrics/words.yaml",
                "name: words\nplugin: own_metric\noptions:\n  lower: maybe\n")  # fmt: skip
    said = bench.run("validate", "--packages", code=2).stderr
    assert "registries/metrics/words.yaml:4:3: option 'lower' must be true or false" in said


def test_a_package_is_checked_in_its_own_folder_and_beside_an_installed_copy(bench: Bench) -> None:
    """setuptools leaves metadata there, which a Python that is started there takes for a package."""
    bench.run("plugins", "new", "metrics", "closeness", "--out", "closeness")
    project = bench.folder / "closeness/pyproject.toml"
    text = project.read_text().partition("[tool.")[0].replace("hatchling>=1.25", "setuptools>=61")
    text = text.replace("hatchling.build", "setuptools.build_meta")
    project.write_text(f'{text}[tool.setuptools]\npy-modules = ["hpcbench_closeness"]\n')
    inside = Bench(bench.folder / "closeness", {"HPCBENCH_HOME": str(bench.folder / "home")})
    said = inside.run("plugins", "check", ".").stdout
    assert "✓ metrics/closeness: It fits its Protocol" in said
    assert list(inside.folder.glob("*.egg-info")), "what misled it is there"
    target = bench.folder / "installed"
    argv = ["pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, "-m", *argv, str(inside.folder)], check=True)
    bench.environ["PYTHONPATH"] = str(target)
    said = bench.run("plugins", "check", "closeness").stderr
    assert f"its copy {target}/hpcbench_closeness.py is checked, not this folder" in said


def test_an_editable_folder_counts_as_it_is_now_in_dev(bench: Bench) -> None:
    bench.run("plugins", "new", "metrics", "closeness", "--out", "closeness")
    package(bench, "unused", [], point="closeness")
    (bench.folder / "registries/packages/unused.yaml").unlink()
    bench.write("registries/packages/mine.yaml", {
        "name": "mine", "source": {"type": "local", "path": "../../closeness"},
        "provides": {"metrics": ["closeness"]}})  # fmt: skip
    bench.run("validate", "plan.yaml", "--packages", mode="dev")
    module = bench.folder / "closeness/hpcbench_closeness.py"
    module.write_text(
        module.read_text().replace("api: ClassVar[int] = 1", "api: ClassVar[int] = 2")
    )
    done = bench.run("validate", "plan.yaml", "--packages", mode="dev", code=2)
    assert "does not support api 1: its `api` is 2" in done.stderr


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("local", marks=pytest.mark.campaign),
        pytest.param("git", marks=pytest.mark.campaign),
        "pypi",
    ],
)
def test_an_environment_of_a_package_runs_a_real_engine(
    bench: Bench, kind: str, repository: Path, index: Index
) -> None:
    bench.environ["INDEX_PASSWORD"] = TOKEN
    bench.write("registries/packages/interpreter.yaml", {
        "name": "interpreter", "provides": {"environments": ["interpreter"]},
        "source": source_of(kind, "interpreter-environment", repository, index),
    })  # fmt: skip
    shipped = yaml.safe_load((ROOT / "registries/models/tiny-vlm.yaml").read_text())
    weights = str(ROOT / "examples/demo/model")
    model = {**shipped, "source": weights, "image": f"interpreter:{sys.executable}"}
    bench.write("registries/models/tiny-vlm.yaml", model)
    task = {"name": "a", "ml_task": "vqa", "model": "tiny-vlm", "dataset": "demo_vqa", "split": "easy",
            "prompt": "demo_vqa", "limit": 8, "generation": {"max_tokens": 32}}  # fmt: skip
    bench.write("plan.yaml", {"name": "p", "executor": "local", "run_tasks": [task]})
    bench.run("submit", "plan.yaml", "--wait", mode="dev" if kind == "local" else "prod")
    (experiment,) = (bench.folder / "home/experiments").iterdir()
    metrics = json.loads((experiment / "metrics.json").read_text())["run_tasks"]["a"]
    assert metrics["answered"] == 8
    assert metrics["metrics"]["exact_match"]["value"] == 1.0
    (environment,) = json.loads((experiment / "manifest.json").read_text())["environments"].values()
    assert environment["kind"] == "interpreter"


def test_stages_end_where_the_plan_says_and_a_baseline_must_be_there(bench: Bench) -> None:
    whole = write_project(
        bench, lambda name: {"type": "local", "path": str(ROOT / "examples/plugins" / name)}
    )
    bench.environ["INDEX_PASSWORD"] = TOKEN
    large = yaml.safe_load(whole.read_text())
    small = {"name": "staged", "executor": "local", "run_tasks": large["run_tasks"][:1], "pilot": 0}
    plan = bench.write("small.yaml", {**small, "reports": ["markdown"]})
    ended = "stages=[inference]"
    status = json.loads(
        bench.run("submit", plan, "--wait", "--json", "--set", ended, mode="dev").stdout
    )
    first = bench.folder / "home/experiments" / status["id"]
    assert status["state"] == "done"
    assert list(first.glob("shards/*/folded.jsonl"))
    assert not (first / "metrics.json").exists()
    assert not (first / "report").exists()
    done = bench.run("submit", plan, "--set", "baseline=20200101-none", mode="dev", code=2)
    assert "20200101-none" in done.stderr
    bench.run("submit", plan, "--wait", "--set", f"baseline={first.name}", mode="dev")
    (second,) = set((bench.folder / "home/experiments").iterdir()) - {first}
    report = (second / "report/report.md").read_text()
    assert f"| baseline | {first.name} |" in report
    assert f"set | baseline={first.name} |" in report
