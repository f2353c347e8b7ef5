"""From the settings of a corpus to token ids for training and validation: all that stands between files and batches.

data = read_dataset(recipe.data, recipe.tokenizer, recipe.seed)
train = Batches(data.train, data.tokenizer.specials, recipe.batch, recipe.seed)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data import known
from regard.data.answers import add_labels, encode_labelled, learn_with_labels
from regard.data.corpus import Corpus, CorpusSettings, open_corpus
from regard.data.generated import Pair
from regard.data.known import Fingerprint, Known
from regard.data.prepare import cache_folder, encode_in_memory, prepare
from regard.data.report import DataReport
from regard.data.reread import TrainingPairs
from regard.data.store import TokenStore
from regard.errors import UsageError
from regard.status import StatusLine
from regard.text.tokenizer import TextsOf, Tokenizer, TokenizerSettings, VocabularySettings

FILED = 2**26
"""The size of a corpus' files, for each cut by BPE-dropout, from which on its tokens are kept in files, too."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A corpus as token ids; a corpus of plain text has targets only."""

    tokenizer: Tokenizer
    train: TokenStore
    """With BPE-dropout, every example once for each cut."""
    valid: TokenStore
    valid_pairs: list[Pair]
    valid_bytes: int
    """Of the targets to validate on, in UTF-8, with a line end after each: perplexity per byte is exp(nats / bytes).
    0 where targets are labels."""
    report: DataReport | None
    """None where a tokenizer was given, as it is to a run that goes on: the corpus may not have to be read again."""
    fingerprint: Fingerprint
    """Which corpus it is, for a run that goes on."""
    corpus: Corpus
    """Where it came from."""

    def test(self) -> TokenStore | None:
        """The examples to test on; None if there are none. They are read when somebody asks."""
        pairs = self.corpus.test()
        return encode_pairs(self.corpus, pairs, self.tokenizer) if pairs else None


def read_dataset(
    settings: CorpusSettings,
    text: VocabularySettings,
    seed: int,
    tokenizer: Tokenizer | None = None,
    cache: Path | None = None,
    status: StatusLine | None = None,
    before: Mapping[str, Any] | None = None,
    reports: bool = False,
) -> Dataset:
    """Read a corpus, learn a vocabulary from it unless a tokenizer is given, and encode it.

    `seed` is for BPE-dropout. The tokens of a large corpus are kept in `cache` with all that was found in it, and
    found there the next time. `before` is the fingerprint that a run began with, as plain values: another corpus is
    refused. `reports` asks for a report also where a tokenizer is given, which takes reading the corpus. `status` shows
    how far it is.
    """
    corpus, cache = open_corpus(settings), cache or cache_folder()
    large = _is_large(corpus, text)
    fingerprint = Fingerprint.of(corpus, cache if large else None)
    _check(fingerprint, before)
    place = known.place_of(cache, corpus, fingerprint, text) if large else None
    found = None if place is None else known.find(place)
    with TrainingPairs(corpus, cache, status) as pairs:
        if tokenizer is not None and corpus.answers is not None and tokenizer.source is tokenizer:
            tokenizer = add_labels(tokenizer, pairs, corpus)  # it is that of a model which knew no labels
        used = tokenizer or (learn_tokenizer(pairs, text, status) if found is None else found.tokenizer)
        cuts = used.training_cuts(text, seed)
        if corpus.answers is not None:
            train = encode_labelled(pairs, used, corpus.answers)
        elif large:
            train = prepare(cache, corpus.origin(), corpus.texts(pairs), *cuts, status=status)
        else:
            train = encode_in_memory(corpus.texts(pairs), *cuts, status=status)
    counted = fingerprint.counted(len(train), train.tokens)
    _check(counted, before)
    valid = corpus.valid() if found is None else found.valid
    if not valid:
        raise UsageError("data.valid: a run needs at least 1 example to validate on, but has 0. Ask for more.")
    report = None
    if tokenizer is not None and reports:
        report = corpus.report().with_coverage(used, learned=False)
    elif tokenizer is None:
        learned = isinstance(text, TokenizerSettings)
        report = corpus.report().with_coverage(used, learned) if found is None else found.report
        # Files that changed in the meantime would leave something behind that does not belong to them.
        if place is not None and found is None and Fingerprint.of(corpus, cache) == fingerprint:
            known.keep(place, Known(used, valid, report))
    valid_bytes = 0 if corpus.answers is not None else sum(len(pair.target.encode()) + 1 for pair in valid)
    return Dataset(used, train, encode_pairs(corpus, valid, used), valid, valid_bytes, report, counted, corpus)


def _is_large(corpus: Corpus, text: VocabularySettings) -> bool:
    """Whether its tokens are kept in files; not what comes from a pipe, and cannot be known again."""
    files = corpus.origin().files
    cuts = text.dropout_cuts if isinstance(text, TokenizerSettings) and text.dropout else 1
    # Of labels each text has few: what is learned from fits into memory.
    return (
        corpus.answers is None
        and all(file.is_file() for file in files)
        and cuts * sum(file.stat().st_size for file in files) >= FILED
    )


def _check(fingerprint: Fingerprint, before: Mapping[str, Any] | None) -> None:
    if before is not None:
        fingerprint.check_continues(before)


def learn_tokenizer(pairs: TrainingPairs, settings: VocabularySettings, status: StatusLine | None = None) -> Tokenizer:
    """A vocabulary for what a corpus has: both sides, with a token for each language to ask for, or plain text."""
    if pairs.corpus.answers is not None:
        return learn_with_labels(pairs, pairs.corpus, settings)
    if pairs.corpus.one_sided:
        return Tokenizer.learn(TextsOf(pairs, ("target",)), settings, status=status)
    return Tokenizer.learn_pair(pairs, settings, pairs.corpus.target_languages, status)


def encode_pairs(corpus: Corpus, pairs: Iterable[Pair], tokenizer: Tokenizer) -> TokenStore:
    """Some pairs of a corpus in memory, encoded as its training pairs are, but never with dropout."""
    if corpus.answers is not None:
        return encode_labelled(pairs, tokenizer, corpus.answers)
    return encode_in_memory(corpus.texts(pairs), tokenizer)
