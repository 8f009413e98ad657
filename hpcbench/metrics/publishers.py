"""Scorers of their publishers, each in an image of its own: see `recipes/scorers`.

olmOCR-bench and ParseBench are programs over folders, GriTS and CDM are called sample by sample. The
values are theirs; this file writes their input, and reads their results.

A reference of olmOCR-bench and ParseBench is the page's tests as JSON, as the iterator `page_tests` gives it:
`{"table.jsonl": [row, …]}`, file of the publisher → its rows about this page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from hpcbench.metrics.base import CorpusMetric, Counts, Parts, acceptable, add_up, added, over_one
from hpcbench.metrics.programs import (
    FunctionMetric,
    NotInstalled,
    ProgramFailed,
    ProgramMetric,
)


def _one_page() -> bytes:
    """A PDF of one empty page: the programs count pages, and never look at them."""
    written, places = b"%PDF-1.4\n", []
    for body in (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]>>",
    ):
        places.append(len(written))
        written += b"%d 0 obj%sendobj\n" % (len(places), body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(written)
    written += b"xref\n0 4\n0000000000 65535 f \n" + table
    return written + b"trailer<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % start


ONE_PAGE = _one_page()

Row = dict[str, Any]


class PageTests(ProgramMetric):
    """A program that tests the text of pages by rows of JSON in files."""

    def rows(self, reference: Any) -> Iterator[tuple[str, Row]]:
        """File and row of each test of a page.

        Raises:
            ValueError: the reference is not of this form.
        """
        try:
            files = json.loads(reference)
            found = [(str(file), dict(row)) for file, rows in files.items() for row in rows]
        except (TypeError, ValueError, AttributeError) as error:
            what = "the reference is not what the iterator 'page_tests' makes of a page's tests"
            raise ValueError(what) from error
        for file, _ in found:
            if not re.fullmatch(r"[\w-]+\.jsonl", file):
                raise ValueError(f"tests of a file named {file!r}; it has to be NAME.jsonl")
        return iter(found)

    def write_rows(self, folder: Path, written: Mapping[str, Sequence[Row]]) -> None:
        """Write each file of tests."""
        for file, rows in written.items():
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / file).write_text(lines, "utf-8")


@dataclass(frozen=True)
class OlmOcrBench(PageTests, CorpusMetric):
    """olmOCR-bench of Allen AI: mean over its files of the share of tests that pass.

    `python -m olmocr.bench.benchmark` runs the tests: texts that are there or are not, their order, cells of
    tables, formulas as KaTeX draws them in Chromium, and one test of each page that it has text without
    loops. The value of one page is the same mean over its own tests.
    """

    release: str = "0.4.27"

    name: ClassVar[str] = "olmocr_bench"
    distribution: ClassVar[str] = "olmocr"

    def combine(self, sums: Mapping[str, Any]) -> Any:
        """Mean over files of passed ÷ tests; a file without tests, as in some resamples, does not count."""
        total: Any = 0.0
        files: Any = 0.0
        for name in sorted(sums):
            kind, _, file = name.partition(":")
            if kind == "tests":
                tests = sums[name]
                total = total + sums.get(f"passed:{file}", 0.0) / (tests + (tests == 0))
                files = files + (tests > 0)
        return total / (files + (files == 0))

    def write(self, folder: Path, texts: Sequence[str], references: Sequence[Any]) -> list[str]:
        """Pages as `pdfs/N.pdf`, answers as `answers/N_pg1_repeat1.md`, tests by file."""
        data = folder / "data"
        for name in ("pdfs", "answers"):
            (data / name).mkdir(parents=True)
        written: dict[str, list[Row]] = {}
        for number, (text, reference) in enumerate(zip(texts, references, strict=True)):
            (data / f"pdfs/{number}.pdf").write_bytes(ONE_PAGE)
            (data / f"answers/{number}_pg1_repeat1.md").write_text(text, "utf-8", newline="")
            for place, (file, row) in enumerate(self.rows(reference)):
                one = {**row, "pdf": f"{number}.pdf", "page": 1, "id": f"{number}:{place}"}
                written.setdefault(file, []).append(one)
        self.write_rows(data, written)
        words = [sys.executable, "-m", "olmocr.bench.benchmark", "--dir", str(data)]
        words += ["--candidate", "answers", "--bootstrap_samples", "1"]
        return [*words, "--output_failed", str(folder / "failed.jsonl")]

    def read(self, folder: Path, printed: str, references: Sequence[Any]) -> list[Any]:
        """Counts of each page, of the tests that the program wrote down as failed.

        Raises:
            ProgramFailed: a test could not be run, or the counts are not those that the program printed.
        """
        head, _, summary = printed.rpartition("Final Summary with 95% Confidence Intervals:")
        if "FAILED (errors)" in summary or not summary:
            errors = (line.partition("[ERROR] ")[2] for line in head.splitlines())
            raise ProgramFailed(next(filter(None, errors), "it printed no summary"))
        lines = (folder / "failed.jsonl").read_text("utf-8") if self._any_failed(folder) else ""
        failed = {json.loads(line)["id"] for line in lines.splitlines()}
        found: list[Counts] = []
        for number, reference in enumerate(references):
            tests, passed = Counter[str](), Counter[str]()
            every = [(file, f"{number}:{place}", row.get("type"))
                     for place, (file, row) in enumerate(self.rows(reference))]  # fmt: skip
            if not any(kind == "baseline" for *_, kind in every):  # the program adds one
                every.append(("baseline", f"{number}.pdf_baseline", "baseline"))
            for file, test, _ in every:
                tests[file] += 1
                passed[file] += test not in failed
            counts = {f"tests:{file}": float(count) for file, count in tests.items()}
            found.append(counts | {f"passed:{file}": float(passed[file]) for file in tests})
        self._check(add_up(found), summary)
        return found

    @staticmethod
    def _any_failed(folder: Path) -> bool:
        return (folder / "failed.jsonl").exists()  # it writes none where all passed

    @staticmethod
    def _check(sums: Mapping[str, float], summary: str) -> None:
        """Check that counts are those of the printed table `FILE : 50.0% (1/2 tests)`."""
        table = re.findall(r"^ +(\S+) *: [\d.]+% \((\d+)/(\d+) tests\)$", summary, re.MULTILINE)
        said = {
            f"{kind}:{file}": float(count)
            for file, *counts in table
            for kind, count in zip(("passed", "tests"), counts, strict=True)
        }
        if said != sums:
            raise ProgramFailed(f"olmocr printed {said}, its files of failed tests say {sums}")


@dataclass(frozen=True)
class ParseBench(PageTests):
    """ParseBench of LlamaIndex: a figure of `parse-bench evaluation run`, mean over pages."""

    figure: str = "content_faithfulness"
    """Name of the figure: `content_faithfulness`, `semantic_formatting`, `grits_trm_composite` (tables),
    `rule_pass_rate` (charts), or another one of its reports."""
    release: str = "1.0.4"

    name: ClassVar[str] = "parse_bench"
    distribution: ClassVar[str] = "parse-bench"

    def write(self, folder: Path, texts: Sequence[str], references: Sequence[Any]) -> list[str]:
        """Answers as results of inference, `output/GROUP/N.result.json`; tests by file."""
        data, output = folder / "data", folder / "output"
        written: dict[str, list[Row]] = {}
        data.mkdir()
        for number, (text, reference) in enumerate(zip(texts, references, strict=True)):
            groups = set()
            for file, row in self.rows(reference):
                groups.add(_shared(str(row.get("category", file.removesuffix(".jsonl")))))
                written.setdefault(file, []).append({**row, "pdf": f"{number}.pdf"})
            if len(groups) != 1:
                raise ValueError(f"the page's tests are of {len(groups)} parts, not of one")
            (data / f"{number}.pdf").write_bytes(ONE_PAGE)
            name = f"{groups.pop()}/{number}"
            result = output / f"{name}.result.json"
            result.parent.mkdir(parents=True, exist_ok=True)
            result.write_text(json.dumps(_inferred(name, data / f"{number}.pdf", text)), "utf-8")
        self.write_rows(data, written)
        words = [sys.executable, "-c", "from parse_bench.cli import main; main()", "evaluation"]
        words += ["run", "--output_dir", str(output), "--test_cases_dir", str(data)]
        words += [f"--export_{one}=False" for one in ("csv", "rule_csv", "markdown", "html")]
        return [
            *words,
            "--product_type",
            "parse",
            "--max_workers",
            str(len(os.sched_getaffinity(0))),
        ]

    def read(self, folder: Path, printed: str, references: Sequence[Any]) -> list[Any]:
        """The figure of each page, from the report.

        Raises:
            OSError, ValueError, KeyError: the report is missing, or has another form.
        """
        report = json.loads((folder / "output/_evaluation_report.json").read_text("utf-8"))
        found: list[Any] = [ProgramFailed("parse-bench has no result of this page")] * len(
            references
        )
        for one in report["per_example_results"]:
            number = int(str(one["test_id"]).rpartition("/")[2])
            found[number] = self._of_page(one)
        return found

    def _of_page(self, result: Mapping[str, Any]) -> Parts | ProgramFailed:
        if not result["success"]:
            return ProgramFailed(f"parse-bench: {' '.join(str(result['error']).split())}")
        values = {one["metric_name"]: one["value"] for one in result["metrics"]}
        if self.figure not in values:
            has = ", ".join(sorted(values)) or "none"
            return ProgramFailed(f"parse-bench gives no '{self.figure}' for this page, but {has}")
        return over_one(float(values[self.figure]))

    @property
    def signature(self) -> str:
        """E.g. `parse_bench|figure:content_faithfulness|parse-bench:1.0.4|v1`."""
        return f"{self.name}|figure:{self.figure}|{self.distribution}:{self.release}|v1"


def _shared(category: str) -> str:
    """Group of a part: two parts of texts share their answers."""
    return "text" if category in ("text_content", "text_formatting") else category


def _inferred(name: str, source: Path, text: str) -> dict[str, Any]:
    """An answer in the form of parse-bench's results of inference."""
    when = "2026-01-01T00:00:00"  # the form needs times; none of them is scored
    return {
        "request": {"example_id": name, "source_file_path": str(source), "product_type": "parse"},
        "pipeline_name": "answers", "product_type": "parse", "raw_output": {},
        "output": {"task_type": "parse", "example_id": name, "pipeline_name": "answers", "markdown": text,
                   "pages": [{"page_index": 0, "markdown": text}]},
        "started_at": when, "completed_at": when, "latency_in_ms": 0,
    }  # fmt: skip


