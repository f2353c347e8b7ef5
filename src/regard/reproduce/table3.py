"""Table 3 of Attention Is All You Need: what each part of the base model is worth.

The paper trained every row for 100,000 steps on WMT 2014 and measured on newstest2013. Here every row makes 1,200 steps
on Europarl, six tenths of a pass over it, and is measured on its dev set. The figures are not to be compared, their
order is.

So few steps are too few for norms behind their sub-layers and for Adam with a long warm-up: with them the base model
stood at perplexity 68, one of two layers at 21, and one of eight learned nothing. All rows have their norms first and
are trained with Muon.
"""

from __future__ import annotations

from regard.reproduce.study import Row, Study, pairs_of

EUROPARL = {
    **pairs_of("europarl-ende", ("train", "dev", "test"), ".bz2"),
    "target": "europarl-ende/train.de.xz",
}


def _row(name: str, what: str, perplexity: float, bleu: float, parameters: int | None = None) -> Row:
    preset = name if name in ("base", "big") else f"table3-{name}"
    paper = {"dev perplexity": perplexity, "dev BLEU": bleu}
    return Row(name, what, preset, paper=paper if parameters is None else {**paper, "parameters": parameters * 1e6})


ROWS = (
    _row("base", "N = 6, d_model 512, d_ff 2048, 8 heads", 4.92, 25.8, 65),
    _row("a-h1", "(A) 1 head", 5.29, 24.9),
    _row("a-h4", "(A) 4 heads", 5.00, 25.5),
    _row("a-h16", "(A) 16 heads", 4.91, 25.8),
    _row("a-h32", "(A) 32 heads", 5.01, 25.4),
    _row("b-dk16", "(B) d_k 16", 5.16, 25.1, 58),
    _row("b-dk32", "(B) d_k 32", 5.01, 25.4, 60),
    _row("c-n2", "(C) N = 2", 6.11, 23.7, 36),
    _row("c-n4", "(C) N = 4", 5.19, 25.3, 50),
    _row("c-n8", "(C) N = 8", 4.88, 25.5, 80),
    _row("c-d256", "(C) d_model 256", 5.75, 24.5, 28),
    _row("c-d1024", "(C) d_model 1024", 4.66, 26.0, 168),
    _row("c-ff1024", "(C) d_ff 1024", 5.12, 25.4, 53),
    _row("c-ff4096", "(C) d_ff 4096", 4.75, 26.2, 90),
    _row("d-drop0", "(D) no dropout", 5.77, 24.6),
    _row("d-drop02", "(D) dropout 0.2", 4.95, 25.5),
    _row("d-ls0", "(D) no label smoothing", 4.67, 25.3),
    _row("d-ls02", "(D) label smoothing 0.2", 5.47, 25.7),
    _row("e-learned", "(E) learned positions", 4.92, 25.7),
    _row("big", "big: d_model 1024, d_ff 4096, 16 heads, dropout 0.3", 4.33, 26.4, 213),
)

NAMES = tuple(row.name for row in ROWS)
GROUPS = {
    "those with the base model's dropout": tuple(n for n in NAMES if n not in ("d-drop0", "d-drop02", "big")),
    **{
        f"({letter.upper()}) and base": ("base", *(name for name in NAMES if name.startswith(f"{letter}-")))
        for letter in "abcd"
    },
    "(E), big and base": ("base", "e-learned", "big"),
}

# The base model bears a rate of 0.004, as in the preset `five-minutes`. Steps of models of twice its width turn them √2
# times as far, so all rows have about 1 / √2 of that.
# The rate falls to nothing, which leaves nothing for an average of checkpoints to smooth.
BUDGET = (
    "model.norm=pre",
    "training={steps = 1200, validate_every = 400, save_every = 400, keep = 1, average = 1, deterministic = false}",
    "training.compile=layers",  # as a whole, compiling would take as long as the steps
    "training.optimiser={kind = 'muon', schedule = 'linear', rate = 3e-3, warmup = 200, clip = 1.0}",
)

TABLE3 = Study(
    "table3",
    "Table 3 of Attention Is All You Need: every row at one small budget on Europarl, English to German",
    ROWS,
    BUDGET,
    EUROPARL,
    corpus=" on Europarl, English to German",
    groups=GROUPS,
    notes=(
        "The paper's perplexity and BLEU are those of newstest2013 after 100,000 steps (big: 300,000) on WMT 2014. "
        "Compare orders, not figures.",
    ),
    corpus_notes=(
        "Ours are those of Europarl's dev set. No sentence is read twice: there is little to overfit, so dropout (D) "
        "has less to give than in the paper.",
    ),
)
