"""Capitals and punctuation: taken from a text, told as a tag for each word, and put back.

    "Hello, Mr. Smith!"  →  hello  mr  smith      with the tags  C,  C.  C!

A tag is the case of a word and the mark that follows it, if there is one:

    l  as it stands · C  with a capital first letter · U  all in capitals, and more than one of them
    ,  .  ?  !  :  ;

Other marks, such as quotes, brackets and dashes, are lost; so are capitals inside a word.
"""

from __future__ import annotations

from collections.abc import Sequence

MARKS = ",.?!:;"
CASES = "lCU"
TAGS = tuple(case + mark for case in CASES for mark in ("", *MARKS))


def bare(text: str) -> tuple[list[str], list[str]]:
    """The words of a text without capitals and marks, and the tag that gives each of them back."""
    words: list[str] = []
    tags: list[str] = []
    for piece in text.split():
        begin, end = 0, len(piece)
        while begin < end and not piece[begin].isalnum():
            begin += 1
        while end > begin and not piece[end - 1].isalnum():
            end -= 1
        behind = piece[end:] if begin < end else piece
        mark = next((sign for sign in behind if sign in MARKS), "")
        if begin < end:
            word = piece[begin:end]
            words.append(word.lower())
            tags.append(_case(word) + mark)
        elif mark and tags and tags[-1][1:] == "":  # a mark with a space before it, as French and tokens have it
            tags[-1] += mark
    return words, tags


def restored(words: Sequence[str], tags: Sequence[str]) -> str:
    """The text that words and their tags make."""
    return " ".join(_cased(word, tag[:1]) + tag[1:] for word, tag in zip(words, tags, strict=True))


def _case(word: str) -> str:
    if word.isupper() and sum(map(str.isalpha, word)) > 1:
        return "U"
    return "C" if word[0].isupper() else "l"


def _cased(word: str, case: str) -> str:
    if case == "U":
        return word.upper()
    return word[:1].upper() + word[1:] if case == "C" else word
