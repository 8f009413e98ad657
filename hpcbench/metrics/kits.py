"""The kits whose numbers metrics give under `compat`, and the version of each that is followed.

Kits change: VLMEvalKit's VQA accuracy keeps a full stop behind a digit since May 2025, lmms-eval's OCRBench
folds full-width letters since July 2026. So a dialect is a kit at one version. Per dialect the tests have a
file of inputs with the values that this version of the kit computed (`tests/vectors/METRIC.COMPAT.json`).
To follow a newer version: compute the file again with it, change the metric until the file holds, change the
version here, and raise `Dialect.version` if a value changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kit:
    """Code or a paper that computes metrics, at one version."""

    name: str
    place: str
    """Repository on GitHub, package, or paper."""
    release: str
    """Version or commit that is followed."""
    date: str
    """Day of that version, or month where the day is not known, ISO 8601."""
    computed: str = "2026-11-23"
    """Day when the values in `tests/vectors/` were computed with it, ISO 8601."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a kit computes a metric: the metric's options, and the code that is followed."""

    options: Mapping[str, object]
    """Values of the metric's options, see `hpcbench.metrics.base.take_dialect`."""
    kit: Kit
    files: tuple[str, ...] = ()
    """Files of the kit that hold the code; empty: a package or a paper as a whole."""
    version: int = 1
    """Version of our code for this dialect, the `v1` of its signature."""

    def provenance(self) -> dict[str, object]:
        """The code that is followed, for people and JSON: kit, place, release, date, files, computed."""
        kit = self.kit
        return {
            "kit": kit.name,
            "place": kit.place,
            "release": kit.release,
            "date": kit.date,
            "files": list(self.files),
            "computed": kit.computed,
        }


ANLS = Kit("anls", "PyPI: anls", "0.0.2", "2022-07-14")
ANLS_STAR = Kit("anls_star", "PyPI: anls_star", "1.0.1", "2026-01-12")
DOCVQA = Kit("DocVQA", "GitHub: QwenLM/Qwen-VL", "commit e6bbb9d", "2023-08-25")
"""The challenge's own script, which its site gives to participants, in the copy that Qwen-VL publishes."""
DUDE = Kit(
    "DUDEeval", "GitHub: Jordy-VL/DUDEeval", "commit 8bd6dea", "2023-02-28", computed="2026-11-29"
)
JIWER = Kit("jiwer", "PyPI: jiwer", "4.0.0", "2025-02-02")
LMMS_EVAL = Kit("lmms-eval", "GitHub: EvolvingLMMs-Lab/lmms-eval", "commit 75571cf", "2026-08-06")
MTVQA = Kit(
    "MTVQA", "GitHub: bytedance/MTVQA", "commit 9659063", "2024-05-31", computed="2026-11-28"
)
OCRBENCH = Kit("OCRBench", "GitHub: Yuliang-Liu/MultimodalOCR", "commit 794c36d", "2026-04-28")
PIX2STRUCT = Kit("pix2struct", "GitHub: google-research/pix2struct", "commit 945f27e", "2025-02-28")
PUBTABNET = Kit("PubTabNet", "GitHub: ibm-aur-nlp/PubTabNet", "commit 8ffde90", "2025-07-07")
ROUGE_SCORE = Kit("rouge-score", "PyPI: rouge-score", "0.1.2", "2022-07-22")
SACREBLEU = Kit("sacrebleu", "PyPI: sacrebleu", "2.6.0", "2026-01-12")
ST_VQA = Kit("ST-VQA", "arXiv 1905.13648", "equation 1", "2019-05")
"""No code goes with the paper; its equation is what is followed."""
VLMEVALKIT = Kit("VLMEvalKit", "GitHub: open-compass/VLMEvalKit", "commit e8e78f0", "2026-08-18")
VQA = Kit("VQA", "GitHub: GT-Vision-Lab/VQA", "commit a013f00", "2021-03-11")
"""Written for Python 2; followed as Python 3 runs it once `print` is a function, like all later copies."""
