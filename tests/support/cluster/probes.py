"""Probes of a container, as a kubelet makes them: over HTTP and TCP, at the pod's own address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from tests.support.cluster.api import Object


class Probe:
    """One probe of one life of a container. `told` is called with each new opinion."""

    def __init__(self, spec: Object, container: Object, address: str, told: Callable[[bool], None]) -> None:
        self._spec, self._container, self._address, self._told = spec, container, address, told

    async def run(self) -> None:
        """Ask until cancelled, first after the initial delay. Says no as often as the threshold is passed."""
        spec = self._spec
        needed = {True: spec.get("successThreshold", 1), False: spec.get("failureThreshold", 3)}
        await asyncio.sleep(spec.get("initialDelaySeconds", 0))
        streak, last = 0, None
        no_reuse = httpx.Limits(max_keepalive_connections=0)  # as a kubelet
        async with httpx.AsyncClient(verify=False, trust_env=False, limits=no_reuse) as client:
            while True:
                answer = await self._ask(client)
                streak = streak + 1 if answer is last else 1
                last = answer
                if streak >= needed[answer]:
                    self._told(answer)
                await asyncio.sleep(spec.get("periodSeconds", 10))

    async def _ask(self, client: httpx.AsyncClient) -> bool:
        seconds = self._spec.get("timeoutSeconds", 1)
        if "tcpSocket" in self._spec:
            return await self._connects(self._port(self._spec["tcpSocket"]["port"]), seconds)
        asked = self._spec["httpGet"]
        place = f"{self._address}:{self._port(asked['port'])}"
        url = f"{asked.get('scheme', 'HTTP').lower()}://{place}{asked.get('path', '/')}"
        headers = {header["name"]: header["value"] for header in asked.get("httpHeaders", [])}
        try:
            response = await client.get(url, headers=headers, timeout=seconds)
        except httpx.HTTPError:
            return False
        return 200 <= response.status_code < 400

    async def _connects(self, port: int, seconds: float) -> bool:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(self._address, port), seconds)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    def _port(self, told: Any) -> int:
        """A number, or the name of one of the container's ports."""
        if isinstance(told, int):
            return told
        return next(int(port["containerPort"]) for port in self._container["ports"] if port.get("name") == told)
