"""Result folders as other kits leave them, made by hand after their published formats; no kit wrote them.

lm-eval 0.4 (`results_DATE.json`, `samples_TASK_DATE.jsonl`), lmms-eval 0.5 (`DATE_results.json`,
`DATE_samples_TASK.jsonl`), VLMEvalKit 0.2 (`MODEL_DATASET.xlsx` or `.tsv`, `_acc.csv`).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ANSWERS = ["12.50", "Москва", "wrong", "[LMMS_EVAL_REQUEST_FAILED after 5 retries] timeout"]
TRUTH = [["12.50"], ["Москва", "г. Москва"], ["right"], ["7"]]
ANLS = [1.0, 1.0, 0.4, 0.0]


def lmms_eval(folder: Path, date: str = "20251120_101500") -> Path:
    """One model on one task of four samples; the aggregate is the mean of samples."""
    own = folder / "Qwen__Qwen2-VL-2B-Instruct"
    own.mkdir(parents=True)
    lines = [
        {
            "doc_id": n,
            "target": str(TRUTH[n]) if len(TRUTH[n]) > 1 else TRUTH[n][0],
            "filtered_resps": [ANSWERS[n]],
            "doc_hash": f"{n:064d}",
            "input": f"Question {n}?\nAnswer the question using a single word or phrase.",
            "doc": {"questionId": str(64000 + n), "docId": 5000 + n // 2, "answers": TRUTH[n]},
            "anls": ANLS[n],
            "submission": {"questionId": 64000 + n, "answer": ANSWERS[n]},
        }
        for n in range(4)
    ]
    samples = own / f"{date}_samples_docvqa_val.jsonl"
    samples.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines))
    results = {
        "results": {
            "docvqa_val": {"alias": "docvqa_val", "anls,none": 0.6, "anls_stderr,none": 0.2}
        },
        "configs": {"docvqa_val": {"task": "docvqa_val", "dataset_path": "lmms-lab/DocVQA"}},
        "versions": {"docvqa_val": 1.0},
        "n-samples": {"docvqa_val": {"original": 4, "effective": 4}},
        "config": {"model": "qwen2_vl", "model_args": "pretrained=Qwen/Qwen2-VL-2B-Instruct"},
        "git_hash": "00000000",
        "date": date,
        "model_name": "Qwen/Qwen2-VL-2B-Instruct",
    }
    (own / f"{date}_results.json").write_text(json.dumps(results, indent=2))
    return own


def lm_eval(folder: Path) -> Path:
    """One model on a task with two filters, in lm-eval's order: all samples of one, then of the other."""
    own = folder / "EleutherAI__pythia-160m"
    own.mkdir(parents=True)
    date = "2025-11-20T10-15-00.123456"
    lines = [
        {
            "doc_id": n,
            "doc": {"question": f"What is {n} + 1?", "answer": str(n + 1)},
            "target": str(n + 1),
            "arguments": {
                "gen_args_0": {"arg_0": f"Question: What is {n} + 1?\nAnswer:", "arg_1": {}}
            },
            "resps": [[f"It is {n + 1}."]],
            "filtered_resps": [str(n + 1) if name == "flexible-extract" else "[invalid]"],
            "filter": name,
            "metrics": ["exact_match"],
            "doc_hash": "0" * 64,
            "exact_match": 1.0 if name == "flexible-extract" else float(n == 0),
        }
        for name in ("strict-match", "flexible-extract")
        for n in range(3)
    ]
    (own / f"samples_gsm8k_{date}.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in lines)
    )
    results = {
        "results": {
            "gsm8k": {
                "alias": "gsm8k",
                "exact_match,strict-match": 1 / 3,
                "exact_match_stderr,strict-match": 0.33,
                "exact_match,flexible-extract": 1.0,
                "exact_match_stderr,flexible-extract": 0.0,
            }
        },
        "versions": {"gsm8k": 3.0},
        "higher_is_better": {"gsm8k": {"exact_match": True}},
        "config": {"model": "hf", "model_args": "pretrained=EleutherAI/pythia-160m"},
        "lm_eval_version": "0.4.13",
        "model_name": "EleutherAI/pythia-160m",
    }
    (own / f"results_{date}.json").write_text(json.dumps(results))
    return own


def rows(count: int = 4) -> list[dict[str, Any]]:
    """Predictions as VLMEvalKit keeps them."""
    answers = [*ANSWERS[:3], "Failed to obtain answer via API."]
    return [
        {
            "index": n,
            "question": f"Question {n}?",
            "answer": str(TRUTH[n]),
            "category": "Doc-oriented VQA" if n < 2 else "Key Information Extraction",
            "prediction": answers[n],
        }
        for n in range(count)
    ]


def vlmevalkit(
    folder: Path, ending: str = "tsv", table: Sequence[Mapping[str, Any]] | None = None
) -> Path:
    """One model on one dataset, in a run's folder."""
    own = folder / "Qwen2-VL-2B-Instruct" / "T20251120-101500"
    own.mkdir(parents=True)
    table = rows() if table is None else table
    path = own / f"Qwen2-VL-2B-Instruct_OCRBench.{ending}"
    if ending == "tsv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]), delimiter="\t", quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(table)
    elif ending == "json":
        path.write_text(json.dumps(list(table), ensure_ascii=False))
    else:
        spreadsheet(path, table)
    score = {"Text Recognition": 0, "Final Score": 2, "Final Score Norm": 0.2}
    (own / "Qwen2-VL-2B-Instruct_OCRBench_score.json").write_text(json.dumps(score))
    return own


def spreadsheet(path: Path, table: Sequence[Mapping[str, Any]]) -> None:
    """A sheet with a header."""
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.active
    sheet.append(list(table[0]))
    for row in table:
        sheet.append(list(row.values()))
    book.save(path)
