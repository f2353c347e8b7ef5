"""Positions against the papers' formulas, and the properties they were chosen for.

Shapes: B rows, T tokens, Q queries, K keys, D model, H heads, E head size.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.batch import Places
from regard.errors import UsageError
from regard.layers.mask import Mask, Visible
from regard.layers.positions import (
    LearnedPositions,
    LinearBias,
    PositionKind,
    RelativePositions,
    RelativeWaves,
    RotaryPositions,
    SinusoidalPositions,
    check_length,
    position_scheme,
)


def wave(position: int, place: int, d_model: int) -> float:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d))."""
    angle = position / 10000 ** ((place - place % 2) / d_model)
    return math.cos(angle) if place % 2 else math.sin(angle)


@given(st.integers(1, 9), st.lists(st.integers(0, 2000), min_size=1, max_size=4))
def test_formula(d_model: int, positions: list[int]) -> None:
    found_BTD = SinusoidalPositions(d_model)(torch.tensor([positions]))
    wanted = [[[wave(position, place, d_model) for place in range(d_model)] for position in positions]]
    # An angle near 2000 has an error of 6e-5 in single precision, and so has its wave.
    torch.testing.assert_close(found_BTD, torch.tensor(wanted), rtol=0, atol=2e-4)


def rotation(k: int, d_model: int) -> Tensor:
    """M_k: for each pair of places the rotation by k times their frequency."""
    matrix = torch.zeros(d_model, d_model)
    for i in range(0, d_model, 2):
        angle = k / 10000 ** (i / d_model)
        # sin(a+b) = sin(a)·cos(b) + cos(a)·sin(b),  cos(a+b) = cos(a)·cos(b) - sin(a)·sin(b)
        matrix[i, i], matrix[i, i + 1] = math.cos(angle), math.sin(angle)
        matrix[i + 1, i], matrix[i + 1, i + 1] = -math.sin(angle), math.cos(angle)
    return matrix


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([2, 8, 64]))
def test_a_step_of_k_is_one_matrix_wherever_it_is_taken(position: int, k: int, d_model: int) -> None:
    waves = SinusoidalPositions(d_model)
    here_D, there_D = waves(torch.tensor([[position, position + k]]))[0]
    torch.testing.assert_close(rotation(k, d_model) @ here_D, there_D, rtol=0, atol=1e-4)


def test_each_position_is_told_from_each_other() -> None:
    waves_TD = SinusoidalPositions(16)(torch.arange(500)[None])[0]
    distances = torch.cdist(waves_TD, waves_TD) + 10 * torch.eye(500)
    assert distances.min() > 0.1


def test_positions_may_restart_inside_a_row() -> None:
    waves = SinusoidalPositions(8)
    packed_BTD = waves(torch.tensor([[0, 1, 2, 0, 1]]))
    assert torch.equal(packed_BTD[:, :2], packed_BTD[:, 3:])


def test_nothing_to_learn_and_nothing_to_save() -> None:
    waves = SinusoidalPositions(8)
    assert list(waves.parameters()) == []
    assert waves.state_dict() == {}


@pytest.mark.parametrize("d_model", [1, 7])
def test_an_odd_size_ends_in_a_sine(d_model: int) -> None:
    assert SinusoidalPositions(d_model)(torch.zeros(1, 1, dtype=torch.long)).flatten()[-1] == 0.0


def test_learned_positions_are_looked_up() -> None:
    positions = LearnedPositions(limit=4, d_model=3)
    found_BTD = positions(torch.tensor([[0, 3, 0]]))
    assert torch.equal(found_BTD[0], positions.table.weight[[0, 3, 0]])


def test_a_sequence_longer_than_the_learned_positions_is_refused() -> None:
    whole = Places.whole(torch.zeros(2, 9))
    check_length(9, limit=9, places=whole)
    check_length(9, limit=None, places=whole)
    with pytest.raises(UsageError, match=r"at most 8 tokens.*but has 9"):
        check_length(9, limit=8, places=whole)
    one_more = Places.whole(torch.zeros(2, 1), first=8)
    with pytest.raises(UsageError, match=r"at most 8 tokens.*but has 9"):
        check_length(9, limit=8, places=one_more)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 3), st.integers(1, 8))
