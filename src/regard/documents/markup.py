"""HTML: tags, attributes, scripts, styles and comments stay byte for byte; text between them is translated.

A passage is what stands between two tags that are not inline: `<p>`, `<td>`, `<br>` end one, `<b>`, `<a>`, `<span>` do
not. Inline tags go where `placing.py` says. The texts of `alt`, `title`, `placeholder` and `aria-label` are passages of
their own, and so are a page's description and the title and description that it shows to other sites (`<meta>`). Where
`<html>` says its language, it says the new one. Nothing is translated in `<pre>`, `<svg>`, `<math>` and `<template>`,
nor where `translate="no"` or the class `notranslate` says so; `<code>` and its like keep their content, but a model
sees it in its sentence.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from regard.documents.addresses import has_words, is_address
from regard.documents.document import Document
from regard.documents.edits import Edits
from regard.documents.encoding import Decoded, decode
from regard.documents.passage import Passage, PassageWriter, Placed
from regard.documents.scanning import Attribute, Token, scan
from regard.documents.tags import Tags
from regard.errors import DataError

INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "label",
    "mark", "nobr", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "u",
}  # fmt: skip
KEPT = {"code", "kbd", "samp", "tt", "var"}
IN_SENTENCES = INLINE | KEPT
POINTS = {"img", "wbr", "input"}
UNTOUCHED = {"pre", "svg", "math", "template"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
TRANSLATED = {"alt", "title", "placeholder", "aria-label"}
DESCRIPTIONS = {"description", "og:title", "og:description"}  # of a page, in the `content` of a <meta>
LANGUAGE = {"lang", "xml:lang"}
CHARSET = re.compile(
    r"""<meta\b[^>]{0,200}?\bcharset\s*=\s*["']?\s*([\w.:-]+)|<\?xml\b[^>]{0,200}?encoding=["']([\w.-]+)""",
    re.IGNORECASE,
)
HEAD = 4_096  # characters in which browsers look for the encoding


@dataclass
class Stretch:
    """Where a passage stands, and which token each of its marks came from."""

    start: int
    end: int
    tags: Tags = field(default_factory=Tags)
    tokens: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Value:
    """The value of an attribute of a token."""

    token: int
    attribute: Attribute


def read_markup(name: str, data: bytes, target: str | None = None) -> Document:
    """The passages of a page; `target` is the language it will be in, if that is known."""
    decoded = decode(name, data)
    _check_charset(name, decoded)
    reader = _Reader(name, decoded.text)
    values = [value for value in _values(decoded.text, reader.tokens) if value.token not in reader.left_alone]
    texts = [html.unescape(_bare(decoded.text, value.attribute)) for value in values]
    passages = [*(passage for _, passage in reader.found), *map(_plain, texts)]
    stretches = [stretch for stretch, _ in reader.found]

    def finish(placed: Sequence[Placed | None]) -> bytes:
        attributes = [(value, found.text) for value, found in zip(values, placed[len(stretches) :], strict=True)
                      if found is not None]  # fmt: skip
        if target is not None and any(found is not None for found in placed):
            attributes += [(value, target.replace("_", "-")) for value in _languages(reader.tokens)]
        tags = _new_tags(decoded.text, reader.tokens, attributes)
        changes = [(stretch, text) for stretch, text in zip(stretches, placed, strict=False) if text is not None]
        inside = {token for stretch, _ in changes for token in stretch.tokens.values()}
        alone = [(reader.tokens[token].start, reader.tokens[token].end, tag)
                 for token, tag in tags.items() if token not in inside]  # fmt: skip
        around = [(stretch.start, stretch.end, _written(stretch, text, tags)) for stretch, text in changes]
        edits = Edits(decoded.text)
        for start, end, new in sorted([*alone, *around]):
            edits.replace(start, end, new)
        return decoded.encode(edits.now())

    return Document("html", "text/html", passages, finish)


def _written(stretch: Stretch, text: Placed, tags: dict[int, str]) -> str:
    def wrap(number: int, inside: str) -> str:
        return stretch.tags.wrap(number, inside, tags.get(stretch.tokens.get(number, -1)))

    return text.render(lambda piece, _: html.escape(piece, quote=False), wrap)


def _check_charset(name: str, decoded: Decoded) -> None:
    said = CHARSET.search(decoded.text[:HEAD])
    if said is None:
        return
    charset = (said[1] or said[2]).lower()
    if not charset.replace("-", "").startswith(decoded.encoding.replace("-", "")[:5]):
        raise DataError(
            f"{name}: must be in UTF-8, or in UTF-16 with a byte order mark, but says that it is in `{charset}`. "
            "Convert it and say so in its <meta charset>."
        )


