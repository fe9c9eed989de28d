"""Every name that the gate gives or reads in a cluster: kinds, annotations, labels, the field manager."""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "prefillgate.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "prefillgate"

FIELD_MANAGER = "prefillgate"  # of everything we write, status too
FINALIZER = f"{GROUP}/finish"
SYSTEM_NAMESPACE = "prefillgate"  # where the controller stands unless it is told otherwise
LEASE = "prefillgate-controller"  # which of several controllers leads, in the namespace of the controller

# Read from ProfileRollouts and ServingLines, never from a workload: `kubectl rollout undo` would bring one back.
OVERRIDE = f"{GROUP}/override"  # promote, hold or rollback
OVERRIDE_REASON = f"{GROUP}/override-reason"
OVERRIDE_EXPIRES = f"{GROUP}/override-expires"  # RFC 3339, as 2026-12-01T08:00:00Z
OVERRIDE_ACTOR = f"{GROUP}/override-actor"  # stamped at admission from the request's user
OVERRIDE_ANNOTATIONS = (OVERRIDE, OVERRIDE_REASON, OVERRIDE_EXPIRES, OVERRIDE_ACTOR)
OVERRIDE_VALUES = ("promote", "hold", "rollback")
OVERRIDE_VERB = "override"  # the custom verb that who overrides must be allowed
OVERRIDE_STAMP_POLICY = "prefillgate-override-actor"  # the MutatingAdmissionPolicy that stamps the actor
OVERRIDE_POLICY = "prefillgate-override"  # the ValidatingAdmissionPolicy that asks for the verb

RERUN = f"{GROUP}/rerun"  # on a ServingLine or a ProfileRollout; any value that was not handled yet asks once

SCALED = f"{GROUP}/scaled"  # on a ServingLine, ours: what its workloads had before they were scaled for a replay

LINE_LABEL = f"{GROUP}/line"  # on rollouts and jobs: the name of their ServingLine
REPLAY_LABEL = f"{GROUP}/replay"  # on Jobs and their pods: the key of the replay
REPLAY_ACCOUNT = "replay"  # the ServiceAccount of Jobs, in the namespace of the controller
CANDIDATE_LABEL = f"{GROUP}/candidate"  # on rollouts and jobs: the first digits of the candidate's digest
USABLE_BY_LABEL = f"{GROUP}/usable-by"  # on Secrets: without it with the value below the gate reads none
USABLE_BY_GATE = "gate"

APART_LABEL = f"{GROUP}/apart"  # on pods that a replay asks alone: made for it, or taken out of their Services
SCRATCH, DRAINED = "scratch", "drained"
APART_TERM = f"{GROUP}/apart-term"  # on the same pods, an annotation: the token of the term that put them aside
PROMOTED_CONDITION = f"{GROUP}/promoted"  # the readiness gate of a pod

LONGEST_LINE_NAME = 40  # a rollout's and a Job's name is made of it and has at most 63 characters


@dataclass(frozen=True, slots=True)
class KindNames:
    """What one kind is called. `short` are the names that kubectl takes as well."""

    kind: str
    plural: str
    singular: str
    short: tuple[str, ...]

    @property
    def crd_name(self) -> str:
        """The name of its CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


SERVING_LINE = KindNames("ServingLine", "servinglines", "servingline", ("sl",))
PROFILE_ROLLOUT = KindNames("ProfileRollout", "profilerollouts", "profilerollout", ("pro",))
PROMOTION_POLICY = KindNames("PromotionPolicy", "promotionpolicies", "promotionpolicy", ("ppol",))
REPLAY_SET = KindNames("ReplaySet", "replaysets", "replayset", ("rset",))
ALL_NAMES = (SERVING_LINE, PROFILE_ROLLOUT, PROMOTION_POLICY, REPLAY_SET)
