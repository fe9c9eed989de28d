"""What to do after an answer, with the commands that do it: exact, to be copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prefillgate.api.store_address import StoreAddress
from prefillgate.cli.outcome import quoted
from prefillgate.cli.stores import anew_beside, report_beside
from prefillgate.core.cells import BASELINE, Status
from prefillgate.core.decision import Reason
from prefillgate.core.journal import Planned
from prefillgate.core.verdict import CellView, Verdict
from prefillgate.replay.named_servers import named_servers
from prefillgate.report.clean import is_clean
from prefillgate.report.explain import Step
from prefillgate.report.units import bad_cases

UNKNOWN_COMMAND = " (the store does not hold the command that began it: name the replay set and the policy it had)"


@dataclass(frozen=True, slots=True)
class Place:
    """A verdict, the store it came from, and the plan of its run."""

    verdict: Verdict
    store: StoreAddress
    plan: Planned

    def command(self, *words: str) -> str:
        """`prefillgate WORDS`, each as the shell takes it."""
        return " ".join(["prefillgate", *map(quoted, words)])

    @property
    def begun(self) -> tuple[str, ...]:
        """The words that began the run, or the most that the plan tells of them."""
        if self.plan.command:
            return self.plan.command
        if self.rechecks:
            return ("recheck", "--promoted", "URL", "--replay-set", "FILE", "--policy", "FILE", "--folder", "FOLDER")
        alone = self.plan.shape.baseline_alone
        words = ["floor" if alone else "run"]
        for arm, named in (("baseline", self.plan.baseline_url), ("candidate", self.plan.candidate_url)):
            if alone and arm != BASELINE:
                continue
            servers = named_servers(named)
            words += [word for url in servers.urls for word in (f"--{arm}", url)]
            words += ["--model" if alone else f"--{arm}-model", servers.model] if servers.model else []
        return (*words, "--replay-set", "FILE", "--policy", "FILE")

    @property
    def rechecks(self) -> bool:
        """Whether it is a small replay after a promotion, or the answer to its alarm: its command finds its store."""
        return self.plan.watching is not None or self.plan.trigger is not None

    def of_store(self, store: StoreAddress) -> tuple[str, ...]:
        """The words that name a store to the command."""
        return () if self.rechecks else ("--store", str(store))

    @property
    def unknown(self) -> str:
        """What must be said where the command is not known."""
        return "" if self.plan.command else UNKNOWN_COMMAND


def next_steps(place: Place) -> list[Step]:
    """The steps, the one to do first first."""
    return _STEPS.get(place.verdict.decision.reason, _report)(place)


def _resume(place: Place, words: str, *more: str) -> Step:
    kept = _without(place.begun, "--budget")
    return Step(f"{words}{place.unknown}:", place.command(*kept, *more, *place.of_store(place.store)))


def _anew(place: Place, words: str, *more: str) -> Step:
    store = place.of_store(anew_beside(place.store))
    if place.rechecks:
        words = words.removesuffix(", in a new store")
    return Step(f"{words}{place.unknown}:", place.command(*place.begun, *more, *store))


def _without(words: tuple[str, ...], option: str) -> list[str]:
    return [word for at, word in enumerate(words) if option not in (word, words[at - 1] if at else "")]


def _report(place: Place) -> list[Step]:
    page = str(report_beside(place.store))
    return [Step("All of it on one page:", place.command("report", str(place.store), "-o", page))]


def _look(place: Place, words: str, case: str | None) -> list[Step]:
    """Look at what was answered to a case; at the cell log where no case can be named."""
    if case is None or not is_clean(case):
        return [_cells(place, words)]
    answers = [view for view in place.verdict.cells if view.cell.case_id == case and view.cell_class is not None]
    leading = [view for view in answers if view.cell.arm != BASELINE] or answers  # as diff takes them
    bad = ["--bad"] if any(view.bad for view in leading) else []
    return [Step(f"{words}:", place.command("diff", str(place.store), case, *bad))]


def _cells(place: Place, words: str) -> Step:
    return Step(f"{words}:", place.command("cells", str(place.store)))


def _again(place: Place, words: str, view: CellView | None) -> list[Step]:
    """Send the request of a cell once more, past the gate."""
    if view is None:
        return [_cells(place, words)]
    return [Step(f"{words}:", f"{place.command('cells', str(place.store), '--curl', str(view.cell_id))} | sh")]


def _cause(place: Place) -> Step:
    command = f'{place.command("override", str(place.store))} --cause "..."'
    return Step("Once the cause is found, write it into the evidence:", command)


def _decide(place: Place) -> list[Step]:
    command = place.command("override", str(place.store))
    return [
        Step(
            "Then decide, with a reason that stands in the evidence; to keep the candidate out and in place:",
            f'{command} --hold --reason "..."',
        ),
        Step("or to put the baseline back:", f'{command} --rollback --reason "..."'),
    ]


def _first_bad(place: Place, arm: str) -> str | None:
    if arm != BASELINE:
        return next(iter(bad_cases(place.verdict)), None)
    return next((v.cell.case_id for v in place.verdict.cells if v.cell.arm == BASELINE and v.bad), None)


def _last(place: Place, wanted: Callable[[CellView], bool]) -> CellView | None:
    return next((view for view in reversed(place.verdict.cells) if wanted(view)), None)


def _sound(place: Place) -> list[Step]:
    """A run that goes by the floor; the words that began it name the baseline, the set and the policy."""
    if place.plan.command and place.begun[0] != "floor":
        return _report(place)
    words = ["run", *place.begun[1:], "--candidate", "URL", "--floor", str(place.store)]
    return [Step(f"A run goes by it, with the candidate's address for URL{place.unknown}:", place.command(*words))]


def _promoted(place: Place) -> list[Step]:
    return [
        Step("Promote the candidate the way it is deployed here; the gate itself changes nothing."),
        *_report(place),
    ]


def _rolled_back(place: Place) -> list[Step]:
    return [
        Step("Put the baseline back the way it is deployed here; the gate itself changes nothing."),
        *_look(place, "What the candidate answered, beside the baseline", _first_bad(place, "candidate")),
        _cause(place),
    ]


def _unavailable(place: Place) -> list[Step]:
    return [_resume(place, "Put the baseline back, or start the candidate again and let the run go on")]


def _mended(place: Place) -> list[Step]:
    return [
        _cells(place, "The cells that were not measured, and why"),
        _resume(place, "Once that is mended, this goes on where it ended"),
    ]


def _in_use(place: Place) -> list[Step]:
    return [
        _resume(place, "At a quiet hour, this goes on where it ended"),
        _anew(place, "On servers that others use, this judges quality alone, in a new store", "--isolation", "shared"),
    ]


def _without_baseline(place: Place) -> list[Step]:
    if place.rechecks:
        words = "With the address of a server of the previous profile for URL, a fresh replicate answers the alarm"
        return [
            *_look(place, "Look at the bad answers", _first_bad(place, "candidate")),
            _resume(place, words, *([] if "--previous" in place.begun else ["--previous", "URL"])),
        ]
    return [
        *_look(place, "Look at the bad answers", _first_bad(place, "candidate")),
        _anew(place, "With the baseline's address for URL, a replicate can tell, in a new store", "--baseline", "URL"),
    ]


def _unproven(place: Place) -> list[Step]:
    arm = next((arm for arm in ("baseline", "candidate") if f"on the {arm}" in _headline(place)), "candidate")
    named = place.plan.baseline_url if arm == "baseline" else place.plan.candidate_url
    return [
        Step(
            f"What the {arm} can and cannot prove, with the flag that would give it:",
            place.command("doctor", "--server", *named_servers(named).urls[:1]),
        ),
        _anew(place, "Once its server is started so, run again, in a new store"),
    ]


def _not_honoured(place: Place) -> list[Step]:
    return [
        _cells(place, "Which cells came from the cache, and how much of each"),
        _anew(place, "Once the servers prefill anew when asked to, run again, in a new store"),
    ]


def _contaminated(place: Place) -> list[Step]:
    def foreign(view: CellView) -> bool:
        return any(outcome.check == "foreign_text" and outcome.bad for outcome in view.outcomes)

    view = _last(place, foreign)
    return [
        *_look(place, "The answer with the other conversation's text", None if view is None else view.cell.case_id),
        _anew(place, "Once the server keeps conversations apart, run again, in a new store"),
    ]


def _undeclared(place: Place) -> list[Step]:
    names = [d.name for d in place.verdict.differences if not d.declared and d.name in ("build", "weights")]
    named = [d.name for d in place.plan.differences if not d.declared]
    words = [word for name in dict.fromkeys([*names, *named]) for word in ("--declare", name)]
    if "changed during the run" in _headline(place) or not words:
        return [_anew(place, "Once each server keeps one profile for the whole run, run again, in a new store")]
    return [_anew(place, "If that difference is what the run is about, declare it, in a new store", *words)]


def _lopsided(place: Place) -> list[Step]:
    return [
        _cells(place, "The cells that were not measured, and why"),
        _anew(place, "Once that is mended, run again, in a new store"),
    ]


def _refused(place: Place) -> list[Step]:
    flawed = _last(place, lambda view: view.cell.status is not Status.OK and view.reason in ("HttpError", "NotJson"))
    return [
        *_again(place, "The request that was refused, sent once more past the gate", flawed),
        _anew(place, "Once the server takes it, or the case is out of the set, run again, in a new store"),
    ]


def _erred(place: Place) -> list[Step]:
    view = _last(place, lambda view: any(outcome.bad is None for outcome in view.outcomes))
    return [
        *_look(place, "An answer on which the check erred, and its error", None if view is None else view.cell.case_id),
        _anew(place, "Once the check is mended, run again, in a new store"),
    ]


def _fails_on_baseline(place: Place) -> list[Step]:
    return [
        *_look(place, "An answer of the baseline that the checks call bad", _first_bad(place, BASELINE)),
        _anew(place, "Mend the checks, or the prompts, and run again, in a new store"),
    ]


def _broken(place: Place) -> list[Step]:
    return [
        _cells(place, "Both passes over the baseline"),
        _anew(place, "On a quieter machine, or once the baseline answers the same twice, run again, in a new store"),
    ]


def _going_on(place: Place) -> list[Step]:
    return [_resume(place, "If no run is at work on this store, this one goes on with it")]


def _not_confirmed(place: Place) -> list[Step]:
    return [*_look(place, "Look at the bad answers first", _first_bad(place, "candidate")), *_decide(place)]


def _slower(place: Place) -> list[Step]:
    return [*_report(place), _anew(place, "Once the candidate decodes faster, run again, in a new store")]


def _speed_open(place: Place) -> list[Step]:
    return [
        *_report(place),
        _anew(
            place,
            "With longer answers in the set, or a policy whose throughput mode is Report, run again, in a new store",
        ),
    ]


def _out_of_time(place: Place) -> list[Step]:
    return [_resume(place, "With a new deadline, this goes on where it ended")]


def _server_back(place: Place) -> list[Step]:
    return [
        Step("Find out why a server of the candidate stopped taking requests, and bring it back."),
        _resume(place, "Then this goes on; it asks every server first"),
    ]


def _out_of_budget(place: Place) -> list[Step]:
    needed = place.verdict.budget_needed
    if needed is None:
        look = _look(place, "No budget is foreseen to promote; look at the bad answers", _first_bad(place, "candidate"))
        return [*look, *_report(place)]
    return [_resume(place, "With a larger budget and the same table, this goes on", "--budget", str(needed))]


_STEPS: dict[str, Callable[[Place], list[Step]]] = {
    Reason.CANDIDATE_UNAVAILABLE: _unavailable,
    Reason.ALREADY_DECIDED: _rolled_back,
    Reason.REGRESSION_CONFIRMED: _rolled_back,
    Reason.INDEPENDENCE_UNKNOWN: _unproven,
    Reason.KNOB_NOT_HONOURED: _not_honoured,
    Reason.CONTAMINATED: _contaminated,
    Reason.UNDECLARED_DIFFERENCE: _undeclared,
    Reason.INVALID_CELLS: _mended,
    Reason.BASELINE_UNAVAILABLE: _mended,
    Reason.MEASUREMENT_LOST: _mended,
    Reason.OTHER_TRAFFIC: _in_use,
    Reason.ALARM_WITHOUT_BASELINE: _without_baseline,
    Reason.ERRORS_LOPSIDED: _lopsided,
    Reason.CANDIDATE_REFUSES: _refused,
    Reason.BASELINE_REFUSES: _refused,
    Reason.CASE_UNUSABLE: _refused,
    Reason.CHECK_ERROR: _erred,
    Reason.CHECKS_FAIL_ON_BASELINE: _fails_on_baseline,
    Reason.INSTRUMENT_BROKEN: _broken,
    Reason.FLOOR_MEASURED: _sound,
    Reason.DEADLINE: _out_of_time,
    Reason.REPLICATE_DUE: _going_on,
    Reason.REPLICATE_RUNNING: _going_on,
    Reason.MORE_EVIDENCE_NEEDED: _going_on,
    Reason.REGRESSION_NOT_CONFIRMED: _not_confirmed,
    Reason.SLOWER: _slower,
    Reason.SERVER_LOST: _server_back,
    Reason.THROUGHPUT_OPEN: _speed_open,
    Reason.ACCEPTANCE_REACHED: _promoted,
    Reason.BUDGET_SPENT: _out_of_budget,
}
"""What to do by reason; the report where nothing else is to be done."""


def _headline(place: Place) -> str:
    return next(iter(place.verdict.decision.sentences), "")
