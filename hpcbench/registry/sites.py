"""A site profile by itself: values that a job script can contain, and its template.

A job script is text that a shell and sbatch read. Values that it cannot contain unchanged (a second line, a
NUL, a name that no variable has) are refused here, at their place in the profile, before any job exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.errors import Problem, UserError, unknown
from hpcbench.files.user import read_text
from hpcbench.registry.catalog import share_dir, site_dir, user_dir
from hpcbench.registry.database_address import problems
from hpcbench.registry.source import Loc
from hpcbench.schema.site import Site

TEMPLATES = "slurm_templates"
"""Folder of templates, in the shipped files, in the site's registry and in the user's."""

OURS = {
    "array": "use `parallelism` of the plan",
    "comment": None,
    "dependency": "use `after` of a run task",
    "error": "remove it; `hpcbench logs` shows the output",
    "job-name": None,
    "nodes": "remove it; an engine runs on one node",
    "ntasks": "remove it; an engine runs on one node",
    "ntasks-per-node": "remove it; an engine runs on one node",
    "open-mode": None,
    "output": "remove it; `hpcbench logs` shows the output",
    "parsable": None,
    "signal": "use `drain_seconds`",
    "test-only": None,
    "wait": None,
    "wrap": None,
}
"""sbatch's options that hpcbench sets itself → the replacement."""

READ_ONLY = ("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID")
"""Variables that bash does not allow to set."""

_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GRES = re.compile(r"[A-Za-z][\w.-]*(:[A-Za-z_][\w.-]*)?")

Finding = tuple[Loc, str, str | None]
"""Place in the profile, problem, remedy."""


def findings(site: Site) -> Iterator[Finding]:
    """All values of a profile that a job script cannot contain, or that make no sense in it."""
    slurm = site.slurm
    words = ("partition", "cpu_partition", "account", "qos", "reservation", "constraint")
    for name in (*words, "gpu_gres", "template"):
        yield from _line(("slurm", name), getattr(slurm, name))
    if not _GRES.fullmatch(slurm.gpu_gres):
        what = f"'{slurm.gpu_gres}' is neither NAME nor NAME:TYPE"
        yield (
            ("slurm", "gpu_gres"),
            what,
            "write `gpu` or `gpu:a100`; the number is the model's `gpus`",
        )
    elif slurm.gpu_option != "gres" and slurm.gpu_gres.partition(":")[0] != "gpu":
        what = f"sbatch's --{slurm.gpu_option} requests only GPUs, not '{slurm.gpu_gres}'"
        yield ("slurm", "gpu_option"), what, "use `gpu_option: gres`"
    for name, value in slurm.options.items():
        yield from _option(name, value)
    for number, line in enumerate(site.setup):
        yield from _line(("setup", number), line)
    for number, module in enumerate(site.modules):
        yield from _module(("modules", number), module)
    for name, value in site.env.items():
        yield from _variable(("env", name), name, value)
    yield from _line(("group",), site.group)
    if site.umask is not None and int(site.umask, 8) & 0o700:
        what = f"umask {site.umask} takes permissions from the owner"
        yield (
            ("umask",),
            what,
            "027: the group can read; 007: it can write; 077: only the owner can",
        )
    for what, remedy in problems(site.database) if site.database is not None else ():
        yield ("database", "url"), what, remedy


def find_template(name: str) -> Path:
    """The file of a template: a path, or a name in `slurm_templates/` of the user, the site, or hpcbench.

    Raises:
        UserError: there is none.
    """
    if "/" in name or name.endswith(".j2"):
        path = Path(name)
        if path.is_file():
            return path
        raise UserError("no such file", file=name, remedy="check `template` of the site profile")
    for folder in template_folders():
        if (folder / f"{name}.j2").is_file():
            return folder / f"{name}.j2"
    known = {path.stem for folder in template_folders() for path in folder.glob("*.j2")}
    raise UserError(unknown("template", name, sorted(known)))


def template_folders() -> list[Path]:
    """Folders to search for a template by name; the first match counts."""
    return [folder / TEMPLATES for folder in (user_dir(), site_dir(), share_dir())]


def template_environment(path: Path) -> Any:
    """Jinja2 for one template: sandboxed, undefined names are errors; it includes others by file name."""
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader([path.parent, *template_folders()]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def template_problem(name: str) -> Problem | None:
    """The mistake of a template: missing, unreadable, not Jinja2."""
    from jinja2 import TemplateSyntaxError

    try:
        path = find_template(name)
        template_environment(path).parse(read_text(path), filename=str(path))
    except UserError as error:
        return error.problems[0]
    except TemplateSyntaxError as error:
        return Problem(f"not a valid Jinja2 template: {error.message}", str(path), error.lineno)
    except (ValueError, RecursionError) as error:
        return Problem(f"not a valid Jinja2 template: {str(error)[:200]}", name)
    return None


def one_line(text: str) -> str | None:
    """Why a text cannot be a line of a job script; None: it can."""
    for mark, name in (
        ("\0", "a NUL character"),
        ("\n", "a line break"),
        ("\r", "a carriage return"),
    ):
        if mark in text:
            return f"a job script cannot contain {name}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a job script cannot contain half a surrogate pair"
    return None


def _line(loc: Loc, value: str | None) -> Iterator[Finding]:
    if value is not None and (why := one_line(value)):
        yield loc, why, "write one line per entry" if loc[0] == "setup" else "remove it"


def _option(name: str, value: bool | int | str) -> Iterator[Finding]:
    loc: Loc = ("slurm", "options", name)
    long = name.replace("_", "-")
    if not _OPTION.fullmatch(name):
        yield loc, f"'{name}' is not the name of an sbatch option", "use long names, without dashes"
    elif long in OURS:
        yield loc, f"hpcbench sets sbatch's --{long} itself", OURS[long] or "remove it"
    elif isinstance(value, str):
        yield from _line(loc, value)


def _module(loc: Loc, name: str) -> Iterator[Finding]:
    if not name or name.startswith("-") or any(mark.isspace() for mark in name):
        yield loc, f"'{name}' is not the name of a module", "write one per entry: NAME/VERSION"
    else:
        yield from _line(loc, name)


def _variable(loc: Loc, name: str, value: str) -> Iterator[Finding]:
    if not _VARIABLE.fullmatch(name):
        yield loc, f"'{name}' is not the name of a variable", "use letters, digits and _"
    elif name in READ_ONLY:
        yield loc, f"bash does not allow setting {name}", "remove it"
    elif secret.written_out(name, value):
        remedy = f"write ${{env:{name}}} and export it, or ${{file:PATH}}"
        yield loc, f"{name} contains a secret in plain text", remedy
    else:
        yield from _line(loc, value)
