"""Image recipes: one Dockerfile; Docker builds from it, Apptainer from the definition generated here.

A recipe is a folder: the `Dockerfile` and the files it copies. FROM pins its image there, by
`NAME:TAG@sha256:…`. Only instructions that both tools treat alike are accepted; others are refused, with
their line.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcbench.environments.dockerfile import (
    Instruction,
    Pieces,
    Variable,
    Word,
    instructions,
    substituted,
)
from hpcbench.errors import Problem, UserError
from hpcbench.schema.image_reference import Reference

STAGING = "/.recipe"
"""Folder where %files puts copied files; %post moves each into its place at its instruction's turn."""

_REMEDIES = {
    "ADD": "write COPY; or download in RUN, and check the SHA-256 there",
    "SHELL": 'RUN uses /bin/sh -c: write RUN ["bash", "-c", "…"]',
    "EXPOSE": "leave it out: a container shares the host's network",
    "VOLUME": "leave it out: hpcbench mounts folders when it starts the container",
    "HEALTHCHECK": "leave it out: Apptainer has none",
    "STOPSIGNAL": "leave it out: Apptainer has none",
    "ONBUILD": "write the instruction that it would run",
    "MAINTAINER": "write LABEL org.opencontainers.image.authors=…",
}


@dataclass(frozen=True, slots=True)
class Copied:
    """A file to copy into the image."""

    path: Path
    """Its absolute path."""
    sha256: str
    staged: str
    """Its path after %files."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A parsed Dockerfile."""

    path: Path
    base: Reference
    """The image in FROM."""
    steps: tuple[str, ...]
    """Commands of /bin/sh of each instruction, one a line."""
    files: tuple[Copied, ...]
    environment: Mapping[str, Pieces]
    """Variables from ENV; unresolved variables are those of the base image."""
    labels: Mapping[str, str]
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...]
    workdir: str
    digest_of_rest: str
    """SHA-256 of everything but the base."""

    @property
    def digest(self) -> str:
        """SHA-256 over the Dockerfile, the files it copies, the build arguments and the base."""
        return "sha256:" + _sha256(f"{self.digest_of_rest}\n{self._source}".encode())

    def at(self, digest: str) -> Recipe:
        """The same recipe, its base pinned by the registry's digest."""
        return replace(self, base=replace(self.base, digest=digest))

    def definition(self, labels: Mapping[str, str]) -> str:
        """The Apptainer definition file that builds the same image.

        Args:
            labels: added to the recipe's own.
        """
        every = {**self.labels, **labels}
        sections = [
            ("files", [f'"{one.path}" {one.staged}' for one in self.files]),
            ("post", self._post()),
            ("environment", _export(self.environment)),
            ("labels", [f"{key} {value}" for key, value in every.items() if value]),
            ("runscript", self._runscript()),
        ]
        text = f"Bootstrap: docker\nFrom: {self._source}\n"
        for name, lines in sections:
            if lines:
                text += f"\n%{name}\n" + "".join(f"    {line}\n" for line in lines)
        return text

    @property
    def _source(self) -> str:
        # Apptainer refuses a reference with both a tag and a digest.
        if self.base.digest is not None:
            return self.base.at(self.base.digest)
        return f"{self.base.host}/{self.base.repository}:{self.base.tag}"

    def _post(self) -> list[str]:
        if not self.steps:
            return []
        # Otherwise the user's own umask would change the image.
        lines = ["set -e", "umask 022", *"\n".join(self.steps).split("\n")]
        return [*lines, f"rm -rf {STAGING}"] if self.files else lines

    def _runscript(self) -> list[str]:
        if self.entrypoint is None:
            return []
        lines = [f"cd {_quoted(self.workdir)}"] if self.workdir != "/" else []
        if self.command:
            lines.append(f"if [ $# -eq 0 ]; then set -- {_joined(self.command)}; fi")
        return [*lines, " ".join(["exec", *map(_quoted, self.entrypoint), '"$@"'])]


