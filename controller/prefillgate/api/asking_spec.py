"""The parameters of the checks that ask others: a program on this machine, or a model that judges.

Only a policy and the command line may declare them. A replay set is data from elsewhere: it starts no program here
and names no server that outputs are sent to.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from prefillgate.api.model import WireModel
from prefillgate.api.urls import check_url

MAX_ARGUMENTS = 100
VARIABLE = "^[A-Za-z_][A-Za-z0-9_]*$"

Argument = Annotated[str, Field(max_length=4096)]
PathText = Annotated[str, Field(min_length=1, max_length=4096)]

#: What a judge must answer. Part of its version.
ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"bad": {"type": "boolean"}, "why": {"type": "string"}},
    "required": ["bad", "why"],
    "additionalProperties": False,
}


class Exec(WireModel):
    """A program and its arguments; what stands on its standard input, and how long it may take."""

    arguments: list[Argument] = Field(
        min_length=1, max_length=MAX_ARGUMENTS, description="The program and what it is given; no shell reads it."
    )
    input: Literal["Content", "Json"] = Field(
        default="Content", description="What stands on its standard input: the text, or an object with all of it."
    )
    timeout_seconds: int = Field(default=30, ge=1, le=3600, description="After so long it is ended: an Error.")

    @model_validator(mode="after")
    def _can_be_started(self) -> Exec:
        if not self.arguments[0].strip():
            raise ValueError("the first argument is the program; it is empty (allowed: a name or a path)")
        if any("\0" in argument for argument in self.arguments):
            raise ValueError("an argument holds a NUL character, which no program can be given")
        return self


class Judge(WireModel):
    """A rubric, the model that applies it, and labelled examples that tell how well it does."""

    rubric: str = Field(min_length=1, max_length=20_000, description="What makes an output good or bad, in words.")
    url: str = Field(min_length=1, max_length=2048, description="The base URL of the server that judges; neither arm.")
    model: str = Field(min_length=1, max_length=256, description="The model that judges.")
    shows: Literal["Output", "PromptAndOutput"] = Field(default="Output", description="What the judge is shown.")
    examples: PathText | None = Field(default=None, description="A JSONL file of outputs that people have labelled.")
    timeout_seconds: int = Field(default=120, ge=1, le=3600, description="How long three attempts may take.")
    max_tokens: int = Field(default=400, ge=16, le=100_000, description="The token limit of its answer.")
    api_key_variable: str | None = Field(
        default=None, max_length=128, pattern=VARIABLE, description="The variable that holds its API key."
    )
    header_file: PathText | None = Field(default=None, description="Headers to send, one `Name: value` a line.")
    ca_file: PathText | None = Field(default=None, description="Certificates (PEM) to trust.")
    proxy: PathText | None = Field(default=None, description="http://HOST:PORT of a proxy to go through.")

    @model_validator(mode="after")
    def _is_base_url(self) -> Judge:
        check_url(self.url)
        return self

    @property
    def rule(self) -> dict[str, Any]:
        """What its answers depend on, and so what its version is the digest of."""
        return {
            "rubric": self.rubric,
            "model": self.model,
            "url": self.url,
            "shows": self.shows,
            "maxTokens": self.max_tokens,
            "schema": ANSWER_SCHEMA,
        }
