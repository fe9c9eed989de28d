"""The story that must come out right (STATISTICS.md section 5), through the core and through `audit` on a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prefillgate.cli.audit import command
from prefillgate.core.acceptance import STANDARD
from prefillgate.core.audit import audit_facts
from prefillgate.core.cells import CANDIDATE
from prefillgate.core.evalue import pair_factor
from prefillgate.core.judge import write_verdict
from prefillgate.core.verdict import Verdict
from tests.support.cell_logs import LONG, fresh, story, story_replicate, write_log

FISHER_BY_REQUEST = 9.3005606377955e-08


def audit(path: Path, cells: list[Any], *options: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(command, [str(write_log(path, cells)), "--json", *options], standalone_mode=False)
    assert result.exception is None
    return result.return_value, json.loads(result.stdout)


def judged(cells: list[Any]) -> Verdict:
    return write_verdict(audit_facts(cells, STANDARD, "story"))


def test_twelve_requests_hang_off_two_prefills() -> None:
    seen = judged(story())
    candidate, baseline = seen.candidate, seen.baseline
    assert (candidate.requests, candidate.bad_requests) == (12, 11)
    assert (candidate.prefills, candidate.bad_prefills, candidate.copies) == (2, 2, 10)
    assert (candidate.decision_prefills, candidate.bad_for_promotion) == (2, 2)
    assert (baseline.requests, baseline.bad_requests, baseline.prefills, baseline.bad_prefills) == (95, 0, 12, 0)
    assert sum(view.cell.case_id in LONG for view in seen.cells if view.cell.arm != CANDIDATE) == 20
    assert candidate.effective_prefills == pytest.approx(2.0)


def test_by_request_it_is_certain_and_by_prefill_it_is_not() -> None:
    comparison = judged(story()).comparison
    assert comparison.fisher_by_request == pytest.approx(FISHER_BY_REQUEST, rel=1e-9)
    assert comparison.fisher_by_prefill == pytest.approx(1 / 6, rel=1e-12)
    assert comparison.boschloo_by_prefill == pytest.approx(0.0625, rel=1e-9)
    assert pair_factor(True, False, 0.02, 0.40) ** 2 == pytest.approx(5.58315, abs=1e-5)


def test_the_first_answer_is_an_alarm_and_no_rollback() -> None:
    seen = judged(story())
    decision = seen.decision
    assert (decision.decision.value, decision.reason) == ("hold", "ReplicateDue")
    assert (decision.promotion.value, decision.rollback.value) == ("Blocked", "Refused")
    assert seen.alarm
    assert decision.cause == "Unverified"
    assert decision.what_would_change[1] == "A fresh replicate reaching E >= 40 would allow rollback."


def test_eight_fresh_prefills_do_not_confirm_it() -> None:
    seen = judged([*story(), *story_replicate()])
    (view,) = seen.replicates
    assert (view.candidate_units, view.candidate_bad, view.ending, view.separation) == (8, 0, "clean", "gap")
    assert view.candidate_rate_upper == pytest.approx(1 - 0.05 ** (1 / 8), rel=1e-12)
    assert view.candidate_rate_upper == pytest.approx(0.312, abs=0.0005)
    assert (seen.candidate.decision_prefills, seen.candidate.bad_for_promotion) == (10, 2)
    decision = seen.decision
    assert (decision.decision.value, decision.reason) == ("hold", "MoreEvidenceNeeded")
    assert (decision.promotion.value, decision.rollback.value) == ("Blocked", "Refused")
    assert decision.what_would_change[0] == "65 more clean fresh prefills would promote."
    assert (
        "Replicate 1 not confirmed: 0 of 8 fresh candidate prefills bad (rate below 0.312 at 95 %); kept apart by gap."
        in decision.sentences
    )
    assert decision.cause == "Unverified"
    assert not seen.alarm


def test_a_replicate_minutes_later_from_the_cache_is_no_replicate() -> None:
    """What the team ran first: eight good answers of the same process, 16,892 tokens from the cache, 4 processed."""
    cached = [
        fresh(
            case,
            LONG[case] - 4,
            LONG[case],
            replicate=1,
            server_epoch="candidate-1",
            started_at=1_790_020_000.0 + 3 * place,
        )
        for place, case in enumerate([*LONG] * 4)
    ]
    seen = judged([*story(), *cached])
    (view,) = seen.replicates
    assert (view.candidate_units, view.ending) == (0, None)
    assert (seen.candidate.prefills, seen.candidate.copies, seen.candidate.decision_prefills) == (2, 18, 2)
    assert seen.decision.rollback.value == "Refused"


def test_sixty_five_more_clean_prefills_promote_and_one_less_does_not() -> None:
    late = {"server_epoch": "candidate-1", "started_at": 1_790_100_000.0}
    prompts = [case for case in dict.fromkeys(cell.case_id for cell in story()) for _ in range(7)]
    units: dict[str, int] = dict.fromkeys(prompts, 0)
    for cell in (*story(), *story_replicate()):
        units[cell.case_id] += cell.arm == CANDIDATE and cell.cached_tokens == 0
    room = [case for case, had in units.items() for _ in range(7 - had)]
    more = [fresh(case, **late) for case in room[-65:]]
    assert len(more) == 65
    cells = [*story(), *story_replicate()]
    assert judged([*cells, *more]).decision.reason == "AcceptanceReached"
    assert judged([*cells, *more[:-1]]).decision.what_would_change[0] == "1 more clean fresh prefills would promote."


def test_audit_tells_the_story_from_a_file(tmp_path: Path) -> None:
    code, told = audit(tmp_path / "story.jsonl", story(), "--exit-decision")
    assert code == 10
    assert told["arms"]["candidate"] == {
        "requests": 12,
        "prefills": 2,
        "decision_prefills": 2,
        "copies": 10,
        "partial": 0,
        "unknown": 0,
        "orphans": 0,
        "bad_requests": 11,
        "bad_prefills": 2,
        "bad_for_promotion": 2,
        "request_interval": pytest.approx([0.6152038, 0.9978924], abs=1e-6),
        "prefill_interval": pytest.approx([0.1581139, 1.0], abs=1e-6),
    }
    assert (told["arms"]["baseline"]["requests"], told["arms"]["baseline"]["prefills"]) == (95, 12)
    assert told["comparison"] == {
        "fisher_by_request": pytest.approx(FISHER_BY_REQUEST, rel=1e-9),
        "fisher_by_prefill": pytest.approx(1 / 6),
        "boschloo_by_prefill": pytest.approx(0.0625),
    }
    assert (told["decision"], told["promotion"], told["rollback"]) == ("hold", "Blocked", "Refused")
    assert (told["reason"], told["cause"]) == ("ReplicateDue", "Unverified")
    assert told["alarm"]["raised"] is True
    assert any(
        sentence.startswith("Rollback is refused: 11 bad requests hang off 2 ") for sentence in told["sentences"]
    )


def test_audit_tells_the_replicate_from_a_file(tmp_path: Path) -> None:
    code, told = audit(tmp_path / "story.jsonl", [*story(), *story_replicate()], "--exit-decision")
    assert (code, told["reason"], told["rollback"]) == (10, "MoreEvidenceNeeded", "Refused")
    (replicate,) = told["replicates"]
    assert (replicate["ending"], replicate["confirmed"], replicate["candidate_units"]) == ("clean", False, 8)
    assert (replicate["candidate_bad"], replicate["separation"]) == (0, "gap")
    assert replicate["candidate_rate_upper"] == pytest.approx(0.31234, abs=1e-5)
    candidate = told["arms"]["candidate"]
    assert (candidate["decision_prefills"], candidate["bad_for_promotion"]) == (10, 2)
    assert told["what_would_change"][0] == "65 more clean fresh prefills would promote."


def test_a_replicate_a_minute_later_in_the_same_process_is_not_apart(tmp_path: Path) -> None:
    _, told = audit(tmp_path / "story.jsonl", [*story(), *story_replicate(gap_seconds=60.0)])
    (replicate,) = told["replicates"]
    assert (replicate["ending"], replicate["separation"]) == ("aborted", None)
