"""The command line as a careless user runs it: every verb with bad values, each in a process of its own.

`Zygote` is one process that has imported hpcbench; every command is a fork of it, which is as good as a fresh
process and costs milliseconds. Where the tests run as root it gives up root's right to every file.
`commands()` draws commands from the parser itself, so that a new verb is covered by being there.

    python -m tests.unit.misuse 20000 [SEED]      a longer campaign: prints every command that misbehaves
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.cli.parse import parser
from hpcbench.schema.metric import Metric
from tests.unit.evaluation.scene import asked, reported

SECONDS = 20
"""No command of these takes longer."""
CODES = range(6)
LINES, LETTERS = 12, 700
"""No mistake needs more lines, and no line is longer."""


@dataclass(frozen=True)
class Command:
    """A command line, and where it runs."""

    words: Sequence[str]
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """Variables that are different; None: not set."""
    folder: str | None = None
    """Where it runs; `gone`: a folder that was deleted. None: the world's."""
    output: str = "file"
    """`file`, `closed`, `full` or `broken` (a pipe without a reader)."""
    open_files: int | None = None
    """Limit of open files."""


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    """Exit code; negative: the signal that ended it."""
    out: str
    err: str
    seconds: float

    def faults(self) -> list[str]:
        """Faults that no command may have, whatever its input is."""
        found = []
        if self.seconds >= SECONDS:
            found.append("hangs")
        elif self.code not in CODES:
            found.append(f"exit code {self.code}")
        if "Traceback (most recent call last)" in self.out + self.err:
            found.append("a traceback")
        if "a bug of hpcbench" in self.err:
            found.append("a bug of hpcbench")
        if "Exception ignored" in self.err or "Warning: " in self.err:
            found.append("a complaint of Python")
        if self.code in (2, 3):
            lines = self.err.splitlines()
            if not lines:
                found.append("no word")
            if len(lines) > LINES:
                found.append(f"{len(lines)} lines")
            if any(len(line) > LETTERS for line in lines):
                found.append("a line too long")
        return found


