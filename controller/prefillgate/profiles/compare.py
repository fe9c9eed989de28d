"""What differs between two profiles: named differences for the gate, and a short list in words for people."""

from __future__ import annotations

from collections.abc import Iterable

from prefillgate.api.errors import clean
from prefillgate.core.differences import AREAS
from prefillgate.core.journal import Difference
from prefillgate.profiles.model import AREA_ORDER, BUILD, WEIGHTS, Setting, brief, content
from prefillgate.profiles.parts import DRAFT_PRECISION
from prefillgate.profiles.quantization import without_precision
from prefillgate.profiles.record import Told
from prefillgate.report.words import ABSENT

MOST_DIFFERENCES = 64
MOST_IN_WORDS = 8
LONGEST_SIDE = 80
# Undeclared, a difference of these names blocks a run: a difference of the area must be there under the name.
_LEADING = {BUILD: "build", WEIGHTS: "weights"}
_FROM_A_NAME = ("draft-model", "draft-repository", "speculative-config.model", "speculative_draft_model_path")


def differences(baseline: Told, candidate: Told) -> tuple[Difference, ...]:
    """Every setting that differs, by area; None on the side where it is absent. At most 64, the last one says so."""
    found = []
    if baseline.engine != candidate.engine:
        found.append(Difference("build", "engine", baseline.engine, candidate.engine))
    pairs = [each for each in _pairs(baseline, candidate) if not _told_elsewhere(each, baseline, candidate)]
    leading = _leading(pairs)
    for one, other in pairs:
        setting = one or other
        assert setting is not None
        name = leading.get(setting.name) or (setting.name if setting.name in AREAS else setting.words)
        before, after = _sides(one, other)
        found.append(Difference(setting.area, brief(name), before, after))
    found.sort(key=lambda each: (AREA_ORDER.index(each.area), each.name))
    if len(found) > MOST_DIFFERENCES:
        first = [each for each in found if each.name in ("engine", "build", "weights")]
        rest = [each for each in found if each not in first][: MOST_DIFFERENCES - 1 - len(first)]
        left = len(found) - len(first) - len(rest)
        found = [*first, *rest, Difference("other", f"{left} more settings", None, None)]
    return tuple(found)


def in_words(baseline: Told, candidate: Told, most: int = MOST_IN_WORDS) -> str:
    """`tensor split 3,1 -> 2,2; draft head Q4_K_M -> Q8_0`, at most `most` of them; empty where nothing differs."""
    told = each_in_words(baseline, candidate)
    more = [f"and {len(told) - most} more"] if len(told) > most else []
    return "; ".join(told[:most] + more)


def each_in_words(baseline: Told, candidate: Told) -> list[str]:
    """Everything that differs, each as `tensor split 3,1 -> 2,2`."""
    pairs = [each for each in _pairs(baseline, candidate) if not _told_elsewhere(each, baseline, candidate)]
    told = []
    if baseline.engine != candidate.engine:
        told.append(f"engine {baseline.engine or 'unknown'} -> {candidate.engine or 'unknown'}")
    for one, other in sorted(pairs, key=_order):
        setting = one or other
        assert setting is not None
        before, after = _sides(one, other)
        told.append(f"{brief(setting.words)} {before or ABSENT} -> {after or ABSENT}")
    return told


def _order(pair: tuple[Setting | None, Setting | None]) -> tuple[int, str]:
    setting = pair[0] or pair[1]
    assert setting is not None
    return AREA_ORDER.index(setting.area), setting.words


def _pairs(baseline: Told, candidate: Told) -> list[tuple[Setting | None, Setting | None]]:
    """(baseline, candidate) of every setting that differs. Left out is what another one tells: a worker's that differs
    as its leader's does, a variable that was put into an argument which changes from and to the very same."""
    written = not (baseline.resolved and candidate.resolved)
    ours = {each.name: each for each in baseline.settings}
    theirs = {each.name: each for each in candidate.settings}
    found: dict[str, tuple[Setting | None, Setting | None]] = {}
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name), theirs.get(name)
        if one is not None and other is not None and content(one, written) == content(other, written):
            continue
        leader = found.get(name.partition("/")[2]) if name.startswith("worker/") else None
        if leader is None or _contents(leader) != _contents((one, other)):
            found[name] = (one, other)
    told = {
        (f"{_apart(name)[0]}env {variable}", *_contents(pair))
        for name, pair in found.items()
        for variable in _put_into(pair)
    }
    return [pair for name, pair in found.items() if (name, *_contents(pair)) not in told]


def _apart(name: str) -> tuple[str, str]:
    """`worker/` or nothing, and the name of the setting without it."""
    mark = "worker/" if name.startswith("worker/") else ""
    return mark, name.removeprefix(mark)


def _put_into(pair: Iterable[Setting | None]) -> set[str]:
    """The variables that were put into a setting on each side on which it stands."""
    return set.intersection(*(set(each.variables) for each in pair if each is not None))


def _contents(pair: Iterable[Setting | None]) -> tuple[str | None, ...]:
    return tuple(None if each is None else content(each) for each in pair)


def _told_elsewhere(pair: tuple[Setting | None, Setting | None], baseline: Told, candidate: Told) -> bool:
    """Whether a draft file's names differ in nothing but a precision that is told as `draft head`."""
    one, other = pair
    if one is None or other is None:
        return False
    mark, name = _apart(one.name)
    if name not in _FROM_A_NAME:
        return False
    precision = f"{mark}{DRAFT_PRECISION}"
    sides = [{each.name for each in profile.settings} for profile in (baseline, candidate)]
    told = all(precision in names for names in sides)
    return told and without_precision(one.value) == without_precision(other.value)


def _leading(pairs: list[tuple[Setting | None, Setting | None]]) -> dict[str, str]:
    """The names that two differences take, so that a changed build and changed weights are declared as such."""
    found: dict[str, str] = {}
    for area, name in _LEADING.items():
        names = [setting.name for one, other in pairs if (setting := one or other) is not None and setting.area == area]
        if names:
            found[name if name in names else names[0]] = name
    return found


def _sides(one: Setting | None, other: Setting | None) -> tuple[str | None, str | None]:
    before = None if one is None else clean(one.value)
    after = None if other is None else clean(other.value)
    if before is None or after is None or max(len(before), len(after)) <= LONGEST_SIDE:
        return _cut(before, 0), _cut(after, 0)
    same = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    start = max(0, same - LONGEST_SIDE // 4)
    return _cut(before, start), _cut(after, start)


def _cut(text: str | None, start: int) -> str | None:
    if text is None:
        return None
    lead = "…" if start else ""
    return brief(lead + text[start:], LONGEST_SIDE)
