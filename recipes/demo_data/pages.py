"""Small synthetic document pages: their contents, and how they look.

One module for the shipped snapshot (`generate.py`) and for the tiny model's training
(`recipes/tiny_vlm/train.py`), so that the two can never drift apart; only seeds and styles differ.

Content and appearance draw from separate random streams: annotations depend on Python's `random`
alone and stay byte-identical even where another Pillow or FreeType renders other pixels.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

WIDTH, HEIGHT = 168, 84
DOC_TYPES = ("receipt", "form", "table")
LANGUAGES = ("en", "ru")

FONT_ROOT = Path("/usr/share/fonts/truetype")
# Debian packages fonts-dejavu-core, fonts-dejavu-extra, fonts-liberation, fonts-freefont-ttf.
SEEN_FONTS = (
    "dejavu/DejaVuSans.ttf",
    "dejavu/DejaVuSans-Bold.ttf",
    "dejavu/DejaVuSansCondensed.ttf",
    "dejavu/DejaVuSansMono.ttf",
    "liberation/LiberationSans-Regular.ttf",
    "freefont/FreeSansBold.ttf",
)
# Only ever on pages of the hard split: training must not import this name.
UNSEEN_FONTS = ("liberation/LiberationSerif-Bold.ttf",)

WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "en": {
        "shop": (
            "STAR CAFE", "BOOK SHOP", "CITY MARKET", "GREEN FARM", "OLD BAKERY", "RED LION",
            "SUN PHARMACY", "TOY HOUSE", "FISH BAR", "TEA ROOM", "BIKE STORE", "NORTH GRILL",
        ),
        "name": (
            "ANNA", "BORIS", "CLARA", "DAVID", "EMMA", "FELIX", "GRACE", "HENRY", "IRENE",
            "JACK", "KAREN", "LUCAS", "MARIA", "NORA", "OSCAR", "PETER",
        ),
        "city": (
            "LONDON", "PARIS", "BERLIN", "MADRID", "ROME", "OSLO", "VIENNA", "PRAGUE", "DUBLIN",
            "LISBON", "ATHENS", "WARSAW",
        ),
        "item": (
            "TEA", "BREAD", "MILK", "CHEESE", "APPLE", "SOUP", "FISH", "RICE", "JUICE", "CAKE",
            "SALAD", "EGGS", "HONEY", "PASTA", "COFFEE", "SUGAR",
        ),
        "title": ("FORM", "REQUEST", "PASS"),
        "total": ("TOTAL", "AMOUNT"),
        "labels": ("DATE", "NAME", "CODE", "CITY", "ITEM", "PRICE", "NO"),
    },
    "ru": {
        "shop": (
            "КАФЕ ЛУНА", "КНИЖНЫЙ ДОМ", "РЫНОК СЕВЕР", "ФЕРМА РОСА", "ПЕКАРНЯ ХЛЕБ", "БАР ЯКОРЬ",
            "АПТЕКА ЮГ", "МИР ИГРУШЕК", "РЫБНЫЙ РЯД", "ЧАЙНАЯ", "ВЕЛОСИПЕД", "ГРИЛЬ ЖАР",
        ),
        "name": (
            "АННА", "БОРИС", "ВЕРА", "ГЛЕБ", "ДАРЬЯ", "ЕГОР", "ЖАННА", "ИВАН", "КИРА", "ЛЕВ",
            "МАРИЯ", "НИНА", "ОЛЕГ", "ПЁТР", "РОМАН", "ЮЛИЯ",
        ),
        "city": (
            "МОСКВА", "КАЗАНЬ", "ТУЛА", "ОМСК", "ПЕРМЬ", "СОЧИ", "ТВЕРЬ", "УФА", "ЧИТА",
            "САМАРА", "РЯЗАНЬ", "КУРСК",
        ),
        "item": (
            "ЧАЙ", "ХЛЕБ", "МОЛОКО", "СЫР", "ЯБЛОКО", "СУП", "РЫБА", "РИС", "СОК", "ТОРТ",
            "САЛАТ", "ЯЙЦА", "МЁД", "ЩИ", "КОФЕ", "САХАР",
        ),
        "title": ("АНКЕТА", "ЗАЯВКА", "ПРОПУСК"),
        "total": ("ИТОГО", "СУММА"),
        "labels": ("ДАТА", "ИМЯ", "КОД", "ГОРОД", "ТОВАР", "ЦЕНА", "ЧЕК"),
    },
}  # fmt: skip

# Several wordings per field and language; {item} is filled for table pages.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "total": ("What is the total?", "How much was paid?", "Какая сумма?", "Сколько всего?"),
    "date": ("What is the date?", "When was it?", "Какая дата?", "Когда это было?"),
    "shop": ("What is the shop?", "Which shop is it?", "Какой магазин?", "Где покупка?"),
    "name": ("What is the name?", "Who is it?", "Какое имя?", "Кто это?"),
    "code": ("What is the code?", "Which code is given?", "Какой код?", "Назови код."),
    "city": ("What is the city?", "Which city is it?", "Какой город?", "Откуда человек?"),
    "price": (
        "What is the price of {item}?",
        "How much is {item}?",
        "Какая цена {item}?",
        "Сколько стоит {item}?",
    ),
}


@dataclass(frozen=True, slots=True)
class Question:
    """One question about a page: the field it asks for, its wording, the only right answer."""

    field: str
    text: str
    answer: str


@dataclass(frozen=True, slots=True)
class Page:
    """Contents of a page. `lines` are left and right cells; an empty right cell: one cell."""

    doc_type: str
    language: str
    lines: tuple[tuple[str, str], ...]
    fields: dict[str, str]
    questions: tuple[Question, ...]

    @property
    def text(self) -> str:
        """The page as read aloud: cells joined by a space, lines by a newline."""
        return "\n".join(" ".join(cell for cell in line if cell) for line in self.lines)


@dataclass(frozen=True, slots=True)
class Style:
    """Ranges from which the appearance of a page is drawn (pixels, grey levels, degrees)."""

    fonts: tuple[str, ...]
    size: tuple[float, float]
    spacing: tuple[float, float]
    contrast: tuple[float, float]  # paper minus ink, in grey levels
    noise: tuple[float, float]  # standard deviation, in grey levels
    blur: tuple[float, float] = (0.0, 0.0)  # radius of a Gaussian
    rotation: tuple[float, float] = (0.0, 0.0)  # size of the angle; the sign is drawn


EASY = Style(SEEN_FONTS, (12.0, 13.5), (0.0, 0.8), (170, 245), (0, 6), (0.0, 0.25))
HARD = Style(UNSEEN_FONTS, (11.5, 14.5), (-0.3, 1.5), (60, 150), (6, 16), (0.3, 0.8), (0.5, 2.5))


@dataclass(frozen=True, slots=True)
class Glyph:
    """Where a character landed: box in pixels, line number, index into the line's text."""

    left: float
    right: float
    top: float
    bottom: float
    line: int
    index: int


