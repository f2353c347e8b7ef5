"""Confusion matrices as pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from regard.viewing.confusion import confusion_svg


def test_every_number_is_there_and_mistakes_look_otherwise() -> None:
    drawn = confusion_svg(["a<b", "c & d"], [[98, 2], [0, 7]], "Which & which")
    root = ET.fromstring(drawn)
    texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for word in ("98", "2", "7", "Which & which", "a<b", "c & d"):
        assert any(text.startswith(word) for text in texts), word
    looks = [element.get("class") for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert (looks.count("cell"), looks.count("against"), looks.count("empty")) == (2, 1, 4)
    assert "a&lt;b → c &amp; d: 2 of 100, 2.0%" in drawn


def test_labels_that_never_occur() -> None:
    assert "<svg" in confusion_svg(["x" * 60, "y"], [[0, 0], [0, 0]], "nothing")


def test_many_labels_make_no_picture_of_nothing() -> None:
    count = 120
    counts = [[5 if row == column else 0 for column in range(count)] for row in range(count)]
    drawn = confusion_svg([f"label {number}" for number in range(count)], counts, "many")
    assert drawn.count('class="cell"') == count
    assert drawn.count('class="empty"') == count + 1
    assert len(drawn) < 150_000
