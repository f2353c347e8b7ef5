from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.training.usual import Course, Usual
from regard.viewing.training_curves import APART, POINTS, _thinned, loss_by_tokens, read_metrics, training_svg

SVG = "{http://www.w3.org/2000/svg}"


def step(number: int, **values: Any) -> dict[str, Any]:
    usual = {"loss": 9 / number, "learning_rate": 1e-3, "gradient_norm": 0.5, "tokens": 600, "took": 0.5}
    return {"event": "step", "step": number, "steps": 1, **usual, **values}


def validation(number: int, **values: Any) -> dict[str, Any]:
    return {"event": "validation", "step": number, "nll": 1.0, "perplexity": 2.7, **values}


def written(events: list[dict[str, Any]]) -> set[str]:
    picture = training_svg(events, "a run")
    assert picture is not None
    return {"".join(text.itertext()) for text in ET.fromstring(picture).iter(f"{SVG}text")}


def test_every_curve_is_there_with_its_last_value() -> None:
    events = [step(1), step(2), validation(2, bleu=12.34), step(3, learning_rate=2e-3), validation(3, bleu=11.0)]
    assert {
        "a run", "loss in nats a token", "training 3.000", "validation 1.000", "learning rate", "0.002",
        "gradient norm, before clipping", "0.5", "tokens read a second, no padding", "1,200",
        "BLEU of the validation set, greedy; best 12.3 at step 2", "11.0",
    } <= written(events)  # fmt: skip


def test_all_words_and_numbers_can_be_in_another_language() -> None:
    events = [step(1), step(2), validation(2, bleu=12.34), step(3), validation(3, bleu=11.0)]
    picture = training_svg(events, "a run", say=lambda words: f"<{words}>")
    root = ET.fromstring(picture or "")
    said = ["".join(each.itertext()) for name in ("text", "title") for each in root.iter(f"{SVG}{name}")]
    assert len(said) > 40
    for words in set(said) - {"a run", APART}:
        assert all(part.startswith("<") and part.endswith(">") for part in re.split("(?<=>)[:,] ", words)), words


def test_why_two_losses_differ_is_said_where_there_are_two() -> None:
    events = [step(1), step(2)]
    assert APART not in written(events)
    assert APART in written([*events, validation(2)])
    assert APART not in (training_svg([*events, validation(2)], "a run", note=None) or "")


def test_a_narrow_picture_has_its_plots_below_each_other() -> None:
    events = [step(1), step(2), validation(2)]
    wide, narrow = (ET.fromstring(training_svg(events, "a run", *how) or "") for how in ((), (None, None, 1, 220)))
    assert [float(wide.get(side, "")) > float(narrow.get(side, "")) for side in ("width", "height")] == [True, False]
    names = [text for text in narrow.iter(f"{SVG}text") if text.get("class") == "name"]
    assert len(names) == 5
    assert len({name.get("x") for name in names}) == 1


def test_without_bleu_there_is_perplexity() -> None:
    events = [step(1), validation(1, perplexity=40.0), step(2), validation(2, perplexity=20.5)]
    assert {"validation perplexity a token; best 20.5 at step 2", "20.5"} <= written(events)


def test_what_is_usual_is_shaded_as_far_as_the_run_has_come() -> None:
    usual = Course(
        "demo", 5, 1,
        training=tuple(Usual(number, 9 / number, 0.1) for number in (1, 2, 3, 4)),
        validation=(Usual(2, 1.0, 0.1), Usual(3, 1.0, 0.1), Usual(900, 0.1, 0.1)),
    )  # fmt: skip
    events = [step(1), step(2), validation(2), step(3), validation(3)]
    picture = ET.fromstring(training_svg(events, "a run", usual) or "")
    shaded = [path.get("d", "") for path in picture.iter(f"{SVG}path") if "band" in (path.get("class") or "")]
    assert [path.count("L") + 1 for path in shaded] == [2 * 3, 2 * 2]  # out along the top and back along the bottom
    assert "loss in nats a token; shaded: usual, 5 runs" in "".join(picture.itertext())
    alone = ET.fromstring(training_svg([step(1), step(2)], "a run", usual) or "")
    assert sum("band" in (path.get("class") or "") for path in alone.iter(f"{SVG}path")) == 1


@pytest.mark.parametrize(
    ("first", "last", "ticks"),
    [
        (21.7, 1.65, ["1.5", "2", "3", "5", "7", "10", "15", "20"]),
        (9.0, 2.2, ["2.5", "3", "3.5", "4", "5", "6", "8"]),
        (4.0, 0.1, ["0.1", "0.2", "0.5", "1", "2"]),  # ticks as close as above would touch
        (6.0, 2.0, ["2", "3", "4", "5", "6"]),
        (6.0, 0.0, ["0", "1", "2", "3", "4", "5", "6"]),  # no logarithm of nothing
    ],
)
def test_losses_that_fell_far_are_on_a_logarithmic_axis(first: float, last: float, ticks: list[str]) -> None:
    picture = ET.fromstring(training_svg([step(1, loss=first), step(2, loss=last)], "a run") or "")
    numbers = [text.text for text in picture.iter(f"{SVG}text") if text.get("text-anchor") == "end"]
    assert numbers[1 : numbers.index("step", 1)] == ticks


