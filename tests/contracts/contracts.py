"""The contracts of `SequenceModel`: each is a function of a model and a case that raises AssertionError.

Shapes: B rows, H heads, S source tokens, T target tokens, Q queries, K keys, V vocabulary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import IGNORED, Batch, Tokens
from regard.errors import UsageError
from regard.models.decoder_only import following

from .cases import FIRST_WORD, Case, in_front, real
from .zoo import Model

Contract = Callable[[Model, Case], None]


def same(found: Sequence[Tensor], wanted: Sequence[Tensor], tolerance: float = 1e-5) -> None:
    """Assert that two lists of tensors agree."""
    torch.testing.assert_close(list(found), list(wanted), rtol=tolerance, atol=tolerance)


def steps(model: Model, case: Case, prefix: int) -> list[Tensor]:
    """The scores after `prefix` tokens read in one step and after each of the others, for the rows that last."""
    ids_BT = case.target().ids_BT
    state = model.start(case.source(), case.rows)
    scores_BV, state = model.step(ids_BT[:, :prefix], state)
    found = [scores_BV]
    for t in range(prefix, ids_BT.shape[1]):
        scores_BV, state = model.step(ids_BT[:, t : t + 1], state)
        found.append(scores_BV)
    return real(torch.stack(found, dim=1), [sentence[prefix - 1 :] for sentence in case.targets])


@torch.no_grad()
def step_by_step_is_all_at_once(model: Model, case: Case) -> None:
    """`step` gives at each token what `forward` gives at its place."""
    same(steps(model, case, prefix=1), real(model(case.batch()), case.targets))


@torch.no_grad()
def a_prefix_is_its_steps(model: Model, case: Case) -> None:
    """A prefix read in one step leaves the scores and the state that reading it token by token leaves."""
    shortest = min(map(len, case.targets))
    wanted = steps(model, case, prefix=1)
    for prefix in range(2, shortest + 1):
        same(steps(model, case, prefix), [scores_TV[prefix - 1 :] for scores_TV in wanted])


@torch.no_grad()
def the_future_never_leaks(model: Model, case: Case) -> None:
    """Other tokens after t leave the scores up to t as they were."""
    batch = case.batch()
    wanted_BTV = model(batch)
    for t in range(batch.target.ids_BT.shape[1] - 1):
        ids_BT = batch.target.ids_BT.clone()
        words = case.vocabulary - FIRST_WORD
        ids_BT[:, t + 1 :] = FIRST_WORD + (ids_BT[:, t + 1 :] - FIRST_WORD + 1) % words
        changed = replace(batch, target=Tokens(ids_BT, batch.target.places))
        same(
            [row[: t + 1] for row in real(model(changed), case.targets)],
            [row[: t + 1] for row in real(wanted_BTV, case.targets)],
            tolerance=1e-6,
        )


@torch.no_grad()
def padding_is_invisible(model: Model, case: Case) -> None:
    """A sentence alone scores what it scores in a batch, however much padding there is and whatever is in it."""
    found = real(model(case.batch()), case.targets)
    same(real(model(case.batch(extra=3)), case.targets), found)
    other = replace(case, filler=FIRST_WORD)
    same(real(model(other.batch(extra=1)), case.targets), found)
    for row in range(case.rows):
        same([model(case.whole(row))[0]], [found[row]])
        same([model(case.select([row]).batch())[0]], [found[row]])


@torch.no_grad()
def padding_is_invisible_to_steps(model: Model, case: Case) -> None:
    """Step by step, too, the padding of the source does not count."""
    state = model.start(case.source(extra=2), case.rows)
    first_BT = case.target().ids_BT[:, :1]
    found_BV, _ = model.step(first_BT, state)
    for row in range(case.rows):
        source = case.whole(row).source
        alone_BV, _ = model.step(first_BT[row : row + 1], model.start(source, 1))
        same([found_BV[row]], [alone_BV[0]])


@torch.no_grad()
def padding_in_front_is_invisible_or_refused(model: Model, case: Case) -> None:
    """Padding belongs behind a sentence; a model that meets it in front understands, or says so."""
    batch = case.batch(extra=1)
    wanted = real(model(batch), case.targets)
    with _or_refused("needs padding on the right"):
        found_BTV = model(replace(batch, target=in_front(batch.target)))
        same([row[len(row) - len(each) :] for row, each in zip(found_BTV, wanted, strict=True)], wanted)
    if batch.source is not None:
        with _or_refused("needs padding on the right"):
            same(real(model(replace(batch, source=in_front(batch.source))), case.targets), wanted)


@contextmanager
def _or_refused(words: str) -> Iterator[None]:
    """What is inside happens, or is refused in these words."""
    try:
        yield
    except UsageError as error:
        if words not in str(error):
            raise


@torch.no_grad()
def packed_is_alone(model: Model, case: Case) -> None:
    """Sentences that share a row do not see each other."""
    wanted = real(model(case.batch()), case.targets)
    found_BTV = model(case.packed())
    lengths = [len(sentence) for sentence in case.targets]
    same(found_BTV[0, : sum(lengths)].split(lengths), wanted)
    same([found_BTV[1, : lengths[0]]], wanted[:1])


@torch.no_grad()
def select_takes_rows(model: Model, case: Case) -> None:
    """After `select` a state is that of the selected rows: reordered, copied, dropped; at once and after steps."""
    shortest = min(map(len, case.targets))
    chosen = case.chance.choices(range(case.rows), k=case.rows + 1)
    chosen_after_start = [case.rows - 1, 0]
    for rows, read in [(chosen, shortest), (chosen[:1], shortest), (chosen_after_start, 0)]:
        state = model.start(case.source(), case.rows)
        if read:
            _, state = model.step(case.target().ids_BT[:, :read], state)
        next_B1 = torch.full((len(rows), 1), FIRST_WORD)
        found_BV, _ = model.step(next_B1, state.select(torch.tensor(rows)))

        alone = case.select(rows)
        written_BT = torch.cat([alone.target().ids_BT[:, :read], next_B1], dim=1)
        wanted_BV, _ = model.step(written_BT, model.start(alone.source(), alone.rows))
        same([found_BV], [wanted_BV])


@torch.no_grad()
def a_state_is_a_value(model: Model, case: Case) -> None:
    """Stepping or selecting from a state leaves it as it was."""
    begun = model.start(case.source(), case.rows)
    first_B1 = case.target().ids_BT[:, :1]
    _, state = model.step(first_B1, begun)
    other_B1 = torch.full_like(first_B1, FIRST_WORD)
    wanted_BV, _ = model.step(other_B1, state)
    _, further = model.step(torch.full_like(first_B1, FIRST_WORD + 1), state)
    model.step(first_B1, further)
    model.step(first_B1[:1], state.select(torch.tensor([case.rows - 1])))
    found_BV, _ = model.step(other_B1, state)
    same([found_BV], [wanted_BV], tolerance=0)


@torch.no_grad()
def a_wrong_source_is_refused(model: Model, case: Case) -> None:
    """A source for each target, or none to a language model: anything else is refused, never paired up somehow."""
    batch, two = case.batch(), case.select([0] * (2 * case.rows))
    wrong: list[Tokens | None] = [case.target()] if case.sources is None else [None, two.source()]
    for source in wrong:
        _refuses(model, replace(batch, source=source))
    if case.sources is not None:
        # Twice as many targets as sources: the beams of a search share a source, the rows of a batch do not.
        _refuses(model, replace(two.batch(), source=case.source()))


def _refuses(model: Model, batch: Batch) -> None:
    rows = batch.target.ids_BT.shape[0]
    for read in (lambda: model.features(batch), lambda: model.start(batch.source, rows)):
        try:
            read()
        except UsageError:
            continue
        found = None if batch.source is None else list(batch.source.ids_BT.shape)
        raise AssertionError(f"a source of {found} was taken for {rows} targets")


@torch.no_grad()
def nothing_is_no_surprise(model: Model, case: Case) -> None:
    """No rows give no scores, and a step without a token is refused in words."""
    source, nothing = case.source(), slice(0, 0)
    none_of_it = case.batch().rows(nothing)
    assert model(none_of_it).shape == (0, case.target().ids_BT.shape[1], case.vocabulary)
    state = model.start(none_of_it.source, 0)
    assert model.step(none_of_it.target.ids_BT[:, :1], state)[0].shape == (0, case.vocabulary)
    try:
        model.step(case.target().ids_BT[:, nothing], model.start(source, case.rows))
    except UsageError:
        return
    raise AssertionError("a step read nothing, and knew what comes next")


@torch.no_grad()
def watched_is_fused(model: Model, case: Case) -> None:
    """Watching changes nothing; each query's weights sum to one, and what it may not see weighs exactly zero."""
    batch = case.batch(extra=1)
    if batch.source is not None and batch.source.ids_BT.shape == batch.target.ids_BT.shape:
        batch = replace(batch, source=case.source(extra=2))
    wanted_BTV = model(batch)
    calls: dict[nn.Module, list[Tensor]] = defaultdict(list)
    watched = [module for module in model.modules() if hasattr(module, "watcher")]
    assert watched, "no module of the model has a `watcher`"
    try:
        for module in watched:
            module.watcher = calls[module].append  # type: ignore[assignment]
        found_BTV = model(batch)
    finally:
        for module in watched:
            module.watcher = None  # type: ignore[assignment]
    same(real(found_BTV, case.targets), real(wanted_BTV, case.targets))
    for module in watched:
        assert calls[module], f"{type(module).__name__} was never shown"
        # A recurrent decoder attends with one query a call; together they are the queries of the sentence.
        _check_weights(torch.cat(calls[module], dim=2), batch, getattr(model.settings, "window", None))


