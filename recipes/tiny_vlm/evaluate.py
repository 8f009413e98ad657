"""Score a tiny model on the shipped snapshot with plain transformers: greedy, one sample at a time.

    python -m recipes.tiny_vlm.evaluate --model examples/demo/model --data examples/demo/data

Independent of hpcbench on purpose: the figures in the model card do not rest on the code whose
demonstration they are. Beside each figure is the score of an answer that ignores the page.
Loads tokenizer and image processor separately, because transformers' AutoProcessor for Qwen2-VL
needs torchvision (for videos), which we do not ask of anyone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

from recipes.tiny_vlm.model import prompt_of

TASKS = ("vqa", "ocr", "kie", "classification")
FIGURE = {
    "vqa": "exact match",
    "ocr": "CER (lower is better)",
    "kie": "field F1",
    "classification": "accuracy",
}


class Reader:
    """A loaded model: messages and images in, answer out."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.images = AutoImageProcessor.from_pretrained(folder, backend="pil")
        self.model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()

    def inputs(
        self, messages: Sequence[dict[str, Any]], images: Sequence[Image.Image]
    ) -> dict[str, torch.Tensor]:
        """Inputs that Qwen2VLProcessor would give, without it."""
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        pixels = self.images(images=[image.convert("RGB") for image in images], return_tensors="pt")
        first, *rest = text.split("<|image_pad|>")
        for grid, part in zip(pixels["image_grid_thw"], rest, strict=True):
            count = int(grid.prod()) // self.images.merge_size**2
            first += "<|image_pad|>" * count + part
        encoded = self.tokenizer(first, return_tensors="pt", add_special_tokens=False)
        ids = encoded["input_ids"]
        return {
            "input_ids": ids,
            "attention_mask": encoded["attention_mask"],
            "mm_token_type_ids": (ids == self.model.config.image_token_id).int(),
            **pixels,
        }

    @torch.inference_mode()
    def chat(self, messages: Sequence[dict[str, Any]], images: Sequence[Image.Image]) -> str:
        """The greedy answer to messages, which have the images in order."""
        inputs = self.inputs(messages, images)
        out = self.model.generate(**inputs, do_sample=False, max_new_tokens=96)
        new = out[0, inputs["input_ids"].shape[1] :]
        return str(self.tokenizer.decode(new, skip_special_tokens=True))

    def answer(self, prompt: str, image: Path) -> str:
        """The greedy answer to a prompt about one image."""
        with Image.open(image) as opened:
            return self.chat([user(prompt)], [opened])


def user(text: str) -> dict[str, Any]:
    """A user's message with one image."""
    return {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}


def edits(first: str, second: str) -> int:
    """Levenshtein distance."""
    above = list(range(len(second) + 1))
    for row, a in enumerate(first, start=1):
        current = [row]
        for column, b in enumerate(second, start=1):
            current.append(min(above[column] + 1, current[-1] + 1, above[column - 1] + (a != b)))
        above = current
    return above[-1]


def parse_fields(text: str) -> set[tuple[str, str]]:
    """Fields of a JSON answer; anything that is no JSON object has none."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError:
        return set()
    if not isinstance(fields, dict):
        return set()
    return {(str(key), str(value)) for key, value in fields.items()}


def figure(task: str, answers: Sequence[str], references: Sequence[Any]) -> float:
    """The figure of a task: corpus CER, micro F1 over fields, or the share of exact answers."""
    pairs = list(zip(answers, references, strict=True))
    if task == "ocr":
        return sum(edits(a, r) for a, r in pairs) / sum(len(r) for r in references)
    if task == "kie":
        found = [parse_fields(answer) for answer in answers]
        wanted = [set(reference.items()) for reference in references]
        hits = sum(len(f & w) for f, w in zip(found, wanted, strict=True))
        return 2 * hits / (sum(map(len, found)) + sum(map(len, wanted)))
    return sum(answer.strip() == reference for answer, reference in pairs) / len(pairs)


def blind(task: str, references: Sequence[Any]) -> list[str]:
    """Answers given without looking: the most frequent one, or that of another page like it."""
    if task in ("vqa", "classification"):
        return [Counter(references).most_common(1)[0][0]] * len(references)
    step = 6  # types and languages repeat every six pages
    others = [references[(index + step) % len(references)] for index in range(len(references))]
    return [o if isinstance(o, str) else json.dumps(o, ensure_ascii=False) for o in others]


def evaluate(model: Path, data: Path, limit: int | None, answers_to: Path | None) -> None:
    """Print a Markdown table, and write the answers if asked to."""
    reader = Reader(model)
    written: list[dict[str, Any]] = []
    print("| task | split | n | figure | model | blind baseline | valid JSON | s per sample |")
    print("|---|---|---:|---|---:|---:|---:|---:|")
    for task in TASKS:
        lines = (data / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()
        samples = [json.loads(line) for line in lines]
        for split in dict.fromkeys(sample["split"] for sample in samples):
            chosen = [sample for sample in samples if sample["split"] == split][:limit]
            references = [sample["references"][0] for sample in chosen]
            began = time.monotonic()
            answers = [
                reader.answer(
                    sample["fields"]["question"] if task == "vqa" else prompt_of(task),
                    data / sample["images"][0],
                )
                for sample in chosen
            ]
            spent = (time.monotonic() - began) / len(chosen)
            score = figure(task, answers, references)
            base = figure(task, blind(task, references), references)
            valid = f"{sum(map(bool, map(parse_fields, answers)))}" if task == "kie" else ""
            print(
                f"| {task} | {split} | {len(chosen)} | {FIGURE[task]} | {score:.3f} | {base:.3f} "
                f"| {valid} | {spent:.3f} |",
                flush=True,
            )
            written += [
                {"id": sample["id"], "task": task, "reference": reference, "answer": answer}
                for sample, reference, answer in zip(chosen, references, answers, strict=True)
            ]
    if answers_to:
        rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in written)
        answers_to.write_text("".join(rows), encoding="utf-8")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="samples per task and split")
    parser.add_argument("--answers", type=Path, help="JSONL file for the answers")
    parser.add_argument("--threads", type=int, default=1, help="more do not help at this size")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    evaluate(args.model, args.data, args.limit, args.answers)


if __name__ == "__main__":
    main()