def test_sentences_count_not_the_rows_they_share(lengths: list[int], padding: int, limit: int) -> None:
    positions = [place for length in lengths for place in range(length)] + [0] * padding
    segments = [number for number, length in enumerate(lengths, 1) for _ in range(length)] + [0] * padding
    places = Places(torch.tensor([positions]), torch.tensor([segments]))
    if max(lengths) <= limit:
        check_length(len(positions), limit, places)
    else:
        with pytest.raises(UsageError, match=f"at most {limit} tokens.*but has {max(lengths)}"):
            check_length(len(positions), limit, places)


def visible_at(queries: list[int], keys: list[int]) -> Visible:
    return Mask().visible(Places(torch.tensor([queries])), Places(torch.tensor([keys])))


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200), st.sampled_from([2, 6]), st.integers(0, 99))
def test_rotary_scores_depend_on_distance_alone(here: int, there: int, shift: int, d_k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, 1, 1, 1, d_k, generator=generator)
    scores = []
    for moved in (0, shift):
        rotary, key_place, query_place = RotaryPositions(d_k), there + moved, here + moved
        kept = rotary.kept(key, visible_at([key_place], [key_place]))
        turned_query, turned_key, bias = rotary(query, kept, visible_at([query_place], [key_place]))
        assert bias is None
        assert turned_key is kept  # turned once, however often it is looked at
        scores.append((turned_query * turned_key).sum())
    torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=2e-3)


def test_rotary_turns_each_pair_by_hand() -> None:
    query, keys = torch.tensor([[[[1.0, 0.0, 0.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0, 5.0, 6.0]]]])
    turned, untouched, _ = RotaryPositions(4)(query, keys, visible_at([7], [0]))
    slow = 7 / 100
    wanted = [math.cos(7), math.sin(7), -2 * math.sin(slow), 2 * math.cos(slow)]
    torch.testing.assert_close(turned.flatten(), torch.tensor(wanted))
    torch.testing.assert_close(untouched, keys)


def test_rotary_turns_pairs() -> None:
    with pytest.raises(UsageError, match="d_k must be even, but is 3"):
        RotaryPositions(3)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_relative_bias_is_the_query_times_the_vector_of_the_distance(queries: list[int], keys: list[int]) -> None:
    d_k, reach = 3, 2
    relative = RelativePositions(d_k, reach)
    query_BHQE, keys_BHKE = torch.randn(1, 2, len(queries), d_k), torch.randn(1, 2, len(keys), d_k)
    same_query, same_keys, bias_BHQK = relative(query_BHQE, keys_BHKE, visible_at(queries, keys))
    assert same_query is query_BHQE
    assert same_keys is keys_BHKE
    for head in range(2):
        for i, here in enumerate(queries):
            for j, there in enumerate(keys):
                distance = max(-reach, min(reach, there - here))
                wanted = query_BHQE[0, head, i] @ relative.table_RE[distance + reach] / math.sqrt(d_k)
                torch.testing.assert_close(bias_BHQK[0, head, i, j], wanted)


def test_alibi_falls_with_distance_at_a_slope_for_each_head() -> None:
    """With eight heads the slopes are 1/2, 1/4, …, 1/256."""
    query_BHQE, keys_BHKE = torch.randn(1, 8, 2, 3), torch.randn(1, 8, 3, 3)
    _, _, bias_BHQK = LinearBias(heads=8)(query_BHQE, keys_BHKE, visible_at([2, 0], [0, 1, 2]))
    for head in range(8):
        slope = 2.0 ** -(head + 1)
        assert bias_BHQK[0, head].tolist() == [[-2 * slope, -slope, 0.0], [0.0, -slope, -2 * slope]]


