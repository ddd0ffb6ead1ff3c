"""A short run of mutated pull answers; `python -m tests.fuzz.bodies` is the long one."""

import random

from tests.fuzz.bodies import fuzz


def test_no_mutated_answer_is_believed_that_contradicts_itself() -> None:
    outcome = fuzz(count=4000, seed=random.randrange(1 << 32))
    print(outcome, *outcome.wrong, sep="\n")
    assert outcome.ok
    assert min(outcome.outcomes[name] for name in ("refused", "not decoded", "believed")) > 50
