"""Verbs that submit a plan on a schedule."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from hpcbench import secret
from hpcbench.cli.output import console, print_json, say
from hpcbench.errors import UserError
from hpcbench.experiment.layout import home
from hpcbench.registry.catalog import user_site
from hpcbench.registry.resolve import load_gate, load_plan
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.site import Site
from hpcbench.site import crontab
from hpcbench.site.cron import cron_dir
from hpcbench.status import ExperimentStatus

TABLES: tuple[crontab.Table, ...] = ("crontab", "scrontab")


def install(arguments: argparse.Namespace) -> int:
    """`hpcbench cron install PLAN --at SCHEDULE`."""
    at = crontab.schedule(arguments.at)
    resolved = load_plan(arguments.plan, arguments.registry, arguments.settings)
    table: crontab.Table = "scrontab" if arguments.scron else "crontab"
    if arguments.scron and not resolved.site.slurm.submit_from_jobs:
        raise UserError(
            "scrontab runs commands on a compute node, where this site does not allow sbatch",
            remedy="leave --scron out: cron runs on the login node",
        )
    _warn(resolved, "cron", f"at the top of the {table}")
    verb, options = _command(arguments, resolved)
    shown = crontab.install(
        table,
        arguments.name or resolved.plan.name,
        arguments.plan,
        at,
        home(resolved.site),
        options,
        _slurm_options(resolved.site),
        verb=verb,
        dry_run=arguments.dry_run,
    )
    if arguments.dry_run:
        print(shown, end="")
    else:
        print(shown.partition("\n\n")[0])
    return 0


def script(arguments: argparse.Namespace) -> int:
    """`hpcbench cron script PLAN`."""
    resolved = load_plan(arguments.plan, arguments.registry, arguments.settings)
    _warn(resolved, "the script", "in the scheduler's settings")
    verb, options = _command(arguments, resolved)
    root, name = home(resolved.site), arguments.name or resolved.plan.name
    path, text = crontab.write_script(
        name, arguments.plan, root, options, verb=verb, dry_run=arguments.dry_run
    )
    if arguments.dry_run:
        print(text, end="")
        return 0
    print(path)
    say(
        f"start it as this user, as often as you like: each call goes one step, and writes to "
        f"{cron_dir(root)}/{name}-DATE.log"
    )
    return 0


def _warn(resolved: ResolvedPlan, who: str, where: str) -> None:
    """Name the variables that the plan needs and the script will lack."""
    for name in _variables(resolved):
        say(
            f"warning: {who} does not set ${{env:{name}}}: refer to a file of yours, "
            f"${{file:PATH}}, or set {name} {where}"
        )
    if secrets := crontab.left_out():
        names = " and ".join(secrets)
        say(f"warning: {who} does not set {names} (a secret may be in it): set it {where}")


def _command(
    arguments: argparse.Namespace, resolved: ResolvedPlan
) -> tuple[crontab.Verb, tuple[str, ...]]:
    """The verb to call, and its options."""
    verb: crontab.Verb = "submit" if arguments.regress is None else "regress"
    options = _of_regress(arguments, home(resolved.site))
    options += [f"--registry={one.resolve()}" for one in arguments.registry]
    options += [f"--set={one}" for one in arguments.settings]
    return verb, tuple(options)


def _of_regress(arguments: argparse.Namespace, root: Path) -> list[str]:
    """Options of `hpcbench regress`; baseline and policy are checked now rather than at night."""
    name, policy, set_if_none = arguments.regress, arguments.policy, arguments.set_baseline_if_none
    if name is None:
        if policy is not None or set_if_none:
            raise UserError(
                "--policy and --set-baseline-if-none need --regress",
                remedy="add --regress BASELINE",
            )
        return []
    from hpcbench.regress import baseline_of

    baseline_of(root, name, set_if_none=set_if_none)
    options = [f"--baseline={name}", *(["--set-baseline-if-none"] if set_if_none else [])]
    if policy is not None:
        load_gate(policy, arguments.registry)
        is_file = policy.endswith((".yaml", ".yml"))
        options.append(f"--policy={Path(policy).resolve() if is_file else policy}")
    return options


def list_entries(arguments: argparse.Namespace) -> int:
    """`hpcbench cron list`."""
    root = home(user_site())
    found = [entry for table in TABLES for entry in crontab.entries(table, root)]
    lines = {entry.name for entry in found}
    found += [entry for entry in crontab.scripts(root) if entry.name not in lines]
    if arguments.json:
        print_json([asdict(entry) for entry in found])
        return 0
    for entry in found:
        at = entry.at or crontab.script_file(entry.name)
        print(f"{entry.name}  {at}  {entry.plan}  ({entry.table}; log: {entry.log or 'none yet'})")
    if not found:
        say("cron submits no plan; `hpcbench cron install PLAN --at '0 2 * * *'` adds one")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """`hpcbench cron remove NAME`."""
    root = home(user_site())
    gone = [table for table in TABLES if crontab.uninstall(table, arguments.name, root)]
    if not gone and crontab.remove_script(arguments.name):
        print(f"removed the script {arguments.name}: take it from its scheduler, too")
        return 0
    if not gone:
        what = f"cron has no line '{arguments.name}' of hpcbench"
        raise UserError(what, remedy="`hpcbench cron list` lists the names")
    print(f"removed {arguments.name} from the {' and the '.join(gone)}")
    return 0


def tell_outcome(ended: ExperimentStatus) -> None:
    """Print an experiment's outcome, in a few lines for cron's log."""
    print(f"{ended.id} is {ended.state}")
    for failure in ended.failures[:5]:
        print(f"  {failure.count} × {failure.line}")
    if ended.report:
        console().print(f"  report: {ended.report}", soft_wrap=True)


def _variables(resolved: ResolvedPlan) -> list[str]:
    """Variables that a plan refers to and cron does not set."""
    text = resolved.model_dump_json(exclude={"origins", "images"})
    found = {match[2] for match in secret.REFERENCE.finditer(text) if match[1] == "env"}
    return sorted(found - set(crontab.carried()) - set(crontab.left_out()))


def _slurm_options(site: Site) -> tuple[str, ...]:
    """Options of the small job that Slurm's cron starts."""
    slurm = site.slurm
    known = {
        "partition": slurm.cpu_partition or slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "time": "01:00:00",
    }
    return tuple(f"--{key}={value}" for key, value in known.items() if value)
