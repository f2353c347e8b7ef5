"""Recurrent encoder-decoders: a fixed context, or attention to the encoder's states, soft or hard.

Shapes: B rows, S source tokens, T target tokens, D model, E embedding, X decoder input, Q queries,
K source positions, V vocabulary.

    h_1 … h_S = encoder(E[source])                   the states
    s_0, c    = summary(h)                           where the decoder starts; the fixed context
    s_t       = decoder(s_(t-1), [E[y_t]; …])        … is nothing, c (Cho), c_t (Bahdanau) or o_(t-1) (Luong)
    o_t       = tanh(W·[s_t; c_t])                   or s_t where no context enters
    p(y_(t+1)) = softmax(V·o_t)

With `attend = "before"` c_t comes from s_(t-1) and enters the cell; with "after" it comes from s_t and enters
only o_t, so that a whole target runs through the decoder in one call.

With several layers s_(t-1) is the state of the top one, or with `asks = "bottom"` of the lowest (Wu et al. 2016, GNMT;
Zhou et al. 2016, Deep-Att). Then only the lowest layer has to wait for attention, and a whole target runs through all
others in one call. With `feed_all` each of them reads c_t beside its input, and o_t = s_t, as GNMT has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import IGNORED, Batch, Places, Tokens
from regard.layers.attention import KeyValue
from regard.layers.experts import check_experts
from regard.layers.interleaved import InterleavedEncoder
from regard.layers.recurrent import (
    Cell,
    Directions,
    Glance,
    Hidden,
    Links,
    RecurrentEncoder,
    RecurrentStack,
    Score,
    StackSizes,
    StateAttention,
    initialise,
    readable,
    row_lengths,
)
from regard.models.interface import Criterion, SequenceModel
from regard.settings import check_words
from regard.settings.bounds import check_at_least, check_shares

Context = Literal["last", "projected", "mean"]
Attend = Literal["before", "after"]


@dataclass(frozen=True)
class RecurrentSettings:
    """A recurrent encoder-decoder; the defaults follow Bahdanau et al. 2015 at the size of a base Transformer."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Cell = "gru"
    encoder_layers: int = 1
    decoder_layers: int = 1
    d_model: int = 512
    d_embedding: int | None = None
    """The size of a token's vector; d_model unless said otherwise."""
    bidirectional: Directions = True
    """Read the source in both directions, each with d_model / 2 units: true, in every layer · "first": in the lowest,
    the others from left to right · "alternating": in two columns that turn around from layer to layer."""
    links: Links = "plain"
    dropout: float = 0.2
    context: Context = "projected"
    """The source in one vector c, where the decoder starts. last: h_S · projected: tanh(W·h_S) · mean:
    tanh(W·mean(h))."""
    feed_context: bool = False
    """Without attention: give c to every decoder step and to the output, too."""
    attention: Score | Literal["none"] = "additive"
    attend: Attend | None = None
    """before: the context enters the cell · after: only the output. By default as the score's paper has it:
    before for additive, after for the others."""
    asks: Literal["top", "bottom"] = "top"
    """With attend = "before": which decoder layer's state asks."""
    feed_all: bool = False
    """With attend = "before": give the context to every decoder layer, not to the lowest and the output."""
    input_feeding: bool = False
    """With attend = "after": give each step the output of the one before."""
    hard: bool = False
    """Attend to one position, drawn in training (REINFORCE) and the likeliest in evaluation."""
    experts: int = 1
    """Below the top layer of encoder and decoder: so many feed-forward networks, of which each token asks a few
    (Shazeer et al. 2017); 1 is without."""
    active_experts: int = 2
    """How many of them a token asks."""
    d_ff: int = 2048
    """The size inside an expert."""
    balance: float = 0.01
    """The weight of the losses that keep the experts equally busy."""
    tied: bool = True
    """Use the embedding matrix as the output matrix."""

    def __post_init__(self) -> None:
        check_words(self)
        check_at_least(1, self, "encoder_layers", "decoder_layers", "d_model", "d_embedding", "d_ff")
        check_shares(self, "dropout")
        if self.bidirectional and self.d_model % 2:
            raise ValueError(f"`d_model` must be even where `bidirectional` is set, but is {self.d_model}")
        if self.context == "last" and self.encoder_layers != self.decoder_layers:
            raise ValueError(
                f'`context` = "last" starts each decoder layer in the state of an encoder layer, so '
                f"`decoder_layers` must be `encoder_layers` ({self.encoder_layers}), but is "
                f'{self.decoder_layers}; or choose `context` = "projected"'
            )
        if self.tied and self.d_embedding not in (None, self.d_model):
            raise ValueError(
                f"`d_embedding` must be `d_model` ({self.d_model}) where `tied` is set, but is {self.d_embedding}"
            )
        self._check_attention()
        check_experts(self.experts, self.active_experts, self.balance)
        if self.experts > 1 and (
            self.bidirectional == "alternating" or min(self.encoder_layers, self.decoder_layers) < 2
        ):
            found = '`bidirectional` is "alternating"'
            if self.bidirectional != "alternating":
                found = f"`encoder_layers` is {self.encoder_layers} and `decoder_layers` {self.decoder_layers}"
            raise ValueError(f"`experts` stand between two layers of a stack of at least 2, but {found}; set it to 1")

    def _check_attention(self) -> None:
        if self.attention == "none":
            for name in ("attend", "input_feeding", "hard", "feed_all"):
                if getattr(self, name):
                    raise ValueError(f'`{name}` needs an `attention`, but that is "none"; choose "additive"')
        elif self.feed_context:
            raise ValueError(
                f"`feed_context` gives one context to every step, but `attention` is {self.attention!r} "
                'and makes one for each; remove it or write `attention` = "none"'
            )
        if (self.feed_all or self.asks == "bottom") and self.attends != "before":
            name = "feed_all" if self.feed_all else "asks"
            raise ValueError(f'`{name}` needs `attend` = "before", but that is {self.attends!r}; set it')
        if self.input_feeding and self.attends != "after":
            raise ValueError(
                '`input_feeding` needs `attend` = "after": attention before the step feeds the cell already'
            )

    @property
    def attends(self) -> Attend | None:
        """When the decoder looks at the source: before or after its step; None without attention."""
        if self.attention == "none":
            return None
        return self.attend or ("before" if self.attention == "additive" else "after")

    @property
    def waits(self) -> bool:
        """Whether a step needs what attention brought to the one before: then a target runs token by token."""
        return self.attends == "before" or self.input_feeding

    def encoder_sizes(self) -> StackSizes:
        """The sizes of the encoder's stack."""
        d_input, layers = self.d_embedding or self.d_model, self.encoder_layers
        sizes = StackSizes(self.cell, layers, d_input, self.d_model, self.dropout, self.links)
        return replace(sizes, bidirectional=self.bidirectional, experts=self._expert_sizes())

    def decoder_sizes(self) -> StackSizes:
        """The sizes of the decoder's stack, whose lowest layer may read a context beside each token."""
        fed = self.feed_context or self.waits
        d_input = (self.d_embedding or self.d_model) + (self.d_model if fed else 0)
        sizes = StackSizes(self.cell, self.decoder_layers, d_input, self.d_model, self.dropout, self.links)
        return replace(sizes, d_context=self.d_model if self.feed_all else 0, experts=self._expert_sizes())

    def _expert_sizes(self) -> tuple[int, int, int, float] | None:
        return (self.experts, self.active_experts, self.d_ff, self.balance) if self.experts > 1 else None


