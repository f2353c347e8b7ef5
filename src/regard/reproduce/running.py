"""Running a study: each row is trained into a folder of its own, measured, and never done twice.

    OUT/base/               a model folder, as `regard train` writes it
    OUT/base/result.json    its figures; where this is, the row is done
    OUT/.base.lock          held by the process that works on the row; the system lets go of it if that dies

A row of several models that write as one has a result.json alone, and waits for theirs.

A row that was broken off goes on from its newest checkpoint. Several processes may run the same study into the same
folder: each takes the next row that nobody works on.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from regard import experiment, folder, settings
from regard.bands.decisive import within
from regard.data.corpus import Files, open_corpus
from regard.data.dataset import read_dataset
from regard.data.generated import Pair
from regard.data.known import Fingerprint
from regard.data.prepare import cache_folder
from regard.data.sources import CorpusSettings
from regard.errors import DataError, MissingError, UsageError
from regard.evaluation import catalogue
from regard.evaluation.catalogue import Scoring, target_language
from regard.files import MANIFEST, read_manifest, write_file
from regard.planning import training_flops
from regard.recipe import Recipe
from regard.reproduce.judging import Judge, Judgement, by_length
from regard.reproduce.outcome import RESULT, Judged, Outcome, Stretch, read_row
from regard.reproduce.sameness import differing, in_words
from regard.reproduce.study import Asked, Row, Study, recipe_of
from regard.signals import Stopped, stoppable
from regard.status import StatusLine
from regard.training import checkpoint
from regard.version import VERSION
from regard.viewing.training_curves import Event, loss_by_tokens, read_metrics

Say = Callable[[str], None]
BEGUN = {folder.RECIPE, folder.TOKENIZER, folder.DATA, folder.METRICS, folder.CHECKPOINTS, "tensorboard"}

POINTS = 60  # of how a row learned, at most


@dataclass(frozen=True)
class Ran:
    """Which rows are done now, at which others are at work, and by which signal this was stopped."""

    done: list[str]
    elsewhere: list[str]
    """Or at models that these rows wait for."""
    signal: str | None = None
    waiting: dict[str, list[str]] = field(default_factory=dict)
    """Rows of several models that are not done, and which of these nobody was asked for; then the row is missing."""


def run(study: Study, rows: Sequence[Row], out: Path, asked: Asked, say: Say) -> Ran:
    """Train and measure these rows, as far as they are not done.

    A signal ends training between two of its steps, and what comes before and after training at once.
    """
    recipes = {row.name: recipe_of(study, row, asked) for row in rows}  # a mistake is found before the first hour
    check_folder(out)
    for row in rows:
        if row.members:
            check_folder(out / row.name)
        else:
            _check_begun(out / row.name, recipes[row.name])
    if any(read_row(out / row.name, study.name, row.name) is None for row in rows):
        _check_sets(recipes[rows[0].name])
    out.mkdir(parents=True, exist_ok=True)
    ran = Ran([], [], None, {})
    try:
        with stoppable():
            return replace(ran, signal=_rows(study, rows, recipes, out, asked, say, ran))
    except Stopped as stopped:
        return replace(ran, signal=stopped.name)


def _rows(
    study: Study, rows: Sequence[Row], recipes: Mapping[str, Recipe], out: Path, asked: Asked, say: Say, ran: Ran
) -> str | None:
    """One row after another, each noted in `ran`; the name of the signal that ended it, if one did."""
    prepared = False
    for row in rows:
        with _taken(out, row) as mine:
            if not mine:
                say(f"{row.name}: another process is at work on it")
                ran.elsewhere.append(row.name)
                continue
            if read_row(out / row.name, study.name, row.name) is None:
                if waits := [name for name in row.members if read_row(out / name, study.name, name) is None]:
                    say(f"{row.name}: waits for {', '.join(waits)}")
                    others = [each for each in study.rows if each.name in waits and not _held(out, [each])]
                    if others:
                        ran.waiting[row.name] = [each.name for each in others]
                    else:
                        ran.elsewhere.append(row.name)
                    continue
                if not prepared and not row.members and not (out / row.name / MANIFEST).is_file():
                    _prepare(recipes[row.name], out, say)
                    prepared = True
                say(f"{row.name}: {row.what}")
                name = _make(study, row, recipes[row.name], out, asked.changes, say)
                if name is not None:
                    return name
            # A row that is done never goes on; of large models the checkpoints are most of the folder.
            shutil.rmtree(out / row.name / folder.CHECKPOINTS, ignore_errors=True)
            ran.done.append(row.name)
    return None


def _prepare(recipe: Recipe, out: Path, say: Say) -> None:
    """Large corpora are cut into tokens once and kept: of several processes the first does it, the others wait."""
    with (out / ".corpus.lock").open("ab") as lock:
        if not _try(lock):
            say("corpus: another process is reading it, and this one waits for that")
            fcntl.flock(lock, fcntl.LOCK_EX)
        say("corpus: reading it, and learning a vocabulary from it unless that is known; a large one takes minutes")
        status = StatusLine()
        read_dataset(recipe.data, recipe.tokenizer, recipe.seed, status=status)
        status.clear()


def _make(study: Study, row: Row, recipe: Recipe, out: Path, changes: list[str], say: Say) -> str | None:
    """Train what is not trained, then measure; the name of the signal that came between, if one did."""
    place, others = out / row.name, [other for other in study.rows if other.name != row.name]
    beside = _held(out, others)
    if row.members:
        place.mkdir(exist_ok=True)
        found = measure_together(study, row, out, recipe.data, max(beside, _held(out, others)), changes)
        _write(found, place, say)
        return None
    if not (place / MANIFEST).is_file():
        resume = bool(checkpoint.found(place / folder.CHECKPOINTS))
        if resume:
            _go_along(place, recipe)
        elif place.exists():
            if (place / folder.WEIGHTS).is_file():
                raise _lost(place, MANIFEST)
            shutil.rmtree(place)  # `_check_begun` has seen that nothing in it was learned
        stopped_by = experiment.train(recipe, place, resume).signal
        if stopped_by is not None:
            return stopped_by
    if lost := [name for name in read_manifest(place) if not (place / name).is_file()]:
        raise _lost(place, lost[0])
    say(f"{row.name}: trained; its figures are measured on dev and test")
    found = measure(study, row, place, recipe.data, max(beside, _held(out, others)), changes)
    _write(found, place, say)
    return None


def _lost(place: Path, name: str) -> MissingError:
    """What to do about a trained row that has no figures yet, and not all of its files any more."""
    return MissingError(
        f"{place / name}: the figures of a row are measured with this file, but it is not there. Put it back; or "
        f"remove {place}, and the row is trained again."
    )


def _write(found: Outcome, place: Path, say: Say) -> None:
    found.write(place)
    say(f"{found.row}: dev BLEU {found.dev.bleu:.2f}, test BLEU {found.test.bleu:.2f}")


def begun(study: Study, out: Path) -> list[str]:
    """The rows of a study that this folder holds something of."""
    return [row.name for row in study.rows
            if any((out / row.name / file).is_file() for file in (folder.RECIPE, RESULT))]  # fmt: skip


def check_folder(place: Path) -> None:
    """Raise where a folder is to be, and something else is."""
    if place.exists() and not place.is_dir():
        raise UsageError(f"{place}: must be a folder, but is a file. Choose another --out.")


def _check_sets(recipe: Recipe) -> None:
    """Raise where there is nothing to measure with; whether there is something to validate on, training asks itself."""
    if not open_corpus(recipe.data).test():
        raise DataError(
            "data: a study needs pairs for its test set, but there are none. Give some, with `data.test_source` and "
            "`data.test_target` of files, or `data.test` of a generated corpus."
        )


def _check_begun(place: Path, recipe: Recipe) -> None:
    """Raise where a row's folder is somebody else's, or was begun with other settings or on another corpus."""
    check_folder(place)
    if not place.exists():
        return
    if not (place / folder.RECIPE).is_file():
        strange = [file.name for file in place.iterdir() if file.name not in BEGUN and not file.name.startswith(".")]
        if strange:
            raise UsageError(
                f"{place}: must be new or a row of this study, but holds {strange[0]} and no {folder.RECIPE}. Choose "
                "another --out."
            )
        return
    changed = differing(recipe, before := folder.read_recipe(place))
    free = ["device"] if before.data != recipe.data and _moved(place, recipe) is None else ["device", "data"]
    told = {key: values for key, values in changed.items() if not within(key, free)}
    if told:
        elsewhere = isinstance(recipe.data, Files) and any(within(key, ["data"]) for key in told)
        hint = " (files may lie elsewhere, but their content must be the same)" if elsewhere else ""
        found = "; ".join(in_words(key, *values) for key, values in told.items())
        raise UsageError(
            f"{place}: a row must go on with the settings it began with, but {found}{hint}. Ask for the same, or "
            "choose another --out."
        )


def _moved(place: Path, recipe: Recipe) -> Fingerprint | None:
    """The corpus of a row where it lies now, if it is the one that the row began with; None if it is another."""
    before = folder.read_fingerprint(place)
    if before is None or not isinstance(recipe.data, Files):
        return None
    now = Fingerprint.of(open_corpus(recipe.data), cache_folder())
    same = list(now.files.values()) == list(before["files"].values()) and now.reading == before["reading"]
    return now if same else None


def _go_along(place: Path, recipe: Recipe) -> None:
    """Where the corpora were moved, let a row that was broken off know: a run goes on with the files it names alone."""
    before = folder.read_recipe(place)
    if before.data == recipe.data or (now := _moved(place, recipe)) is None:
        return
    report = folder.read_report(place)
    report[folder.FINGERPRINT]["files"] = dict(now.files)
    folder.write_report(place, report)
    write_file(place / folder.RECIPE, settings.to_toml(replace(before, data=recipe.data)))


# ---- measuring


def measure(
    study: Study, row: Row, place: Path, data: CorpusSettings, beside: int = 0, changes: Sequence[str] = ()
) -> Outcome:
    """The figures and the costs of a finished row; `data` is its corpus, where that lies now."""
    recipe, events = folder.read_recipe(place), read_metrics(place / folder.METRICS)
    judge, corpus = Judge(place, recipe.device), open_corpus(data)
    scoring = Scoring(lowercase=study.lowercase, language=target_language(recipe.data))
    dev, _ = _judged(judge, corpus.valid(), scoring, "dev")
    test, judgement = _judged(judge, pairs := corpus.test(), scoring, "test")
    steps = [event for event in events if event["event"] == "step"]
    starts = [event for event in events if event["event"] == "start"]
    tokens = sum(int(event["tokens"]) for event in steps)
    known = folder.read_fingerprint(place) or {}
    return Outcome(
        study=study.name,
        row=row.name,
        what=row.what,
        parameters=judge.parameters,
        steps=events[-1]["step"],
        tokens=tokens,
        flops=training_flops(recipe, judge.tokenizer.size, tokens, events[-1]["step"]),
        seconds=sum(event["took"] for event in steps),
        speed=_speed(steps),
        beside=beside,
        dev=dev,
        test=test,
        decoded=judgement.tokens,
        decoding_seconds=judgement.seconds,
        lengths=_stretches(study, pairs, judgement),
        machine=_in_turn(starts, "machine"),
        torch=_in_turn(starts, "torch"),
        regard=VERSION,
        seed=recipe.seed,
        search=f"beam {recipe.search.beam}, {recipe.search.penalty} penalty with alpha {recipe.search.alpha}",
        data={Path(file).name: sha256 for file, sha256 in known.get("files", {}).items()},
        changes=list(changes),
        learning=[(round(read / 1e6, 3), round(loss, 4)) for read, loss in loss_by_tokens(events, POINTS)],
    )


def measure_together(
    study: Study, row: Row, out: Path, data: CorpusSettings, beside: int = 0, changes: Sequence[str] = ()
) -> Outcome:
    """The figures of finished rows whose models write as one; what they cost in training is the sum of their costs."""
    first, *others = [out / name for name in row.members]
    each = [found for name in row.members if (found := read_row(out / name, study.name, name)) is not None]
    recipe, corpus = folder.read_recipe(first), open_corpus(data)
    judge = Judge(first, recipe.device, others)
    scoring = Scoring(lowercase=study.lowercase, language=target_language(recipe.data))
    dev, _ = _judged(judge, corpus.valid(), scoring, "dev")
    test, judgement = _judged(judge, pairs := corpus.test(), scoring, "test")
    tokens, seconds = sum(found.tokens for found in each), sum(found.seconds for found in each)
    return replace(
        each[0],
        row=row.name,
        what=row.what,
        parameters=judge.parameters,
        tokens=tokens,
        flops=sum(found.flops for found in each),
        seconds=seconds,
        speed=tokens / max(sum(found.tokens / max(found.speed, 1e-9) for found in each), 1e-9),
        machine=_joined(found.machine for found in each),
        torch=_joined(found.torch for found in each),
        beside=max(beside, *(found.beside for found in each)),
        dev=dev,
        test=test,
        decoded=judgement.tokens,
        decoding_seconds=judgement.seconds,
        lengths=_stretches(study, pairs, judgement),
        changes=list(changes),
        learning=[],
    )


def _in_turn(starts: Sequence[Event], name: str) -> str:
    """What a run that may have been broken off went on with each time; seconds are those of all."""
    return _joined(str(start[name]) for start in starts)


def _joined(words: Iterable[str]) -> str:
    return ", then ".join(dict.fromkeys(words))


def _speed(steps: Sequence[Event]) -> float:
    """Tokens a second in the middle of all reports: the first ones wait for the compiler."""
    return statistics.median(event["tokens"] / max(event["took"], 1e-9) for event in steps) if steps else 0.0


def _judged(judge: Judge, pairs: Sequence[Pair], scoring: Scoring, name: str) -> tuple[Judged, Judgement]:
    if not pairs:
        raise DataError(f"data: a study needs pairs for its {name} set, but there are none. Give some.")
    sides = {"source": [pair.source for pair in pairs], "reference": [pair.target for pair in pairs]}
    found = judge.pairs(sides["source"], sides["reference"], scoring, catalogue.headline)
    hashes = {side: hashlib.sha256("".join(f"{text}\n" for text in texts).encode()).hexdigest()
              for side, texts in sides.items()}  # fmt: skip
    scores, perplexity = found.scores, found.scores.get("perplexity per token")
    kept = ("BLEU", "chrF", "perplexity per token")
    judged = Judged(
        len(pairs),
        hashes,
        scores["BLEU"].value,
        scores["chrF"].value,
        None if perplexity is None or not math.isfinite(perplexity.value) else perplexity.value,
        {each: scores[each].signature for each in kept if each in scores},
    )
    return judged, found


def _stretches(study: Study, pairs: Sequence[Pair], found: Judgement) -> list[Stretch]:
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    return by_length(sources, found.translations, references, study.lengths, study.lowercase)


# ---- who works on what


def _lock(out: Path, row: Row) -> Path:
    return out / f".{row.name}.lock"


@contextmanager
def _taken(out: Path, row: Row) -> Iterator[bool]:
    """Whether the row is ours until the end of the block; not if another process has it."""
    with _lock(out, row).open("ab") as lock:
        with _taking(out):
            mine = _try(lock)
        yield mine


@contextmanager
def _taking(out: Path) -> Iterator[None]:
    """One at a time takes rows, or looks which are taken: to look is to take for a moment."""
    with (out / ".taking.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _try(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held(out: Path, rows: Sequence[Row]) -> int:
    """How many of these rows other processes have at this moment."""
    held = 0
    with _taking(out):
        for place in (_lock(out, row) for row in rows):
            if place.exists():
                with place.open("ab") as lock:
                    held += not _try(lock)
    return held