def _receipt(rng: random.Random, language: str, asked: int) -> Page:
    words = WORDS[language]
    date_label, number_label = words["labels"][0], words["labels"][6]
    shop = rng.choice(words["shop"])
    date = f"{rng.randint(1, 28):02d}.{rng.randint(1, 12):02d}.{rng.randint(10, 29)}"
    total = f"{rng.randint(1, 10 ** rng.randint(1, 3) - 1)}.{rng.randint(0, 99):02d}"
    middle = [(date_label, date)]
    if rng.random() < 0.5:
        middle.append((number_label, f"{rng.randint(100, 9999)}"))
        rng.shuffle(middle)
    lines = ((shop, ""), *middle, (rng.choice(words["total"]), total))
    return _page(
        rng, asked, "receipt", language, lines, {"shop": shop, "date": date, "total": total}
    )


def _form(rng: random.Random, language: str, asked: int) -> Page:
    words = WORDS[language]
    _, name_label, code_label, city_label, *_ = words["labels"]
    colon = rng.choice(("", ":"))
    fields = {
        "name": rng.choice(words["name"]),
        "code": f"{rng.randint(10000, 99999)}",
        "city": rng.choice(words["city"]),
    }
    body = [
        (name_label + colon, fields["name"]),
        (code_label + colon, fields["code"]),
        (city_label + colon, fields["city"]),
    ]
    rng.shuffle(body)
    return _page(rng, asked, "form", language, ((rng.choice(words["title"]), ""), *body), fields)


