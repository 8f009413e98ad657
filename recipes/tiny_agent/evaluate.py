"""Score a model on sheets with small print, with and without `crop`, with plain transformers.

    python -m recipes.tiny_agent.evaluate --model examples/agent/model --data examples/agent/data

Independent of hpcbench on purpose, as `recipes.tiny_vlm.evaluate`: greedy, one sample at a time, and a crop
by Pillow. With `--fresh N`, N sheets are drawn from seeds of their own, instead of the shipped ones.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from recipes.tiny_agent.model import RESPONSE
from recipes.tiny_agent.pages import UNITS, crop, make_labels, render
from recipes.tiny_vlm.evaluate import Reader, user

FRESH_SEED = 500_000_000
"""Between the seeds of the shipped sheets and those of training."""
SYSTEM = {"role": "system", "content": "You may call a tool: <tool_call>…</tool_call>"}
CALL = re.compile(r"\A<tool_call>\n(.*)\n</tool_call>\Z")


def with_tool(reader: Reader, question: str, image: Image.Image, response: str) -> tuple[str, str]:
    """How it ended, and the answer: of the first turn if that has no call that can be run."""
    messages: list[dict[str, Any]] = [SYSTEM, user(question)]
    first = reader.chat(messages, [image])
    found = CALL.match(first)
    if found is None:
        return "no call", first
    try:
        call = json.loads(found[1])
        box = tuple(int(place) for place in call["arguments"]["box"])
        if call["name"] != "crop" or call["arguments"]["image"] != 1 or len(box) != 4:
            return "wrong call", first
    except (ValueError, KeyError, TypeError):
        return "wrong call", first
    if not (0 <= box[0] < box[2] <= UNITS and 0 <= box[1] < box[3] <= UNITS):
        return "wrong call", first
    part = crop(image, box)
    said = response.format(width=part.width, height=part.height)
    messages += [{"role": "assistant", "content": first}, user(said)]
    return "answered", reader.chat(messages, [image, part])


def shipped(data: Path) -> Iterator[tuple[str, Image.Image, str]]:
    """Question, sheet and answer of each sample of a folder."""
    for line in (data / "codes.jsonl").read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        with Image.open(data / sample["images"][0]) as image:
            yield sample["fields"]["question"], image.copy(), sample["references"][0]


def fresh(count: int) -> Iterator[tuple[str, Image.Image, str]]:
    """The same of sheets that are drawn now."""
    for number in range(count):
        rng = random.Random(FRESH_SEED + number)
        labels = make_labels(rng)
        yield labels[0].question, render(labels, rng), labels[0].code


def evaluate(model: Path, data: Path, count: int, limit: int | None, response: str) -> None:
    """Print a Markdown table."""
    reader = Reader(model)
    samples = list(fresh(count) if count else shipped(data))[:limit]
    print("| tool | n | exact match | ends | s per sample |")
    print("|---|---:|---:|---|---:|")
    for tool in (True, False):
        right, ends = 0, Counter[str]()
        began = time.monotonic()
        for question, image, reference in samples:
            if tool:
                end, answer = with_tool(reader, question, image, response)
            else:
                end, answer = "answered", reader.chat([user(question)], [image])
            ends[end] += 1
            right += answer.strip() == reference
        spent = (time.monotonic() - began) / len(samples)
        said = ", ".join(f"{end} {number}" for end, number in ends.most_common())
        name = "crop" if tool else "none"
        print(f"| {name} | {len(samples)} | {right / len(samples):.3f} | {said} | {spent:.3f} |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path("examples/agent/data"))
    parser.add_argument("--fresh", type=int, default=0, help="sheets to draw; 0: those of --data")
    parser.add_argument("--limit", type=int, help="number of samples")
    parser.add_argument("--response", default=RESPONSE, help="text beside a crop")
    parser.add_argument("--threads", type=int, default=1, help="more do not help at this size")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    evaluate(args.model, args.data, args.fresh, args.limit, args.response)


if __name__ == "__main__":
    main()
