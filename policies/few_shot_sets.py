"""Writes the packaged few-shot sets: demo.jsonl, short.jsonl, four.jsonl.

    python policies/few_shot_sets.py

The cases are for the 270M base model, which has no chat template: /v1/completions, a few worked examples, then the
question. Which examples stand before a question was chosen on the real server, so that a healthy one answers with room
to spare: the least distance between the first and second token anywhere in an answer is 1 nat or more, with KV caches
in f16 and in q8_0, and every answer is wrong when the rope base is 10000.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT / "controller" / "prefillgate" / "replay" / "sets", ROOT / "policies")
MODEL = "gemma-3-270m"

LOG_FIELDS = ("time", "level", "service", "message", "code")
LOG_EXAMPLES = (
    ("08:15:02", "ERROR", "payments", "card declined by issuer", 402),
    ("08:15:09", "INFO", "gateway", "upstream connection restored", 200),
    ("08:16:44", "WARN", "search", "index refresh took too long", 504),
    ("08:17:30", "ERROR", "mailer", "recipient address rejected", 550),
    ("08:18:05", "INFO", "billing", "invoice sent to customer", 201),
    ("08:19:51", "WARN", "storage", "disk usage above threshold", 507),
    ("08:21:13", "ERROR", "login", "session token has expired", 401),
    ("08:22:47", "INFO", "backup", "snapshot copied to archive", 200),
    ("08:24:38", "ERROR", "catalog", "product page not found", 404),
    ("08:25:20", "WARN", "queue", "consumer is falling behind", 429),
)
LOG_QUESTIONS = (
    (("06:12:35", "ERROR", "printer", "paper tray is empty", 503), (3, 6, 2, 7)),
    (("07:40:11", "WARN", "billing", "exchange rate is outdated", 424), (9, 2, 3, 7)),
    (("09:31:07", "ERROR", "orders", "database connection refused", 503), (0, 4, 1, 8)),
    (("10:02:45", "INFO", "deploy", "new release is serving traffic", 200), (1, 3, 0, 7)),
    (("10:14:26", "ERROR", "checkout", "payment provider timed out", 504), (8, 1, 3, 4)),
    (("11:05:59", "WARN", "cache", "memory limit almost reached", 507), (2, 3, 9, 0)),
    (("14:26:41", "INFO", "webhooks", "delivery accepted by receiver", 202), (1, 3, 0, 7)),
    (("15:58:29", "WARN", "proxy", "client closed connection early", 499), (5, 0, 9, 3)),
    (("17:33:48", "ERROR", "reports", "template could not be rendered", 500), (0, 4, 1, 8)),
    (("19:45:56", "ERROR", "shipping", "carrier returned no label", 424), (8, 1, 3, 4)),
    (("20:12:09", "INFO", "search", "new documents were indexed", 200), (4, 0, 7, 5)),
    (("20:55:31", "ERROR", "mailer", "server refused the message", 554), (0, 4, 1, 8)),
    (("21:49:40", "ERROR", "gateway", "certificate has expired today", 495), (5, 2, 6, 3)),
    (("22:38:05", "WARN", "storage", "replica lags behind primary", 507), (9, 0, 2, 3)),
    (("23:01:52", "ERROR", "login", "account is locked for review", 423), (3, 1, 8, 4)),
    (("23:27:44", "INFO", "catalog", "price list was imported", 200), (4, 0, 7, 3)),
)

TRACE_EXAMPLES = (
    ("server/api/users.py", 142, "load", "KeyError: 'user'"),
    ("worker/jobs/mail.py", 318, "send", "ConnectionRefusedError: port 25"),
    ("common/text/parse.py", 107, "number", "ValueError: invalid literal"),
    ("site/web/forms.py", 230, "clean", "AttributeError: NoneType has no strip"),
    ("admin/tools/sync.py", 164, "copy", "PermissionError: read only"),
    ("store/db/pool.py", 291, "take", "TimeoutError: no free connection"),
    ("store/shop/cart.py", 155, "total", "ZeroDivisionError: division by zero"),
)
TRACE_QUESTIONS = (
    (("server/billing/tax.py", 183, "rate", "KeyError: 'NO'"), (6, 3, 5, 0, 1)),
    (("site/app/views.py", 312, "render", "AttributeError: NoneType has no title"), (1, 4, 0, 2, 5)),
    (("worker/data/load.py", 147, "rows", "FileNotFoundError: no such file"), (1, 4, 5, 6, 3)),
    (("server/auth/token.py", 175, "check", "KeyError: 'exp'"), (4, 2, 5, 0, 1)),
    (("site/img/scale.py", 138, "ratio", "ZeroDivisionError: division by zero"), (6, 4, 0, 3, 1)),
    (("worker/queue/next.py", 204, "pop", "IndexError: pop from empty list"), (2, 1, 3, 0, 4)),
    (("worker/bot/reply.py", 188, "post", "TimeoutError: timed out"), (4, 0, 3, 6, 2)),
    (("common/stats/mean.py", 216, "mean", "ZeroDivisionError: division by zero"), (3, 4, 6, 5, 2)),
)
#: The cases of four.jsonl: no two begin with the same example, so none can ride on another's prefix.
FOUR = ("trace-views-312", "trace-token-175", "trace-next-204", "trace-mean-216")

LogEntry = tuple[str, str, str, str, int]
Trace = tuple[str, int, str, str]


def log_line(entry: LogEntry) -> str:
    time, level, service, message, code = entry
    return f"Log: {time} {level} {service}: {message} ({code})\nJSON:"


def log_case(entry: LogEntry, examples: tuple[int, ...]) -> dict[str, Any]:
    shots = [LOG_EXAMPLES[place] for place in examples]
    answered = "".join(f"{log_line(shot)} {json.dumps(dict(zip(LOG_FIELDS, shot, strict=True)))}\n\n" for shot in shots)
    expected = {"json": dict(zip(LOG_FIELDS, entry, strict=True))}
    return line(f"log-{entry[2]}-{entry[4]}", answered + log_line(entry), 64, expected)


def traceback(trace: Trace) -> str:
    file, number, function, error = trace
    return f'Traceback:\n  File "{file}", line {number}, in {function}\n{error}\nLocation:'


def trace_case(trace: Trace, examples: tuple[int, ...]) -> dict[str, Any]:
    shots = [TRACE_EXAMPLES[place] for place in examples]
    answered = "".join(f"{traceback(shot)} {shot[0]}:{shot[1]}\n\n" for shot in shots)
    case_id = f"trace-{Path(trace[0]).stem}-{trace[1]}"
    return line(case_id, answered + traceback(trace), 24, {"exact": f"{trace[0]}:{trace[1]}"})


def line(case_id: str, prompt: str, max_tokens: int, expect: dict[str, Any]) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stop": ["\n"]}
    return {
        "custom_id": case_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": body,
        "prefillgate": {"expect": expect},
    }


def sets() -> dict[str, bytes]:
    """The bytes of each file, by name."""
    demo = [log_case(entry, examples) for entry, examples in LOG_QUESTIONS]
    short = [trace_case(trace, examples) for trace, examples in TRACE_QUESTIONS]
    four = [case for case in short if case["custom_id"] in FOUR]
    named = {"demo.jsonl": demo, "short.jsonl": short, "four.jsonl": four}
    return {name: "".join(json.dumps(case) + "\n" for case in cases).encode() for name, cases in named.items()}


def main() -> None:
    for name, text in sets().items():
        for folder in FOLDERS:
            (folder / name).write_bytes(text)


if __name__ == "__main__":
    main()