class Summary(nn.Module):
    """The encoder's states → the fixed context c, and the state that each decoder layer starts in.

    last       c = h_S;                decoder layer l starts where encoder layer l ended (Sutskever et al. 2014)
    projected  c = tanh(W·h_S)         a function of the last state;  s_0 = tanh(V·c)      (Cho et al. 2014)
    mean       c = tanh(W·mean(h))     a function of all states;      s_0 = tanh(V·c)

    h_S is the state after each direction has read everything: one end of the sentence for each.
    """

    def __init__(self, settings: RecurrentSettings) -> None:
        super().__init__()
        self.kind, self.layers = settings.context, settings.decoder_layers
        self.parts = 2 if settings.cell == "lstm" else 1
        if self.kind != "last":
            self.context = nn.Linear(settings.d_model, settings.d_model)
            self.start = nn.Linear(settings.d_model, self.layers * self.parts * settings.d_model)

    def forward(
        self, states_BSD: Tensor, ends: tuple[Hidden, ...], lengths_B: Tensor | None
    ) -> tuple[Tensor, tuple[Hidden, ...]]:
        """The context [B, D], and one state for each decoder layer."""
        if self.kind == "last":
            return ends[-1].output_BD, ends
        whole_BD = ends[-1].output_BD if self.kind == "projected" else _mean(states_BSD, lengths_B)
        context_BD = self.context(whole_BD).tanh()
        starts = self.start(context_BD).tanh().unflatten(1, (self.layers, self.parts, -1))
        return context_BD, tuple(Hidden(*starts[:, layer].unbind(1)) for layer in range(self.layers))


