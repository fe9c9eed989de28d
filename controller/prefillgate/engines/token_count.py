"""How many tokens a prompt has, asked of llama-server's tokenizer before anything is generated."""

from __future__ import annotations

import json

from prefillgate.engines.base import Body, PreparedRequest
from prefillgate.engines.common import CHAT
from prefillgate.engines.http import HttpLane, encode_body

CHAT_TOKENS = f"{CHAT}/input_tokens"  # counts messages as the chat template writes them, tools included
TOKENIZE = "/tokenize"


async def count_prompt_tokens(lane: HttpLane, request: PreparedRequest) -> int | None:
    """Tokens of the prompt of `request` as the server reads it; None where it does not tell (an older build, a prompt
    that is no text, a server that is away: whoever sends the request is told why)."""
    if request.path == CHAT:
        answer = await posted_object(lane, CHAT_TOKENS, request.body)
        found = None if answer is None else answer.get("input_tokens")
    else:
        prompt = request.body.get("prompt")
        if not isinstance(prompt, str):
            return None
        answer = await posted_object(lane, TOKENIZE, {"content": prompt, "add_special": True, "parse_special": True})
        tokens = None if answer is None else answer.get("tokens")
        found = len(tokens) if isinstance(tokens, list) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


async def posted_object(lane: HttpLane, path: str, body: Body) -> Body | None:
    """The JSON object that answers a small question with a body, or None for anything else."""
    chunks: list[bytes] = []

    def take(chunk: bytes) -> bool:
        chunks.append(chunk)
        return False

    sent = await lane.post(path, encode_body(body), lane.options.read_timeout_seconds, take)
    if sent.failure is not None:
        return None
    try:
        answer = json.loads(b"".join(chunks))
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
