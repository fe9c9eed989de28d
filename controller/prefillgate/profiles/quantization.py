"""The precision that a weights file or a repository tells by its name: Q4_K_M, Q8_0, IQ3_XXS, BF16, AWQ, FP8."""

from __future__ import annotations

import re

_NAMED = re.compile(
    r"(?i)(?<![a-z0-9])((?:UD-)?(?:I?Q\d(?:_[KS01](?:_(?:XXS|XS|S|M|L|XL|NL|R\d))?|_(?:XXS|XS|NL|S|M|L))?|TQ\d_\d|MXFP[48]|NVFP4|"
    r"F16|F32|FP16|FP32|BF16|FP8|INT[48]|W\dA\d+|AWQ|GPTQ))(?![a-z0-9])"
)


def precision_of(name: str) -> str | None:
    """The last precision in a name, in capitals as quantizers write it; None: the name tells none."""
    found = _NAMED.findall(name)
    return found[-1].upper() if found else None


def without_precision(name: str) -> str:
    """`name` with every precision taken out, to tell whether two names differ in anything else."""
    return _NAMED.sub("", name)
