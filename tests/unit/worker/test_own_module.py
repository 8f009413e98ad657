"""An ML task's own module: what it is given, what counts, and how it fails; its programs are real."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench.inference.client import EngineGone
from hpcbench.plugins import Command
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.records import Request, Response
from hpcbench.worker.loopback import on_loopback
from hpcbench.worker.own_module import ModuleFailed, OwnModule
from tests.unit.small import run_task, sample

WRITES = """
import csv, json, os, sys
task = json.load(open("run_task.json", encoding="utf-8"))
with open("answers.csv", "w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["id", "prediction"])
    rows.writerows([one["id"], "\\u043e\\u0442\\u0432\\u0435\\u0442 " + one["id"]] for one in task["items"])
"""
"""A module that answers each sample."""


class Wrapper:
    """The part of `EngineProcess` that a module's run uses, with this Python and no engine."""

    def __init__(self, folder: Path, state: str = "ready") -> None:
        self.site = SimpleNamespace(scratch=str(folder))
        self.folder, self.log = folder, folder / "worker.log"
        self.client = SimpleNamespace(status=self._status)
        self._state = state

    async def _status(self) -> dict[str, Any]:
        return {"state": self._state}

    def command(
        self, argv: Sequence[str], mounts: Sequence[str], env: Mapping[str, str]
    ) -> Command:
        return Command([sys.executable, *argv[1:]], {**env, "PYTHONPATH": str(self.folder)})

    @contextlib.asynccontextmanager
    async def over_tcp(self) -> AsyncIterator[tuple[str, str]]:
        yield "http://127.0.0.1:9", "a-key-of-the-wrapper"


def asked(
    folder: Path, module: str, *, name: str = "own_task", state: str = "ready", timeout: float = 30.0,
    stop_after: float | None = None, ids: Sequence[str] = ("s1", "s2"), **more: Any,
) -> list[Response]:  # fmt: skip
    """Answers of a module to samples."""
    (folder / "own_task.py").write_text(module, encoding="utf-8")
    (folder / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    plain = run_task(dataset={"source": str(folder)}, request_timeout=timeout)
    task = plain.model_copy(update={"ml_task": plain.ml_task.model_copy(update={"module": name})})
    prompt = TaskPrompt(task)
    given = [
        sample(**{"id": one, "images": (folder / "p.png",), "metadata": {"page": 1}, **more})
        for one in ids
    ]
    pairs = [
        (one, Request(one.id, prompt.build(one), prompt.generation, timeout, "p")) for one in given
    ]

    async def journey() -> Sequence[Response]:
        stop = asyncio.Event()
        if stop_after is not None:
            asyncio.get_running_loop().call_later(stop_after, stop.set)
        own = OwnModule(task, Wrapper(folder, state), folder, "prod")  # type: ignore[arg-type]
        return await own.answers(iter(pairs), 3, stop)

    return list(asyncio.run(journey()))


def test_it_gets_the_samples_and_the_model_and_its_answers_are_responses(tmp_path: Path) -> None:
    module = WRITES + (
        "names = ('AUTH_TOKEN', 'OPENAI_BASE_URL', 'CONCURRENCY', 'RUN_MODE')\n"
        "seen = [task, sys.argv[1:], {one: os.environ[one] for one in names}]\n"
        f"json.dump(seen, open({str(tmp_path / 'seen')!r}, 'w'))\n"
        "print('my key is', os.environ['AUTH_TOKEN'])\n"
    )  # fmt: skip
    first, second = asked(tmp_path, module)
    assert (first.sample_id, first.outcome, first.text) == ("s1", "ok", "ответ s1")
    assert (second.text, second.tries, second.usage, second.prompt) == ("ответ s2", 0, None, "p")
    task, argv, variables = json.loads((tmp_path / "seen").read_text())
    assert argv == []
    assert variables == {
        "AUTH_TOKEN": "a-key-of-the-wrapper", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "CONCURRENCY": "3", "RUN_MODE": "prod",
    }  # fmt: skip
    assert task["model"]["framework"] and task["items"][0] == {
        "id": "s1", "image_path": str(tmp_path / "p.png"), "images": [str(tmp_path / "p.png")],
        "metadata": {"page": 1, "question": "Total?"}, "system_prompt": None,
        "user_prompt": task["items"][0]["user_prompt"],
    }  # fmt: skip
    assert "references" not in json.dumps(task)
    assert "my key is ***" in (tmp_path / "worker.log").read_text()
    assert not [one for one in tmp_path.iterdir() if one.name.startswith("hpcbench-")]


def test_images_inside_other_files_are_given_as_files(tmp_path: Path) -> None:
    page = b"\xff\xd8\xffjpeg"
    module = WRITES.replace(
        '"\\u043e\\u0442\\u0432\\u0435\\u0442 " + one["id"]',
        'one["image_path"][-9:] + str(len(open(one["image_path"], "rb").read()))',
    )
    (answer,) = asked(tmp_path, module, ids=["s1"], images=(page,))
    assert answer.text == f"00/0.jpeg{len(page)}"


def test_samples_without_a_row_have_failed_and_those_without_an_image_are_invalid(
    tmp_path: Path,
) -> None:
    one, other = asked(tmp_path, WRITES.replace('task["items"])', 'task["items"][:1])'))
    assert (one.outcome, other.outcome, other.text) == ("ok", "failed", None)
    assert other.error == "the module wrote no answer to this sample"
    (bad,) = asked(tmp_path, "raise SystemExit(9)", ids=["s1"], images=(tmp_path / "gone.png",))
    assert bad.outcome == "invalid"
    assert "gone.png cannot be read: No such file" in (bad.error or "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "cause", "message"),
    [
        ("print('so'); raise SystemExit(3)", "failed", "ended with exit code 3: so"),
        ("1 / 0", "failed", "ended with exit code 1: ZeroDivisionError: division by zero"),
        ("import not_a_module", "failed", "No module named 'not_a_module'"),
        ("import os; os.kill(os.getpid(), 9)", "killed", "was ended by SIGKILL, perhaps for its"),
        ("", "answers", "wrote no answers.csv"),
        ("import os; os.mkdir('answers.csv')", "answers", "wrote no answers.csv"),
        ("import os; os.mkfifo('answers.csv')", "answers", "wrote no answers.csv"),
        (b"id,prediction\ns1,ha", "answers", "the last line has no end"),
        (b"id,prediction\n", "answers", "wrote no answer to answers.csv"),
        (b"prediction\nx\n", "answers", "without a column `id`"),
        (b"id,its_text\ns1,x\n", "answers", "answers.csv:2: needs id and one of"),
        (b"id,prediction\ns1,x\ns9,y\n", "answers", "an answer to 's9', which it was not asked"),
        (b"id,prediction\ns1,x\ns1,y\n", "answers", "answers.csv:3: a second answer to 's1'"),
        (b"id,prediction\ns1,x,y\n", "answers", "answers.csv:2: the row has more or fewer col"),
        (b"id,prediction\ns1,\xff\n", "answers", "wrote a wrong answers.csv"),
    ],
)
def test_each_mistake_is_one_line_with_the_module_and_a_cause(
    tmp_path: Path, module: str | bytes, cause: str, message: str
) -> None:
    if isinstance(module, bytes):
        module = f"open('answers.csv', 'wb').write({module!r})"
    with pytest.raises(ModuleFailed) as caught:
        asked(tmp_path, module)
    assert caught.value.cause == f"module_{cause}"
    reported = str(caught.value)
    assert reported.startswith("module 'own_task' ")
    assert message in reported
    assert "\n" not in reported


@pytest.mark.long
def test_a_module_that_is_not_there_is_reported_by_its_name(tmp_path: Path) -> None:
    for name in ("not_there", "not_there.at.all", "json"):
        with pytest.raises(
            ModuleFailed, match=f"module '{name}' is not in the model's env"
        ) as reported:
            asked(tmp_path, WRITES, name=name)
        assert reported.value.cause == "module_not_found"


@pytest.mark.long
def test_one_that_hangs_is_ended_with_all_it_started_and_its_flood_is_cut(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    module = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "print('x' * 1000 * 80_000)\n"
        "time.sleep(600)\n"
    )
    begin = time.monotonic()
    with pytest.raises(
        ModuleFailed, match=r"did not end in 2 s, .* for each of 2 samples"
    ) as reported:
        asked(tmp_path, module, timeout=1.0)
    assert reported.value.cause == "module_timeout"
    assert time.monotonic() - begin < 60
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}/cmdline").exists() or not _lives(pid)
    assert (tmp_path / "worker.log").stat().st_size < 70 * 2**20


def _lives(pid: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_a_worker_that_ends_takes_it_along_and_nothing_it_wrote_counts(tmp_path: Path) -> None:
    begin = time.monotonic()
    assert asked(tmp_path, WRITES + "import time; time.sleep(600)", stop_after=1.0) == []
    assert time.monotonic() - begin < 30


def test_a_failure_without_an_engine_is_the_engines(tmp_path: Path) -> None:
    with pytest.raises(EngineGone, match="the engine is failed after module 'own_task' failed"):
        asked(tmp_path, "raise SystemExit(1)", state="failed")


async def test_a_socket_is_reached_over_tcp_and_connections_end(tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"said " + await reader.read())
        writer.close()

    path = str(tmp_path / "s.sock")
    server = await asyncio.start_unix_server(echo, path)
    async with on_loopback(path) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 300_000)
        writer.write_eof()
        whole = await reader.read()
        left, other = await asyncio.open_connection("127.0.0.1", port)
        server.close()
        Path(path).unlink(missing_ok=True)
        gone, third = await asyncio.open_connection("127.0.0.1", port)
        lost = await gone.read()
    assert await left.read() == b""
    for one in (writer, other, third):
        one.close()
        await one.wait_closed()
    assert whole == b"said " + b"x" * 300_000
    assert lost == b""