def parse(path: Path, args: Mapping[str, str] | None = None) -> Recipe:
    """Read a Dockerfile.

    Args:
        path: the Dockerfile; the files it copies are in its folder.
        args: values for its ARGs, as in `docker build --build-arg`.

    Raises:
        UserError: it cannot be read, or has an unsupported instruction; says where, and the remedy.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(Problem(f"cannot read the recipe: {error}", str(path))) from error
    reader = _Reader(path, dict(args or {}))
    for one in instructions(text, str(path)):
        reader.read(one)
    return reader.recipe(text)


@dataclass
class _Reader:
    """State of the parser at one line of a Dockerfile."""

    path: Path
    args: dict[str, str]
    base: Reference | None = None
    defaults: dict[str, Pieces] = field(default_factory=dict)
    """ARGs before FROM."""
    known: dict[str, Pieces] = field(default_factory=dict)
    """ARGs and ENVs that an instruction may use."""
    environment: dict[str, Pieces] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    files: list[Copied] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] = ()
    command_at: Instruction | None = None
    workdir: str = "/"
    declared: set[str] = field(default_factory=set)

    def read(self, one: Instruction) -> None:
        """Process one instruction."""
        readers: dict[str, Callable[[Instruction], None]] = {
            "ARG": self._arg, "FROM": self._from, "ENV": self._env, "COPY": self._copy,
            "RUN": self._run, "WORKDIR": self._workdir, "USER": _ignored, "LABEL": self._label,
            "ENTRYPOINT": self._entrypoint, "CMD": self._cmd,
        }  # fmt: skip
        if one.keyword not in readers:
            remedy = _REMEDIES.get(one.keyword, f"use only {', '.join(readers)}")
            raise one.wrong(f"a recipe cannot contain {one.keyword}", remedy)
        if self.base is None and one.keyword not in ("ARG", "FROM"):
            raise one.wrong(
                f"{one.keyword} before FROM", "begin with FROM; only ARG may precede it"
            )
        if not one.text:
            raise one.wrong(f"{one.keyword} has no arguments", "complete it or remove it")
        if one.text.startswith("--"):
            option = one.text.split()[0].partition("=")[0]
            raise one.wrong(f"{one.keyword} has the option {option}", "remove the option", 0)
        heredoc = re.search(r"(?<!\S)\d*<<-?[\"']?[A-Za-z_]", one.text)
        if heredoc and one.keyword in ("RUN", "COPY") and one.as_list() is None:
            remedy = "COPY a file, or continue lines by `\\`"
            raise one.wrong("a here-document", remedy, heredoc.start())
        readers[one.keyword](one)

    def recipe(self, text: str) -> Recipe:
        """The recipe of all instructions."""
        if self.base is None:
            raise UserError(Problem("no FROM", str(self.path), remedy="begin with FROM IMAGE"))
        if self.command_at is not None and self.entrypoint is None:
            raise self.command_at.wrong(
                "the meaning of CMD alone depends on the base's ENTRYPOINT",
                "write ENTRYPOINT [] before it, or the program as ENTRYPOINT",
            )
        if unknown := sorted(set(self.args) - self.declared):
            raise UserError(
                Problem(
                    f"the recipe declares no ARG {unknown[0]}", str(self.path),
                    remedy=f"it declares {', '.join(sorted(self.declared)) or 'none'}",
                )
            )  # fmt: skip
        copied = [(one.path.relative_to(self._folder).as_posix(), one.sha256) for one in self.files]
        rest = json.dumps([_sha256(text.encode()), copied, sorted(self.args.items())])
        return Recipe(
            self.path, self.base, tuple(self.steps), tuple(self.files), self.environment, self.labels,
            self.entrypoint, self.command, self.workdir, _sha256(rest.encode()),
        )  # fmt: skip

    @property
    def _folder(self) -> Path:
        return self.path.parent.resolve()

    def _arg(self, one: Instruction) -> None:
        known = self.defaults if self.base is None else self.known
        for word in one.words():
            name, given, pieces = _assigned(one, word)
            self.declared.add(name)
            value: Pieces | None = substituted(pieces, known) if given else None
            if name in self.args:
                value = (self.args[name],)
            elif value is None:
                value = self.defaults.get(name)
            if value is None:
                continue
            _plain(one, word, value)  # refuses a value that only the base image knows
            if self.base is None:
                self.defaults[name] = value
            elif name not in self.environment:  # in Docker, ENV wins over an ARG, even a later one
                self.known[name] = value
                self.steps.append(f"export {name}={_double(value)}")

    def _from(self, one: Instruction) -> None:
        if self.base is not None:
            raise one.wrong("a second FROM", "a recipe has one stage: fetch wheels, not compilers")
        words = one.words()
        if len(words) != 1 and not (len(words) == 3 and words[1].plain.upper() == "AS"):
            raise one.wrong("FROM names one image", "write FROM IMAGE", words[-1].offset)
        named = self._text(one, words[0], self.defaults)
        try:
            self.base = Reference.parse(f"docker://{named.removeprefix('docker://')}")
        except UserError as error:
            first = error.problems[0]
            raise one.wrong(first.message, first.remedy or "", words[0].offset) from error

    def _env(self, one: Instruction) -> None:
        said, settled = dict[str, Pieces](), dict[str, Pieces]()
        for word in one.words():
            name, given, said[name] = _assigned(one, word)
            if not given:
                raise one.wrong("ENV without `=`", "write ENV NAME=VALUE", word.offset)
            # Variables have the values they had before this instruction.
            settled[name] = substituted(said[name], self.known)
        self.known |= settled
        self.environment |= settled
        words = " ".join(f"{name}={_double(value)}" for name, value in said.items())
        self.steps.append(f"export {words}")

    def _copy(self, one: Instruction) -> None:
        listed = one.as_list()
        words = one.words() if listed is None else [Word(0, (text,)) for text in listed]
        if len(words) < 2:
            raise one.wrong("COPY names no target", "write COPY FILE… TARGET", words[0].offset)
        target = self._text(one, words[-1], self.known)
        into = target.endswith("/") or len(words) > 2
        target = posixpath.normpath(posixpath.join(self.workdir, target))
        commands = [f"mkdir -p {_quoted(target if into else posixpath.dirname(target))}"]
        for word in words[:-1]:
            path = self._copied(one, word)
            staged = f"{STAGING}/{len(self.files)}/{path.name}"
            self.files.append(Copied(path, _sha256(path.read_bytes()), staged))
            commands.append(f"cp -p {_quoted(staged)} {_quoted(target)}")
        self.steps.append("\n".join(commands))

    def _copied(self, one: Instruction, word: Word) -> Path:
        name = self._text(one, word, self.known)
        path = Path(self._folder, name.lstrip("/")).resolve()
        if not path.is_relative_to(self._folder):
            raise one.wrong(
                f"{name} is outside the recipe's folder", "copy it into that folder", word.offset
            )
        if not path.is_file():
            raise one.wrong(
                f"there is no file {name}", "COPY takes files, by their names", word.offset
            )
        if re.search(r"[\s\"'*?\[\]{}\\$]", path.name) or re.search(
            r"[\"*?\[\]{}\\$\n]", str(path)
        ):
            raise one.wrong(f"the path {path} has special characters", "rename it", word.offset)
        return path

    def _run(self, one: Instruction) -> None:
        listed = one.as_list()
        # Docker runs each RUN in its own shell, without `set -e`: a variable or folder change ends with it.
        argv = ["/bin/sh", "-c", one.text] if listed is None else listed
        self.steps.append(_joined(argv))

    def _workdir(self, one: Instruction) -> None:
        words = one.words()
        if len(words) != 1:
            raise one.wrong("WORKDIR names one folder", "put blanks in quotes", words[1].offset)
        folder = self._text(one, words[0], self.known)
        self.workdir = posixpath.normpath(posixpath.join(self.workdir, folder))
        folder = _quoted(self.workdir)
        self.steps.append(f"mkdir -p {folder}\ncd {folder}")

    def _label(self, one: Instruction) -> None:
        for word in one.words():
            name, given, pieces = _assigned(one, word, r"[A-Za-z0-9_./-]+")
            if not given:
                raise one.wrong("LABEL without `=`", "write LABEL NAME=VALUE", word.offset)
            value = _plain(one, word, substituted(pieces, self.known))
            if "{{" in value:  # Apptainer would insert a build argument there
                raise one.wrong("a label with `{{`", "remove it", word.offset)
            self.labels[name] = value

    def _entrypoint(self, one: Instruction) -> None:
        self.entrypoint = _argv(one)
        if self.command_at is None:
            self.command = ()

    def _cmd(self, one: Instruction) -> None:
        self.command, self.command_at = _argv(one), one

    def _text(self, one: Instruction, word: Word, known: Mapping[str, Pieces]) -> str:
        return _plain(one, word, substituted(word.pieces, known))


def _ignored(one: Instruction) -> None:
    """USER: a container of Apptainer runs as the user that starts it, and the build runs as root."""


def _assigned(
    one: Instruction, word: Word, name: str = r"[A-Za-z_]\w*"
) -> tuple[str, bool, Pieces]:
    """`NAME=VALUE` or `NAME`: the name, whether a value is there, the value."""
    first = word.pieces[0]
    match = re.match(rf"({name})(=|$)", first) if isinstance(first, str) else None
    if match is None or not isinstance(first, str) or not (match[2] or len(word.pieces) == 1):
        remedy = f"write {one.keyword} NAME=VALUE, a value with blanks in quotes"
        raise one.wrong(f"'{word.plain}' has no valid name", remedy, word.offset)
    rest = first[match.end() :]
    return match[1], bool(match[2]), (*([rest] if rest else []), *word.pieces[1:])


def _plain(one: Instruction, word: Word, pieces: Pieces) -> str:
    for piece in pieces:
        if isinstance(piece, Variable):
            remedy = (
                "give it a value by ARG; hpcbench does not know the variables of the base image"
            )
            raise one.wrong(f"no value for ${piece.name}", remedy, word.offset)
    return Word(0, pieces).plain


def _argv(one: Instruction) -> tuple[str, ...]:
    listed = one.as_list()
    return ("/bin/sh", "-c", one.text) if listed is None else tuple(listed)


def _export(values: Mapping[str, Pieces]) -> list[str]:
    """One `export`, so that no value sees another, as in Docker."""
    words = [f"    {name}={_double(value)}" for name, value in values.items()]
    return ["export \\", *(f"{word} \\" for word in words[:-1]), words[-1]] if words else []


def _double(pieces: Pieces) -> str:
    """In double quotes; the shell expands the variables."""
    text = "".join(
        f"${{{p.name}}}" if isinstance(p, Variable) else re.sub(r'([\\"$`])', r"\\\1", p)
        for p in pieces
    )
    return '"' + _apart(text, '""') + '"'


def _quoted(word: str) -> str:
    # A line that starts with a percent sign would start a section.
    quoted = f"'{word}'" if re.fullmatch(r"%[\w@%+=:,./-]*", word) else shlex.quote(word)
    return _apart(quoted, "''")


def _joined(argv: Sequence[str]) -> str:
    return " ".join(map(_quoted, argv))


def _apart(text: str, empty: str) -> str:
    """Separate two braces by an empty text: Apptainer replaces `{{ NAME }}` everywhere."""
    return re.sub(r"\{(?=\{)", "{" + empty, text)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
