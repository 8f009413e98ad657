"""`experiment/` alone reads an experiment's files: a room reads no more of them than what it writes itself.

Readers that share a file share its damage, its older versions and its archives only through one reader. The
test looks in the source for a path that comes from `experiment/layout.py`, or is joined from a file's known
name, and reaches something that opens, tails or parses it: within a function, through its module's own
functions and through attributes of `self`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.conftest import ROOT
from tests.syntax import parsed

PACKAGE = ROOT / "hpcbench"

READERS = frozenset(
    {
        "open", "read_text", "read_bytes", "read_json", "derived", "read_lines", "json_object",
        "open_beneath", "scan_parquet", "read_parquet", "read_parquet_metadata", "read_parquet_schema",
        "read_ndjson", "ParquetFile", "Tail", "last_bytes", "last_lines", "EventTail", "ArchivedTail",
        "Folder", "locate", "memmap", "open_file", "safe_load",
    }
)  # fmt: skip
"""Calls that open, tail or parse the path they are given or belong to."""

NAMES = frozenset(
    {
        "plan.yaml", "resolved.json", "chosen.json", "manifest.json", "submission.jsonl",
        "environments.jsonl", "metrics.json", "performance.json", "usage.json", "outcome.json",
        "summary.json", "history.json", "told.jsonl", "verdict.json",
    }
)  # fmt: skip
"""Files directly below an experiment."""

ALLOWED = {
    # A writer reads what it wrote itself.
    ("notify/outbox.py", "told_file"): "notifications read their outbox",
    ("database/later.py", "tracked_dir"): "debts to a database are its own notes",
    ("usage/durations.py", "history_file"): "estimates read what they wrote for later ones",
    ("submit/kept_files.py", "kept_file"): "submit reads the list of files it kept",
    ("submit/rounds.py", "jobs_dir"): "submit opens the log that the local executor writes to",
    ("interchange/imports.py", "path"): "an import writes samples and answers of another kit, and reads them",
    # Bytes that are handed out as they are, opened so that no link leads out of the experiment.
    ("portal/origins.py", "plan_file"): "the portal shows the plan as the user wrote it",
    ("portal/origins.py", "report_dir"): "the portal hands out files of the report",
    ("portal/logs.py", "path"): "the portal shows pieces of text logs",
    ("portal/commands_to_copy.py", "path"): "the portal shows scripts of jobs",
    ("portal/timeline.py", "path"): "the portal looks for the first word of a job's log",
    ("cli/report.py", "report_dir"): "a browser shows the report",
    # Shells wait for it: no module of experiment/ may be imported.
    ("cli/completion.py", "chosen.json"): "completion of names in a shell imports nothing of hpcbench",
}  # fmt: skip
"""Module and file → why it may."""


@cache
def _sources() -> frozenset[str]:
    """Members of `Experiment`, and functions of experiment/ on one, that give paths."""
    found = set[str]()
    for path in (PACKAGE / "experiment").rglob("*.py"):
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name == "Experiment":
                found |= {
                    one.name
                    for one in node.body
                    if isinstance(one, ast.FunctionDef) and _gives_paths(one)
                }
            if isinstance(node, ast.FunctionDef) and _gives_paths(node):
                first = node.args.args[0].annotation if node.args.args else None
                if isinstance(first, ast.Name) and first.id == "Experiment":
                    found.add(node.name)
    return frozenset(found - {"cache_dir"})


def _gives_paths(function: ast.FunctionDef) -> bool:
    return function.returns is not None and ast.unparse(function.returns) in ("Path", "list[Path]")


class _Module:
    """Where paths of experiments go in a module: names, attributes and functions that hold one."""

    def __init__(self, text: str, sources: frozenset[str]) -> None:
        self._tree = parsed(text)
        self._sources = sources
        self._held: dict[tuple[str, str], set[str]] = {}
        """(function, name), or ("self", attribute), or ("call", function) → files that it may be."""
        self._functions = {
            one.name: one
            for one in ast.walk(self._tree)
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
        }

    def read(self) -> set[str]:
        """Files that it opens."""
        scopes = list(self._scopes())
        before = -1
        while before != (now := sum(map(len, self._held.values()))):
            before = now
            for name, body in scopes:
                self._learn(name, body)
        return {
            file
            for name, body in scopes
            for node in body
            if isinstance(node, ast.Call)
            for file in self._opened(node, name)
        }

    def _scopes(self) -> Iterator[tuple[str, list[ast.AST]]]:
        yield (
            "",
            [
                node
                for top in self._tree.body
                if not isinstance(top, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                for node in ast.walk(top)
            ],
        )
        for name, function in self._functions.items():
            yield name, [*ast.walk(function)]

    def _learn(self, scope: str, body: list[ast.AST]) -> None:
        for node in body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._hold(scope, target, self._files(node.value, scope))
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                self._hold(scope, node.target, self._files(node.value, scope))
            elif isinstance(node, (ast.For, ast.comprehension)):
                self._hold(scope, node.target, self._files(node.iter, scope))
            elif isinstance(node, (ast.Return, ast.Yield)) and node.value is not None and scope:
                self._add(("call", scope), self._files(node.value, scope))
            elif isinstance(node, ast.Call):
                self._pass(node, scope)

    def _pass(self, call: ast.Call, scope: str) -> None:
        """Arguments of a call of one of the module's own functions."""
        function = self._functions.get(_name_of(call.func))
        if function is None:
            return
        names = [one.arg for one in function.args.args]
        if names[:1] == ["self"]:
            names = names[1:]
        for name, value in zip(names, call.args, strict=False):
            self._add((function.name, name), self._files(value, scope))
        for keyword in call.keywords:
            if keyword.arg:
                self._add((function.name, keyword.arg), self._files(keyword.value, scope))

    def _hold(self, scope: str, target: ast.expr, files: set[str]) -> None:
        if isinstance(target, ast.Name):
            self._add((scope, target.id), files)
        elif isinstance(target, ast.Attribute):
            self._add(("self", target.attr), files)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self._hold(scope, one, files)

    def _add(self, key: tuple[str, str], files: set[str]) -> None:
        if files:
            self._held.setdefault(key, set()).update(files)

    def _files(self, node: ast.expr, scope: str) -> set[str]:
        """Files of an experiment that an expression may be, or hold, the path of."""
        if isinstance(node, ast.Name):
            return self._held.get((scope, node.id), set())
        if isinstance(node, ast.Attribute):
            if node.attr in self._sources:
                return {node.attr}
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            held = self._held.get(("self", node.attr), set()) if own else set()
            return held or self._files(node.value, scope)  # `.parent` and the like
        if isinstance(node, ast.Call):
            name = _name_of(node.func)
            if name in self._sources:
                return {name}
            made = self._held.get(("call", name), set())
            given = isinstance(node.func, ast.Name) and name in (
                "Path",
                "str",
                "ScoresFiles",
                "sorted",
                "list",
            )
            inner = set().union(*(self._files(one, scope) for one in node.args)) if given else set()
            below = self._files(node.func, scope) if isinstance(node.func, ast.Attribute) else set()
            return made | inner | below
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            right = node.right
            if _is_folder(node.left):
                return {"path"}
            if isinstance(right, ast.Constant) and right.value in NAMES:
                return {str(right.value)}
            return self._files(node.left, scope)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return set().union(*(self._files(one, scope) for one in node.elts))
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            return self._files(node.elt, scope)
        if isinstance(node, ast.IfExp):
            return self._files(node.body, scope) | self._files(node.orelse, scope)
        if isinstance(node, (ast.NamedExpr, ast.Starred, ast.Subscript, ast.Await)):
            return self._files(node.value, scope)
        return set()

    def _opened(self, call: ast.Call, scope: str) -> set[str]:
        name = _name_of(call.func)
        if name not in READERS:
            return set()
        if name == "open_beneath":
            below = set().union(*(self._files(one, scope) for one in call.args[1:]))
            return below or ({"path"} if _is_folder(call.args[0]) else set())
        given = set().union(*(self._files(one, scope) for one in call.args[:1]))
        own = call.func.value if isinstance(call.func, ast.Attribute) else None
        return given | (self._files(own, scope) if own is not None else set())