@dataclass(frozen=True)
class Grits(FunctionMetric, CorpusMetric):
    """GriTS of its authors' package: similarity of tables in HTML as grids, weighed by their cells.

    The package pairs the tables of a page, and makes F1 of the sums over all pages (`compute_grits`):
    precision and recall are similarity ÷ cells, and 1 where there are no cells.
    """

    of: Literal["con", "top"] = "con"
    """`con`: contents of cells; `top`: their spans alone."""
    release: str = "0.7.0"

    name: ClassVar[str] = "grits"
    distribution: ClassVar[str] = "grits-metric"
    module: ClassVar[str] = "grits"

    def combine(self, sums: Mapping[str, Any]) -> Any:
        """F1 of sums."""
        similar, right, given = (sums.get(name, 0.0) for name in ("similar", "right", "given"))
        precision = similar / (given + (given == 0)) + (given == 0)
        recall = similar / (right + (right == 0)) + (right == 0)
        both = precision + recall
        return 2 * precision * recall / (both + (both == 0))

    def compute(self, prediction: str, references: Sequence[Any]) -> Counts:
        """Similarity of the paired tables, cells of the right tables and of the given ones."""
        from grits import GritsEvaluator  # type: ignore[import-not-found]

        right = tables_of(str(acceptable(self.name, references)[0]))
        evaluator = GritsEvaluator([self.of])
        evaluator.eval_htmls(right, tables_of(prediction))
        (sums,) = evaluator._evaluators.values()  # noqa: SLF001 - it publishes quotients, not their parts
        return {
            "similar": added(sums.true_positive_scores),
            "right": float(sum(sums.num_true_cells)),
            "given": float(sum(sums.num_pred_cells)),
        }

    def parts(self, computed: Counts) -> Counts:
        """The sums, as they are."""
        return computed

    @property
    def signature(self) -> str:
        """E.g. `grits|of:con|grits-metric:0.7.0|v1`."""
        return f"{self.name}|of:{self.of}|{self.distribution}:{self.release}|v1"


