"""SGLang as a child process, changed to serve on a Unix socket: `python -m hpcbench.engines.sglang`.

SGLang listens on TCP only (0.5.21, 0.5.23), and every user of a shared node can reach its TCP ports. A key
would keep them out, but it would appear in the command line, and a further process would have to add it to
each request. So this module starts `sglang.launch_server` in its own process, after it replaced functions of
two other packages:

- uvicorn, which serves SGLang's API, gets our socket instead of a port (`Server.run`, `Config.bind_socket`),
  and the API errors in OpenAI's form, of which SGLang only sends the inner part;
- urllib3, which SGLang's warm-up uses on its own port, goes to that socket (`create_connection`).

We bind the port in SGLang's settings and never listen on it, so no other process can take it.
docs/engines.md lists the tests: the real SGLang 0.5.21 and 0.5.23, on a CPU.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import logging
import os
import runpy
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from hpcbench.engines.auto_concurrency import batched
from hpcbench.engines.option_flags import flags
from hpcbench.engines.request_limits import count_of, positions
from hpcbench.engines.vllm import NOWHERE, network
from hpcbench.errors import Problem, UserError, unknown
from hpcbench.plugins import API, Command, EngineSpec, Limits, Rank
from hpcbench.variables import past_proxies

_LOG = logging.getLogger(__name__)

_OURS = {
    "model": "source",
    "model_path": "source",
    "served_model_name": "name",
    "dtype": "dtype",
    "context_length": "context_length",
    "chat_template": "chat_template",
    "host": None,
    "port": None,
    "nnodes": "nodes",
    "node_rank": None,
    "dist_init_addr": None,
    "api_key": None,
    "admin_api_key": None,
    "config": None,
    # each of these opens a port
    "enable_http2": None,
    "enable_http_worker_reuseport": None,
    "grpc_mode": None,
    "grpc_port": None,
    "smg_grpc_mode": None,
}
"""Option → the field of the model definition that sets it; None: the wrapper sets it, or it opens a port."""

_OTHER_SERVERS = ("SGLANG_RUST_SERVER", "SGLANG_GRPC_PORT")
_HOST = "127.0.0.1"
_LENGTH = b"content-length"
_EXPECTED = {"context_length", "dtype", "model_path", "port", "served_model_name"}


class SglangEngine:
    """Serves a model with SGLang."""

    api: ClassVar[int] = API
    packages: ClassVar[tuple[str, ...]] = ("sglang", "torch", "transformers")
    """Distributions whose versions are recorded."""
    reads_files: ClassVar[bool] = True
    """Whether it reads images by their path."""
    tuned_options: ClassVar[Mapping[str, tuple[int | None, tuple[int, ...]]]] = {
        "chunked_prefill_size": (None, (8192, 16384))
    }
    """Options that `hpcbench tune` tries: the default, None where SGLang chooses, and values in order."""
    several_nodes: ClassVar[bool] = True
    """Whether it starts one process a node."""
    checks_media: ClassVar[bool] = False
    """False: it opens any path that a request names."""
    generation: ClassVar[frozenset[str]] = frozenset(
        {
            "chat_template_kwargs", "custom_params", "ebnf", "frequency_penalty", "ignore_eos",
            "images_config", "logit_bias", "max_dynamic_patch", "min_dynamic_patch", "min_p",
            "min_tokens", "no_stop_trim", "presence_penalty", "regex", "repetition_penalty",
            "response_format", "separate_reasoning", "skip_special_tokens", "stop_regex",
            "stop_token_ids", "top_k",
        }
    )  # fmt: skip
    """Settings of its chat API that a benchmark may need; SGLang silently ignores unknown ones."""

    def at_once(self, options: Mapping[str, Any], gpus: int) -> int:
        """Requests in flight under `concurrency: auto`."""
        return batched(options, gpus, "max_running_requests")

    def launch_command(self, spec: EngineSpec) -> Command:
        """This module with SGLang's command line behind `--`.

        Raises:
            UserError: hpcbench sets the option itself, or the installed SGLang does not know it.
        """
        options = {name.replace("-", "_"): value for name, value in spec.options.items()}
        # a plan may be checked on a machine without this SGLang; the weights are on the machine that runs it
        here = installed() if Path(spec.model_path).is_dir() else None
        if problems := list(_problems(options, here)):
            raise UserError(*problems)
        settings = {**self.settings(spec), **options, **_place(spec.rank)}
        if settings.get("tokenizer_worker_num", 1) != 1:
            # each such process would warm up over the port, which is not served
            settings["skip_server_warmup"] = True
        if here is not None and "allowed_media_domains" in here.options:
            settings.setdefault("allowed_media_domains", [NOWHERE])  # an empty list is every host
        negatable = here.negatable if here else frozenset()
        settings = {
            name: None if value is False and name not in negatable else value
            for name, value in settings.items()
        }
        argv = [sys.executable, "-m", "hpcbench.engines.sglang", "--uds", spec.socket]
        if spec.chat_template is not None:
            argv += [f"--template={spec.chat_template}"]
        return Command(
            [*argv, "--", *flags(settings)],
            {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", **network(spec.rank)},
        )

    def limits(self, spec: EngineSpec) -> Limits:
        """Requests that SGLang answers with 400; with `allow_auto_truncate` it truncates long ones."""
        options = {name.replace("-", "_"): value for name, value in spec.options.items()}
        changed = "json_model_override_args" in options
        tokens = spec.context_length or (None if changed else positions(spec.model_path))
        cuts = bool(options.get("allow_auto_truncate"))
        images = count_of(options.get("limit_mm_data_per_request"))
        return Limits(None if cuts else tokens, images)

    def settings(self, spec: EngineSpec) -> dict[str, Any]:
        """SGLang's settings for the model, the dataset and the machine."""
        return {
            "model_path": spec.model_path,
            "served_model_name": spec.model_name,
            "dtype": spec.dtype,
            "context_length": spec.context_length,
            **_split(spec),
            "device": None if spec.gpus else "cpu",
            "enable_metrics": True,
            "log_level_http": "warning",  # else one line per request
            "disable_radix_cache": not spec.reuse,
            "limit_mm_data_per_request": {"image": spec.images} if spec.images else None,
        }


