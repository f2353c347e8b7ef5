"""`regard translate`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from regard import shipped
from regard.cli.common import (
    STDIN,
    STOPPED_BY,
    Alpha,
    AsJson,
    Beam,
    Coverage,
    Engine,
    ExtraLength,
    ModelFolder,
    Odd,
    Penalty,
    Precision,
    Progress,
    TargetLanguage,
    Unknown,
    load_model,
    making_settings,
    must_be_there,
    naming_lines,
    naming_options,
    search_settings,
    with_options,
)
from regard.cli.reading import opened
from regard.errors import UsageError
from regard.files import takes_all
from regard.windows import Share, parts_of, work_through

if TYPE_CHECKING:
    from regard.api import Model, Options, Translation
    from regard.decoding.search import SearchSettings

Longest = Annotated[
    int | None,
    typer.Option(help="Split lines of more tokens at sentence ends.", show_default="512, or the model's limit"),
]
MinLength = Annotated[
    int | None, typer.Option(help="The fewest tokens of a translation.", show_default="the model's recipe")
]
NoRepeat = Annotated[
    int | None, typer.Option(help="Never write so many tokens in a row twice.", show_default="the model's recipe")
]
Diverse = Annotated[
    int | None,
    typer.Option(help="Let the beams choose in so many groups that avoid each other.",
                 show_default="the model's recipe"),
]  # fmt: skip
Diversity = Annotated[
    float | None,
    typer.Option(help="How much these groups avoid each other, in log-probability.", show_default="the model's recipe"),
]
Samples = Annotated[
    int, typer.Option(help="Draw so many translations and take the one most like the others; 0 searches.")
]
Copied = Annotated[
    bool, typer.Option("--copy-unknown", help="A model of whole words: copy what it wrote as <unk> from the source.")
]
Others = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="MODEL", help="Another model to translate with; may be given again."),
]
Ensemble = Annotated[str, typer.Option(help="What models together average: log or probability.")]
Prefix = Annotated[str, typer.Option(help="What every translation begins with.", show_default=False)]
Banned = Annotated[
    list[str] | None, typer.Option("--ban", metavar="WORD", help="A word not to write; may be given again.")
]
Form = Annotated[
    str | None,
    typer.Option("--as", metavar="FORM", help="What FILE is: lines, or a document: txt, srt, html, docx or tmx.",
                 show_default="by its name; lines unless that says more"),
]  # fmt: skip
Required = Annotated[
    list[str] | None, typer.Option("--require", metavar="WORD", help="A word to write; may be given again.")
]


def translate(
    model: ModelFolder,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Text to translate; - is stdin.")] = STDIN,
    beam: Beam = None,
    alpha: Alpha = None,
    penalty: Penalty = None,
    coverage: Coverage = None,
    extra_length: ExtraLength = None,
    nbest: Annotated[int, typer.Option(help="Translations a line, each on a line of its own.")] = 1,
    to: TargetLanguage = None,
    longest: Longest = None,
    prefix: Prefix = "",
    ban: Banned = None,
    require: Required = None,
    min_length: MinLength = None,
    no_repeat: NoRepeat = None,
    diverse: Diverse = None,
    diversity: Diversity = None,
    mbr: Samples = 0,
    copy_unknown: Copied = False,
    others: Others = None,
    ensemble: Ensemble = "log",
    precision: Precision = "auto",
    engine: Engine = "auto",
    out: Annotated[Path | None, typer.Option(help="The file to write.", show_default="stdout")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run into --out broke off.")] = False,
    as_json: AsJson = False,
    form: Form = None,
) -> None:
    """Translate line by line: as many come out as went in. Documents (.srt, .html, .docx, .tmx) keep their form."""
    share = Share.of_this_process()
    _check_where(file, out, resume, share)
    if file != STDIN:
        must_be_there("translate", model, file)
    form = _document_form(file, form)
    if form is not None:
        _check_document(file, out, {"--nbest": nbest > 1, "--json": as_json, "--resume": resume,
                                    "torchrun": share.world > 1})  # fmt: skip
    with making_settings("translate"):
        options = _options(longest, to, as_json, (prefix, ban or [], require or []), mbr, copy_unknown)
    folders = [model, *map(shipped.resolve, others or [])]
    loaded = _load(folders, ensemble, precision, engine)
    loaded.must_translate("translate")  # before anything is read: there may be nothing to read
    changes = {"beam": beam, "alpha": alpha, "penalty": penalty, "coverage": coverage, "min_length": min_length,
               "no_repeat": no_repeat, "groups": diverse, "diversity": diversity}  # fmt: skip
    if mbr:
        search = _drawing(loaded.recipe.search, changes, extra_length, nbest, mbr)
    else:
        search = search_settings(loaded.recipe.search, {**changes, "extra_length": extra_length, "nbest": nbest})

    if form is not None and out is not None:
        _translate_document(loaded, Path(file), out, form, search, options)
        return

    name = "stdin" if file == STDIN else file

    def answer(lines: Sequence[str]) -> list[str]:
        progress.window(lines)
        with naming_lines(name, progress.before):
            found = loaded.translations(lines, search, progress.add, options)
        if not as_json:  # which flags each line
            for number, (line, (best, *_)) in enumerate(zip(lines, found, strict=True), progress.before + 1):
                if "unknown" in best.flags:
                    unknown.see(f"line {number:,}", line)
                odd.see(f"line {number:,}", best.flags)
        return [_as_json(translations) if as_json else _as_lines(translations, nbest) for translations in found]

    # What is kept in parts must be cut alike when a run goes on with it.
    full = out is not None and not takes_all(out)
    with (naming_options(), opened(file, full=full) as (windows, size),
          Odd(name) as odd, Unknown(loaded.tokenizer.source, name) as unknown,
          Progress(size, quiet=share.rank > 0) as progress):  # fmt: skip
        if out is None:
            for window in windows:
                progress.tell(answer(window))
            return
        try:
            job = _fingerprint(folders, ensemble, precision, search, options, as_json)
            source = None if file == STDIN else Path(file)
            work_through(windows, out, job, answer, share, resume, progress.skip, source)
        except KeyboardInterrupt as stop:
            kept = 0 if takes_all(out) else parts_of(out)
            print(
                f"\nStopped; what is done is kept. Go on with the same command and --resume: {out}"
                if kept
                else f"\nStopped before anything was done that could be kept: {out}",
                file=sys.stderr,
            )
            raise typer.Exit(STOPPED_BY["SIGINT"]) from stop


def _document_form(file: str, asked: str | None) -> str | None:
    """The form of a document, or None for lines: what is asked for, or else what the name says.

    A .txt is lines unless somebody asks: lines in are lines out, which a document cannot promise.
    """
    from regard.documents.reading import FORMS, form_of

    if asked is not None and asked not in (known := ("lines", *FORMS)):
        raise UsageError(f"translate: --as must be one of: {', '.join(known)}; but is `{asked}`.")
    if asked == "lines":
        return None
    if asked is not None and file == STDIN:
        raise UsageError(f"translate: a document must be a file, but --as {asked} is asked of stdin. Name a file.")
    found = asked or (None if file == STDIN else form_of(file))
    return found if found != "txt" or asked else None


def _check_document(file: str, out: Path | None, unwanted: Mapping[str, bool]) -> None:
    """Raise UsageError for what makes sense for lines only."""
    for option, given in unwanted.items():
        if given:
            raise UsageError(
                f"translate: {option} must be left out with a document, but is used with {file}. Add --as lines to "
                "translate its lines."
            )
    if out is None:
        raise UsageError(f"translate: --out must name the document to write, but is not given. Add --out FILE, or --as "
                         f"lines to translate the lines of {file}.")  # fmt: skip


def _translate_document(
    model: Model, file: Path, out: Path, form: str, search: SearchSettings, options: Options
) -> None:
    from regard.translation.translator import TextError

    texts = list(dict.fromkeys(model.read_document(file, form, options).texts))
    size = sum(len(text.encode()) + 1 for text in texts)
    with (naming_options(), Odd(str(file), "sentence") as odd,
          Unknown(model.tokenizer.source, str(file), "sentence") as unknown, Progress(size) as progress):  # fmt: skip
        progress.window(texts)
        try:
            found = model.translate_document(file, out, search, options, form, progress.add)
        except TextError as error:
            raise UsageError(f"{file}, {texts[error.place][:40]!r}: {error.reason}") from error
        for text, translation in found.items():
            unknown.see(repr(text[:40]), text)
            odd.see(repr(text[:40]), translation.flags)


def _drawing(
    default: SearchSettings, changes: Mapping[str, object], extra_length: int | None, nbest: int, samples: int
) -> SearchSettings:
    """What drawing takes from the settings of search: how long a translation may get, and how many are wanted."""
    from regard.decoding.search import MOST_BEAMS, SearchSettings

    for name, value in changes.items():
        if value is not None:
            raise UsageError(
                with_options(f"translate: `{name}` must be left out with `samples`, but is {value}: ")
                + "translations are drawn, not searched for."
            )
    if not 1 <= nbest <= min(samples, MOST_BEAMS):
        raise UsageError(f"translate: --nbest must be between 1 and --mbr ({samples}), but is {nbest}.")
    longer = default.extra_length if extra_length is None else extra_length
    with making_settings("translate"):
        return SearchSettings(beam=nbest, nbest=nbest, extra_length=longer, each_sentence=default.each_sentence)


def _check_where(file: str, out: Path | None, resume: bool, share: Share) -> None:
    """Whether this can be read and written by as many processes as there are."""
    if out is None and (resume or share.world > 1):
        why = "--resume goes on with a file" if resume else f"{share.world} processes write one file"
        raise UsageError(f"translate: {why}, so --out must name it, but is not given. Add --out FILE.")
    if file == STDIN and share.world > 1:
        raise UsageError(f"translate: {share.world} processes must each read FILE, but it is stdin. Name a file.")


def _load(folders: Sequence[Path], ensemble: str, precision: str, engine: str) -> Model:
    from regard.decoding.ensemble import Average

    if ensemble not in (known := get_args(Average)):
        raise UsageError(f"translate: --ensemble must be one of: {', '.join(known)}; but is `{ensemble}`.")
    first, *others = [load_model(folder, precision, engine) for folder in folders]
    return first.together(others, cast("Average", ensemble)) if others else first


def _options(
    longest: int | None,
    language: str | None,
    alignment: bool,
    wished: tuple[str, Sequence[str], Sequence[str]],
    samples: int,
    copy_unknown: bool,
) -> Options:
    from regard.api import Options, Wishes

    prefix, banned, required = wished
    wishes = Wishes(prefix, tuple(banned), tuple(required)) if any(wished) else None
    return Options(longest, language, alignment, wishes, samples, copy_unknown)


def _fingerprint(folders: Sequence[Path], *settings: object) -> str:
    """What tells this job from others: the files of the models, and everything that changes what they answer."""
    from regard.engines.loading import fingerprint

    models = [fingerprint(folder) for folder in folders]
    return hashlib.sha256(json.dumps([models, settings], default=str).encode()).hexdigest()


def _as_lines(translations: Sequence[Translation], count: int) -> str:
    """Exactly `count` lines, so that readers can count on it: an empty text has no second translation."""
    from regard.translation.result import one_line

    texts = [one_line(translation.text) for translation in translations]
    return "\n".join(texts + [""] * (count - len(texts)))


def _as_json(translations: Sequence[Translation]) -> str:
    from regard.translation.result import to_json

    return json.dumps(to_json(translations), ensure_ascii=False)