class Zygote:
    """A process that has imported hpcbench and forks a command at a time."""

    def __init__(self, world: Path) -> None:
        self.world = world
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PYTHONUTF8": "1",
            "HOME": str(world / "home"),
            "XDG_CONFIG_HOME": str(world / "config"),
            "HPCBENCH_HOME": str(world / "hpcbench"),
            "TMPDIR": str(world / "tmp"),
            "OPENBLAS_NUM_THREADS": "1",
            "POLARS_MAX_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.misuse", "--zygote", str(world)],
            cwd=world,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def run(self, command: Command) -> Outcome:
        """Run a command to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asdict(command)), file=self._process.stdin, flush=True)
        return Outcome(**json.loads(self._process.stdout.readline()))


# --- the world ----------------------------------------------------------------------------------------


def make_world(folder: Path) -> Path:
    """A folder of everything that is not what a verb wants."""
    for name in ("home", "tmp", "config", "hpcbench", "folder", "locked", "registry", "pages"):
        (folder / name).mkdir(parents=True)
    _make_experiment(folder / "hpcbench")
    (folder / "answers.csv").write_text("id,answer\n1,x\n")
    (folder / "rows.jsonl").write_text('{"prediction": "a", "reference": "a"}\n')
    (folder / "pages" / "annotations.jsonl").write_text(
        '{"id": "1", "image": "no.png", "answer": "x"}\n'
    )
    (folder / "folder" / "x.txt").write_text("x")
    files: dict[str, bytes] = {
        "empty": b"",
        "empty.yaml": b"",
        "empty.jsonl": b"",
        "binary.yaml": bytes(range(256)) * 8,
        "binary.jsonl": bytes(range(256)) * 8,
        "latin.csv": "id;Straße\n1;ä\n".encode("latin-1"),
        "latin.yaml": "name: Straße\n".encode("latin-1"),
        "utf16.yaml": "name: x\n".encode("utf-16"),
        "deep.json": b"[" * 100_000,
        "deep.jsonl": b'{"id": 1, "prediction": ' + b"[" * 100_000 + b"\n",
        "deep.yaml": b"a: " + b"[" * 5_000,
        "laughs.yaml": b"a0: &a0 [x, x]\n"
        + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 40)),
        "cycle.yaml": b"name: &a {b: *a}\n",
        "twice.yaml": b"name: a\nname: b\n",
        "list.yaml": b"- a\n",
        "scalar.yaml": b"42\n",
        "scalar.json": b"42\n",
        "null.jsonl": b"null\n1\n[]\n",
        "cut.jsonl": b'{"id": "1", "answer": "x"}\n{"id": "2", "ans',
        "wrong.csv": b"a,b\n1\n1,2,3\n",
        "broken.png": b"\x89PNG\r\n\x1a\nnothing",
        "broken.zip": b"PK\x03\x04nothing",
        "broken.parquet": b"PAR1nothingPAR1",
        "broken.xlsx": b"PK\x03\x04nothing",
        "large.yaml": b"a: b\n" * 500_000,
        "secret.yaml": b"name: x\n",
        "plan.yaml": b"name: p\nrun_tasks:\n"
        b"  - {name: a, ml_task: vqa, model: tiny-vlm, dataset: demo-receipts, prompt: demo_vqa}\n",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nothing")
    (folder / "endless").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(folder, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
    (folder / os.fsdecode(b"odd\xff.yaml")).write_bytes(b"name: x\n")
    for name in ("locked", "secret.yaml"):
        (folder / name).chmod(0)
    return folder


def _make_experiment(home: Path) -> None:
    """An experiment that is done, with all that `submit` writes down."""
    metric = Metric(name="exact_match", plugin="exact_match")
    here = asked(home, ["0", "1x", None, "3"], [metric])
    reported(here)
    data = json.loads(here.manifest_file.read_text())
    data |= {
        "version": 1, "id": here.id, "created": "2026-11-20T14:32:00+0000", "host": "login1",
        "hpcbench": "0.1.0",
        "python": "3.11.7", "executable": sys.executable, "packages": {},
        "git": {"plan": None, "hpcbench": None},
        "plan_key": "0" * 64, "seed": 0, "mode": "prod", "settings": [], "baseline": None,
        "host_packages": None,
        "plugin_packages": {}, "environments": {},
        "stage_keys": {"rt": {"inference": "a" * 64, "evaluation": "b" * 64}},
        "measured": {
            "samples": {"rt": 4}, "dataset_hashes": {"rt": "sha256:d"}, "model_hashes": {"m": "sha256:m"}
        },
    }  # fmt: skip
    here.manifest_file.write_text(json.dumps(data))
    groups = [asdict(one) for one in here.work.groups]
    lines = [
        {"event": "round", "round": 0, "groups": groups, "time": 1.0},
        {"event": "intent", "step": "supervise", "time": 1.0},
        {"event": "submitted", "step": "supervise", "job": "local", "time": 1.0},
        {"event": "handed", "time": 1.0},
    ]
    here.submission_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    here.outcome_file.write_text('{"version": 1, "round": 0, "state": "done", "shards_left": []}')
    here.plan_file.write_text("name: plan\nrun_tasks: [rt]\n")


PLACES = (
    "empty", "empty.yaml", "empty.jsonl", "binary.yaml", "binary.jsonl", "latin.csv", "latin.yaml",
    "utf16.yaml",
    "deep.json", "deep.jsonl", "deep.yaml", "laughs.yaml", "cycle.yaml", "twice.yaml", "list.yaml",
    "scalar.yaml",
    "scalar.json", "null.jsonl", "cut.jsonl", "wrong.csv", "broken.png", "broken.zip", "broken.parquet",
    "broken.xlsx", "large.yaml", "secret.yaml", "plan.yaml", "loop", "dangling", "endless", "pipe",
    "pipe.jsonl",
    "socket", "odd\udcff.yaml", "folder", "locked", "locked/x", "secret.yaml/x", "loop/x", "nothing",
    "nothing/x.yaml",
    "", ".", "..", "/", "-", "~", "~nobody-here/x", "/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem",
    "/root/x", "n" * 300, "n" * 5000, "a\nb", "\x1b[31mred", "*", "file:///nothing", "http://127.0.0.1:1/x",
    "s3://", "hf://", "sftp://nowhere.invalid/x", "docker://", "http://[", "://", "a:b:c",
)  # fmt: skip
"""Values for whatever names a place."""

WORDS = (
    "", " ", "-", "x", "@last", "@first", "@", "../..", "nothing=", "=", "a=b", "a.b=c", "a.b.c=[", "=1",
    "1", "-1",
    "0", "nan", "inf", "1e999", "9" * 5000, "²", "٣", "None", "null", "true", "x" * 300, "a,b", ",,", "é",
    "\U0001f600",
    "\udcff", "a\nb", "\x1b[31m", "${env:NOTHING}", "{{ x }}", "%s", "(", "[", "*", "models",
    "models/tiny-vlm",
    "tiny-vlm", "vqa", "anls", "demo-receipts", "ttft=1", "ttft=x", "anls.tau=x", "* * * * *", "@daily",
    "id=doc.id",
)  # fmt: skip
"""Values for whatever is a word."""

NUMBERS = ("x", "", "-1", "0", "1", "nan", "inf", "1.5", "1e400", "9" * 5000, "٣", "0x10")

ENVIRONMENTS: Sequence[Mapping[str, str | None]] = (
    {"HPCBENCH_HOME": "WORLD/empty"}, {"HPCBENCH_HOME": "WORLD/locked"}, {"HPCBENCH_HOME": "/proc/nothing"},
    {"HPCBENCH_HOME": "WORLD/loop"}, {"HPCBENCH_HOME": "~nobody-here"},
    {"HPCBENCH_HOME": "WORLD/" + "n" * 300},
    {"HPCBENCH_HOME": "$NOTHING"}, {"HPCBENCH_HOME": "WORLD/odd\udcff.yaml"},
    {"HPCBENCH_HOME": None, "HOME": None}, {"HPCBENCH_HOME": None, "HOME": "/nothing"},
    {"HPCBENCH_HOME": None, "HOME": "WORLD/empty"},
    {"HPCBENCH_HOME": None, "HOME": "", "XDG_CONFIG_HOME": None},
    {"HPCBENCH_HOME": None, "HOME": None, "XDG_CONFIG_HOME": None},
    {"XDG_CONFIG_HOME": "WORLD/empty"}, {"XDG_CONFIG_HOME": "WORLD/locked"},
    {"XDG_CONFIG_HOME": "WORLD/pipe"},
    {"XDG_CONFIG_HOME": "WORLD/loop"}, {"HPCBENCH_SITE": "WORLD/empty"}, {"HPCBENCH_SITE": "WORLD/locked"},
    {"RUN_MODE": "x"}, {"COLUMNS": "1"}, {"COLUMNS": "0"}, {"COLUMNS": "x"}, {"COLUMNS": "-5"},
    {"LINES": "x"},
    {"TERM": "dumb"}, {"TERM": None}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1", "COLUMNS": "1"},
    {"LC_ALL": "C"}, {"LC_ALL": "nothing"}, {"LANG": "\udcff"}, {"TZ": "nonsense"}, {"TMPDIR": "/nothing"},
    {"TMPDIR": "WORLD/locked"}, {"PATH": ""}, {"PATH": None}, {"PATH": "WORLD/empty"}, {"SLURM_JOB_ID": "x"},
    {"CUDA_VISIBLE_DEVICES": "x"}, {"USER": None, "LOGNAME": None}, {"XDG_RUNTIME_DIR": "WORLD/empty"},
    {"HF_HOME": "WORLD/empty"}, {"http_proxy": "nonsense", "https_proxy": "://"},
    {"XDG_CACHE_HOME": "WORLD/empty"},
    {"XDG_STATE_HOME": "WORLD/empty"},
)  # fmt: skip
"""Environments in which verbs are run."""

GOOD = {
    "experiment": ("@last",), "experiments": ("@last",), "candidate": ("@last",), "candidates": ("@last",),
    "baseline": ("@last",), "target": ("@last", "answers.csv"), "what": ("@last", "plan.yaml"),
    "plan": ("plan.yaml",), "model": ("tiny-vlm",), "dataset": ("demo-receipts",), "metric": ("exact_match",),
    "metrics": ("exact_match",), "run_task": ("rt",), "ml_task": ("vqa",), "kind": ("models", "metrics"),
    "file": ("rows.jsonl",), "source": ("pages",), "registry": ("registry",), "out": ("out",), "to": ("-",),
}  # fmt: skip
"""Words that a verb can use, by the name of the place."""

SERVERS = {"portal", "serve", "watch"}
"""Verbs that go on until they are ended, where nothing stops them."""

REAL_RUNS = {"real_run"}
"""Options that run a real model, which takes as long as this machine is busy."""


# --- commands from the parser ------------------------------------------------------------------------


def leaves(top: argparse.ArgumentParser) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """Every verb there is: its words, its parser."""
    verbs = [one for one in top._actions if isinstance(one, argparse._SubParsersAction)]
    for action in verbs:
        for name, below in action.choices.items():
            for words, leaf in leaves(below):
                yield [name, *words], leaf
    if not verbs or not all(one.required for one in verbs):
        yield [], top


def bad_values(action: argparse.Action) -> Sequence[str]:
    """Wrong values for it, by its type."""
    if action.type in (int, float):
        return NUMBERS
    if action.choices is not None:
        return ("", "x", "-", f"{next(iter(action.choices))}x")
    return (*PLACES, *WORDS)


def commands(chance: random.Random) -> Iterator[Command]:
    """Commands without end: a verb, a value for each place, some options."""
    verbs = [(words, leaf) for words, leaf in leaves(parser()) if words and words[0] not in SERVERS]
    while True:
        words, leaf = chance.choice(verbs)
        yield Command([*words, *_arguments(leaf, chance)], **_surroundings(chance))


def _arguments(leaf: argparse.ArgumentParser, chance: random.Random) -> list[str]:
    care = chance.choice([0.0, 0.7, 0.9])
    options: list[str] = []
    places: list[str] = []
    for action in leaf._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        if action.dest in REAL_RUNS:
            continue
        if action.option_strings:
            if not action.required and chance.random() > 0.2:
                continue
            name = action.option_strings[-1]
            flag = action.nargs == 0
            options.append(name if flag else f"{name}={_value(action, chance, care)}")
        else:
            count = 1 if action.nargs in (None, "+") else chance.randint(0, 2)
            count = min(count, 1) if action.nargs == "?" else count
            places += [_value(action, chance, care) for _ in range(count)]
    # A word that begins with a dash is an option, unless `--` goes before.
    return (
        [*options, "--", *places]
        if any(one.startswith("-") for one in places)
        else [*options, *places]
    )


def _value(action: argparse.Action, chance: random.Random, care: float) -> str:
    """A value for a place: one that a verb can use with the probability of `care`."""
    good = list(action.choices) if action.choices is not None else GOOD.get(action.dest)
    if good and chance.random() < care:
        return str(chance.choice(good))
    return chance.choice(bad_values(action))


def _surroundings(chance: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if chance.random() < 0.3:
        found["environment"] = chance.choice(ENVIRONMENTS)
    if chance.random() < 0.1:
        found["output"] = chance.choice(["closed", "full", "broken"])
    if chance.random() < 0.05:
        found["folder"] = chance.choice(["gone", "locked"])
    if chance.random() < 0.05:
        found["open_files"] = chance.choice([4, 8, 16])
    return found


# --- the zygote's own side ----------------------------------------------------------------------------


def _serve(world: Path) -> None:
    import gc
    import importlib
    import pkgutil

    import hpcbench.cli

    for module in pkgutil.iter_modules(hpcbench.cli.__path__):
        if module.name != "main":
            with contextlib.suppress(ImportError):
                importlib.import_module(f"hpcbench.cli.{module.name}")
    importlib.import_module("hpcbench.cli.main")
    _drop_capabilities()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(asdict(_fork(Command(**json.loads(line)), world))), flush=True)


def _drop_capabilities() -> None:
    """Let modes of files hold for root, too: without capabilities it is a user like any other."""
    import ctypes

    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    none = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def _fork(command: Command, world: Path) -> Outcome:
    out, err = world.parent / "out", world.parent / "err"
    started = time.monotonic()
    child = os.fork()
    if not child:
        _become(command, world, out, err)
    ended, status = 0, 0
    while not ended and time.monotonic() - started < SECONDS:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            time.sleep(0.002)
    seconds = time.monotonic() - started
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        _, status = os.waitpid(child, 0)
    text = [one.read_bytes().decode(errors="replace")[:20_000] for one in (out, err)]
    return Outcome(
        os.waitstatus_to_exitcode(status),
        *text,
        SECONDS if not ended else min(seconds, SECONDS - 1),
    )


def _become(command: Command, world: Path, out: Path, err: Path) -> None:
    """The child: what the command asks for around it, then the command. Never returns."""
    try:
        os.setsid()
        for name, value in command.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value.replace("WORLD", str(world))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        targets = {"full": "/dev/full"}
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        open_out = os.open(out, flags, 0o666)
        os.dup2(
            os.open(targets[command.output], os.O_WRONLY)
            if command.output in targets
            else open_out,
            1,
        )
        os.dup2(os.open(err, flags, 0o666), 2)
        if command.output == "broken":
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(writer, 1)
        os.closerange(3, 64)
        folder = world / "folder-gone" if command.folder == "gone" else world
        folder.mkdir(exist_ok=True)
        os.chdir(folder)
        if command.folder == "gone":
            folder.rmdir()
        elif command.folder:
            (world / command.folder).chmod(0o700)
            os.chdir(world / command.folder)
            (world / command.folder).chmod(0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if command.open_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (command.open_files, command.open_files))
        # As a new process has them.
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(  # noqa: SIM115
            1,
            "w",
            encoding="utf-8",
            errors="surrogateescape" if os.environ.get("LC_ALL") == "C" else "strict",
            closefd=False,
        )
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        if command.output == "closed":
            os.close(1)
            sys.stdout = None  # type: ignore[assignment]
        sys.argv = ["hpcbench", *command.words]
        from hpcbench.cli.main import entry

        code = 0
        try:
            entry()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    except BaseException:  # noqa: BLE001 - as Python itself ends
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(120)


def _campaign(count: int, seed: int) -> int:
    import tempfile

    found = 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        world = make_world(Path(folder) / "world")
        with Zygote(world) as zygote:
            for _, command in zip(range(count), commands(random.Random(seed)), strict=False):
                outcome = zygote.run(command)
                if faults := outcome.faults():
                    found += 1
                    print(f"{faults} {command}\n{outcome.err[-1500:]}", flush=True)
                    for bug in (world / "tmp").glob("hpcbench-bug-*"):
                        print("    " + "\n    ".join(bug.read_text().splitlines()[-9:]), flush=True)
                        bug.unlink()
    print(f"{count} commands, {found} misbehave")
    return min(found, 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--zygote"]:
        _serve(Path(sys.argv[2]))
    else:
        sys.exit(_campaign(int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 0))
