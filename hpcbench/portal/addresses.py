"""How a running portal is reached: the line for the laptop, and the link."""

from __future__ import annotations

import re
import socket
from typing import Any

LAPTOP_PORT = 8787
"""Port of the laptop in the `ssh -L` line."""


def real_host() -> str:
    """Name of this very host: behind the name of all login nodes a tunnel may lead to another one."""
    name = socket.gethostname()
    if "." not in name:
        full = socket.getfqdn()
        if full.split(".")[0] == name:
            return full
    return name


def tunnel_line(state: dict[str, Any]) -> str:
    """The command for the user's laptop."""
    end = state["socket"]
    if state["port"]:
        end = f"{state['listen']}:{state['port']}"
    return (
        f"ssh -N -o ExitOnForwardFailure=yes -L 127.0.0.1:{LAPTOP_PORT}:{end} "
        f"{state['user']}@{state['host']}"
    )


def links(state: dict[str, Any], code: str) -> dict[str, str]:
    """The tunnel and the address to open, by name.

    Args:
        state: of the running portal.
        code: a one-time code. It stands behind `#`, which no browser sends to a server, proxy or log.
    """
    if state["root_path"]:
        return {"path": f"{state['root_path']}/#t={code}"}
    # A host name of its own is a cookie jar of its own: other tunnels do not get our cookies.
    name = re.sub(r"[^a-z0-9-]", "-", (state["site"] or state["host"].split(".")[0]).lower())
    name = name.strip("-")[:63].strip("-") or "hpcbench"
    found = {
        "tunnel": str(state["tunnel"]),
        "link": f"http://{name}.localhost:{LAPTOP_PORT}/#t={code}",
    }
    if state["port"]:
        found["here"] = f"http://localhost:{state['port']}/#t={code}"
    return found


def how_to_reach(state: dict[str, Any], code: str) -> str:
    """What to type and to open, for people; as `links`."""
    found = links(state, code)
    hint = "(once, within 60 s; another: `hpcbench portal url`)"
    if "path" in found:
        return f"Open, below your proxy's address:  {found['path']}   {hint}"
    lines = [f"On your laptop:  {found['tunnel']}", f"Then open:       {found['link']}   {hint}"]
    if "here" in found:
        lines.append(f"On this host:    {found['here']}")
    else:
        lines.append("Where ssh forwards no sockets: `hpcbench portal --tcp`")
    return "\n".join(lines)
