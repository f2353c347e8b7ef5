"""What is known of a corpus before it is read: above all, which of its files are missing."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from regard.data.corpus import CorpusSettings, Elsewhere, Files, Mixture, Music, Text
from regard.data.generated import Generated
from regard.data.glance import PLACES, check_there
from regard.data.labelled import Class, Classes, Labelled, Restoring, Tagged
from regard.errors import MissingError

NO_PLACES = {"kind", "format", "language", "source_language", "target_language", "label", "encoding"}


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (
            Files("a", "b", test_source="c.tsv"),
            ["a (`data.source`)", "b (`data.target`)", "c.tsv (`data.test_source`)"],
        ),
        (Mixture((Files("here", "a"), Files("b.tsv"))), ["a (`data.corpora[0].target`)", "b.tsv (`data.corpora[1].s"]),
        (Text("a", valid="here", test="*.no"), ["a (`data.text`)", "*.no (`data.test`)"]),
        (Music("a", valid="b", test="folder"), ["a (`data.music`)", "b (`data.valid`)"]),
        (Labelled("a", valid="b"), ["a (`data.table`)", "b (`data.valid`)"]),
        (Tagged("a", test="b"), ["a (`data.words`)", "b (`data.test`)"]),
        (Restoring("a", test="b"), ["a (`data.text`)", "b (`data.test`)"]),
        (
            Classes((Class("x", "a"), Class("y", "here"), Class("z", "b"))),
            ["a (`data.classes[0].text`)", "b (`data.classes[2].text`)"],
        ),
    ],
)
def test_all_missing_files_are_named_at_once(
    settings: CorpusSettings, missing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").touch()
    Path("folder").mkdir()
    with pytest.raises(MissingError) as error:
        check_there(settings)
    assert str(error.value).startswith(f"data: all its files must be there, but {len(missing)} are not: ")
    assert all(one in str(error.value) for one in missing)
    assert "here" not in str(error.value).replace("there", "")


def test_what_is_there_or_has_no_files_is_not_complained_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.en").touch()
    for settings in (Files("-", "a.en"), Text("*.en", test="."), Generated(), Elsewhere("hf:a/b")):
        check_there(settings)


@pytest.mark.parametrize("kind", [Files, Text, Music, Labelled, Tagged, Restoring, Class])
def test_every_setting_that_names_files_is_known(kind: type) -> None:
    names = {each.name for each in fields(kind) if str(each.type) in ("str", "str | None")}
    assert names - NO_PLACES <= set(PLACES)
    assert names - NO_PLACES
