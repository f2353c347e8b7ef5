from __future__ import annotations

import pytest

from regard.training.report import Ending, StepReport


def test_speed_counts_the_tokens_of_all_steps() -> None:
    assert StepReport(20, 10, 2.0, 1e-3, 0.5, tokens=6_000, seconds=1.5).tokens_per_second == 4_000


@pytest.mark.parametrize(
    ("ending", "reason", "words"),
    [
        (Ending.done(1_200), "done", "All 1,200 steps done."),
        (
            Ending.no_improvement(9_000, "BLEU", 31.417, 4_000, 10),
            "no improvement",
            "Stopped at step 9,000: 10 validations in a row had no better BLEU than the 31.42 of step 4,000.",
        ),
        (
            Ending.no_improvement(9, "loss", 2.5, 8, 1),
            "no improvement",
            "Stopped at step 9: 1 validation had no better loss than the 2.5 of step 8.",
        ),
        (Ending.signal(14, "SIGINT"), "signal", "Stopped by SIGINT after step 14; nothing is lost."),
        (
            Ending.out_of_time(70, 1_000, 5_400),
            "time",
            "Stopped after step 70 of 1,000: the time limit of 1:30:00 is reached.",
        ),
        (Ending.diverged(5, 1), "diverged", "going back to a checkpoint once. Lower the learning rate"),
        (Ending.diverged(5, 3), "diverged", "going back to a checkpoint 3 times."),
    ],
)
def test_every_ending_is_a_sentence_with_its_numbers(ending: Ending, reason: str, words: str) -> None:
    assert ending.reason == reason
    assert words in ending.sentence
    assert ending.sentence.endswith(".")
