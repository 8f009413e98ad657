"""Verbs that compare experiments with a baseline over time."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    SCORED,
    Verb,
    also,
    group,
    with_json,
    with_registry,
    with_settings,
    with_site,
)

POLICY = "policy: name of a gates/ definition, or its file; default: %s"


def add(verb: Verb) -> None:
    """Add baselines, the gate, regression runs and their history."""
    _baseline(verb)
    gate = verb(
        "gate", "gate:gate", "decide whether a candidate may replace its baseline: GO, NO-GO or INCONCLUSIVE",
        "hpcbench gate @last --baseline main",
        ("hpcbench gate @last --baseline EXPERIMENT --policy default --dry-run", "judge, and store nothing"),
        note="exit codes: 0 GO · 4 NO-GO · 5 INCONCLUSIVE",
    )  # fmt: skip
    gate.add_argument("candidate", help=SCORED)
    gate.option("--baseline NAME", "name of a baseline, or an experiment; default: the plan's")
    gate.option("--policy NAME|FILE", POLICY % "the plan's, else gates/default")
    gate.several(
        "--confirmed-by EXPERIMENT",
        "repetition of the candidate, which the gate judges together with it; may be repeated",
    )  # fmt: skip
    gate.flag("--dry-run", "judge, and write no verdict.json")
    also(gate, with_registry, with_json, with_site)
    _regress(verb)
    _history(verb)
    _judge(verb)


def _baseline(verb: Verb) -> None:
    verbs = group(
        verb, "baseline", "name experiments as baselines for comparisons",
        "hpcbench baseline set EXPERIMENT --name main --note 'release 1.4'",
    )  # fmt: skip
    setting = verbs(
        "set", "gate:set_baseline", "give an experiment the name of a baseline",
        "hpcbench baseline set EXPERIMENT --name main --note 'release 1.4'",
    )  # fmt: skip
    setting.add_argument("experiment", help=EXPERIMENT)
    setting.option("--name", "the name, such as main", required=True)
    setting.option("--note", "reason for the choice, for later readers", default="")
    setting.flag("--force", "accept an experiment that is not done, or has no scores")
    with_json(setting)
    with_json(verbs("list", "gate:list_baselines", "list the baselines", "hpcbench baseline list"))
    show = verbs(
        "show", "gate:show_baseline", "show all experiments that have had a name",
        "hpcbench baseline show main",
    )  # fmt: skip
    show.add_argument("name", help="name from `hpcbench baseline list`")
    with_json(show)
    verbs(
        "remove", "gate:remove_baseline", "remove a name; its history stays",
        "hpcbench baseline remove main",
    ).add_argument("name", help="name from `hpcbench baseline list`")  # fmt: skip


def _regress(verb: Verb) -> None:
    regress = verb(
        "regress", "regress:regress",
        "submit a plan, or judge its last run against a baseline once the run has ended; for cron",
        "hpcbench regress PLAN --baseline main --set-baseline-if-none",
        ("hpcbench cron install PLAN --regress main --at '0 2 * * *'", "every night at two"),
        note="exit codes: 0 GO, or the run has not ended\n"
        "alerts: 1 the run failed · 4 NO-GO · 5 INCONCLUSIVE, unless no sample differs",
    )  # fmt: skip
    regress.add_argument("plan", type=Path, help="the plan's YAML file, or its name")
    regress.option("--baseline NAME", "name of a baseline, or an experiment; default: the plan's")
    regress.option("--policy NAME|FILE", POLICY % "the plan's, else gates/default")
    regress.flag(
        "--set-baseline-if-none",
        "if the baseline does not exist, the first run that is done becomes the baseline",
    )  # fmt: skip
    regress.flag("--promote", "make the candidate the baseline after GO")
    regress.flag(
        "--next", "after judging a run, submit the next one at once; for a call that cron makes once a night",
    )  # fmt: skip
    regress.flag("--wait", "wait for the verdict")
    also(regress, with_registry, with_settings, with_json)


def _history(verb: Verb) -> None:
    history = verb(
        "history", "history:history", "show a metric over all experiments, and where it changed",
        ("hpcbench history", "list all metrics"),
        "hpcbench history exact_match --since 90d --plot history.html",
    )  # fmt: skip
    history.description = (
        "Show a metric over all experiments, and where it changed. A ◆ marks the first experiment of a new "
        "level. At most 5 % of the series without a change ever show a ◆, however often a user reads them; "
        "a ◆ that was shown once stays."
    )
    history.add_argument(
        "metric", nargs="?",
        help="metric or speed figure, `*` and `?` match any characters; default: list all",
    )  # fmt: skip
    history.option("--plan NAME", "only this plan", default="*")
    history.option("--run-task NAME", "only this run task", default="*")
    history.option(
        "--since WHEN",
        "show only experiments after a date (2026-11-01) or of the last 90d, 12w; all count for changes",
    )  # fmt: skip
    history.option("--plot FILE", "write a plot: FILE.svg, FILE.png or FILE.html", type=Path)
    history.flag("--csv", "print CSV, one line for each experiment")
    history.flag("--rebuild", "build the history again from all experiments")
    with_json(history)


def _judge(verb: Verb) -> None:
    verbs = group(
        verb, "judge", "find out what a judge's verdicts are worth",
        "hpcbench judge check EXPERIMENT",
    )  # fmt: skip
    check = verbs(
        "check", "judge:check", "compare verdicts with human labels, and measure the judge's biases",
        "hpcbench judge check EXPERIMENT",
        ("hpcbench judge check EXPERIMENT --labels FILE", "with these labels, and store nothing"),
        ("hpcbench judge check EXPERIMENT --labels FILE --keep", "and keep them for tables and reports"),
        note="exit codes: 0 no finding · 1 a finding",
    )  # fmt: skip
    check.add_argument("experiment", help=EXPERIMENT)
    check.option(
        "--labels FILE", "CSV or JSONL with human labels: columns sample, answer, label; of pairs also other",
        type=Path,
    )  # fmt: skip
    check.option("--judge NAME", "only this judge, a run task without -rN")
    check.flag("--keep", "keep the labels in the experiment, and correct its tables by them")
    also(check, with_json, with_site)
    sheet = verbs(
        "sheet", "judge:sheet", "write a random choice of the judged answers for people to label",
        "hpcbench judge sheet EXPERIMENT --size 100 --to labels.csv",
    )  # fmt: skip
    sheet.add_argument("experiment", help=EXPERIMENT)
    sheet.option("--judge NAME", "the judge, if there are several")
    sheet.option("--size N", "number of answers; default: 100", type=int, default=100)
    sheet.option("--to FILE", "the CSV to write", type=Path, required=True)
