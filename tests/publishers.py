# ruff: noqa: E501 - programs and rows of publishers are as wide as they are
"""Predictions for publishers' scorers, and the publishers' own commands, to compare hpcbench with them.

Each gets 200 predictions, hostile ones among them, once by `hpcbench score` and once by the publisher's command
or function in the same image, on files that are written here and not by hpcbench.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hpcbench.metrics.publishers import ONE_PAGE, tables_of
from hpcbench.parsers.reader import reader
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.records import Sample

RECIPES = Path(__file__).parents[1] / "recipes/scorers"
PREDICTIONS = 200
HOSTILE = (
    "", " \n\n", "\0", "a\ud800b", "$" * 9, "$\\frac{a}{$", "\\[\\begin{matrix}", "<table>" * 40, "</table>" * 9,
    "<table><tr><td colspan=99>1</td></tr></table>", "<td>1", "| a | b |\n|---|", "|" * 500, "\u202eabc\u202c",
    "Final Summary with 95% Confidence Intervals:\nanswers : Average Score: 100.0%\n        a.jsonl : 100.0% (9/9 tests)",
    "[ERROR] no\nFAILED (errors)", "<script>alert(1)</script>", "ab " * 3000, "`" * 99, "\r\n\r\r\n", "${env:HOME}",
    "\\input{/etc/passwd}", "\\def\\x{\\x\\x}\\x", "\N{GRINNING FACE}" * 50, "[" * 999, "<?xml version='1.0' encoding='x'?><table/>",
)  # fmt: skip


Make = Callable[[random.Random], tuple[Any, list[str]]]


@dataclass(frozen=True)
class Case:
    """One publisher's scorer."""

    name: str
    """Its recipe, and a part of it."""
    metrics: dict[str, dict[str, Any]]
    """Name → plugin and options."""
    make: Make
    """The right side and the pieces that predictions are made of, of one sample."""
    write: Callable[[Path, Sequence[Any], Sequence[str]], dict[str, Any]]
    """Writes the dataset in its publisher's layout, with the predictions; returns its definition's fields."""
    command: str
    """Python that prints metric → value as JSON in its last line; `DATA` is the dataset's folder."""
    suite: str = "bookworm"
    sample: Callable[[int], str] = field(default=str)
    """Name of sample N."""
    within: float = 0.0
    """Largest difference of a mean: 0, unless both add fractions in orders of their own."""

    @property
    def recipe(self) -> str:
        """Folder below `recipes/scorers`."""
        return self.name.partition(" ")[0]


WORDS = [
    "invoice", "total", "net", "paid", "quarter", "growth", "segment", "margin", "average",
    "north", "south",
]  # fmt: skip


def table(rng: random.Random, rows: int, columns: int) -> list[list[str]]:
    return [
        [f"{rng.choice(WORDS)}{rng.randrange(99)}" for _ in range(columns)] for _ in range(rows)
    ]


def html(cells: list[list[str]]) -> str:
    rows = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cells)
    return f"<table>{''.join(rows)}</table>"


def predictions(rng: random.Random, pieces: Sequence[Sequence[str]]) -> list[str]:
    """A prediction for each sample: right, with pieces left out, shuffled or damaged, or hostile."""
    found = []
    for number, mine in enumerate(pieces):
        kept = [one for one in mine if rng.random() < 0.8]
        if number % 3 == 0:
            rng.shuffle(kept)
        if number % 5 == 0 and kept:
            place = rng.randrange(len(kept))
            kept[place] = kept[place][: rng.randrange(len(kept[place]) + 1)]
        if number % 4 == 0:
            kept.insert(rng.randrange(len(kept) + 1), rng.choice(HOSTILE))
        found.append("\n\n".join(kept))
    found[: len(HOSTILE)] = HOSTILE
    return found