def _check_weights(weights_BHQK: Tensor, batch: Batch, window: int | None) -> None:
    """Which sentence queries and keys belong to is told by their number: source and target differ in it."""
    assert batch.target.places.segments_BT is not None
    sides = {batch.target.ids_BT.shape[1]: batch.target}
    if batch.source is not None:
        sides[batch.source.ids_BT.shape[1]] = batch.source
        joined = Tokens(
            torch.cat([batch.source.ids_BT, batch.target.ids_BT], dim=1),
            batch.source.places.extend(following(batch.source.places, batch.target.places)),
        )
        sides[joined.ids_BT.shape[1]] = joined
    queries, keys = (sides[size].places for size in weights_BHQK.shape[2:])
    hidden_BQK = keys.segments_or_ones()[:, None, :] == 0
    if queries is keys and (batch.source is None or queries is not batch.source.places):
        hidden_BQK = hidden_BQK | (keys.positions_BT[:, None, :] > queries.positions_BT[:, :, None])
    if queries is keys and window is not None:
        far_BQK = (keys.positions_BT[:, None, :] - queries.positions_BT[:, :, None]).abs() >= window
        hidden_BQK = hidden_BQK | far_BQK
    real_BQ = queries.segments_or_ones() != 0
    weights_BQHK = weights_BHQK.transpose(1, 2)[real_BQ]
    torch.testing.assert_close(weights_BQHK.sum(dim=-1), torch.ones(weights_BQHK.shape[:-1]))
    hidden_BQHK = hidden_BQK.expand(-1, real_BQ.shape[1], -1)[real_BQ][:, None].expand_as(weights_BQHK)
    assert (weights_BQHK[hidden_BQHK] == 0).all(), "a key that may not be seen has weight"


def gradients_reach_everything(model: Model, case: Case) -> None:
    """Every parameter learns from a padded batch, and none gets a NaN."""
    model.zero_grad()
    batch = case.batch(extra=2)
    logits_BTV = model(batch)
    F.cross_entropy(logits_BTV.flatten(0, 1), batch.labels_BT.flatten(), ignore_index=IGNORED).backward()
    for name, parameter in model.named_parameters():
        if name.endswith("spread_ED"):
            continue  # the noise of experts' gates is for training alone; tests/layers/test_experts.py sees it learn
        assert parameter.grad is not None, f"{name} takes no part"
        assert parameter.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert parameter.grad.any(), f"{name} learns nothing"
