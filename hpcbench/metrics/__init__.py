"""Metrics for document work; imports nothing else of hpcbench, and each metric's libraries only when used.

    >>> from hpcbench.metrics import corpus_score, score
    >>> round(score("anls", "12,500", ["12500", "12 500"]), 4)
    0.8333
    >>> score("cer", "Москва", "Масква")
    0.16666666666666666
    >>> corpus_score("wer", ["a b c d", "y"], [["a b c d"], ["x"]])
    0.2
    >>> score("anls", "xx        ", "yy", compat="docvqa-official")  # as others compute it, bugs included
    0.8

Each is also a function, `from hpcbench.metrics import anls`, and a class with its options as fields and a
signature that says what was computed:

    >>> from hpcbench.metrics import Wer
    >>> Wer(case="lower").signature
    'wer|case:lower|ws:runs|unicode:nfc|v1'

`docs/metrics.md` defines all of them; `hpcbench metrics list` and `show` print what they are.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.metrics.base import Counts, Metric, Parts, value_of

if TYPE_CHECKING:
    from hpcbench.metrics.benchmarks import ChartQAPro as ChartQAPro
    from hpcbench.metrics.benchmarks import Choice as Choice
    from hpcbench.metrics.benchmarks import Dude as Dude
    from hpcbench.metrics.benchmarks import TokenF1 as TokenF1
    from hpcbench.metrics.classification import Accuracy as Accuracy
    from hpcbench.metrics.classification import BalancedAccuracy as BalancedAccuracy
    from hpcbench.metrics.classification import MacroF1 as MacroF1
    from hpcbench.metrics.fidelity import ExtraFields as ExtraFields
    from hpcbench.metrics.fidelity import MissingFields as MissingFields
    from hpcbench.metrics.fidelity import MistypedFields as MistypedFields
    from hpcbench.metrics.fidelity import Repaired as Repaired
    from hpcbench.metrics.fidelity import SchemaValid as SchemaValid
    from hpcbench.metrics.fidelity import Truncated as Truncated
    from hpcbench.metrics.fidelity import ValidJson as ValidJson
    from hpcbench.metrics.fields import KieF1Fields as KieF1Fields
    from hpcbench.metrics.fields import KieF1Macro as KieF1Macro
    from hpcbench.metrics.fields import KieF1Micro as KieF1Micro
    from hpcbench.metrics.formulas import FormulaEdit as FormulaEdit
    from hpcbench.metrics.formulas import FormulaMatch as FormulaMatch
    from hpcbench.metrics.invoices import InvoiceFieldF1 as InvoiceFieldF1
    from hpcbench.metrics.invoices import InvoiceItemF1 as InvoiceItemF1
    from hpcbench.metrics.invoices import ItemCountAccuracy as ItemCountAccuracy
    from hpcbench.metrics.loops import Repetition as Repetition
    from hpcbench.metrics.multipage import KendallTau as KendallTau
    from hpcbench.metrics.multipage import PageAccuracy as PageAccuracy
    from hpcbench.metrics.multipage import PositionAccuracy as PositionAccuracy
    from hpcbench.metrics.multipage import Spearman as Spearman
    from hpcbench.metrics.ngrams import Bleu as Bleu
    from hpcbench.metrics.ngrams import Chrf as Chrf
    from hpcbench.metrics.ngrams import RougeL as RougeL
    from hpcbench.metrics.ocrbench_rules import OcrBench as OcrBench
    from hpcbench.metrics.ocrbench_rules import OcrBenchV2 as OcrBenchV2
    from hpcbench.metrics.page_layout import MarkdownEdit as MarkdownEdit
    from hpcbench.metrics.page_layout import ReadingOrder as ReadingOrder
    from hpcbench.metrics.table_similarity import Teds as Teds
    from hpcbench.metrics.table_similarity import TedsS as TedsS
    from hpcbench.metrics.text import Anls as Anls
    from hpcbench.metrics.text import Cer as Cer
    from hpcbench.metrics.text import Contains as Contains
    from hpcbench.metrics.text import ExactMatch as ExactMatch
    from hpcbench.metrics.text import Ned as Ned
    from hpcbench.metrics.text import NedMicro as NedMicro
    from hpcbench.metrics.text import Wer as Wer
    from hpcbench.metrics.trees import AnlsStar as AnlsStar
    from hpcbench.metrics.vqa import RelaxedAccuracy as RelaxedAccuracy
    from hpcbench.metrics.vqa import VqaAccuracy as VqaAccuracy

METRICS: Mapping[str, str] = {
    "accuracy": "classification:Accuracy",
    "anls": "text:Anls",
    "anls_star": "trees:AnlsStar",
    "balanced_accuracy": "classification:BalancedAccuracy",
    "bleu": "ngrams:Bleu",
    "cer": "text:Cer",
    "chartqapro": "benchmarks:ChartQAPro",
    "choice": "benchmarks:Choice",
    "chrf": "ngrams:Chrf",
    "contains": "text:Contains",
    "dude": "benchmarks:Dude",
    "exact_match": "text:ExactMatch",
    "extra_fields": "fidelity:ExtraFields",
    "formula_edit": "formulas:FormulaEdit",
    "formula_match": "formulas:FormulaMatch",
    "invoice_field_f1": "invoices:InvoiceFieldF1",
    "invoice_item_f1": "invoices:InvoiceItemF1",
    "item_count_accuracy": "invoices:ItemCountAccuracy",
    "kendall_tau": "multipage:KendallTau",
    "kie_f1_fields": "fields:KieF1Fields",
    "kie_f1_macro": "fields:KieF1Macro",
    "kie_f1_micro": "fields:KieF1Micro",
    "macro_f1": "classification:MacroF1",
    "markdown_edit": "page_layout:MarkdownEdit",
    "missing_fields": "fidelity:MissingFields",
    "mistyped_fields": "fidelity:MistypedFields",
    "ned": "text:Ned",
    "ned_micro": "text:NedMicro",
    "ocrbench": "ocrbench_rules:OcrBench",
    "ocrbench_v2": "ocrbench_rules:OcrBenchV2",
    "page_accuracy": "multipage:PageAccuracy",
    "position_accuracy": "multipage:PositionAccuracy",
    "reading_order": "page_layout:ReadingOrder",
    "relaxed_accuracy": "vqa:RelaxedAccuracy",
    "repaired": "fidelity:Repaired",
    "repetition": "loops:Repetition",
    "rouge_l": "ngrams:RougeL",
    "schema_valid": "fidelity:SchemaValid",
    "spearman": "multipage:Spearman",
    "teds": "table_similarity:Teds",
    "teds_s": "table_similarity:TedsS",
    "token_f1": "benchmarks:TokenF1",
    "truncated": "fidelity:Truncated",
    "valid_json": "fidelity:ValidJson",
    "vqa_accuracy": "vqa:VqaAccuracy",
    "wer": "text:Wer",
}
"""Our own metrics: name → module and class."""

__all__ = ["METRICS", "Counts", "Metric", "Parts", "corpus_score", "metric", "score"]


def metric(name: str, **options: Any) -> Metric:
    """One of our metrics with its options.

    Raises:
        ValueError: no such metric, or an option's value that it does not know.
        TypeError: no such option.
    """
    if name not in METRICS:
        raise ValueError(f"there is no metric '{name}'; there are {', '.join(sorted(METRICS))}")
    made: Metric = _class(METRICS[name])(**options)
    return made


def score(name: str, prediction: object, references: object = "", **options: Any) -> float:
    """Value of one prediction against its acceptable answers; the best of them counts.

    Args:
        name: of the metric.
        prediction: what a model said, as text, label or object; anything is scored, nothing raises.
        references: a list of acceptable answers, or the one there is; for `anls_star` one tree. A metric that
            looks at the prediction alone needs none.
        options: of the metric.

    Raises:
        ValueError: no such metric, no reference, or an option's value that it does not know.
        TypeError: no such option, or a reference of a type that the metric does not know.
    """
    chosen = metric(name, **options)
    return value_of(chosen, chosen.score(prediction, _acceptable(chosen, references)))


def corpus_score(
    name: str, predictions: Sequence[object], references: Sequence[object], **options: Any
) -> float:
    """Value of a set of samples: their mean, or of a ratio or corpus metric what the sums give.

    Args:
        name: of the metric.
        predictions: one per sample.
        references: per sample as in `score`.
        options: of the metric.

    Raises:
        ValueError: as in `score`; or no samples, or not as many of the one as of the other.
        TypeError: as in `score`.
    """
    chosen = metric(name, **options)
    if len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} predictions, {len(references)} references")
    pairs = zip(predictions, references, strict=True)
    return chosen.aggregate([chosen.score(one, _acceptable(chosen, of)) for one, of in pairs])


def _acceptable(chosen: Any, references: object) -> Sequence[object]:
    if getattr(chosen, "one_tree", False):  # lists and tuples mean something inside it
        return [references]
    if isinstance(references, (str, bytes, Mapping)) or not isinstance(references, Sequence):
        return [references]
    return references


def _class(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"hpcbench.metrics.{module}"), name)


def __getattr__(name: str) -> Any:
    """A metric as a function (`anls`), or its class (`Anls`)."""
    if name in METRICS:
        return functools.partial(score, name)
    for place in METRICS.values():
        if place.endswith(f":{name}"):
            return _class(place)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