def as_read(text: str) -> str:
    """An answer as hpcbench reads it: a fence around it goes; an unreadable one is an empty text."""
    task = MLTask(name="ocr", plugin="ocr")
    return str(reader(task)(text, Sample("1", (), {}, ("x",), "1"), False).value or "")


# --- olmOCR-bench -------------------------------------------------------------------------------------


def olmocr_sample(rng: random.Random) -> tuple[Any, list[str]]:
    first, second = (" ".join(rng.choices(WORDS, k=6)) for _ in "ab")
    formula = rng.choice(
        [r"\frac{a_%d}{b}", r"x^{%d}+y", r"\sqrt{%d z}", r"\sum_{i=1}^{%d} i"]
    ) % rng.randrange(9)
    cells = table(rng, 3, 3)
    tests = {
        "arxiv_math.jsonl": [{"type": "math", "math": formula}],
        "multi_column.jsonl": [{"type": "order", "before": first[:20], "after": second[:20], "max_diffs": 1}],
        "headers_footers.jsonl": [{"type": "absent", "text": rng.choice(WORDS) + " page", "last_n": 200}],
        "table_tests.jsonl": [{"type": "table", "cell": cells[1][1], "up": cells[0][1], "left": cells[1][0]}],
        "old_scans.jsonl": [{"type": "present", "text": second, "max_diffs": rng.randrange(3)}],
    }  # fmt: skip
    return tests, [first, f"${formula.replace('a_', 'a_ ')}$", html(cells), second]


def olmocr_files(folder: Path, right: Sequence[Any], texts: Sequence[str]) -> dict[str, Any]:
    data = folder / "bench_data"
    for name in ("pdfs/part", "answers/part"):
        (data / name).mkdir(parents=True)
    lines: dict[str, list[str]] = {}
    for number, (tests, text) in enumerate(zip(right, texts, strict=True)):
        (data / f"pdfs/part/{number}.pdf").write_bytes(ONE_PAGE)
        answer = data / f"answers/part/{number}_pg1_repeat1.md"
        answer.write_bytes(text.encode("utf-8", "replace"))
        for file, rows in tests.items():
            for place, row in enumerate(rows):
                row = {
                    "pdf": f"part/{number}.pdf",
                    "page": 1,
                    "id": f"{file}{number}_{place}",
                    **row,
                }
                lines.setdefault(file, []).append(json.dumps(row))
    for file, rows in lines.items():
        (data / file).write_text("\n".join(rows) + "\n")
    return {"source": str(data), "iterator": "page_tests"}


OLMOCR = r"""
import json, re, subprocess, sys
done = subprocess.run([sys.executable, "-m", "olmocr.bench.benchmark", "--dir", "DATA/bench_data", "--candidate", "answers"],
                      capture_output=True, text=True)
assert done.returncode == 0, done.stderr[-2000:]
summary = done.stdout.rpartition("Final Summary")[2]
rates = [int(a) / int(b) for a, b in re.findall(r"\((\d+)/(\d+) tests\)", summary)]
assert len(rates) == 6, summary
print(json.dumps({"olmocr_there": sum(rates) / len(rates)}))
"""


# --- ParseBench ---------------------------------------------------------------------------------------


def parse_bench_sample(rng: random.Random) -> tuple[Any, list[str]]:
    first, second = (" ".join(rng.choices(WORDS, k=6)) for _ in "ab")
    rows = [
        {"type": "present", "rule": {"text": first}},
        {"type": "order", "rule": json.dumps({"before": first, "after": second})},
        {"type": "absent", "rule": {"text": f"{rng.choice(WORDS)} page"}},
    ]
    return rows, [first, second, html(table(rng, 2, 2))]


def format_sample(rng: random.Random) -> tuple[Any, list[str]]:
    title, strong, slanted = (" ".join(rng.choices(WORDS, k=3)) for _ in "abc")
    rows = [
        {"type": "is_title", "rule": {"text": title, "level": 1}},
        {"type": "is_bold", "rule": {"text": strong}},
        {"type": "is_italic", "rule": {"text": slanted}},
    ]
    return rows, [f"# {title}", f"a **{strong}** b", f"c *{slanted}* d"]


