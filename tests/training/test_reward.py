"""What the model itself writes is judged, and the better becomes likelier."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import experiment, folder
from regard.assembly import _draw
from regard.batch import IGNORED, Batch, Specials, Tokens
from regard.data.batching import collate
from regard.data.collate import EMPTY, one_a_row, sentence_rows
from regard.data.store import TokenStore
from regard.errors import UsageError
from regard.models.build import build
from regard.models.gpt import GPTSettings
from regard.models.interface import SequenceModel
from regard.models.recurrent import RecurrentSettings
from regard.recipe import load_recipe
from regard.training.objective import Objective, ObjectiveSettings
from regard.training.reward import Rewards, gleu
from tests.tiny import generated_recipe, write_lines

SPECIALS = Specials(padding=0, start=1, end=2)
WORDS = 7
MODEL = RecurrentSettings(d_model=24, dropout=0.0)
REWARDS = Rewards(_draw(SPECIALS), SPECIALS)
TEXTS = st.lists(st.integers(3, 6), max_size=8)


@given(TEXTS, TEXTS)
def test_gleu_by_counting(text: list[int], reference: list[int]) -> None:
    ours, theirs = ([side[first : first + length] for length in range(1, 5) for first in range(len(side) - length + 1)]
                    for side in (text, reference))  # fmt: skip
    left, common = list(theirs), 0
    for run in ours:
        if run in left:
            left.remove(run)
            common += 1
    if ours and theirs:
        assert gleu(text, reference) == pytest.approx(min(common / len(ours), common / len(theirs)))
    else:
        assert gleu(text, reference) == float(text == reference)
    assert gleu(text, text) == 1.0


def pairs(rows: int) -> Batch:
    """Sentences of three words, to be copied."""
    text = torch.randint(3, WORDS, (rows, 3)).tolist()
    return collate([(each, each) for each in text], SPECIALS)


def mean_reward(model: SequenceModel[Any], batch: Batch) -> float:
    """The GLEU of what is drawn, on average."""
    source = batch.source
    assert source is not None
    texts = _draw(SPECIALS)(model.eval(), source, 6, 1)
    rows = zip(texts, batch.labels_BT.tolist(), strict=True)
    return sum(gleu([token for token in text if token != 2], row[:3]) for text, row in rows) / len(texts)


def test_the_reward_alone_teaches_to_copy() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(MODEL, WORDS)
        objective = Objective(model.train(), ObjectiveSettings(reward=1.0, samples=8), rewards=REWARDS)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
        test = pairs(200)
        before = mean_reward(model, test)
        for _ in range(60):
            optimiser.zero_grad()
            loss = objective._rewarded(pairs(16))
            assert loss == 0  # what is reported stays the likelihood
            (loss / 16).backward()
            optimiser.step()
        assert mean_reward(model, test) > before + 0.2


def test_the_gradient_is_that_of_the_expected_reward() -> None:
    """Of a model that writes up to two of three words all texts can be listed, and all pairs that might be drawn."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(RecurrentSettings(d_model=6, dropout=0.0), 4).double().train()
    batch = collate([([3, 1], [3, 1])], SPECIALS)
    every = [text for length in range(3) for text in product((0, 1, 3), repeat=length)]
    # One that is as long as it may be is cut there, and was not asked to end.
    rows = [text if len(text) == 2 else (*text, 2) for text in every]
    source, said = batch.source, [rows[0], rows[0]]
    assert source is not None
    rewards = Rewards(lambda *_: said, SPECIALS)
    objective = Objective(model, ObjectiveSettings(reward=3.0, samples=2), rewards=rewards)
    whole = rewards._batch(source.map(lambda x: x.repeat_interleave(len(rows), dim=0)), rows)
    chances_R = (-model.losses(whole, objective._plain).sum(dim=1)).exp()
    torch.testing.assert_close(chances_R.sum().detach(), torch.tensor(1.0))
    scores_R = torch.tensor([gleu(text, [3, 1]) for text in every])
    wanted = torch.autograd.grad(-3.0 * (chances_R * scores_R).sum(), list(model.parameters()), retain_graph=True)
    for (one, chance), (other, its_chance) in combinations(enumerate(chances_R.detach()), 2):
        said[:] = rows[one], rows[other]
        (2 * chance * its_chance * objective._rewarded(batch)).backward()
    for parameter, exact in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, exact, rtol=1e-4, atol=1e-6)


