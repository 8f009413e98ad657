"""Publications that define metrics: a metric's name → its citation.

Only metrics whose docstrings name a publication are here; the others are defined by their docstrings alone.
"""

from __future__ import annotations

from collections.abc import Mapping

_ANLS = 'Biten et al. 2019, "Scene Text Visual Question Answering", arXiv 1905.13648'
_TEDS = 'Zhong et al. 2020, "Image-based table recognition: data, model, and evaluation", arXiv 1911.10683'

CITATIONS: Mapping[str, str] = {
    "anls": _ANLS,
    "anls_star": (
        'Peer et al. 2024, "ANLS* - A Universal Document Processing Metric for Generative Large Language '
        'Models", arXiv 2402.03848'
    ),
    "bleu": (
        'Papineni et al. 2002, "BLEU: a Method for Automatic Evaluation of Machine Translation"'
    ),
    "chrf": 'Popović 2015, "chrF: character n-gram F-score for automatic MT evaluation"',
    "ocrbench": 'Liu et al., "OCRBench", arXiv 2305.07895',
    "ocrbench_v2": 'Fu et al., "OCRBench v2", arXiv 2501.00321',
    "relaxed_accuracy": 'Masry et al. 2022, "ChartQA", arXiv 2203.10244',
    "rouge_l": 'Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries"',
    "teds": _TEDS,
    "teds_s": _TEDS,
    "vqa_accuracy": 'Antol et al. 2015, "VQA: Visual Question Answering", arXiv 1505.00468',
}
"""Metric → author, year where the docstring has it, title, number at arXiv."""
