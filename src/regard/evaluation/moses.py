"""Tokenisation as in older papers, whose BLEU was computed on tokens made by the Moses scripts.

These are our own rules after the known behaviour of `tokenizer.perl`: marks stand alone, apart from points in numbers
and abbreviations, commas in numbers, hyphens, and apostrophes by language. Two things differ. The lists of
abbreviations are short, and letters of Indic scripts are not kept together with their marks. Moses also writes
`&quot;` for a quotation mark; that changes no count, so it is left out.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import pairwise

ACCENTS = "\u0300-\u036f"  # a combining accent belongs to its letter
DIGIT = r"[\d²³¹¼-¾⁰-₉⅐-↉]"
MARK = re.compile(rf"([^\w\s.'`,\-{ACCENTS}]|_)")
POINTS = re.compile(r"(\.{2,})")
COMMA = re.compile(rf"(?<!{DIGIT}),|,(?!{DIGIT})")
APOSTROPHE = re.compile(r"(.)'(?=(.))")
COMPOUND = re.compile(r"(\S)-(\S)")
LAST_POINT = re.compile(r"(\S+)\.")

ELISION = {"ca", "fr", "ga", "it"}  # l' arbre, where English has it 's
QUOTES = str.maketrans({"“": '"', "”": '"', "’": "'", "…": "..."})

# Words that keep their point, and those that keep it before a number only. A single letter always does.
ABBREVIATIONS = {
    "en": "Adm Asst Bros Capt Cmdr Co Col Corp Dr Gen Gov Hon Inc Insp Lt Ltd Maj Messrs Mlle Mme Mr Mrs Ms Msgr Ph "
    "Prof Pvt Rep Reps Rev Sen Sens Sgt Sr Jr St Supt v vs rev i.e e.g",
    "de": "Bsp Chr Dipl Dr Fr Frl Hr Hrsg Ing Jh Lt Mio Mrd Mr Mrs Ms Prof St Str bzgl bzw ca evtl geb ggf inkl max "
    "min sog usw vgl zzgl",
    "fr": "Dr Mgr MM Mlle Mme Pr St Ste av bd cf ex resp vol",
}
NUMBERED = {"en": "Art No Nos pp", "de": "Abs Art Bd Kap Nr No S", "fr": "art fig n no p pp"}
KEPT = {language: set(words.split()) for language, words in ABBREVIATIONS.items()}
KEPT_BEFORE_NUMBERS = {language: set(words.split()) for language, words in NUMBERED.items()}
ORDINALS = {"de"}  # where 14. is the fourteenth


def rules(language: str) -> str:
    """Whose rules a language is cut by: its own, or `other` where there are none."""
    return language if language in {*KEPT, *ELISION} else "other"


def tokenise(text: str, language: str) -> str:
    """A text with one space between its tokens. `language` is a code such as `de`."""
    text = MARK.sub(r" \1 ", " ".join(text.split()))
    text = POINTS.sub(r" \1 ", text)
    text = COMMA.sub(" , ", f" {text} ")
    text = text.replace("'", " ' ") if language not in {"en", *ELISION} else _apostrophes(text, language)
    return " ".join(_point(word, after, language) for word, after in pairwise([*text.split(), ""]))


def split_compounds(tokens: str) -> str:
    """Tokens with every hyphen inside a word set apart as ##AT##-##AT##, as tensor2tensor's get_ende_bleu.sh did."""
    return COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens)


def plain_quotes(text: str) -> str:
    """A text whose curly quotation marks and … are typed with ASCII, as that script has them replaced."""
    return text.translate(QUOTES)


def _apostrophes(text: str, language: str) -> str:
    """Between two letters an apostrophe stays with one of them; elsewhere it stands alone."""
    return APOSTROPHE.sub(partial(_apostrophe, elision=language in ELISION), text)


def _apostrophe(found: re.Match[str], elision: bool) -> str:
    before, after = found.groups()
    if before.isalpha() and after.isalpha():
        return f"{before}' " if elision else f"{before} '"
    if before.isdecimal() and after.isalpha() and not elision:
        return f"{before} '" if after == "s" else f"{before}'"
    return f"{before} ' "


def _point(word: str, after: str, language: str) -> str:
    """A word, with the point at its end cut off unless it belongs to the word. `after` is the next word."""
    found = LAST_POINT.fullmatch(word)
    if found is None or set(word) == {"."}:
        return word
    stem = found[1]
    letters = any(map(str.isalpha, stem))
    abbreviation = (letters and ("." in stem or len(stem) == 1)) or stem in KEPT.get(language, KEPT["en"])
    numbered = stem in KEPT_BEFORE_NUMBERS.get(language, KEPT_BEFORE_NUMBERS["en"]) and after[:1].isdecimal()
    ordinal = language in ORDINALS and stem.isdecimal() and len(stem) <= 2
    return word if abbreviation or numbered or ordinal or after[:1].islower() else f"{stem} ."
