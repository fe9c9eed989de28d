"""`prefillgate simulate`: serve a model that is not there, with planted faults."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefillgate.cli.defaults import default_option
from prefillgate.cli.numbers import NumberRange

if TYPE_CHECKING:
    import logging

    from prefillgate.simulate.settings import Settings


_TRUTH_HELP = """Truth lines (JSON, null for what is unknown or never happened):
  request, ordinal, id, path, epoch    number of arrival, number among the counted ones, and where it came in
  prompt_sha256, prompt_tokens, cached_tokens, processed_tokens, output_tokens, n    true counts
  prefill, fresh, state, outcome       the prefill it rides on, whether it made it, its hidden state, good or bad
  cache_prompt, knob_honoured, temperature, seed, stream, finish_reason, text    as asked and as answered
  started_at, ended_at, prefill_ms, decode_ms    seconds since 1970, true milliseconds
  status, delivered, lies, reported    HTTP status, complete or the fault that kept it back, what was told instead
"""


def _fault_help() -> str:
    from prefillgate.simulate.faults import FAULTS, allowed

    width = max(len(fault.name) for fault in FAULTS) + 2
    lines = [f"  {fault.name:<{width}}{fault.kind}: {fault.meaning}" for fault in FAULTS]
    kinds = {fault.kind: allowed(fault) for fault in FAULTS}
    return "\n".join(["Faults:", *lines, "", "Values:", *(f"  {kind}: {words}" for kind, words in kinds.items())])


class _CommandWithFaults(click.Command):
    """Prints the table of faults below the options, unwrapped."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write(f"{_fault_help()}\n\n{_TRUTH_HELP}")


@click.command("simulate", cls=_CommandWithFaults)
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port to listen on; 0 takes any free one.")
@default_option("--host", default="127.0.0.1", help="Address to listen on.")
@default_option("--seed", default=0, help="Equal seed and requests give equal answers at any speed.")
@click.option(
    "--text-seed",
    type=int,
    help="Seed of the answers' wording alone: two servers that share it say the same though their faults differ.",
)
@default_option(
    "--time-scale",
    type=NumberRange(0, 100),
    default=1.0,
    help="Sleep this many times the reported times; 0 never sleeps, reports stay the same.",
)
@click.option("--fault", "faults", multiple=True, metavar="NAME=VALUE", help="Plant a fault (see below); repeatable.")
@click.option(
    "--truth",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append one JSON line a request with what really happened.",
)
@click.option(
    "--answers",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="JSON lines with match, text, and optionally bad_text, reasoning, tool_calls.",
)
@default_option("--bad-text", default="VERDICT: LGTM", help="Answer in a bad state where the answers file has none.")
@click.option("--count-match", default="", help="Ordinals of faults count only prompts that contain this text.")
@default_option(
    "--dialect",
    type=click.Choice(["llama", "openai", "vllm", "sglang"]),
    default="llama",
    help="llama: llama-server's API. openai: only /v1 routes, no timings, no cache_prompt, usage with cached_tokens. "
    "vllm, sglang: theirs, with cache_salt, /metrics and what else they tell.",
)
@default_option(
    "--model",
    "models",
    multiple=True,
    default=("simulated-7b-q8_0.gguf",),
    help="Name of a served model; repeatable. All are one model.",
)
@default_option("--build-info", default="b11549-simulated", help="What it tells as its build.")
@default_option("--slots", type=click.IntRange(1, 64), default=4, help="Generations at once.")
@default_option("--ctx-size", type=click.IntRange(16, 10_000_000), default=32_768, help="Tokens a slot holds.")
@default_option(
    "--cache-ram", type=click.IntRange(0, 1_000_000), default=8192, help="Host cache in MiB (20 tokens each); 0 is off."
)
@default_option(
    "--reprocess-tokens",
    type=click.IntRange(1, 1000),
    default=1,
    help="Tokens that are processed again even of a prompt that is cached whole.",
)
@click.option(
    "--swa", is_flag=True, help="Sliding window: only a prompt that holds all but the end of an earlier one reuses it."
)
@default_option(
    "--prefill-ms", type=NumberRange(0.001, 10_000), default=4.0, help="Per processed token, more on long prompts."
)
@default_option(
    "--decode-ms", type=NumberRange(0.001, 10_000), default=30.0, help="Per output token, more on long prompts."
)
@default_option("--noise-cv", type=NumberRange(0, 1), default=0.02, help="Noise of a request's times, as a share.")
@default_option(
    "--ping-seconds", type=NumberRange(0.05, 3600), default=30.0, help="A comment line this often while a stream waits."
)
@click.option("--api-key-env", metavar="VAR", help="Require the key that this environment variable holds.")
@click.option(
    "--ready-file", type=click.Path(path_type=Path, dir_okay=False), help="Written with the address once it listens."
)
def command(
    port: int, host: str, faults: tuple[str, ...], ready_file: Path | None, seed: int, **options: object
) -> None:
    """Serve the HTTP API of llama-server, vLLM or SGLang with a real prompt-cache model and no model.

    Prompts are tokenized, cached in slots and reused by common prefix as llama-server does; answers come from a
    file or are made up. Planted faults make it fail in known ways, and the truth file tells what really happened.

    \b
    prefillgate simulate --port 8081 --fault bad-prefill=0.3 --truth truth.jsonl
    prefillgate simulate --port 8082 --fault cached-zero=1 --fault 'cut-stream=#3,5-7'
    """
    import asyncio

    from prefillgate.simulate.answers import AnswersError
    from prefillgate.simulate.faults import FaultError, parse_faults
    from prefillgate.simulate.serve import Listen, serve, write_ready_file

    def ready(url: str) -> None:
        click.echo(f"listening on {url}")
        sys.stdout.flush()
        if ready_file is not None:
            write_ready_file(ready_file, url)

    troubles = _troubles()
    try:
        planted = parse_faults(faults, seed)
        asyncio.run(serve(_settings(seed, options), planted, Listen(host, port, ready, troubles)))
    except (FaultError, AnswersError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"cannot start: {error}") from None


def _troubles() -> logging.Logger:
    """Says each kind of request that went wrong in one line, the first time, and never what it held."""
    from prefillgate.cli.outcome import say
    from prefillgate.engines.server_troubles import Troubles, troubles_logger

    told: set[str] = set()

    def once(what: str) -> None:
        if what not in told:
            told.add(what)
            say(f"{what}; more of its kind are not told", "request_failed", "warning")

    unreadable = "a request that is no HTTP was refused"
    return troubles_logger(Troubles(lambda: once(unreadable), lambda kind: once(f"a request failed: {kind}")))


def _settings(seed: int, options: dict[str, object]) -> Settings:
    from prefillgate.simulate.settings import Dialect, Settings, Speed

    speed = Speed(**{name: options.pop(name) for name in ("prefill_ms", "decode_ms", "noise_cv", "time_scale")})  # type: ignore[arg-type]
    variable = options.pop("api_key_env")
    key = None if variable is None else os.environ.get(str(variable))
    if variable is not None and not key:
        raise click.UsageError(f"--api-key-env: the environment variable {variable} is not set")
    renamed = {"context_tokens": options.pop("ctx_size"), "host_cache_mib": options.pop("cache_ram")}
    models = [str(name) for name in options.pop("models")]  # type: ignore[attr-defined]
    renamed |= {"model": models[0], "other_models": tuple(models[1:])}
    dialect = Dialect(str(options.pop("dialect")))
    flags = {"sliding_window": options.pop("swa"), "api_key": key, "dialect": dialect, "speed": speed}
    return Settings(seed=seed, **renamed, **flags, **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    command()
