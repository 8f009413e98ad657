"""Sheets as training batches: one packed sequence a sheet, with all that is asked about it.

As in `recipes.tiny_vlm.packing`, questions stand behind one image and do not see each other. With tools, some
labels give a segment in which the call is learnt; and one label gives a segment with a call, its crop, and
the answer, which is learnt. The crop there is often a step beside the best, since the model will miss, too.
Without tools, answers are learnt that cannot be known: the model must then answer, and not call.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerFast

from recipes.demo_data.pages import HEIGHT, WIDTH
from recipes.tiny_agent.model import RESPONSE, TOOLS, crop_call
from recipes.tiny_agent.pages import (
    LETTERS,
    SHRINK,
    STEP,
    Box,
    Label,
    box_at,
    crop,
    make_labels,
    render,
)
from recipes.tiny_vlm.model import COLUMNS, END, IMAGE_TOKENS, MERGE, PATCH, ROWS, START
from recipes.tiny_vlm.packing import SEED_BASE, attention_mask, patchify, positions_of

NO_TOOLS_SHARE = 0.15
MISSED_SHARE = 0.5
ASKED = 2
"""Labels of a sheet that are asked about, at most: others cost more time than they teach."""
OTHER_WORDS_SHARE = 0.3
OTHER_WORDS = "The tools gave image 2."
PLACES = 17
"""Places of a box in a row or a column: 0, 50 … 800 thousandths."""
KINDS = ("box", "call", "answer", "guess")
"""Targets: the box's upper left corner in a call, the rest of a call, an answer, an answer without tools."""
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
NOWHERE = (-100, -100)


@dataclass(slots=True)
class Batch:
    """Tensors of one step; B sheets, C crops, L tokens in the longest packed sequence."""

    pixels: Tensor  # [(B + C) * patches, patch values]: sheets, then crops
    ids: Tensor  # [B, L]
    images: Tensor  # [B, L]: index into the tokens of all images, -1 for text
    positions: Tensor  # [3, B, L]: time, height, width
    mask: Tensor  # [B, 1, L, L], True where attention is allowed
    targets: Tensor  # [B, L]: next token where something is learnt, else -100
    kinds: Tensor  # [B, L]: index into KINDS
    places: Tensor  # [B, L, 2, 2]: see `Segment.places`
    looks: Tensor  # [n, 3]: layer, row and column of a token whose first head must look somewhere
    seen: Tensor  # [n, L], where
    letters: Tensor  # [B, image tokens]: index into LETTERS, their number for none
    sites: Tensor  # [B, image tokens, 2]: place of the box of that letter's label, -100 for none


def place_of(box: Box) -> tuple[int, int]:
    """Column and row of a box, in steps."""
    return box[0] // STEP, box[1] // STEP