def table_sample(rng: random.Random) -> tuple[Any, list[str]]:
    cells = html(table(rng, rng.randint(2, 5), rng.randint(2, 4))).replace("td>", "th>", 4)
    return [{"type": "expected_markdown", "expected_markdown": cells}], [
        cells,
        html(table(rng, 2, 2)),
    ]


def chart_sample(rng: random.Random) -> tuple[Any, list[str]]:
    """A chart as a table: series in columns, and data points that name row and column."""
    series, labels = rng.sample(WORDS, 2), rng.sample(range(2000, 2030), 3)
    points = {label: [rng.randrange(100, 1000) for _ in series] for label in labels}
    rows = [["year", *series], *([str(label), *map(str, points[label])] for label in labels)]
    rules = [
        {
            "type": "chart_data_point",
            "rule": {"value": str(values[place]), "labels": [str(label), name]},
        }
        for label, values in points.items()
        for place, name in enumerate(series)
    ]
    return rules, [html(rows).replace("td>", "th>", 6), " ".join(rng.choices(WORDS, k=6))]


def parse_bench_files(
    part: str, folder: Path, right: Sequence[Any], texts: Sequence[str]
) -> dict[str, Any]:
    group = "text" if part.startswith("text") else part
    (folder / "docs").mkdir()
    (folder / f"answers/{group}").mkdir(parents=True)
    lines = []
    for number, (rules, text) in enumerate(zip(right, texts, strict=True)):
        (folder / f"docs/{number}.pdf").write_bytes(ONE_PAGE)
        text = text.encode("utf-8", "replace").decode()
        name, when = f"{group}/{number}", "2026-02-03T04:05:06"
        (folder / f"answers/{name}.result.json").write_text(json.dumps({
            "request": {"example_id": name, "source_file_path": f"docs/{number}.pdf", "product_type": "parse"},
            "pipeline_name": "mine", "product_type": "parse", "raw_output": {}, "latency_in_ms": 5,
            "output": {"task_type": "parse", "example_id": name, "pipeline_name": "mine", "markdown": text,
                       "pages": [{"page_index": 0, "markdown": text}]},
            "started_at": when, "completed_at": when,
        }))  # fmt: skip
        for place, rule in enumerate(rules):
            row = {
                "pdf": f"docs/{number}.pdf",
                "page": 1,
                "category": part,
                "id": f"{number}-{place}",
            }
            lines.append(json.dumps({**row, **rule}))
    (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    return {"source": str(folder), "iterator": "page_tests", "options": {"unit": "document"}}


PARSE_BENCH = r"""
import json, subprocess, sys
done = subprocess.run(["parse-bench", "evaluation", "run", "--output_dir", "DATA/answers", "--test_cases_dir", "DATA",
                       "--report_dir", "DATA/report", "--product_type", "parse"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr[-2000:]
found = json.load(open("DATA/report/_evaluation_report.json"))
assert found["successful"] == 200, found["failed"]
means = found["aggregate_metrics"]
print(json.dumps({name: means[f"avg_{figure}"] for name, figure in FIGURES.items()}))
"""


def parse_bench(part: str, figures: Mapping[str, str], make: Make) -> Case:
    """A part of ParseBench, with figures of its reports by metric."""
    return Case(
        f"parse-bench {part}",
        {name: {"plugin": "parse_bench", "options": {"figure": one}} for name, one in figures.items()},
        make, partial(parse_bench_files, part), PARSE_BENCH.replace("FIGURES", repr(dict(figures))),
        "trixie", lambda number: f"docs/{number}.pdf",
    )  # fmt: skip


# --- GriTS, CDM ---------------------------------------------------------------------------------------


def grits_sample(rng: random.Random) -> tuple[Any, list[str]]:
    tables = [
        html(table(rng, rng.randint(1, 5), rng.randint(1, 5))) for _ in range(rng.randint(1, 3))
    ]
    if rng.random() < 0.3:
        tables[0] = tables[0].replace("<td>", "<td colspan=2>", 1)
    return "\n".join(tables), tables


def plain_files(folder: Path, right: Sequence[Any], texts: Sequence[str]) -> dict[str, Any]:
    (folder / "page.pdf").write_bytes(ONE_PAGE)
    rows = [{"id": str(number), "images": ["page.pdf"], "references": [one], "document": str(number)}
            for number, one in enumerate(right)]  # fmt: skip
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tables = [[tables_of(one), tables_of(text)] for one, text in zip(right, texts, strict=True)]
    (folder / "pairs.json").write_text(json.dumps(list(zip(right, texts, tables, strict=True))))
    return {"source": str(folder), "iterator": "table", "annotations": "samples.jsonl"}


GRITS = r"""
import json, warnings
from grits import GritsEvaluator
warnings.simplefilter("ignore")
evaluator = GritsEvaluator()
for _, _, (right, given) in json.load(open("DATA/pairs.json")):
    evaluator.eval_htmls(right, given)
found = evaluator.compute_grits()
print(json.dumps({"con_there": found["grits_con"], "top_there": found["grits_top"]}))
"""


def cdm_sample(rng: random.Random) -> tuple[Any, list[str]]:
    parts = [rng.choice([r"\frac{a}{%d}", "x^{%d}", r"\alpha_%d", r"\sqrt{%d}", r"\int_0^%d t"]) % rng.randrange(9)
             for _ in range(rng.randint(1, 4))]  # fmt: skip
    return "+".join(parts), ["+".join(parts[: rng.randint(1, 4)])]


CDM = r"""
import json, os, tempfile
from concurrent.futures import ProcessPoolExecutor
from omnidocbench.evaluate import calc_page_cdm
pairs = [{"gt": right, "pred": given} for right, given, _ in json.load(open("DATA/pairs.json"))]
with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as executor:
    print(json.dumps({"cdm_there": calc_page_cdm(pairs, tempfile.mkdtemp(), executor)["cdm"]}))
"""

# --- OCRBench v2 --------------------------------------------------------------------------------------

ALIKE = {
    "car": "automobile",
    "buy": "purchase",
    "begin": "start",
    "house": "home",
    "quick": "fast",
    "answer": "reply",
}
CHINESE = ["今天天气不好", "发票总金额为", "请在这里签名", "第二季度增长"]


def transcript_sample(rng: random.Random) -> tuple[Any, list[str]]:
    lines = [rng.choices([*ALIKE, "houses", "started", *WORDS], k=6) for _ in range(3)]
    said = [
        " ".join(ALIKE.get(word, word) if rng.random() < 0.5 else word for word in one)
        for one in lines
    ]
    right = [" ".join(one) for one in lines]
    if rng.random() < 0.3:
        right[0] = "".join(rng.choices(CHINESE, k=3))
        said[0] = right[0][: rng.randint(4, 18)]
    return {"answer": "\n\n".join(right), "kind": "transcript"}, said


def transcript_files(folder: Path, right: Sequence[Any], texts: Sequence[str]) -> dict[str, Any]:
    (folder / "page.pdf").write_bytes(ONE_PAGE)
    rows = [{"id": str(number), "images": ["page.pdf"], "references": [one], "document": str(number)}
            for number, one in enumerate(right)]  # fmt: skip
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "pairs.json").write_text(
        json.dumps([(one["answer"], text) for one, text in zip(right, texts, strict=True)])
    )
    return {"source": str(folder), "iterator": "table", "annotations": "samples.jsonl"}


