"""Verbs that hold experiments against a baseline over time."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    sub,
    with_json,
    with_registry,
    with_settings,
    with_site,
)

POLICY = "policy: name of a gates/ document, or its file (%s)"


def add(verb: Verb) -> None:
    """Baselines, the gate, regression runs and their history."""
    _baseline(verb)
    gate = verb(
        "gate", "gate:gate", "say whether a candidate may take its baseline's place: GO, NO-GO or "
        "INCONCLUSIVE",
        "hpcbench gate @last --baseline main --policy strict.yaml; exit codes: 0 GO, 4 NO-GO, "
        "5 INCONCLUSIVE",
    )  # fmt: skip
    gate.add_argument("candidate", help=EXPERIMENT)
    gate.add_argument(
        "--baseline", metavar="NAME", help="name of a baseline, or an experiment (the plan's)"
    )
    gate.add_argument("--policy", metavar="NAME|FILE", help=POLICY % "the plan's, else default")
    gate.add_argument(
        "--confirmed-by", action="append", default=[], metavar="EXPERIMENT",
        help="experiment that asked the same again, judged together with the candidate; may be repeated",
    )  # fmt: skip
    gate.add_argument("--dry-run", action="store_true", help="judge, and write no verdict.json")
    with_registry(gate)
    with_json(gate)
    with_site(gate)
    _regress(verb)
    _history(verb)


def _baseline(verb: Verb) -> None:
    verbs = verb(
        "baseline", "", "name experiments that others are compared with",
        "hpcbench baseline set 20261120-0312-demo --name main --note 'release 1.4'",
    ).add_subparsers(metavar="VERB", required=True)  # fmt: skip
    setting = sub(verbs, "set", "gate:set_baseline", "let a name stand for an experiment")
    setting.add_argument("experiment", help=EXPERIMENT)
    setting.add_argument("--name", required=True, help="the name, such as main")
    setting.add_argument("--note", default="", help="why, for those who ask later")
    setting.add_argument(
        "--force", action="store_true", help="also an experiment that is not done, or has no scores"
    )
    with_json(setting)
    with_json(sub(verbs, "list", "gate:list_baselines", "list what names stand for"))
    show = sub(verbs, "show", "gate:show_baseline", "show all a name ever stood for")
    show.add_argument("name", help="as `hpcbench baseline list` shows it")
    with_json(show)
    sub(verbs, "remove", "gate:remove_baseline", "give a name up; its history stays").add_argument(
        "name", help="as `hpcbench baseline list` shows it"
    )


def _regress(verb: Verb) -> None:
    regress = verb(
        "regress", "regress:regress",
        "submit a plan, or judge it against a baseline once it has ended: one command, for cron",
        "hpcbench regress plan.yaml --baseline main --set-baseline-if-none; each night: "
        "hpcbench cron install plan.yaml --regress main --at '0 2 * * *'; "
        "exit codes: 0 GO or not ended yet; alerts: 1 the run failed, 4 NO-GO; "
        "5 INCONCLUSIVE is an alert unless no sample differs",
    )  # fmt: skip
    regress.add_argument("plan", type=Path, help="the plan's YAML file")
    regress.add_argument(
        "--baseline", metavar="NAME", help="name of a baseline, or an experiment (the plan's)"
    )
    regress.add_argument("--policy", metavar="NAME|FILE", help=POLICY % "the plan's, else default")
    regress.add_argument(
        "--set-baseline-if-none", action="store_true",
        help="where there is no such baseline, the first run that ends well becomes it",
    )  # fmt: skip
    regress.add_argument(
        "--promote", action="store_true", help="after GO the candidate becomes the baseline"
    )
    regress.add_argument(
        "--next", action="store_true",
        help="once a run has been judged, submit the next one at once; for a job that runs once a night",
    )  # fmt: skip
    regress.add_argument("--wait", action="store_true", help="go on until there is a verdict")
    with_registry(regress)
    with_settings(regress)
    with_json(regress)


def _history(verb: Verb) -> None:
    history = verb(
        "history", "history:history", "show a metric over all experiments, and where it changed",
        "hpcbench history anls --plan nightly --since 90d --plot anls.html; every figure there is: "
        "hpcbench history",
    )  # fmt: skip
    history.description = (
        "Show a metric over all experiments, and where it changed. A ◆ marks the first night of a new "
        "level. Of series without a change at most 5 % ever show one, however often they are read, and "
        "what is shown once stays."
    )
    history.add_argument(
        "metric", nargs="?", help="metric or figure, with * and ?; none: list what there is"
    )
    history.add_argument("--plan", default="*", metavar="NAME", help="only of this plan")
    history.add_argument("--run-task", default="*", metavar="NAME", help="only of this run task")
    history.add_argument(
        "--since",
        metavar="WHEN",
        help="show only later ones: a date 2026-11-01, or 90d, 12w; all of them decide what changed",
    )
    history.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw it: FILE.svg, .png or .html"
    )
    history.add_argument("--csv", action="store_true", help="print CSV, a line a point")
    history.add_argument(
        "--rebuild",
        action="store_true",
        help="make the history anew from the experiments there are",
    )
    with_json(history)
