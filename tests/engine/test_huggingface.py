"""The tiny model in transformers, through wrapper and client: the whole way of an answer.

Runs in an environment with torch and transformers; the engine is started with this very Python.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hpcbench.engines import huggingface
from hpcbench.engines.huggingface import HuggingFaceEngine
from hpcbench.inference.client import LoadFailed, load_body
from hpcbench.inference.load_driver import drive
from hpcbench.plugins import EngineSpec
from hpcbench.schema.model import Model
from hpcbench.schema.records import Message, Request
from tests.unit.wrapper.running import KEY, ROOT, Wrapper, gone, install_scripted

MODEL = ROOT / "examples/demo/model"

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image, ImageDraw

    image = Image.new("L", (168, 84), 255)
    ImageDraw.Draw(image).text((12, 30), "Total 12.50", fill=0)
    path = tmp_path_factory.mktemp("pages") / "page.png"
    image.save(path)
    return path


@pytest.fixture(scope="module")
def wrapper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrapper]:
    """A wrapper with the tiny model loaded."""
    one = Wrapper(install_scripted(tmp_path_factory.mktemp("plugins")))
    loaded = run(load(one, env={"OMP_NUM_THREADS": "1"}))
    assert loaded["versions"]["transformers"]
    yield one
    one.close()
    assert gone([loaded["pid"]], 0.1)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 120))


async def load(wrapper: Wrapper, **body: Any) -> dict[str, Any]:
    async with wrapper.client() as client:
        return await client.load({**model_body(), **body}, 100)


def model_body() -> dict[str, Any]:
    return {"engine": "huggingface", "model_path": str(MODEL), "model_name": "scripted"}


def request(page: Path | None, **generation: Any) -> Request:
    message = Message("user", "Read all text.", () if page is None else (page,))
    return Request("s1", (message,), {"max_tokens": 24, "temperature": 0, **generation}, 60)


def ask(wrapper: Wrapper, *requests: Request) -> list[Any]:
    async def all_of_them() -> list[Any]:
        async with wrapper.client() as client:
            return [await client.ask(one) for one in requests]

    return list(run(all_of_them()))


async def post(wrapper: Wrapper, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    connector = aiohttp.UnixConnector(str(wrapper.socket))
    async with (
        aiohttp.ClientSession("http://w", connector=connector) as session,
        session.post(
            "/v1/chat/completions", json={"model": "scripted", **body}, headers={"X-API-Key": KEY}
        ) as answer,
    ):
        return answer.status, await answer.json()


def content(image: bytes) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    parts = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "Read all text."},
    ]
    return [{"role": "user", "content": parts}]


def test_greedy_answers_are_equal_streamed_or_whole(wrapper: Wrapper, page: Path) -> None:
    first, second = ask(wrapper, request(page), request(page))
    assert first.outcome in ("ok", "truncated")
    assert first.text == second.text
    assert first.usage == second.usage
    body = {"messages": content(page.read_bytes()), "max_tokens": 24, "temperature": 0}
    status, whole = run(post(wrapper, body))
    assert status == 200
    [choice] = whole["choices"]
    assert choice["message"]["content"] == first.text
    assert choice["finish_reason"] == first.finish_reason
    assert whole["usage"]["prompt_tokens"] == first.usage["prompt_tokens"]
    assert whole["usage"]["completion_tokens"] == first.usage["completion_tokens"]


def test_text_alone_and_several_images_are_prompts_too(wrapper: Wrapper, page: Path) -> None:
    message = Message("user", "Read all text.", (page, page))
    two = Request("s1", (message,), {"max_tokens": 4, "temperature": 0}, 60)
    alone, one, both = ask(wrapper, request(None), request(page), two)
    tokens = [response.usage["prompt_tokens"] for response in (alone, one, both)]
    assert tokens[1] - tokens[0] == tokens[2] - tokens[1] > 50


def test_the_limit_of_tokens_is_kept_and_reported(wrapper: Wrapper, page: Path) -> None:
    [short] = ask(wrapper, request(page, max_tokens=1))
    assert (short.outcome, short.finish_reason) == ("truncated", "length")
    assert short.usage["completion_tokens"] == 1
    [long] = ask(wrapper, request(page, max_tokens=5000))
    assert long.outcome == "invalid"
    assert "the context length is 1024 tokens" in long.error


def test_a_stop_text_ends_the_answer(wrapper: Wrapper, page: Path) -> None:
    [full] = ask(wrapper, request(page))
    middle = full.text[1:3]
    [cut] = ask(wrapper, request(page, stop=[middle]))
    assert cut.text == full.text[: full.text.index(middle)]
    assert (cut.outcome, cut.finish_reason) == ("ok", "stop")


def test_sampling_follows_its_seed(wrapper: Wrapper, page: Path) -> None:
    hot = [request(page, temperature=3.0, seed=seed) for seed in (1, 1, 2, 3, 4)]
    texts = [response.text for response in ask(wrapper, *hot)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_a_broken_image_is_the_requests_fault(wrapper: Wrapper, page: Path) -> None:
    for image in (b"no image", page.read_bytes()[:60]):
        status, answer = run(post(wrapper, {"messages": content(image), "stream": True}))
        assert status == 400
        assert answer["error"]["code"] == "invalid_image"
        assert answer["error"]["type"] == "invalid_request_error"
    broken = page.with_name("broken.png")
    broken.write_bytes(b"not an image")
    [response] = ask(wrapper, request(broken))
    assert response.outcome == "invalid"
    assert response.error == "cannot identify image (12 bytes)"
    [after] = ask(wrapper, request(page))
    assert after.outcome in ("ok", "truncated")


async def test_many_at_once_agree(wrapper: Wrapper, page: Path) -> None:
    async with wrapper.client() as client:
        requests = [request(page) for _ in range(8)]
        responses = [r async for r in drive(client, requests, 4, asyncio.Event())]
    assert len(responses) == 8
    assert len({response.text for response in responses}) == 1


async def test_a_client_that_leaves_frees_the_model(wrapper: Wrapper, page: Path) -> None:
    async with wrapper.client() as client:
        long = [client.ask(request(page, max_tokens=900)) for _ in range(20)]
        tasks = [asyncio.ensure_future(one) for one in long]
        await asyncio.sleep(0.3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        response = await client.ask(request(page, max_tokens=1))
        assert response.outcome == "truncated", response.error
        while (await client.status())["in_flight"]:
            await asyncio.sleep(0.02)


def test_the_engines_own_figures_are_reported_through_the_wrapper(wrapper: Wrapper) -> None:
    async def metrics() -> str:
        connector = aiohttp.UnixConnector(str(wrapper.socket))
        async with (
            aiohttp.ClientSession("http://w", connector=connector) as session,
            session.get("/metrics", headers={"X-API-Key": KEY}) as answer,
        ):
            return await answer.text()

    lines = run(metrics()).splitlines()
    assert "hpcbench_engine_torch_threads 1.0" in lines
    assert "hpcbench_engine_max_batch 8.0" in lines


def test_a_model_without_weights_says_which_file(plugins: Path, tmp_path: Path) -> None:
    for name in MODEL.iterdir():
        if name.suffix != ".safetensors":
            (tmp_path / name.name).write_bytes(name.read_bytes())
    wrapper = Wrapper(plugins)
    try:
        with pytest.raises(LoadFailed, match=r"exit code 1 .*model\.safetensors"):
            run(load(wrapper, model_path=str(tmp_path)))
    finally:
        wrapper.close()


def test_weights_of_another_model_are_refused_with_what_they_lack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In this process, which has torch already: the test above has a reason on its way to the client."""
    for name in MODEL.iterdir():
        (tmp_path / name.name).write_bytes(name.read_bytes())
    half(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    spec = EngineSpec(socket="/s", model_path=str(tmp_path), model_name="tiny")
    _, _, _, *argv = HuggingFaceEngine().launch_command(spec).argv
    with pytest.raises(RuntimeError, match="do not fit the model: .* tensors missing"):
        huggingface.main(argv)


def half(folder: Path) -> None:
    """Weights of which every other tensor is missing."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(MODEL / "model.safetensors")
    kept = {name: tensor for n, (name, tensor) in enumerate(sorted(tensors.items())) if n % 2}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_scripted(tmp_path_factory.mktemp("plugins"))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_of_a_model_definition_is_that_of_the_model(
    attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = Model.model_validate(
        {
            "name": "tiny", "source": str(MODEL), "engine": "huggingface", "gpus": 0,
            "engine_options": {"attn_implementation": attention},
        }
    )  # fmt: skip
    body = load_body(definition, {})
    reported = {name: body[name] for name in ("model_path", "model_name", "options")}
    _, _, _, *argv = HuggingFaceEngine().launch_command(EngineSpec(socket="/s", **reported)).argv
    served: list[Any] = []
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(
        "hpcbench.engines.hf_server.application", lambda model, *_: served.append(model)
    )
    monkeypatch.setattr("hpcbench.engines.hf_server.run", lambda *_: None)
    huggingface.main(argv)
    config = served[0]._model.config
    parts = (config, config.get_text_config(), config.vision_config)
    assert [one._attn_implementation for one in parts] == [attention] * 3