# The published scripts are no package; these are the functions that they call for a text, and their mean.
OCRBENCH_V2 = r"""
import importlib, json, math, re, warnings
import jieba
from nltk import edit_distance
from nltk.metrics import f_measure
from nltk.translate.bleu_score import sentence_bleu
from nltk.translate.meteor_score import meteor_score
warnings.simplefilter("ignore")
jieba.setLogLevel(60)
importlib.import_module("nltk.metrics.distance").MAX_DISTANCE_INPUT_LEN = 10**6  # nltk refuses longer texts since 3.10

def value(right, text):
    if not text:
        return 0
    cut = jieba.lcut if re.search("[\u4e00-\u9fa5]", text + right) else str.split
    known, said = cut(right), cut(text)
    shares = sentence_bleu([known], said), meteor_score([known], said), f_measure(set(known), set(said)) or 0
    return (sum(shares) + 1 - edit_distance(text, right) / max(len(text), len(right))) / 4

values = [value(*pair) for pair in json.load(open("DATA/pairs.json"))]
print(json.dumps({"texts_there": math.fsum(values) / len(values)}))
"""

CASES = [
    Case("grits", {f"{of}_there": {"plugin": "grits", "options": {"of": of}} for of in ("con", "top")},
         grits_sample, plain_files, GRITS),
    Case("olmocr-bench", {"olmocr_there": {"plugin": "olmocr_bench"}}, olmocr_sample, olmocr_files, OLMOCR,
         sample=lambda number: f"part/{number}.pdf#1"),
    parse_bench("text_content", {"content_there": "content_faithfulness", "rules_there": "rule_pass_rate"},
                parse_bench_sample),
    parse_bench("text_formatting", {"format_there": "semantic_formatting"}, format_sample),
    parse_bench("table", {"tables_there": "grits_trm_composite"}, table_sample),
    parse_bench("chart", {"charts_there": "rule_pass_rate"}, chart_sample),
    Case("omnidocbench", {"cdm_there": {"plugin": "cdm"}}, cdm_sample, plain_files, CDM, within=1e-12),
    Case("ocrbench-v2", {"texts_there": {"plugin": "ocrbench_v2", "options":
         {"compat": "ocrbench-v2", "words": "jieba", "synonyms": "wordnet"}}},
         transcript_sample, transcript_files, OCRBENCH_V2, within=1e-12),
]  # fmt: skip


