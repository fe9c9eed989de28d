"""`replayset pick`: which cases of a large set to keep, and why the others were left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefillgate.api.errors import MAX_PROBLEMS, Problem, ReplaySetError
from prefillgate.api.replay_set import Case, prompt_digest, prompt_texts, read_line
from prefillgate.core.picking import Stratum, choose
from prefillgate.core.resemblance import Distinct, Sketch, sketch
from prefillgate.replay.replay_set import BOM_UTF8, scan

CHARACTERS_PER_TOKEN = 4  # of a prompt given as token numbers beside others given as text


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of a case while the whole set is looked at. `tokens` is None where it gives text."""

    case_id: str
    line: int
    line_sha256: str
    characters: int
    tokens: int | None
    sketch: Sketch


@dataclass(frozen=True, slots=True)
class Picked:
    """The choice: `strata` with the positions in `distinct` they drew, and how many others fell to each reason."""

    strata: tuple[Stratum, ...]
    distinct: tuple[Seen, ...]
    unit: str  # characters or tokens
    cases: int
    same_prompt: int
    near_duplicates: int

    @property
    def chosen(self) -> tuple[Seen, ...]:
        """The chosen cases, in the order of the strata."""
        return tuple(self.distinct[stratum.chosen] for stratum in self.strata)

    def length(self, one: Seen) -> int:
        """How long a case is, in `unit`."""
        return _length(one, self.unit == "tokens")

    @property
    def not_drawn(self) -> int:
        """Prompts unlike all others of which another of the same lengths was drawn."""
        return len(self.distinct) - len(self.strata)


def pick(path: str | Path, wanted: int, seed: int, percent: int) -> Picked:
    """Choose `wanted` cases of a replay set; `percent` is the least resemblance of near duplicates.

    Raises `ReplaySetError` with at most 20 problems where the set cannot be used.
    """
    seen, cases = _different_prompts(path)
    order = sorted(range(len(seen)), key=lambda at: (-seen[at].characters, -(seen[at].tokens or 0), at))
    unlike = Distinct(percent)  # fed the longest first: it stays, whatever resembles it
    kept = sorted(at for at in order if not seen[at].sketch or unlike.like(seen[at].sketch) is None)
    distinct = tuple(seen[at] for at in kept)
    in_tokens = all(one.tokens is not None for one in distinct)
    lengths = [_length(one, in_tokens) for one in distinct]
    return Picked(
        strata=choose(lengths, wanted, seed),
        distinct=distinct,
        unit="tokens" if in_tokens else "characters",
        cases=cases,
        same_prompt=cases - len(seen),
        near_duplicates=len(seen) - len(distinct),
    )


def chosen_lines(path: str | Path, picked: Picked) -> Iterator[bytes]:
    """The lines of the chosen cases, byte for byte and in the order of the file; the last may lack its line feed.

    Raises `ReplaySetError` where the file is no more what it was when it was looked at.
    """
    wanted = {one.line: one for one in picked.chosen}
    with Path(path).open("rb") as file:
        for number, raw in enumerate(file, 1):
            one = wanted.pop(number, None)
            if one is None:
                continue
            raw = raw.removeprefix(BOM_UTF8) if number == 1 else raw
            if not _is_still(one, raw):
                wanted[number] = one
                break
            yield raw
            if not wanted:
                break
    if wanted:
        raise ReplaySetError(Problem(str(path), "", "the file changed while it was read", "a file at rest"))


def _is_still(one: Seen, raw: bytes) -> bool:
    try:
        return read_line(raw.removesuffix(b"\n").removesuffix(b"\r"), "", one.line).line_sha256 == one.line_sha256
    except ReplaySetError:
        return False


def _different_prompts(path: str | Path) -> tuple[list[Seen], int]:
    """The first case of each prompt, and the number of all cases."""
    prompts: set[bytes] = set()
    seen: list[Seen] = []
    problems: list[Problem] = []
    cases = 0
    for found in scan(path):
        if isinstance(found, Problem):
            problems.append(found)
            if len(problems) >= MAX_PROBLEMS:
                raise ReplaySetError(*problems, more=True)
            continue
        cases += 1
        digest = prompt_digest(found.body)
        if digest not in prompts and not problems:
            prompts.add(digest)
            seen.append(_seen(found))
    if problems:
        raise ReplaySetError(*problems)
    return seen, cases


def _seen(case: Case) -> Seen:
    prompt = case.body.get("prompt")
    tokens = len(prompt) if isinstance(prompt, list) else None
    text = " ".join(map(str, prompt)) if isinstance(prompt, list) else _told_apart_by(case.body)
    return Seen(case.case_id, case.line, case.line_sha256, case.characters, tokens, sketch(text))


def _told_apart_by(body: Mapping[str, Any]) -> str:
    """The text that tells prompts apart: without what an application says in each (system messages, tools), unless
    there is nothing else."""
    messages = body.get("messages") or []
    asked = [message for message in messages if message.get("role") not in ("system", "developer")]
    text = "\n".join(prompt_texts({"prompt": body.get("prompt"), "messages": asked}))
    return text if text.strip() else "\n".join(prompt_texts(body))


def _length(one: Seen, in_tokens: bool) -> int:
    if one.tokens is None:
        return one.characters
    return one.tokens if in_tokens else one.tokens * CHARACTERS_PER_TOKEN
