"""Every condition that the gate writes and every reason that it may have: one table, and the only way to write one.

`condition_of` refuses whatever does not stand in `ROWS`. The reasons of PromotionAllowed and RollbackAllowed are those
of the decision (`prefillgate.core.decision.Reason`), in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from prefillgate.api.errors import clean
from prefillgate.api.kinds.common import ConditionModel
from prefillgate.api.kinds.names import PROFILE_ROLLOUT, PROMOTION_POLICY, REPLAY_SET, SERVING_LINE
from prefillgate.core.decision import ERRORS, Reason
from prefillgate.core.sentences import REASON_SENTENCES

Status = Literal["True", "False", "Unknown"]
LONGEST_MESSAGE = 4096


class ConditionType(StrEnum):
    """What a condition is about."""

    ACCEPTED = "Accepted"
    ENDPOINTS_READY = "EndpointsReady"
    INSTRUMENT_CHECKED = "InstrumentChecked"
    GATING = "Gating"
    SCREENED = "Screened"
    ALARM_RAISED = "AlarmRaised"
    REPLICATE_CONFIRMED = "ReplicateConfirmed"
    PROMOTION_ALLOWED = "PromotionAllowed"
    ROLLBACK_ALLOWED = "RollbackAllowed"
    OVERRIDDEN = "Overridden"
    SUPERSEDED = "Superseded"
    SUCCEEDED = "Succeeded"
    WATCHING = "Watching"
    STORE_BEHIND = "StoreBehind"


_SHARED = (ConditionType.ACCEPTED, ConditionType.ENDPOINTS_READY, ConditionType.INSTRUMENT_CHECKED)
_ANSWERS = (
    ConditionType.ALARM_RAISED,
    ConditionType.PROMOTION_ALLOWED,
    ConditionType.ROLLBACK_ALLOWED,
    ConditionType.OVERRIDDEN,
    ConditionType.STORE_BEHIND,
)
CONDITIONS_OF: dict[str, tuple[ConditionType, ...]] = {
    SERVING_LINE.kind: (*_SHARED, ConditionType.GATING, *_ANSWERS, ConditionType.WATCHING),
    PROFILE_ROLLOUT.kind: (
        *_SHARED,
        ConditionType.SCREENED,
        ConditionType.REPLICATE_CONFIRMED,
        *_ANSWERS,
        ConditionType.SUPERSEDED,
        ConditionType.SUCCEEDED,
    ),
    PROMOTION_POLICY.kind: (ConditionType.ACCEPTED,),
    REPLAY_SET.kind: (ConditionType.ACCEPTED,),
}
"""Which conditions a kind has."""


@dataclass(frozen=True, slots=True)
class Row:
    """One reason of one condition: the statuses that it may stand with, and what it means, as a sentence.

    `warning`: whether the event of a transition to it is a warning.
    """

    type: ConditionType
    reason: str
    statuses: tuple[Status, ...]
    sentence: str
    warning: bool = False


_Told = tuple[str, Status, str, bool]

_TABLE: dict[ConditionType, tuple[_Told, ...]] = {
    ConditionType.ACCEPTED: (
        ("Accepted", "True", "The spec can be used, and everything it refers to is there.", False),
        ("Pending", "Unknown", "It was not looked at yet.", False),
        ("SpecInvalid", "False", "A field cannot be used.", True),
        ("LineNotFound", "False", "The ServingLine that it refers to is not there.", True),
        ("PolicyNotFound", "False", "The PromotionPolicy that it refers to is not there.", True),
        ("PolicyNotAccepted", "False", "The PromotionPolicy that it refers to cannot be used.", True),
        ("ReplaySetNotFound", "False", "The ReplaySet that it refers to is not there.", True),
        ("ReplaySetNotAccepted", "False", "The ReplaySet that it refers to cannot be used.", True),
        ("CasesNotFound", "False", "The ConfigMap, file or URL with the cases is not there.", True),
        ("CasesInvalid", "False", "What stands there is no replay set.", True),
        ("DigestMismatch", "False", "What was read is not what its digest says.", True),
        ("WorkloadNotFound", "False", "A workload that it refers to is not there.", True),
        ("WorkloadForbidden", "False", "The controller may not read a workload that it refers to.", True),
        ("TemplateNotFound", "False", "A workload has no pod template at the place named.", True),
        ("ContainerNotFound", "False", "A pod template has no container of that name.", True),
        ("ProfileUnreadable", "False", "The profile of an arm cannot be made out.", True),
        ("SyntheticThroughput", "False", "An argument makes the server's speed synthetic.", True),
        ("SecretNotFound", "False", "A Secret, or a key of it, is not there.", True),
        ("SecretNotUsable", "False", "A Secret lacks the label prefillgate.io/usable-by: gate.", True),
        ("ServiceNotFound", "False", "The Service that an endpoint names is not there.", True),
        ("PortNotFound", "False", "An endpoint names a port that its workload or Service does not have.", True),
        ("EndpointForbidden", "False", "The controller's settings forbid this address.", True),
        ("StoreUnsuitable", "False", "The evidence store cannot do what the spec asks for.", True),
    ),
    ConditionType.ENDPOINTS_READY: (
        ("Reachable", "True", "The servers of both arms take requests.", False),
        ("Probing", "Unknown", "The servers are being asked.", False),
        ("ServersUnknown", "Unknown", "Which servers are to be asked is not known.", False),
        ("NoReadyPods", "False", "An arm has no Ready pod.", True),
        ("EndpointUnreachable", "False", "A server cannot be reached.", True),
        ("CandidateUnavailable", "False", REASON_SENTENCES[Reason.CANDIDATE_UNAVAILABLE], True),
    ),
    ConditionType.INSTRUMENT_CHECKED: (
        ("InstrumentSound", "True", "The baseline against itself shows no difference.", False),
        ("FloorDue", "Unknown", "The baseline was not compared with itself yet, or too long ago.", False),
        ("FloorRunning", "Unknown", "The baseline is being compared with itself.", False),
        (
            "FloorInterrupted",
            "Unknown",
            "The comparison of the baseline with itself is refused or broke off again and again, and is tried again.",
            True,
        ),
        ("InstrumentUnclear", "Unknown", "The baseline was compared with itself, and that could not tell.", True),
        ("InstrumentBroken", "False", "The baseline differs from itself: nothing is judged.", True),
    ),
    ConditionType.GATING: (
        ("RolloutRunning", "True", "A candidate is being judged.", False),
        ("NoCandidate", "False", "The candidate is the profile in production.", False),
        ("Decided", "False", "The candidate was judged.", False),
        (
            "RejectedBefore",
            "False",
            "This candidate was rejected before, and is not replayed again unless asked.",
            True,
        ),
        ("NotAccepted", "False", "The line cannot be used as it is written.", True),
        ("Waiting", "False", "Something must come first.", False),
        ("Suspended", "False", "The line is suspended.", False),
    ),
    ConditionType.SCREENED: (
        ("ScreenEnded", "True", "The first collection has ended.", False),
        ("Starting", "False", "The first collection begins as soon as it has its turn.", False),
        ("Screening", "False", "The first collection is running.", False),
        ("ScreenInterrupted", "False", "The first collection was begun, and does not run now.", False),
        ("WaitingForFloor", "False", "The baseline is compared with itself first.", False),
        ("WaitingForEndpoints", "False", "The servers do not take requests yet.", False),
        ("WaitingForIdle", "False", "The server in production is in use.", False),
        ("WaitingForServer", "False", "A server asks to be left alone (HTTP 429 or 503), again and again.", False),
        ("WaitingForWindow", "False", "No window is open in which workloads may be scaled.", False),
        ("WaitingForTurn", "False", "The controller runs as many replays as it may; its turn comes.", False),
        (
            "ReplayInterrupted",
            "False",
            "The replay broke off again and again without one new cell, and is tried again.",
            True,
        ),
        ("LoadLimitReached", "False", "Production has had as many prefills in this hour as it may.", False),
        ("Suspended", "False", "The line is suspended.", False),
        ("NotStarted", "Unknown", "It was not begun yet.", False),
    ),
    ConditionType.ALARM_RAISED: (
        ("Alarm", "True", "Bad fresh prefills raised an alarm that no replicate has answered yet.", True),
        ("AlarmWithoutBaseline", "True", REASON_SENTENCES[Reason.ALARM_WITHOUT_BASELINE], True),
        ("AlarmAnswered", "False", "A replicate has answered the alarm.", False),
        ("NoAlarm", "False", "No alarm was raised.", False),
    ),
    ConditionType.REPLICATE_CONFIRMED: (
        ("RegressionConfirmed", "True", "A replicate with fresh prefills confirmed the regression.", True),
        ("ReplicateDue", "Unknown", "A replicate with fresh prefills is due.", False),
        ("ReplicateRunning", "Unknown", "A replicate with fresh prefills is running.", False),
        ("NotConfirmed", "False", "A replicate with fresh prefills did not confirm the regression.", False),
        ("NoReplicate", "False", "No replicate was needed.", False),
    ),
    ConditionType.OVERRIDDEN: (
        ("OverrideObeyed", "True", "A person's word goes before the evidence.", True),
        ("NoOverride", "False", "No person has decided.", False),
        ("OverrideEnded", "False", "The override was taken away or is over.", False),
        (
            "OverrideUnknown",
            "False",
            "An override was refused: promote, hold and rollback are the values there are.",
            True,
        ),
        ("OverrideWithoutReason", "False", "An override was refused: it gives no reason.", True),
        ("OverrideExpired", "False", "An override was refused: its expiry is past, or is no time.", True),
        ("OverrideNotAllowed", "False", "An override was refused: the actor may not override.", True),
        (
            "OverrideWithoutRollout",
            "False",
            "An override was refused: there is no rollout that it could be about.",
            True,
        ),
    ),
    ConditionType.SUPERSEDED: (
        ("Current", "False", "It is about the line's present candidate.", False),
        ("LineNotFound", "Unknown", "The ServingLine that it refers to is not there.", False),
        ("NewerCandidate", "True", "A newer candidate took its place; its evidence is kept.", False),
        ("CandidateWithdrawn", "True", "The candidate was taken back; its evidence is kept.", False),
        ("BaselineChanged", "True", "Another profile is in production; its evidence is kept.", False),
    ),
    ConditionType.SUCCEEDED: (
        ("Promoted", "True", "The candidate may be promoted.", False),
        ("PassedDryRun", "True", "The candidate would have been promoted; the line only tries out.", False),
        (
            "FailedDryRun",
            "False",
            "The candidate would not have been promoted; the line only tries out.",
            True,
        ),
        ("Running", "Unknown", "It is not decided yet.", False),
        ("Held", "False", "It ended without an answer for or against the candidate.", True),
        (
            "NotMeasured",
            "False",
            "It ended because it could not be measured, which says nothing of the candidate.",
            True,
        ),
        ("RollbackAllowed", "False", "The candidate may be rolled back.", True),
        ("Superseded", "False", "Something else took its place.", False),
    ),
    ConditionType.WATCHING: (
        ("WatchScheduled", "True", "Small fresh replays are run on the promoted profile.", False),
        ("WatchWaiting", "False", "A small fresh replay of the promoted profile is due and cannot begin.", False),
        (
            "WatchInterrupted",
            "False",
            "A small fresh replay of the promoted profile broke off, and is tried again until it comes to its end.",
            True,
        ),
        ("WatchOff", "False", "The line asks for no watch.", False),
        ("NothingPromoted", "False", "The gate has promoted nothing on this line yet.", False),
        ("Suspended", "False", "The line is suspended.", False),
    ),
    ConditionType.STORE_BEHIND: (
        ("StoreCurrent", "False", "The evidence store has all that the status says.", False),
        ("StoreUnreachable", "Unknown", "The evidence store cannot be reached.", True),
        (
            "StoreBehind",
            "True",
            "The store lacks what the status says; what was promoted and rejected stands. Restore it from a backup "
            "with the controller stopped, or do nothing: it goes on with what it has.",
            True,
        ),
        (
            "EvidenceGone",
            "True",
            "The evidence of the rollout is gone; what was decided by it stands. Restore its store from a backup, or "
            "do nothing; the annotation prefillgate.io/rerun has it measured anew.",
            True,
        ),
    ),
}

_OF_DECISION: dict[str, str] = {
    **{str(reason): sentence for reason, sentence in REASON_SENTENCES.items()},
    Reason.ACCEPTANCE_REACHED: "The acceptance table is reached: promotion is allowed.",
    Reason.INDEPENDENCE_UNKNOWN: "Nothing shows that the prefills are fresh, so nothing is decided.",
    Reason.KNOB_NOT_HONOURED: "A server ignores what forces a fresh prefill, so nothing is decided.",
    Reason.CONTAMINATED: "A server answered with the text of another conversation, so nothing is decided.",
    Reason.UNDECLARED_DIFFERENCE: "The arms differ in something that nobody declared, so nothing is decided.",
    Reason.INVALID_CELLS: "Could not measure: a case was not accepted again and again.",
    Reason.ERRORS_LOPSIDED: "One arm has far more invalid cells than the other, so nothing is decided.",
    Reason.CANDIDATE_REFUSES: "The candidate refuses a request that the baseline completes.",
    Reason.BASELINE_REFUSES: "Could not measure: the baseline refuses a request that the candidate completes.",
    Reason.BASELINE_UNAVAILABLE: "Could not measure: the baseline takes no requests.",
    Reason.CASE_UNUSABLE: "Could not measure: a case of the replay set cannot be used on these servers.",
    Reason.OTHER_TRAFFIC: "Could not measure: a server is in use by others.",
    Reason.CHECK_ERROR: "Could not measure: a check errs.",
    Reason.CHECKS_FAIL_ON_BASELINE: "Could not measure: the checks fail on the baseline.",
    Reason.INSTRUMENT_BROKEN: "Could not measure: the baseline differs from itself.",
    Reason.MEASUREMENT_LOST: "Could not measure: the measurement was lost.",
    "DigestMismatch": "What it was made to compare by says something else by now: nothing is decided.",
    "NotAccepted": "Something that it refers to is not there, or cannot be used: nothing is decided.",
    "NotStarted": "Nothing was measured yet.",
    "Superseded": "Something else took its place; nothing is decided.",
    "DryRun": "The line only tries out: nothing is allowed.",
    "NoRollout": "There is no candidate to decide about.",
}
_BOTH: tuple[Status, ...] = ("True", "False")
_ONLY_FALSE: tuple[Status, ...] = ("False",)
_PROMOTES: dict[str, tuple[Status, ...]] = {Reason.ACCEPTANCE_REACHED: ("True",), Reason.OVERRIDE: _BOTH}
_ROLLS_BACK: dict[str, tuple[Status, ...]] = {
    Reason.REGRESSION_CONFIRMED: ("True",),
    Reason.CANDIDATE_UNAVAILABLE: ("True",),
    Reason.ALREADY_DECIDED: ("True",),
    Reason.OVERRIDE: _BOTH,
}
_WARNS = {*ERRORS, *_ROLLS_BACK, Reason.REPLICATE_DUE, Reason.ALARM_WITHOUT_BASELINE, Reason.SERVER_LOST}


def _rows() -> Iterable[Row]:
    for kind, rows in _TABLE.items():
        for reason, status, sentence, warning in rows:
            yield Row(kind, reason, (status,), sentence, warning)
    for kind, true_ones in (
        (ConditionType.PROMOTION_ALLOWED, _PROMOTES),
        (ConditionType.ROLLBACK_ALLOWED, _ROLLS_BACK),
    ):
        for reason, sentence in _OF_DECISION.items():
            yield Row(kind, str(reason), true_ones.get(reason, _ONLY_FALSE), sentence, reason in _WARNS)


ROWS: dict[tuple[ConditionType, str], Row] = {(row.type, row.reason): row for row in _rows()}


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happens once and is no condition: whether its event is a warning, and what it means."""

    reason: str
    sentence: str
    warning: bool = False


