"""Unknown words put in their place: what a model of whole words could not name is copied from the source.

    source         Herr  Achterkamp  lacht              the model knows no Achterkamp
    written        Mr    <unk>       laughs
    looked most at Herr  Achterkamp  lacht
    put back       Mr    Achterkamp  laughs

PosUnk (Luong et al. 2015, Addressing the Rare Word Problem; Zhou et al. 2016, section 4) with the model's own attention
as the alignment and no dictionary: it is right for names and numbers, which most words are that no vocabulary holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.decoding.ensemble import Ensemble
from regard.decoding.fast import OwnSearch
from regard.errors import UsageError
from regard.models.interface import SequenceModel
from regard.text.tokenizer import Tokenizer
from regard.translation.alignment import TokenLink, align, aligning_attention


class Copying:
    """What it takes to put words back; raises UsageError for a model that cannot."""

    def __init__(self, network: SequenceModel[Any], tokenizer: Tokenizer) -> None:
        self.network = network.members[0] if isinstance(network, Ensemble) else network
        self.tokenizer = tokenizer
        if not (tokenizer.whole_words and tokenizer.source.whole_words):
            raise UsageError(
                'translate: `copy_unknown` needs a model of whole words (`tokenizer.kind` = "words"), but this one has '
                "smaller pieces, of which it can spell any word. Leave it out."
            )
        if not isinstance(self.network, OwnSearch) and aligning_attention(self.network) is None:
            raise UsageError(
                "translate: `copy_unknown` needs a model with attention to its source, but "
                f"{type(self.network).__name__} has none, which would say where a word comes from. Leave it out."
            )

    def texts(
        self, sources: Sequence[str], read: Sequence[Sequence[int]], written: Sequence[Sequence[int]]
    ) -> list[str]:
        """The texts of some translations, of sources as texts and as tokens with the end token."""
        texts = [self.tokenizer.decode(tokens) for tokens in written]
        unsure = [row for row, tokens in enumerate(written) if self.tokenizer.unknown in tokens]
        specials = self.tokenizer.specials
        links = align(self.network, [read[row] for row in unsure], [written[row] for row in unsure], specials)
        for row, found in zip(unsure, links, strict=True):
            texts[row] = self._put_back(texts[row], written[row], found, self._words(sources[row], read[row]))
        return texts

    def _words(self, source: str, read: Sequence[int]) -> list[str]:
        """Each token of a source, but its end, as it stands there; one that asks for a language stands nowhere."""
        (spans,) = self.tokenizer.source.spans([source])
        words = [source[first:last].strip() for first, last in spans]
        return [""] * (len(read) - 1 - len(words)) + words

    def _put_back(self, text: str, written: Sequence[int], links: Sequence[TokenLink], words: Sequence[str]) -> str:
        assert self.tokenizer.unknown is not None
        label = self.tokenizer.labels([self.tokenizer.unknown])[0]
        pieces = text.split(label)
        places = [place for place, token in enumerate(written) if token == self.tokenizer.unknown]
        if len(pieces) != len(places) + 1:
            return text
        looked = [max(((weight, i) for i, j, weight in links if j == place), default=None) for place in places]
        put = [words[best[1]] or label if best is not None else label for best in looked]
        return "".join(part for both in zip(pieces, [*put, ""], strict=True) for part in both)
