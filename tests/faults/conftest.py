"""A user with a scripted engine, a small dataset and the local executor."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from PIL import Image

from hpcbench.files.atomic import read_lines
from tests.campaign import first

Found = TypeVar("Found")

ENGINE = Path(__file__).parent / "scripted-engine"

ROUTES = ("direct", "proxied")
"""Ways of requests to the engine: what an engine or a worker does wrong comes to the same by both."""

SAMPLES = 40
"""Samples of the dataset."""

ENDED = ("done", "incomplete", "failed", "cancelled", "lost", "interrupted", "stalled", "paused")
"""States in which nothing happens any more."""


def question(number: int) -> str:
    """The question of a sample."""
    return f"question {number:03d}"


def routes_of(test: str) -> list[str]:
    """Both routes, in the order of this test: the first one of half of all tests is `direct`."""
    turn = zlib.crc32(test.encode()) % 2
    return [ROUTES[turn], ROUTES[1 - turn]]


class Bench:
    """An ordinary user's shell: her home, her registry, the script of her engine.

    Args:
        folder: where all of it lies.
        cache: of packages.
        engines: folder of the engine's script and of what it writes; None: below `folder`.
    """

    def __init__(self, folder: Path, cache: Path, engines: Path | None = None) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        (self.home / "cache").symlink_to(cache)
        self.script_file = (engines or folder) / "script" / "script.json"
        self.environ = {
            **os.environ,
            "HPCBENCH_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "RUN_MODE": "dev",
        }
        self._write_registry()
        self.script(answer_ms=[1, 3])
        self.route = "direct"
        """Route of the run tasks' requests."""

    # -- setting the scene ------------------------------------------------------------------

    def script(self, **words: Any) -> None:
        """Behaviour of the engine from now on."""
        self.script_file.parent.mkdir(exist_ok=True)
        temporary = self.script_file.with_suffix(".new")
        temporary.write_text(json.dumps(words))
        temporary.replace(self.script_file)

    def write(self, name: str, data: Mapping[str, Any]) -> Path:
        """Write a YAML definition."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(dict(data), sort_keys=False))
        return path

    def model(self, name: str, **fields: Any) -> None:
        """Write a model definition; the engine is the scripted one."""
        self.write(f"registry/models/{name}.yaml", {
            "name": name, "source": "../../weights", "engine": "scripted", "image": None, "gpus": 0,
            "package": "scripted", "engine_options": {"script": str(self.script_file)},
            "load_timeout": 60, **fields,
        })  # fmt: skip

    def plan(self, *run_tasks: Mapping[str, Any], name: str = "faults", **fields: Any) -> Path:
        """Write a plan; a run task is one on the numbers unless it says otherwise."""
        fields = {"shard_size": 8, "stages": ["inference", "evaluation"], **fields}
        tasks = [
            {
                "name": "numbers", "ml_task": "vqa", "model": "scripted", "dataset": "numbers",
                "prompt": "ask", "warm_up": 0, "resources": {"cpus": 1, "memory_gb": 1},
                **({} if self.route == "direct" else {"route": self.route}), **one,
            }
            for one in run_tasks or [{}]
        ]  # fmt: skip
        return self.write(
            f"{name}.yaml", {"name": name, "executor": "local", "run_tasks": tasks, **fields}
        )

    def _write_registry(self) -> None:
        data, weights = self.folder / "data", self.folder / "weights"
        data.mkdir()
        weights.mkdir()
        (weights / "config.json").write_text("{}")
        Image.new("L", (8, 8), 1).save(data / "page.png")
        with (data / "numbers.jsonl").open("w") as file:
            for number in range(SAMPLES):
                # Every third reference is another one, so that scores say something.
                right = hashlib.sha256(question(number).encode()).hexdigest()[:10]
                record = {
                    "id": f"s{number:03d}", "images": ["page.png"], "document": f"d{number // 4}",
                    "fields": {"question": question(number)},
                    "references": [right if number % 3 else "something else"],
                }  # fmt: skip
                file.write(json.dumps(record) + "\n")
        self.write("registry/datasets/numbers.yaml", {
            "name": "numbers", "source": "../../data", "annotations": "numbers.jsonl",
            "fields": ["question"],
        })  # fmt: skip
        self.write("registry/prompts/ask.yaml", {"name": "ask", "user": "{{ question }}"})
        self.write("registry/packages/scripted.yaml", {
            "name": "scripted", "provides": {"engines": ["scripted"], "tools": ["pay"]},
            "source": {"type": "local", "path": str(ENGINE)},
        })  # fmt: skip
        self.model("scripted")

    # -- commands ---------------------------------------------------------------------------

    def start(self, *arguments: object, **environ: str) -> subprocess.Popen[str]:
        """Start a command of hpcbench and leave it running."""
        return subprocess.Popen(
            [sys.executable, "-m", "hpcbench.cli.main", *map(str, arguments)],
            cwd=self.folder, env={**self.environ, **environ}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *arguments: object, code: int | None = 0, **environ: str) -> tuple[str, str]:
        """Run a command of hpcbench; its standard output and error. No traceback, whatever happens."""
        process = self.start(*arguments, **environ)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in out + err, out + err
        assert "a bug of hpcbench" not in err, err
        assert code is None or process.returncode == code, f"{arguments}: {out}{err}"
        return out, err

    def submit(self, plan: Path, *arguments: object, **environ: str) -> Trial:
        """Submit a plan."""
        command = ("submit", plan, "--registry", self.folder / "registry", "--json", *arguments)
        out, _ = self.run(*command, **environ)
        return Trial(self, Path(json.loads(out)["path"]))


class Trial:
    """One experiment, seen from outside."""

    def __init__(self, bench: Bench, path: Path) -> None:
        self.bench, self.path, self.id = bench, path, path.name

    # -- commands ---------------------------------------------------------------------------

    def status(self) -> Any:
        """`hpcbench status --json`."""
        return json.loads(self.bench.run("status", self.id, "--json")[0])

    def screen(self) -> str:
        """`hpcbench status`, as people see it."""
        return self.bench.run("status", self.id)[0]

    def resume(self, *run_tasks: str) -> str:
        """`hpcbench resume`."""
        return self.bench.run("resume", self.id, *run_tasks)[0]

    def wait(self, *states: str) -> Any:
        """Wait until nothing happens any more; returns the last status, whose state is one of these."""
        with self._observed():
            while not self._rests() or (now := self.status())["state"] not in ENDED:
                time.sleep(0.3)  # it looks at every process of the machine
        assert now["state"] in (states or ("done",)), self.story(now)
        return now

    @contextlib.contextmanager
    def _observed(self) -> Iterator[None]:
        """Print what became of it where the test's own limit ends the waiting inside the block."""
        try:
            yield
        except pytest.fail.Exception:
            print(self.story())
            raise

    def story(self, now: Any = None) -> str:
        """Text to read when it went wrong; `now` is its last status."""
        return self.screen() if now is None else json.dumps(now, indent=1)

    def _rests(self) -> bool:
        """Whether no process of it is left."""
        return not self.pids("hpcbench.submit.local")

    # -- processes --------------------------------------------------------------------------

    def workers(self) -> list[int]:
        """Processes of living workers, by their events."""
        found = []
        for path in self.path.glob("workers/g*.events.jsonl"):
            owner = next(read_lines(path))["owner"]
            if _mentions(owner["pid"], str(self.path)):
                found.append(owner["pid"])
        return found

    def wrappers(self) -> list[int]:
        """Processes of living wrappers."""
        return self.pids("hpcbench.wrapper")

    def engines(self) -> list[int]:
        """Processes of living engines."""
        script = str(self.bench.script_file)
        return [pid for pid in _pids("hpcbench_scripted") if _mentions(pid, script)]

    def pids(self, module: str) -> list[int]:
        """Processes that run a module for this experiment."""
        return [pid for pid in _pids(module) if _mentions(pid, str(self.path))]

    def kill_all(self) -> None:
        """End what a test left behind."""
        for module in ("hpcbench.submit.local", "submitit", "hpcbench.wrapper"):
            for pid in self.pids(module):
                kill(pid)
        for pid in self.engines():
            kill(pid)

    # -- what lies on the disk --------------------------------------------------------------

    def shard_events(self, run_task: str) -> list[dict[str, Any]]:
        """All events of a run task's shards, loose or folded."""
        from hpcbench.experiment.layout import Experiment

        folder = Experiment(self.path).shards(run_task)
        names = sorted(name for name in folder.names if name.endswith(".events.jsonl"))
        return [event for name in names for event in folder.records(name)]

    def answers(self, run_task: str | None = None) -> dict[str, str]:
        """Run task and sample → outcome and text, as hpcbench itself reads them."""
        from hpcbench.experiment.claims import answers_of
        from hpcbench.experiment.layout import Experiment

        experiment = Experiment(self.path)
        names = [run_task] if run_task else [one.name for one in experiment.resolved.run_tasks]
        return {
            f"{name}/{sample}": f"{answer.outcome} {answer.text}"
            for name in names
            for _, answers in answers_of(experiment, name)
            for sample, answer in answers.items()
        }

    def answered(self) -> int:
        """Answers that lie on the disk, loose or folded; cheap."""
        return sum(
            path.read_bytes().count(b"\n") for path in self.path.glob("shards/*/*.responses.jsonl")
        ) or (len(self.answers()) if list(self.path.glob("shards/*/folded*")) else 0)

    def events(self) -> list[dict[str, Any]]:
        """Events of all workers."""
        from hpcbench.experiment.layout import Experiment

        return [one for _, events in Experiment(self.path).worker_records() for one in events]

    def said(self, kind: str) -> list[dict[str, Any]]:
        """Events of workers of a kind."""
        return [one for one in self.events() if one["event"] == kind]

    def twice(self) -> list[str]:
        """Samples of which two answers were written, in whatever attempt."""
        from hpcbench.experiment.claims import pieces_of
        from hpcbench.experiment.layout import Experiment

        experiment = Experiment(self.path)
        count = Counter(
            f"{run_task.name}/{answer.sample_id}"
            for run_task in experiment.resolved.run_tasks
            for piece in pieces_of(experiment, run_task.name)
            for answer in piece
        )
        return [name for name, number in count.items() if number > 1]

    @property
    def metrics(self) -> bytes:
        """`metrics.json`."""
        return (self.path / "metrics.json").read_bytes()

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        lines = read_lines(self.path / "submission.jsonl")
        return sum(line["event"] == "round" for line in lines)


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Send a signal; whether a process was there to get it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def until(condition: Callable[[], Found], what: str, timeout: float = 60) -> Found:
    """Wait for a condition; gives what it found.

    Args:
        condition: true at last.
        what: what is waited for.
        timeout: seconds it may take on a quiet machine; one that does much else at once has three times that.
    """
    limit = 3 * timeout
    begin = time.monotonic()
    deadline = begin + limit
    while not (found := condition()):
        now = time.monotonic()
        assert now < deadline, f"waited {limit} s in vain for {what}"
        time.sleep(
            min(0.5, max(0.03, 4 * (now - begin)))
        )  # looking costs a fifth of a processor at most
        begin = time.monotonic()
    return found


