"""The ladder of translation models, from one fixed context to the Transformer: same subwords, same budget.

    rnn          the source in one vector, given to every step of the decoder (Cho et al. 2014)
    additive     attention to all states of the encoder (Bahdanau et al. 2015)
    dot          the same by a dot product (Luong et al. 2015)
    bytenet      dilated convolutions, and no attention (Kalchbrenner et al. 2016)
    convs2s      gated convolutions with attention in every layer (Gehring et al. 2017)
    transformer  attention alone (Vaswani et al. 2017)
    windowed     the same, each token seeing only its neighbours (the paper's section 4)

Every row reads the same pairs about as often. Sizes are chosen for about as many parameters; the recurrent ones have
single layers, as in their papers. Recurrent models and ByteNet need a sentence a row, and are not compiled.
"""

from __future__ import annotations

from regard.reproduce.study import Row, Study, pairs_of
from regard.reproduce.table3 import EUROPARL

MULTI30K = pairs_of("multi30k/task1", ("train", "val", "test_2016_flickr"), ".gz")
BUCKETS = 'batch.layout="buckets"'


def _recurrent(width: int, dropout: float, attention: str) -> str:
    start = "feed_context = true, " if attention == "none" else ""
    return (
        f'model={{kind = "recurrent", cell = "gru", d_model = {width}, dropout = {dropout}, {start}'
        f'attention = "{attention}"}}'
    )


def bytenet(channels: int, repeats: int, dropout: float) -> str:
    """The settings of a ByteNet."""
    # Tokens are words or parts of them here, not characters: a shorter reach does.
    return (
        f'model={{kind = "bytenet", channels = {channels}, dilations = [1, 2, 4, 8], repeats = {repeats}, '
        f"dropout = {dropout}}}"
    )


def convs2s(layers: int, channels: int, dropout: float) -> str:
    """The settings of a ConvS2S."""
    stack = f"[[{layers}, {channels}, 3]]"
    return (
        f'model={{kind = "convs2s", encoder = {stack}, decoder = {stack}, embedding = {channels}, tied = true, '
        f"dropout = {dropout}}}"
    )


def _ladder(
    preset: str,
    recurrent: tuple[int, float],
    of_bytenet: str,
    of_convs2s: str,
    norm: str,
    window: int,
    rate: float,
    tokens: int,
) -> tuple[Row, ...]:
    """The seven rows; `rate` is the highest of all but the Transformers, which bear a higher one.

    `tokens` is the size of a batch with a sentence a row, of which more is padding, that holds as much as a packed one.
    """
    slow = (BUCKETS, f"batch.tokens={tokens}", f"training.optimiser.rate={rate}")
    return (
        Row("rnn", "GRU, one fixed context", preset, (_recurrent(*recurrent, "none"), *slow)),
        Row("additive", "GRU, additive attention", preset, (_recurrent(*recurrent, "additive"), *slow)),
        Row("dot", "GRU, dot-product attention", preset, (_recurrent(*recurrent, "dot"), *slow)),
        Row("bytenet", "ByteNet", preset, (of_bytenet, *slow)),
        Row("convs2s", "ConvS2S", preset, (of_convs2s, f"training.optimiser.rate={rate}")),
        Row("transformer", f"Transformer, {norm}-norm", preset, (f"model.norm={norm}",)),
        Row("windowed", f"Transformer, window {window}", preset, (f"model.norm={norm}", f"model.window={window}")),
    )


NOTES = (
    "FLOPs are those of the matrix products of training, counted for sentences of 25 tokens. Seconds are those of the "
    "steps, with compilation; tokens are those read on both sides.",
    "One seed each: small differences may be chance.",
)

LADDER_MULTI30K = Study(
    "ladder-multi30k",
    "From one fixed context to the Transformer on Multi30k, English to German",
    _ladder("tiny", (256, 0.3), bytenet(96, 2, 0.3), convs2s(4, 128, 0.3), "post", 5, 2e-3, 11_000),
    (
        # The text, the batches and the search of the preset `multi30k`. Its moving mean of the weights is left out:
        # of 60 passes over a small corpus the best is not the last one for every model.
        "tokenizer={vocabulary = 10000, lowercase = true, split_digits = false, split_punctuation = true}",
        "batch.tokens=8192",
        "search={beam = 5, penalty = 'length', alpha = 1.0}",
        "training={steps = 3000, validate_every = 150, save_every = 150, keep = 1, deterministic = false}",
        "training={keep_best = 3, average = 3, average_of = 'best'}",
        "training.optimiser={schedule = 'inverse-sqrt', rate = 5e-3, warmup = 1000, clip = 1.0}",
    ),
    MULTI30K,
    corpus=" on Multi30k, English to German",
    lowercase=True,
    lengths=(8, 10, 12, 15, 20),
    notes=NOTES,
)

LADDER_EUROPARL = Study(
    "ladder-europarl",
    "From one fixed context to the Transformer on Europarl, English to German",
    _ladder("base", (1024, 0.0), bytenet(256, 3, 0.0), convs2s(9, 512, 0.0), "pre", 16, 1e-3, 28_600),
    (
        # The text, the batches and the dropout of the preset `five-minutes`. Its clock would give slow models less.
        "tokenizer.vocabulary=32000",
        "batch.tokens=25600",
        "model.dropout=0.0",
        "training={steps = 2000, validate_every = 1000, save_every = 1000, keep = 1, average = 1}",
        "training.deterministic=false",
        "training.optimiser={schedule = 'linear', rate = 1.5e-3, warmup = 400, clip = 1.0}",
    ),
    EUROPARL,
    corpus=" on Europarl, English to German",
    lengths=(10, 20, 30, 40, 50),
    notes=NOTES,
)
