"""Sheets of labels with small print, which a model can only read in a crop.

A label has a large letter and, beside it, two lines of small print: goods and a code of four digits. The
model's image processor shrinks a whole sheet five times: letters are then as large as the text of the demo's
pages, and small print is under three pixels high. A crop of a fifth of each side keeps its pixels. Scales of
grey along the upper and the left edge, as on scanned test charts, show how far right and down something is:
the vision tower of Qwen2-VL has no sense of absolute places on blank paper.

Content and appearance draw from separate random streams, as in `recipes.demo_data.pages`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from PIL import Image, ImageDraw

from recipes.demo_data.pages import HEIGHT, SEEN_FONTS, WIDTH, WORDS, load_font

SHRINK = 5
SHEET_WIDTH, SHEET_HEIGHT = WIDTH * SHRINK, HEIGHT * SHRINK
LETTERS = "ABCEHKMRSTXZ"
QUESTION = "What is the code of {letter}?"
COUNTS = (4, 5, 6)
"""Labels on a sheet."""

UNITS = 1000
"""A box counts in thousandths of the image's width and height."""
SIDE = UNITS // SHRINK
STEP = 50
"""Boxes that the model is trained to name begin at multiples of this."""

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""

_SCALE = 32
"""Width of the scales of grey, pixels."""
_COLUMNS, _ROWS = 4, 3
_LABEL_WIDTH, _LABEL_HEIGHT = 140, 60
_PRINT_AT = 68
"""Where small print begins, pixels from the left edge of a label."""
_CODE_END = 114
"""Where a code ends, at most."""
_GAP = 7
"""Blank pixels around a label, at least."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label: its letter, its small print, and its place, pixels of the sheet."""

    letter: str
    item: str
    code: str
    left: int
    top: int

    @property
    def question(self) -> str:
        """The question about it; `code` answers it."""
        return QUESTION.format(letter=self.letter)

    @property
    def letter_area(self) -> Box:
        """Left, top, right, bottom of the part with the letter."""
        return self.left, self.top, self.left + _PRINT_AT, self.top + _LABEL_HEIGHT

    def readable_in(self, box: Box) -> bool:
        """Whether the code lies within a box, at any place on the label."""
        left, top, right, bottom = (
            place * side / UNITS
            for place, side in zip(box, (SHEET_WIDTH, SHEET_HEIGHT) * 2, strict=True)
        )
        across = left <= self.left + _PRINT_AT and self.left + _CODE_END <= right
        return across and top <= self.top + 10 and self.top + _LABEL_HEIGHT - 10 <= bottom

    @property
    def centre(self) -> tuple[int, int]:
        """Middle of letter and print; nearer to the print, which must be in the crop."""
        return self.left + _LABEL_WIDTH // 2 + 12, self.top + _LABEL_HEIGHT // 2

    @property
    def box(self) -> Box:
        """The crop to ask for: left, top, right, bottom in thousandths."""
        return box_at(
            round((self.centre[0] - WIDTH / 2) * UNITS / SHEET_WIDTH / STEP),
            round((self.centre[1] - HEIGHT / 2) * UNITS / SHEET_HEIGHT / STEP),
        )


def box_at(column: int, row: int) -> Box:
    """The box that begins that many steps from the left and the top, moved into the sheet."""
    left, top = (min(max(place * STEP, 0), UNITS - SIDE) for place in (column, row))
    return left, top, left + SIDE, top + SIDE


def crop(image: Image.Image, box: Box) -> Image.Image:
    """The part of an image within a box in thousandths."""
    sides = (image.width, image.height) * 2
    left, top, right, bottom = (
        round(place * side / UNITS) for place, side in zip(box, sides, strict=True)
    )
    return image.crop((left, top, right, bottom))


def make_labels(rng: random.Random) -> tuple[Label, ...]:
    """Draw the labels of a sheet and their places."""
    count = rng.choice(COUNTS)
    wide, high = (SHEET_WIDTH - _SCALE) // _COLUMNS, (SHEET_HEIGHT - _SCALE) // _ROWS
    labels = []
    for letter, cell in zip(
        rng.sample(LETTERS, count), rng.sample(range(_COLUMNS * _ROWS), count), strict=True
    ):
        row, column = divmod(cell, _COLUMNS)
        labels.append(
            Label(
                letter,
                item=rng.choice(WORDS["en"]["item"]),
                code=f"{rng.randint(1000, 9999)}",
                left=_SCALE + column * wide + rng.randint(_GAP, wide - _LABEL_WIDTH - _GAP),
                top=_SCALE + row * high + rng.randint(_GAP, high - _LABEL_HEIGHT - _GAP),
            )
        )
    return tuple(labels)


def render(labels: tuple[Label, ...], rng: random.Random) -> Image.Image:
    """Draw a sheet in greyscale."""
    paper = rng.randint(225, 255)
    ink = rng.randint(0, 60)
    frame = rng.randint(ink, paper)
    sheet = Image.new("L", (SHEET_WIDTH, SHEET_HEIGHT), paper)
    greys = Image.linear_gradient("L").point(lambda grey: ink + grey * (paper - ink) // 255)
    sheet.paste(greys.resize((_SCALE, SHEET_HEIGHT)), (0, 0))
    sheet.paste(greys.rotate(90).resize((SHEET_WIDTH, _SCALE)), (0, 0))
    draw = ImageDraw.Draw(sheet)
    for label in labels:
        letter_font = load_font(rng.choice(SEEN_FONTS), rng.choice((58.0, 60.0, 62.0)))
        print_font = load_font(rng.choice(SEEN_FONTS), rng.choice((12.0, 12.5, 13.0)))
        left, top = label.left, label.top
        draw.rectangle((left, top, left + _LABEL_WIDTH, top + _LABEL_HEIGHT), outline=frame)
        middle = top + _LABEL_HEIGHT // 2
        draw.text((left + 34, middle), label.letter, font=letter_font, fill=ink, anchor="mm")
        lines = [label.item, label.code]
        rng.shuffle(lines)
        indent = rng.randint(0, 10)
        for line, height in zip(lines, (-12, 12), strict=True):
            place = (left + _PRINT_AT + indent, middle + height + rng.randint(-1, 1))
            draw.text(place, line, font=print_font, fill=ink, anchor="lm")
    return sheet
