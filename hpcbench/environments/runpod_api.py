"""The part of RunPod's REST API that rents and deletes pods (docs.runpod.io/api-reference)."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from hpcbench import secret
from hpcbench.errors import EnvironmentFault, unreached

CONSOLE = "https://console.runpod.io/pods"

TIMEOUT = 20.0
"""Longest wait for one response, seconds."""

WAITS = (1.0, 2.0, 4.0)
"""Seconds before each retry of a request."""

GIVE_BACK_SECONDS = 60.0
"""Seconds of attempts to delete a pod, before the user is asked to delete it by hand."""

_SOLD_OUT = re.compile(
    r"no (longer any )?instances|does not have the resources|not enough free GPUs", re.I
)


class ApiFault(EnvironmentFault):
    """The API refused, or did not answer."""

    def __init__(self, status: int, message: str, remedy: str | None = None) -> None:
        self.status = status
        """HTTP status; 0: no response came, so the request may have taken effect."""
        super().__init__(message, remedy)

    @property
    def passing(self) -> bool:
        """Whether a retry may help."""
        return self.status in (0, 408, 429) or self.status >= 500


class Api:
    """The pods of one account."""

    def __init__(self, endpoint: str, key: str) -> None:
        self.endpoint, self.key = endpoint.rstrip("/"), key
        # A redirect would send the key to another address.
        self._opener = urllib.request.build_opener(_NoRedirect)

    def pods(self) -> list[dict[str, Any]]:
        """All pods of the account."""
        found = self._patiently("GET", "/pods")
        return [pod for pod in found or [] if isinstance(pod, dict)]

    def find(self, pod: str) -> dict[str, Any] | None:
        """A pod's current state; None: the pod does not exist (any more)."""
        try:
            found: dict[str, Any] | None = self._patiently("GET", f"/pods/{pod}")
        except ApiFault as fault:
            if fault.status != 404:
                raise
            return None
        return found if found and found.get("desiredStatus") != "TERMINATED" else None

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Rent a pod.

        If no response came, the pod is looked up by its name: a blind retry could rent two.

        Raises:
            ApiFault: no pod is available.
        """
        for wait in (*WAITS, None):
            try:
                made: dict[str, Any] = self._once("POST", "/pods", body)
                return made
            except ApiFault as fault:
                if _SOLD_OUT.search(fault.message):
                    raise ApiFault(
                        409,  # the API's own is 500, but a retry would not help
                        f"RunPod has no such machine available now: {fault.message}",
                        remedy="name more gpu_types, use the other cloud, or try later",
                    ) from fault
                if fault.passing and fault.status != 429:
                    named = [pod for pod in self.pods() if pod.get("name") == body["name"]]
                    if named:
                        return named[0]
                if wait is None or not fault.passing:
                    raise
            time.sleep(wait)
        raise AssertionError("unreachable")

    def give_back(self, pod: str, patience: float = GIVE_BACK_SECONDS) -> None:
        """Delete a pod, and verify that it is gone.

        Raises:
            EnvironmentFault: the deletion is unverified; names the pod and the page to delete it by hand.
        """
        until, wait = time.monotonic() + patience, 0.5
        while True:
            try:
                try:
                    self._once("DELETE", f"/pods/{pod}")
                except ApiFault as fault:
                    if fault.status != 404:
                        raise
                if self.find(pod) is None:
                    return
                why = "it still exists"
            except ApiFault as fault:
                why = fault.message
            wait = min(2 * wait, 30.0)
            if time.monotonic() + wait > until:
                raise EnvironmentFault(
                    f"POD {pod} MAY STILL COST MONEY: it could not be deleted ({why})",
                    remedy=f"delete it at {CONSOLE}",
                )
            time.sleep(wait)

    def _patiently(self, method: str, path: str) -> Any:
        """A response, with retries where they may help."""
        for wait in WAITS:
            try:
                return self._once(method, path)
            except ApiFault as fault:
                if not fault.passing:
                    raise
            time.sleep(wait)
        return self._once(method, path)

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self.endpoint + path,
            None if body is None else json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                "User-Agent": "hpcbench",
            },
            method=method,
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                text = answer.read()
            return json.loads(text) if text.strip() else None
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(2000).decode(errors="replace")) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ApiFault(
                0,
                f"{self.endpoint} does not answer: {unreached(error) or getattr(error, 'reason', error)}",
                remedy="check the network, and https_proxy",
            ) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


def _refusal(status: int, body: str) -> ApiFault:
    if status in (401, 403):
        return ApiFault(
            status,
            f"RunPod refuses the API key (HTTP {status})",
            remedy="set container.options.api_key of the site, or RUNPOD_API_KEY, to a key with read and "
            "write rights from console.runpod.io/user/settings",
        )
    try:
        parsed = json.loads(body)
        said = str(parsed.get("error") or parsed.get("message") or parsed) if parsed else body
    except (ValueError, AttributeError):
        said = body
    said = secret.mask(" ".join(said.split()))[:300]
    return ApiFault(status, f"RunPod answers HTTP {status}: {said or 'no message'}")
