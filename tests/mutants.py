"""Mutation scores: how many small faults in an area's functions its quick unit tests find.

    make mutants AREA=claims
    .venv/bin/python -m tests.mutants claims --seed 20261126 --count 300 --out claims.jsonl

Cosmic Ray's operators make the faults; the seed draws them. The tests of an area are those files of
`tests/unit` that import one of its modules, without long tests and campaigns. A first run, under coverage,
says which test reaches which line. Then one process collects all tests and forks for each mutant: the child
changes the code of the live functions, runs the tests that reach the mutated statement, the cheapest first,
and ends at the first failure. Left out are faults in what runs at import, which no live function holds. The
checkout is not written to, so a program that a test starts does not see the fault.

A mutant is killed, timed out, survived, or unreached: no quick test runs its statement. The output has one
line of JSON a mutant; a run that was interrupted continues from there.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parent.parent
AREAS = {
    "claims": ["experiment/claim*.py", "experiment/*scheduler.py", "files/lease.py"],
    "submission": [
        "experiment/submission*.py",
        *(f"submit/{name}.py" for name in ("rounds", "sbatch", "local", "array_task")),
        "resume/*.py",
    ],
    "metrics": ["metrics/*.py"],
    "statistics": ["statistics/*.py"],
}
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not long and not campaign"]
# They want arguments of their own, names of variables, or do nothing.
OTHER_OPERATORS = {"core/VariableReplacer", "core/VariableInserter", "core/NoOp"}
SECONDS_OF_TESTS = 3.0
"""Processor time for a mutant: the tests that reach its line, the cheapest first, up to this sum."""
EXAMPLES = 25
"""Examples that a property draws at most, as in `make test-quick`."""


@cache
def source_of(file: str) -> str:
    return (ROOT / file).read_text()


@dataclass(frozen=True)
class Mutant:
    """One fault: an operator's occurrence in a file."""

    file: str
    line: int
    operator: str
    occurrence: int

    def source(self) -> str:
        """The file's text with the fault."""
        found: str = mutate_code(
            source_of(self.file), get_operator(self.operator)(), self.occurrence
        )
        return found

    def changed(self) -> dict[CodeType, CodeType] | None:
        """The code of functions without and with the fault; None where it is no fault of functions."""
        path = str(ROOT / self.file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                faulty = compile(self.source(), path, "exec")
            except SyntaxError:  # an operator takes the star of a signature for a product
                return None
        return code_pairs(compile(source_of(self.file), path, "exec"), faulty)

    def statement(self) -> range:
        """The lines of the innermost statement that has the fault; of one with a body, those before it."""
        best = range(self.line, self.line + 1)
        for node in ast.walk(ast.parse(source_of(self.file))):
            if isinstance(node, ast.stmt) and node.lineno <= self.line <= (node.end_lineno or 0):
                body = getattr(node, "body", None)
                end = body[0].lineno if body else (node.end_lineno or 0) + 1
                best = range(node.lineno, end) if self.line < end else best
        return best

    def difference(self) -> str:
        """The lines that the fault changes."""
        both = (text.splitlines() for text in (source_of(self.file), self.source()))
        return "\n".join(list(difflib.unified_diff(*both, n=0, lineterm=""))[3:])


def code_pairs(old: CodeType, new: CodeType) -> dict[CodeType, CodeType] | None:
    """Functions whose code a fault changes; None where it changes the body of a module or a class."""
    inner, faulty = (
        [const for const in code.co_consts if isinstance(const, CodeType)] for code in (old, new)
    )
    if len(inner) != len(faulty) or old.co_freevars != new.co_freevars:
        return None
    is_function = bool(old.co_flags & 1)
    if not is_function and own(old) != own(new):
        return None
    pairs = {old: new} if is_function else {}
    for one, other in zip(inner, faulty, strict=True):
        if one != other:
            found = code_pairs(one, other)
            if found is None:
                return None
            pairs |= found
    return pairs


def own(code: CodeType) -> tuple[Any, ...]:
    """Statements of a body itself, without its functions."""
    consts = [repr(const) for const in code.co_consts if not isinstance(const, CodeType)]
    return code.co_code, consts, code.co_names


@dataclass(frozen=True)
class Reach:
    """Lines that a run under coverage reached."""

    seconds: dict[str, float]
    """How long each test takes."""
    processor: dict[str, float]
    """How much of the processor it takes."""
    lines: dict[str, dict[str, list[str]]]
    """File → line → the tests that run it; "" for what runs before any test."""

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, the cheapest first, up to a sum."""
        reached = self.lines[mutant.file]
        found = {test for line in mutant.statement() for test in reached.get(str(line), [])}
        order = sorted(found - {""}, key=self.processor.__getitem__)
        sums = itertools.accumulate(self.processor[test] for test in order)
        return [
            test for test, used in zip(order, sums, strict=True) if used <= SECONDS_OF_TESTS
        ] or order[:1]

    def at_import(self, mutant: Mutant) -> bool:
        """Whether a mutant's statement runs before any test."""
        reached = self.lines[mutant.file]
        return any("" in reached.get(str(line), []) for line in mutant.statement())


def drawn(files: Sequence[Path], reach: Reach, seed: str, count: int) -> list[Mutant]:
    """So many mutants, each as likely as any other; more of them begin with the same ones."""
    every = [mutant for file in files for mutant in mutants_of(str(file.relative_to(ROOT)))]
    random.Random(seed).shuffle(every)
    fit = (mutant for mutant in every if mutant.changed() and not reach.at_import(mutant))
    return list(itertools.islice(fit, count))


def mutants_of(file: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    nodes = list(ast_nodes(get_ast(source_of(file))))
    for name in sorted(set(operator_names()) - OTHER_OPERATORS):
        operator = get_operator(name)()
        places = [place for node in nodes for place, _ in operator.mutation_positions(node)]
        for occurrence, place in enumerate(places):
            yield Mutant(file, place[0], name, occurrence)


def tests_of(files: Sequence[Path]) -> list[str]:
    """The files of unit tests that import one of these modules."""
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files}
    modules = {module.removesuffix(".__init__") for module in modules}
    tests = sorted((ROOT / "tests/unit").rglob("test_*.py"))
    return [str(path) for path in tests if modules & set(imported(ast.parse(path.read_text())))]


def imported(tree: ast.AST) -> Iterator[str]:
    """The names that a file imports, members of modules as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


class Run:
    """A run of pytest over an area's tests."""

    failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Have properties draw few examples."""
        from hypothesis import settings  # after pytest, which rewrites its plugins

        key = "_hypothesis_internal_use_settings"
        for item in items:
            function = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
            if given := getattr(function, key, None):
                few = min(given.max_examples, EXAMPLES)
                setattr(
                    function,
                    key,
                    settings(given, max_examples=few, derandomize=True, database=None),
                )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def first_failure(self, items: Sequence[pytest.Item]) -> str:
        """The first of these tests that fails; empty: none."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                break
        return self.failed


class Survey(Run):
    """Under coverage, with one context a test."""

    def __init__(self, files: Sequence[Path], out: Path) -> None:
        self.files, self.out = files, out
        self.coverage = coverage.Coverage(data_file=None, include=[str(file) for file in files])
        self.coverage.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        seconds, processor = {}, {}
        for item in session.items:
            self.coverage.switch_context(item.nodeid)
            self.failed, start, used = "", time.monotonic(), time.process_time()
            if not self.first_failure([item]):  # one that fails without a fault is left out
                seconds[item.nodeid] = time.monotonic() - start
                processor[item.nodeid] = time.process_time() - used
        self.coverage.stop()
        lines = {
            str(file.relative_to(ROOT)): {
                str(line): [test for test in tests if not test or test in seconds]
                for line, tests in self.coverage.get_data().contexts_by_lineno(str(file)).items()
            }
            for file in self.files
        }
        self.out.write_text(json.dumps(asdict(Reach(seconds, processor, lines))))
        return True


class Trials(Run):
    """With a child for each mutant."""

    def __init__(self, mutants: Sequence[Mutant], reach: Reach, out: Path, temporary: Path) -> None:
        self.mutants, self.reach, self.out, self.temporary = mutants, reach, out, temporary

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self.functions = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
        gc.freeze()  # a child that collects garbage would copy every page
        for mutant in self.mutants:
            start = time.monotonic()
            outcome, test = self.trial(mutant, [items[test] for test in self.reach.tests(mutant)])
            said = {"outcome": outcome, "test": test, "seconds": round(time.monotonic() - start, 2)}
            with self.out.open("a") as out:
                print(json.dumps({**asdict(mutant), **said, "diff": mutant.difference()}), file=out)
        return True

    def trial(self, mutant: Mutant, items: list[pytest.Item]) -> tuple[str, str]:
        """How one mutant ends, and the test that finds it."""
        if not items:
            return "unreached", ""
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            failed = "error"
            try:
                failed = self.with_fault(mutant, items)
            finally:
                os.write(send, failed.encode())
                os._exit(bool(failed))
        os.close(send)
        status = wait(child, 10 + 3 * sum(self.reach.seconds[item.nodeid] for item in items))
        os.set_blocking(receive, False)  # what a test started may hold the other end
        test = os.read(receive, 4096).decode() if status else ""
        os.close(receive)
        if status is None:
            return "timed out", ""
        return ("killed", test) if status else ("survived", f"{len(items)} tests")

    def with_fault(self, mutant: Mutant, items: list[pytest.Item]) -> str:
        """Put the fault into this process and run the tests."""
        os.setsid()
        shutil.rmtree(self.temporary, ignore_errors=True)
        changed = mutant.changed() or {}
        for function in self.functions:
            if function.__code__ in changed:
                function.__code__ = changed[function.__code__]
        return self.first_failure(items)


def wait(child: int, seconds: float) -> int | None:
    """How a child ends; one that does not end in time is killed, with all that it started."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def outcomes(out: Path) -> dict[Mutant, str]:
    """Outcomes of tests that an output names."""
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    keys = ("file", "line", "operator", "occurrence")
    return {Mutant(*(line[key] for key in keys)): line["outcome"] for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("area", choices=AREAS)
    parser.add_argument("--seed", default="20261126")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--out", type=Path, required=True, help="a line of JSON a mutant")
    parser.add_argument(
        "--survey", action="store_true", help="only see which test reaches which line"
    )
    chosen = parser.parse_args()
    files = sorted({file for one in AREAS[chosen.area] for file in ROOT.glob(f"hpcbench/{one}")})
    seen: Path = chosen.out.with_suffix(".reach.json")
    os.chdir(ROOT)
    if chosen.survey:
        pytest.main([*OPTIONS, *tests_of(files)], plugins=[Survey(files, seen)])
        return
    # A new run looks again at what tests reach: they may have changed. Apart: coverage would cost each trial.
    if not (seen.exists() and chosen.out.exists()):
        subprocess.run(
            [sys.executable, "-m", "tests.mutants", *sys.argv[1:], "--survey"], check=True
        )
    reach = Reach(**json.loads(seen.read_text()))
    mutants = drawn(files, reach, f"{chosen.seed} {chosen.area}", chosen.count)
    left = [mutant for mutant in mutants if mutant not in outcomes(chosen.out)]
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(left, reach, chosen.out, Path(folder) / "tests")
        pytest.main(
            [*OPTIONS, f"--basetemp={trials.temporary}", *tests_of(files)], plugins=[trials]
        )
    known = outcomes(chosen.out)
    counts = Counter(known[mutant] for mutant in mutants)
    found = counts["killed"] + counts["timed out"]
    print(f"\n{chosen.area}: {found} of {len(mutants)} found, {dict(counts)}")


if __name__ == "__main__":
    main()
