"""An experiment as a folder that any file server can serve: the web client, and the API's answers as files.

The answers are those of the routes of a running portal, or of the functions behind them, so both show
the same. Contents of the folder:

    index.html               the client's page, with `<meta name="hpcbench-bundle" content="data/index.json">`
    assets/…                 the client
    data/index.json          {"version": 2, "experiment": ID, "created": s, "kept": [names of parameters],
                              "names": number of files in data/names, "left_out": ["…"]}
    data/names/…             which answer is where in which pack, see `packs.py`
    data/packs/…             answers and images
    report/FILE              files of the report, for links

Where the page has that `meta`, the client is in static mode: it sends no request to an API, opens no stream
of live messages, offers no mutation, and reads answers by this rule. For a request `GET api/v1/PATH?QUERY`
take PATH without percent-encoding, and the parameters of QUERY that `kept` names and that have a value
(`false` counts as none), sorted by name. All other parameters are dropped: the bundle has one answer for all
their values. The answer's name is PATH, then for each of these parameters `?` or `&`, its name, `=` and its
value, not encoded either:

        experiments/E/run-tasks                            experiments/E/run-tasks
        experiments/E/run-tasks?after=2&limit=50           experiments/E/run-tasks?after=2
        experiments/E/run-tasks/T/samples/7/images/0?size=thumb        the same

A file of the report, `experiments/E/report/FILE`, is `report/` + `quoted(FILE)`: every byte of its UTF-8 that
is not in `A-Z a-z 0-9 _ -`, or a `.` that is not the first letter, becomes `~` and two capital hexadecimal
digits.

`Page.next` of a recorded page is the number of the next page. A name without an answer is one that the bundle
does not have: code `not_in_bundle`. The bundle has `session` (`may_edit`, `may_submit` false, `user` empty)
and `experiments`, with the one experiment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import quote, urlencode

import hpcbench
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment.layout import Experiment
from hpcbench.portal import index_entries
from hpcbench.portal.app import application
from hpcbench.portal.asked_samples import Gone
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.guard import API
from hpcbench.portal.headers import CSP
from hpcbench.portal.index import open_index
from hpcbench.portal.index.experiment_scores import by_dataset
from hpcbench.portal.index.sql_index import Index
from hpcbench.portal.media import Size
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.experiments import RunTaskRow, ScoreColumn
from hpcbench.portal.models.sessions import Session
from hpcbench.portal.packs import PICTURES, Kind, Packs
from hpcbench.portal.sample_detail import details_of, picture_of
from hpcbench.portal.sample_table import SampleTable, sample_table_of
from hpcbench.portal.sample_turns import made_count, made_of, turns_of, works_in_turns
from hpcbench.portal.samples import SampleFilter, SampleOrder
from hpcbench.portal.slow_work import patiently
from hpcbench.portal.static import BUILT

VERSION = 2

KEPT = ("after", "baseline", "before", "run_task", "size", "theme", "wrong")
"""Parameters that change an answer; all others are dropped."""

NAME_BYTES = 240
"""Longest name of a file: file systems take 255 bytes."""

LOG_BYTES = 4 << 20
"""Bytes of a log's end in the bundle, where the log is longer."""

THEMES = ("light", "dark")

AT_ONCE = 50
"""Samples that are read together."""

