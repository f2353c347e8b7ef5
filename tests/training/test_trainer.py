"""One step, and that to stop and go on is the same as never to have stopped, to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import save

from regard.batch import IGNORED, Batch, Specials
from regard.data.batching import Batches, BatchSettings
from regard.data.prefetch import real_tokens
from regard.data.store import Example, TokenStore
from regard.errors import DataError, UsageError
from regard.models.build import ModelSettings, build
from regard.models.convs2s import ConvS2SSettings
from regard.models.recurrent import RecurrentSettings
from regard.models.recurrent_lm import RecurrentLMSettings
from regard.models.transformer import TransformerSettings
from regard.training import checkpoint, validation
from regard.training.graph import StepGraphs
from regard.training.objective import Objective
from regard.training.optim import OptimiserSettings
from regard.training.report import StepReport
from regard.training.trainer import Trainer, TrainingSettings
from regard.training.validation import Validation
from tests.tight import tight

SPECIALS = Specials(padding=0, start=1, end=2)
MODEL = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2, dropout=0.3)
EXAMPLES: list[Example] = [
    ([4 + (number * step) % 16 for step in range(1, 2 + number % 4)], [4 + number % 16, 5, 6][: 1 + number % 3])
    for number in range(40)
]
SETTINGS = TrainingSettings(steps=20, optimiser=OptimiserSettings(warmup=5, clip=1.0))


@pytest.fixture(autouse=True)
def own_randomness() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


def trainer(seed: int = 0, settings: TrainingSettings = SETTINGS, model: ModelSettings = MODEL) -> Trainer:
    torch.manual_seed(seed)
    batches = Batches(EXAMPLES, SPECIALS, BatchSettings(tokens=24, shapes=4), seed=3)
    return Trainer(build(model, 20), batches, settings)


def advance(run: Trainer) -> StepReport:
    """One step and its report, in which the time it took does not count."""
    run.advance()
    return replace(run.report(), seconds=0.0)


def everything(run: Trainer) -> dict[str, torch.Tensor]:
    snapshot = run.snapshot()
    return snapshot.weights | snapshot.optimiser | {f"random/{name}": state for name, state in snapshot.random.items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def test_ten_steps_a_checkpoint_and_ten_more_are_twenty_to_the_bit(tmp_path: Path) -> None:
    unbroken = trainer()
    reports = [advance(unbroken) for _ in range(20)]
    expected = everything(unbroken)

    broken = trainer()
    for _ in range(10):
        advance(broken)
    checkpoint.save(tmp_path, broken.snapshot(), keep=1)
    # Another model, other random numbers, other moments: all of it must come from the checkpoint.
    resumed = trainer(seed=99)
    advance(resumed)
    torch.manual_seed(4)
    snapshot, damaged = checkpoint.newest(tmp_path)
    resumed.restore(snapshot)
    assert [advance(resumed) for _ in range(10)] == reports[10:]
    assert damaged == []
    assert resumed.step == 20
    assert_same(everything(resumed), expected)


def test_validation_in_between_changes_nothing() -> None:
    runs = []
    for validates in (False, True):
        run = trainer()
        for _ in range(4):
            advance(run)
            if validates:
                run.validate([run.batches[0]])
        runs.append(everything(run))
    assert_same(*runs)


def test_going_back_to_the_very_beginning_forgets_what_was_learned() -> None:
    run = trainer()
    beginning = run.snapshot()
    first = [advance(run) for _ in range(3)]
    run.restore(beginning)
    assert [advance(run) for _ in range(3)] == first


def test_a_step_leaves_torchs_generators_alone_and_does_not_depend_on_them() -> None:
    """A recurrent model, whose dropout draws from them; a snapshot is restored without them as well."""
    settings, runs = RecurrentSettings(d_model=16, dropout=0.3), []
    for disturbs in (False, True):
        torch.manual_seed(0)
        batches = Batches(EXAMPLES, SPECIALS, BatchSettings(tokens=24, layout="buckets"), seed=3)
        run = Trainer(build(settings, 20), batches, SETTINGS)
        for _ in range(3):
            if disturbs:
                torch.rand(5)
            before = torch.get_rng_state()
            run.advance()
            run.restore(run.snapshot())
            assert torch.equal(torch.get_rng_state(), before)
        runs.append(everything(run))
    assert_same(*runs)


@pytest.mark.parametrize("before", [(False, False), (True, False), (True, True)])
def test_a_step_on_a_gpu_leaves_the_wish_for_exact_sums_as_it_was(before: tuple[bool, bool]) -> None:
    run = trainer()
    run.device = torch.device("cuda")  # nothing is computed
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    try:
        with run._exactly():
            assert torch.are_deterministic_algorithms_enabled()
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        found = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        assert found == before
    finally:
        torch.use_deterministic_algorithms(False)


def test_dropout_was_on_in_these_tests() -> None:
    assert advance(trainer()).loss != advance(trainer(model=replace(MODEL, dropout=0.0))).loss


def test_a_report_says_what_the_step_did() -> None:
    run = trainer()
    batch = run.batches[0]
    assert batch.source is not None
    report = advance(run)
    assert (report.step, run.step) == (1, 1)
    assert report.learning_rate == SETTINGS.optimiser.learning_rate(1, 16, 20)
    assert {group["lr"] for group in run.optimiser.param_groups} == {report.learning_rate}
    real = (batch.source.ids_BT != SPECIALS.padding).sum() + (batch.labels_BT != IGNORED).sum()
    assert report.tokens == real
    assert report.gradient_norm > 0


def test_the_loss_is_the_mean_over_real_tokens() -> None:
    run = trainer(model=replace(MODEL, dropout=0.0))
    batch = run.batches[0]
    log_probabilities = run.model(batch).log_softmax(-1)
    total, tokens = 0.0, 0
    for row, place in (batch.labels_BT != IGNORED).nonzero().tolist():
        scores = log_probabilities[row, place]
        total -= 0.9 * scores[batch.labels_BT[row, place]].item() + 0.1 * scores.mean().item()
        tokens += 1
    assert (batch.labels_BT == IGNORED).any()
    assert advance(run).loss == pytest.approx(total / tokens, rel=1e-4)


def test_validation_is_the_likelihood_over_all_tokens_of_all_batches() -> None:
    run = trainer()
    batches = [run.batches[step] for step in range(run.batches.per_epoch)]
    validation = run.validate(batches)
    total, tokens = 0.0, 0
    for batch in batches:
        log_probabilities = run.model(batch).log_softmax(-1)
        for row, place in (batch.labels_BT != IGNORED).nonzero().tolist():
            total -= log_probabilities[row, place, batch.labels_BT[row, place]].item()
            tokens += 1
    assert validation.tokens == tokens == sum(len(target) + 1 for _, target in EXAMPLES)
    assert validation.nll == pytest.approx(total / tokens, rel=1e-5)
    assert validation.perplexity == pytest.approx(math.exp(total / tokens), rel=1e-4)
    assert not run.model.training


def test_perplexity_does_not_overflow() -> None:
    assert math.isfinite(Validation(1e6, 1).perplexity)


def test_clipping_bounds_the_gradient_and_none_does_not() -> None:
    norms = {}
    for clip in (None, 0.01):
        run = trainer(settings=TrainingSettings(optimiser=OptimiserSettings(clip=clip)))
        report = advance(run)
        squares = sum(weight.grad.square().sum() for weight in run.model.parameters() if weight.grad is not None)
        norms[clip] = report.gradient_norm, math.sqrt(float(squares))
    assert norms[None] == pytest.approx((norms[None][0],) * 2, rel=1e-4)
    assert norms[0.01][0] == pytest.approx(norms[None][0], rel=1e-4)  # the report has the norm before clipping
    assert norms[0.01][1] == pytest.approx(0.01, rel=1e-3)


def spoil_weight(run: Trainer) -> None:
    with torch.no_grad():
        next(run.model.parameters()).fill_(math.nan)


def spoil_gradient(run: Trainer) -> None:
    next(run.model.parameters()).register_hook(lambda gradient: gradient * math.inf)


def spoil_loss(run: Trainer) -> None:
    """The loss alone: its gradient is as it was."""
    run.objective.register_forward_hook(lambda _module, _given, loss: loss + math.inf)


@pytest.mark.parametrize("spoil", [spoil_weight, spoil_gradient, spoil_loss])
def test_a_step_whose_loss_or_gradient_is_no_number_changes_no_weight_and_is_counted(
    spoil: Callable[[Trainer], None],
) -> None:
    run = trainer()
    assert advance(run).skipped == 0
    spoil(run)
    before = everything(run)
    for step in (2, 3, 4):
        report = advance(run)
        assert (report.step, report.skipped, run.wasted_in_a_row) == (step, 1, step - 1)
        assert report.loss == report.gradient_norm == 0.0
    for name, value in everything(run).items():
        if not name.startswith("random/"):
            assert torch.equal(value, before[name]) or bool(value.isnan().any())


def test_one_report_may_speak_of_several_steps() -> None:
    one, several = trainer(), trainer()
    reports = [advance(one) for _ in range(6)]
    for _ in range(6):
        several.advance()
    report = several.report()
    assert (report.step, report.steps, report.learning_rate) == (6, 6, reports[-1].learning_rate)
    assert report.tokens == sum(each.tokens for each in reports)
    assert report.loss == pytest.approx(sum(each.loss for each in reports) / 6)
    assert report.gradient_norm == pytest.approx(sum(each.gradient_norm for each in reports) / 6)


@pytest.mark.parametrize("changes", [{}, {"r_drop": 5.0}, {"simcut": 3.0, "simcut_rate": 0.3}])
def test_a_batch_read_in_parts_makes_the_same_step_dropout_and_all(changes: dict[str, float]) -> None:
    runs = [trainer(settings=replace(SETTINGS, parts=parts, **changes)) for parts in (1, 2, 7)]  # type: ignore[arg-type]
    reports = [[advance(run) for _ in range(5)] for run in runs]
    for other in reports[1:]:
        for whole, part in zip(reports[0], other, strict=True):
            assert part.loss == pytest.approx(whole.loss, rel=1e-5)
            assert part.gradient_norm == pytest.approx(whole.gradient_norm, rel=1e-4)


@pytest.mark.parametrize(
    "shortage",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    ],
)
def test_where_memory_runs_out_the_same_step_is_made_in_more_parts(
    shortage: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, tight = trainer(), trainer()
    rows = []
    real = type(tight.objective).forward

    def forward(self: Objective, batch: Batch) -> torch.Tensor:
        rows.append(len(batch.labels_BT))
        if self is tight.objective and len(batch.labels_BT) > 2:
            raise shortage
        return real(self, batch)

    monkeypatch.setattr(Objective, "forward", forward)
    expected, found = advance(whole), advance(tight)
    assert rows[0] > 2
    assert tight.parts > 1
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-4)


class NoRoom(StepGraphs):
    """Recordings that break off for want of memory, which is said before that they did."""

    def run(self, batch: Batch, share: float) -> tuple[torch.Tensor, ...]:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")


def test_where_a_recording_does_not_fit_the_same_step_is_made_without() -> None:
    usual, recorded = trainer(), trainer()
    recorded._graphs = NoRoom(recorded._whole_step, recorded.device)
    assert advance(recorded) == advance(usual)
    assert recorded._graphs is None


def test_other_errors_of_a_step_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Objective, "forward", mock.Mock(side_effect=RuntimeError("the sky fell")))
    run = trainer()
    with pytest.raises(RuntimeError, match="the sky fell"):
        run.advance()
    run._graphs = StepGraphs(run._whole_step, run.device)
    with pytest.raises(RuntimeError, match="the sky fell"):
        run.advance()


def test_a_run_that_needed_more_parts_goes_on_with_them() -> None:
    tight = trainer()
    tight.parts = 4
    tight.advance()
    resumed = trainer()
    resumed.restore(tight.snapshot())
    assert resumed.parts == 4


def test_a_row_that_does_not_fit_alone_is_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(self: Objective, batch: Batch) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Objective, "forward", forward)
    with pytest.raises(DataError, match=r"step 1: a batch must fit into memory, but not even one row.*`batch.tokens`"):
        trainer().advance()


def validated(run: Trainer) -> Validation:
    return run.validate([run.batches[place] for place in range(run.batches.per_epoch)])


def test_where_memory_runs_out_a_validation_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.memory.SOON", 100)  # batches until all at once is tried again: more than there are here
    run = trainer()
    wanted = validated(run)
    tried = tight(monkeypatch, run.model, 2)
    found = validated(run)
    assert max(tried) > 2
    assert found.tokens == wanted.tokens
    assert found.nll == pytest.approx(wanted.nll, rel=1e-6)
    tried.clear()
    assert validated(run) == found
    assert max(tried) <= 2  # known from before


def stream() -> Trainer:
    """A run whose rows go on from batch to batch."""
    torch.manual_seed(0)
    texts = TokenStore.of_texts(([4 + (number * step) % 16 for step in range(1, 9)] for number in range(40)), 2)
    batches = Batches(texts, SPECIALS, BatchSettings(tokens=24, layout="stream", row=6), seed=3)
    return Trainer(build(RecurrentLMSettings(d_model=8), 20), batches, SETTINGS)


def test_rows_of_a_stream_go_on_until_the_epoch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    run, goes_on = stream(), []
    read_on = run.model.read_on

    def noted(batch: Batch, carried: dict[str, torch.Tensor]) -> Any:
        goes_on.append(bool(carried))
        return read_on(batch, carried)

    monkeypatch.setattr(run.model, "read_on", noted)
    for _ in range(run.batches.per_epoch + 2):
        run.advance()
    assert goes_on == [False, *[True] * (run.batches.per_epoch - 1), False, True]


def test_a_stream_is_validated_again_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    run = stream()
    wanted = validated(run)
    plain, turns = validation.negative_log_likelihood, iter(range(10**6))

    def now_and_then(*given: Any) -> torch.Tensor:
        found = plain(*given)
        if next(turns) % 2 == 0:  # after the state has moved on
            raise torch.OutOfMemoryError("CUDA out of memory")
        return found

    monkeypatch.setattr(validation, "negative_log_likelihood", now_and_then)
    assert validated(run) == wanted


def test_a_row_that_cannot_be_validated_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer()
    tight(monkeypatch, run.model, 0)
    with pytest.raises(DataError, match=r"validation after step 0: a row: must fit .* \(\d+ tokens\)\. .* --resume"):
        validated(run)


def test_the_moving_average_follows_the_weights() -> None:
    run = trainer(settings=replace(SETTINGS, ema=0.75))
    seen = []
    for _ in range(3):
        advance(run)
        seen.append({name: weight.detach().clone() for name, weight in run.model.named_parameters()})
    found, (first, second, third) = run.moving_weights(), seen
    for name in third:
        expected = (0.75**2 * first[name] + 0.75 * second[name] + third[name]) / (0.75**2 + 0.75 + 1)
        torch.testing.assert_close(found[name], expected)


def test_of_a_short_run_the_moving_average_holds_nothing_of_the_beginning() -> None:
    run = trainer(settings=replace(SETTINGS, ema=0.999))
    torch.nn.init.ones_(run.moving["embedding.table.weight"])
    advance(run)
    torch.testing.assert_close(run.moving["embedding.table.weight"], run.model.embedding.table.weight.data)


def test_a_weight_of_several_names_has_its_mean_under_each() -> None:
    tied = ConvS2SSettings(encoder=((1, 16, 3),), decoder=((1, 16, 3),), embedding=16, tied=True, dropout=0.0)
    run = trainer(settings=replace(SETTINGS, ema=0.75), model=tied)
    for _ in range(3):
        advance(run)
    found = run.moving_weights()
    names = ("source.words.weight", "target.words.weight", "output.weight")
    assert [torch.equal(found[name], run.moving[names[0]]) for name in names] == [True, True, True]
    assert not torch.equal(found[names[0]], run.model.state_dict()[names[0]])
    save(found)  # which refuses two names for one piece of memory
    run.load_weights(found)
    assert_same(run.model.state_dict(), found)


def test_a_skipped_step_moves_no_average() -> None:
    run = trainer(settings=replace(SETTINGS, ema=0.75))
    advance(run)
    spoil_gradient(run)
    before = run.moving_weights()
    assert advance(run).skipped == 1
    assert_same(run.moving_weights(), before)


def test_a_moving_average_goes_on_after_a_stop(tmp_path: Path) -> None:
    settings = replace(SETTINGS, ema=0.9)
    unbroken, broken = trainer(settings=settings), trainer(settings=settings)
    for _ in range(3):
        advance(unbroken)
        advance(broken)
    checkpoint.save(tmp_path, broken.snapshot(), keep=1)
    resumed = trainer(seed=5, settings=settings)
    resumed.restore(checkpoint.newest(tmp_path)[0])
    for run in (unbroken, resumed):
        advance(run)
    assert_same(unbroken.moving_weights(), resumed.moving_weights())


def test_rows_of_a_stream_begin_anew_where_batches_were_passed_over() -> None:
    """What a run does that goes back to a checkpoint, and on with other batches."""
    run = stream()
    advance(run)
    snapshot = run.snapshot()
    assert snapshot.carried
    advance(run)
    run.restore(snapshot)
    run.go_to(snapshot.cursor)  # no other batch
    assert run._reader.carried is not None
    assert_same(run._reader.carried, snapshot.carried)
    run.go_to(snapshot.cursor + 1)
    assert run._reader.carried == {}
    advance(run)
    assert run._reader.carried.keys() == snapshot.carried.keys()


def test_batches_can_be_passed_over() -> None:
    run, other = trainer(), trainer()
    run.advance()
    run.go_to(7)
    run.advance()
    assert (run.step, run.cursor) == (2, 8)
    batch = other.batches[7]
    assert run.report().tokens == real_tokens(batch.target) + real_tokens(batch.source or batch.target)


def test_a_checkpoint_of_another_model_is_refused_in_a_sentence() -> None:
    run = trainer(model=replace(MODEL, encoder_layers=2))
    with pytest.raises(UsageError, match=r"weights must fit the model of the recipe, but do not\. Leave"):
        run.restore(trainer().snapshot())


def test_training_learns() -> None:
    run = trainer(settings=TrainingSettings(label_smoothing=0.0, optimiser=OptimiserSettings(warmup=10)))
    batches = [run.batches[step] for step in range(run.batches.per_epoch)]
    before = run.validate(batches).nll
    for _ in range(40):
        advance(run)
    assert run.validate(batches).nll < 0.6 * before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "`steps` must be at least 1, but is 0"),
        ({"save_every": 0}, "`save_every` must be at least 1"),
        ({"validate_every": -1}, "`validate_every` must be at least 1"),
        ({"keep": 0}, "`keep` must be at least 1"),
        ({"parts": 0}, "`parts` must be at least 1, but is 0"),
        ({"patience": 0}, "`patience` must be at least 1, but is 0"),
        ({"keep_best": -1}, "`keep_best` must be at least 0, but is -1"),
        ({"average_of": "best"}, "`average` must be at most `keep_best` \\(0\\), but is 5"),
        ({"best_by": "bleu"}, '`best_by` = "bleu" needs `bleu_lines` of at least 1, but it is 0'),
        ({"ema": 1.0}, "`ema` must be between 0 and 1, but is 1.0"),
        ({"minutes": 0.0}, "`minutes` must be positive and finite, but is 0.0"),
        ({"r_drop": 5.0, "simcut": 3.0}, "must not both be on"),
        ({"simcut_rate": 1.0}, "`simcut_rate` must be between 0 and 1, but is 1.0"),
        ({"average": 6}, "`average` must be at most `keep` \\(5\\), but is 6"),
        ({"label_smoothing": 1.0}, "`label_smoothing` must be at least 0 and below 1, but is 1.0"),
        ({"label_smoothing": math.nan}, "`label_smoothing` must be at least 0 and below 1, but is nan"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**changes)
