"""Several answers out of one `generate` call, each as if it were alone; the tiny model in this process."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image

from hpcbench.engines.chat import ApiError, parse
from hpcbench.engines.hf_batch import Event, Job, Piece, Row
from hpcbench.engines.hf_inputs import kind_of, open_image, stack
from hpcbench.engines.hf_model import HfModel

DEMO = Path(__file__).parents[2] / "examples/demo"
READ = "Read all text."

pytestmark = pytest.mark.engine


def load(path: Path, **changes: Any) -> HfModel:
    settings: dict[str, Any] = {"dtype": "float32", "gpus": 0, "context_length": None}
    settings |= {"media_root": None, "options": {}, "threads": 1}
    return HfModel.load(str(path), **{**settings, **changes})


@pytest.fixture(scope="module")
def model() -> HfModel:
    return load(DEMO / "model")


@pytest.fixture(scope="module")
def pages() -> list[bytes]:
    return [path.read_bytes() for path in sorted((DEMO / "data/images").rglob("*.png"))[:12]]


def request(*images: bytes, text: str = READ, **settings: Any) -> Job:
    """A request that keeps nothing of what is said to it."""
    urls = [f"data:image/png;base64,{base64.b64encode(image).decode()}" for image in images]
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    parts.append({"type": "text", "text": text})
    body = {"model": "tiny", "messages": [{"role": "user", "content": parts}]}
    body |= {"max_tokens": 40, "temperature": 0, **settings}
    return Job(parse(json.dumps(body).encode(), "tiny"), lambda event: None)


def generate(
    model: HfModel, jobs: Sequence[Job], each_step: Callable[[int], None] = lambda step: None
) -> tuple[list[Row], list[list[tuple[Job, Event]]]]:
    """Rows after one call, and what was handed over, step by step."""
    rows = [model.prepare(job) for job in jobs]
    steps: list[list[tuple[Job, Event]]] = []

    def hand_over(events: list[tuple[Job, Event]]) -> None:
        steps.append(events)
        each_step(len(steps))

    model.generate(rows, hand_over)
    return rows, steps


def text_of(job: Job, steps: Sequence[list[tuple[Job, Event]]]) -> str:
    pieces = [event for step in steps for one, event in step if one is job]
    assert all(isinstance(piece, Piece) for piece in pieces)
    return "".join(piece.text for piece in pieces if isinstance(piece, Piece))


def alone(model: HfModel, job: Job) -> tuple[list[int], str]:
    [row], steps = generate(model, [job])
    return row.drawn, text_of(job, steps)


def assert_each_as_if_alone(model: HfModel, jobs: Sequence[Job]) -> None:
    assert len({model.prepare(job).kind for job in jobs}) == 1  # they may share a batch
    rows, steps = generate(model, jobs)
    for job, row in zip(jobs, rows, strict=True):
        tokens, text = alone(model, job)
        assert row.drawn == tokens
        assert text_of(job, steps) == text


def resized(page: bytes, width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(page)).resize((width, height)).save(out, "PNG")
    return out.getvalue()


def test_greedy_answers_of_a_batch_are_those_of_batch_one(
    model: HfModel, pages: list[bytes]
) -> None:
    sizes = [(168, 84), (84, 84), (140, 70), (112, 84), (168, 42), (84, 168)]
    texts = [READ, "What is the total?", "Read all text. " * 6, "?"]
    jobs = [
        request(resized(page, *sizes[n % 6]), text=texts[n % 4]) for n, page in enumerate(pages)
    ]
    assert len({model.prepare(job).tokens for job in jobs}) > 6  # padding of many lengths
    assert_each_as_if_alone(model, jobs)


def test_rows_may_have_several_images(model: HfModel, pages: list[bytes]) -> None:
    small = resized(pages[1], 56, 56)
    assert_each_as_if_alone(
        model, [request(pages[0]), request(pages[1], small), request(small, pages[2], small)]
    )


def test_text_alone_makes_batches_of_its_own(model: HfModel, pages: list[bytes]) -> None:
    texts = [request(text=text, max_tokens=8) for text in ("a", "Read all text.", "12 " * 9)]
    assert_each_as_if_alone(model, texts)
    assert model.prepare(texts[0]).kind != model.prepare(request(pages[0])).kind


def test_each_row_keeps_its_own_settings(model: HfModel, pages: list[bytes]) -> None:
    free = alone(model, request(pages[0]))[1]
    jobs = [
        request(pages[0]),
        request(pages[0], max_tokens=3),
        request(pages[0], stop=[free[4:6]]),
        request(pages[1], temperature=4.0, seed=1),
        request(pages[1], temperature=4.0, seed=2),
        request(pages[2], temperature=1.5, seed=3, top_k=8, top_p=0.9, min_p=0.02),
        request(pages[3], repetition_penalty=1.5),
        request(pages[4], presence_penalty=2.0, frequency_penalty=1.0),
        request(pages[5], min_tokens=30),
        request(pages[0], response_format={"type": "json_object"}, max_tokens=20),
    ]
    assert_each_as_if_alone(model, jobs)
    rows, steps = generate(model, jobs)
    texts = [text_of(job, steps) for job in jobs]
    assert len(rows[1].drawn) == 3
    assert texts[2] == free[: free.index(free[4:6])]
    assert texts[3] != texts[4]
    assert len(rows[8].drawn) >= 30
    assert texts[9].startswith("{")


def test_each_token_is_handed_out_when_it_is_drawn(model: HfModel, pages: list[bytes]) -> None:
    jobs = [request(page, max_tokens=most) for page, most in zip(pages, (2, 5, 9), strict=False)]
    rows, steps = generate(model, jobs)
    assert [len(row.drawn) for row in rows] == [2, 5, 9]
    for number, step in enumerate(steps, 1):
        assert [job for job, _ in step] == [
            j for j, m in zip(jobs, (2, 5, 9), strict=True) if number <= m
        ]
        assert {event.tokens for _, event in step if isinstance(event, Piece)} == {number}
    last = [step[-1][1] for step in steps]
    assert [piece.reason for piece in last if isinstance(piece, Piece)][-1] == "length"


def test_a_row_without_a_client_ends_and_the_others_go_on(
    model: HfModel, pages: list[bytes]
) -> None:
    jobs = [request(page, max_tokens=20, ignore_eos=True) for page in pages[:3]]

    def leave(step: int) -> None:
        jobs[1].cancelled = step >= 4

    rows, steps = generate(model, jobs, leave)
    assert [len(row.drawn) for row in rows] == [20, 4, 20]
    assert len(steps) == 20


def test_a_batch_ends_with_the_last_one_that_waits(model: HfModel, pages: list[bytes]) -> None:
    jobs = [request(page, max_tokens=500, ignore_eos=True) for page in pages[:2]]

    def leave(step: int) -> None:
        for job in jobs:
            job.cancelled = step >= 3

    assert len(generate(model, jobs, leave)[1]) == 3


def test_penalties_and_limits_of_sampling_are_transformers_own(
    model: HfModel, pages: list[bytes]
) -> None:
    row = model.prepare(request(pages[0]))
    reference = transformers.AutoModelForImageTextToText.from_pretrained(DEMO / "model").eval()
    wanted = reference.generate(
        **row.tensors, max_new_tokens=40, do_sample=False, repetition_penalty=3.0
    )[0, row.tokens :].tolist()
    assert alone(model, request(pages[0], repetition_penalty=3.0))[0] == wanted
    greedy = alone(model, request(pages[0]))[0]
    assert wanted != greedy
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert alone(model, request(pages[0], temperature=3.0, **narrow))[0] == greedy


def test_sampling_without_a_seed_differs(model: HfModel, pages: list[bytes]) -> None:
    jobs = [request(pages[0], temperature=3.0) for _ in range(6)]
    rows, _ = generate(model, jobs)
    assert len({tuple(row.drawn) for row in rows}) > 1


def test_tokens_that_end_an_answer_are_the_requests_choice(
    model: HfModel, pages: list[bytes]
) -> None:
    usual, text = alone(model, request(pages[0]))
    third = usual[2]
    [row], steps = generate(model, [job := request(pages[0], stop_token_ids=[third])])
    assert row.drawn == usual[:3]
    assert text.startswith(text_of(job, steps))
    assert text_of(job, steps) != text
    assert steps[-1][0][1].reason == "stop"  # type: ignore[union-attr]
    longer, _ = alone(model, request(pages[0], ignore_eos=True))
    assert longer[: len(usual)] == usual
    assert len(longer) == 40


def test_special_tokens_are_shown_on_request(model: HfModel, pages: list[bytes]) -> None:
    hidden = alone(model, request(pages[0], ignore_eos=True))[1]
    shown = alone(model, request(pages[0], ignore_eos=True, skip_special_tokens=False))[1]
    assert "<|im_end|>" in shown
    assert "<|im_end|>" not in hidden
    assert "<|im_end|>" not in alone(model, request(pages[0], skip_special_tokens=False))[1]


SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["receipt", "form"]}, "total": {"type": "integer"}},
    "required": ["kind", "total"],
    "additionalProperties": False,
}


def test_answers_follow_their_schema_beside_rows_that_have_none(
    model: HfModel, pages: list[bytes]
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    jobs = [
        request(page, max_tokens=150, **({"response_format": form} if n % 2 else {}))
        for n, page in enumerate(pages[:8])
    ]
    rows, steps = generate(model, jobs)
    assert {row.over for row in rows} == {True}
    for n, job in enumerate(jobs):
        text = text_of(job, steps)
        if n % 2:
            answer = json.loads(text)
            assert answer["kind"] in ("receipt", "form")
            assert isinstance(answer["total"], int)
            assert steps[-1][0][1].reason == "stop"  # type: ignore[union-attr]
        else:
            assert "{" not in text


def test_a_schema_that_cannot_be_followed_is_refused(model: HfModel, pages: list[bytes]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    with pytest.raises(ApiError, match="response_format: .*nonsense") as error:
        model.prepare(request(pages[0], response_format=form))
    assert (error.value.status, error.value.code) == (400, "invalid_schema")


def test_without_llguidance_a_schema_is_refused_by_name(
    model: HfModel, pages: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(ApiError, match="llguidance") as error:
        model.prepare(request(pages[0], response_format={"type": "json_object"}))
    assert (error.value.status, error.value.code) == (400, "unsupported")


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA with random weights: another family, with its own processor."""
    folder = tmp_path_factory.mktemp("llava")
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO / "model")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}{% for c in m['content'] %}"
        "{{ '<image>' if c['type'] == 'image' else c['text'] }}{% endfor %}{% endfor %}"
    )
    torch.manual_seed(0)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            image_size=28, patch_size=7,
        ),
        text_config=transformers.LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, vocab_size=len(tokenizer), pad_token_id=0, initializer_range=0.3,
            max_position_embeddings=256,
        ),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_select_strategy="default", vision_feature_layer=-1,
    )  # fmt: skip
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=28)
    transformers.LlavaProcessor(
        images, tokenizer, patch_size=7, vision_feature_select_strategy="default",
        num_additional_image_tokens=1, chat_template=tokenizer.chat_template,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def test_another_family_with_its_own_processor_is_padded_as_well(
    llava: Path, pages: list[bytes]
) -> None:
    model = load(llava)
    texts = ["a", READ, "12 " * 7, "What is the total? " * 3]
    jobs = [request(page, text=text) for page, text in zip(pages, texts, strict=False)]
    jobs.append(request(pages[5], pages[6]))
    assert_each_as_if_alone(model, jobs)


def test_inputs_that_do_not_fit_together_are_of_different_kinds() -> None:
    ids = torch.ones(1, 4, dtype=torch.long)
    square, wide = torch.ones(1, 3, 8, 8), torch.ones(1, 3, 8, 9)
    assert kind_of({"input_ids": ids, "pixels": square}) != kind_of(
        {"input_ids": ids, "pixels": wide}
    )
    strange = {"input_ids": ids, "unknown": "a text"}
    assert kind_of(strange) != kind_of(dict(strange))
    longer = torch.full((1, 6), 2)
    batch = stack([{"input_ids": ids, "p": square}, {"input_ids": longer, "p": square}], 9)
    assert batch["input_ids"].tolist() == [[9, 9, 1, 1, 1, 1], [2] * 6]
    assert batch["p"].shape == (2, 3, 8, 8)


def test_an_image_is_turned_as_its_camera_says() -> None:
    image = Image.new("RGB", (4, 2))
    image.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    out = io.BytesIO()
    image.save(out, "PNG", exif=exif)
    opened = open_image(out.getvalue())
    assert opened.size == (2, 4)
    assert opened.getpixel((1, 0)) == (255, 0, 0)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(mode: str) -> None:
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (0, 0, 0, 255))
    out = io.BytesIO()
    if mode == "P":
        palette = Image.new("P", (2, 1), 0)
        palette.putpalette([9, 9, 9, 0, 0, 0])
        palette.putpixel((1, 0), 1)
        palette.save(out, "PNG", transparency=0)
    else:
        image.convert(mode).save(out, "PNG")
    opened = open_image(out.getvalue())
    assert opened.mode == "RGB"
    assert [opened.getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (0, 0, 0)]
