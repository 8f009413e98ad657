"""A server of tools that does all that a server must not do. `python bad_server.py [FILE]`

It speaks the Model Context Protocol by hand, which starts in a twentieth of the SDK's time. With FILE, it has
one tool more once the file is there.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

PNG = b"\x89PNG\r\n\x1a\nnot really"


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}


def tool(name: str, description: str, **more: Any) -> dict[str, Any]:
    properties = {"what": {"type": "string"}, "number": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": schema, **more}


TOOLS = [
    tool("look", "Shows two images and two texts.", annotations={"readOnlyHint": True}),
    tool("do", "Does what it is asked to do, however bad."),
    tool("no_image", "Shows what is no image."),
    tool("odd.name/of a tool", "Has a name that no model can write."),
    {
        "name": "slow_result", "description": "Has a schema of its results whose check never ends.",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"what": {"pattern": "^(a+)+$"}}},
    },
    {
        "name": "slow_schema", "description": "Has a schema whose check never ends.",
        "inputSchema": {
            "type": "object", "required": ["what"],
            "properties": {"what": {"pattern": "^(a+)+$"}, "laughs": {"$ref": "#/$defs/40"}},
            "$defs": {
                "0": {}, **{
                    str(n): {"allOf": [{"$ref": f"#/$defs/{n - 1}"}] * 2} for n in range(1, 41)
                },
            },
        },
    },
]  # fmt: skip


def do(what: str) -> list[dict[str, Any]] | object:
    if what == "raise":
        raise ValueError("not on Sundays")
    if what == "die":
        os._exit(3)
    if what == "hang":
        time.sleep(1000)
    if what == "large":
        return [text("x" * (2 * 2**20))]
    if what == "huge":
        return [text("x" * (40 * 2**20))]
    if what == "chatter":
        chatter()
    if what == "flood":
        while True:
            news = {
                "jsonrpc": "2.0",
                "method": "notifications/message",
                "params": {"level": "info", "data": "x"},
            }
            sys.stdout.write(json.dumps(news) + "\n")
    if what == "close":
        os.close(1)
        time.sleep(1000)
    if what == "print":
        sys.stdout.write("noise on the wrong stream\n" * 10)
        for _ in range(100):
            sys.stderr.write("y" * 2**15 + "\n")
    if what == "grow":
        return [text(str(len(bytearray(100 * 2**30))))]
    if what == "connect":
        socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 1).close()
    if what == "write":
        Path(os.environ["OUTSIDE"]).write_text("written")
    if what == "scratch":
        Path("file").write_text("written")
    if what == "environment":
        return [text(" ".join(sorted(os.environ)))]
    if what == "wrong":
        return {"no": "list"}
    return [text(what)]


def chatter() -> None:
    """Send answers to no request, requests, notifications, JSON of other forms."""
    said: list[Any] = [None, [], 7, {}, [[{"jsonrpc": "2.0"}]], {"jsonrpc": "2.0", "id": None}]
    for n in range(20):
        said.append({"jsonrpc": "2.0", "id": 10**6 + n, "result": {"content": [text("mine")]}})
        said.append(
            {"jsonrpc": "2.0", "id": f"s{n}", "method": "sampling/createMessage", "params": {}}
        )
        said.append({"jsonrpc": "2.0", "id": n, "method": "ping"})
        said.append({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        said.append({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "x"}})
    for one in said:
        sys.stdout.write(json.dumps(one) + "\n")
    sys.stdout.write(
        '{"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "te\n' + "[" * 10**5 + "\n"
    )
    sys.stdout.flush()


def called(name: str, given: dict[str, Any]) -> dict[str, Any]:
    try:
        if name == "look":
            shown = image(PNG)
            content: Any = [text(f"look {given['number']}"), shown, text("again"), shown]
        elif name == "no_image":
            content = [image(b"\0\0\0")]
        elif name == "do":
            content = do(given["what"])
        else:
            content = [text(name)]
    except Exception as error:  # noqa: BLE001 - reported to the client
        said = f"{type(error).__name__}: {error}"
        return {"content": [text(said)], "isError": True}
    more = {"structuredContent": {"what": "a" * 40 + "!"}} if name == "slow_result" else {}
    return {"content": content, **more}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    method, given = message.get("method"), message.get("params") or {}
    if method == "initialize":
        capabilities = {"tools": {}}
        return {
            "protocolVersion": given["protocolVersion"], "capabilities": capabilities,
            "serverInfo": {"name": "bad", "version": "1.0"},
        }  # fmt: skip
    if method == "tools/list":
        more = len(sys.argv) > 1 and Path(sys.argv[1]).exists()
        return {"tools": [*TOOLS, tool("another", "It was not there before.")] if more else TOOLS}
    if method == "tools/call":
        return called(given["name"], given.get("arguments") or {})
    return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if (
            "id" not in message or "method" not in message
        ):  # news, or an answer to a request of ours
            continue
        result = answer(message)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": "Method not found"}
        else:
            reply["result"] = result
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
