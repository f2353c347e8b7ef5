"""Unknown words are put back where they come from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from regard.batch import Batch, Tokens
from regard.decoding.search import SearchSettings
from regard.errors import UsageError
from regard.models.bytenet import ByteNet, ByteNetSettings
from regard.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from regard.training.loss import smoothed_cross_entropy
from regard.translation.translator import Options, Translator
from regard.translation.unknown import Copying

WORDS = ["Anna", "sees", "Bert", "and", "Carl", "hears"]
TOKENIZER = Tokenizer.learn([" ".join(WORDS) + "."], TokenizerSettings("words", vocabulary=40))
SEARCH = SearchSettings(beam=2, extra_length=3)


def copier() -> Translator:
    """A model that learned to copy three or four words, the unknown one among them, by looking at each in turn."""
    torch.manual_seed(0)
    known = TOKENIZER.encode(" ".join(WORDS))
    assert TOKENIZER.unknown is not None
    words, end = torch.tensor([*known, TOKENIZER.unknown]), TOKENIZER.specials.end
    model = RecurrentEncoderDecoder(RecurrentSettings(d_model=32, dropout=0.0), TOKENIZER.size)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(150):
        text_BT = words[torch.randint(len(words), (48, 3 + step % 2))]
        label_BT = nn.functional.pad(text_BT, (0, 1), value=end)
        target_BT = nn.functional.pad(text_BT, (1, 0), value=TOKENIZER.specials.start)
        batch = Batch(Tokens.whole(label_BT), Tokens.whole(target_BT), label_BT)
        optimiser.zero_grad()
        model.losses(batch, smoothed_cross_entropy(0.0)).mean().backward()
        optimiser.step()
    return Translator(model.eval(), TOKENIZER)


@pytest.fixture(scope="module")
def trained() -> Translator:
    with torch.random.fork_rng():
        return copier()


def test_each_unknown_word_is_copied_from_where_the_model_looked(trained: Translator) -> None:
    texts = ["Anna sees Zacharias", "Ottokar and Bert", "  Quentin hears Xaver and", "Carl sees Bert"]
    plain = [best.text for best, *_ in trained.translations(texts, SEARCH)]
    assert plain == ["Anna sees <unk>", "<unk> and Bert", "<unk> hears <unk> and", "Carl sees Bert"]
    found = [best for best, *_ in trained.translations(texts, SEARCH, Options(copy_unknown=True))]
    assert [best.text for best in found] == [text.strip() for text in texts]
    assert [best.flags for best in found] == [("copy", "unknown")] * 3 + [("copy",)]


def test_every_translation_of_a_text_is_mended(trained: Translator) -> None:
    search = replace(SEARCH, beam=4, nbest=3)
    (found,) = trained.translations(["Anna sees Zacharias"], search, Options(copy_unknown=True))
    (plain,) = trained.translations(["Anna sees Zacharias"], search)
    assert len(found) == 3
    for mended, other in zip(found, plain, strict=True):
        assert "<unk>" not in mended.text
        assert mended.text.count(" ") == other.text.count(" ")


def test_the_strongest_link_decides_and_what_stands_nowhere_stays() -> None:
    copying = Copying(copier_without_training(), TOKENIZER)
    unknown = TOKENIZER.unknown
    assert unknown is not None
    written = [unknown, *TOKENIZER.encode("and"), unknown]
    links = [(0, 0, 0.3), (1, 0, 0.5), (2, 1, 0.9), (0, 2, 0.7)]
    text = TOKENIZER.decode(written)
    assert copying._put_back(text, written, links, ["Hans", "Grete", "und"]) == "Grete and Hans"
    assert copying._put_back(text, written, links, ["", "Grete", "und"]) == "Grete and <unk>"
    assert copying._put_back(text, written, [], ["Hans"]) == "<unk> and <unk>"


def copier_without_training() -> RecurrentEncoderDecoder:
    return RecurrentEncoderDecoder(RecurrentSettings(d_model=8), TOKENIZER.size)


def test_a_model_that_cannot_is_refused() -> None:
    pieces = Tokenizer.learn([" ".join(WORDS)], TokenizerSettings(vocabulary=40))
    with pytest.raises(UsageError, match="`copy_unknown` needs a model of whole words"):
        translated(RecurrentEncoderDecoder(RecurrentSettings(d_model=8), pieces.size), pieces)
    blind = ByteNet(ByteNetSettings(channels=4, dilations=(1,), repeats=1), TOKENIZER.size)
    with pytest.raises(UsageError, match="needs a model with attention to its source, but ByteNet has none"):
        translated(blind, TOKENIZER)


def translated(network: Any, tokenizer: Tokenizer) -> None:
    Translator(network.eval(), tokenizer).translations(["Anna"], SEARCH, Options(copy_unknown=True))