def _table(rng: random.Random, language: str, asked: int) -> Page:
    words = WORDS[language]
    items = rng.sample(words["item"], rng.choice((2, 3)))
    prices = [f"{rng.randint(10 ** (n - 1), 10**n - 1)}" for n in rng.choices((2, 3, 4), k=3)]
    rows = list(zip(items, prices, strict=False))
    fields: dict[str, str] = {}
    for number, (item, price) in enumerate(rows, start=1):
        fields |= {f"item{number}": item, f"price{number}": price}
    header = (words["labels"][4], words["labels"][5])
    return _page(rng, asked, "table", language, (header, *rows), fields)


def _page(
    rng: random.Random,
    count: int,
    doc_type: str,
    language: str,
    lines: tuple[tuple[str, str], ...],
    fields: dict[str, str],
) -> Page:
    """Add up to `count` questions on different fields, in wordings of either language."""
    if doc_type == "table":
        asked = [("price", pair) for pair in rng.sample(lines[1:], min(count, len(lines) - 1))]
    else:
        asked = [
            (key, ("", fields[key])) for key in rng.sample(sorted(fields), min(count, len(fields)))
        ]
    questions = tuple(
        Question(key, rng.choice(QUESTIONS[key]).format(item=item), answer)
        for key, (item, answer) in asked
    )
    return Page(doc_type, language, lines, fields, questions)


_WRITERS: dict[str, Callable[[random.Random, str, int], Page]] = {
    "receipt": _receipt,
    "form": _form,
    "table": _table,
}


def make_page(
    rng: random.Random,
    doc_type: str | None = None,
    language: str | None = None,
    questions: int = 2,
) -> Page:
    """Draw the content of a page; type and language are drawn too unless given."""
    doc_type = doc_type or rng.choice(DOC_TYPES)
    return _WRITERS[doc_type](rng, language or rng.choice(LANGUAGES), questions)


_FONT_CACHE: dict[tuple[str, float], ImageFont.FreeTypeFont] = {}


def load_font(name: str, size: float) -> ImageFont.FreeTypeFont:
    key = (name, size)
    if key not in _FONT_CACHE:
        path = FONT_ROOT / name
        if not path.exists():
            raise FileNotFoundError(
                f"{path}: install fonts-dejavu, fonts-liberation and fonts-freefont-ttf"
            )
        _FONT_CACHE[key] = ImageFont.truetype(str(path), size)
    return _FONT_CACHE[key]


