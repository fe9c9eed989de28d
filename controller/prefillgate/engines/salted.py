"""What families with `cache_salt` on both routes have in common: the salt, the fields that make a reply tell of it,
the probe's plan and two flags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.base import CellRequest
from prefillgate.engines.common import CHAT, COMPLETIONS, BodyEditor
from prefillgate.engines.openai_routes import ColdMeans, put_nonce
from prefillgate.engines.probing import TWO_TOKENS_FORCED, ProbePlan

PLAN = ProbePlan(ColdProof.SALT, (COMPLETIONS, CHAT), TWO_TOKENS_FORCED)
SALTED_FLAGS: Mapping[str, str] = {
    capability.CONTEXT: "a build whose /v1/models tells max_model_len",
    capability.KEY: "--api-key-file, if it shall ask for one",
}


def salted(salt: Callable[[str], str], *asked: str) -> Mapping[str, ColdMeans]:
    """The cold means: `cache_salt`, made of the nonce by `salt`, with the fields `asked` set to true; or a nonce.

    Builds that do not know a field of `asked` must ignore it.
    """

    def put_salt(editor: BodyEditor, request: CellRequest) -> None:
        editor.set("cache_salt", salt(request.nonce))
        for name in asked:
            editor.set(name, True)

    return {ColdProof.SALT: put_salt, ColdProof.NONCE: put_nonce}
