"""The playground: which served models it finds, what it sends them, and what it says where they fail."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench.experiment.process_identity import identity
from hpcbench.portal import playground
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.playground import Question
from hpcbench.submit import serve_job
from hpcbench.wrapper.served_models import GONE_SECONDS, Announcement, served_models
from tests.mock_openai import Script, Server
from tests.unit.portal.asking import portal_over
from tests.unit.portal.unguarded import Unguarded, unguarded
from tests.user import until

KEY = "key-of-the-engine-123456"
PAGE = f"data:image/png;base64,{base64.b64encode(b'page').decode()}"


@contextmanager
def serving(home: Path, socket: Path, address: str = "") -> Iterator[Announcement]:
    """Announce a model as `hpcbench serve` does."""
    made = Announcement(home, KEY)
    made.made(model="tiny", engine="scripted", socket=str(socket), address=address)
    yield made
    made.end()


def answered(home: Path, **more: Any) -> list[dict[str, Any]]:
    """Events of the answer to a question, as the page reads them."""
    served, key = playground.find(home, served_models(home)[0].id)
    question = Question(served=served.id, prompt="Total?", **more)

    async def ask() -> bytes:
        session, response = await playground.opened(served, key, question)
        return b"".join([piece async for piece in playground.lines(session, response, key)])

    lines = asyncio.run(ask()).decode().splitlines()
    data = [line[5:].strip() for line in lines if line.startswith("data:")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def test_a_served_model_is_found_while_it_is_served_and_no_other_user_reads_its_key(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, tmp_path / "s") as made:
        (one,) = served_models(tmp_path)
        assert (one.model, one.is_here) == ("tiny", True)
        assert playground.find(tmp_path, one.id)[1] == KEY
        for path in (tmp_path / "serving").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert path == made.key_file or KEY not in path.read_text()
        long_ago = time.time() - GONE_SECONDS - 1
        os.utime(tmp_path / "serving" / f"{one.id}.json", (long_ago, long_ago))
        assert served_models(tmp_path) == [], "one that was killed"
    assert list((tmp_path / "serving").iterdir()) == []


def test_a_question_reaches_the_engine_with_its_page_and_the_answer_streams_back(
    tmp_path: Path,
) -> None:
    async def with_server() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        async with Server(tmp_path / "s", Script(pieces=("12", ",50"))) as server:
            found = await asyncio.to_thread(
                answered, tmp_path, images=[PAGE], system="Be brief.", max_tokens=7
            )
            return found, server.seen

    with serving(tmp_path, tmp_path / "s"):
        events, seen = asyncio.run(with_server())
    text = "".join(
        one["choices"][0]["delta"].get("content") or "" for one in events if one["choices"]
    )
    assert text == "12,50"
    assert events[-1]["usage"]["completion_tokens"] > 0
    (asked,) = seen
    assert asked["headers"]["Authorization"] == f"Bearer {KEY}"
    sent = json.loads(asked["raw"])
    assert sent["max_tokens"] == 7
    assert [one["role"] for one in sent["messages"]] == ["system", "user"]
    assert sent["messages"][1]["content"] == [
        {"type": "image_url", "image_url": {"url": PAGE}}, {"type": "text", "text": "Total?"}
    ]  # fmt: skip


def test_an_engine_that_is_gone_refuses_or_is_elsewhere_is_reported_in_a_line(
    tmp_path: Path,
) -> None:
    with pytest.raises(PortalFault, match="not served any more"):
        playground.find(tmp_path, "none")
    with serving(tmp_path, tmp_path / "none"), pytest.raises(PortalFault, match="does not answer"):
        answered(tmp_path)
    with serving(tmp_path, tmp_path / "s"), pytest.raises(PortalFault, match="not a data URI"):
        answered(tmp_path, images=["http://elsewhere/page.png"])

    async def refused() -> None:
        async with Server(tmp_path / "s", Script(plan=["status:400"])):
            await asyncio.to_thread(answered, tmp_path)

    with (
        serving(tmp_path, tmp_path / "s"),
        pytest.raises(PortalFault, match="tiny refuses the question") as reported,
    ):
        asyncio.run(refused())
    assert reported.value.status == 422


def test_a_refusal_that_arrives_in_pieces_is_reported_whole(tmp_path: Path) -> None:
    said = json.dumps({"error": {"message": "at most 2 images, not 3"}}).encode()
    ended = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"Total?")
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(said))
        with contextlib.suppress(OSError):  # the reader may not wait for the second piece
            for piece in (said[:20], said[20:]):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.1)
            writer.close()
            await writer.wait_closed()
        ended.set()

    async def refused() -> None:
        async with await asyncio.start_unix_server(refuse, tmp_path / "s"):
            try:
                await asyncio.to_thread(answered, tmp_path)
            finally:
                await ended.wait()

    with (
        serving(tmp_path, tmp_path / "s"),
        pytest.raises(PortalFault, match="refuses the question: at most 2 images, not 3$"),
    ):
        asyncio.run(refused())


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Unguarded]:
    with unguarded(portal_over(tmp_path)) as found:
        yield found


SPY = """
import json, sys
from pathlib import Path
print(json.dumps(sys.argv[2:]))
(Path(sys.argv[1]) / "code").write_text("0")
"""


def test_a_model_is_started_and_ended_by_the_command_that_a_user_would_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.portal.user_commands._START", SPY)
    asked = {"model": "tiny-vlm", "minutes": 90}
    with unguarded(portal_over(tmp_path)) as api:
        refused = api.ask("POST", "playground/served", asked)
        assert (refused.status, refused.body["code"]) == (403, "refused")
        assert api.ask("DELETE", "playground/served/abc").status == 403
    portal = portal_over(tmp_path)
    portal.options = replace(portal.options, may_submit=True)
    job = serve_job.ServeJob("abc", "tiny-vlm", "huggingface", 60, 1.0, process={})
    folder = serve_job.folder_of(tmp_path, "abc")
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(asdict(job)))
    with unguarded(portal) as api:
        assert api.ask("POST", "playground/served", {**asked, "model": "--as-job"}).status == 422
        assert api.ask("POST", "playground/served", {**asked, "minutes": 0}).status == 422
        assert api.ask("DELETE", "playground/served/abd").status == 404
        for method, path, words in (
            ("POST", "", ["serve", "tiny-vlm", "--job", "--time-limit", "01:30:00"]),
            ("DELETE", "/abc", ["serve", "abc", "--stop"]),
        ):
            started = api.ask(method, f"playground/served{path}", asked if not path else None)
            assert (started.status, started.body["verb"], started.body["name"]) == (
                202, "serve", "tiny-vlm"
            )  # fmt: skip
            until(lambda: _ended(api, started.body["submission"]), 60, "its end")  # noqa: B023
            log = api.ask("GET", f"submissions/{started.body['submission']}").body["log"]
            assert json.loads(log[0]) == words


def _ended(api: Unguarded, submission: str) -> bool:
    return bool(api.ask("GET", f"submissions/{submission}").body["state"] != "running")


def test_a_job_is_listed_with_its_log_until_its_model_is_ready(tmp_path: Path) -> None:
    job = serve_job.ServeJob(
        "abc", "tiny", "scripted", 60, time.time(), process=identity(os.getpid())
    )
    folder = serve_job.folder_of(tmp_path, "abc")
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(asdict(job)))
    (folder / "host.out").write_text("loading tiny\n")
    (row,) = playground.rows(tmp_path)
    assert (row.id, row.state, row.is_job, row.reachable) == ("abc", "starting", True, False)
    assert row.log == ("loading tiny",)
    made = Announcement(tmp_path, KEY, "abc")
    made.made(2e9, model="tiny", engine="scripted", socket="/s", address="")
    (row,) = playground.rows(tmp_path)
    assert (row.state, row.is_job, row.reachable, row.ends, row.log) == (
        "ready",
        True,
        True,
        2e9,
        (),
    )
    with serving(tmp_path, tmp_path / "s"):
        rows = playground.rows(tmp_path)
        assert sorted(one.is_job for one in rows) == [False, True], "a terminal's is not a job"


def test_a_page_of_a_document_comes_as_an_image(api: Unguarded) -> None:
    file = io.BytesIO()
    one, two = Image.new("RGB", (60, 40), "red"), Image.new("RGB", (60, 40), "blue")
    one.save(file, "PDF", save_all=True, append_images=[two], resolution=72)
    found = api.sent("playground/pages?page=2&name=scan.pdf", file.getvalue())
    assert (found.status, found.headers["x-pages"]) == (200, "2")
    with Image.open(io.BytesIO(found.body)) as page:
        assert page.width > page.height > 80
        assert page.convert("RGB").getpixel((60, 40))[2] > 200  # type: ignore[index]
    beyond = api.sent("playground/pages?page=3&name=scan.pdf", file.getvalue())
    assert (beyond.status, json.loads(beyond.body)["error"]) == (422, "scan.pdf has 2 pages, not 3")
    assert api.sent("playground/pages?name=a.pdf", b"no pdf").status == 422
    assert api.sent("playground/pages?name=a.exe", b"MZ").status == 422