def test_what_is_usual_down_to_nothing_is_shaded_on_a_logarithmic_axis_too() -> None:
    usual = Course("demo", 5, 1, training=(Usual(1, 9.0, 9.0), Usual(2, 0.1, 0.1), Usual(3, 0.0, 0.0)), validation=())
    events = [step(1, loss=9.0), step(2, loss=1.0), step(3, loss=1.0)]
    picture = ET.fromstring(training_svg(events, "a run", usual) or "")
    (shaded,) = [path.get("d", "") for path in picture.iter(f"{SVG}path") if "band" in (path.get("class") or "")]
    *_, bottom = sorted(float(pair.split()[1]) for pair in shaded.strip("Mz").split(" L"))
    (curve,) = [path for path in picture.iter(f"{SVG}path") if path.get("class") == "curve c0"][:1]
    # Below the curve there is room for the band, and not so much that the curve is flat.
    heights = [float(pair.split()[1]) for pair in curve.get("d", "").strip("M").split(" L")]
    assert max(heights) < bottom < max(heights) + 60


def test_before_the_first_step_there_is_nothing_to_draw() -> None:
    assert training_svg([], "a run") is None
    assert training_svg([{"event": "start", "step": 0}, step(1, loss=None)], "a run") is None


def test_what_is_missing_or_no_number_is_left_out() -> None:
    events = [step(1), step(2, loss=None, gradient_norm=None), step(3, gradient_norm=0.0, took=0, tokens=0)]
    found = written(events)
    assert "training 3.000" in found
    assert "1,200" in found
    only = [{"event": "step", "step": 1, "loss": 2.0, "learning_rate": 0.1}]
    assert "gradient norm, before clipping" not in written(only)


def test_steps_that_were_taken_back_are_not_drawn() -> None:
    events = [step(1), step(2), validation(2), step(3, loss=99.0), validation(3, nll=99.0), step(3, loss=4.0), step(4)]
    found = written(events)
    assert {"training 2.250", "validation 1.000"} <= found
    assert "80" not in found


def test_a_long_run_is_a_small_picture() -> None:
    picture = training_svg([step(number) for number in range(1, 20_000)], "a run")
    assert picture is not None
    assert len(picture) < 60_000


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=900))
def test_thinning_keeps_the_mean_and_the_order(values: list[float]) -> None:
    points = [(float(place), value) for place, value in enumerate(values)]
    thin = _thinned(points)
    assert len(thin) == min(POINTS, len(points))
    assert [x for x, _ in thin] == sorted(x for x, _ in thin)
    assert min(values) - 1e-9 <= min(y for _, y in thin) <= max(y for _, y in thin) <= max(values) + 1e-9
    if len(points) % POINTS == 0 or len(points) <= POINTS:
        assert sum(y for _, y in thin) / len(thin) == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_metrics_are_read_up_to_a_torn_line(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = [json.dumps(step(1)), "[]", "{}", json.dumps(validation(1)), '{"event": "step", "st']
    file.write_text("\n".join(lines))
    assert read_metrics(file) == [step(1), validation(1)]


def test_the_loss_against_tokens_is_the_mean_of_stretches_without_detours() -> None:
    events = [step(1, loss=8.0), step(2, loss=100.0), step(3, loss=100.0), step(2, loss=6.0), validation(2),
              step(4, loss=4.0, steps=2, tokens=600), step(5, loss=None), step(6, loss=1.0)]  # fmt: skip
    # 600 tokens each: two stretches of 1,500; the skipped step was read, but nothing came of it.
    assert loss_by_tokens(events, 2) == ((600.0, 7.0), (2100.0, 3.0))
    assert loss_by_tokens(events, 60) == ((300.0, 8.0), (900.0, 6.0), (1500.0, 4.0), (2700.0, 1.0))
    assert loss_by_tokens([validation(1)], 60) == ()


@given(st.lists(st.tuples(st.integers(1, 9_000), st.floats(0.1, 12.0)), min_size=1, max_size=90), st.integers(1, 20))
def test_the_loss_against_tokens_has_at_most_so_many_points_from_left_to_right(
    reports: list[tuple[int, float]], points: int
) -> None:
    events = [step(number, tokens=tokens, loss=loss) for number, (tokens, loss) in enumerate(reports, 1)]
    found = loss_by_tokens(events, points)
    assert 1 <= len(found) <= points
    assert sorted({x for x, _ in found}) == [x for x, _ in found]
    assert all(0 < x < sum(tokens for tokens, _ in reports) for x, _ in found)