def _mean(states_BSD: Tensor, lengths_B: Tensor | None) -> Tensor:
    if lengths_B is None:
        return states_BSD.mean(dim=1)
    real_BS = torch.arange(states_BSD.shape[1], device=states_BSD.device) < lengths_B[:, None]
    return (states_BSD * real_BS[:, :, None]).sum(dim=1) / lengths_B[:, None]


@dataclass(frozen=True)
class RecurrentState:
    """What the decoder keeps: its layers' states, what it may look at, and what the next step is fed."""

    hidden: tuple[Hidden, ...]
    memory: KeyValue | None
    source: Places
    fed_BD: Tensor | None

    def select(self, rows: Tensor) -> RecurrentState:
        """The given rows, in the given order."""
        hidden = tuple(layer.select(rows) for layer in self.hidden)
        memory = None if self.memory is None else self.memory.select(rows)
        fed = None if self.fed_BD is None else self.fed_BD.index_select(0, rows)
        return RecurrentState(hidden, memory, self.source.select(rows), fed)


@dataclass(frozen=True)
class _Decoded:
    """What decoding some tokens gave: features, the contexts that they wait to be combined with, and what attention did
    on the way."""

    features_BTD: Tensor
    context_BTD: Tensor | None
    weights_BTK: Tensor | None = None
    log_chance_BT: Tensor | None = None

    @classmethod
    def of(cls, features_BTD: Tensor, context_BTD: Tensor | None, glance: Glance | None) -> _Decoded:
        if glance is None:
            return cls(features_BTD, context_BTD)
        return cls(features_BTD, context_BTD, glance.weights_BQK, glance.log_chance_BQ)

    @classmethod
    def join(cls, pieces: list[_Decoded]) -> _Decoded:
        """Pieces that follow one another in time."""
        if len(pieces) == 1:
            return pieces[0]
        features_BTD = torch.cat([piece.features_BTD for piece in pieces], dim=1)
        contexts = [piece.context_BTD for piece in pieces if piece.context_BTD is not None]
        weights = [piece.weights_BTK for piece in pieces if piece.weights_BTK is not None]
        chances = [piece.log_chance_BT for piece in pieces if piece.log_chance_BT is not None]
        return cls(features_BTD, *(torch.cat(part, dim=1) if part else None for part in (contexts, weights, chances)))


