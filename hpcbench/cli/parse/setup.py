"""Verbs about this cluster."""

from __future__ import annotations

from argparse import SUPPRESS
from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    Verb,
    sub,
    with_json,
    with_registry,
    with_settings,
)


def add(verb: Verb) -> None:
    """Verbs that look at this cluster."""
    init = verb("init", "setup:init", "look at this cluster, write a site profile", "hpcbench init")
    init.add_argument("--force", action="store_true", help="replace the profile there is")
    init.add_argument("--dry-run", action="store_true", help="print the profile; write nothing")
    init.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="PATH=VALUE",
        help="set a field of the profile and do not ask for it, slurm.account=docs; may be repeated",
    )  # fmt: skip

    init.add_argument(
        "--ssh", metavar="[USER@]HOST[:PORT]",
        help="with --site NAME: a profile of a cluster that is reached over SSH, after trying it",
    )  # fmt: skip
    init.add_argument("--site", metavar="NAME", default=SUPPRESS, help="its name, with --ssh")
    init.add_argument(
        "--ci", choices=["github", "gitlab"],
        help="write a pipeline that runs a plan and judges it, into this folder's repository, instead",
    )  # fmt: skip

    completion = verb(
        "completion", "completion:show",
        "print what makes a shell complete verbs, options, and names of experiments and documents",
        "in ~/.bashrc: eval \"$(hpcbench completion bash)\"",
    )  # fmt: skip
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])

    doctor = verb("doctor", "setup:doctor", "check this machine", "hpcbench doctor --run")
    doctor.add_argument(
        "--run", dest="real_run", action="store_true",
        help="also send the tiny model through one real job",
    )  # fmt: skip
    doctor.add_argument(
        "--image", metavar="REF",
        help="image for that job (docker://…, a .sif); it needs transformers; none: this Python",
    )  # fmt: skip
    with_json(doctor)
    _cron(verb)


def _cron(verb: Verb) -> None:
    """Verbs that have a plan submitted at certain times."""
    cron = verb(
        "cron", "", "have plans submitted at certain times",
        "hpcbench cron install plan.yaml --at '0 2 * * *'; with --regress the alerts are exit codes 1 and 4, "
        "and 5 unless no sample differs: those the plan's `notify` sends",
    ).add_subparsers(metavar="VERB", required=True)  # fmt: skip
    install = sub(cron, "install", "cron:install", "have a plan submitted at certain times")
    install.add_argument("plan", type=Path, help="the plan's YAML file")
    install.add_argument(
        "--at", required=True, metavar="SCHEDULE",
        help="as cron writes it: minute, hour, day of the month, month, day of the week, or @daily",
    )  # fmt: skip
    install.add_argument(
        "--scron", action="store_true", help="in Slurm's own table (scrontab) instead of cron's"
    )
    install.add_argument("--name", help="of the line; none: the plan's")
    install.add_argument(
        "--regress", metavar="BASELINE",
        help="judge each run against this baseline, then submit the next: hpcbench regress --next",
    )  # fmt: skip
    install.add_argument(
        "--policy", metavar="NAME|FILE", help="of --regress: gates/ document or file (the plan's)"
    )
    install.add_argument(
        "--set-baseline-if-none", action="store_true",
        help="of --regress: where there is no such baseline, the first run becomes it",
    )  # fmt: skip
    install.add_argument("--dry-run", action="store_true", help="print the line; change nothing")
    with_registry(install)
    with_settings(install)
    with_json(sub(cron, "list", "cron:list_entries", "list plans that are submitted so"))
    sub(cron, "remove", "cron:remove", "submit a plan no more").add_argument(
        "name", help="as `hpcbench cron list` shows it"
    )
