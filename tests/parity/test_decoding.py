"""Our search and our filters against those of transformers.

Shapes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.batch import Batch, Specials, Tokens
from regard.decoding.beams import largest
from regard.decoding.constraints import Banned, NoRepeat
from regard.decoding.sampling import SamplingSettings, narrow
from regard.decoding.search import SearchSettings, beam_search
from regard.models.interface import SequenceModel
from regard.models.transformer import Transformer
from tests.parity.test_marian import PADDING, VOCABULARY, pair  # noqa: F401 (a fixture)

transformers = pytest.importorskip("transformers")

SPECIALS = Specials(padding=PADDING, start=PADDING, end=0)
LIMIT = 12


class Waves(nn.Module):
    """A network's scores thrown about: with random weights it would only repeat its last token."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return 2 * (40 * self.inner(x)).sin()


class Lively(SequenceModel[Any]):
    """Our network with such scores, which ends more often than one in 89 times."""

    def __init__(self, model: Transformer, bias_V: Tensor) -> None:
        super().__init__()
        self.model, self.vocabulary, self.bias_V = model, model.vocabulary, bias_V

    def features(self, batch: Batch) -> Tensor:
        return self.model.features(batch)

    def logits(self, features_BTD: Tensor) -> Tensor:
        return 2 * (40 * self.model.logits(features_BTD)).sin() + self.bias_V

    def start(self, source: Tokens | None, rows: int) -> Any:
        return self.model.start(source, rows)

    def step(self, tokens_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits_BV, state = self.model.step(tokens_BT, state)
        return 2 * (40 * logits_BV).sin() + self.bias_V, state


@pytest.fixture(scope="module")
def lively(pair: tuple[Transformer, Any]) -> tuple[Lively, Any]:  # noqa: F811
    ours, theirs = pair
    bias_V = torch.zeros(VOCABULARY)
    bias_V[SPECIALS.end] = 2.0
    theirs.final_logits_bias.copy_(bias_V)
    theirs.lm_head = Waves(theirs.lm_head)
    return Lively(ours, bias_V), theirs


@pytest.mark.parametrize(("beam", "alpha"), [(1, 1.0), (2, 1.0), (4, 0.0), (4, 0.6), (4, 1.0)])
@torch.inference_mode()
def test_search_agrees(
    lively: tuple[Lively, Any],
    beam: int,
    alpha: float,
) -> None:
    """The same texts and the same scores, with the same penalty, |y|^alpha, and a stop rule that is as patient."""
    ours, theirs = lively
    lengths = []
    for row in range(6):
        words = torch.randint(1, 80, (1, 3 + row % 4), generator=torch.Generator().manual_seed(row))
        settings = SearchSettings(beam, "length", alpha, extra_length=LIMIT - words.shape[1], nbest=beam)
        [found] = beam_search(ours, Tokens.whole(words), SPECIALS, settings)
        wanted = theirs.generate(
            words, num_beams=beam, num_return_sequences=beam, length_penalty=alpha, early_stopping="never",
            do_sample=False, max_new_tokens=LIMIT + 1, return_dict_in_generate=True, output_scores=True,
            bad_words_ids=[[PADDING]], forced_eos_token_id=None,
        )  # fmt: skip
        texts = [tuple(text[1:][text[1:] != PADDING].tolist()) for text in wanted.sequences]
        for place, (each, text) in enumerate(zip(found, texts, strict=False)):
            # A text that reaches the limit is cut by them, and ended by us.
            if each.cut or text[-1] != SPECIALS.end:
                break
            lengths.append(len(text))
            assert (*each.tokens, SPECIALS.end) == text
            if beam > 1:
                assert each.score == pytest.approx(wanted.sequences_scores[place].item(), abs=1e-4)
    assert len(set(lengths)) > 1
    assert len(lengths) >= 6


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(top_k=7),
        SamplingSettings(top_p=0.8),
        SamplingSettings(min_p=0.1),
        SamplingSettings(top_k=20, top_p=0.6, min_p=0.05),
    ],
    ids=lambda settings: f"{settings.top_k}-{settings.top_p}-{settings.min_p}",
)
def test_filters_agree(settings: SamplingSettings) -> None:
    logits_BV = 2 * torch.randn(40, 60, generator=torch.Generator().manual_seed(1))
    wanted_BV = logits_BV
    if settings.top_k:
        wanted_BV = transformers.TopKLogitsWarper(settings.top_k)(None, wanted_BV)
    if settings.top_p < 1:
        wanted_BV = transformers.TopPLogitsWarper(settings.top_p)(None, wanted_BV)
    if settings.min_p:
        wanted_BV = transformers.MinPLogitsWarper(settings.min_p)(None, wanted_BV)
    scores_BK, tokens_BK = narrow(logits_BV, settings)
    found_BV = (
        scores_BK if tokens_BK is None else torch.full_like(logits_BV, -torch.inf).scatter(1, tokens_BK, scores_BK)
    )
    assert torch.equal(found_BV, wanted_BV)


def test_rules_agree() -> None:
    written_BT = torch.randint(3, 7, (30, 9), generator=torch.Generator().manual_seed(1))
    for size in (1, 2, 3):
        found_B1V = torch.zeros(30, 1, 9)
        NoRepeat(size).forbid(found_B1V, written_BT[:, None], length=10)
        wanted_BV = transformers.NoRepeatNGramLogitsProcessor(size)(written_BT, torch.zeros(30, 9))
        assert torch.equal(found_B1V[:, 0], wanted_BV)
    phrases = ((4,), (3, 5), (6, 6, 3))
    found_B1V = torch.zeros(30, 1, 9)
    Banned.of([phrases] * 30, torch.device("cpu")).forbid(found_B1V, written_BT[:, None], length=10)
    bad = transformers.NoBadWordsLogitsProcessor([list(phrase) for phrase in phrases], eos_token_id=2)
    assert torch.equal(found_B1V[:, 0], bad(written_BT, torch.zeros(30, 9)))
    assert largest(found_B1V, 1)[0].isfinite().all()
