"""Every classifier and tagger keeps what all of them promise, whatever its body; wrong ones are found out.

Shapes: B rows, T tokens, D model, C labels, N answers of a row, H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.batch import IGNORED, Batch, Places, Tokens
from regard.errors import UsageError
from regard.layers.attention import Attention
from regard.models.bert import Bert, BertSettings
from regard.models.encoder import (
    BodySettings,
    ConvolutionBodySettings,
    RecurrentBodySettings,
    TransformerBodySettings,
)
from regard.models.labelling import Classifier, ClassifierSettings, LabelModel, Pooling, Tagger, TaggerSettings
from regard.training.loss import smoothed_cross_entropy

from .cases import FIRST_WORD, Case, cases, in_front, real
from .contracts import same

LABELS = 3
Model = LabelModel | Bert

TRANSFORMER = TransformerBodySettings(layers=2, d_model=16, d_ff=24, heads=2)
RECURRENT = RecurrentBodySettings(cell="gru", layers=2, d_model=12)
BERT = BertSettings(layers=2, d_model=16, d_ff=24, heads=2)
CONVOLUTION = ConvolutionBodySettings(layers=2, d_model=8, kernel=3)


@dataclass(frozen=True)
class Entry:
    """A small model: how to build it over a vocabulary, and whether a row of it may hold several texts."""

    build: Callable[[int], Model]
    packs: bool = False
    attends: bool = False

    def model(self, vocabulary: int, seed: int) -> Model:
        """The model with random weights from `seed`, without dropout."""
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            model = self.build(vocabulary).eval()
            for parameter in model.parameters():
                # A fresh model has zeros (biases, gates) behind which a mistake could hide.
                parameter.add_(0.1 * torch.randn_like(parameter))
        return model


def tagger(body: BodySettings) -> Entry:
    packs, attends = not isinstance(body, RecurrentBodySettings), isinstance(body, TransformerBodySettings)
    return Entry(lambda vocabulary: Tagger(TaggerSettings(body=body), vocabulary, LABELS), packs, attends)


def classifier(body: BodySettings, pooling: Any) -> Entry:
    chosen = ClassifierSettings(body=body, pooling=pooling)
    return Entry(lambda vocabulary: Classifier(chosen, vocabulary, LABELS), attends=True)


def bert(settings: BertSettings) -> Entry:
    """To the contracts, a tagger whose labels are tokens."""
    return Entry(lambda vocabulary: Bert(settings, vocabulary), packs=True, attends=True)


ZOO: dict[str, Entry] = {
    "tagger-transformer": tagger(TRANSFORMER),
    "tagger-transformer-window": tagger(replace(TRANSFORMER, norm="pre", d_v=5, window=2, positions="relative")),
    "tagger-recurrent": tagger(RECURRENT),
    "tagger-recurrent-forward": tagger(replace(RECURRENT, cell="lstm", bidirectional=False, links="fast-forward")),
    "tagger-convolution": tagger(CONVOLUTION),
    "classifier-transformer-mean": classifier(TRANSFORMER, "mean"),
    "classifier-transformer-first": classifier(replace(TRANSFORMER, norm="pre"), "first"),
    "classifier-transformer-last": classifier(replace(TRANSFORMER, positions="rotary"), "last"),
    "classifier-recurrent-mean": classifier(replace(RECURRENT, cell="lstm", links="residual"), "mean"),
    "classifier-recurrent-last": classifier(replace(RECURRENT, cell="rnn", bidirectional=False), "last"),
    "classifier-recurrent-attention": classifier(replace(RECURRENT, d_embedding=5), "attention"),
    "classifier-convolution-attention": classifier(CONVOLUTION, "attention"),
    "bert": bert(BERT),
    "bert-pre-norm-waves": bert(replace(BERT, norm="pre", positions="relative-waves", embedding_norm=False)),
}


def answers(model: Model, text: Tokens, case: Case) -> list[Tensor]:
    """The scores at the real answers of each row: all of its tokens, or the one of the text."""
    scores_BNC = model(text)
    return list(scores_BNC) if isinstance(model, Classifier) else real(scores_BNC, case.targets)


def lesson(model: Model, case: Case, extra: int = 0) -> Batch:
    """The texts with labels that follow from the case; none at padding."""
    text = case.target(extra)
    segments_BN = text.places.segments_or_ones()
    if isinstance(model, Classifier):
        segments_BN = segments_BN[:, :1]
    draw = torch.Generator().manual_seed(case.seed)
    labels_BN = torch.randint(LABELS, segments_BN.shape, generator=draw)
    return Batch(None, text, torch.where(segments_BN == 0, IGNORED, labels_BN))


# ---- the contracts


@torch.no_grad()
def padding_is_invisible(model: Model, case: Case) -> None:
    """A text alone scores what it scores in a batch, however much padding there is and whatever is in it."""
    found = answers(model, case.target(), case)
    same(answers(model, case.target(extra=3), case), found)
    same(answers(model, replace(case, filler=FIRST_WORD).target(extra=1), case), found)
    for row in range(case.rows):
        same([model(case.whole(row).target)[0]], [found[row]])


@torch.no_grad()
def packed_is_alone(model: Model, case: Case) -> None:
    """Texts that share a row do not see each other."""
    wanted = answers(model, case.target(), case)
    found_BTC = model(case.packed().target)
    lengths = [len(sentence) for sentence in case.targets]
    same(found_BTC[0, : sum(lengths)].split(lengths), wanted)
    same([found_BTC[1, : lengths[0]]], wanted[:1])


@torch.no_grad()
def watched_is_fused(model: Model, case: Case) -> None:
    """Watching changes nothing; each real query's weights sum to one, and padding weighs exactly zero."""
    text = case.target(extra=1)
    wanted = answers(model, text, case)
    watched = [module for module in model.modules() if isinstance(module, Attention | Pooling)]
    seen: dict[nn.Module, Tensor] = {}
    for module in watched:
        module.watcher = lambda weights_BHQK, module=module: seen.__setitem__(module, weights_BHQK)
    found = answers(model, text, case)
    for module in watched:
        module.watcher = None
    same(found, wanted)
    assert seen.keys() == set(watched)
    real_BK = text.places.segments_or_ones() != 0
    for weights_BHQK in seen.values():
        # A classifier's pooling is one query a text; attention's queries are the tokens.
        queries_BQ = real_BK[:, : weights_BHQK.shape[2]]
        weights_BQHK = weights_BHQK.transpose(1, 2)[queries_BQ]
        torch.testing.assert_close(weights_BQHK.sum(dim=-1), torch.ones(weights_BQHK.shape[:-1]))
        hidden_BQK = (~real_BK)[:, None].expand(-1, queries_BQ.shape[1], -1)[queries_BQ]
        assert not weights_BQHK[hidden_BQK[:, None].expand_as(weights_BQHK)].any(), "padding has weight"


