"""Pages as training batches: one packed sequence a page, and what the auxiliary heads must know.

All questions about a page stand in one sequence after its image and share one pass over it; the
mask keeps them from seeing each other, and their M-RoPE positions all start behind the image, so
each is computed exactly as it will be when asked alone.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerFast

from recipes.demo_data.pages import EASY, WORDS, Glyph, Page, Question, Style, make_page, render
from recipes.tiny_vlm.model import COLUMNS, END, IMAGE_TOKENS, MERGE, PATCH, ROWS, START, prompt_of

SEED_BASE = 1_000_000_000  # the snapshot's seeds are below; see recipes/demo_data/generate.py
# A share of the pages is roughened (in the seen fonts), so that the hard split degrades the model
# rather than breaks it.
ROUGH = Style(EASY.fonts, (11.5, 14.0), (-0.2, 1.2), (100, 245), (0, 12), (0.0, 0.6), (0.0, 1.0))
ROUGH_SHARE = 0.25
SAMPLES = 4  # places across an image token where the auxiliary heads must name the text token
CELL = PATCH * MERGE
MAX_LINES = 4
MAX_INDEX = 31  # characters of a line are numbered up to here for the auxiliary head
QUESTIONS_PER_PAGE = 3  # all there are: looking up a table by its items is the hardest to learn
TASKS = ("vqa", "ocr", "kie", "classification")
# What may stand on a page, for the auxiliary head that names characters; 0 is none.
CHARACTERS = {
    character: number
    for number, character in enumerate(
        sorted(
            {c for words in WORDS.values() for group in words.values() for w in group for c in w}
            | set("0123456789.:")
        ),
        start=1,
    )
}


@dataclass(slots=True)
class Batch:
    """Tensors of one step; B pages, L tokens in the longest packed sequence."""

    pixels: Tensor  # [B * patches, patch values]
    ids: Tensor  # [B, L]
    positions: Tensor  # [3, B, L]: time, height, width
    mask: Tensor  # [B, 1, L, L], True where attention is allowed
    targets: Tensor  # [B, L]: next token where an answer is learnt, else -100
    tasks: Tensor  # [B, L]: index into TASKS
    rows: Tensor  # [B, L, 2]: see `Packer.found_on`, -100 where nothing is to be found
    over: Tensor  # [B, image tokens, SAMPLES]: text token lying there, pad for none
    characters: Tensor  # [B, image tokens, SAMPLES]: the same for characters, 0 for none
    indices: Tensor  # [B, image tokens, SAMPLES]: the character's number in its line, 0 for none
    lines: Tensor  # [B, image tokens]: line number, MAX_LINES for none
    leads: Tensor  # [B, image tokens]: first text token of that line (its label), pad for none


class Packer:
    """Turns pages into packed sequences: the image once, then every task's prompt and answer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.pad = int(tokenizer.pad_token_id)
        self.prompts = {task: prompt_of(task) for task in TASKS if task != "vqa"}
        image = "<|vision_start|>" + "<|image_pad|>" * IMAGE_TOKENS + "<|vision_end|>"
        self.prefix = self._ids(f"{START}user\n{image}")
        self.first_image = self.prefix.index(tokenizer.convert_tokens_to_ids("<|image_pad|>"))

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def prefix_positions(self) -> np.ndarray:
        """M-RoPE positions of the prefix, as transformers' `get_rope_index` computes them."""
        return positions_of(np.array(self.prefix) == self.prefix[self.first_image])

    def _lead(self, prompt: str) -> list[int]:
        return self._ids(f"{prompt}{END}\n{START}assistant\n")

    def segments(self, page: Page) -> Iterator[tuple[int, list[int], list[int], np.ndarray]]:
        """Task number, prompt, answer and `found_on` of everything asked about a page."""
        for question in page.questions:
            lead = self._lead(question.text)
            answer = self._ids(question.answer + END)
            yield 0, lead, answer, self.found_on(page, question, lead, len(answer))
        fields = json.dumps(page.fields, ensure_ascii=False)
        for task, text in enumerate((page.text, fields, page.doc_type), start=1):
            lead, answer = self._lead(self.prompts[TASKS[task]]), self._ids(text + END)
            yield task, lead, answer, np.full((len(lead) + len(answer) - 1, 2), -100)

    def found_on(self, page: Page, question: Question, lead: list[int], answer: int) -> np.ndarray:
        """Line of the answer, to be known at two places of the packed question.

        After the first layer at the item a table question names, after the second where the answer
        begins: the two steps of looking a row up, which were not found unaided in 2,000 steps.
        """
        rows = np.full((len(lead) + answer - 1, 2), -100)
        if question.field == "price":
            words = set(question.text.rstrip("?.").split())
            line = next(i for i, (item, _) in enumerate(page.lines) if item in words)
            rows[lead.index(self._ids(page.lines[line][0])[0]), 0] = line
        else:
            line = next(i for i, cells in enumerate(page.lines) if question.answer in cells)
        rows[len(lead) - 1, 1] = line
        return rows

    def text_under(self, page: Page, glyphs: list[Glyph]) -> tuple[np.ndarray, ...]:
        """Targets of the auxiliary heads, in the order of Batch's fields from `over` on."""
        over = np.full((ROWS, COLUMNS * SAMPLES), self.pad, dtype=np.int64)
        characters, indices = np.zeros_like(over), np.zeros_like(over)
        leads = np.full((ROWS, COLUMNS), self.pad, dtype=np.int64)
        lines = np.full((ROWS, COLUMNS), MAX_LINES, dtype=np.int64)
        texts = page.text.split("\n")
        encoded = self.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
        owner: list[dict[int, int]] = []
        for ids, offsets in zip(encoded.input_ids, encoded.offset_mapping, strict=True):
            owner.append(
                {c: t for t, (a, b) in zip(ids, offsets, strict=True) for c in range(a, b)}
            )
        overlap = np.zeros(ROWS)
        current = -1
        for glyph in glyphs:
            if glyph.line != current:
                current = glyph.line
                edges = np.arange(ROWS) * CELL
                overlap = np.minimum(edges + CELL, glyph.bottom) - np.maximum(edges, glyph.top)
            step = CELL / SAMPLES
            first = max(0, math.ceil(glyph.left / step - 0.5))
            last = min(COLUMNS * SAMPLES - 1, math.floor(glyph.right / step - 0.5))
            for row in np.flatnonzero(overlap >= 4):  # lines are far enough apart: never two
                over[row, first : last + 1] = owner[glyph.line].get(glyph.index, self.pad)
                characters[row, first : last + 1] = CHARACTERS[texts[glyph.line][glyph.index]]
                indices[row, first : last + 1] = min(glyph.index + 1, MAX_INDEX)
                cells = slice(first // SAMPLES, last // SAMPLES + 1)
                lines[row, cells] = glyph.line
                leads[row, cells] = owner[glyph.line][0]
        shape = (IMAGE_TOKENS, SAMPLES)
        fine = (part.reshape(shape) for part in (over, characters, indices))
        return *fine, lines.reshape(IMAGE_TOKENS), leads.reshape(IMAGE_TOKENS)

    def pack(self, pages: list[tuple[Page, np.ndarray, list[Glyph]]]) -> Batch:
        """Build one batch."""
        rows = []
        for page, _, _ in pages:
            ids, owner = list(self.prefix), [-1] * len(self.prefix)
            positions = [self.prefix_positions()]
            targets, tasks = [-100] * len(ids), [0] * len(ids)
            found = [np.full((len(ids), 2), -100)]
            start = int(positions[0].max()) + 1
            for number, (task, lead, answer, places) in enumerate(self.segments(page)):
                size = len(lead) + len(answer) - 1  # the last token is only a target
                ids += lead + answer[:-1]
                owner += [number] * size
                targets += [-100] * (len(lead) - 1) + answer
                tasks += [task] * size
                found.append(places)
                positions.append(np.tile(start + np.arange(size), (3, 1)))
            where = np.concatenate(positions, axis=1)
            rows.append((ids, owner, where, targets, tasks, np.concatenate(found)))
        count, length = len(rows), max(len(row[0]) for row in rows)
        ids_, owners = np.full((count, length), self.pad), np.full((count, length), -2)
        positions_ = np.zeros((3, count, length), dtype=np.int64)
        targets_, tasks_ = np.full((count, length), -100), np.zeros((count, length), dtype=np.int64)
        found_ = np.full((count, length, 2), -100)
        for index, (ids, owner, where, targets, tasks, found_on) in enumerate(rows):
            end = len(ids)
            ids_[index, :end], owners[index, :end] = ids, owner
            positions_[:, index, :end] = where
            found_[index, :end] = found_on
            targets_[index, :end], tasks_[index, :end] = targets, tasks
        text = [self.text_under(page, glyphs) for page, _, glyphs in pages]
        under = [torch.from_numpy(np.stack(part)) for part in zip(*text, strict=True)]
        over, characters, indices, lines, leads = under
        return Batch(
            pixels=patchify(np.stack([pixels for _, pixels, _ in pages])),
            ids=torch.from_numpy(ids_),
            positions=torch.from_numpy(positions_),
            mask=torch.from_numpy(attention_mask(owners)),
            targets=torch.from_numpy(targets_),
            tasks=torch.from_numpy(tasks_),
            rows=torch.from_numpy(found_),
            over=over,
            characters=characters,
            indices=indices,
            lines=lines,
            leads=leads,
        )


def positions_of(image: np.ndarray, start: int = 0) -> np.ndarray:
    """M-RoPE positions [3, L] from `start` on, as transformers' `get_rope_index` computes them.

    Args:
        image: [L], where a token is one of an image; images of one sequence never touch.
    """
    positions = np.empty((3, len(image)), dtype=np.int64)
    grid = np.indices((1, ROWS, COLUMNS)).reshape(3, -1)
    at = 0
    while at < len(image):
        size = IMAGE_TOKENS if image[at] else 1
        positions[:, at : at + size] = start + (grid if image[at] else 0)
        start += max(ROWS, COLUMNS) if image[at] else 1
        at += size
    return positions


def attention_mask(owners: np.ndarray) -> np.ndarray:
    """Where attention is allowed, [B, 1, L, L].

    Args:
        owners: [B, L], number of a token's segment; -1: of the prefix that all see, -2: padding.
    """
    length = owners.shape[1]
    same = (owners[:, :, None] == owners[:, None, :]) | (owners[:, None, :] == -1)
    return (same & np.tril(np.ones((length, length), dtype=bool)))[:, None]


def patchify(pages: np.ndarray) -> Tensor:
    """Grey pages [B, H, W] to Qwen2-VL's patches, just as its image processor makes them."""
    count = len(pages)
    values = torch.from_numpy(pages.astype(np.float32) / 127.5 - 1.0)
    values = values.view(count, ROWS, MERGE, PATCH, COLUMNS, MERGE, PATCH)
    values = values.permute(0, 1, 4, 2, 5, 3, 6).reshape(-1, 1, PATCH * PATCH)
    return values.expand(-1, 6, -1).reshape(len(values), -1)  # 3 colours x 2 frames, all alike


class Stream(IterableDataset[Batch]):
    """Endless batches; page number n is drawn from seed SEED_BASE + n and nothing else."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, batch: int, seed: int) -> None:
        self.tokenizer, self.batch, self.seed = tokenizer, batch, seed

    def __iter__(self) -> Iterator[Batch]:
        packer = Packer(self.tokenizer)
        number = SEED_BASE * (1 + self.seed)
        while True:
            pages = []
            for _ in range(self.batch):
                rng = random.Random(number)
                number += 1
                page = make_page(rng, questions=QUESTIONS_PER_PAGE)
                style = ROUGH if rng.random() < ROUGH_SHARE else EASY
                image, glyphs = render(page, rng, style)
                pages.append((page, np.asarray(image), glyphs))
            yield packer.pack(pages)