EVENTS: dict[str, EventRow] = {
    row.reason: row
    for row in (
        EventRow("CandidateChanged", "The candidate's profile is another one."),
        EventRow("RolloutCreated", "A rollout was made for a new candidate."),
        EventRow("RerunStarted", "A rollout was made because a person asked for it again."),
        EventRow("RerunRefused", "A rerun was asked for where there is nothing to repeat now.", warning=True),
        EventRow("ReplayRefused", "The replay cannot be carried out as it is asked for.", warning=True),
        EventRow(
            "OverrideNotPassedOn", "An override of an earlier rollout is not passed on to this one.", warning=True
        ),
        EventRow("ProfilePromoted", "The candidate is now the promoted profile."),
        EventRow("ProfileRejected", "The candidate is remembered as rejected."),
        EventRow("RolloutPruned", "An ended rollout beyond the history limit was removed; its evidence is kept."),
        EventRow("WatchEnded", "A replay of the promoted profile ended."),
        EventRow("WatchAlarmed", "A replay of the promoted profile ended in an alarm.", warning=True),
        EventRow("CannotGoOn", "The controller cannot go on with this line until somebody mends it.", warning=True),
        EventRow("InternalError", "A bug of the controller keeps it from going on with this line.", warning=True),
    )
}
"""Reasons of events beside those of conditions, whose transitions are events under the condition's own reason."""


