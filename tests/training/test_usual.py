"""A run beside the usual course of its recipe: silent inside the band, a sentence once each time it leaves it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.training.report import StepReport
from regard.training.usual import FLOOR, NOTHING_DIFFERS, READ_ON, TOO_HIGH, Course, CourseWatch, Stretches, Usual

COURSE = Course(
    "demo", 5, 10,
    training=tuple(Usual(step, 4.0, 0.02) for step in (10, 20, 30, 40)),
    validation=(Usual(20, 3.0, 0.1), Usual(40, 3.0, 0.1)),
)  # fmt: skip


def report(step: int, loss: float, steps: int = 10, skipped: int = 0) -> StepReport:
    return StepReport(step, steps, loss, 1e-3, 1.0, 100, 1.0, skipped)


def test_the_margin_is_three_standard_deviations_and_not_less_than_the_floor() -> None:
    assert Usual(1, 2.0, 0.1).margin == pytest.approx(0.3)
    assert Usual(1, 2.0, 0.001).margin == FLOOR
    assert Usual(1, 2.0, 0.1).high == pytest.approx(2.3)
    assert Usual(1, 0.02, 0.0).low == 0.0


@given(st.lists(st.tuples(st.integers(1, 25), st.floats(0, 9)), min_size=1, max_size=30), st.integers(1, 20))
def test_a_stretch_has_the_mean_of_its_steps(parts: list[tuple[int, float]], length: int) -> None:
    reports, step = [], 0
    for steps, loss in parts:
        step += steps
        reports.append((step, steps, loss))
    found = list(Stretches(length).of(reports))
    assert [end for end, _ in found] == sorted({end for end, _ in found})
    assert all(end % length == 0 for end, _ in found)
    for end, mean in found:
        # A report belongs to the stretch that it ends in.
        inside = [(steps, loss) for last, steps, loss in reports if end - length < last <= end]
        assert mean == pytest.approx(sum(steps * loss for steps, loss in inside) / sum(steps for steps, _ in inside))
        assert 2 * sum(steps for steps, _ in inside) >= length


def test_single_steps_and_reports_of_several_give_the_same_stretches() -> None:
    losses = [float(number % 7) for number in range(40)]
    single = list(Stretches(10).of((number + 1, 1, loss) for number, loss in enumerate(losses)))
    fives = list(Stretches(10).of((first + 5, 5, sum(losses[first : first + 5]) / 5) for first in range(0, 40, 5)))
    assert [end for end, _ in single] == [10, 20, 30, 40]
    assert dict(single) == pytest.approx(dict(fives))


def test_a_stretch_that_was_hardly_seen_is_left_out() -> None:
    assert list(Stretches(10).of([(10, 4, 1.0), (20, 10, 2.0)])) == [(20, 2.0)]
    assert list(Stretches(10).of([(10, 5, 1.0)])) == [(10, 1.0)]


def test_a_run_inside_the_band_or_below_it_says_nothing() -> None:
    watch = CourseWatch(COURSE, ["never told"])
    for step, loss in ((10, 4.05), (20, 3.98), (30, 1.0), (40, 4.0)):
        assert watch.report(report(step, loss)) is None
        assert watch.aside == ""
    assert watch.validated(20, 3.29) is None
    assert watch.validated(40, 0.5) is None


def test_what_is_little_above_waits_for_a_validation_and_is_told_once() -> None:
    watch = CourseWatch(COURSE, ["`batch.tokens` is 64, not 1024"], ["noise", "fewer examples"])
    assert watch.report(report(10, 4.1)) is None
    assert watch.aside == ""
    said = watch.validated(15, 9.9)  # nobody measured step 15: the training loss is what is known
    assert said is not None
    assert said.startswith(
        "note: training loss 4.10 at step 10 is 0.10 nats above the usual 4.00 ± 0.06 of `demo` (5 runs)"
    )
    assert "What differs here: `batch.tokens` is 64, not 1024. Think of noise; or fewer examples. See " in said
    assert said.endswith(READ_ON)
    assert watch.report(report(20, 4.1)) is None
    assert watch.aside == "0.10 above the usual at step 20"
    assert watch.validated(20, 3.0) is None
    back = watch.report(report(30, 4.0))
    assert back == "note: the loss is as usual for `demo` again."
    assert watch.aside == ""
    assert watch.report(report(40, 4.01)) is None
    assert "validation loss 4.00 at step 40 is 1.00 nats above the usual 3.00 ± 0.30" in (
        watch.validated(40, 4.0) or ""
    )


def test_of_two_at_one_step_the_one_is_told_that_is_more_margins_above() -> None:
    for validation, told in ((3.5, "training loss 4.15"), (3.9, "validation loss 3.90")):
        watch = CourseWatch(COURSE, [])
        watch.report(report(20, 4.15))  # 2.5 margins, and too few to be told at once
        assert f"{told} at step 20" in (watch.validated(20, validation) or "")


def test_what_is_far_above_is_told_at_once_and_the_newest_of_two() -> None:
    watch = CourseWatch(COURSE, [])
    said = watch.report(report(10, 4.4, skipped=1)) or ""
    assert "training loss 4.40 at step 10 is 0.40 nats above" in said
    assert "What differs here: 1 step was skipped, because gradients were no numbers. Think of a rate too high" in said
    assert watch.validated(20, 9.0) is None
    other = CourseWatch(COURSE, [])
    other.report(report(10, 4.07))
    assert "validation loss 5.00 at step 20" in (other.validated(20, 5.0) or "")


def test_the_newest_step_that_can_be_compared_is_told_though_an_older_one_was_worse() -> None:
    watch = CourseWatch(COURSE, [])
    watch.report(report(10, 4.15))
    assert "validation loss 3.31 at step 20 is 0.31 nats above" in (watch.validated(20, 3.31) or "")


def test_between_stretches_the_line_says_which_step_it_speaks_of() -> None:
    watch = CourseWatch(COURSE, [])
    watch.report(report(10, 5.0))
    assert watch.report(report(15, 9.0, steps=5)) is None
    assert watch.aside == "1.00 above the usual at step 10"
    watch.report(report(20, 9.0, steps=5))
    assert watch.aside == "5.00 above the usual at step 20"


def test_without_a_difference_it_says_what_is_left() -> None:
    said = CourseWatch(COURSE, []).report(report(10, 6.0)) or ""
    assert said.endswith(f"{NOTHING_DIFFERS} {READ_ON}")
    said = CourseWatch(COURSE, [], ["a faster machine"]).report(report(10, 6.0)) or ""
    assert said.endswith(f"{NOTHING_DIFFERS} Think of a faster machine. {READ_ON}")


def test_of_steps_that_were_skipped_a_rate_too_high_is_thought_of_once() -> None:
    watch = CourseWatch(COURSE, ["`rate` is 4, not 1"], [TOO_HIGH, "noise"])
    said = watch.report(report(10, 4.4, skipped=1)) or ""
    assert said.count(TOO_HIGH) == 1
    assert "the reason for steps that are skipped; or noise." in said


def test_past_the_end_of_the_course_and_where_nothing_came_of_the_steps_there_is_nothing_to_say() -> None:
    watch = CourseWatch(COURSE, [])
    assert watch.report(report(40, 9.0)) is not None
    assert watch.aside == "5.00 above the usual at step 40"
    assert watch.report(report(50, 99.0)) is None
    assert watch.aside == ""
    assert watch.report(report(20, 0.0, skipped=10)) is None
    assert watch.validated(50, 99.0) is None


def test_a_run_that_goes_on_in_the_middle_of_a_stretch() -> None:
    watch = CourseWatch(COURSE, [])
    assert watch.report(report(20, 99.0, steps=3)) is None  # three of ten steps say too little
    assert watch.report(report(30, 5.0)) is not None
