"""Plain rules that say which token belongs to which: no parser, only patterns of words that stand in this file.

A *link* says that the token at `row` should look at one of the tokens `keys`. Rows of the encoder are the tokens that
look. Rows of the decoder and of cross-attention are the tokens about to be written, so that their keys come earlier.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.text.tokenizer import Tokenizer
from regard.viewing.labels import pieces

BETWEEN = (
    "not|also|already|never|always|now|just|only|therefore|recently|still|often|clearly|rightly|even|all|then|"
    "so|far|again|at|least|been|being|I|we|he|she|it|they|you|this|that|there"
)
PARTICIPLES = (
    "made|taken|given|done|said|seen|shown|held|put|brought|set|found|known|heard|drawn|left|lost|met|come|gone"
)
LETTERS = "A-Za-zÄÖÜäöüß"
CLAUSE_ENDS = r"(?: worden| werden| haben| sein)?[.,;:!?]"

ENGLISH = {
    "article, noun": r"\b(?P<first>[Tt]he|[Aa]n?) (?:[a-z]+ )?(?P<second>[a-z]+) of\b",
    "auxiliary, participle": (
        rf"\b(?P<first>has|have|had|is|are|was|were|be) (?:(?:{BETWEEN}) ){{1,3}}"
        rf"(?P<second>[a-z]{{3,}}ed|{PARTICIPLES})\b"
    ),
    "modal, verb": (
        rf"\b(?P<first>will|would|can|could|should|shall|must|may|might) (?:(?:{BETWEEN}) ){{1,3}}"
        rf"(?!(?:{BETWEEN})\b)(?P<second>[a-z]+)\b"
    ),
    "make … adjective": (
        r"\b(?P<first>[Mm]ak(?:e|es|ing)|made) (?:(?!of\b|by\b)\w+ ){1,5}"
        r"(?P<second>clear|possible|impossible|difficult|easier|available|necessary|sure|compulsory|transparent)\b"
    ),
    "as, as": r"\b(?P<first>[Aa]s)(?: \w+){1,2} (?P<second>as)\b",
    "brackets": r"(?P<first>\()[^()]{3,120}(?P<second>\))",
}
COUPLED = {
    "[Bb]oth|[Bb]etween": "and",
    "[Mm]ore|[Ll]ess|[Rr]ather": "than",
    "[Nn]ot(?= only)": "but",
    "[Ee]ither|[Ww]hether": "or",
}
READ = [
    *ENGLISH.items(),
    *(
        ("coupled words", rf"\b(?P<first>{one})(?: [\w']+){{1,8}}?,? (?P<second>{other})\b")
        for one, other in COUPLED.items()
    ),
]
"""Of the source. Both ways are looked at: the first word for the second, and the second for the first."""

GERMAN = {
    "article, noun": (
        r"\b(?P<first>[Dd](?:er|ie|as|en|em|es)|[Ee]in(?:e[nmrs]?)?) (?:[a-zäöüß]+e[nmrs]? )?"
        rf"(?P<second>[A-ZÄÖÜ][{LETTERS}-]+)"
    ),
    "auxiliary, participle": (
        r"\b(?P<first>hat|habe|haben|hatte|hatten|ist|sind|war|waren|wird|werden|wurde|wurden)(?: [\w-]+){1,12}? "
        rf"(?P<second>(?:[a-zäöüß]{{2,5}})?ge[a-zäöüß]{{2,}}(?:t|en)){CLAUSE_ENDS}"
    ),
    "modal, infinitive": (
        r"\b(?P<first>muß|muss|müssen|kann|können|könnte|könnten|soll|sollen|sollte|sollten|will|wollen|möchte|"
        rf"möchten|würde|würden|darf|dürfen)(?: [\w-]+){{1,12}}? (?P<second>[a-zäöüß]{{3,}}en){CLAUSE_ENDS}"
    ),
}
"""Of what the model writes: the second word, about to be written, should look at the first."""


@dataclass(frozen=True)
class Link:
    """The token at `row` should look at one of `keys`, because of a rule."""

    rule: str
    row: int
    keys: frozenset[int]


@dataclass(frozen=True)
class Line:
    """A text cut into tokens: where in the text each begins and ends, the space around it left out."""

    text: str
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> Line:
        """The line that these tokens write."""
        spans, end = [], 0
        found = pieces(tokenizer, ids)
        for piece in found:
            begin, end = end, end + len(piece)
            spans.append((begin + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())))
        return cls("".join(found), tuple(spans))

    def tokens(self, begin: int, end: int) -> list[int]:
        """The tokens of a stretch of the text, in order."""
        return [place for place, (left, right) in enumerate(self.spans) if left < end and begin < right]

    def words(self) -> Iterator[list[int]]:
        """The tokens of each word; a word is letters and digits without anything between them."""
        for found in re.finditer(r"\w+", self.text):
            yield self.tokens(*found.span())


def read_links(line: Line) -> list[Link]:
    """Links of a source, for the encoder: the last token of a word looks at any of the other's."""
    found = []
    for name, pattern in READ:
        for match in re.finditer(pattern, line.text):
            first, second = line.tokens(*match.span("first")), line.tokens(*match.span("second"))
            if first and second and not set(first) & set(second):
                found.append(Link(f"{name}: →", first[-1], frozenset(second)))
                found.append(Link(f"{name}: ←", second[-1], frozenset(first)))
    for word in line.words():
        if len(word) > 1:
            found += [Link("another piece of the word", token, frozenset(word) - {token}) for token in word]
        if len(word) > 2:
            found.append(Link("pieces of a word: last → first", word[-1], frozenset(word[:1])))
            found.append(Link("pieces of a word: first → last", word[0], frozenset(word[-1:])))
    return found


def written_links(line: Line) -> list[Link]:
    """Links of a translation, for the decoder, which has read a start mark before its first token."""
    found = []
    for name, pattern in GERMAN.items():
        for match in re.finditer(pattern, line.text):
            first, second = line.tokens(*match.span("first")), line.tokens(*match.span("second"))
            if first and second and first[-1] < second[0]:
                found.append(Link(f"{name}: ←", second[0], frozenset(token + 1 for token in first)))
    return found


def copied_links(source: Line, target: Line) -> list[Link]:
    """Links between both sides: a name or number that stands once in each, the same on both."""
    sides = []
    for line in (source, target):
        words = [found for found in re.finditer(r"\w+", line.text) if len(found[0]) > 3 or found[0].isdecimal()]
        counts = Counter(found[0] for found in words)
        sides.append({found[0]: line.tokens(*found.span()) for found in words if counts[found[0]] == 1})
    reads, writes = sides
    return [
        Link("the same word in both languages", writes[word][0], frozenset(reads[word]))
        for word in writes if reads.get(word) and writes[word]
    ]  # fmt: skip
