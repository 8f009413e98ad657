"""hpcbench's lines in the user's crontab or scrontab; all other lines stay as they are, byte for byte.

Such a line ends in `# hpcbench:NAME` and starts `HOME/cron/NAME.sh`. The script sets the environment: cron
provides almost none, and the PATH of a cluster with modules is too long for a line of cron.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcbench import secret
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.files.atomic import write_atomic
from hpcbench.site.cron import cron_dir

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
_SCRIPT = """\
#!/bin/sh
# Written by `hpcbench cron install`; cron starts it as `sh {script} PLAN`.
{exports}
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
    table: Table
    """The table that contains it."""
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
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name}' is not a valid name",
            remedy="use letters, digits, dots, dashes and underscores",
        )
    plan = plan.resolve()
    folder = cron_dir(root)
    script = folder / f"{name}.sh"
    command = f"{at} /bin/sh {_quoted(script)} {_quoted(plan)} {MARK}{name}"
    lines = [*(f"#SCRON {one}" for one in slurm_options if table == "scrontab"), command]
    if len(command.encode()) > LONGEST:
        raise UserError(
            f"the line is too long for cron: over {LONGEST} bytes", remedy="use shorter paths"
        )
    text = _SCRIPT.format(
        script=script,
        exports="\n".join(f"export {key}={shlex.quote(value)}" for key, value in carried().items()),
        logs=shlex.quote(str(folder)),
        name=name,
        folder=shlex.quote(str(plan.parent)),
        days=DAYS,
        python=shlex.quote(sys.executable),
        command=_COMMANDS[verb],
        options="".join(f" {shlex.quote(one)}" for one in options),
    )
    shown = "\n".join(lines) + f"\n\n{script}:\n{text}"
    if dry_run:
        return shown
    before = _read(table)
    for entry in _entries(before, table, root):
        if entry.name == name and entry.plan != str(plan):
            raise UserError(
                f"'{name}' already submits {entry.plan}", remedy="choose another --name"
            )
    write_atomic(script, text)
    rest = without(before, name)
    if rest and not rest.endswith(b"\n"):
        rest += b"\n"
    _replace(table, before, rest + "".join(f"{one}\n" for one in lines).encode())
    return shown


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


def uninstall(table: Table, name: str, root: Path) -> bool:
    """Remove a line and its script; logs stay. Returns whether the line existed."""
    if shutil.which(table) is None:
        return False
    before = _read(table)
    after = without(before, name)
    if after == before:
        return False
    _replace(table, before, after)
    (cron_dir(root) / f"{name}.sh").unlink(missing_ok=True)
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
    done = _run(table, "-l")
    if done.returncode == 0:
        return done.stdout
    said = _said(done)
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
        done = _run(table, file.name)
    if done.returncode:
        raise _refused(table, _said(done))


def _run(table: Table, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [table, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except FileNotFoundError:
        other = "scrontab" if table == "crontab" else "crontab"
        there = shutil.which(other) is not None
        option = "with" if other == "scrontab" else "without"
        raise EnvironmentFault(
            f"there is no {table} on this machine",
            remedy=f"install it {option} --scron"
            if there
            else "try another login node, or let any other timer run `hpcbench submit PLAN --if-idle`",
        ) from None


def _refused(table: Table, said: str) -> EnvironmentFault:
    remedy = "ask your cluster's support"
    if table == "scrontab":
        remedy += " for ScronParameters=enable in slurm.conf, or use cron: leave --scron out"
    else:
        remedy += " for cron, or use Slurm's scrontab: --scron"
    return EnvironmentFault(f"{table}: {said}", remedy=remedy)


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
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
        logs = sorted(cron_dir(root).glob(f"{name}-????-??-??.log"))
        plan = words[1] if len(words) > 1 else ""
        found.append(Entry(name, at, plan, table, str(logs[-1]) if logs else None))
    return found


def _quoted(path: Path) -> str:
    """A path for a line of cron: an unescaped % would end the command."""
    return shlex.quote(str(path)).replace("%", "\\%")
