"""Table 2 of Attention Is All You Need: the systems that the Transformer was compared with, and what they cost.

    bytenet      dilated convolutions (Kalchbrenner et al. 2016)
    deep-att     deep LSTMs with fast-forward links, and attention (Zhou et al. 2016)
    gnmt         deep LSTMs with residual links, and attention (Wu et al. 2016)
    convs2s      gated convolutions with attention in every layer (Gehring et al. 2017)
    moe          LSTMs with a mixture of experts between them (Shazeer et al. 2017)
    …-ensemble   two of one kind, which differ in their seeds; the papers have eight
    base, big    the Transformer's

The paper prints what their authors reached on newstest2014, English to German, after training on WMT 2014. Here every
system makes 2,000 steps on Europarl, about one pass over it. Sizes follow the papers as far as one GPU bears it.
"""

from __future__ import annotations

from dataclasses import replace

from regard.reproduce.ladder import BUCKETS, bytenet, convs2s
from regard.reproduce.study import Row, Study
from regard.reproduce.table3 import EUROPARL

SLOW = "training.optimiser.rate=1e-3"  # the highest rate of all but the base model, which bears a higher one
FULL = "batch.tokens=28600"  # with a sentence a row more is padding; so a batch holds as much as a packed one
SECOND = "seed=2"


def _row(
    name: str, what: str, preset: str, *overrides: str, bleu: float | None = None, flops: float | None = None
) -> Row:
    paper = {"test BLEU": bleu, "training FLOPs": flops}
    return Row(name, what, preset, overrides, {name: value for name, value in paper.items() if value is not None})


def _ensemble(kind: str, what: str, preset: str, bleu: float | None = None, flops: float | None = None) -> Row:
    own = _row(f"{kind}-ensemble", what, preset, bleu=bleu, flops=flops)
    return replace(own, members=(kind, f"{kind}-2"))


BYTENET = (bytenet(256, 3, 0.0), BUCKETS, FULL, SLOW)
CONVS2S = (convs2s(9, 512, 0.0), SLOW)

ROWS = (
    _row("bytenet", "ByteNet", "base", *BYTENET, bleu=23.75),
    _row("deep-att", "Deep-Att", "deep-att", FULL, SLOW),
    _row("gnmt", "GNMT", "gnmt", FULL, SLOW, bleu=24.6, flops=2.3e19),
    _row("convs2s", "ConvS2S", "base", *CONVS2S, bleu=25.16, flops=9.6e18),
    _row("moe", "MoE", "moe", FULL, SLOW, bleu=26.03, flops=2.0e19),
    _row("deep-att-2", "Deep-Att, another seed", "deep-att", FULL, SLOW, SECOND),
    _ensemble("deep-att", "Deep-Att, two as one", "deep-att"),
    _row("gnmt-2", "GNMT, another seed", "gnmt", FULL, SLOW, SECOND),
    _ensemble("gnmt", "GNMT, two as one", "gnmt", bleu=26.30, flops=1.8e20),
    _row("convs2s-2", "ConvS2S, another seed", "base", *CONVS2S, SECOND),
    _ensemble("convs2s", "ConvS2S, two as one", "base", bleu=26.36, flops=7.7e19),
    _row("base", "Transformer, base", "base", "model.norm=pre", bleu=27.3, flops=3.3e18),
    _row("big", "Transformer, big", "big", "model.norm=pre", SLOW, bleu=28.4, flops=2.3e19),
)

TABLE2 = Study(
    "table2",
    "Table 2 of Attention Is All You Need: the systems before the Transformer, on Europarl, English to German",
    ROWS,
    (
        # Those of the ladder on the same corpus; no dropout, since no sentence is read twice.
        "tokenizer.vocabulary=32000",
        "batch.tokens=25600",
        "model.dropout=0.0",
        "search={beam = 4, penalty = 'gnmt', alpha = 0.6, coverage = 0.0}",
        "training={steps = 2000, validate_every = 1000, save_every = 1000, keep = 1, average = 1}",
        "training.deterministic=false",
        "training.optimiser={schedule = 'linear', rate = 1.5e-3, warmup = 400, clip = 1.0}",
    ),
    EUROPARL,
    corpus=", on Europarl, English to German",
    notes=(
        "The paper's BLEU and FLOPs are those of newstest2014 after training on WMT 2014, each system by its authors' "
        "own recipe. Compare orders, not figures. Its FLOPs are the time of training multiplied by what a GPU can do; "
        "ours are those of the matrix products, counted for sentences of 25 tokens.",
        "The paper's GNMT was refined by reinforcement learning after this, and its Deep-Att, for which it prints no "
        "figures from English to German, put unknown words in their place; with subwords there are none. Our ensembles "
        "are of two models, the paper's of eight. What is said of them is the sum over both; their seconds of "
        "decoding are their own.",
        "One seed each: small differences may be chance.",
    ),
)