def render(page: Page, rng: random.Random, style: Style) -> tuple[Image.Image, list[Glyph]]:
    """Draw a page in greyscale; the glyph boxes hold before rotation (training uses none)."""
    font_name = rng.choice(style.fonts)
    size = round(rng.uniform(*style.size) * 2) / 2  # half pixels: few distinct fonts to cache
    spacing = rng.uniform(*style.spacing)
    contrast = rng.uniform(*style.contrast)
    paper = rng.uniform(max(contrast, 215.0), 255.0) if contrast > 150 else rng.uniform(160, 235)
    ink = round(max(0.0, paper - contrast))
    margin = rng.randint(4, 9)
    pitch = rng.uniform(18.5, 20.5) if len(page.lines) == 4 else rng.uniform(20.0, 25.0)
    top = rng.uniform(1.0, max(1.5, HEIGHT - pitch * len(page.lines) - 1.0))
    right_aligned = rng.random() < 0.5
    column = rng.randint(84, 96) if page.doc_type == "table" else None

    image = Image.new("L", (WIDTH, HEIGHT), round(paper))
    draw = ImageDraw.Draw(image)
    while True:  # the widest line must fit; the loop ends because every step shrinks the text
        font = load_font(font_name, size)
        if max(_extent(line, font, spacing) for line in page.lines) <= WIDTH - 2 * margin - 6:
            break
        if spacing > 0:
            spacing = 0.0
        else:
            size -= 0.5

    glyphs: list[Glyph] = []
    for number, (left, right) in enumerate(page.lines):
        y = top + number * pitch
        if not right:  # titles are centred
            x = (WIDTH - _width(left, font, spacing)) / 2
            _draw_text(draw, glyphs, (x, y, ink, spacing), left, font, (number, 0))
            continue
        x = _draw_text(draw, glyphs, (margin, y, ink, spacing), left, font, (number, 0))
        if right_aligned:
            x = WIDTH - margin - _width(right, font, spacing)
        else:
            x = max(x + 6, column or 0)
            x = min(x, WIDTH - margin - _width(right, font, spacing))
        offset = len(left) + 1
        _draw_text(draw, glyphs, (x, y, ink, spacing), right, font, (number, offset))
        if page.doc_type == "form":  # a rule to write on
            draw.line([(x, y + 16), (WIDTH - margin, y + 16)], fill=round((paper + ink) / 2))
    if page.doc_type == "table":
        for number in range(len(page.lines) + 1):
            y = top + number * pitch - 2
            draw.line([(1, y), (WIDTH - 2, y)], fill=round((paper + ink) / 2))
    if page.doc_type == "receipt":  # a rule above the total
        y = top + (len(page.lines) - 1) * pitch - 1
        draw.line([(margin, y), (WIDTH - margin, y)], fill=round((paper + ink) / 2))
    return _degrade(image, rng, style, paper), glyphs


def _degrade(image: Image.Image, rng: random.Random, style: Style, paper: float) -> Image.Image:
    angle = rng.uniform(*style.rotation) * rng.choice((-1, 1))
    if angle:
        fill = round(paper)
        image = image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=fill)
    radius = rng.uniform(*style.blur)
    if radius > 0.1:
        image = image.filter(ImageFilter.GaussianBlur(radius))
    sigma = rng.uniform(*style.noise)
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0.0, sigma, (HEIGHT, WIDTH))
    pixels = np.asarray(image, dtype=np.float64) + noise
    return Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8), "L")


def _draw_text(
    draw: ImageDraw.ImageDraw,
    glyphs: list[Glyph],
    pen: tuple[float, float, int, float],
    text: str,
    font: ImageFont.FreeTypeFont,
    place: tuple[int, int],
) -> float:
    """Draw character by character, noting the boxes; returns where the pen stopped."""
    x, y, ink, spacing = pen
    line, offset = place
    for index, character in enumerate(text):
        advance = font.getlength(character)
        draw.text((x, y), character, font=font, fill=ink)
        # Capitals and digits fill about this band of the line, whatever the font.
        glyphs.append(Glyph(x, x + advance, y + 3, y + 13, line, offset + index))
        x += advance + spacing
    return x


def _width(text: str, font: ImageFont.FreeTypeFont, spacing: float) -> float:
    return sum(font.getlength(character) + spacing for character in text) - spacing


def _extent(line: tuple[str, str], font: ImageFont.FreeTypeFont, spacing: float) -> float:
    return sum(_width(cell, font, spacing) for cell in line if cell)


def all_strings() -> Iterator[str]:
    """Every word and wording a page or question can hold: the tokenizer's vocabulary."""
    for words in WORDS.values():
        for group in words.values():
            yield from group
    for wordings in QUESTIONS.values():
        for wording in wordings:
            yield wording.format(item="").strip()
