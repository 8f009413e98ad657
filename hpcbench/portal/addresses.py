"""Addresses of a running portal: the command line for the laptop, and the link."""

from __future__ import annotations

import re
import socket
from typing import Any

LAPTOP_PORT = 8787
"""The laptop's port in the `ssh -L` line."""


def real_host() -> str:
    """Name of this host; a tunnel to the common name of all login nodes may end at another node."""
    name = socket.gethostname()
    if "." not in name:
        full = socket.getfqdn()
        if full.split(".")[0] == name:
            return full
    return name


def tunnel_line(state: dict[str, Any]) -> str:
    """The `ssh -L` command line for the user's laptop."""
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
        state: state of the running portal.
        code: a one-time code. The link has it after `#`; browsers send that part to no server, proxy or log.
    """
    if state["root_path"]:
        return {"path": f"{state['root_path']}/#t={code}"}
    # Cookies belong to a host name: with a name of its own, other tunnels do not get our cookies.
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
    """Instructions for people: commands to type and links to open; arguments as for `links`."""
    found = links(state, code)
    hint = "(works once, within 60 s; for a new link: `hpcbench portal url`)"
    if "path" in found:
        return f"Open, under your proxy's address:  {found['path']}   {hint}"
    lines = [f"On your laptop:  {found['tunnel']}", f"Then open:       {found['link']}   {hint}"]
    if "here" in found:
        lines.append(f"On this host:    {found['here']}")
    else:
        lines.append("If ssh cannot forward Unix sockets: `hpcbench portal --tcp`")
    return "\n".join(lines)
