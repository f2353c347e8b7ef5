"""Learning a vocabulary from text, on the `tokenizers` library.

Each kind is four rules that become part of `tokenizer.json`: how text is normalised, where it may be cut, which
pieces are learned, and how pieces are joined again. The lines are read twice: a survey first (which characters there
are, and how often), then the counting of words. Neither keeps the text: memory is bounded, however large the corpus.
"""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from regard.errors import UsageError
from regard.status import StatusLine
from regard.text.counting import count_pieces
from regard.text.merging import learn_merges
from regard.text.survey import Survey, survey
from regard.text.words import SPACE

PADDING, START, END, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
SPECIALS = [PADDING, START, END, UNKNOWN]
OPENING = "<"  # how each of these begins
PUNCTUATION = r"\p{P}$+<=>^`|~"  # Unicode's, and what ASCII has besides
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

Kind = Literal["bpe", "bpe-end", "bytes", "words", "characters"]
MERGING: tuple[Kind, ...] = ("bpe", "bpe-end", "bytes")
SPACED: tuple[Kind, ...] = ("bpe", "bpe-end", "words")

# A longer piece is cut: a megabyte without a space must not be one word, which takes too long to merge again and again.
LONGEST_PIECE = 64
# Where no spaces are written nearly every piece is new, and each character costs some 150 bytes while learning.
MOST_UNSPACED = 8_000_000
LONGEST_LINE = 10_000


