"""Write the demo data set: a few hundred small document pages with annotations for four ML tasks.

    python -m recipes.demo_data.generate --out examples/demo/data

The same script gives byte-identical annotations anywhere; the pixels depend on the fonts and the
FreeType at hand, so the images, too, ship as a snapshot. The pages are held out: the tiny model's
training draws from other seeds (from 1,000,000,000 on) and never uses the hard split's font.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from recipes.demo_data.pages import DOC_TYPES, EASY, HARD, LANGUAGES, Page, Style, make_page, render

SEED = 20_251_120
SPLITS: dict[str, tuple[int, Style]] = {"easy": (150, EASY), "hard": (100, HARD)}
TASKS = ("vqa", "ocr", "kie", "classification")


def samples_of(page: Page, document: str, split: str) -> dict[str, list[dict[str, Any]]]:
    """The page's samples by ML task; several may ask about the one image."""
    asked: dict[str, list[tuple[str, dict[str, str], Any]]] = {
        "vqa": [],
        "ocr": [("text", {}, page.text)],
        "kie": [("fields", {}, page.fields)],
        "classification": [("type", {}, page.doc_type)],
    }
    seen: Counter[str] = Counter()
    for question in page.questions:
        seen[question.field] += 1
        count = seen[question.field]
        suffix = question.field if count == 1 else f"{question.field}{count}"
        asked["vqa"].append((suffix, {"question": question.text}, question.answer))
    return {
        task: [
            {
                "id": f"{document}-{suffix}",
                "images": [f"images/{split}/{document.rpartition('-')[2]}.png"],
                "document": document,
                "split": split,
                "fields": fields,
                "references": [reference],
                "metadata": {"doc_type": page.doc_type, "language": page.language},
            }
            for suffix, fields, reference in entries
        ]
        for task, entries in asked.items()
    }


def generate(out: Path) -> None:
    """Draw every page and write images and annotations."""
    samples: dict[str, list[dict[str, Any]]] = {task: [] for task in TASKS}
    for offset, (split, (count, style)) in enumerate(SPLITS.items()):
        folder = out / "images" / split
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, count + 1):
            seed = SEED + offset * 10_000 + number
            # Types and languages take turns, so that the counts are balanced.
            page = make_page(
                random.Random(f"content {seed}"),
                DOC_TYPES[number % len(DOC_TYPES)],
                LANGUAGES[number // len(DOC_TYPES) % len(LANGUAGES)],
            )
            image, _ = render(page, random.Random(f"style {seed}"), style)
            image.save(folder / f"{number:04d}.png", optimize=True)
            for task, found in samples_of(page, f"{split}-{number:04d}", split).items():
                samples[task] += found
    for task, found in samples.items():
        found.sort(key=lambda sample: str(sample["id"]))
        lines = (json.dumps(sample, ensure_ascii=False) + "\n" for sample in found)
        (out / f"{task}.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")
        splits = Counter(str(sample["split"]) for sample in found)
        print(f"{task}: {len(found)} samples {dict(splits)}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    generate(parser.parse_args().out)


if __name__ == "__main__":
    main()