def test_alibi_slopes_for_twelve_heads_are_the_authors() -> None:
    """Those of eight heads, then every other one of sixteen."""
    powers = [-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5]
    assert LinearBias(heads=12).slopes_H.tolist() == pytest.approx([2.0**power for power in powers])
    assert LinearBias(heads=1).slopes_H.tolist() == [2.0**-8]
    assert LinearBias(heads=3).slopes_H.tolist() == pytest.approx([2.0**-4, 2.0**-8, 2.0**-2])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("rotary", RotaryPositions),
        ("relative", RelativePositions),
        ("alibi", LinearBias),
        ("relative-waves", RelativeWaves),
        ("sinusoidal", type(None)),
        ("learned", type(None)),
    ],
)
def test_scheme_by_name(kind: PositionKind, expected: type) -> None:
    assert isinstance(position_scheme(kind, heads=2, d_k=4, reach=3, d_model=8), expected)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 2), st.integers(1, 6), st.integers(0, 99))
def test_relative_scores_of_whole_rows_are_those_of_each_pair(
    lengths: list[int], padding: int, reach: int, seed: int
) -> None:
    torch.manual_seed(seed)
    positions = [place for length in lengths for place in range(length)] + [0] * padding
    segments = [number for number, length in enumerate(lengths, 1) for _ in range(length)] + [0] * padding
    places = Places(torch.tensor([positions]), torch.tensor([segments]))
    copy = Places(places.positions_BT.clone(), places.segments_BT)
    relative, query, keys = RelativePositions(4, reach), *torch.randn(2, 1, 2, len(positions), 4)
    itself, other = Mask().visible(places, places), Mask().visible(places, copy)
    assert itself.goes_by_columns()
    assert not other.goes_by_columns()
    fast, slow = relative(query, keys, itself)[2], relative(query, keys, other)[2]
    real = torch.tensor(segments) > 0
    same = itself.dense(fast)[0] & real[:, None]  # what is not visible may be anything
    torch.testing.assert_close(fast[0][:, same], slow[0][:, same])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 2), st.integers(0, 99))
def test_waves_of_whole_rows_are_those_of_each_pair(lengths: list[int], padding: int, seed: int) -> None:
    """By columns, one by one, and by the formula: (q + u)·k + (q + v)·W·wave(q - k)."""
    torch.manual_seed(seed)
    positions = [place for length in lengths for place in range(length)] + [0] * padding
    segments = [number for number, length in enumerate(lengths, 1) for _ in range(length)] + [0] * padding
    places = Places(torch.tensor([positions]), torch.tensor([segments]))
    copy = Places(places.positions_BT.clone(), places.segments_BT)
    scheme = RelativeWaves(d_model=6, heads=2, d_k=4)
    with torch.no_grad():
        scheme.content_HE.normal_()
        scheme.distance_HE.normal_()
    query, key = torch.randn(2, 1, 2, len(positions), 4)
    mask = Mask(causal=False)
    found = [scheme(query, key, mask.visible(places, keys)) for keys in (places, copy)]
    allowed = mask.visible(places, copy).dense(torch.zeros(1, 1, len(positions), len(positions)))[:, None]
    allowed = allowed & (torch.tensor(segments) > 0)[:, None]  # what padding looks at means nothing
    scores = [(asking @ keys.mT / 2 + bias).masked_fill(~allowed, 0.0) for asking, keys, bias in found]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-5, rtol=0)
    for q, k in ((0, len(positions) - 1), (len(lengths) - 1, 0)):
        wave = scheme.waves(torch.tensor([[positions[q] - positions[k]]]))[0, 0]
        distant = scheme.key(wave).view(2, 4)
        for head in range(2):
            own, other = query[0, head, q], key[0, head, k]
            wanted = (own + scheme.content_HE[head]) @ other + (own + scheme.distance_HE[head]) @ distant[head]
            torch.testing.assert_close(scores[1][0, head, q, k], (wanted / 2) * allowed[0, 0, q, k], atol=1e-4, rtol=0)
