"""The playground: which served models it finds, what it sends them, and what it says where they fail."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench.portal import playground
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.playground import Question
from hpcbench.wrapper.served_models import GONE_SECONDS, Announcement, served_models
from tests.mock_openai import Script, Server
from tests.unit.portal.asking import portal_over
from tests.unit.portal.unguarded import Unguarded, unguarded

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


def test_an_engine_that_is_gone_refuses_or_is_elsewhere_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(PortalFault, match="not served any more"):
        playground.find(tmp_path, "none")
    with serving(tmp_path, tmp_path / "none"), pytest.raises(PortalFault, match="does not answer"):
        answered(tmp_path)
    with (
        serving(tmp_path, tmp_path / "s"),
        pytest.raises(PortalFault, match="not a data URI"),
    ):
        answered(tmp_path, images=["http://elsewhere/page.png"])

    async def refused() -> None:
        async with Server(tmp_path / "s", Script(plan=["status:400"])):
            await asyncio.to_thread(answered, tmp_path)

    with (
        serving(tmp_path, tmp_path / "s"),
        pytest.raises(PortalFault, match="tiny refuses the question") as told,
    ):
        asyncio.run(refused())
    assert told.value.status == 422


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unguarded]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with unguarded(portal_over(tmp_path)) as found:
        yield found


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