class Segment:
    """Tokens that see each other, with what is learnt at them."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._image_pad = int(tokenizer.convert_tokens_to_ids("<|image_pad|>"))
        self.ids: list[int] = []
        self.images: list[int] = []
        self.targets: list[int] = []
        self.kinds: list[int] = []
        self.places: list[list[tuple[int, int]]] = []
        """Place of the box, to be known after the first layer at the letter in the question, and after the
        second where the box begins: two steps of looking it up, as in the demo's tables."""
        self.named = 0
        """The letter in the question."""
        self.begins: list[int] = []
        """Tokens whose targets are the upper left corner of the box."""

    def text(self, text: str, image: int = -1) -> Segment:
        """Append a text; `image` is the number of the picture in it."""
        ids = self._tokenizer(text, add_special_tokens=False).input_ids
        for token in ids:
            if token == self._image_pad:
                first = image * IMAGE_TOKENS
                self._append([token] * IMAGE_TOKENS, list(range(first, first + IMAGE_TOKENS)))
            else:
                self._append([token], [-1])
        return self

    def learnt(self, text: str, kind: str) -> Segment:
        """Append a text and learn it."""
        first = len(self.ids)
        self.text(text)
        for at in range(first, len(self.ids)):
            self.targets[at - 1] = self.ids[at]
            self.kinds[at - 1] = KINDS.index(kind)
        return self

    def known(self, place: tuple[int, int], layer: int) -> Segment:
        """The place of the box must be known at the last token, after a layer."""
        self.places[-1][layer] = place
        return self

    def _append(self, ids: list[int], images: list[int]) -> None:
        self.ids += ids
        self.images += images
        self.targets += [-100] * len(ids)
        self.kinds += [0] * len(ids)
        self.places += [[NOWHERE, NOWHERE] for _ in ids]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A drawn sheet, and what is done with it."""

    labels: tuple[Label, ...]
    image: Image.Image
    tools: bool
    looked: Label
    """The label in the crop."""
    seen: Box
    """The box of the crop."""
    response: str
    """The text beside it."""


class Packer:
    """Turns sheets into packed sequences."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer

    def _asked(self, label: Label) -> Segment:
        before, after = label.question.split(label.letter)
        segment = Segment(self.tokenizer).text(before + label.letter)
        segment.named = len(segment.ids) - 1
        return segment.known(place_of(label.box), 0).text(f"{after}{END}\n{START}assistant\n")

    def segments(self, sheet: Sheet, image: int, crop_image: int) -> Iterator[Segment]:
        """The segment that all see, then all others."""
        system = f"{START}system\n{TOOLS}{END}\n" if sheet.tools else ""
        yield Segment(self.tokenizer).text(f"{system}{START}user\n{PICTURE}", image)
        for label in sheet.labels[:ASKED]:
            if not sheet.tools:
                yield self._asked(label).learnt(label.code + END, "guess")
                continue
            begin, box = crop_call(label.box).split("[")
            left, top, rest = box.split(", ", 2)
            segment = self._asked(label).learnt(begin + "[", "call").known(place_of(label.box), 1)
            first = len(segment.ids) - 1
            segment.learnt(f"{left}, {top}", "box")
            segment.begins = list(range(first, len(segment.ids) - 1))
            yield segment.learnt(f", {rest}{END}", "call")
        if sheet.tools:
            segment = self._asked(sheet.looked).text(crop_call(sheet.seen) + f"{END}\n")
            segment.text(f"{START}user\n{PICTURE}{sheet.response}{END}\n", crop_image)
            yield segment.text(f"{START}assistant\n").learnt(sheet.looked.code + END, "answer")

    def pack(self, sheets: Sequence[Sheet]) -> Batch:
        """Build one batch."""
        cropped = [sheet for sheet in sheets if sheet.tools]
        crops = iter(range(len(sheets), len(sheets) + len(cropped)))
        rows = [
            list(self.segments(sheet, number, next(crops) if sheet.tools else -1))
            for number, sheet in enumerate(sheets)
        ]
        count, length = len(rows), max(sum(len(part.ids) for part in row) for row in rows)
        ids = np.full((count, length), int(self.tokenizer.pad_token_id))
        images, targets = np.full((count, length), -1), np.full((count, length), -100)
        kinds, owners = np.zeros((count, length), dtype=np.int64), np.full((count, length), -2)
        positions = np.zeros((3, count, length), dtype=np.int64)
        places = np.full((count, length, 2, 2), -100)
        letters, sites = zip(*(_letters(sheet.labels) for sheet in sheets), strict=True)
        looks: list[tuple[int, int, int]] = []
        seen: list[np.ndarray] = []
        for index, row in enumerate(rows):
            at = start = 0
            for number, part in enumerate(row):
                where = slice(at, at + len(part.ids))
                ids[index, where], images[index, where] = part.ids, part.images
                targets[index, where], kinds[index, where] = part.targets, part.kinds
                owners[index, where], places[index, where] = number - 1, part.places
                positions[:, index, where] = positions_of(np.array(part.images) >= 0, start)
                if number == 0:
                    start = int(positions[:, index, where].max()) + 1
                if part.begins:
                    over = np.zeros(length, dtype=bool)
                    wanted = LETTERS.index(sheets[index].labels[number - 1].letter)
                    over[images[index] // IMAGE_TOKENS == index] = letters[index] == wanted
                    looks.append((0, index, at + part.named))
                    seen.append(over)
                    looks += [(1, index, at + place) for place in part.begins]
                    seen += [np.arange(length) == at + part.named] * len(part.begins)
                at = where.stop
        pictures = [_shrunk(sheet.image) for sheet in sheets]
        pictures += [np.asarray(crop(sheet.image, sheet.seen)) for sheet in cropped]
        return Batch(
            pixels=patchify(np.stack(pictures)),
            ids=torch.from_numpy(ids),
            images=torch.from_numpy(images),
            positions=torch.from_numpy(positions),
            mask=torch.from_numpy(attention_mask(owners)),
            targets=torch.from_numpy(targets),
            kinds=torch.from_numpy(kinds),
            places=torch.from_numpy(places),
            looks=torch.tensor(looks).view(-1, 3),
            seen=torch.from_numpy(np.stack(seen or [np.zeros(length, dtype=bool)])[: len(looks)]),
            letters=torch.from_numpy(np.stack(letters)),
            sites=torch.from_numpy(np.stack(sites)),
        )


def _shrunk(image: Image.Image) -> np.ndarray:
    """A sheet as the model's image processor shrinks it."""
    return np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))


