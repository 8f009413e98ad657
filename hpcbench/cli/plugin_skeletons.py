"""The package that `hpcbench plugins new KIND NAME` writes: a plugin that works, with tests."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

_PROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "hpcbench-{dashed}"
version = "0.1.0"
description = "{name}: a plugin of hpcbench, kind {kind}"
requires-python = ">=3.10"
dependencies = [{dependencies}]

[project.entry-points."hpcbench.{kind}"]
{name} = "{module}:{cls}"

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]

[tool.pytest.ini_options] # without it pytest takes the settings of a folder above
testpaths = ["tests"]
"""

_TEST = '''\
"""{name} satisfies the contract of its kind."""

from pathlib import Path

from hpcbench.testing import check
from {module} import {cls}


def test_contract(tmp_path: Path) -> None:
    check("{kind}", {cls}, tmp_path)
'''

_README = """\
# hpcbench-{dashed}

A plugin of hpcbench: kind `{kind}`, name `{name}`.

    hpcbench plugins check .
    python -m pytest            # after `pip install pytest`

To use it without installing it, write into a registry `packages/hpcbench-{dashed}.yaml`:

    name: hpcbench-{dashed}
    source: {{type: local, path: PATH-OF-THIS-FOLDER}}
    provides: {{{kind}: [{name}]}}

It is used by {place}:

{use}

A local folder needs RUN_MODE=dev. For results use `type: git` with a tag, `type: pypi` with a
version, or the wheel that `pip wheel . --no-deps -w dist` makes:

    source: {{type: requirement, line: "hpcbench-{dashed} @ file:///PATH/dist/hpcbench_{name}-0.1.0-py3-none-any.whl"}}
"""

_USE: Mapping[str, tuple[str, str]] = {
    "datasets": (
        "`datasets/{name}.yaml`",
        "name: {name}\nsource: FOLDER-WITH-THE-PAGES\niterator: {name}",
    ),
    "engines": (
        "`models/{name}-model.yaml`",
        "name: {name}-model\nsource: FOLDER-WITH-THE-WEIGHTS\nengine: {name}\ngpus: 0",
    ),
    "environments": (
        "the image of a model, in `models/{name}-model.yaml`",
        "name: {name}-model\nsource: FOLDER-WITH-THE-WEIGHTS\nengine: huggingface\nimage: '{name}:PROGRAM'",
    ),
    "metrics": (
        "`metrics/{name}.yaml`, and a run task by `metrics: [{name}]`",
        "name: {name}\nplugin: {name}",
    ),
    "notifiers": ("a plan", "notifications: [{{plugin: {name}, options: {{path: ended.txt}}}}]"),
    "parsers": (
        "`ml_tasks/{name}_task.yaml`, which a run task names as `ml_task: {name}_task`",
        "name: {name}_task\nplugin: kie\nparser: {name}\noutput: object\nmetrics: [kie_f1_micro]",
    ),
    "prompts": (
        "`prompts/{name}.yaml`, and a run task by `prompt: {name}`",
        "name: {name}\nstrategy: {name}\nuser: Read all text.",
    ),
    "reports": (
        "`reports/{name}.yaml`, and a plan by `reports: [{name}]`",
        "name: {name}\nplugin: {name}",
    ),
    "storage": ("`datasets/{name}-pages.yaml`", "name: {name}-pages\nsource: '{name}://PLACE'"),
    "tasks": (
        "`ml_tasks/{name}.yaml`, and a run task by `ml_task: {name}`",
        "name: {name}\nplugin: {name}\noutput: text\nmetrics: [exact_match]",
    ),
    "tools": (
        "an agent, for example of `ml_tasks/{name}_task.yaml`",
        "name: {name}_task\nplugin: vqa\nagent: {{tools: [crop, {name}]}}\nmetrics: [anls]",
    ),
    "trackers": ("a plan", "trackers: [{{plugin: {name}, options: {{path: scores.txt}}}}]"),
}
"""Kind → who names its plugin, and the YAML."""