def test_drawn_texts_become_a_batch_with_their_better_and_worse() -> None:
    said = [(4, 5, 2), (3, 3), (2,), (4, 5, 6)]
    asked: list[tuple[int, int]] = []

    def draw(model: SequenceModel[Any], source: Tokens, most: int, seed: int) -> list[tuple[int, ...]]:
        assert not model.training
        asked.append((source.ids_BT.shape[0], most))
        return said

    model = build(MODEL, WORDS).train()
    batch = collate([([3], [4, 5]), ([3, 4], [4, 5, 6])], SPECIALS)
    drawn, better_R = Rewards(draw, SPECIALS).drawn(model, batch, samples=2)
    assert asked == [(4, 13)]
    assert model.training
    assert drawn.source is not None
    assert drawn.source.ids_BT.tolist() == [[3, 2, 0], [3, 2, 0], [3, 4, 2], [3, 4, 2]]
    assert drawn.target.ids_BT.tolist() == [[1, 4, 5], [1, 3, 0], [1, 0, 0], [1, 4, 5]]
    none = IGNORED
    assert drawn.labels_BT.tolist() == [[4, 5, 2], [3, 3, none], [2, none, none], [4, 5, 6]]
    assert better_R.tolist() == [0.5, -0.5, -0.5, 0.5]


def test_a_row_that_only_fills_up_a_batch_is_not_rewarded() -> None:
    """Its reference is empty, so that a draw that ends at once would be a perfect translation of nothing."""
    said = [(4, 2), (2,)] * 3
    store = TokenStore.of_pairs([([3], [4]), ([3], [])], SPECIALS.end)
    batch = sentence_rows(store, SPECIALS, one_a_row(store), np.array([0, 1, EMPTY]))
    _, better_R = Rewards(lambda *_: said, SPECIALS).drawn(build(MODEL, WORDS), batch, samples=2)
    # The second row asks for an empty translation, the third for none.
    assert better_R.tolist() == [0.5, -0.5, -0.5, 0.5, 0.0, 0.0]


def test_what_cannot_be_is_refused() -> None:
    for wrong, message in (({"reward": -1.0}, "`reward` must be at least 0"), ({"samples": 1}, "`samples` must be")):
        with pytest.raises(ValueError, match=message):
            ObjectiveSettings(**wrong)  # type: ignore[arg-type]
    gpt = build(GPTSettings(layers=1, d_model=8, d_ff=8, heads=2, max_positions=8), WORDS)
    with pytest.raises(
        UsageError, match=r"training\.reward: must be 0 for a `gpt`, .* but is 1\. Set `training\.reward ="
    ):
        Objective(gpt, ObjectiveSettings(reward=1.0), rewards=REWARDS)


def test_a_run_may_learn_from_rewards_and_can_be_repeated(tmp_path: Path) -> None:
    changes = ["training={steps = 2, save_every = 2, reward = 4.0, samples = 3}", "batch.layout=buckets"]
    weights = []
    for name, more in (("once", []), ("again", []), ("without", ["training.reward=0.0"])):
        experiment.train(generated_recipe([*changes, *more]), tmp_path / name)
        weights.append((tmp_path / name / folder.WEIGHTS).read_bytes())
    assert weights[0] == weights[1] != weights[2]
    with pytest.raises(
        UsageError, match=r"batch\.layout: must be `buckets` with `training\.reward` \(4\).* is `packed`"
    ):
        experiment.train(generated_recipe([changes[0], "batch.layout=packed"]), tmp_path / "packed")


def test_a_language_model_is_told_of_the_reward_and_not_of_the_layout(tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text.txt", ["one two three"] * 30)
    data, small = f"data={{text='{text}', held_out=0.2}}", "model={layers=1, d_model=16, d_ff=16, heads=2}"
    recipe = load_recipe("lm-shakespeare-small", [data, small, "training.reward=4", "device=cpu"])
    assert recipe.batch.layout == "blocks"
    with pytest.raises(UsageError, match=r"training\.reward: must be 0 for a `gpt`"):
        experiment.train(recipe, tmp_path / "out")
