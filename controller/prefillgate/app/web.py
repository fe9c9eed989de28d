"""What the process tells over HTTP: /metrics for Prometheus, /healthz and /readyz for the kubelet. No TLS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from prefillgate.api.errors import InputError, Problem
from prefillgate.app.metrics import Metrics
from prefillgate.app.settings import Listen


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether all is well, and a line for each thing that is looked at."""

    good: bool
    lines: tuple[str, ...]

    @property
    def response(self) -> web.Response:
        return web.Response(status=200 if self.good else 503, text="\n".join(self.lines) + "\n")


Ask = Callable[[], Answer]
Stop = Callable[[], Awaitable[None]]


async def serve(listen: Listen, metrics: Metrics, health: Ask, ready: Ask) -> tuple[str, Stop]:
    """Serve until the second of what is returned is awaited; the first is the address. Raises InputError where it
    cannot listen there."""

    async def healthz(_: web.Request) -> web.StreamResponse:
        return health().response

    async def readyz(_: web.Request) -> web.StreamResponse:
        return ready().response

    app = web.Application(client_max_size=1024)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", make_aiohttp_handler(registry=metrics.registry))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, listen.host, listen.port).start()
    except OSError as error:
        await runner.cleanup()
        where = f"{listen.host}:{listen.port}"
        raise InputError(Problem("", "--listen", f"cannot listen on {where}: {error.strerror or error}")) from error
    host, port = runner.addresses[0][:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}", runner.cleanup