_CODE: Mapping[str, str] = {
    "metrics": '''\
"""Compares words. The paper or the official scorer of a metric, and each deviation, belong here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Parts:
    """Contribution of one sample to the metric."""

    numerator: float
    denominator: float


@dataclass(frozen=True)
class {cls}:
    """The share of the reference's words that the prediction has.

    Fields are options; they belong to the signature.
    """

    api: ClassVar[int] = 1
    name: ClassVar[str] = "{name}"
    higher_is_better: ClassVar[bool] = True
    aggregation: ClassVar[str] = "mean"
    bounds: ClassVar[tuple[float, float | None]] = (0.0, 1.0)
    accepts: ClassVar[tuple[str, ...]] = ("text",)

    lower: bool = True

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """The best over all references; a prediction that is not text scores 0."""
        return Parts(max(self._share(prediction, str(one)) for one in references), 1.0)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """The mean over samples."""
        return sum(sorted(part.numerator for part in parts)) / len(parts)

    @property
    def signature(self) -> str:
        return f"{name}|case:{{'lower' if self.lower else 'as-is'}}|v1"

    def _share(self, prediction: object, reference: str) -> float:
        wanted, found = self._words(reference), self._words(prediction)
        return len(wanted & found) / len(wanted) if wanted else 1.0

    def _words(self, text: object) -> set[str]:
        words = text if isinstance(text, str) else ""
        return set((words.lower() if self.lower else words).split())
''',
    "parsers": '''\
"""Reads the last line of an answer: many models write their reasoning before it."""

from typing import ClassVar


class {cls}:
    api: ClassVar[int] = 1

    def parse(self, text: str) -> str | None:
        """The last line that is not empty; None if there is none."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else None
''',
    "tasks": '''\
"""Reads an answer as a whole number, e.g. of pages or stamps."""

import re
from typing import Any, ClassVar


class {cls}:
    api: ClassVar[int] = 1

    def parse(self, text: str, sample: Any) -> str | None:
        """The first number as text; None if the answer has none."""
        found = re.search(r"\\d+", text)
        return str(int(found.group())) if found and len(found.group()) < 20 else None
''',
    "prompts": '''\
"""Puts the document's type before the question."""

from typing import ClassVar

from hpcbench.plugins import PromptSpec
from hpcbench.schema.records import Message, Sample


class {cls}:
    api: ClassVar[int] = 1

    def __init__(self, spec: PromptSpec) -> None:
        self.system, self.user = spec.system, spec.user or ""

    def build(self, sample: Sample) -> tuple[Message, ...]:
        kind = sample.metadata.get("doc_type", "document")
        user = Message("user", f"This is a {{kind}}. {{self.user}}", sample.images)
        return (user,) if self.system is None else (Message("system", self.system), user)
''',
    "datasets": '''\
"""A folder of pages whose names contain their class: `invoice_001.png`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from hpcbench.plugins import DatasetSpec
from hpcbench.schema.records import Sample


class {cls}:
    api: ClassVar[int] = 1

    def __init__(self, spec: DatasetSpec) -> None:
        self.pages = sorted(spec.folder.glob("*_*.png"))

    def count(self) -> int:
        return len(self.pages)

    def iter(self, start: int, stop: int) -> Iterator[Sample]:
        for page in self.pages[start:stop]:
            label = page.stem.rpartition("_")[0]
            yield Sample(page.stem, (page,), {{}}, (label,), document=page.stem)

    def files(self) -> list[Path]:
        return self.pages

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Files for the contract tests."""
        for name in ("invoice_001", "invoice_002", "letter_001"):
            (folder / f"{{name}}.png").write_bytes(b"\\x89PNG")
        return {{"folder": folder}}
''',
    "engines": '''\
"""Serves a model through OpenAI's API on a Unix socket.

Put your model into `Model`. If you have a program that serves it, start that in `launch_command` and drop
the server below. By hand: python -m {module} --uds /tmp/s --model FOLDER --name NAME
"""

import argparse
import json
import socketserver
import sys
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

from hpcbench.errors import Problem, UserError
from hpcbench.plugins import Command, EngineSpec

OPTIONS = {{"prefix"}}


class {cls}:
    api: ClassVar[int] = 1
    generation: ClassVar[frozenset[str]] = frozenset()

    def launch_command(self, spec: EngineSpec) -> Command:
        """The server below; `engine_options` of the model's definition become its arguments."""
        for name in spec.options:
            if name not in OPTIONS:
                raise UserError(Problem(f"unknown engine option '{{name}}'", remedy="prefix"))
        argv = [sys.executable, "-m", "{module}", "--uds", spec.socket]
        argv += ["--model", spec.model_path, "--name", spec.model_name]
        return Command([*argv, *(f"--{{name}}={{value}}" for name, value in spec.options.items())])


class Model:
    """A model that answers with the number of images of a request."""

    def __init__(self, path: str, prefix: str) -> None:
        self.path, self.prefix = path, prefix

    def answer(self, messages: list[dict[str, Any]]) -> str:
        """The answer to messages in OpenAI's form; images are data URIs or file:// addresses."""
        contents = [one["content"] for one in messages if isinstance(one["content"], list)]
        images = sum(part["type"] == "image_url" for parts in contents for part in parts)
        return f"{{self.prefix}}{{images}}"


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, socket: str, name: str, model: Model) -> None:
        super().__init__(socket, Handler)
        self.name, self.model = name, model


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """`/health` answers 200 once the model is loaded."""
        if self.path == "/health":
            self.send(200, {{}})
        elif self.path == "/v1/models":
            model = {{"id": self.server.name, "object": "model"}}
            self.send(200, {{"object": "list", "data": [model]}})
        else:
            self.send(404, {{"error": {{"message": f"no {{self.path}}"}}}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = self.server.model.answer(body["messages"])
        asked, given = len(str(body["messages"]).split()), len(text.split())
        usage = {{"prompt_tokens": asked, "completion_tokens": given, "total_tokens": asked + given}}
        known = {{"id": "1", "created": 0, "model": self.server.name}}
        if not body.get("stream"):
            message = {{"role": "assistant", "content": text}}
            choice = {{"index": 0, "message": message, "finish_reason": "stop"}}
            whole = {{"object": "chat.completion", "choices": [choice], "usage": usage}}
            self.send(200, {{**known, **whole}})
            return
        known["object"] = "chat.completion.chunk"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for delta, reason in (({{"role": "assistant", "content": text}}, None), ({{}}, "stop")):
            choice = {{"index": 0, "delta": delta, "finish_reason": reason}}
            self.event(json.dumps({{**known, "choices": [choice]}}))
        if (body.get("stream_options") or {{}}).get("include_usage"):
            self.event(json.dumps({{**known, "choices": [], "usage": usage}}))
        self.event("[DONE]")
        self.wfile.write(b"0\\r\\n\\r\\n")

    def send(self, status: int, data: dict[str, Any]) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def event(self, data: str) -> None:
        line = f"data: {{data}}\\n\\n".encode()
        self.wfile.write(b"%x\\r\\n%b\\r\\n" % (len(line), line))

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: there may be millions."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--uds", "--model", "--name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--prefix", default="")
    given = parser.parse_args()
    with Server(given.uds, given.name, Model(given.model, given.prefix)) as server:
        server.serve_forever()
''',
    "environments": '''\
"""Runs engines through a program of the site, e.g. `with-modules cuda/12 -- COMMAND`."""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import Command, Environment


class {cls}:
    """Image reference `{name}:PROGRAM`."""

    api: ClassVar[int] = 1

    def prepare(
        self,
        reference: str,
        cache: Path,
        container: Any,
        requirements: Sequence[str],
        say: Callable[[str], None],
    ) -> Environment:
        program = reference.partition(":")[2]
        if shutil.which(program) is None:
            raise EnvironmentFault(f"no program '{{program}}'", remedy="put it on PATH")
        if requirements:
            raise EnvironmentFault("{name} installs no packages", remedy="install them there yourself")
        return Environment(kind="{name}", path=program, digest=None)

    def wrap(
        self,
        environment: Environment,
        argv: Sequence[str],
        mounts: Sequence[str],
        env: Mapping[str, str],
        gpus: int,
        container: Any,
    ) -> Command:
        words = [sys.executable if word == "python" else word for word in argv[:1]]
        return Command([environment.path, "--", *words, *argv[1:]], env)
''',
    "reports": '''\
"""One line of text per score."""

from collections.abc import Mapping
from typing import Any, ClassVar


class {cls}:
    api: ClassVar[int] = 1

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        lines = [tables["id"]]
        for run_task, table in tables["metrics"]["run_tasks"].items():
            for metric, entry in table["metrics"].items():
                value = "no score" if entry is None else f"{{entry['value']:.3f}}"
                lines.append(f"{{run_task}} {{metric}} {{value}}")
        return {{"{name}.txt": "\\n".join(lines) + "\\n"}}
''',
    "storage": '''\
"""Files of a folder by URL: `{name}:///folder`. Replace the bodies of the three methods."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from hpcbench.plugins import StoredFile


class {cls}:
    api: ClassVar[int] = 1

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def list(self, url: str) -> Iterable[StoredFile]:
        for path in sorted(_folder(url).rglob("*")):
            if path.is_file():
                stat = path.stat()
                name = path.relative_to(_folder(url)).as_posix()
                yield StoredFile(name, stat.st_size, f"{{stat.st_mtime_ns}}-{{stat.st_ino}}")

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
        with (_folder(url) / file.path).open("rb") as opened:
            opened.seek(start)
            yield opened.read(stop - start)

    def put(self, source: Path, url: str, path: str) -> None:
        place = _folder(url) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{{place.name}}.tmp")
        shutil.copyfile(source, temporary)
        os.replace(temporary, place)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Options for the contract tests."""
        return {{"url": f"{name}://{{folder}}/store"}}


def _folder(url: str) -> Path:
    return Path(url.partition("://")[2])
''',
    "tools": '''\
"""Looks a word up in a list, for example of suppliers."""

from collections.abc import Mapping
from typing import Any, ClassVar

from hpcbench.plugins import ToolContext, ToolError
from pydantic import BaseModel, ConfigDict, Field


class {cls}:
    """Looks a name up in the list of suppliers; gives its number."""

    api: ClassVar[int] = 1
    idempotent: ClassVar[bool] = True
    stateless: ClassVar[bool] = True

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        suppliers: dict[str, str] = Field(default={{"ACME": "4711"}})

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="forbid")

        name: str = Field(description="Name of the supplier, as in the document.")

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.suppliers = self.Options.model_validate(dict(options)).suppliers

    def call(self, arguments: Any, context: ToolContext) -> str:
        if arguments.name not in self.suppliers:
            raise ToolError(f"there is no supplier {{arguments.name!r}}")
        return self.suppliers[arguments.name]

    @staticmethod
    def example(folder: Any) -> Mapping[str, Any]:
        """Arguments for the contract tests."""
        return {{"arguments": {{"name": "ACME"}}}}
''',
    "trackers": '''\
"""Keeps the newest score of every metric in one small text file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class {cls}:
    api: ClassVar[int] = 1

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        path: str

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.path = Path(self.Options.model_validate(dict(options)).path)

    def log(self, tables: Mapping[str, Any]) -> None:
        lines = [
            f"{{run_task}} {{metric}} {{entry['value']}}\\n"
            for run_task, table in tables["metrics"]["run_tasks"].items()
            for metric, entry in table["metrics"].items()
            if entry is not None
        ]
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text("".join(lines), encoding="utf-8")
        temporary.replace(self.path)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Options for the contract tests."""
        return {{"path": str(folder / "newest.txt")}}
''',
    "notifiers": '''\
"""Writes the end of an experiment to a file, for example for a status bar."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class {cls}:
    api: ClassVar[int] = 1

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        path: str

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.path = Path(self.Options.model_validate(dict(options)).path)

    def send(self, event: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{{event['time']}} {{event['summary']}}\\n")

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Options for the contract tests."""
        return {{"path": str(folder / "ended.txt")}}
''',
}

_NEEDS_PYDANTIC = {"trackers", "notifiers", "tools"}


def package(kind: str, name: str) -> dict[str, str]:
    """Path in the new folder → text of the file."""
    place, use = _USE[kind]
    words = {
        "kind": kind,
        "name": name,
        "dashed": name.replace("_", "-"),
        "module": f"hpcbench_{name}",
        "cls": "".join(word.capitalize() for word in name.split("_") if word),
        "place": place.format(name=name),
        "use": indent(use.format(name=name), "    "),
        "dependencies": '"pydantic>=2.6"' if kind in _NEEDS_PYDANTIC else "",
    }
    return {
        "pyproject.toml": _PROJECT.format(**words),
        "README.md": _README.format(**words),
        f"hpcbench_{name}.py": _CODE[kind].format(**words),
        f"tests/test_{name}.py": _TEST.format(**words),
    }