def _split(spec: EngineSpec) -> dict[str, Any]:
    """How the model is split. SGLang's `tp_size` counts the GPUs of data-parallel attention, too."""
    split = spec.parallel
    if split is None:
        return {"tp_size": spec.gpus if spec.gpus > 1 else None}
    return {
        "tp_size": split.tensor if split.tensor > 1 else None,
        "pp_size": split.pipeline if split.pipeline > 1 else None,
        "dp_size": split.data if split.data > 1 else None,
        "ep_size": split.tensor if split.expert else None,
    }


def _place(rank: Rank | None) -> dict[str, Any]:
    """A node's place among the nodes of one server."""
    if rank is None:
        return {}
    return {
        "nnodes": rank.nodes,
        "node_rank": rank.number,
        "dist_init_addr": f"{rank.address}:{rank.port}",
    }


@dataclass(frozen=True, slots=True)
class Installed:
    """An installed SGLang."""

    version: str
    """Version of its distribution; `?` without one."""
    options: frozenset[str]
    """Names of its options with `_`; empty: they could not be read."""
    negatable: frozenset[str]
    """Switches with a `--no-…` form; all other switches can only be given or omitted."""


def installed() -> Installed | None:
    """The SGLang that this Python would import, inspected without importing; None: not installed."""
    spec = importlib.util.find_spec("sglang")
    if spec is None or spec.origin is None:  # a plain folder of that name has no origin
        return None
    try:
        version = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        version = "?"
    try:
        options, negatable = read_options(Path(spec.origin).parent)
    except (OSError, SyntaxError, ValueError) as error:
        _LOG.warning("options of SGLang %s are not checked: %s", version, error)
        return Installed(version, frozenset(), frozenset())
    return Installed(version, frozenset(options), frozenset(negatable))