def _letters(labels: Sequence[Label]) -> tuple[np.ndarray, np.ndarray]:
    """Letters over a sheet's image tokens, and places of their boxes; a fifth of a token's area counts."""
    letters = np.full((ROWS, COLUMNS), len(LETTERS))
    sites = np.full((ROWS, COLUMNS, 2), -100)
    cell = PATCH * MERGE * SHRINK
    for label in labels:
        left, top, right, bottom = label.letter_area
        across = np.arange(COLUMNS) * cell
        down = np.arange(ROWS) * cell
        wide = (np.minimum(across + cell, right) - np.maximum(across, left)).clip(0)
        high = (np.minimum(down + cell, bottom) - np.maximum(down, top)).clip(0)
        under = np.outer(high, wide) >= cell * cell / 5
        letters[under] = LETTERS.index(label.letter)
        sites[under] = place_of(label.box)
    return letters.reshape(IMAGE_TOKENS), sites.reshape(IMAGE_TOKENS, 2)


def _response(rng: random.Random) -> str:
    """The text beside a crop: what the loop writes, or other words."""
    usual = RESPONSE.format(width=WIDTH, height=HEIGHT)
    if rng.random() > OTHER_WORDS_SHARE:
        return usual
    words = usual.replace("×", rng.choice("×x")).split(" ")
    kept = " ".join(word for word in words if "<" in word or rng.random() < 0.7)
    return rng.choice((kept, kept + OTHER_WORDS, OTHER_WORDS, ""))


def draw(rng: random.Random) -> Sheet:
    """Draw a sheet for training."""
    labels = make_labels(rng)
    image = render(labels, rng)
    looked = rng.choice(labels)
    seen = looked.box
    if rng.random() < MISSED_SHARE:
        column, row = place_of(looked.box)
        missed = box_at(column + rng.randint(-1, 1), row + rng.randint(-1, 1))
        seen = missed if looked.readable_in(missed) else seen
    tools = rng.random() > NO_TOOLS_SHARE
    return Sheet(labels, image, tools, looked, seen, _response(rng))


class Stream(IterableDataset[Batch]):
    """Endless batches; sheet number n is drawn from seed SEED_BASE + n and nothing else."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, batch: int, seed: int) -> None:
        self.tokenizer, self.batch, self.seed = tokenizer, batch, seed

    def __iter__(self) -> Iterator[Batch]:
        packer = Packer(self.tokenizer)
        number = SEED_BASE * (1 + self.seed)
        while True:
            yield packer.pack([draw(random.Random(number + n)) for n in range(self.batch)])
            number += self.batch