def condition_of(kind: ConditionType, status: Status, reason: str, *, at: str, generation: int) -> ConditionModel:
    """The condition of a row, its sentence as message. Raises ValueError for what stands in no row.

    `at` is RFC 3339; use `saying` for what there is to tell beyond the sentence.
    """
    row = ROWS.get((kind, reason))
    if row is None or status not in row.statuses:
        raise ValueError(f"{kind}={status} with reason {reason} stands in no row of the table of reasons")
    return ConditionModel.model_validate(
        {
            "type": kind.value,
            "status": status,
            "observedGeneration": generation,
            "lastTransitionTime": at,
            "reason": reason,
            "message": row.sentence,
        }
    )


def saying(condition: ConditionModel, detail: str) -> ConditionModel:
    """The condition with `detail` after its sentence, cut to what a message may hold, nothing in it that a terminal
    would obey."""
    message = f"{condition.message} {clean(detail)}".strip()
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "…"
    return condition.model_copy(update={"message": message})


def merged(before: Iterable[ConditionModel], now: Iterable[ConditionModel]) -> list[ConditionModel]:
    """`now` in its order; a condition whose status did not change keeps the time of its last transition."""
    known = {condition.type: condition for condition in before}
    result = []
    for condition in now:
        old = known.get(condition.type)
        if old is not None and old.status == condition.status:
            condition = condition.model_copy(update={"last_transition_time": old.last_transition_time})
        result.append(condition)
    return result
