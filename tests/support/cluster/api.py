"""Objects of the API server as plain dicts, for tests: one user's eyes, over httpx. Not the client under test.

A path is as the server has it (`/api/v1/namespaces/x/pods/y`); `path_of` makes one.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import Any

import httpx

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"

Object = dict[str, Any]


class Refused(AssertionError):
    """The server said no. `code` is its HTTP status, `told` its Status object's message."""

    def __init__(self, method: str, path: str, code: int, told: str) -> None:
        super().__init__(f"{method} {path}: {code} {told}")
        self.code, self.told = code, told


def path_of(resource: str, name: str = "", namespace: str = "", group: str = "", version: str = "v1") -> str:
    """Path of a resource: `pods`, or `deployments` with group `apps`. A subresource is part of `name`."""
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{resource}" + (f"/{name}" if name else "")


class Api:
    """One user at one server."""

    def __init__(self, url: str, token: str, context: ssl.SSLContext) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=url, headers=headers, verify=context, timeout=60, trust_env=False)

    def ask(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: Any
    ) -> Object:
        """The answer's JSON. Raises Refused for a status of 400 and more."""
        given: dict[str, Any] = {"json": body} if body is not None else {}
        headers = {"Content-Type": content_type} if body is not None else {}
        response = self.http.request(method, path, params=query, headers=headers, **given)
        if response.status_code >= 400:
            raise Refused(method, path, response.status_code, _told(response))
        answer: Object = response.json()
        return answer

    def get(self, path: str) -> Object:
        """One object, or a list."""
        return self.ask("GET", path)

    def find(self, path: str) -> Object | None:
        """One object; None when there is none."""
        try:
            return self.get(path)
        except Refused as no:
            if no.code != 404:
                raise
            return None

    def items(self, path: str, **query: Any) -> list[Object]:
        """What a list holds."""
        found: list[Object] = self.ask("GET", path, **query)["items"]
        return found

    def create(self, path: str, body: Object) -> Object:
        """POST."""
        return self.ask("POST", path, body)

    def merge(self, path: str, body: Object) -> Object:
        """A JSON merge patch."""
        return self.ask("PATCH", path, body, MERGE_PATCH)

    def delete(self, path: str, **query: Any) -> Object:
        """DELETE."""
        return self.ask("DELETE", path, **query)

    def wait(self, path: str, until: Callable[[Object], Any], seconds: float = 60) -> Object:
        """The object at `path` once `until` says yes to it. Raises AssertionError, with the object, after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            found = None
            try:
                found = self.find(path)
            except Refused as no:
                if no.code not in (429, 503):  # a new resource's storage is not ready yet
                    raise
            if found is not None and until(found):
                return found
            assert time.monotonic() < end, f"waited in vain for {path}: {found}"
            time.sleep(0.05)

    def wait_gone(self, path: str, seconds: float = 60) -> None:
        """Until there is nothing at `path`."""
        end = time.monotonic() + seconds
        while self.find(path) is not None:
            assert time.monotonic() < end, f"still there: {path}"
            time.sleep(0.05)


def _told(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]


def wait_for(what: Callable[[], Any], seconds: float = 60) -> Any:
    """What `what` gives once it gives something. Raises AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


def condition(found: Object, name: str) -> str:
    """Status of an object's condition; empty where it has none."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(each["status"]) for each in conditions if each["type"] == name), "")
