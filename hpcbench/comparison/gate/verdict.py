"""A gate's answer: single checks, and the one verdict that follows from them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.as_written import verdict_data
from hpcbench.files.atomic import write_json
from hpcbench.schema.gate import Gate, GateLevel, QualityRule
from hpcbench.schema.rules import by_name

VERSION = 1
"""Version of `verdict.json`."""

CheckKind = Literal["quality", "speed", "memory", "coverage"]
Found = Literal["pass", "fail", "inconclusive"]
Word = Literal["GO", "NO-GO", "INCONCLUSIVE"]

EXIT_CODES: Mapping[str, int] = {"GO": 0, "NO-GO": 4, "INCONCLUSIVE": 5}
"""Verdict → exit code of `hpcbench gate` and `hpcbench regress`."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing of a run task, compared with the baseline."""

    run_task: str
    """Run task; repeats of one go together under its own name. Empty: the experiment as a whole."""
    what: str
    """Metric or figure, or what was missing."""
    kind: CheckKind
    """Subject of the check."""
    level: GateLevel
    """`critical` decides the verdict, `advisory` is only listed."""
    verdict: Found
    """Result of the check."""
    why: str
    """In one sentence."""
    baseline: float | None = None
    """The baseline's value."""
    candidate: float | None = None
    """The candidate's."""
    difference: float | None = None
    """Candidate minus baseline, in the metric's unit; of speed and memory as a share of the baseline."""
    low: float | None = None
    """Lower end of its interval; None: there is none."""
    high: float | None = None
    """Upper end."""
    margin: float | None = None
    """How much worse it may be, in the unit of the difference, above 0."""
    identical: bool = False
    """No sample differs from the baseline's."""

    def __str__(self) -> str:
        where = f"{self.run_task}, " if self.run_task else ""
        return f"{where}{self.what}: {self.verdict} ({self.level}): {self.why}"


NO_MARGIN = "the baseline is 0, and so is its relative margin: give an absolute margin, too"
"""Why a margin of 0 decides nothing."""


def margin_of(rule: QualityRule, baseline: float) -> float:
    """The greater of a rule's absolute and relative margin, in the metric's unit."""
    return max(rule.absolute or 0.0, (rule.relative or 0.0) * abs(baseline))


def held_to(margin: float, low: float, high: float, *, higher_is_better: bool) -> tuple[Found, str]:
    """Whether a difference whose interval is known is worse than the margin allows, and that in words."""
    better, worse = (high, low) if higher_is_better else (-low, -high)
    if worse > -margin:
        return "pass", f"not worse by more than {margin:.3g}"
    if better < -margin:
        return "fail", f"worse by more than {margin:.3g}"
    return "inconclusive", f"undecided whether it is worse by more than {margin:.3g}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A gate's conclusion about a candidate."""

    baseline: str
    """Id of the experiment it was compared with."""
    candidate: str
    """Id of the candidate."""
    policy: str
    """Name of the gate's definition."""
    verdict: Word
    """The answer."""
    reasons: tuple[str, ...]
    """The deciding checks, the weightiest first."""
    checks: tuple[Check, ...]
    """All checks."""
    confirmed_by: tuple[str, ...] = ()
    """Experiments that asked the same again, judged together with the candidate."""
    time: str = ""
    """When it was given."""

    @property
    def exit_code(self) -> int:
        """0 GO, 4 NO-GO, 5 INCONCLUSIVE."""
        return EXIT_CODES[self.verdict]

    @property
    def failing(self) -> tuple[str, ...]:
        """Run tasks with a critical check that failed."""
        names = (
            one.run_task
            for one in self.checks
            if one.level == "critical" and one.verdict == "fail" and one.run_task
        )
        return tuple(dict.fromkeys(names))

    def to_json(self) -> dict[str, Any]:
        """As plain data: what `verdict.json` holds."""
        return {"version": VERSION, **asdict(self), "checks": [asdict(one) for one in self.checks]} | {
            "reasons": list(self.reasons), "confirmed_by": list(self.confirmed_by)
        }  # fmt: skip

    def write(self, candidate: Experiment) -> dict[str, Any]:
        """Put it into the candidate's `report/verdict.json`, where reports and notifications look for it.

        Returns:
            The content of the file now. If the last verdict was the same, the file keeps it with its time,
            so that hpcbench sends no second notification.
        """
        content, before = self.to_json(), verdict_of(candidate)
        if before is not None and {**before, "time": self.time} == content:
            return before
        candidate.report_dir.mkdir(exist_ok=True)
        write_json(candidate.verdict_file, content)
        return content