def _pids(word: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _mentions(int(entry.name), word):
            yield int(entry.name)


def _mentions(pid: int, word: str) -> bool:
    try:
        if word.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the engine, built once."""
    return tmp_path_factory.mktemp("cache")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of a user runs by both routes; `make test` takes one of them, in turns by the test's name."""
    marks = metafunc.definition.iter_markers("parametrize")
    users = {"bench", "nodes"} & set(metafunc.fixturenames)
    if users and not any("route" in mark.args[0] for mark in marks):
        metafunc.parametrize("route", first(1, routes_of(metafunc.function.__name__)))


@pytest.fixture
def bench(tmp_path: Path, shared_cache: Path, route: str) -> Iterator[Bench]:
    """A user; whatever still runs of her experiments afterwards is ended."""
    made = Bench(tmp_path, shared_cache)
    made.route = route
    yield made
    for path in (made.home / "experiments").glob("*"):
        Trial(made, path).kill_all()


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Trial:
    """The undisturbed run, concurrency 1."""
    made = Bench(tmp_path_factory.mktemp("calm"), shared_cache)
    trial = made.submit(made.plan())
    trial.wait("done")
    return trial


def whole(trial: Trial, calm: Trial, before: Sequence[Mapping[str, str]] = ()) -> None:
    """Conditions on every disturbed experiment that came to its end.

    Args:
        trial: the experiment.
        calm: the undisturbed one.
        before: answers that were acknowledged at some time.
    """
    final = trial.answers()
    for acknowledged in before:
        assert acknowledged.items() <= final.items(), "an acknowledged answer was lost or changed"
    assert final == calm.answers()
    assert trial.metrics == calm.metrics