class _Reader:
    """Goes through the tokens once and collects passages."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text, self.tokens = name, text, scan(text)
        self.found: list[tuple[Stretch, Passage]] = []
        self.left_alone: set[int] = set()
        """The tokens of elements that nobody translates."""
        self._closing = _pairs(self.tokens)
        self._writer, self._stretch = PassageWriter(), Stretch(0, 0)
        self._line, self._counted = 1, 0
        number = 0
        while number < len(self.tokens):
            number = self._read(number)
        self._finish()

    def _read(self, number: int) -> int:
        """Read a token, or a whole element that is left as it is; the number of the next."""
        token, closing = self.tokens[number], self._closing.get(number)
        if token.kind == "text":
            self._reach(token)
            self._writer.write(html.unescape(self.text[token.start : token.end]))
        elif token.kind == "close" and token.name in IN_SENTENCES:
            self._reach(token)
            mark = self._stretch.tags.close(self._writer, token.name, self.text[token.start : token.end])
            self._keep_address(number, mark)
        elif token.kind == "open" and closing is not None and self._keeps(token):
            return self._keep(number, closing)
        elif token.kind == "open" and token.name in IN_SENTENCES:
            self._reach(token)
            raw = self.text[token.start : token.end]
            mark = self._stretch.tags.open(self._writer, token.name, raw, self._place(token))
            self._stretch.tokens[mark] = number
        elif (token.kind == "open" and token.name in POINTS) or self.text.startswith("<!--", token.start):
            self._reach(token)
            mark = self._stretch.tags.point(self._writer, self.text[token.start : token.end])
            self._stretch.tokens[mark] = number
        else:
            self._finish()
        return number + 1

    def _keeps(self, token: Token) -> bool:
        if token.name in KEPT | UNTOUCHED:
            return True
        values = {each.name: _bare(self.text, each).lower() for each in token.attributes}
        return values.get("translate") == "no" or "notranslate" in values.get("class", "").split()

    def _keep(self, number: int, closing: int) -> int:
        """Leave an element as it is; a model may see the text of an inline one."""
        first, last = self.tokens[number], self.tokens[closing]
        self.left_alone.update(range(number, closing + 1))
        if first.name not in IN_SENTENCES | {"svg", "math"}:
            self._finish()
            return closing + 1
        self._reach(first)
        if first.name in UNTOUCHED:
            self._stretch.tags.point(self._writer, self.text[first.start : last.end])
        else:
            tags = self._stretch.tags
            mark = tags.open(self._writer, first.name, self.text[first.start : first.end], self._place(first))
            for inner in self.tokens[number + 1 : closing]:
                if inner.kind == "text":
                    self._writer.write(html.unescape(self.text[inner.start : inner.end]))
            tags.kept[mark] = self.text[first.end : last.start]
            tags.close(self._writer, first.name, self.text[last.start : last.end])
        self._stretch.end = last.end
        return closing + 1

    def _keep_address(self, number: int, mark: int | None) -> None:
        """Leave an address as it is if it is all that the mark has which a closing tag ends; a model may see it."""
        inside = self.tokens[number - 1]
        if mark is None or inside.kind != "text" or self._stretch.tokens.get(mark) != number - 2:
            return
        raw = self.text[inside.start : inside.end]
        if is_address(html.unescape(raw).strip()):
            self._stretch.tags.kept[mark] = raw

    def _reach(self, token: Token) -> None:
        """The passage goes on to the end of a token."""
        if self._stretch.end == 0:
            self._stretch.start = token.start
        self._stretch.end = token.end

    def _finish(self) -> None:
        """The passage ends here."""
        stretch, writer = self._stretch, self._writer
        self._writer, self._stretch = PassageWriter(), Stretch(0, 0)
        stretch.tags.end(writer)
        passage = writer.passage()
        if passage.has_words:
            raw = self.text[stretch.start : stretch.end]
            stretch.start += len(raw) - len(raw.lstrip())
            stretch.end -= len(raw) - len(raw.rstrip())
            self.found.append((stretch, passage))

    def _place(self, token: Token) -> str:
        self._line += self.text.count("\n", self._counted, token.start)
        self._counted = token.start
        return f"{self.name}, line {self._line:,}"


def _pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """For each opening tag that is closed the number of its closing tag."""
    open_ones: dict[str, list[int]] = {}
    found: dict[int, int] = {}
    for number, token in enumerate(tokens):
        if token.kind == "open" and token.name not in VOID:
            open_ones.setdefault(token.name, []).append(number)
        elif token.kind == "close" and open_ones.get(token.name):
            found[open_ones[token.name].pop()] = number
    return found


def _values(text: str, tokens: Sequence[Token]) -> Iterator[Value]:
    """The attributes that people read."""
    for number, token in enumerate(tokens):
        names = TRANSLATED | {"content"} if _describes(text, token) else TRANSLATED
        for attribute in token.attributes:
            if attribute.name in names and has_words(html.unescape(_bare(text, attribute))):
                yield Value(number, attribute)


def _describes(text: str, token: Token) -> bool:
    """Whether a tag is a <meta> that describes the page in words."""
    return token.name == "meta" and any(
        attribute.name in ("name", "property") and _bare(text, attribute).strip().lower() in DESCRIPTIONS
        for attribute in token.attributes
    )


def _languages(tokens: Sequence[Token]) -> Iterator[Value]:
    """The attributes of <html> that say the language of a page."""
    for number, token in enumerate(tokens):
        if token.kind == "open" and token.name == "html":
            yield from (Value(number, each) for each in token.attributes if each.name in LANGUAGE)
            return


def _bare(text: str, attribute: Attribute) -> str:
    raw = text[attribute.start : attribute.end]
    return raw[1:-1] if raw[:1] in ("'", '"') else raw


def _plain(text: str) -> Passage:
    writer = PassageWriter()
    writer.write(text)
    return writer.passage()


def _new_tags(text: str, tokens: Sequence[Token], values: Sequence[tuple[Value, str]]) -> dict[int, str]:
    """The tags with new values of attributes, by the numbers of their tokens."""
    edits: dict[int, Edits[str]] = {}
    for value, found in sorted(values, key=lambda each: each[0].attribute.start):
        token, attribute = tokens[value.token], value.attribute
        tag = edits.setdefault(value.token, Edits(text[token.start : token.end]))
        quote = "'" if text[attribute.start] == "'" else '"'
        new = html.escape(found, quote=False).replace(quote, "&quot;" if quote == '"' else "&#39;")
        tag.replace(attribute.start - token.start, attribute.end - token.start, f"{quote}{new}{quote}")
    return {number: tag.now() for number, tag in edits.items()}
