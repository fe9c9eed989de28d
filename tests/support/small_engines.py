"""Small test servers of the families that cannot run here: replies as each engine's own schema has them.

    with small_engine(OLLAMA) as server:
        ...  # server.url, server.seen

One server keeps every prompt it has seen, as a prefix cache does, and tells of it what its family tells. A test changes
a family with `dataclasses.replace`: another `usage`, a missing route, a salt that is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import web

from tests.support.serving import serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TEXT = "The ferry leaves at noon from the east pier and comes back before the lamps along the harbour are lit."
TEMPLATE_TOKENS = 4  # of a chat template, before the prompt's own words
Body = dict[str, Any]


@dataclass
class Totals:
    """What a server has counted since its start."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    requests: int = 0
    started: int = 0  # of another server it is another number
    drafted: int = 0
    accepted: int = 0
    running: int = 0  # requests of others at work now


@dataclass(frozen=True)
class Speaks:
    """How a family speaks. `usage` is given path, prompt, cached and output tokens; None leaves it out."""

    name: str
    routes: Mapping[str, Any]  # discovery: JSON by path, "POST /path" where it is no GET
    usage: Callable[[str, int, int, int], Body | None]
    salt_field: str | None = None
    cache_flag: str | None = None  # the field that forbids reading from the cache when it is false
    refuses: Callable[[str, Body], str | None] = lambda path, body: None  # the words of a 400
    metrics_path: str = "/metrics"
    metrics: Callable[[Totals], str] | None = None
    start_header: str | None = None  # of the totals
    timings: Callable[[int, int, int], Body | None] = lambda prompt, cached, output: None
    reasoning_field: str | None = None  # where the thinking stands, if this model thinks
    beside: Callable[[Body, int, int, int], Body] = lambda body, prompt, cached, output: {}  # what else is told
    draft: tuple[int, int] | None = None  # drafted and accepted tokens of a reply, where a draft runs
    decides: tuple[str, ...] = ()  # the fields that tell what came from the cache
    lie: Callable[[int, int], int] = lambda prompt, cached: cached  # the cached tokens that are told
    twist: Callable[[Body], Body] = lambda told: told  # what becomes of the counts of a reply
    page: str | None = None  # shown at every address that is not there, with 200
    sees: Callable[[list[str]], list[str]] = lambda words: words  # what of a prompt its cache goes by


