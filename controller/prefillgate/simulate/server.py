"""The HTTP side of the simulated server: routes, refusals, delivery, and its ways of failing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from prefillgate.simulate import dialects, discovery
from prefillgate.simulate.faults import Turn
from prefillgate.simulate.jobs import Began, Ended, Event, Job
from prefillgate.simulate.model import SimulatedModel
from prefillgate.simulate.request import GenerationRequest, Refused, Route, parse
from prefillgate.simulate.settings import Dialect
from prefillgate.simulate.tokens import tokenize
from prefillgate.simulate.wire import Token, encode, event

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DEATH_EXIT_CODE = 86
MAXIMUM_BODY_BYTES = 64 * 2**20
_FRAGMENT_BYTES = 7
_OPEN_PATHS = ("/health", "/v1/health")
_LOGIN_PAGE = (
    "<!doctype html><html><head><title>Sign in</title></head><body><form>Sign in to go on</form></body></html>"
)
_GATEWAY_PAGE = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
_REFUSALS: tuple[tuple[str, int, str, str], ...] = (
    ("http-429", 429, "rate_limit_error", "too many requests"),
    ("http-400", 400, "invalid_request_error", "the request was refused by the planted fault http-400"),
    ("http-413", 413, "invalid_request_error", "payload too large"),
    ("http-500", 500, "server_error", "internal error planted by the fault http-500"),
)


def _error(status: int, kind: str, message: str) -> web.Response:
    return _json({"error": {"message": message, "type": kind, "code": status}}, status)


def _json(data: object, status: int = 200) -> web.Response:
    return web.Response(body=encode(data), status=status, headers={"Content-Type": "application/json; charset=utf-8"})


def _html(page: str, status: int) -> web.Response:
    return web.Response(text=page, status=status, content_type="text/html")


class Server:
    """Handlers around one simulated model."""

    def __init__(self, model: SimulatedModel) -> None:
        self._model = model
        self._faults = model.faults
        self._settings = model.settings
        self._llama = model.settings.dialect is Dialect.LLAMA

    def application(self) -> web.Application:
        """The routes of the chosen dialect, behind the checks every request passes."""
        app = web.Application(middlewares=[self._gate], client_max_size=MAXIMUM_BODY_BYTES)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post(Route.COMPLETIONS, self._generate)
        app.router.add_post(Route.CHAT, self._generate)
        if self._llama:
            app.router.add_get("/v1/health", self._health)
            app.router.add_get("/models", self._models)
            app.router.add_post(Route.COMPLETION, self._generate)
            app.router.add_post("/tokenize", self._tokenize)
            app.router.add_post(f"{Route.CHAT}/input_tokens", self._input_tokens)
            for path, handler in (("/props", self._props), ("/slots", self._slots), ("/metrics", self._metrics)):
                app.router.add_get(path, handler)
        for path, telling in self._told().items():
            app.router.add_get(path, telling)
        app.on_response_prepare.append(self._sign)
        return app

    def _told(self) -> dict[str, Handler]:
        """Where vLLM and SGLang tell of themselves; older builds of SGLang by other names."""
        dialect = self._settings.dialect
        if dialect is Dialect.VLLM:
            return {"/version": self._version, "/metrics": self._totals}
        if dialect is not Dialect.SGLANG:
            return {}
        if self._faults.planted("old-counters"):
            return {"/get_server_info": self._server_info, "/get_load": self._get_load, "/metrics": self._totals}
        return {"/server_info": self._server_info, "/v1/loads": self._loads, "/metrics": self._totals}

    @web.middleware
    async def _gate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        key = self._settings.api_key
        sent = request.headers.get("Authorization", "").removeprefix("Bearer "), request.headers.get("X-Api-Key", "")
        if key is not None and request.path not in _OPEN_PATHS and key not in sent:
            return _error(401, "authentication_error", "Invalid API Key")
        if self._model.epoch.loading:
            return _error(503, "unavailable_error", "Loading model")
        try:
            return await handler(request)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
            return _error(404, "not_found_error", "File Not Found")
        except Refused as refused:
            return _json(refused.body, refused.status)

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = "llama.cpp" if self._llama else "uvicorn"

    async def _health(self, request: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def _models(self, request: web.Request) -> web.Response:
        told = dialects if self._settings.dialect.salted else discovery
        return _json(told.models(self._settings))

    async def _version(self, request: web.Request) -> web.Response:
        return _json({"version": self._settings.build_info})

    async def _server_info(self, request: web.Request) -> web.Response:
        return _json(dialects.server_info(self._settings, self._drafts))

    async def _loads(self, request: web.Request) -> web.Response:
        return _json({"version": self._settings.build_info, "loads": dialects.loads(self._model.epoch)})

    async def _get_load(self, request: web.Request) -> web.Response:
        older = ("dp_rank", "num_reqs", "num_waiting_reqs")
        return _json([{name: rank[name] for name in older} for rank in dialects.loads(self._model.epoch)])

    async def _totals(self, request: web.Request) -> web.Response:
        if self._faults.planted("metrics-absent"):
            raise web.HTTPNotFound
        old = self._faults.planted("old-counters")
        text = dialects.metrics(self._settings.dialect, self._model.epoch, old, self._drafts)
        return web.Response(body=text.encode(), headers={"Content-Type": dialects.CONTENT_TYPE})

    @property
    def _drafts(self) -> bool:
        return self._faults.last("draft", float) is not None

    async def _props(self, request: web.Request) -> web.Response:
        if self._faults.planted("props-absent"):
            raise web.HTTPNotFound
        return _json(discovery.props(self._settings, self._model.epoch))

    async def _slots(self, request: web.Request) -> web.Response:
        if self._faults.planted("slots-absent"):
            return _error(501, "not_supported_error", "This server does not support slots endpoint.")
        return _json(discovery.slots(self._settings, self._model.epoch, self._drafts))

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._faults.planted("metrics-absent"):
            words = "This server does not support metrics endpoint. Start it with `--metrics`"
            return _error(501, "not_supported_error", words)
        epoch = self._model.epoch
        headers = {
            "Content-Type": "text/plain; version=0.0.4",
            "Process-Start-Time-Unix": str(epoch.started_microseconds),
        }
        text = discovery.metrics(epoch, self._faults.planted("old-counters"))
        return web.Response(body=text.encode(), headers=headers)

    async def _tokenize(self, request: web.Request) -> web.Response:
        self._needs_tokenizer()
        body = await request.json()
        return _json({"tokens": list(tokenize(str(body.get("content", "")), body.get("add_special") is True))})

    async def _input_tokens(self, request: web.Request) -> web.Response:
        self._needs_tokenizer()
        asked = parse(Route.CHAT, await request.read(), self._settings.slots)
        return _json({"input_tokens": len(tokenize(asked.prompt)), "object": "response.input_tokens"})

    def _needs_tokenizer(self) -> None:
        if self._faults.planted("tokenize-absent"):
            raise web.HTTPNotFound

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        route = Route(http.path)
        try:
            request = parse(route, raw, self._settings.slots)
        except Refused as refused:
            turn = self._model.next_turn(raw.decode("utf-8", "replace"))
            self._record(turn, route, refused.status, "not parsed")
            raise
        turn = self._model.next_turn(request.prompt)
        refusal = self._refuse(http, request, turn)
        if refusal is not None:
            return refusal
        job = self._model.submit(request, turn, lambda: http.transport is None or http.transport.is_closing())
        return await (self._stream(http, job) if request.stream else self._whole(http, job))

    def _record(self, turn: Turn, route: Route, status: int, delivered: str) -> None:
        line = self._model.line(turn, route)
        line.status, line.delivered = status, delivered
        self._model.record(line)

    def _refuse(self, http: web.Request, request: GenerationRequest, turn: Turn) -> web.Response | None:
        """The planted answer that comes instead of a generation, if any. Nothing is computed for it."""
        faults = self._faults
        if faults.hit("reset", turn):
            self._record(turn, request.route, 0, "reset")
            _reset(http)
            return web.Response()
        name, response = self._planted_refusal(request, turn)
        if response is not None:
            self._record(turn, request.route, response.status, name)
        return response

    def _planted_refusal(self, request: GenerationRequest, turn: Turn) -> tuple[str, web.Response | None]:
        first = self._faults.last("http-503-first", int)
        if first is not None and turn.ordinal is not None and turn.ordinal <= first:
            return "http-503-first", _retry_later(
                _error(503, "unavailable_error", "no slot available, try again later")
            )
        served = (None, self._settings.model, *self._settings.other_models)
        if self._faults.hit("unknown-model", turn) and request.body.get("model") not in served:
            words = f"The model `{request.body['model']}` does not exist."
            return "unknown-model", _error(404, "NotFoundError", words)
        for name, status, kind, message in _REFUSALS:
            if self._faults.hit(name, turn):
                response = _error(status, kind, message)
                return name, _retry_later(response) if status == 429 else response
        if self._faults.hit("http-502", turn):
            return "http-502", _html(_GATEWAY_PAGE, 502)
        if self._faults.hit("html", turn):
            return "html", _html(_LOGIN_PAGE, 200)
        return "", None

    async def _whole(self, http: web.Request, job: Job) -> web.StreamResponse:
        scribe = None
        while not isinstance(happened := await job.next(), Ended):
            scribe = happened.scribe if isinstance(happened, Began) else scribe
        if scribe is None:
            raise RuntimeError("a generation ended before it began")
        body = encode(scribe.whole(happened.outputs, happened.report))
        if job.breaks == "die-after":
            await self._die()
        if job.breaks == "error-in-stream":
            return _error(500, "server_error", "the generation failed")
        if job.breaks == "malformed":
            body = body[: len(body) // 2]
        response = web.Response(body=body, headers={"Content-Type": "application/json; charset=utf-8"})
        return await _cut(http, body) if job.breaks == "cut-stream" else response

    async def _stream(self, http: web.Request, job: Job) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        comments, fragment = self._faults.hit("comments", job.turn), self._faults.hit("fragment", job.turn)
        try:
            async for data in self._deliver(http, job):
                whole = b":\n\n" + data if comments else data
                step = _FRAGMENT_BYTES if fragment else len(whole)
                for start in range(0, len(whole), step):
                    await response.write(whole[start : start + step])
            if not job.gone():
                await response.write_eof()
        except ConnectionError:
            pass  # the client left; the job notices by itself
        return response

    async def _deliver(self, http: web.Request, job: Job) -> AsyncIterator[bytes]:
        """The stream's bytes, up to where the planted break ends it."""
        scribe, held = None, b""
        while True:
            happened = await self._next(job)
            if happened is None:
                yield b":\n\n"
            elif isinstance(happened, Began):
                scribe = happened.scribe
                held = b"".join(scribe.opening())
            elif scribe is None:
                raise RuntimeError("a token came before the prefill ended")
            elif isinstance(happened, Token):
                yield held + scribe.piece(happened)
                held = b""
                if job.breaks is not None and 2 * happened.count >= happened.of:
                    async for last in self._break(http, job.breaks):
                        yield last
                    return
            elif job.breaks is not None:  # an answer without a token
                async for last in self._break(http, job.breaks):
                    yield last
                return
            else:
                yield held + b"".join(scribe.closing(happened.outputs, happened.report))
                return

    async def _next(self, job: Job) -> Event | None:
        """What happens next, or None when a comment line is due first."""
        try:
            return await asyncio.wait_for(job.next(), self._settings.ping_seconds)
        except TimeoutError:
            return None

    async def _break(self, http: web.Request, name: str) -> AsyncIterator[bytes]:
        if name == "error-in-stream":
            error: dict[str, Any] = {"code": 500, "message": "the generation failed", "type": "server_error"}
            yield event({"error": error})
        elif name == "malformed":
            yield b'data: {"choices":[{"text":"\n\n'
        else:
            await asyncio.sleep(0.02)  # let what was written leave
            if name == "die-after":
                await self._die()
            _close(http)

    async def _die(self) -> None:
        self._model.sync()
        await asyncio.sleep(0.02)
        os._exit(DEATH_EXIT_CODE)


def _retry_later(response: web.Response) -> web.Response:
    response.headers["Retry-After"] = "1"
    return response


def _reset(http: web.Request) -> None:
    if http.transport is not None:
        http.transport.abort()


def _close(http: web.Request) -> None:
    if http.transport is not None:
        http.transport.close()


async def _cut(http: web.Request, body: bytes) -> web.StreamResponse:
    """Half of the body, though all of it was announced, then the end of the connection."""
    response = web.StreamResponse(headers={"Content-Type": "application/json; charset=utf-8"})
    response.content_length = len(body)
    await response.prepare(http)
    await response.write(body[: len(body) // 2])
    await asyncio.sleep(0.02)
    _close(http)
    return response
