"""How well a judge agrees with people: its verdicts on labelled outputs, counted."""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.core.exact import clopper_pearson

MIN_EXAMPLES = 20  # fewer say too little: 20 of 20 still leave room for 17 % disagreement


@dataclass(frozen=True, slots=True)
class Agreement:
    """Labelled outputs by label and verdict. `unanswered`: the judge gave no verdict that could be read."""

    good_as_good: int = 0
    good_as_bad: int = 0
    bad_as_bad: int = 0
    bad_as_good: int = 0
    unanswered: int = 0

    @property
    def answered(self) -> int:
        """Labelled outputs with a verdict."""
        return self.good + self.bad

    @property
    def good(self) -> int:
        """Answered outputs that people labelled good."""
        return self.good_as_good + self.good_as_bad

    @property
    def bad(self) -> int:
        """Answered outputs that people labelled bad."""
        return self.bad_as_bad + self.bad_as_good

    @property
    def agreed(self) -> int:
        """Verdicts that are the label."""
        return self.good_as_good + self.bad_as_bad

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % Clopper-Pearson interval of the share agreed; None when nothing was answered."""
        return clopper_pearson(self.agreed, self.answered) if self.answered else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa (1960): agreement beyond what the same shares of verdicts would reach by chance.

        None where chance alone agrees always, or nothing was answered.
        """
        if not self.answered:
            return None
        called_bad = self.good_as_bad + self.bad_as_bad
        called_good = self.answered - called_bad
        by_chance = (self.good * called_good + self.bad * called_bad) / self.answered**2
        if by_chance == 1.0:
            return None
        return (self.agreed / self.answered - by_chance) / (1 - by_chance)

    @property
    def shortcoming(self) -> str | None:
        """Why this validates no judge, or None where it does."""
        if self.answered < MIN_EXAMPLES:
            return f"{self.answered} labelled outputs with a verdict, fewer than {MIN_EXAMPLES}"
        if not self.good or not self.bad:
            return f"all {self.answered} labelled outputs are {'good' if self.good else 'bad'}"
        if self.kappa is not None and self.kappa <= 0:
            return f"its verdicts agree with the labels no more than chance does (kappa {self.kappa:.2f})"
        return None

    @property
    def better_than_a_constant(self) -> bool:
        """Whether it agrees more often than a judge that says the same of everything."""
        return self.agreed > max(self.good, self.bad)

    def __str__(self) -> str:
        interval = self.interval
        if interval is None:
            return f"gives no verdict on {self.unanswered} labelled outputs"
        low, high = interval
        kappa = "unknown" if self.kappa is None else f"{self.kappa:.2f}"
        told = (
            f"agrees with {self.agreed} of {self.answered} labelled outputs (95 % {low:.2f} to {high:.2f}, kappa "
            f"{kappa}); {self.bad_as_good} of {self.bad} bad ones called good, {self.good_as_bad} of {self.good} good "
            "ones called bad"
        )
        return f"{told}; no verdict on {self.unanswered} more" if self.unanswered else told


def judge_notes(check: str, agreement: Agreement) -> tuple[str, ...]:
    """What the verdict says of a judge: that it is not validated, its agreement, and where that is worth nothing."""
    notes = []
    if agreement.shortcoming is not None:
        notes.append(f"judge {check} is NOT VALIDATED: {agreement.shortcoming}")
    if agreement.answered or agreement.unanswered:
        notes.append(f"judge {check} {agreement}")
    if agreement.answered and not agreement.better_than_a_constant:
        notes.append(f"judge {check} agrees no better than one that says the same of everything")
    return tuple(notes)
