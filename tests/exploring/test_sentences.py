"""The steps of a walk can be told in three languages, with the same values."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from regard.exploring import tellings
from regard.exploring.sentences import SENTENCES, TITLES, Said, Tongue

PLACE = re.compile(r"\{\w+\}")


@pytest.mark.parametrize("tongue", ["de", "zh"])
def test_every_title_and_sentence_is_there_with_the_same_values(tongue: str) -> None:
    for english, others in ((TITLES, tellings.TITLES), (SENTENCES, tellings.SENTENCES)):
        assert others[tongue].keys() == english.keys()
        for name, text in others[tongue].items():
            assert set(PLACE.findall(text)) == set(PLACE.findall(english[name])), name
            assert text != english[name] or name in ("feedforward", "position", "softmax")
    assert {"en", *tellings.TITLES} == {"en", *tellings.SENTENCES} == set(get_args(Tongue))


def test_values_are_written_as_the_language_does() -> None:
    said = Said(
        ("logits", "scale"), {"layers": 2, "word": "a", "vocabulary": 12_000, "count": 10, "d_k": 8, "root": 2.828}
    )
    assert "12,000" in said.sentence()
    assert "2.828" in said.sentence()
    assert "12.000" in said.sentence("de")
    assert "2,828" in said.sentence("de")
    assert "12,000" in said.sentence("zh")
    assert said.title("de") == "Nächstes Token & Geteilt durch √8"
    share = Said(("softmax",), {"word": "a", "other": "b.c", "share": 0.25})
    assert share.sentence().endswith("«b.c»: 25%.")
    assert share.sentence("de").endswith("„b.c“: 25\u00a0%.")