@dataclass(frozen=True)
class TokenizerSettings:
    """How text becomes tokens.

    `bpe` learns subwords of characters and marks where a word begins (▁); `bpe-end` marks where it ends, as Sennrich
    et al. did. `bytes` learns subwords of bytes, as GPT-2 does: any text comes back exactly. `words` and
    `characters` learn no subwords. What a vocabulary does not cover becomes <unk>, except with `bytes`.
    """

    kind: Kind = "bpe"
    vocabulary: int = 8_000
    """The most tokens to learn, special ones included; a small corpus may have fewer."""
    split_digits: bool = True
    split_punctuation: bool | None = None
    """Whether punctuation is cut off words; if not given, only for `words`."""
    normalise: Literal["nfc", "none"] | None = None
    """Whether composed and decomposed characters become the same; if not given, for all kinds but `bytes`."""
    lowercase: bool = False
    min_frequency: int = 1
    """Characters, words and merges that are rarer are not learned."""
    shared: bool = True
    """One vocabulary for source and target, or one for each."""
    dropout: float = 0.0
    """The chance to leave out a merge (BPE-dropout), in training only."""
    dropout_cuts: int = 4
    """Into how many different rows of subwords each training sentence is cut, with dropout."""

    def __post_init__(self) -> None:
        smallest = 260 if self.kind == "bytes" else 5
        if self.vocabulary < smallest:
            raise ValueError(
                f"`vocabulary` must be at least {smallest} for kind `{self.kind}`, but is {self.vocabulary}"
            )
        for name in ("min_frequency", "dropout_cuts"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and below 1, but is {self.dropout}")
        if self.dropout and self.kind not in MERGING:
            raise ValueError(f"`dropout` must be 0 for kind `{self.kind}`, which merges nothing, but is {self.dropout}")
        if self.split_punctuation and self.kind not in SPACED:
            raise ValueError(f"`split_punctuation` must be left out for kind `{self.kind}`, but is true")

    @property
    def composes(self) -> bool:
        """Whether text is brought into Unicode's composed form, NFC."""
        return self.kind != "bytes" if self.normalise is None else self.normalise == "nfc"

    @property
    def cuts_punctuation(self) -> bool:
        """Whether punctuation stands alone."""
        return self.kind == "words" if self.split_punctuation is None else self.split_punctuation


def learn(
    lines: Iterable[str],
    settings: TokenizerSettings,
    languages: Sequence[str] = (),
    status: StatusLine | None = None,
) -> tokenizers.Tokenizer:
    """A tokenizer whose vocabulary is learned from `lines`, which are read twice.

    Each of the target `languages` gets a special token that asks for it. `status` shows how far it is.
    """
    check_can_be_read_twice(lines)
    specials = [*SPECIALS, *map(target_tag, languages)]
    smallest = len(specials) + (len(pre_tokenizers.ByteLevel.alphabet()) if settings.kind == "bytes" else 1)
    if settings.vocabulary < smallest:
        raise UsageError(
            f"tokenizer.vocabulary: must be at least {smallest} to hold the special tokens of {len(languages)} "
            f"languages, but is {settings.vocabulary}. Use a larger one."
        )
    found = survey(lines, lambda text: _normal(text, settings))
    inner = tokenizers.Tokenizer(models.BPE())
    inner.normalizer = _normaliser(settings)
    if settings.kind == "characters":
        inner.decoder = decoders.Fuse()
        alphabet = found.alphabet(settings.min_frequency, settings.vocabulary - len(specials))
        inner.model = _subwords([*specials, *alphabet], [], settings)
    else:
        inner.pre_tokenizer = pre_tokenizers.Sequence(_cuts(settings))
        inner.decoder = _decoder(settings)
        pieces = count_pieces(_fed(lines, found), inner, status)
        if settings.kind == "words":
            inner.model = _words(pieces, specials, settings)
        else:
            tokens = [*specials, *_alphabet(found, len(specials), settings)]
            learned = learn_merges(pieces, tokens, settings.vocabulary, settings.min_frequency, status)
            inner.model = _subwords(*learned, settings)
    inner.add_special_tokens(specials)
    return inner


def whole_words(words: Sequence[str]) -> tokenizers.Tokenizer:
    """A tokenizer of these words, which stand between spaces; nothing is learned."""
    settings = TokenizerSettings("words", split_digits=False, split_punctuation=False)
    tokens = [*SPECIALS, *(SPACE + word for word in words)]
    inner = tokenizers.Tokenizer(
        models.WordLevel({token: number for number, token in enumerate(tokens)}, unk_token=UNKNOWN)
    )
    inner.normalizer = _normaliser(settings)
    inner.pre_tokenizer = pre_tokenizers.Sequence(_cuts(settings))
    inner.decoder = _decoder(settings)
    inner.add_special_tokens(SPECIALS)
    return inner


def target_tag(language: str) -> str:
    """The special token that asks for a translation into a language. Text never becomes it: only encoding adds it."""
    return f"<2{language}>"


def check_can_be_read_twice(texts: Iterable[object]) -> None:
    """A list can, a generator cannot."""
    if isinstance(texts, Iterator):
        raise UsageError(
            "learn: the text must be something that can be read twice, such as a list, but is an iterator, which can "
            "be read once. Write list(…)."
        )


def _normal(text: str, settings: TokenizerSettings) -> str:
    """The characters of a text as the tokenizer will see them."""
    if settings.lowercase:
        text = normalizers.Lowercase().normalize_str(text)
    if settings.composes and not unicodedata.is_normalized("NFC", text):
        text = normalizers.NFC().normalize_str(text)
    return text


def _alphabet(found: Survey, specials: int, settings: TokenizerSettings) -> list[str]:
    """The characters that merging starts from."""
    if settings.kind == "bytes":
        return sorted(pre_tokenizers.ByteLevel.alphabet())
    most = settings.vocabulary - specials - 1
    return sorted([SPACE, *found.alphabet(settings.min_frequency, most, without=SPACE + WHITE_SPACE)])


def _subwords(tokens: Sequence[str], merges: list[tuple[str, str]], settings: TokenizerSettings) -> models.Model:
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return models.BPE(vocabulary, merges, unk_token=None if settings.kind == "bytes" else UNKNOWN)


def _words(pieces: Counter[str], specials: Sequence[str], settings: TokenizerSettings) -> models.Model:
    """The most frequent words; of equally frequent ones those that come first in the order of their characters."""
    often = [word for word, count in pieces.items() if count >= settings.min_frequency]
    often.sort(key=lambda word: (-pieces[word], word))
    tokens = [*specials, *often[: settings.vocabulary - len(specials)]]
    return models.WordLevel({token: number for number, token in enumerate(tokens)}, unk_token=UNKNOWN)


def _normaliser(settings: TokenizerSettings) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if settings.lowercase:
        steps.append(normalizers.Lowercase())
    if settings.composes:
        steps.append(normalizers.NFC())
    if settings.kind in SPACED:
        # The mark itself, written by a user, reads as the space it stands for.
        steps += [normalizers.Replace(Regex(rf"[\s{SPACE}]{{2,}}|[\s{SPACE}&&[^ ]]"), " "), normalizers.Strip()]
    if settings.kind == "bpe-end":
        steps += [normalizers.Replace(" ", SPACE), normalizers.Replace(Regex(r"\z"), SPACE)]
    return normalizers.Sequence(steps)


def _cuts(settings: TokenizerSettings) -> list[pre_tokenizers.PreTokenizer]:
    """Where a piece ends in any case; merges do not reach across."""
    first: pre_tokenizers.PreTokenizer
    match settings.kind:
        case "bytes":
            first = pre_tokenizers.ByteLevel(add_prefix_space=False)
        case "bpe-end":
            first = pre_tokenizers.Split(SPACE, "merged_with_previous")
        case _:
            first = pre_tokenizers.Metaspace(SPACE)
    alone = _alone(settings)
    if settings.kind == "words":
        return [first, pre_tokenizers.Split(Regex(rf"[{alone}]|[^{alone}]+"), "isolated")] if alone else [first]
    # One expression for all cuts: a second pass over the pieces would cost as much again.
    rest = rf"[^{alone}]" if alone else "."
    pattern = rf"{rest}{{1,{LONGEST_PIECE}}}" + (f"|[{alone}]" if alone else "")
    return [first, pre_tokenizers.Split(Regex(pattern), "isolated")]


def _alone(settings: TokenizerSettings) -> str:
    """Characters that are a piece each, as they stand between the brackets of a regular expression."""
    if settings.kind == "bytes":
        # Bytes are spelled as characters here, and some that are no digits look like one: ü ends in ¼.
        return "0-9" if settings.split_digits else ""
    digits = r"\p{N}" if settings.split_digits else ""
    if settings.cuts_punctuation:
        return PUNCTUATION + digits
    # Text full of "<eos>" must not teach merges that spell a special token, nor a cut leave one behind. Whole words
    # are safe, because they begin with ▁; so are bytes, where "<" and letters never share a piece.
    whole_words = settings.kind == "words" and not settings.split_digits
    return "" if whole_words else OPENING + digits


def _decoder(settings: TokenizerSettings) -> decoders.Decoder:
    match settings.kind:
        case "bytes":
            return decoders.ByteLevel()
        case "bpe-end":
            last = decoders.Replace(Regex(rf"{SPACE}\z"), "")  # Strip would do, but panics at an empty text
            return decoders.Sequence([decoders.Fuse(), last, decoders.Replace(SPACE, " ")])
        case "words":
            # An unknown word takes the mark of its space with it.
            unknown = decoders.Replace(Regex(rf"\A{UNKNOWN}\z"), SPACE + UNKNOWN)
            return decoders.Sequence([unknown, decoders.Metaspace(SPACE)])
        case _:
            return decoders.Metaspace(SPACE)


def _fed(lines: Iterable[str], found: Survey) -> Iterator[str]:
    """The lines to learn from: all, or an even sample where unspaced text would fill the memory.

    All lines are sampled alike, so that languages with and without spaces keep their shares.
    """
    share = min(1.0, MOST_UNSPACED / max(found.unspaced, 1))
    draw = random.Random(0)
    for line in lines:
        for first in range(0, len(line), LONGEST_LINE):
            if share == 1.0 or draw.random() < share:
                yield line[first : first + LONGEST_LINE]
