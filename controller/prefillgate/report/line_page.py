"""What an engineer on call needs to know of a serving line, on one screen of a terminal.

What changed, requests and prefills side by side, what is allowed and why, what would change it, what is not well, and
the one command that overrides. Everything comes from the status; nothing is computed anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prefillgate.api.areas import AREAS
from prefillgate.api.kinds.common import HandledOverride, Rate
from prefillgate.api.kinds.rollout_status import (
    ArmCountsStatus,
    OverrideStatus,
    ProfileRolloutStatus,
    ReplicateStatus,
    ThroughputStatus,
)
from prefillgate.report.clean import one_line
from prefillgate.report.line_view import LineView, RolloutView
from prefillgate.report.paper import INDENT, NO_COLOURS, WIDTH, Palette, Paper, cut, paint
from prefillgate.report.words import ABSENT, UNKNOWN, change, percent, plural

LINES = 40
TAKE_BACK, GO_BACK, ROLL_BACK, OVERRIDE = "to take it back", "to go back", "to roll back", "to override"
DIFFERENCES_SHOWN = 4
LONGEST_VALUE = 60  # of a setting
_TABLE_WIDTH = 90
_WHOLE = 10_000  # basis points
_WORDS = {
    "NotWorse": "not worse",
    "Worse": "worse",
    "Open": "open, more pairs are needed",
    "NotCompared": "not compared",
}


@dataclass(frozen=True, slots=True)
class LinePage:
    """How the page is written. `commands` are those that may be copied, each behind what it is for. `full`: settings
    and evidence are not cut either."""

    commands: Sequence[tuple[str, str]] = ()
    width: int = WIDTH
    palette: Palette = NO_COLOURS
    full: bool = False


def render_line_page(view: LineView, page: LinePage) -> str:
    """The page, a newline at its end. The commands stand on lines of their own, and neither they nor what says what to
    do are ever cut: the page is longer than a screen rather."""
    paper = Paper(page.width, page.full)
    sections = [
        [*_head(view, page, paper), *_doubts(view, paper)],
        _sentences(view, paper),
        [*_changed(view, paper), *_arms(view.rollout, page, paper), *_evidence(view, paper)],
        [*_not_well(view, paper), *_overriding(view, page, paper)],
    ]
    filled = [lines for lines in sections if lines]
    roomy = sum(map(len, filled)) + len(filled) - 1 <= paper.lines(LINES)
    return ("\n\n" if roomy else "\n").join("\n".join(lines) for lines in filled) + "\n"


def headline(view: LineView) -> str:
    """What it begins with: PROMOTE, HOLD, ROLLBACK, CONTINUE, ALARM, ERROR, UNKNOWN or NO ROLLOUT."""
    if view.rollout is None:  # the watch of what is in production may have said something
        alarmed = view.status.watch is not None and view.status.watch.alarm
        return "ROLLBACK" if view.status.decision == "Rollback" else "ALARM" if alarmed else "NO ROLLOUT"
    decision = view.rollout.status.decision
    if decision is None:
        return UNKNOWN.upper()
    if not decision.measured and decision.verdict == "Hold":
        return "ERROR"
    alarmed = any(each.type == "AlarmRaised" and each.status == "True" for each in view.conditions)
    return "ALARM" if alarmed and decision.verdict in ("Hold", "Continue") else decision.verdict.upper()


def _head(view: LineView, page: LinePage, paper: Paper) -> list[str]:
    decision = None if view.rollout is None else view.rollout.status.decision
    word, palette = headline(view), page.palette
    colour = {"PROMOTE": palette.good, "ROLLBACK": palette.bad}.get(word, palette.warn)
    about = "" if view.rollout is None else f"  rollout {one_line(view.rollout.name)}"
    title = cut(f"{one_line(view.title)}{about}", paper.width - len(word) - 2)
    lines = [f"{paint(word, palette.bold + colour, palette)}  {title}"]
    if decision is None:
        return [
            *lines,
            *paper.field("decision", _undecided(view), 1),
            *_of_the_watch(view, paper),
            *_stage(view, paper),
        ]
    when = "" if decision.at is None else f", {view.ago(decision.at)}"
    return [
        *lines,
        *paper.field("decision", f"{decision.verdict.lower()} ({decision.reason}{when})", 1),
        *paper.field("promotion", decision.promotion, 1),
        *paper.field("rollback", decision.rollback, 1),
        *paper.field("cause", decision.cause, 1),
        *_stage(view, paper),
    ]


def _undecided(view: LineView) -> str:
    if view.rollout is not None:
        return f"{UNKNOWN}: nothing was measured yet"
    candidate = view.status.candidate
    return "no candidate is judged" if candidate is None else f"the candidate {candidate.name} is not judged yet"


def _of_the_watch(view: LineView, paper: Paper) -> list[str]:
    if view.rollout is not None or view.status.decision != "Rollback":
        return []
    return paper.field("rollback", f"{view.status.rollback or UNKNOWN} of the promoted profile, by its watch", 1)


def _stage(view: LineView, paper: Paper) -> list[str]:
    """Where a rollout stands that goes on, or what the line waits for."""
    status = None if view.rollout is None else view.rollout.status
    going_on = status is not None and status.ended_at is None
    wanted = "Screened" if going_on and any(each.type == "Screened" for each in view.conditions) else "Gating"
    lines = []
    for each in view.conditions:
        if each.type == wanted and each not in view.not_well:
            lines += paper.field("now", each.message)
    if going_on and status is not None and status.deadline_at is not None:
        lines += paper.field("deadline", status.deadline_at, 1)
    return lines


def _doubts(view: LineView, paper: Paper) -> list[str]:
    return [line for doubt in (*view.doubts, *view.modes) for line in paper.field("note", doubt)]


def _sentences(view: LineView, paper: Paper) -> list[str]:
    decision = None if view.rollout is None else view.rollout.status.decision
    told = [] if decision is None else decision.sentences
    return [line for sentence in told for line in paper.wrap(sentence, "")]


def _changed(view: LineView, paper: Paper) -> list[str]:
    told = list(_differences(view, paper))
    if not told:
        alone = view.rollout is None and view.status.candidate is None
        return [] if alone else paper.field("what changed", UNKNOWN, 1)
    shown = told[: paper.most(DIFFERENCES_SHOWN)]
    if len(told) > len(shown):
        shown.append(f"and {plural(len(told) - len(shown), 'more difference')}")
    return _list("what changed", shown, paper, 1)


def _differences(view: LineView, paper: Paper) -> Iterable[str]:
    """From the rollout's status, else as its spec or the line's status tell them."""
    rollout = view.rollout
    if rollout is not None and rollout.status.differences:
        for each in rollout.status.differences:
            # what is declared comes from profiles, where nothing is written for an option that is left out
            nothing = ABSENT if each.declared else UNKNOWN
            longest = paper.most(LONGEST_VALUE)
            sides = f"{_known(each.baseline, nothing, longest)} -> {_known(each.candidate, nothing, longest)}"
            yield f"{AREAS[each.area]}: {each.name}, {sides}{'' if each.declared else ' (UNDECLARED)'}"
        return
    told = None if rollout is None else rollout.spec.get("differences")
    yield from (str(each) for each in told or view.status.differences or ())


def _arms(rollout: RolloutView | None, page: LinePage, paper: Paper) -> list[str]:
    counts = None if rollout is None else rollout.status.counts
    if counts is None:
        return [] if rollout is None else paper.field("prefills", f"{UNKNOWN}: none was counted yet", 1)
    rows = [("baseline", counts.baseline), ("candidate", counts.candidate)]
    if paper.width < _TABLE_WIDTH:
        lines = [line for name, arm in rows for line in _stacked(name, arm)]
    else:
        head = f"{'':<{INDENT}}{'requests':<20}{'95 % interval':<18}{'prefills':<20}95 % interval"
        lines = [paint(head, page.palette.dim, page.palette), *(_row(name, arm) for name, arm in rows)]
    found = counts.candidate
    others = ((found.copies, "copies"), (found.unproven, "not shown to be fresh"), (found.invalid, "invalid"))
    besides = ", ".join(f"{count:,} {what}" for count, what in others if count) or "none"
    used = f"{counts.prefills_used:,} of {counts.budget:,} prefills of the budget"
    text = f"worth {plural(found.decision_prefills, 'prefill')}; requests besides prefills: {besides}; {used}"
    return [*lines, *paper.wrap(text, " " * INDENT, 2)]


def _row(name: str, arm: ArmCountsStatus | None) -> str:
    if arm is None:
        return f"{name:<{INDENT}}{UNKNOWN}: it was not there"
    requests = f"{_of(arm.bad_requests, arm.requests):<20}{_interval(arm.request_rate):<18}"
    return f"{name:<{INDENT}}{requests}{_of(arm.bad_prefills, arm.prefills):<20}{_interval(arm.prefill_rate)}"


def _stacked(name: str, arm: ArmCountsStatus | None) -> list[str]:
    if arm is None:
        return [_row(name, arm)]
    return [
        f"{name:<{INDENT}}requests {_of(arm.bad_requests, arm.requests)}, {_interval(arm.request_rate)}",
        f"{'':<{INDENT}}prefills {_of(arm.bad_prefills, arm.prefills)}, {_interval(arm.prefill_rate)}",
    ]


def _evidence(view: LineView, paper: Paper) -> list[str]:
    status = ProfileRolloutStatus() if view.rollout is None else view.rollout.status
    lines: list[str] = []
    for each in (status.replicates or ())[-2:]:
        lines += paper.field(f"replicate {each.number}", _replicate(each), 2)
    if status.throughput is not None:
        lines += paper.field("decode speed", _speed(status.throughput), 2)
    lines += _floor(view, paper)
    watch = view.status.watch
    if watch is not None:
        due = "" if watch.next_at is None else f", next at {watch.next_at}"
        alarm = ", an ALARM stands" if watch.alarm else ""
        lines += paper.field("watch", f"{_of(watch.bad_prefills, watch.prefills)} since the promotion{alarm}{due}", 1)
    changes = () if status.decision is None else status.decision.what_would_change or ()
    lines += _list("would change it", changes, paper)
    if status.evidence is not None:
        lines += paper.field("evidence", f"run {status.evidence.run} in {status.evidence.store}", 2)
    return lines


def _replicate(each: ReplicateStatus) -> str:
    state = "running" if each.ending is None else "confirmed" if each.ending == "Confirmed" else "not confirmed"
    how = "" if each.ending in (None, "Confirmed") else f" ({each.ending.lower()})"
    apart = {"Gap": "gap", "Restart": "restart", "AnotherProcess": "another process"}.get(each.separation or "")
    bad = f"{each.candidate_bad:,} of {each.candidate_prefills:,} candidate prefills bad"
    e_value = f"e-value {each.e_value} (confirms at {each.threshold})"
    return f"{state}{how}, {apart or 'separation unknown'}, {bad}, {e_value}"


def _speed(found: ThroughputStatus) -> str:
    if found.state == "NotCompared":
        return found.sentence or _WORDS[found.state]
    ratio = UNKNOWN if found.ratio_basis_points is None else change(found.ratio_basis_points / _WHOLE)
    ends = (found.low_basis_points, found.high_basis_points)
    between = UNKNOWN if None in ends else " to ".join(change((end or 0) / _WHOLE) for end in ends)
    same = ""
    if found.identical_basis_points is not None:
        same = f", {percent(found.identical_basis_points / _WHOLE)} of the answers the same"
    return f"{_WORDS[found.state]}, {ratio} ({between}), {plural(found.pairs, 'pair')}{same}"


def _floor(view: LineView, paper: Paper) -> list[str]:
    floor = view.status.floor
    if not view.is_there:
        return []
    if floor is None:
        told = next((each.message for each in view.conditions if each.type == "InstrumentChecked"), None)
        if any(each.type == "InstrumentChecked" for each in view.not_well):
            told = "why stands under not well"
        return paper.field("floor", f"{UNKNOWN}: {told or 'the baseline was not compared with itself yet'}")
    told = f"instrument {floor.instrument.lower()}, {_of(floor.bad_prefills, floor.prefills)}, {view.ago(floor.at)}"
    if floor.throughput_cv_basis_points is not None:
        told += f", speed varies by {percent(floor.throughput_cv_basis_points / _WHOLE)}"
    return paper.field("floor", told if floor.instrument == "Sound" else f"{told}: {floor.message or UNKNOWN}")


def _not_well(view: LineView, paper: Paper) -> list[str]:
    told = [f"{each.type} is {each.status} ({each.reason}): {each.message}" for each in view.not_well]
    return _list("not well", told, paper)


def _overriding(view: LineView, page: LinePage, paper: Paper) -> list[str]:
    lines: list[str] = []
    standing = None if view.rollout is None else view.rollout.status.override
    handled = view.status.last_handled_override
    if view.rollout is not None and view.rollout.status.last_handled_override is not None:
        handled = view.rollout.status.last_handled_override
    if standing is not None:
        lines += paper.field("override", _standing(standing), 2)
    elif handled is not None and handled.outcome != "Obeyed":
        lines += paper.field("override", _handled(handled))
    lines += _way_back(view, page, paper)
    lines += _rolling_back(view, paper)
    lines += [f"{name:<{INDENT}}{one_line(command)}" for name, command in page.commands]
    return lines


def _way_back(view: LineView, page: LinePage, paper: Paper) -> list[str]:
    previous = view.goes_back_to
    if previous is None:
        return []
    told = f"traffic given back changes no role: the previous profile {previous.name} is the promoted one again by a"
    told += " promotion"
    if all(name != GO_BACK for name, _ in page.commands):
        told += "; put its template back into a workload, then it is the candidate"
    return paper.field("way back", told)


def _rolling_back(view: LineView, paper: Paper) -> list[str]:
    """What an allowed rollback of a candidate that is not in production takes: no override, and a person's hand."""
    if not view.rolls_back_candidate:
        return []
    promoted = view.status.promoted_profile
    which = (
        "the promoted profile" if promoted is None else f"the promoted profile {promoted.name or promoted.digest[7:19]}"
    )
    kept = ""
    if promoted is not None and promoted.template is not None:
        kept = f" (its template is in {promoted.template.kind} {promoted.template.name})"
    told = f"allowed as it stands, no override is needed; the gate changes no workload: {which}{kept} shall serve alone"
    return paper.field("rolling back", told)


def _standing(override: OverrideStatus) -> str:
    until = "as long as the rollout" if override.expires is None else f"until {override.expires}"
    who = f"{override.actor}{'' if override.actor_verified else ' (not verified)'}"
    return f"{override.verdict.lower()} by {who}, {until}: {override.reason}"


def _handled(override: HandledOverride) -> str:
    who = UNKNOWN if override.actor is None else override.actor
    return f"the last one ({override.value} by {who}) was {override.outcome.lower()}: {override.message or UNKNOWN}"


def _list(name: str, told: Sequence[str], paper: Paper, limit: int | None = None) -> list[str]:
    return [line for at, each in enumerate(told) for line in paper.field("" if at else name, each, limit)]


def _of(bad: int | None, total: int | None) -> str:
    if bad is None or total is None:
        return UNKNOWN
    return f"{bad:,} of {total:,} bad" if total else "none"


def _interval(rate: Rate | None) -> str:
    if rate is None:
        return UNKNOWN
    low = percent(rate.low_basis_points / _WHOLE).removesuffix(" %")
    return f"{low} to {percent(rate.high_basis_points / _WHOLE)}"


def _known(value: str | None, nothing: str, longest: int | None) -> str:
    return nothing if value is None else one_line(value, longest)
