"""From the URLs of an arm to its lanes, and to the shape of the run they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from prefillgate.api.run_file import MOST_SERVERS, check_url, check_urls_differ
from prefillgate.cli.errors import BadInput
from prefillgate.core.shape import Shape
from prefillgate.replay.session import ArmRequest


def arm_of(arm: str, urls: Sequence[str]) -> ArmRequest:
    """The arm behind the URLs given with `--baseline` or `--candidate`. Raises `BadInput`."""
    cleaned = [url.rstrip("/") for url in urls]
    try:
        for url in cleaned:
            check_url(url)
        check_urls_differ(cleaned)
    except ValueError as error:
        raise BadInput(f"--{arm}: {error}") from error
    if len(cleaned) > MOST_SERVERS:
        raise BadInput(f"--{arm}: {len(cleaned)} servers (allowed: at most {MOST_SERVERS})")
    return ArmRequest(cleaned[0], more_urls=tuple(cleaned[1:]))


def two_arms(baseline: ArmRequest, candidate: ArmRequest) -> None:
    """Raise `BadInput` where both arms are one server and one model as written; a server may show it later still."""
    common = [url for url in baseline.urls if url in candidate.urls]
    if common and baseline.model == candidate.model:
        raise BadInput(
            f"--baseline and --candidate are the same server and model ({common[0]}): nothing could be compared "
            "(allowed: two servers, or one with two models named by --baseline-model and --candidate-model)"
        )


def with_lanes(shape: Shape, arms: Mapping[str, ArmRequest]) -> Shape:
    """The shape with the lanes of the arms.

    Raises `BadInput` where a server stands in both arms and cells would meet on it, and for `--arms-at-once` without a
    second arm.
    """
    baseline, candidate = arms.get("baseline"), arms["candidate"]
    made = replace(
        shape, baseline_lanes=1 if baseline is None else len(baseline.urls), candidate_lanes=len(candidate.urls)
    )
    if baseline is None:
        if shape.at_once:
            raise BadInput("--arms-at-once is given and --baseline is not (allowed: both, or neither)")
        return made
    common = [url for url in baseline.urls if url in candidate.urls]
    if made.parallel and common:
        why = "--arms-at-once" if shape.at_once else "several servers for one arm"
        raise BadInput(f"{why}: {common[0]} stands in both arms, so cells would meet on it (allowed: each URL once)")
    return made