def prepared(case: Case, folder: Path) -> tuple[dict[str, Any], Path]:
    """Write a dataset with its predictions below a folder; its definition, and hpcbench's file of answers."""
    rng = random.Random(case.name)
    right, pieces = zip(*(case.make(rng) for _ in range(PREDICTIONS)), strict=True)
    texts = predictions(rng, pieces)
    (folder / "data").mkdir()
    definition = case.write(folder / "data", right, [as_read(text) for text in texts])
    answers = folder / "answers.jsonl"
    lines = ({"id": case.sample(number), "text": text} for number, text in enumerate(texts))
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"name": "theirs", **definition}, answers


def arguments(case: Case, answers: Path) -> list[str | Path]:
    """`hpcbench score` of these answers; to its publisher, an empty answer is one like any other."""
    words: list[str | Path] = [
        "score",
        answers,
        "--dataset",
        "theirs",
        "--ml-task",
        "ocr",
        "--json",
    ]
    return [*words, "--on-invalid", "zero", "--metrics", ",".join(case.metrics)]


def compare(case: Case, rows: Sequence[Mapping[str, Any]], printed: str) -> None:
    """Check that hpcbench's rows have the values that the publisher's command printed in its last line."""
    assert not any(row["faults"] for row in rows), rows
    ours = {row["metric"]: row["value"] for row in rows}
    theirs = json.loads(printed.strip().splitlines()[-1])
    print("ours", ours, "theirs", theirs)
    assert ours.keys() == theirs.keys()
    assert all(abs(value - theirs[name]) <= case.within for name, value in ours.items())
    assert all(0 < value < 1 for value in ours.values())
