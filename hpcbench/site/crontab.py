"""Lines of ours in the user's crontab or scrontab; everybody else's stay as they are, byte for byte.

A line of ours ends in `# hpcbench:NAME` and starts `HOME/cron/NAME.sh`, which sets the environment: cron
starts with nearly none, and takes no lines as long as the PATH of a cluster with modules.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.files.atomic import write_atomic
from hpcbench.site.cron import cron_dir

Table = Literal["crontab", "scrontab"]
"""Whose table: cron's, on one login node, or Slurm's."""

Verb = Literal["submit", "regress"]
"""What a line does with its plan."""

CARRIED = (
    "HOME", "PATH", "PYTHONPATH", "LANG", "SLURM_CONF", "XDG_CONFIG_HOME",
    "HPCBENCH_HOME", "HPCBENCH_SITE", "RUN_MODE", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""Variables that a line is started with as they are now, as far as they are set; no proxy with a password."""

DAYS = 30
"""Logs of so many days are kept."""

LONGEST = 998
"""Longest line, bytes, that every cron takes."""

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
    """A line of ours."""

    name: str
    """Its name."""
    at: str
    """When it runs, as the table has it."""
    plan: str
    """The plan it submits."""
    table: Table
    """Where it stands."""
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
    """Have a plan submitted at certain times; a line of that name for the same plan is replaced.

    Args:
        table: whose.
        name: of the line, for `list` and `remove`.
        plan: the plan's file.
        at: a schedule, as cron writes it.
        root: the home of experiments.
        options: further options of that verb.
        slurm_options: of the job that Slurm's cron starts, such as `--time=30`.
        verb: what is called with the plan.
        dry_run: change nothing.

    Returns:
        What stands in the table now, and the script it starts.

    Raises:
        UserError: no such schedule, or the name is another plan's.
        EnvironmentFault: there is no such table here.
    """
    at = schedule(at)
    if not _NAME.fullmatch(name):
        raise UserError(
            Problem(f"'{name}' is no name for a line", remedy="letters, digits, dots and dashes")
        )
    plan = plan.resolve()
    folder = cron_dir(root)
    script = folder / f"{name}.sh"
    command = f"{at} /bin/sh {_quoted(script)} {_quoted(plan)} {MARK}{name}"
    lines = [*(f"#SCRON {one}" for one in slurm_options if table == "scrontab"), command]
    if len(command.encode()) > LONGEST:
        raise UserError(Problem("the line gets too long for cron", remedy="shorter paths"))
    text = _SCRIPT.format(
        script=script,
        exports="\n".join(f"export {key}={shlex.quote(value)}" for key, value in _carried()),
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
                Problem(f"'{name}' submits {entry.plan} already", remedy="another --name")
            )
    write_atomic(script, text)
    rest = without(before, name)
    if rest and not rest.endswith(b"\n"):
        rest += b"\n"
    _replace(table, before, rest + "".join(f"{one}\n" for one in lines).encode())
    return shown


def entries(table: Table, root: Path) -> list[Entry]:
    """Our lines of a table; none where there is no such table here."""
    if shutil.which(table) is None:
        return []
    return _entries(_read(table), table, root)


def uninstall(table: Table, name: str, root: Path) -> bool:
    """Take a line of ours out, and its script; logs stay. Returns whether there was one."""
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
    """A table without the lines of a name; all others are as they were."""
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
    """A schedule as cron takes it, with single spaces.

    Raises:
        UserError: it is none; says which part is wrong.
    """
    parts = text.split()
    if len(parts) == 1 and parts[0].startswith("@"):
        if parts[0] not in _WORDS:
            raise _bad(text, f"'{parts[0]}' is none of {', '.join(_WORDS)}")
        return parts[0]
    if len(parts) != 5:
        raise _bad(text, f"it has {len(parts)} parts instead of five")
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
    """What is wrong with one of the values of a field."""
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
            return f"'{word}' means nothing here"
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
        Problem(
            f"'{text}' is no schedule: {why}",
            remedy="minute, hour, day of the month, month, day of the week: '0 2 * * *' is each night at two",
        )
    )


# --- the tables -----------------------------------------------------------------------------------------


def _read(table: Table) -> bytes:
    """All of a table, as it is."""
    done = _run(table, "-l")
    if done.returncode == 0:
        return done.stdout
    said = _said(done)
    if "no crontab for" in said.lower() or not said:
        return b""
    raise _refused(table, said)


def _replace(table: Table, before: bytes, after: bytes) -> None:
    """Put another text into a table that nobody changed meanwhile."""
    if _read(table) != before:
        raise EnvironmentFault(f"the {table} was changed just now", remedy="try again")
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
            else "on another login node, or from any other timer: `hpcbench submit PLAN --if-idle`",
        ) from None


def _refused(table: Table, said: str) -> EnvironmentFault:
    remedy = "ask your cluster's support"
    if table == "scrontab":
        remedy += " for ScronParameters=enable in slurm.conf, or use cron: without --scron"
    else:
        remedy += " for cron, or use Slurm's: --scron"
    return EnvironmentFault(f"{table}: {said}", remedy=remedy)


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _carried() -> Iterator[tuple[str, str]]:
    for key in CARRIED:
        value = os.environ.get(key)
        if value is not None and not (key.endswith("_proxy") and "@" in value):
            yield key, value


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