def read_options(folder: Path) -> tuple[set[str], set[str]]:
    """Options of the SGLang in a folder, and those that have a `--no-…` form.

    In 0.5.21 and 0.5.23 an option is a field whose type is `A[TYPE, HELP]` or `A[TYPE, Arg(…)]`, in one of
    the files of `srt/arg_groups/fields`; a few, and all in older versions, are calls of `add_argument`.

    Raises:
        OSError, SyntaxError: it cannot be read.
        ValueError: its structure differs from these versions'.
    """
    options: set[str] = set()
    negatable: set[str] = set()
    arguments = folder / "srt/server_args.py"
    for path in (arguments, *sorted((folder / "srt/arg_groups/fields").glob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = set(_names(node))
            options |= names
            if names and "BooleanOptionalAction" in ast.dump(node):
                negatable |= names
    if lacking := _EXPECTED - options:
        raise ValueError(f"its source defines no option {', '.join(sorted(lacking))}")
    return options, negatable


def _names(node: ast.AST) -> Iterator[str]:
    """The options that one node of the source declares."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            yield from _flag_names(node.args)
    elif (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.annotation, ast.Subscript)
        and isinstance(node.annotation.value, ast.Name)
        and node.annotation.value.id in ("A", "Annotated")
    ):
        said = {
            keyword.arg: keyword.value
            for call in ast.walk(node.annotation)
            if isinstance(call, ast.Call)
            for keyword in call.keywords
        }
        if "no_cli" in said:
            return
        name = list(_flag_names([said["cli_name"]])) if "cli_name" in said else []
        yield from name or [node.target.id]
        if isinstance(aliases := said.get("aliases"), ast.List):
            yield from _flag_names(aliases.elts)


def _flag_names(words: Sequence[ast.expr]) -> Iterator[str]:
    for word in words:
        if isinstance(word, ast.Constant) and str(word.value).startswith("--"):
            yield str(word.value)[2:].replace("-", "_")


def _problems(options: Mapping[str, Any], here: Installed | None) -> Iterator[Problem]:
    for name in options:
        if name in _OURS:
            field = _OURS[name]
            remedy = f"set the model's '{field}'" if field else "leave it out"
            yield Problem(f"engine option '{name}' is set by hpcbench", remedy=remedy)
        elif here is not None and here.options and name not in here.options:
            yield Problem(unknown(f"option of SGLang {here.version}", name, here.options))


def main(argv: Sequence[str] | None = None) -> None:
    """Run `sglang.launch_server` with the arguments after `--`, on a Unix socket."""
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--")
    parser = argparse.ArgumentParser(prog="python -m hpcbench.engines.sglang")
    parser.add_argument("--uds", required=True, type=Path)
    parser.add_argument("--template", help="text of the chat template")
    args = parser.parse_args(words[:cut])
    theirs = words[cut + 1 :]
    if args.template is not None:
        file = args.uds.with_name(f"{args.uds.name}.jinja")  # SGLang needs this suffix
        file.write_text(args.template, encoding="utf-8")
        theirs += ["--chat-template", str(file)]
    for name in _OTHER_SERVERS:
        os.environ.pop(name, None)
    port = _nobodys_port()
    listen_on(args.uds)
    connect_to(args.uds, port)
    sys.argv = ["sglang.launch_server", *theirs, "--host", _HOST, "--port", str(port)]
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)


def listen_on(path: Path) -> None:
    """Make uvicorn serve on this Unix socket, which only its owner may open, whatever its settings."""
    import uvicorn

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    server: Any = uvicorn.Server
    config: Any = uvicorn.Config
    run = server.run

    def run_there(self: uvicorn.Server, sockets: object = None) -> None:
        self.config.app = with_openai_errors(self.config.app)
        run(self, [listener])

    server.run = run_there
    config.bind_socket = lambda self: listener  # passed on to a server's further processes


def with_openai_errors(app: Any) -> Any:
    """An ASGI application whose errors have OpenAI's form; SGLang omits the object around them."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        head: dict[str, Any] = {}
        body = bytearray()

        async def send_on(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                head.update(message)
            elif not head:
                await send(message)
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    text = _in_openai_form(bytes(body))
                    kept = [pair for pair in head["headers"] if pair[0].lower() != _LENGTH]
                    head["headers"] = [*kept, (_LENGTH, b"%d" % len(text))]
                    await send(head)
                    await send({"type": "http.response.body", "body": text})

        await app(scope, receive, send_on)

    return wrapped


def _in_openai_form(body: bytes) -> bytes:
    try:
        answer = json.loads(body)
    except ValueError:
        return body
    if not isinstance(answer, dict) or not isinstance(answer.get("message"), str):
        return body
    answer.pop("object", None)
    return json.dumps({"error": answer}).encode()


def connect_to(path: Path, port: int) -> None:
    """Send requests of this process to the port to the Unix socket instead, past any proxy."""
    from urllib3.util import connection

    create = connection.create_connection

    def create_there(address: tuple[str, int], *args: Any, **more: Any) -> socket.socket:
        if address != (_HOST, port):
            return create(address, *args, **more)
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.connect(str(path))
        return stream

    connection.create_connection = create_there
    os.environ.update(past_proxies(_HOST))


_held: list[socket.socket] = []


def _nobodys_port() -> int:
    """A port that stays bound until this process ends and is never listened on."""
    holder = socket.socket()
    holder.bind((_HOST, 0))
    _held.append(holder)
    port: int = holder.getsockname()[1]
    return port


if __name__ == "__main__":
    main()
