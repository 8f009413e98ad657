"""Verbs that compare experiments with a baseline over time."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    SCORED,
    Verb,
    sub,
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
        "gate", "gate:gate",
        "decide whether a candidate may replace its baseline: GO, NO-GO or INCONCLUSIVE",
        "hpcbench gate @last --baseline main",
        ("hpcbench gate @last --baseline EXPERIMENT --policy default --dry-run", "judge, and store nothing"),
        note="exit codes: 0 GO · 4 NO-GO · 5 INCONCLUSIVE",
    )  # fmt: skip
    gate.add_argument("candidate", help=SCORED)
    gate.add_argument(
        "--baseline",
        metavar="NAME",
        help="name of a baseline, or an experiment; default: the plan's",
    )
    gate.add_argument(
        "--policy", metavar="NAME|FILE", help=POLICY % "the plan's, else gates/default"
    )
    gate.several(
        "--confirmed-by",
        "EXPERIMENT",
        help="repetition of the candidate, which the gate judges together with it; may be repeated",
    )
    gate.flag("--dry-run", help="judge, and write no verdict.json")
    with_registry(gate)
    with_json(gate)
    with_site(gate)
    _regress(verb)
    _history(verb)
    _judge(verb)


def _baseline(verb: Verb) -> None:
    verbs = verb(
        "baseline", "", "name experiments as baselines for comparisons",
        "hpcbench baseline set EXPERIMENT --name main --note 'release 1.4'",
    ).add_subparsers(metavar="VERB", required=True)  # fmt: skip
    setting = sub(
        verbs, "set", "gate:set_baseline", "give an experiment the name of a baseline",
        "hpcbench baseline set EXPERIMENT --name main --note 'release 1.4'",
    )  # fmt: skip
    setting.add_argument("experiment", help=EXPERIMENT)
    setting.add_argument("--name", required=True, help="the name, such as main")
    setting.add_argument("--note", default="", help="reason for the choice, for later readers")
    setting.flag("--force", help="accept an experiment that is not done, or has no scores")
    with_json(setting)
    with_json(
        sub(verbs, "list", "gate:list_baselines", "list the baselines", "hpcbench baseline list")
    )
    show = sub(
        verbs, "show", "gate:show_baseline", "show all experiments that have had a name",
        "hpcbench baseline show main",
    )  # fmt: skip
    show.add_argument("name", help="name from `hpcbench baseline list`")
    with_json(show)
    sub(
        verbs, "remove", "gate:remove_baseline", "remove a name; its history stays",
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
    regress.add_argument(
        "--baseline",
        metavar="NAME",
        help="name of a baseline, or an experiment; default: the plan's",
    )
    regress.add_argument(
        "--policy", metavar="NAME|FILE", help=POLICY % "the plan's, else gates/default"
    )
    regress.flag(
        "--set-baseline-if-none",
        help="if the baseline does not exist, the first run that is done becomes the baseline",
    )
    regress.flag("--promote", help="make the candidate the baseline after GO")
    regress.flag(
        "--next",
        help="after judging a run, submit the next one at once; for a call that cron makes once a night",
    )
    regress.flag("--wait", help="wait for the verdict")
    with_registry(regress)
    with_settings(regress)
    with_json(regress)


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
        "metric",
        nargs="?",
        help="metric or speed figure, `*` and `?` match any characters; default: list all",
    )
    history.add_argument("--plan", default="*", metavar="NAME", help="only this plan")
    history.add_argument("--run-task", default="*", metavar="NAME", help="only this run task")
    history.add_argument(
        "--since",
        metavar="WHEN",
        help="show only experiments after a date (2026-11-01) or of the last 90d, 12w; all count for changes",
    )
    history.add_argument(
        "--plot", type=Path, metavar="FILE", help="write a plot: FILE.svg, FILE.png or FILE.html"
    )
    history.flag("--csv", help="print CSV, one line for each experiment")
    history.flag("--rebuild", help="build the history again from all experiments")
    with_json(history)


def _judge(verb: Verb) -> None:
    verbs = verb(
        "judge", "", "find out what a judge's verdicts are worth",
        "hpcbench judge check EXPERIMENT",
    ).add_subparsers(metavar="VERB", required=True)  # fmt: skip
    check = sub(
        verbs, "check", "judge:check",
        "compare verdicts with human labels, and measure the judge's biases",
        "hpcbench judge check EXPERIMENT",
        ("hpcbench judge check EXPERIMENT --labels FILE", "with these labels, and store nothing"),
        ("hpcbench judge check EXPERIMENT --labels FILE --keep", "and keep them for tables and reports"),
        note="exit codes: 0 no finding · 1 a finding",
    )  # fmt: skip
    check.add_argument("experiment", help=EXPERIMENT)
    check.add_argument(
        "--labels", type=Path, metavar="FILE",
        help="CSV or JSONL with human labels: columns sample, answer, label; of pairs also other",
    )  # fmt: skip
    check.add_argument("--judge", metavar="NAME", help="only this judge, a run task without -rN")
    check.flag("--keep", help="keep the labels in the experiment, and correct its tables by them")
    with_json(check)
    with_site(check)
    sheet = sub(
        verbs, "sheet", "judge:sheet",
        "write a random choice of the judged answers for people to label",
        "hpcbench judge sheet EXPERIMENT --size 100 --to labels.csv",
    )  # fmt: skip
    sheet.add_argument("experiment", help=EXPERIMENT)
    sheet.add_argument("--judge", metavar="NAME", help="the judge, if there are several")
    sheet.add_argument(
        "--size", type=int, default=100, metavar="N", help="number of answers; default: 100"
    )
    sheet.add_argument("--to", type=Path, required=True, metavar="FILE", help="the CSV to write")
