"""The wrapper's WebSocket plane, as a page in Chromium sees it."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import Browser

from tests.unit.inference.talking import TEXT
from tests.unit.wrapper.running import KEY, Wrapper, install_scripted

ASK = """([address, key]) => new Promise((resolve) => {
  const socket = new WebSocket(address);
  let text = "";
  socket.onopen = () => {
    socket.send(JSON.stringify({key}));
    socket.send(JSON.stringify({id: "1", request: {model: "scripted", stream: true, messages: []}}));
  };
  socket.onmessage = (message) => {
    const frame = JSON.parse(message.data);
    text += frame.chunk?.choices[0]?.delta?.content ?? "";
    if (frame.final) resolve(text);
  };
  socket.onclose = (closed) => resolve(`${closed.code} ${closed.reason}`);
})"""


def started(folder: Path) -> Wrapper:
    """A wrapper with a model, on a port."""
    wrapper = Wrapper(install_scripted(folder), "--port", "0", "--web-socket")

    async def load() -> None:
        async with wrapper.control() as control:
            await control.loaded(wrapper.body())

    asyncio.run(load())
    return wrapper


def test_a_page_streams_an_answer_with_the_key_and_gets_the_reason_without(
    browser: Browser, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:  # Playwright has an event loop in this thread
        wrapper = pool.submit(started, tmp_path).result()
    try:
        found = re.search(r"http://(127\.0\.0\.1:\d+)", wrapper.errors.read_text())
        assert found is not None
        page = browser.new_page()
        # Chromium refuses 127.0.0.1 to an empty page; the refusal of the key is a page of the wrapper.
        page.goto(f"http://{found[1]}/")
        address = f"ws://{found[1]}/v1/stream"
        assert page.evaluate(ASK, [address, KEY]) == TEXT
        refused = page.evaluate(ASK, [address, "wrong"])
        assert refused.startswith("4401 the key is missing or wrong")
        page.close()
    finally:
        wrapper.close()
