"""What rows share is kept once, and each row sees its own text of it, however the beams move.

Shapes: B sentences, N beams, R = B·N rows, T tokens, V vocabulary.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import IGNORED, Batch, Places, Tokens
from regard.layers.branches import Branches, sentences_of
from regard.layers.mask import Mask
from regard.models.decoder_only import DecoderOnly
from tests.contracts.zoo import ZOO

SOURCES = [[3, 4, 5, 2], [6, 7, 8, 9, 3, 2], [5, 2]]
START = 1


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.integers(1, 3), st.lists(st.integers(0, 11), min_size=1, max_size=8)), min_size=1, max_size=5
    ),
    st.sampled_from([None, 3]),
)
def test_each_row_sees_what_it_would_see_alone(
    sentences: int, moves: list[tuple[int, list[int]]], window: int | None
) -> None:
    """The rule of sight on rows that each have a copy of everything, written down beside."""
    mask = Mask(causal=True, window=window)
    lengths = [2 + number for number in range(sentences)]
    source = Tokens.padded([[3] * length for length in lengths], 0)
    found = Branches.of(source.places)
    texts = [[(column, column) for column in range(length)] for length in lengths]  # of each row: (column, position)
    for tokens, choice in moves:
        new = found.following(torch.zeros(len(texts), tokens, dtype=torch.long))
        found = found.extend(new)
        keys = found.positions_BK.shape[1]
        allowed_BQK = found.visible(mask, new).allowed_BQK
        assert allowed_BQK is not None
        shared = len(texts) // found.positions_BK.shape[0]
        first = keys - shared * tokens
        for row, text in enumerate(texts):
            for token in range(tokens):
                text.append((first + row % shared * tokens + token, len(text)))
                near = {column for column, position in text if window is None or len(text) - position <= window}
                seen_K = allowed_BQK[row // shared, row % shared * tokens + token]
                assert set(seen_K.nonzero()[:, 0].tolist()) == near
        rows = [each % len(texts) for each in choice]
        kept = sentences_of(torch.tensor(rows), len(texts), found.positions_BK.shape[0])
        found = found.select(torch.tensor(rows), kept)
        texts = [list(texts[row]) for row in rows]
        assert len(texts) % found.positions_BK.shape[0] == 0


@pytest.mark.parametrize(
    ("rows", "before", "sentences", "wanted"),
    [
        ([0, 0, 0, 1, 1, 1], 2, 2, None),
        ([2, 0, 1, 3, 3, 4], 6, 2, None),
        ([3, 5], 6, 2, [1]),
        ([2, 3, 0, 1], 4, 2, [1, 0]),
        ([0, 1, 3], 4, 2, [0, 0, 1]),
        ([], 4, 2, []),
        ([], 0, 0, None),
    ],
)
def test_the_sentences_of_rows(rows: list[int], before: int, sentences: int, wanted: list[int] | None) -> None:
    found = sentences_of(torch.tensor(rows, dtype=torch.long), before, sentences)
    assert (None if found is None else found.tolist()) == wanted


@pytest.mark.parametrize("name", sorted(name for name in ZOO if name.startswith("decoder-only")))
@torch.inference_mode()
def test_beams_go_on_as_texts_that_were_read_from_their_beginning(name: str) -> None:
    torch.manual_seed(1)
    model = ZOO[name].model(vocabulary=12, seed=0)
    assert isinstance(model, DecoderOnly)
    state = model.start(Tokens.padded(SOURCES, 0), 3)
    kept = state.layers
    read = [[START], [START], [START]]
    owners = [0, 1, 2]
    unread_RT = torch.tensor(read)
    moves = [[0, 0, 0, 1, 1, 1, 2, 2, 2], [2, 2, 0, 3, 5, 4, 8, 8, 8], [1, 1, 0, 8, 7, 7], [0, 3, 4], [2, 1]]
    for step, rows in enumerate(moves):
        found_RV, state = model.step(unread_RT, state)
        torch.testing.assert_close(found_RV, _from_the_beginning(model, owners, read), atol=1e-5, rtol=1e-5)
        state = state.select(torch.tensor(rows))
        unread_RT = torch.randint(3, 12, (len(rows), 1 + step % 2))
        read = [[*read[row], *new] for row, new in zip(rows, unread_RT.tolist(), strict=True)]
        owners = [owners[row] for row in rows]
        if step < 2:
            assert state.layers[0].keys_BHKE.shape[0] == 3  # a row for each sentence, not for each beam
    assert kept[0].keys_BHKE.shape[2] == 6  # a state is a value: the first is as it was


def _from_the_beginning(model: DecoderOnly, owners: list[int], read: list[list[int]]) -> torch.Tensor:
    target = Tokens.padded(read, 0)
    labels = torch.full_like(target.ids_BT, IGNORED)
    return model(Batch(Tokens.padded([SOURCES[owner] for owner in owners], 0), target, labels))[:, -1]


def test_padding_is_read_by_nobody() -> None:
    places = Places(torch.tensor([[0, 1, 0]]), torch.tensor([[1, 1, 0]]))
    found = Branches.of(places)
    assert found.read_RK.tolist() == [[True, True, False]]
    assert found.following(torch.zeros(1, 2, dtype=torch.long)).positions_BT.tolist() == [[2, 3]]
