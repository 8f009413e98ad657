"""Verbs about this cluster."""

from __future__ import annotations

from argparse import SUPPRESS
from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    Verb,
    also,
    group,
    with_json,
    with_registry,
    with_settings,
)


def add(verb: Verb) -> None:
    """Add verbs about this cluster."""
    init = verb(
        "init", "setup:init", "examine this cluster, write a site profile",
        "hpcbench init",
        ("hpcbench init --dry-run", "print the profile, write nothing"),
        ("hpcbench init --ci github", "write a pipeline that runs a plan"),
        ("hpcbench init --site NAME --ssh USER@HOST", "a profile of a cluster elsewhere"),
    )  # fmt: skip
    init.flag("--force", "replace the existing profile")
    init.flag("--dry-run", "print the profile; write nothing")
    init.several(
        "--set PATH=VALUE",
        "set a field of the profile instead of asking, for example slurm.account=docs; may be repeated",
        dest="settings",
    )  # fmt: skip

    init.option(
        "--ssh [USER@]HOST[:PORT]", "with --site NAME: connect to a cluster over SSH, and write its profile",
    )  # fmt: skip
    init.option("--site NAME", "name of that profile, with --ssh", default=SUPPRESS)
    init.option(
        "--ci", "write a pipeline instead, into the repository of this folder: it runs and judges a plan",
        choices=["github", "gitlab"],
    )  # fmt: skip

    completion = verb(
        "completion", "completion:show",
        "print the script by which a shell completes verbs, options, experiments and definitions",
        ("hpcbench completion bash", "in ~/.bashrc: eval \"$(hpcbench completion bash)\""),
    )  # fmt: skip
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")

    doctor = verb(
        "doctor", "setup:doctor", "check this machine",
        "hpcbench doctor",
        ("hpcbench doctor --run", "also run a tiny model in one real job"),
        ("hpcbench doctor --run --nodes 2", "and measure the network between two nodes"),
    )  # fmt: skip
    doctor.option(
        "--run", "also run the tiny model in one real job", dest="real_run", action="store_true"
    )
    doctor.option(
        "--image REF", "image for that job (docker://… or a .sif) with transformers; default: this Python",
    )  # fmt: skip
    doctor.option(
        "--nodes N", "with --run: also measure an all-reduce between N nodes, with that job's PyTorch",
        type=int,
    )  # fmt: skip
    also(doctor, with_registry, with_json)
    _cron(verb)


def _cron(verb: Verb) -> None:
    """Add verbs that submit a plan on a schedule."""
    cron = group(
        verb, "cron", "submit plans on a schedule", "hpcbench cron install PLAN --at '0 2 * * *'"
    )
    install = cron(
        "install", "cron:install", "submit a plan on a schedule",
        ("hpcbench cron install PLAN --at '0 2 * * *' --dry-run", "every night at two"),
        ("hpcbench cron install PLAN --at @daily --regress main", "also judge each run against a baseline"),
        note="With --regress, exit codes 1 and 4 are alerts, and 5 unless no sample differs. The plan's\n"
        "`notify` sends the alerts.",
    )  # fmt: skip
    install.option(
        "--at SCHEDULE", "schedule in cron's form: minute, hour, day of month, month, day of week; or @daily",
        required=True,
    )  # fmt: skip
    install.flag("--scron", "use Slurm's scrontab instead of crontab")
    script = cron(
        "script", "cron:script", "write a script that another scheduler starts",
        ("hpcbench cron script PLAN", "for a systemd timer, or a machine's own cron"),
        note="The script goes one step at each call: it submits the plan, or does the work that is due, or\n"
        "says that the run goes on. Its exit code is that of the step. Start it as this user.",
    )  # fmt: skip
    for one in (install, script):
        one.add_argument("plan", type=Path, help="the plan's YAML file, or its name")
        one.option("--name", "name of line and script; default: the plan's name")
        one.option(
            "--regress BASELINE",
            "judge each run against this baseline, then submit the next: hpcbench regress --next",
        )  # fmt: skip
        one.option(
            "--policy NAME|FILE", "with --regress: gates/ definition or its file; default: the plan's",
        )  # fmt: skip
        one.flag(
            "--set-baseline-if-none",
            "with --regress: if the baseline does not exist, the first run becomes the baseline",
        )  # fmt: skip
        one.flag("--dry-run", "print line or script; change nothing")
        also(one, with_registry, with_settings)
    with_json(
        cron("list", "cron:list_entries", "list the plans on a schedule", "hpcbench cron list")
    )
    cron(
        "remove", "cron:remove", "stop submitting a plan", "hpcbench cron remove demo"
    ).add_argument("name", help="name from `hpcbench cron list`")
