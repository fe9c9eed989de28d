"""The longest pull request of the review-bot set: a typed TypeScript client of a warehouse's HTTP interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from review_bot_large import Field, added

OPERATIONS = Path(__file__).resolve().parent / "review_bot" / "operations.txt"


def operations() -> Iterator[tuple[_Call, str, list[Field], list[Field]]]:
    """Each operation of operations.txt: the call, what it is for, what it sends and what it gets."""
    lines = OPERATIONS.read_text(encoding="utf-8").splitlines()
    for head, purpose, sends, gets, fails in zip(*(lines[at::5] for at in range(5)), strict=True):
        name, method, path = head.split()
        request, answer = ([Field(item) for item in text.split()[1:]] for text in (sends, gets))
        yield _Call(name, method, path, fails.split()[1:]), purpose.strip(), request, answer


def warehouse_client() -> str:
    """A schema, a method and a test for every operation, and the transport they share."""
    parts = [added("src/transport.ts", TRANSPORT), added("test/recorded.ts", RECORDED)]
    for call, purpose, request, answer in operations():
        source, test = _source(call, purpose, request, answer), _test(call, request, answer)
        parts.append(added(f"src/operations/{call.operation}.ts", "\n".join(source)))
        parts.append(added(f"test/{call.operation}.test.ts", "\n".join(test)))
    return "".join(parts)


class _Call:
    def __init__(self, operation: str, method: str, path: str, errors: list[str]) -> None:
        self.operation, self.method, self.path = operation, method, path
        self.errors = [error.split(":") for error in errors]
        self.parameters = [part[1:-1] for part in path.split("/") if part.startswith("{")]

    @property
    def type(self) -> str:
        return self.operation[0].upper() + self.operation[1:]

    @property
    def url(self) -> str:
        text = self.path
        for name in self.parameters:
            encoded = name if self.operation == "releaseHold" else f"encodeURIComponent({name})"
            text = text.replace("{" + name + "}", "${" + encoded + "}")
        return f"`{text}`"


def _schema(field: Field) -> str:
    if field.kind == "int":
        return f"z.number().int().min({field.low}).max({field.high})"
    if field.kind == "text":
        return f"z.string().min({field.low}).max({field.high})"
    return "z.boolean()" if field.kind == "bool" else "z.string().date()"


def _source(call: _Call, purpose: str, request: list[Field], answer: list[Field]) -> Iterator[str]:
    yield 'import { z } from "zod";'
    yield 'import { ApiError, Transport } from "../transport";'
    yield ""
    for name, fields in (("Request", request), ("Answer", answer)):
        yield f"export const {call.type}{name} = z.object({{"
        for field in fields:
            yield f"  {field.camel}: {_schema(field)},"
        yield "});"
        yield f"export type {call.type}{name} = z.infer<typeof {call.type}{name}>;"
        yield ""
    for status, error in call.errors:
        yield f"export class {call.type}{error} extends ApiError {{ readonly status = {status}; }}"
    yield ""
    yield f"/** {purpose} */"
    given = "".join(f"{name}: string, " for name in call.parameters)
    yield f"export async function {call.operation}("
    yield f"  transport: Transport, {given}request: {call.type}Request,"
    yield f"): Promise<{call.type}Answer> {{"
    yield f"  const body = {call.type}Request.parse(request);"
    yield f'  const reply = await transport.send("{call.method}", {call.url}, body);'
    yield "  switch (reply.status) {"
    for status, error in call.errors:
        yield f"    case {status}: throw new {call.type}{error}(reply.message);"
    yield f"    case 200: return {call.type}Answer.parse(reply.json);"
    yield "    default: throw new ApiError(`unexpected status ${reply.status}`);"
    yield from ("  }", "}")


def _literal(field: Field) -> str:
    return field.example if field.kind in ("int", "bool") else f'"{field.example}"'


def _test(call: _Call, request: list[Field], answer: list[Field]) -> Iterator[str]:
    yield 'import { expect, test } from "vitest";'
    yield f'import {{ {call.operation}, {call.type}{call.errors[0][1]} }} from "../src/operations/{call.operation}";'
    yield 'import { recorded } from "./recorded";'
    yield ""
    yield f"const request = {{ {', '.join(f'{f.camel}: {_literal(f)}' for f in request)} }};"
    yield f"const answer = {{ {', '.join(f'{f.camel}: {_literal(f)}' for f in answer)} }};"
    arguments = "".join(f'"{name}-1", ' for name in call.parameters)
    yield ""
    yield f'test("{call.operation} sends what it was given and reads the answer", async () => {{'
    yield "  const transport = recorded(200, answer);"
    yield f"  expect(await {call.operation}(transport, {arguments}request)).toEqual(answer);"
    sent = call.path
    for name in call.parameters:
        sent = sent.replace("{" + name + "}", f"{name}-1")
    yield f'  expect(transport.last).toEqual({{ method: "{call.method}", path: "{sent}", body: request }});'
    yield from ("});", "")
    status, error = call.errors[0]
    yield f'test("{call.operation} tells {error} apart", async () => {{'
    yield f'  const call = {call.operation}(recorded({status}, {{ message: "no" }}), {arguments}request);'
    yield f"  await expect(call).rejects.toBeInstanceOf({call.type}{error});"
    yield "});"


TRANSPORT = """
export class ApiError extends Error {}

export interface Reply {
  status: number;
  json: unknown;
  message: string;
}

export interface Transport {
  send(method: string, path: string, body: unknown): Promise<Reply>;
}

/** Sends over fetch. A request is sent once: the server books goods, and a second booking is worse than an error. */
export class FetchTransport implements Transport {
  constructor(private readonly base: string, private readonly token: () => Promise<string>) {}

  async send(method: string, path: string, body: unknown): Promise<Reply> {
    const response = await fetch(new URL(path, this.base), {
      method,
      headers: { authorization: `Bearer ${await this.token()}`, "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(20_000),
    });
    const text = await response.text();
    const json: unknown = text === "" ? {} : JSON.parse(text);
    const message = typeof json === "object" && json !== null && "message" in json ? String(json.message) : "";
    return { status: response.status, json, message };
  }
}
"""

RECORDED = """
import type { Reply, Transport } from "../src/transport";

/** A transport that gives one recorded reply and keeps what was sent last. */
export function recorded(status: number, json: object) {
  const transport: Transport & { last?: { method: string; path: string; body: unknown } } = {
    async send(method, path, body): Promise<Reply> {
      transport.last = { method, path, body };
      return { status, json, message: "message" in json ? String(json.message) : "" };
    },
  };
  return transport;
}
"""
