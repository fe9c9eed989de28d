"""The number of the rules a bundle is recomputed by: schedule, requests, checks, counting, decision and its words.

A change that gives another output for the same events makes every earlier bundle differ, though nobody forged it. So
the number is raised with it; `tests/bundle/test_rules.py` goes red where one changed without the other.
"""

RULES = 2


class OtherRules(Exception):
    """A bundle was made under other rules than this program has. What needs no rules was checked and holds."""

    def __init__(self, rules: int, program: str, checked: str) -> None:
        self.rules = rules
        advice = "upgrade prefillgate" if rules > RULES else f"recompute it with {program}, which wrote it"
        super().__init__(
            f"made under rules {rules}, this program has {RULES}: its verdict cannot be recomputed here, {advice}. "
            f"{checked}"
        )
