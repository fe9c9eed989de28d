"""A log restated as JSON: `claim`, `restated` by arm, `labels` by label. Numbers are never rounded."""

from __future__ import annotations

from prefillgate.core.restated import Restated, Restatement
from prefillgate.report.json_report import Json, arm_counts_json, plain


def restated_json(restatement: Restatement) -> Json:
    """The documented fields of `audit --json` beyond those of a verdict."""
    claim: Json = plain(restatement.claim)
    return {
        "claim": claim,
        "restated": {each.name: {"bounds": plain(each.bounds), "speed": _speed(each)} for each in restatement.arms},
        "labels": [
            {"label": each.name, **arm_counts_json(each.counts), "bounds": plain(each.bounds), "speed": _speed(each)}
            for each in restatement.labels
        ],
    }


def _speed(restated: Restated) -> Json:
    told: Json = plain(restated.speed)
    return told
