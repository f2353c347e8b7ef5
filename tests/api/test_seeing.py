"""Pictures."""

from __future__ import annotations

import pytest

from regard.api import Model
from regard.errors import UsageError


def test_a_picture_holds_every_attention_and_the_translation(model: Model) -> None:
    picture = model.look("seven")
    assert (picture.source, picture.translation) == ("seven", "sieben")
    assert [(one.name, one.layer) for one in picture.maps] == [("encoder", 0), ("decoder", 0), ("cross", 0)]
    page = picture.to_html()
    assert page.startswith("<!doctype html>")
    assert "sieben" in page
    with pytest.raises(UsageError, match="at least one word"):
        model.look("  ")