_PLAIN = re.compile(rb"[A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Contents of a bundle besides figures, tables and samples' texts."""

    images: bool = False
    """Images of samples, small and full size."""
    logs: bool = False
    """Logs of workers and jobs."""
    samples: int | None = None
    """Samples of each run task in full; None: all."""


@dataclass
class BundleSummary:
    """Summary of a written bundle."""

    files: int = 0
    """Number of answers and of files of the client."""
    bytes: int = 0
    """Their size, before any compression."""
    left_out: list[str] = field(default_factory=list)
    """Missing parts, each with its reason."""


# --- names --------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """A text as a part of a file's name, valid on every file system and file server."""
    data = text.encode("utf-8", "surrogatepass")
    return "".join(
        chr(byte)
        if _PLAIN.fullmatch(bytes([byte])) and not (place == 0 and byte == 0x2E)
        else f"~{byte:02X}"
        for place, byte in enumerate(data)
    )


def name_of(path: Sequence[str], query: Mapping[str, str] | None = None) -> str:
    """Name of the answer to a request, by the rule above.

    Args:
        path: segments below the API's prefix, not percent-encoded.
        query: parameters of the request.
    """
    pairs = sorted(
        (name, value)
        for name, value in (query or {}).items()
        if name in KEPT and value not in ("", "false")
    )
    asked = "&".join(f"{name}={value}" for name, value in pairs)
    return "/".join(path) + (f"?{asked}" if asked else "")


# --- where it is written ------------------------------------------------------------------------------


class Sink(Protocol):
    """A folder or an archive that is written file by file."""

    def open(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """Open a new file for writing."""
        ...


class _Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            yield file


class _Zip:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        packed = name.startswith(PICTURES)
        info = zipfile.ZipInfo(name, time.localtime()[:6])
        info.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        with self._archive.open(info, "w") as file:
            yield file  # type: ignore[misc]


@contextlib.contextmanager
def _sink(out: Path) -> Iterator[Sink]:
    """A sink that gets its final name when it is complete; a kill leaves nothing under this name.

    Raises:
        UserError: the name exists already.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out} exists already", remedy="give another name, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        if out.suffix == ".zip":
            with zipfile.ZipFile(temporary, "x", compresslevel=6) as archive:
                yield _Zip(archive)
        else:
            temporary.mkdir()
            yield _Folder(temporary)
        os.replace(temporary, out)  # noqa: PTH105 - replaces an empty folder, too
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.unlink(missing_ok=True)
        raise


# --- recording ------------------------------------------------------------------------------------------


class Recorder:
    """Writes answers to a bundle."""

    def __init__(self, portal: Portal, sink: Sink, written: BundleSummary) -> None:
        self.portal = portal
        self._app, self._sink, self._written = application(portal), sink, written
        self._packs = Packs(self.put)

    def put(self, name: str, data: bytes) -> None:
        """Write a file."""
        with self._sink.open(name) as file:
            file.write(data)
        self._written.files += 1
        self._written.bytes += len(data)

    def close(self) -> int:
        """Write what is not written yet; the number of files with names of answers."""
        return self._packs.close()

    async def report_file(self, path: Sequence[str]) -> None:
        """Write a file of the report."""
        name = f"report/{quoted(path[-1])}"
        if len(name) > NAME_BYTES:
            self._leave_out(path, "its name is too long for a file")
        elif (body := await self._body(path, {})) is not None:
            self.put(name, body)

    async def pass_on(self, path: Sequence[str], **query: str) -> bytes | None:
        """Record an answer as it is, and return it; None where there is none."""
        body = await self._body(path, query)
        if body is not None:
            self._packs.add(name_of(path, query), body)
        return body

    async def make(
        self,
        paths: Sequence[Sequence[str]],
        make: Callable[[], Sequence[bytes]],
        kind: Kind = "answers",
        **query: str,
    ) -> None:
        """Record what routes would answer, made by their own function: a route costs more than a sample."""
        try:
            bodies = await patiently(make)
        except PortalFault as why:
            for path in paths:
                self._leave_out(path, why.error)
            return
        for path, body in zip(paths, bodies, strict=True):
            self._packs.add(name_of(path, query), body, kind)

    async def fetch(self, path: Sequence[str], **query: str) -> Any:
        """Record an answer, and return its data; None where there is none."""
        body = await self.pass_on(path, **query)
        return None if body is None else json.loads(body)

    async def _body(self, path: Sequence[str], query: Mapping[str, str]) -> bytes | None:
        """The body of a route's answer, asked without a network; None: a fault, which is noted."""
        messages: list[Mapping[str, Any]] = []

        async def receive() -> Any:  # a GET has no body, and this client never disconnects
            return await asyncio.Future()

        async def send(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        whole = f"{API}/" + "/".join(path)
        scope: MutableMapping[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1",
            "method": "GET", "scheme": "http", "path": whole, "raw_path": quote(whole).encode(),
            "root_path": "", "query_string": urlencode(query).encode(), "headers": [], "client": None,
            "server": None,
        }  # fmt: skip
        with contextlib.suppress(Exception):  # it has answered with status 500
            await self._app(scope, receive, send)
        start, *pieces = messages or [{"status": 500}]
        body = b"".join(piece.get("body", b"") for piece in pieces)
        if start["status"] == 200:
            return body
        self._leave_out(path, _error_text(body, start["status"]))
        return None

    async def ask(self, path: Sequence[str], **query: str) -> Any:
        """Data of an answer, not recorded; None where there is none."""
        body = await self._body(path, query)
        return None if body is None else json.loads(body)

    def put_answer(self, name: str, data: Any) -> None:
        """Record data as an answer."""
        self._packs.add(name, _json(data))

    async def pages(self, path: Sequence[str], **query: str) -> AsyncIterator[list[Any]]:
        """Record all pages of a list, with page numbers as `next`; yields the items of each page."""
        number, after = 1, ""
        while True:
            asked = {**query, "limit": "200", **({"after": after} if after else {})}
            page = await self.ask(path, **asked)
            if page is None:
                return
            after = page.get("next") or ""
            if after:
                page["next"] = str(number + 1)
            named = {**query, **({"after": str(number)} if number > 1 else {})}
            self.put_answer(name_of(path, named), page)
            yield page["items"]
            if not after:
                return
            number += 1

    def _leave_out(self, path: Sequence[str], why: str) -> None:
        if len(self._written.left_out) < 200:
            self._written.left_out.append(f"{'/'.join(path)}: {why}"[:300])


def _json(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _error_text(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {status}"


async def _record(
    experiment: Experiment, recorder: Recorder, wanted: Wanted, tell: Callable[[str], None]
) -> None:
    """Record all answers that show an experiment."""
    below = ("experiments", experiment.id)
    detail = await recorder.fetch(below)
    tasks = [one async for page in recorder.pages((*below, "run-tasks")) for one in page]
    _list(recorder, detail, tasks)
    for name in ("provenance", "configuration", "configuration/whole", "resources"):
        await recorder.pass_on((*below, *name.split("/")))
    await _figures(recorder, below)
    for name in (detail or {}).get("reports", ()):
        await recorder.report_file((*below, "report", name))
    await _logs(recorder, below, wanted)
    for number, task in enumerate(tasks, 1):
        tell(f"run task {number} of {len(tasks)}: {task['name']}")
        await _run_task(recorder, below, task["name"], wanted)


def _list(
    recorder: Recorder, detail: Mapping[str, Any] | None, tasks: Sequence[Mapping[str, Any]]
) -> None:
    """Record the list of experiments, which has one row, with all columns of scores."""
    known = by_dataset([RunTaskRow.model_validate(one) for one in tasks])
    scores = [score for _, score in sorted(known, key=lambda one: one[0])]
    values = [one.model_dump(mode="json") for one in scores]
    if detail is not None:
        page: Page[Any] = Page(items=({**detail["row"], "scores": values},), total=1)
        recorder.put_answer(name_of(("experiments",)), page.model_dump(mode="json"))
    columns = [
        ScoreColumn(
            dataset=one.dataset, metric=one.metric, experiments=1, higher_is_better=one.higher_is_better
        )
        for one in scores
    ]  # fmt: skip
    recorder.put_answer(
        name_of(("experiments", "score-columns")), [one.model_dump(mode="json") for one in columns]
    )
    recorder.put_answer(name_of(("experiments", "facets")), [])


async def _figures(recorder: Recorder, below: Sequence[str]) -> None:
    for one in await recorder.fetch((*below, "figures")) or ():
        for theme in THEMES:
            await recorder.pass_on((*below, "figures", one["name"]), theme=theme)


async def _logs(recorder: Recorder, below: Sequence[str], wanted: Wanted) -> None:
    path = (*below, "logs")
    if not wanted.logs:
        recorder.put_answer(name_of(path), [])
        return
    for source in await recorder.fetch(path) or ():
        one = (*path, source["id"])
        chunk = await recorder.fetch(one)
        end = chunk["end"] if chunk else 0
        while chunk and chunk["begin"] > 0 and end - chunk["begin"] < LOG_BYTES:
            chunk = await recorder.fetch(one, before=str(chunk["begin"]))


async def _run_task(recorder: Recorder, below: Sequence[str], name: str, wanted: Wanted) -> None:
    path = (*below, "run-tasks", name)
    detail = await recorder.fetch(path)
    for one in (detail or {}).get("figures", ()):
        for theme in THEMES:
            await recorder.pass_on((*path, "figures", one["name"]), theme=theme)
    async for _ in recorder.pages((*below, "objects", name)):
        pass
    await recorder.pass_on((*below, "resources"), run_task=name)
    if wanted.logs:
        await recorder.pass_on((*below, "logs"), run_task=name)
    else:
        recorder.put_answer(name_of((*below, "logs"), {"run_task": name}), [])
    samples = (*path, "samples")
    await recorder.pass_on((*samples, "facets"))
    for chosen in (SampleFilter(), SampleFilter(wrong=True)):
        left = wanted.samples
        query = {"wrong": "true"} if chosen.wrong else {}
        async for page in recorder.pages(samples, **query):
            table = sample_table_of(recorder.portal, below[-1], name)
            some = page if left is None else page[:left]
            await _samples(recorder, samples, table, some, chosen)
            for row in some if wanted.images and not chosen.wrong else ():
                await _images(recorder, samples, table, row)
            left = None if left is None else max(0, left - len(page))


async def _samples(
    recorder: Recorder,
    samples: Sequence[str],
    table: SampleTable,
    rows: Sequence[Any],
    chosen: SampleFilter,
) -> None:
    """Record samples in full; wrong ones a second time, with their neighbours among the wrong samples."""
    for begin in range(0, len(rows), AT_ONCE):
        places = [row["place"] for row in rows[begin : begin + AT_ONCE]]

        def make(places: Sequence[int] = places) -> list[bytes]:
            found = details_of(table, places, chosen, SampleOrder())
            return [one.model_dump_json().encode() for one in found]

        def turns(places: Sequence[int] = places) -> list[bytes]:
            return [turns_of(table, place).model_dump_json().encode() for place in places]

        if works_in_turns(table) and not chosen.wrong:
            await recorder.make([(*samples, str(place), "turns") for place in places], turns)
        wrong = "true" if chosen.wrong else ""
        await recorder.make([(*samples, str(place)) for place in places], make, wrong=wrong)


async def _images(recorder: Recorder, samples: Sequence[str], table: SampleTable, row: Any) -> None:
    place = row["place"]
    with contextlib.suppress(Gone):  # the sample's answer gives the reason
        for number in range(len(table.sample(place, row["sample"]).images)):
            path = (*samples, str(place), "images", str(number))

            def make(size: Size, number: int = number) -> list[bytes]:
                return [picture_of(recorder.portal, table, place, number, size).data]

            await recorder.make([path], partial(make, "thumb"), "thumbs", size="thumb")
            await recorder.make([path], partial(make, "full"), "images", size="full")
    for number in range(made_count(table, place)):
        path = (*samples, str(place), "made", str(number))

        def drawn(size: Size, number: int = number) -> list[bytes]:
            return [made_of(recorder.portal, table, place, number, size).data]

        await recorder.make([path], partial(drawn, "thumb"), "thumbs", size="thumb")
        await recorder.make([path], partial(drawn, "full"), "images", size="full")


# --- the whole ------------------------------------------------------------------------------------------


def write(
    experiment: Experiment,
    out: Path,
    wanted: Wanted = Wanted(),  # noqa: B008 - frozen
    tell: Callable[[str], None] = lambda line: None,
    client: Path = BUILT,
) -> BundleSummary:
    """Write a bundle of an experiment. It contains everything on its pages, also paths and names of nodes.

    Args:
        experiment: the experiment; a running one is shown in its current state.
        out: a folder that does not exist or is empty, or a `.zip`.
        wanted: contents of the bundle.
        tell: receives progress, a line at a time.
        client: the built client.

    Raises:
        UserError: `out` exists already.
        EnvironmentFault: the client is not built.
        OSError: the disk is full or not available; nothing is left behind.
    """
    if not (client / "index.html").is_file():
        raise EnvironmentFault(
            "the web client is not built",
            remedy="run in the repository's folder portal/: npm ci && npm run build",
        )
    home, written = experiment.path.parent.parent, BundleSummary()
    with tempfile.TemporaryDirectory(prefix="hpcbench-bundle-") as scratch, _sink(out) as sink:
        index = open_index(f"sqlite:///{scratch}/index.sqlite", home)
        try:
            _enter(index, experiment)
            portal = Portal(home, Options(plans=Path(scratch)), index, Hub())
            recorder = Recorder(portal, sink, written)
            _client(recorder, client)
            recorder.put_answer(name_of(("session",)), _session())
            asyncio.run(_record(experiment, recorder, wanted, tell))
            summary = {
                "version": VERSION, "experiment": experiment.id, "created": time.time(),
                "kept": list(KEPT), "names": recorder.close(), "left_out": written.left_out,
            }  # fmt: skip
            recorder.put("data/index.json", _json(summary))
        finally:
            index.close()
    return written


def _enter(index: Index, experiment: Experiment) -> None:
    """Enter the one experiment into the index."""
    from hpcbench.status import Observer

    stamp = index_entries.stamp_of(experiment)
    made = index_entries.entry(
        index_entries.planned(experiment),
        index_entries.results(experiment),
        index_entries.account(experiment),
        status=Observer(experiment).look(),
        stamp=stamp,
        updated=index_entries.changed_at(stamp),
    )
    index.put([made])


def _session() -> dict[str, Any]:
    session = Session(
        user="", host="", version=hpcbench.__version__, home="", mode="", may_edit=False,
        may_submit=False, expires=4e9, tunnel="", news=0,
    )  # fmt: skip
    return session.model_dump(mode="json")


def _client(recorder: Recorder, client: Path) -> None:
    """Write the client's files; the page says that it is a bundle, and its policy, which no server sends."""
    for path in sorted(client.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        data = path.read_bytes()
        name = path.relative_to(client).as_posix()
        if name == "index.html":
            policy = CSP.replace("; frame-ancestors 'none'", "")  # only valid in a header
            metas = (
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
                '<meta name="hpcbench-bundle" content="data/index.json">'
            )
            data = re.sub(rb"(<head[^>]*>)", rb"\1" + metas.encode(), data, count=1)
        recorder.put(name, data)
