"""Translations of pieces become one."""

from __future__ import annotations

from regard.translation.result import Translation, joined, one_line, to_json

FIRST = [
    Translation("Ja.", -1.0, -2.0, cut=True, tokens=("Ja", "."), source_tokens=("Yes", "."), alignment=((0, 0, 0.5),)),
    Translation("Doch.", -3.0, -4.0, cut=False, tokens=("Doch", "."), flags=("loop",)),
]
SECOND = [Translation("Nein", -5.0, -6.0, cut=False, tokens=("Nein",), source_tokens=("No",), alignment=((0, 0, 1.0),))]


def test_the_best_of_each_piece_make_the_best() -> None:
    best, second = joined(["Yes. ", "No"], [FIRST, SECOND], 1)
    assert (best.text, best.score, best.log_probability, best.cut) == ("Ja. Nein", -6.0, -8.0, True)
    assert (best.tokens, best.source_tokens) == (("Ja", ".", "Nein"), ("Yes", ".", "No"))
    assert best.alignment == ((0, 0, 0.5), (2, 2, 1.0))
    assert best.flags == ("split",)
    assert (second.text, second.score, second.flags) == ("Doch. Nein", -8.0, ("loop", "split"))


def test_scores_may_be_shared() -> None:
    assert joined(["Yes. ", "No"], [FIRST, SECOND], 2)[0].score == -3.0


def test_a_translation_is_a_line_and_an_object() -> None:
    assert one_line("a\r\nb\nc") == "a  b c"
    told = to_json(FIRST)
    assert (told["text"], told["alternatives"]) == ("Ja.", [{"text": "Doch.", "score": -3.0}])