def verdict_of(candidate: Experiment) -> dict[str, Any] | None:
    """The last verdict on an experiment; None: there is none, or its file is damaged."""
    try:
        found = verdict_data(candidate)
    except (FileNotFoundError, ValueError):
        return None
    return found if found.get("verdict") in EXIT_CODES else None


def decide(
    baseline: str,
    candidate: str,
    policy: Gate,
    checks: Sequence[Check],
    confirmed_by: Sequence[str] = (),
) -> Verdict:
    """The verdict that follows from checks, by the policy.

    A critical check that fails makes it NO-GO. Otherwise three things make it INCONCLUSIVE (or NO-GO, by
    `on_inconclusive`): an inconclusive critical check, no critical check at all, or a policy with metrics of
    which the experiments have none. Nothing passes without a judgement. Advisory checks are listed, and make
    it INCONCLUSIVE only by `on_advisory`.
    """
    critical = [one for one in checks if one.level == "critical"]
    failed = [one for one in critical if one.verdict == "fail"]
    open_ones = [str(one) for one in critical if one.verdict == "inconclusive"]
    open_ones += _nothing_judged(policy, checks, critical)
    advice = [one for one in checks if one.level == "advisory" and one.verdict != "pass"]
    word: Word = "GO"
    if failed or (open_ones and policy.on_inconclusive == "no-go"):
        word = "NO-GO"
    elif open_ones or (advice and policy.on_advisory == "inconclusive"):
        word = "INCONCLUSIVE"
    reasons = [*map(str, failed), *open_ones, *_taken_for_proof(critical), *map(str, advice)]
    passed = f"{len(critical)} critical checks pass" if word == "GO" else ""
    return Verdict(
        baseline=baseline,
        candidate=candidate,
        policy=policy.name,
        verdict=word,
        reasons=tuple([passed, *reasons] if passed else reasons),
        checks=tuple(checks),
        confirmed_by=tuple(confirmed_by),
        time=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def worth_an_alert(verdict: Mapping[str, Any]) -> bool:
    """Whether hpcbench notifies people of the verdict in `verdict.json`.

    It does for NO-GO, and for INCONCLUSIVE unless all inconclusive critical checks have the same answers as
    the baseline. Such checks only show that the dataset is small, and would repeat this every night.
    """
    if verdict["verdict"] != "INCONCLUSIVE":
        return bool(verdict["verdict"] == "NO-GO")
    checks = [one for one in verdict.get("checks") or () if one["verdict"] == "inconclusive"]
    critical = [one for one in checks if one["level"] == "critical"]
    return not critical or not all(one.get("identical") for one in critical)


def _taken_for_proof(critical: Sequence[Check]) -> Iterator[str]:
    passed = [
        one for one in critical if one.identical and one.verdict == "pass" and one.low is None
    ]
    if passed:
        yield (
            f"{len(passed)} checks pass because no sample differs (`identical: pass`): "
            "they do not limit to 2.5 % the cases in which a worse candidate passes"
        )


def _nothing_judged(
    policy: Gate, checks: Sequence[Check], critical: Sequence[Check]
) -> Iterator[str]:
    if not critical:
        yield "the policy has no critical check that applies to these experiments: nothing was judged"
    elif policy.metrics and not any(_is_of_metric(policy, one) for one in checks):
        yield "the baseline has no metric of the policy: quality was not judged"


def _is_of_metric(policy: Gate, check: Check) -> bool:
    """Whether a check is of a metric of the policy: of answers, or of a resource that a rule names."""
    named = {key.rpartition(":")[2] for key in by_name(policy.metrics)}
    return check.kind == "quality" or (check.kind != "coverage" and check.what in named)