@dataclass
class SmallEngine:
    """A running server. `seen` holds path and body of every generation."""

    speaks: Speaks
    url: str = ""
    totals: Totals = field(default_factory=Totals)
    seen: list[tuple[str, Body]] = field(default_factory=list)
    _kept: list[tuple[str, list[str]]] = field(default_factory=list)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=2**24)
        for route, value in self.speaks.routes.items():
            method, _, path = route.rpartition(" ")
            app.router.add_route(method or "GET", path, _answer(value, self.totals))
        if self.speaks.metrics is not None:
            app.router.add_get(self.speaks.metrics_path, self._metrics)
        for path in (CHAT, COMPLETIONS):
            app.router.add_post(path, self._generate)
        if self.speaks.page is not None:
            app.router.add_get("/{rest:.*}", self._page)
        return app

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=self.speaks.page, content_type="text/html")

    async def _metrics(self, request: web.Request) -> web.Response:
        assert self.speaks.metrics is not None
        text, start = self.speaks.metrics(self.totals), self.speaks.start_header
        headers = {} if start is None else {start: str(8127001 + self.totals.started)}
        return web.Response(text=text, content_type="text/plain", headers=headers)

    def _reused(self, salt: str, words: list[str]) -> int:
        """How many leading tokens a prompt shares with one kept under the same salt; its last one is always new."""
        longest = 0
        for kept_salt, kept in self._kept:
            if kept_salt == salt:
                same = next((at for at, pair in enumerate(zip(kept, words, strict=False)) if pair[0] != pair[1]), None)
                longest = max(longest, min(len(kept), len(words)) if same is None else same)
        return min(longest, len(words) - 1)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append((request.path, body))
        words = _words(request.path, body)
        refused = self.speaks.refuses(request.path, body)
        if refused is not None:
            return web.json_response({"object": "error", "message": refused, "code": 400}, status=400)
        salt = str(body.get(self.speaks.salt_field)) if self.speaks.salt_field is not None else ""
        forbidden = self.speaks.cache_flag is not None and body.get(self.speaks.cache_flag) is False
        known = self.speaks.sees(words)
        cached = 0 if forbidden else self._reused(salt, known)
        self._kept.append((salt, known))
        said = TEXT.split()[: body.get("max_tokens") or 200]
        self.totals.prompt += len(words)
        self.totals.cached += cached
        self.totals.output += len(said)
        self.totals.requests += 1
        if self.speaks.draft is not None:
            self.totals.drafted, self.totals.accepted = (
                total + more
                for total, more in zip((self.totals.drafted, self.totals.accepted), self.speaks.draft, strict=True)
            )
        told = self._told(request.path, body, (len(words), self.speaks.lie(len(words), cached), len(said)))
        if body.get("stream"):
            return await self._stream(request, said, told)
        part = {"message": {"role": "assistant", "content": " ".join(said)}}
        if self.speaks.reasoning_field is not None:
            part["message"][self.speaks.reasoning_field] = "Let me think."
        choice = {"index": 0, "finish_reason": "stop"} | (part if request.path == CHAT else {"text": " ".join(said)})
        return web.json_response({"id": f"r-{self.totals.requests}", "choices": [choice], **told})

    def _told(self, path: str, body: Body, counts: tuple[int, int, int]) -> Body:
        """What a reply tells of itself."""
        speaks = self.speaks
        timings = speaks.timings(*counts)
        if timings is not None and speaks.draft is not None:
            timings |= dict(zip(("draft_n", "draft_n_accepted"), speaks.draft, strict=True))
        told = {"usage": speaks.usage(path, *counts), "timings": timings, **speaks.beside(body, *counts)}
        return speaks.twist({name: value for name, value in told.items() if value is not None})

    async def _stream(self, request: web.Request, said: list[str], told: Body) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)

        async def send(piece: Body) -> None:
            await response.write(
                b"data: " + json.dumps({"id": f"r-{self.totals.requests}", **piece}).encode() + b"\n\n"
            )

        def choice(text: str, finish: str | None) -> Body:
            part = {"delta": {"content": text}} if request.path == CHAT else {"text": text}
            return {"choices": [{"index": 0, "finish_reason": finish, **part}]}

        if self.speaks.reasoning_field is not None:
            delta = {self.speaks.reasoning_field: "Let me think."}
            await send({"choices": [{"index": 0, "finish_reason": None, "delta": delta}]})
        await send(choice(" ".join(said), None))
        await send(choice("", "stop"))
        await send({"choices": [], **told})
        await response.write(b"data: [DONE]\n\n")
        return response


def _answer(value: Any, totals: Totals) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A route's JSON, made of the totals at that moment where it is a function of them."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(value(totals) if callable(value) else value)

    return answer


def _words(path: str, body: Body) -> list[str]:
    """A prompt's tokens: its words, behind those of the template where it is a chat."""
    if path == COMPLETIONS:
        return str(body["prompt"]).split()
    said = [word for message in body["messages"] for word in (message["role"], *str(message["content"]).split())]
    return said + ["<end>"] * TEMPLATE_TOKENS


_STARTS = count()


@contextmanager
def small_engine(speaks: Speaks) -> Iterator[SmallEngine]:
    """A server that speaks so, for as long as the block lasts."""
    engine = SmallEngine(speaks, totals=Totals(started=next(_STARTS)))
    with serving(engine.application()) as engine.url:
        yield engine


def plain_usage(path: str, prompt: int, cached: int, output: int) -> Body:
    """Usage without a word on the cache."""
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def counted_usage(path: str, prompt: int, cached: int, output: int) -> Body:
    """Usage with the cached tokens where OpenAI has them."""
    return {**plain_usage(path, prompt, cached, output), "prompt_tokens_details": {"cached_tokens": cached}}


def models(owner: str, *names: str) -> Body:
    """A /v1/models listing."""
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": owner} for name in names]}


