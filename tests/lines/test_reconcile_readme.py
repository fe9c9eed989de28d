"""The table of conditions in the README is the table of the program."""

from __future__ import annotations

import re
from pathlib import Path

from prefillgate.api.kinds.reasons import CONDITIONS_OF, ROWS, ConditionType
from prefillgate.core.decision import Reason

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
KINDS = {"ServingLine": "line", "ProfileRollout": "rollout", "PromotionPolicy": "policy", "ReplaySet": "replay set"}
PERMISSIONS = (ConditionType.PROMOTION_ALLOWED, ConditionType.ROLLBACK_ALLOWED)


def rows() -> dict[str, list[str]]:
    """Condition -> the other cells of its row."""
    table = README.partition("| condition | of |")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {name.strip("`"): rest for name, *rest in cells}


def test_every_condition_has_its_kinds_and_all_its_reasons() -> None:
    assert list(rows()) == [kind.value for kind in ConditionType]
    for kind in ConditionType:
        of, _, reasons = rows()[kind]
        assert of.split(", ") == [KINDS[name] for name, its in CONDITIONS_OF.items() if kind in its], kind
        wanted = [reason for (type_, reason) in ROWS if type_ is kind]
        if kind in PERMISSIONS:
            decisions = {str(reason) for reason in Reason}
            wanted = [reason for reason in wanted if reason not in decisions]
        told = re.findall("`([A-Z][A-Za-z]+)`", reasons)
        assert told == wanted, kind
