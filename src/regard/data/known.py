"""What is known of a corpus without reading it: which one it is, and what an earlier run found in it.

A fingerprint says which corpus a run began with, so that it can only go on with the same one. For a large corpus, the
vocabulary, the pairs to validate on and the report are kept in the cache beside its tokens: the next run with the same
files and settings need not read them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from regard.counts import so_many
from regard.data.filters import Dropped, Example
from regard.data.formats import Repairs
from regard.data.generated import Pair
from regard.data.guesses import Guess
from regard.data.prepare import file_hashes, hash_of
from regard.data.reading import Corpus, LanguagePair
from regard.data.report import CorpusCounts, Coverage, DataReport, Lengths, Overlap
from regard.errors import DataError, MissingError
from regard.files import write_file
from regard.text.tokenizer import GPT2Files, Tokenizer, VocabularySettings

VERSION = 2  # to be raised when the same corpus and settings come to give another vocabulary or report


@dataclass(frozen=True)
class Fingerprint:
    """Which corpus this is: the files of training and validation, how they are read, and what came of it."""

    files: Mapping[str, str]
    """For each file its SHA-256; what cannot be read twice, as a pipe, is left out."""
    reading: str
    examples: int | None = None
    """So many to train on; None before they are counted."""
    tokens: int | None = None

    @classmethod
    def of(cls, corpus: Corpus, cache: Path | None) -> Fingerprint:
        """Of a corpus that nobody has read yet. With a `cache`, hashes are noted there, and found again."""
        origin = corpus.origin()
        files = [file for file in (*origin.files, *corpus.other_files("valid")) if file.is_file()]
        hashes = map(hash_of, files) if cache is None else file_hashes(cache, files)
        return cls(dict(zip(map(str, files), hashes, strict=True)), origin.reading)

    def counted(self, examples: int, tokens: int) -> Fingerprint:
        """With what came of it."""
        return replace(self, examples=examples, tokens=tokens)

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return asdict(self)

    def check_continues(self, before: Mapping[str, Any]) -> None:
        """Raise unless this is the corpus of a run that began with `before`, which are plain values."""
        then = before.get("files", {})
        changed = [file for file, found in self.files.items() if then.get(file, found) != found]
        gone, new = (sorted(one.keys() - other.keys()) for one, other in ((then, self.files), (self.files, then)))
        if missing := [file for file in gone if not Path(file).exists()]:
            raise MissingError(
                f"{missing[0]}: there is no such file, but the run began with it. Restore it, or train anew into "
                "another folder."
            )
        counts = [(name, before.get(name), getattr(self, name)) for name in ("examples", "tokens")]
        others = [
            f"the corpus has {so_many(now, name.removesuffix('s'))}, not {was:,}"
            for name, was, now in counts
            if was is not None and now is not None and was != now
        ]
        if before.get("reading", self.reading) != self.reading:
            others.insert(0, "its files are read in another way")
        found = [f"{file} has changed" for file in changed] + [f"{file} is not read any more" for file in gone]
        found += [f"{file} is read, too" for file in new] or others
        if found:
            raise DataError(
                f"data: a run must go on with the corpus it began with, but {found[0]}. Restore it, or train anew into "
                "another folder."
            )


@dataclass(frozen=True, eq=False)
class Known:
    """What a run found in a corpus; the report is without its sample."""

    tokenizer: Tokenizer
    valid: list[Pair]
    report: DataReport


def place_of(cache: Path, corpus: Corpus, fingerprint: Fingerprint, text: VocabularySettings) -> Path:
    """Where it is kept what was found in a corpus by a run with these settings."""
    test = [file for file in corpus.other_files("test") if file.is_file()]
    published = [hash_of(Path(file)) for file in (text.encoder, text.merges)] if isinstance(text, GPT2Files) else []
    # The report names files, so it is not that of a copy elsewhere.
    files = [*fingerprint.files.items(), *zip(map(str, test), file_hashes(cache, test), strict=True)]
    decides = json.dumps([VERSION, files, fingerprint.reading, str(text), published])
    return cache / f"{hashlib.sha256(decides.encode()).hexdigest()[:20]}.json"


def keep(place: Path, known: Known) -> None:
    """Write it for the next run."""
    pairs = [[pair.source, pair.target, *_languages(pair)] for pair in known.valid]
    content = {"tokenizer": known.tokenizer.to_json(), "valid": pairs, "report": known.report.to_json()}
    body = json.dumps(content, ensure_ascii=False).encode()
    write_file(place, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def find(place: Path) -> Known | None:
    """What an earlier run kept; None where there is nothing, or where it was damaged."""
    if not place.is_file():
        return None
    digest, _, body = place.read_bytes().partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    content = json.loads(body)
    pairs = [_pair(*entry) for entry in content["valid"]]
    return Known(Tokenizer.from_json(content["tokenizer"]), pairs, report_of(content["report"]))


def _languages(pair: Pair) -> list[str | None]:
    return [pair.source_language, pair.target_language] if isinstance(pair, LanguagePair) else []


def _pair(source: str, target: str, *languages: str | None) -> Pair:
    return LanguagePair(source, target, *languages) if languages else Pair(source, target)


# ---- the report


def report_of(plain: Mapping[str, Any]) -> DataReport:
    """The report that `to_json` gave; it has no sample."""
    lengths = {side: Lengths(**{**found, "counts": tuple(found["counts"])}) for side, found in plain["lengths"].items()}
    return DataReport(
        corpora=tuple(map(_counts, plain["corpora"])),
        repairs=Repairs(**plain["repairs"]),
        train=plain["train"],
        valid=plain["valid"],
        test=plain["test"],
        held_out=plain["held_out"],
        lengths=lengths,
        languages={side: None if found is None else Guess(**found) for side, found in plain["languages"].items()},
        overlaps={split: Overlap(**found) for split, found in plain["overlaps"].items()},
        warnings=tuple(plain["warnings"]),
        sample=(),
        labels=plain.get("labels", {}),
        coverage={side: Coverage(**found) for side, found in plain["coverage"].items()},
        unit=plain.get("unit", "characters"),
    )


def _counts(plain: Mapping[str, Any]) -> CorpusCounts:
    dropped = {
        reason: Dropped(found["count"], [Example(**example) for example in found["examples"]])
        for reason, found in plain["dropped"].items()
    }
    scripts: Sequence[tuple[str, ...]] = tuple(map(tuple, plain["scripts"]))
    languages = {name: tuple(plain[name]) for name in ("languages", "by_name")}
    return CorpusCounts(**{**plain, **languages, "dropped": dropped, "scripts": scripts})
