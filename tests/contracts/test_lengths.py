"""Texts longer than any in training: they are read, or refused with a reason.

Shapes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from regard.batch import IGNORED, Batch, Tokens
from regard.errors import UsageError

from . import contracts
from .cases import FIRST_WORD, SPECIALS, Case
from .zoo import ZOO, Entry, Model

VOCABULARY = 9
SHORT, LONG = 5, 60
LIMITED = [name for name, entry in ZOO.items() if entry.model(VOCABULARY, 0).context is not None]

# Where source and target share the positions, other numbers are said: tests/models/test_decoder_only.py.
APART = [name for name in LIMITED if not ZOO[name].model(VOCABULARY, 0).joins_source]


def texts(length: int, reads_source: bool) -> Case:
    draw = torch.Generator().manual_seed(length)
    words = torch.randint(FIRST_WORD, VOCABULARY, (4, length), generator=draw).tolist()
    targets = tuple((SPECIALS.start, *row[1:]) for row in words[:2])
    return Case(VOCABULARY, 1, targets, tuple(map(tuple, words[2:])) if reads_source else None)


@torch.enable_grad()
def trained(entry: Entry) -> Model:
    """A model that has seen short texts only, a few times."""
    torch.manual_seed(0)
    model = entry.build(VOCABULARY)
    batch = texts(SHORT, entry.reads_source).batch()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        optimiser.zero_grad()
        F.cross_entropy(model(batch).flatten(0, 1), batch.labels_BT.flatten(), ignore_index=IGNORED).backward()
        optimiser.step()
    return model.eval()


@pytest.mark.parametrize("name", [name for name in ZOO if name not in LIMITED])
@torch.no_grad()
def test_a_longer_text_is_read(name: str) -> None:
    model, case = trained(ZOO[name]), texts(LONG, ZOO[name].reads_source)
    assert model(case.batch()).isfinite().all()
    contracts.step_by_step_is_all_at_once(model, case)


@pytest.mark.parametrize("name", APART)
@torch.no_grad()
def test_learned_positions_say_where_they_end(name: str) -> None:
    model, case = trained(ZOO[name]), texts(LONG, ZOO[name].reads_source)
    said = f"at most {model.context} tokens, since positions are learned up to `max_positions`, but has {LONG}"
    with pytest.raises(UsageError, match=said):
        model(case.batch())
    short = texts(SHORT, ZOO[name].reads_source)
    with pytest.raises(UsageError, match=said):
        model(replace(case.batch(), source=short.source()))
    _, state = model.step(short.target().ids_BT, model.start(short.source(), short.rows))
    with pytest.raises(UsageError, match=said.replace(str(LONG), str(SHORT + LONG))):
        model.step(case.target().ids_BT, state)


@pytest.mark.parametrize("name", LIMITED)
@torch.no_grad()
def test_a_row_may_be_longer_than_the_positions(name: str) -> None:
    """What counts is the longest sentence, not how many share its row, nor the padding behind it."""
    model, case = trained(ZOO[name]), texts(SHORT, ZOO[name].reads_source)
    assert model.context is not None
    wanted_BTV = model(case.batch())
    padded: Batch = case.batch(extra=model.context)
    assert padded.target.ids_BT.shape[1] > model.context
    contracts.same([model(padded)[:, :SHORT]], [wanted_BTV])
    several = replace(case, targets=case.targets * 3, sources=case.sources and case.sources * 3)
    packed: Tokens = several.packed().target
    assert packed.ids_BT.shape[1] > model.context
    contracts.same([model(several.packed())[0, :SHORT]], [wanted_BTV[0]])