def tables_of(text: str) -> list[str]:
    """The outer tables of a text in HTML, each alone: the package wants one table a string."""
    found, depth, start = [], 0, 0
    for mark in re.finditer(r"<(/?)table\b[^>]*>", text, re.IGNORECASE):
        if not mark[1]:
            start = start if depth else mark.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                found.append(text[start : mark.end()])
    if depth:  # cut off: a table goes on to the end of the text
        found.append(text[start:])
    return found


@dataclass(frozen=True)
class Cdm(FunctionMetric):
    """CDM of OmniDocBench's authors: formulas drawn by XeLaTeX, their characters matched by place.

    `omnidocbench.evaluate.calc_section_cdm` scores a formula; one that cannot be drawn is 0.
    """

    release: str = "0.1.0"

    name: ClassVar[str] = "cdm"
    distribution: ClassVar[str] = "omnidocbench"
    module: ClassVar[str] = "omnidocbench.evaluate"

    def check_here(self) -> None:
        """Check that the package and the programs that draw are here.

        Raises:
            NotInstalled: they are not.
        """
        super().check_here()
        for program in ("xelatex", "convert", "node"):
            if shutil.which(program) is None:
                raise NotInstalled(f"omnidocbench draws by '{program}', which is not on PATH")

    def compute(self, prediction: str, references: Sequence[Any]) -> float:
        """F1 of the characters of one formula.

        Raises:
            ValueError: the reference cannot be drawn.
        """
        from omnidocbench.evaluate import calc_section_cdm  # type: ignore[import-not-found]

        right = str(acceptable(self.name, references)[0])
        with tempfile.TemporaryDirectory(prefix="cdm-") as folder:
            found = calc_section_cdm({"gt": right, "pred": prediction}, folder)
            if not (Path(folder) / "bbox_gt.jsonl").exists():
                raise ValueError("the reference cannot be drawn by XeLaTeX")
        return float(found["cdm"])

    def parts(self, computed: float) -> Parts:
        """F1 of one formula."""
        return over_one(computed)
