"""Which figures are computed of a set of translations: several BLEUs, because papers mean different ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from regard.data.generated import Generated
from regard.data.guesses import CODES
from regard.data.guesses import language_of as language_of
from regard.data.sources import Files, Mixture
from regard.errors import UsageError
from regard.evaluation import metrics, moses, rouge
from regard.evaluation.metrics import Lines, Progress, Tally
from regard.evaluation.weighted import weighted_bleu

Tokenize = Literal["13a", "intl", "char", "zh", "none"]
UNSPACED = ("zh", "char")
HAN, KANA, LETTERS = re.compile("[\u3400-\u9fff]"), re.compile("[\u3040-\u30ff]"), re.compile(r"[^\W\d_]")
SAMPLED = 1_000  # references that are looked at to tell their script


@dataclass(frozen=True)
class Scoring:
    """How texts are cut and compared; what is None is chosen by `settled`.

    `tokenize` is sacreBLEU's name of how the first BLEU cuts text. `lowercase` lowers both sides for BLEU and chrF; TER
    ignores case in any case, exact match and perplexity never do. `language` is the code of the target, for the rules
    of older papers. `rouge` adds what summaries are compared by.
    """

    tokenize: Tokenize | None = None
    lowercase: bool = False
    language: str | None = None
    rouge: bool = False

    def __post_init__(self) -> None:
        if self.tokenize not in (None, *get_args(Tokenize)):
            known = ", ".join(get_args(Tokenize))
            raise UsageError(
                f"evaluate: `tokenize` must be one of {known}, but is `{self.tokenize}`. Choose one of them."
            )
        if self.language is not None and code_of(self.language) is None:
            raise UsageError(
                f"evaluate: `language` must be a code out of {', '.join(sorted(CODES))}, but is `{self.language}`. "
                "Choose the code of the target's language, or leave it out."
            )

    def settled(self, references: Sequence[str]) -> Scoring:
        """The same with every choice made: zh for Chinese, char for Japanese, 13a for all others."""
        language = code_of(self.language or "en")
        return replace(self, tokenize=self.tokenize or _tokenizer_for(references), language=language)


def code_of(language: str) -> str | None:
    """The known code that a language begins with: de for de-AT or de_AT; None if it is not known."""
    code = language.lower().replace("_", "-").partition("-")[0]
    return code if code in CODES else None


def target_language(data: object) -> str | None:
    """The code of the language that a corpus with these settings is translated into, as far as they tell.

    What is named comes first, then what the names of files end in. Of a mixture those corpora are asked that have a
    test set, or all where none has one; where they do not agree, there is no such language.
    """
    match data:
        case Generated():
            return code_of(data.target)
        case Files():
            names = [Path(name) for name in (data.test_target, data.target) if name is not None]
            return code_of(data.target_language or "") or next(filter(None, map(language_of, names)), None)
        case Mixture():
            tested = [corpus for corpus in data.corpora if corpus.test_source is not None]
            languages = {target_language(corpus) for corpus in tested or data.corpora}
            return languages.pop() if len(languages) == 1 else None
    return None


def tallies(lines: Lines, scoring: Scoring, progress: Progress | None = None) -> list[Tally]:
    """Every figure that needs no model; the first BLEU is the one `scoring` asks for."""
    scoring = scoring.settled(lines.references[0])
    lowercase, first = scoring.lowercase, scoring.tokenize or "13a"
    spaced = first not in UNSPACED
    found = [metrics.exact_match(lines), metrics.bleu(lines, first, lowercase, progress=progress)]
    if not lowercase:
        found.append(metrics.bleu(lines, first, True, "BLEU lower-cased", progress))
    for other in ("13a", "intl", "char") if spaced else ("char",):
        if other != first:
            found.append(metrics.bleu(lines, other, lowercase, f"BLEU {other}", progress))
    if spaced:
        found += _of_older_papers(lines, scoring, progress)
    found.append(_weighted(lines, first, lowercase))
    found += rouge.tallies(lines) if scoring.rouge else []
    found += [metrics.chrf(lines, words, lowercase, progress) for words in (0, 2)]
    return [*found, metrics.ter(lines, not spaced, progress)]


def headline(lines: Lines, scoring: Scoring, progress: Progress | None = None) -> list[Tally]:
    """The figures that systems are compared by: BLEU and chrF; for summaries ROUGE, too."""
    scoring = scoring.settled(lines.references[0])
    return [
        metrics.bleu(lines, scoring.tokenize or "13a", scoring.lowercase, progress=progress),
        metrics.chrf(lines, 0, scoring.lowercase, progress),
        *(rouge.tallies(lines) if scoring.rouge else []),
    ]


def _of_older_papers(lines: Lines, scoring: Scoring, progress: Progress | None) -> list[Tally]:
    language, lowercase = scoring.language or "en", scoring.lowercase
    tokenise = partial(moses.tokenise, language=language)
    plain, rules = lines.changed(tokenise), f"like-moses-{moses.rules(language)}"
    split = lines.changed(lambda text: moses.split_compounds(tokenise(moses.plain_quotes(text))))
    return [
        metrics.bleu_of_tokens(plain, "BLEU tokenised", rules, lowercase, progress),
        metrics.bleu_of_tokens(split, "BLEU compounds split", f"{rules}-atat", lowercase, progress),
    ]


def _weighted(lines: Lines, tokenize: str, lowercase: bool) -> Tally:
    from sacrebleu.metrics.bleu import BLEU

    cut = BLEU(tokenize=tokenize, force=True).tokenizer
    return weighted_bleu(lines.changed(lambda text: cut(text.lower() if lowercase else text)), tokenize, lowercase)


def _tokenizer_for(references: Sequence[str]) -> Tokenize:
    text = "".join(references[:SAMPLED])
    letters, han, kana = (len(kind.findall(text)) for kind in (LETTERS, HAN, KANA))
    if 2 * (han + kana) <= letters:
        return "13a"
    return "char" if 20 * kana > letters else "zh"
