"""hpcbench's lines in the user's crontab or scrontab; all other lines stay as they are, byte for byte.

Such a line ends in `# hpcbench:NAME` and starts a script. The script sets the environment: cron provides
almost none, and the PATH of a cluster with modules is too long for a line of cron. Any other scheduler may
start the script, too. It is in the user's own folder, not in a home of experiments: in a shared home
colleagues could change what is executed in the user's name.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcbench import secret
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment.access import owner_writes
from hpcbench.files.atomic import write_atomic
from hpcbench.registry.registry_dirs import user_dir
from hpcbench.site.cron import cron_dir
from hpcbench.subprocesses import Ended, run

Table = Literal["crontab", "scrontab"]
"""The kind of table: cron's on one login node, or Slurm's."""

Verb = Literal["submit", "regress"]
"""The verb that a line calls with its plan."""

_CARRIED = re.compile(
    r"HOME|PATH|PYTHONPATH|LD_LIBRARY_PATH|LANG|RUN_MODE|SLURM_CONF|XDG_(CONFIG|CACHE|STATE|DATA)_HOME"
    r"|(HPCBENCH|SBATCH|APPTAINER|SINGULARITY|UV|PIP|HF)_[A-Za-z0-9_]+|DOCKER_(HOST|CONFIG)|REGISTRY_AUTH_FILE"
    r"|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|(https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY"
)
"""Names of variables that decide what a verb finds, and how it reaches Slurm, registries and indexes."""
_WITH_PASSWORD = re.compile(r"://[^/\s]*@")

ANSWER_SECONDS = 60.0
"""Limit for crontab and scrontab: scrontab waits for slurmctld."""

DAYS = 30
"""Days for which logs are kept."""

LONGEST = 998
"""Longest line in bytes that every cron accepts."""

MARK = "# hpcbench:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OURS = re.compile(rb"(.*\S) # hpcbench:([A-Za-z0-9._-]+)")
_WORDS = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
# fmt: off
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# fmt: on

_COMMANDS: dict[Verb, str] = {
    "submit": 'submit "$1" --if-idle',
    "regress": 'regress "$1" --next',
}
_PLAN = "# plan: "
_SCRIPT = """\
#!/bin/sh
# Written by `hpcbench cron`: goes one step with the plan. Any scheduler may start it, as this user.
{mark}{plan}
[ $# -gt 0 ] || set -- {quoted}
{exports}
mkdir -p {logs} || exit 3
log={logs}/{name}-$(date +%Y-%m-%d).log
cd {folder} >>"$log" 2>&1 || exit 3
find {logs} -name '{name}-????-??-??.log' -mtime +{days} -delete 2>/dev/null
echo "--- $(date '+%Y-%m-%d %H:%M:%S')" >>"$log"
exec {python} -m hpcbench.cli.main {command}{options} >>"$log" 2>&1 </dev/null
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of hpcbench."""

    name: str
    """Its name."""
    at: str
    """Its schedule, as the table has it."""
    plan: str
    """The plan it submits."""
    table: Table | Literal["script"]
    """The table that contains it; `script`: another scheduler is to start the script."""
    log: str | None
    """Its newest log."""


def install(
    table: Table,
    name: str,
    plan: Path,
    at: str,
    root: Path,
    options: tuple[str, ...] = (),
    slurm_options: tuple[str, ...] = (),
    *,
    verb: Verb = "submit",
    dry_run: bool = False,
) -> str:
    """Add a line that submits a plan on a schedule; it replaces a line of that name for the same plan.

    Args:
        table: the kind of table.
        name: name of the line, for `list` and `remove`.
        plan: the plan's file.
        at: a schedule in cron's notation.
        root: the home of experiments.
        options: further options of the verb.
        slurm_options: options of the job that Slurm's cron starts, such as `--time=30`.
        verb: the verb to call with the plan.
        dry_run: change nothing.

    Returns:
        The line in the table, and the script it starts.

    Raises:
        UserError: the schedule is invalid, or the name belongs to another plan.
        EnvironmentFault: this machine has no such table.
    """
    at = schedule(at)
    plan = plan.resolve()
    script, text = _script(name, plan, root, options, verb)
    command = f"{at} /bin/sh {_quoted(script)} {_quoted(plan)} {MARK}{name}"
    lines = [*(f"#SCRON {one}" for one in slurm_options if table == "scrontab"), command]
    if len(command.encode()) > LONGEST:
        raise UserError(
            f"the line is too long for cron: over {LONGEST} bytes", remedy="use shorter paths"
        )
    shown = "\n".join(lines) + f"\n\n{script}:\n{text}"
    if dry_run:
        return shown
    before = _read(table)
    _require_free(name, plan, [*_entries(before, table, root), *scripts(root)])
    _write(script, text)
    rest = without(before, name)
    if rest and not rest.endswith(b"\n"):
        rest += b"\n"
    _replace(table, before, rest + "".join(f"{one}\n" for one in lines).encode())
    return shown


def write_script(
    name: str,
    plan: Path,
    root: Path,
    options: tuple[str, ...] = (),
    *,
    verb: Verb = "submit",
    dry_run: bool = False,
) -> tuple[Path, str]:
    """Write the script alone, for a scheduler that hpcbench does not know; see `install`.

    Returns:
        The script's path, and its text.

    Raises:
        UserError: the name is invalid, or belongs to another plan.
    """
    plan = plan.resolve()
    script, text = _script(name, plan, root, options, verb)
    if not dry_run:
        _require_free(name, plan, scripts(root))
        _write(script, text)
    return script, text


def script_file(name: str) -> Path:
    """Where the script of a name is."""
    return user_dir() / "cron" / f"{name}.sh"


def _script(
    name: str, plan: Path, root: Path, options: tuple[str, ...], verb: Verb
) -> tuple[Path, str]:
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name}' is not a valid name",
            remedy="use letters, digits, dots, dashes and underscores",
        )
    if "\n" in str(plan):
        raise UserError(f"the path {str(plan)!r} has a line break", remedy="rename the plan")
    text = _SCRIPT.format(
        mark=_PLAN,
        plan=plan,
        quoted=shlex.quote(str(plan)),
        exports="\n".join(f"export {key}={shlex.quote(value)}" for key, value in carried().items()),
        logs=shlex.quote(str(cron_dir(root))),
        name=name,
        folder=shlex.quote(str(plan.parent)),
        days=DAYS,
        python=shlex.quote(sys.executable),
        command=_COMMANDS[verb],
        options="".join(f" {shlex.quote(one)}" for one in options),
    )
    return script_file(name), text


def _write(script: Path, text: str) -> None:
    with owner_writes():
        write_atomic(script, text)
    script.chmod(0o700)


def _require_free(name: str, plan: Path, known: Sequence[Entry]) -> None:
    for entry in known:
        if entry.name == name and entry.plan != str(plan):
            raise UserError(
                f"'{name}' already submits {entry.plan}", remedy="choose another --name"
            )


def carried() -> dict[str, str]:
    """Variables that a line gets with their present values: all that matter to it, no secret."""
    return {name: os.environ[name] for name in _relevant() if not _secret(name)}


def left_out() -> list[str]:
    """Variables that matter to a line and that it does not get: their values contain secrets."""
    return [name for name in _relevant() if _secret(name)]


def entries(table: Table, root: Path) -> list[Entry]:
    """hpcbench's lines of a table; none if this machine has no such table."""
    if shutil.which(table) is None:
        return []
    return _entries(_read(table), table, root)


def scripts(root: Path) -> list[Entry]:
    """Scripts, those that a line starts included."""
    found = []
    for path in sorted(script_file("x").parent.glob("*.sh")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        plan = next((one.removeprefix(_PLAN) for one in lines if one.startswith(_PLAN)), "")
        found.append(Entry(path.stem, "", plan, "script", _newest_log(path.stem, root)))
    return found


def remove_script(name: str) -> bool:
    """Remove a script; logs stay. Returns whether it existed."""
    try:
        script_file(name).unlink()
    except FileNotFoundError:
        return False
    return True


def _newest_log(name: str, root: Path) -> str | None:
    logs = sorted(cron_dir(root).glob(f"{name}-????-??-??.log"))
    return str(logs[-1]) if logs else None


def uninstall(table: Table, name: str, root: Path) -> bool:
    """Remove a line and its script; logs stay. Returns whether the line existed."""
    if shutil.which(table) is None:
        return False
    before = _read(table)
    after = without(before, name)
    if after == before:
        return False
    _replace(table, before, after)
    remove_script(name)
    (cron_dir(root) / f"{name}.sh").unlink(missing_ok=True)  # where older versions wrote it
    return True


def without(text: bytes, name: str) -> bytes:
    """A table without the lines of a name; all other lines stay as they are."""
    kept: list[bytes] = []
    for line in text.splitlines(keepends=True):
        match = _OURS.fullmatch(line.rstrip(b"\r\n"))
        if match is None or match[2] != name.encode():
            kept.append(line)
            continue
        while kept and kept[-1].startswith(b"#SCRON"):  # options of the entry below them
            kept.pop()
    return b"".join(kept)


# --- schedules ------------------------------------------------------------------------------------------


def schedule(text: str) -> str:
    """A schedule in cron's notation, with single spaces.

    Raises:
        UserError: the schedule is invalid; the message names the part.
    """
    parts = text.split()
    if len(parts) == 1 and parts[0].startswith("@"):
        if parts[0] not in _WORDS:
            raise _bad(text, f"'{parts[0]}' is not one of {', '.join(_WORDS)}")
        return parts[0]
    if len(parts) != 5:
        raise _bad(text, f"it has {len(parts)} fields instead of five")
    fields = (
        ("minute", 0, 59, ()), ("hour", 0, 23, ()), ("day of the month", 1, 31, ()),
        ("month", 1, 12, _MONTHS), ("day of the week", 0, 7, _WEEKDAYS),
    )  # fmt: skip
    for part, (what, least, most, names) in zip(parts, fields, strict=True):
        for one in part.split(","):
            if why := _wrong(one, least, most, names):
                raise _bad(text, f"{what} '{part}': {why}")
    return " ".join(parts)


def _wrong(text: str, least: int, most: int, names: Sequence[str]) -> str | None:
    """The error in a value of a field; None: no error."""
    match = re.fullmatch(r"(\*|[a-z]{3}|\d+)(?:-([a-z]{3}|\d+))?(?:/(\d+))?", text.lower())
    if match is None or (match[1] == "*" and match[2]):
        return "use *, a number, 1-5, */15 or 1,15"
    ends = []
    for word in (match[1], match[2]):
        if word is None or word == "*":
            continue
        if word.isdecimal():
            ends.append(int(word))
        elif word in names:
            ends.append(names.index(word) + least)
        else:
            return f"'{word}' is not a number or a name of this field"
    for number in ends:
        if not least <= number <= most:
            return f"{number} is not in {least}-{most}"
    if len(ends) == 2 and ends[0] > ends[1]:
        return f"{ends[0]} comes after {ends[1]}"
    if match[3] is not None:
        if not 1 <= int(match[3]) <= most:
            return f"a step of {match[3]} is not in 1-{most}"
        if match[1] != "*" and not match[2]:
            return "a step needs * or a range before it"
    return None


def _bad(text: str, why: str) -> UserError:
    return UserError(
        f"'{text}' is not a cron schedule: {why}",
        remedy="write minute, hour, day of the month, month, day of the week: '0 2 * * *' is 02:00 daily",
    )


# --- the tables -----------------------------------------------------------------------------------------


def _read(table: Table) -> bytes:
    """The whole table, unchanged."""
    ended = _run(table, "-l")
    if not ended.failed:
        return ended.out
    said = _said(ended)
    if "no crontab for" in said.lower() or not said:
        return b""
    raise _refused(table, said)


def _replace(table: Table, before: bytes, after: bytes) -> None:
    """Replace a table's text, if no other process has changed it meanwhile."""
    if _read(table) != before:
        raise EnvironmentFault(f"another process has just changed the {table}", remedy="try again")
    with tempfile.NamedTemporaryFile(prefix="hpcbench-") as file:
        file.write(after)
        file.flush()
        ended = _run(table, file.name)
    if ended.failed:
        raise _refused(table, _said(ended))


def _run(table: Table, *arguments: str) -> Ended:
    try:
        return run([table, *arguments], ANSWER_SECONDS)
    except FileNotFoundError:
        other = "scrontab" if table == "crontab" else "crontab"
        there = shutil.which(other) is not None
        option = "with" if other == "scrontab" else "without"
        raise EnvironmentFault(
            f"there is no {table} on this machine",
            remedy=f"install it {option} --scron"
            if there
            else "try another login node, or `hpcbench cron script PLAN` for any other scheduler",
        ) from None


def _refused(table: Table, said: str) -> EnvironmentFault:
    remedy = "ask your cluster's support"
    if table == "scrontab":
        remedy += " for ScronParameters=enable in slurm.conf, or use cron: leave --scron out"
    else:
        remedy += (
            " for cron, or use Slurm's scrontab: --scron, or any scheduler: `hpcbench cron script`"
        )
    return EnvironmentFault(f"{table}: {said}", remedy=remedy)


def _said(ended: Ended) -> str:
    if ended.late:
        return f"it gave no answer in {ANSWER_SECONDS:g} s"
    lines = (ended.messages or ended.text).strip().splitlines()
    return lines[-1].strip() if lines else ""


def _relevant() -> list[str]:
    return sorted(name for name in os.environ if _CARRIED.fullmatch(name))


def _secret(name: str) -> bool:
    value = os.environ[name]
    return secret.written_out(name, value) or _WITH_PASSWORD.search(value) is not None


def _entries(text: bytes, table: Table, root: Path) -> list[Entry]:
    found = []
    for line in text.splitlines():
        match = _OURS.fullmatch(line)
        if match is None or line.startswith(b"#"):
            continue
        name, shown = match[2].decode(), match[1].decode(errors="replace")
        at, _, command = shown.partition(" /bin/sh ")
        words = shlex.split(command.replace("\\%", "%"))
        plan = words[1] if len(words) > 1 else ""
        found.append(Entry(name, at, plan, table, _newest_log(name, root)))
    return found


def _quoted(path: Path) -> str:
    """A path for a line of cron: an unescaped % would end the command."""
    return shlex.quote(str(path)).replace("%", "\\%")