class RecurrentEncoderDecoder(SequenceModel[RecurrentState]):
    """A recurrent encoder and decoder over one embedding for source and target."""

    packs_sentences = False
    baseline: Tensor

    def __init__(self, settings: RecurrentSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.d_model
        d_model, score = settings.d_model, settings.attention
        self.embedding = nn.Embedding(vocabulary, settings.d_embedding or d_model)
        encoder = InterleavedEncoder if settings.bidirectional == "alternating" else RecurrentEncoder
        self.encoder = encoder(settings.encoder_sizes(), keep_cells=settings.context == "last")
        self.summary = Summary(settings)
        self.decoder = RecurrentStack(settings.decoder_sizes())
        self.attention = None if score == "none" else StateAttention(d_model, score, settings.hard)
        joins = (self.attention is not None and not settings.feed_all) or settings.feed_context
        self.combine = nn.Linear(2 * d_model, d_model) if joins else None
        self.dropout = nn.Dropout(settings.dropout)
        self.output = None if settings.tied else nn.Linear(d_model, vocabulary, bias=False)
        self.output_bias_V = nn.Parameter(torch.zeros(vocabulary))
        if settings.hard:
            # The loss of a model that knows nothing: a better first guess than zero.
            self.register_buffer("baseline", torch.tensor(math.log(vocabulary)))
        initialise(self)

    def features(self, batch: Batch) -> Tensor:
        """What the decoder computed at every target position, [B, T, D]."""
        return self._teacher_forced(batch).features_BTD

    def logits(self, features_BTD: Tensor) -> Tensor:
        """The output projection, [B, T, V]."""
        return F.linear(features_BTD, *self.output_matrix())

    def output_matrix(self) -> tuple[Tensor, Tensor | None]:
        """The output matrix, [V, D], the embedding's where the settings tie them; and its bias, [V]."""
        return (self.embedding.weight if self.output is None else self.output.weight), self.output_bias_V

    def losses(self, batch: Batch, criterion: Criterion) -> Tensor:
        """The criterion's losses, [B, T]. Hard attention adds nothing to them but their REINFORCE gradient."""
        decoded = self._teacher_forced(batch)
        losses_BT = criterion(self.logits, decoded.features_BTD, batch.labels_BT)
        if decoded.log_chance_BT is None or not self.training:
            return losses_BT
        blame_BT = self._blame(losses_BT.detach(), batch.labels_BT != IGNORED)
        surrogate_BT = blame_BT * decoded.log_chance_BT
        return losses_BT + surrogate_BT - surrogate_BT.detach()

    def start(self, source: Tokens | None, rows: int) -> RecurrentState:
        """Encode the source; the decoder starts from its summary."""
        return self._encode(self.needed(source, rows))

    def step(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        self.check_step(tokens_BT)
        decoded, state = self._decode(tokens_BT, state)
        return self.logits(decoded.features_BTD[:, -1]), state

    def _teacher_forced(self, batch: Batch) -> _Decoded:
        row_lengths(batch.target.places, "RecurrentEncoderDecoder, target")
        state = self.start(batch.source, batch.target.ids_BT.shape[0])
        decoded, _ = self._decode(batch.target.ids_BT, state, batch.target.places.real())
        return decoded

    def _encode(self, source: Tokens) -> RecurrentState:
        lengths_B = row_lengths(source.places, "RecurrentEncoderDecoder, source")
        states_BSD, ends = self.encoder(self.embedding(source.ids_BT), lengths_B, source.places.real())
        context_BD, hidden = self.summary(states_BSD, ends, lengths_B)
        memory = None if self.attention is None else self.attention.keys_values(states_BSD)
        fed_BD = context_BD if self.settings.feed_context else None
        if self.settings.input_feeding:
            fed_BD = torch.zeros_like(context_BD)
        return RecurrentState(hidden, memory, source.places, fed_BD)

    def _decode(
        self, tokens_BT: Tensor, state: RecurrentState, real_BT: Tensor | None = None
    ) -> tuple[_Decoded, RecurrentState]:
        """The one decoding path: `tokens_BT` may be all the target, a prefix, or one token a row."""
        x_BTE, readable_BK = self.embedding(tokens_BT), readable(state.source)
        if self.settings.asks == "bottom":
            decoded, state = self._from_below(x_BTE, state, readable_BK, real_BT)
        elif self.settings.waits:
            decoded, state = self._token_by_token(x_BTE, state, readable_BK, real_BT)
        else:
            decoded, state = self._advance(x_BTE, state, readable_BK, real_BT)
        decoded = replace(decoded, features_BTD=self.dropout(self._combined(decoded)), context_BTD=None)
        watcher = None if self.attention is None else self.attention.watcher
        if watcher is not None and decoded.weights_BTK is not None:
            watcher(decoded.weights_BTK[:, None])
        return decoded, state

    def _token_by_token(
        self, x_BTE: Tensor, state: RecurrentState, readable_BK: Tensor | None, real_BT: Tensor | None
    ) -> tuple[_Decoded, RecurrentState]:
        """Run the decoder over tokens of which each waits for what attention brought to the one before."""
        experts, pieces, asked = self.decoder.experts, [], []
        for number, x_B1E in enumerate(x_BTE.split(1, dim=1)):
            real_B1 = None if real_BT is None else real_BT[:, number : number + 1]
            piece, state = self._advance(x_B1E, state, readable_BK, real_B1)
            pieces.append(piece)
            if experts is not None and experts.training and experts.asked_2E is not None:
                asked.append(experts.asked_2E)
        if experts is not None and asked:
            experts.asked_2E = torch.stack(asked).sum(dim=0)
        return _Decoded.join(pieces), state

    def _advance(
        self, x_BTX: Tensor, state: RecurrentState, readable_BK: Tensor | None, real_BT: Tensor | None
    ) -> tuple[_Decoded, RecurrentState]:
        """Run the decoder over tokens that need not wait for one another."""
        glance = self._look("before", state.hidden[-1].output_BD[:, None], state, readable_BK)
        fed_BD = state.fed_BD if glance is None else glance.context_BQD[:, 0]
        context_BTD = None if fed_BD is None else fed_BD[:, None].expand(-1, x_BTX.shape[1], -1)
        if context_BTD is not None:
            x_BTX = torch.cat([x_BTX, context_BTD], dim=-1)
        beside_BTD = context_BTD if self.settings.feed_all else None
        features_BTD, hidden = self.decoder(x_BTX, state.hidden, beside_BTD, real_BT)
        if glance is None:
            glance = self._look("after", features_BTD, state, readable_BK)
            context_BTD = context_BTD if glance is None else glance.context_BQD
        decoded = _Decoded.of(features_BTD, context_BTD, glance)
        if self.settings.input_feeding:
            decoded = replace(decoded, features_BTD=self._combined(decoded), context_BTD=None)
            fed_BD = decoded.features_BTD[:, -1]
        # Attention before a step makes its context anew each time, so only the others keep theirs.
        kept_BD = None if self.settings.attends == "before" else fed_BD
        return decoded, RecurrentState(hidden, state.memory, state.source, kept_BD)

    def _from_below(
        self, x_BTE: Tensor, state: RecurrentState, readable_BK: Tensor | None, real_BT: Tensor | None
    ) -> tuple[_Decoded, RecurrentState]:
        """The lowest layer and its attention token by token, then all tokens through the layers above."""
        pieces, (lowest, *others) = [], state.hidden
        for x_B1E in x_BTE.split(1, dim=1):
            glance = self._look("before", lowest.output_BD[:, None], state, readable_BK)
            assert glance is not None
            y_B1D, lowest = self.decoder.lowest(torch.cat([x_B1E, glance.context_BQD], dim=-1), lowest)
            pieces.append(_Decoded.of(y_B1D, glance.context_BQD, glance))
        below = _Decoded.join(pieces)
        fed_BTD = below.context_BTD if self.settings.feed_all else None
        features_BTD, hidden = self.decoder.above(below.features_BTD, others, fed_BTD, real_BT)
        return replace(below, features_BTD=features_BTD), replace(state, hidden=(lowest, *hidden))

    def _combined(self, decoded: _Decoded) -> Tensor:
        """o_t, [B, T, D], of the decoder's outputs and the contexts; what has been combined stays as it is."""
        if self.combine is None or decoded.context_BTD is None:
            return decoded.features_BTD
        return self.combine(torch.cat([decoded.features_BTD, decoded.context_BTD], dim=-1)).tanh()

    def _look(
        self, when: Attend, queries_BQD: Tensor, state: RecurrentState, readable_BK: Tensor | None
    ) -> Glance | None:
        if self.attention is None or state.memory is None or self.settings.attends != when:
            return None
        glance: Glance = self.attention(queries_BQD, state.memory, readable_BK)
        return glance

    def _blame(self, losses_BT: Tensor, real_BT: Tensor) -> Tensor:
        """How much worse than usual went what each choice of hard attention could change, [B, T].

        Usual is a moving average of the loss of one token (Xu et al. 2015, section 4.1). It is taken before
        this batch joins it, so that it knows nothing of these choices and the gradient stays unbiased.
        """
        worse_BT = (losses_BT - self.baseline) * real_BT
        if self.settings.waits:
            # A choice that enters the cell changes all that comes later, too.
            worse_BT = worse_BT.flip(1).cumsum(dim=1).flip(1)
        usual = (losses_BT * real_BT).sum() / real_BT.sum().clamp(min=1)
        usual = usual.to(self.baseline)
        # A loss that is no number stays out: its step is skipped, and the average would never be a number again.
        self.baseline.lerp_(torch.where(usual.isfinite(), usual, self.baseline), 0.1)
        return worse_BT