def _is_folder(node: ast.expr) -> bool:
    """Whether it is the folder of an experiment, as variables are called that hold one."""
    owners = ("experiment", "candidate", "baseline", "here")
    return (
        isinstance(node, ast.Attribute) and node.attr == "path" and _name_of(node.value) in owners
    )


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def read_in(text: str) -> set[str]:
    """Files of experiments that a module opens."""
    if not any(word in text for word in (*_sources(), *NAMES, ".path")):
        return set()
    return _Module(text, _sources()).read()


@pytest.mark.long
def test_experiment_alone_reads_an_experiments_files() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), file)
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "experiment"
        for file in read_in(path.read_text())
    }
    assert found == ALLOWED.keys()


@pytest.mark.parametrize(
    ("code", "file"),
    [
        ("read_json(experiment.metrics_file)", "metrics_file"),
        ("def f(e):\n    path = e.scores_file('a')\n    return polars.scan_parquet(path)", "scores_file"),
        ("def f(e):\n    with e.submission_file.open() as file: ...", "submission_file"),
        ("def g(p): return p.read_text()\ndef f(e): return g(e.worker_log(1, 2))", "worker_log"),
        ("def g(e): return e.usage_file\ndef f(e): return read_json(g(e))", "usage_file"),
        ("class A:\n    def __init__(self, e): self.p = e.told_file\n"
         "    def f(self): return self.p.read_bytes()", "told_file"),
        ("for p in (e.resolved_file, e.manifest_file): p.read_text()", "manifest_file"),
        ("json.loads((folder / 'metrics.json').read_text())", "metrics.json"),
        ("read_json(experiment.path / name)", "path"),
        ("polars.read_parquet(ScoresFiles(e.scores_dir, 'a').fields)", "scores_dir"),
        ("[Tail(p) for p in text_logs(e)]", "text_logs"),
    ],
)  # fmt: skip
def test_a_reader_of_such_a_file_is_found(code: str, file: str) -> None:
    assert file in read_in(code)


def test_what_only_asks_for_a_file_or_writes_it_is_no_reader() -> None:
    code = "if e.metrics_file.exists(): write_json(e.usage_file, {})\ne.plan_file.stat()"
    assert read_in(code) == set()