DIGEST = "a80c4f17acd55265feec403c7aef86be0c25983ab279d83f3bcd3abbcb5b8b72"
OLLAMA = Speaks(
    name="ollama",
    routes={
        "/v1/models": models("library", "llama3.2:latest"),
        "/api/version": {"version": "0.34.0"},
        "/api/tags": {
            "models": [
                {
                    "name": "llama3.2:latest",
                    "model": "llama3.2:latest",
                    "size": 2019393189,
                    "digest": DIGEST,
                    "details": {
                        "format": "gguf",
                        "family": "llama",
                        "parameter_size": "3.2B",
                        "quantization_level": "Q4_K_M",
                    },
                }
            ]
        },
        "/api/ps": {"models": []},
        "POST /api/show": {"parameters": 'stop    "<|eot_id|>"\nnum_ctx    4096', "template": "{{ .Prompt }}"},
    },
    usage=counted_usage,
    reasoning_field="reasoning",
)
OLD_OLLAMA = Speaks(
    name="ollama",
    routes={**OLLAMA.routes, "/api/version": {"version": "0.12.3"}},
    usage=plain_usage,
)


def _forbids_extra(path: str, body: Body) -> str | None:
    known = {"model", "prompt", "messages", "max_tokens", "temperature", "n", "seed", "stream", "stream_options",
             "ignore_eos", "stop", "top_p"} | ({"cache_salt"} if path == CHAT else set())  # fmt: skip
    extra = sorted(set(body) - known)
    if extra:
        return (
            f"[{{'type': 'extra_forbidden', 'loc': ('body', '{extra[0]}'), 'msg': 'Extra inputs are not permitted'}}]"
        )
    if body.get("stream_options") is not None and not body.get("stream"):
        return "stream_options can only be set if stream is true"
    return None


def trtllm_metrics(totals: Totals) -> str:
    """A total with labels is left out until something raises it."""
    label = '{engine_type="trtllm",model_name="nemotron"}'
    lines = [
        f"# TYPE trtllm_prompt_tokens_total counter\ntrtllm_prompt_tokens_total{label} {totals.prompt}",
        f"# TYPE trtllm_generation_tokens_total counter\ntrtllm_generation_tokens_total{label} {totals.output}",
        f"# TYPE trtllm_num_requests_running gauge\ntrtllm_num_requests_running{label} {totals.running}.0",
        f"# TYPE trtllm_num_requests_waiting gauge\ntrtllm_num_requests_waiting{label} 0.0",
    ]
    if totals.cached:
        name = "trtllm_prompt_cached_tokens_total"
        lines.append(f"# TYPE {name} counter\n{name}{label} {totals.cached}")
    return "\n".join(lines) + "\n" if totals.requests else ""


TRTLLM = Speaks(
    name="tensorrt-llm",
    routes={"/v1/models": models("tensorrt_llm", "nemotron"), "/version": {"version": "1.2.0"}, "/metrics": []},
    usage=counted_usage,
    salt_field="cache_salt",
    refuses=_forbids_extra,
    metrics_path="/prometheus/metrics",
    metrics=trtllm_metrics,
    reasoning_field="reasoning_content",
)


def lmdeploy_metrics(totals: Totals) -> str:
    """As LMDeploy 0.16 exports them."""
    label = '{engine="0",model_name="internlm"}'
    return (
        f"# TYPE lmdeploy:prompt_tokens_total counter\nlmdeploy:prompt_tokens_total{label} {totals.prompt}\n"
        f"# TYPE lmdeploy:cached_tokens_total counter\nlmdeploy:cached_tokens_total{label} {totals.cached}\n"
        f"# TYPE lmdeploy:generation_tokens_total counter\nlmdeploy:generation_tokens_total{label} {totals.output}\n"
        f"# TYPE lmdeploy:num_requests_running gauge\nlmdeploy:num_requests_running{label} {totals.running}.0\n"
        f"# TYPE lmdeploy:num_requests_waiting gauge\nlmdeploy:num_requests_waiting{label} 0.0\n"
        f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {1764480000 + totals.started}\n"
    )


def lmdeploy_usage(path: str, prompt: int, cached: int, output: int) -> Body:
    """The chat route alone tells cached tokens."""
    return (counted_usage if path == CHAT else plain_usage)(path, prompt, cached, output)


LMDEPLOY = Speaks(
    name="lmdeploy",
    routes={"/v1/models": models("lmdeploy", "internlm")},
    usage=lmdeploy_usage,
    metrics=lmdeploy_metrics,
    reasoning_field="reasoning_content",
)


