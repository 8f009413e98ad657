"""Write the sheets of `examples/agent/data`: some labels with small print, and questions about their codes.

    python -m recipes.tiny_agent.generate --out examples/agent/data

Annotations come out byte-identical anywhere; pixels depend on the fonts and the FreeType at hand, so the
images ship, too. Seeds are below those of training, so no sheet was seen in it.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from recipes.tiny_agent.pages import SHEET_HEIGHT, SHEET_WIDTH, make_labels, render

SEED = 20_261_128
SHEETS = 50
QUESTIONS = 2
"""Questions about one sheet."""


def generate(out: Path) -> None:
    """Draw every sheet and write images and annotations."""
    (out / "images").mkdir(parents=True, exist_ok=True)
    samples = []
    for number in range(1, SHEETS + 1):
        labels = make_labels(random.Random(f"content {SEED + number}"))
        image = render(labels, random.Random(f"style {SEED + number}"))
        name = f"images/{number:04d}.png"
        image.save(out / name, optimize=True)
        samples += [
            {
                "id": f"sheet-{number:04d}-{label.letter}",
                "images": [name],
                "document": f"sheet-{number:04d}",
                "split": "test",
                "fields": {"question": label.question},
                "references": [label.code],
                "metadata": {"labels": len(labels)},
            }
            for label in labels[:QUESTIONS]
        ]
    lines = (json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples)
    (out / "codes.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")
    print(f"{len(samples)} samples on {SHEETS} sheets of {SHEET_WIDTH} × {SHEET_HEIGHT} pixels")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    generate(parser.parse_args().out)


if __name__ == "__main__":
    main()