@torch.no_grad()
def losses_are_of_the_scores(model: Model, case: Case) -> None:
    """What training sees is the cross entropy of what `forward` says; where there is no label it is zero."""
    batch = lesson(model, case, extra=1)
    scores_BCN = model(batch.target).transpose(1, 2)
    wanted_BN = F.cross_entropy(scores_BCN, batch.labels_BT, ignore_index=IGNORED, reduction="none")
    same([model.losses(batch, smoothed_cross_entropy(0.0))], [wanted_BN])


def gradients_reach_everything(model: Model, case: Case) -> None:
    """Every parameter learns from a padded batch, and none gets a NaN."""
    model.losses(lesson(model, case, extra=2), smoothed_cross_entropy(0.1)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} takes no part"
        assert parameter.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert parameter.grad.any(), f"{name} learns nothing"


Contract = Callable[[LabelModel, Case], None]
few = settings(max_examples=settings().max_examples // 3)


def entries(keep: Callable[[Entry], bool] = lambda entry: True) -> pytest.MarkDecorator:
    chosen = {name: entry for name, entry in ZOO.items() if keep(entry)}
    return pytest.mark.parametrize("entry", chosen.values(), ids=chosen.keys())


@entries()
@pytest.mark.parametrize("contract", [padding_is_invisible, losses_are_of_the_scores])
@few
@given(st.data())
def test_a_model_keeps(contract: Contract, entry: Entry, data: st.DataObject) -> None:
    case = data.draw(cases(reads_source=False))
    contract(entry.model(case.vocabulary, case.seed), case)


@entries(lambda entry: entry.packs)
@few
@given(cases(reads_source=False))
def test_packed_is_alone(entry: Entry, case: Case) -> None:
    packed_is_alone(entry.model(case.vocabulary, case.seed), case)


@entries(lambda entry: entry.attends)
@few
@given(cases(reads_source=False))
def test_watched_is_fused(entry: Entry, case: Case) -> None:
    watched_is_fused(entry.model(case.vocabulary, case.seed), case)


@entries()
@few
@given(cases(reads_source=False, shortest=4))
def test_gradients_reach_everything(entry: Entry, case: Case) -> None:
    gradients_reach_everything(entry.model(case.vocabulary, case.seed), case)


CASE = Case(vocabulary=8, seed=3, targets=((1, 3, 4, 5, 6), (1, 7, 3, 3), (1, 5)))


@entries()
def test_a_model_says_whether_it_packs(entry: Entry) -> None:
    model = entry.model(CASE.vocabulary, seed=1)
    assert model.packs_sentences == entry.packs
    if not entry.packs:
        with pytest.raises(UsageError, match="needs one sentence a row, but row 0 holds 3"):
            model(CASE.packed().target)


@entries()
@torch.no_grad()
def test_padding_in_front_is_invisible_or_refused(entry: Entry) -> None:
    model = entry.model(CASE.vocabulary, seed=1)
    wanted, text = answers(model, CASE.target(extra=1), CASE), in_front(CASE.target(extra=1))
    if not entry.packs:
        with pytest.raises(UsageError, match="padding on the right of a row, but in row 0"):
            model(text)
        return
    same([row[len(row) - len(each) :] for row, each in zip(model(text), wanted, strict=True)], wanted)


@entries()
@torch.no_grad()
def test_an_empty_row_is_no_number_that_spreads(entry: Entry) -> None:
    """A row of padding alone gives some finite answer, and leaves the others theirs."""
    model = entry.model(CASE.vocabulary, seed=1)
    text = Tokens.padded([[], *CASE.targets], padding=0)
    scores_BNC = model(text)
    assert scores_BNC.isfinite().all()
    same([scores_BNC[1:]], [model(CASE.target())])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tagger-transformer", "classifier-convolution-attention"])
@torch.no_grad()
def test_the_forward_pass_is_one_graph(name: str) -> None:
    model = ZOO[name].model(CASE.vocabulary, seed=1)
    torch.compiler.reset()
    compiled: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
    for extra in (1, 3):
        same([compiled(CASE.target(extra))], [model(CASE.target(extra))])


# ---- any size


some = st.integers(1, 3)
BODIES: dict[str, st.SearchStrategy[BodySettings]] = {
    "transformer": st.builds(
        TransformerBodySettings,
        layers=some,
        d_model=st.integers(5, 12),
        d_ff=st.integers(1, 9),
        heads=some,
        d_k=st.sampled_from([2, 4]),
        d_v=some,
        norm=st.sampled_from(["post", "pre"]),
        positions=st.sampled_from(["sinusoidal", "learned", "rotary", "relative", "alibi"]),
        window=st.none() | st.integers(1, 4),
    ),
    "recurrent": st.builds(
        RecurrentBodySettings,
        cell=st.sampled_from(["rnn", "gru", "lstm"]),
        layers=some,
        d_model=st.sampled_from([4, 6, 10]),
        d_embedding=st.none() | st.integers(3, 7),
        bidirectional=st.booleans(),
        links=st.sampled_from(["plain", "residual", "fast-forward"]),
    ),
    "convolution": st.builds(
        ConvolutionBodySettings, layers=some, d_model=st.integers(3, 9), kernel=st.sampled_from([1, 3, 5])
    ),
}


@pytest.mark.parametrize("kind", BODIES)
@settings(max_examples=settings().max_examples // 3)
@given(st.data())
def test_any_size_keeps(kind: str, data: st.DataObject) -> None:
    body, case = data.draw(BODIES[kind]), data.draw(cases(reads_source=False, words=(5,), longest=5))
    for entry in (tagger(body), classifier(body, data.draw(st.sampled_from(["mean", "attention"])))):
        model = entry.model(case.vocabulary, seed=0)
        padding_is_invisible(model, case)
        if entry.packs:
            packed_is_alone(model, case)
        if entry.attends:
            watched_is_fused(model, case)


def test_the_bodies_are_all_bodies() -> None:
    assert {body.__dataclass_fields__["kind"].default for body in BodySettings.__args__} == BODIES.keys()


# ---- the contracts can fail


class _Whole(nn.Module):
    """Passes on what it reads as if each row were one whole sentence."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *read: Any) -> Tensor:
        *before, last = read
        if isinstance(last, Tokens):
            return self.inner(Tokens.whole(last.ids_BT))
        return self.inner(*before, Places.whole(before[0][:, :, 0]))


def blind_body(model: Model) -> None:
    model.add_module("body", _Whole(model.get_submodule("body")))


def blind_pooling(model: Model) -> None:
    model.add_module("pooling", _Whole(model.get_submodule("pooling")))


def idle_part(model: Model) -> None:
    model.add_module("idle", nn.Linear(2, 2))


def shy_attention(model: Model) -> None:
    """Attends in another way while it is watched."""
    for module in model.modules():
        if isinstance(module, Attention):
            inner = module.forward
            module.forward = lambda *read, inner=inner, module=module: (  # type: ignore[method-assign]
                inner(*read) if module.watcher is None else 0.5 * inner(*read)
            )


def own_loss(model: Model) -> None:
    inner = model.losses
    model.losses = lambda batch, criterion: 2 * inner(batch, criterion)  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("name", "spoil", "contract"),
    [
        ("tagger-transformer", blind_body, padding_is_invisible),
        ("tagger-convolution", blind_body, padding_is_invisible),
        ("tagger-recurrent", blind_body, padding_is_invisible),
        ("tagger-transformer", blind_body, packed_is_alone),
        ("tagger-convolution", blind_body, packed_is_alone),
        ("tagger-transformer", blind_body, watched_is_fused),
        ("classifier-recurrent-mean", blind_pooling, padding_is_invisible),
        ("classifier-recurrent-last", blind_pooling, padding_is_invisible),
        ("classifier-convolution-attention", blind_pooling, padding_is_invisible),
        ("classifier-convolution-attention", blind_pooling, watched_is_fused),
        ("tagger-transformer", shy_attention, watched_is_fused),
        ("tagger-recurrent", idle_part, gradients_reach_everything),
        ("tagger-recurrent", own_loss, losses_are_of_the_scores),
    ],
)
def test_a_wrong_model_breaks(name: str, spoil: Callable[[LabelModel], None], contract: Contract) -> None:
    model = ZOO[name].model(CASE.vocabulary, seed=1)
    contract(model, CASE)
    spoil(model)
    with pytest.raises(AssertionError):
        contract(model, CASE)