def tgi_metrics(totals: Totals) -> str:
    """Its token counts are sums of histograms."""
    return (
        f"# TYPE tgi_batch_current_size gauge\ntgi_batch_current_size {totals.running}\n"
        "# TYPE tgi_queue_size gauge\ntgi_queue_size 0\n"
        "# TYPE tgi_request_generated_tokens histogram\n"
        f'tgi_request_generated_tokens_bucket{{le="+Inf"}} {totals.requests}\n'
        f"tgi_request_generated_tokens_sum {totals.output}\ntgi_request_generated_tokens_count {totals.requests}\n"
    )


TGI = Speaks(
    name="tgi",
    routes={
        "/v1/models": models("bigscience/bloom", "bigscience/bloom"),
        "/info": {
            "model_id": "bigscience/bloom",
            "model_sha": "e985a63cdc139290c5f700ff1929f0b5942cced2",
            "model_pipeline_tag": "text-generation",
            "max_input_tokens": 1024,
            "max_total_tokens": 2048,
            "router": "text-generation-router",
            "version": "3.3.4",
            "sha": "9f18f4c00627e1a0ad696b6774e5ad7ca8f4261c",
            "docker_label": None,
        },
    },
    usage=plain_usage,
    metrics=tgi_metrics,
)
KOBOLD = Speaks(
    name="koboldcpp",
    routes={
        "/v1/models": models("koboldcpp", "koboldcpp/llama-3"),
        "/api/extra/version": {"result": "KoboldCpp", "version": "1.119", "protected": False, "txt2img": False},
        "/api/extra/perf": lambda totals: {"last_process": 3.1, "queue": 0, "idle": 0 if totals.running else 1},
        "/api/extra/true_max_context_length": {"value": 8192},
        "/props": {
            "chat_template": "{{ x }}",
            "id": 0,
            "total_slots": 1,
            "default_generation_settings": {"n_ctx": 8192},
        },
        "/api/version": {"version": "0.7.0"},
        "/api/tags": {"models": [{"name": "koboldcpp", "model": "koboldcpp/llama-3:latest", "digest": "b5dc"}]},
    },
    usage=plain_usage,
)


def llama_metrics(totals: Totals) -> str:
    """As ik_llama.cpp and older llama-server print them: doubles with six digits, nothing of what was cached."""
    figures = {
        "prompt_tokens_total": ("counter", totals.prompt - totals.cached),
        "tokens_predicted_total": ("counter", totals.output),
        "kv_cache_usage_ratio": ("gauge", 0.25),
        "requests_processing": ("gauge", totals.running),
        "requests_deferred": ("gauge", 0),
    }
    return "".join(
        f"# HELP llamacpp:{name} x.\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value:g}\n"
        for name, (kind, value) in figures.items()
    )


def ik_timings(prompt: int, cached: int, output: int) -> Body:
    """Without `cache_n`; `n_past` is where the slot stands after the answer."""
    return {
        "prompt_n": prompt - cached,
        "prompt_ms": 2.5 * (prompt - cached),
        "predicted_n": output,
        "predicted_ms": 30.0 * output,
        "n_ctx": 16384,
        "n_past": prompt + output,
    }


IK_SETTINGS: Body = {"n_ctx": 16384, "n_predict": -1, "model": "m", "seed": 7, "temperature": 0.8, "top_k": 40}
IK_LLAMA = Speaks(
    name="ik_llama.cpp",
    routes={
        "/v1/models": models("llamacpp", "deepseek-q4"),
        "/props": {
            "system_prompt": "",
            "model_alias": "deepseek-q4",
            "model_path": "/models/deepseek-q4.gguf",
            "default_generation_settings": {**IK_SETTINGS, "stop": [], "stream": True, "samplers": ["top_k", "min_p"]},
            "total_slots": 1,
            "model_name": "deepseek-q4.gguf",
            "chat_template": "{{ x }}",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "modalities": {"vision": False, "audio": False},
            "n_ctx": 16384,
        },
        "/slots": lambda totals: [{**IK_SETTINGS, "id": 0, "id_task": -1, "state": totals.running, "prompt": ""}],
        "/health": {"status": "ok", "slots_idle": 1, "slots_processing": 0},
    },
    usage=plain_usage,
    cache_flag="cache_prompt",
    metrics=llama_metrics,
    start_header="Process-Start-Time-Unix",
    timings=ik_timings,
    reasoning_field="reasoning_content",
)
