"""Subtitles in SubRip's form (.srt): numbers and times stay, the text of each cue is translated.

    12
    00:01:07,240 --> 00:01:09,800
    The lines of a cue are one passage,
    unless they begin with dashes: then somebody else speaks.

A translation gets the fewest lines that are no longer than the longest line of its cue, or than 42 characters, and
these are made about equally long. Tags such as <i> and {\\an8} stay with their words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.documents.document import Document
from regard.documents.encoding import decode
from regard.documents.passage import Passage, PassageWriter, Placed
from regard.documents.tags import Tags
from regard.documents.wrapping import balanced
from regard.errors import DataError

WIDTH = 42  # characters; what broadcasters allow a line
TIME = r"\d{1,3}:\d{1,2}:\d{1,2}[,.]\d{1,3}"
TIMES = re.compile(rf"[ \t]*{TIME}[ \t]*-->[ \t]*{TIME}(?:[ \t][^\r\n]*)?[ \t]*\r?\n?")
NUMBER = re.compile(r"[ \t]*\d+[ \t]*\r?\n?")
TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|\{\\[^{}\n]*\}")
DASH = re.compile(r"[ \t]*[-–—‐][ \t]*")


@dataclass(frozen=True)
class Cue:
    """Lines of the file that are one passage."""

    first: int
    last: int  # up to before this line
    tags: Tags


def read_subtitles(name: str, data: bytes) -> Document:
    """The cues of a file of subtitles."""
    decoded = decode(name, data)
    lines = decoded.text.split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    cues: list[Cue] = []
    passages: list[Passage] = []
    for first, last in _texts(name, lines):
        for begin, end in _speakers(lines, first, last):
            tags = Tags()
            passage = _passage(lines[begin:end], tags, f"{name}, line {begin + 1:,}")
            if passage.has_words:
                cues.append(Cue(begin, end, tags))
                passages.append(passage)

    def finish(placed: Sequence[Placed | None]) -> bytes:
        found = list(lines)
        for cue, text in zip(cues, placed, strict=True):
            if text is not None:
                found[cue.first : cue.last] = [_written(lines[cue.first : cue.last], text, cue.tags)] + [""] * (
                    cue.last - cue.first - 1
                )
        return decoded.encode("".join(found))

    return Document("srt", "application/x-subrip", passages, finish)


def _texts(name: str, lines: Sequence[str]) -> list[tuple[int, int]]:
    """From which line to which the text of each cue goes."""
    times = [place for place, line in enumerate(lines) if TIMES.fullmatch(line)]
    stray = next((place for place, line in enumerate(lines) if line.strip()), None)
    first = times[0] if times else len(lines)
    if stray is not None and (stray < first - 1 or (stray == first - 1 and not NUMBER.fullmatch(lines[stray]))):
        raise DataError(
            f"{name}, line {stray + 1:,}: must be the number of the first cue, with its times on the next line, as "
            f"00:00:01,000 --> 00:00:02,500, but is {lines[stray].strip()[:40]!r}. Is it a file of subtitles (.srt)?"
        )
    found = []
    for place, following in pairwise([*times, len(lines)]):
        last = following
        if following < len(lines) and NUMBER.fullmatch(lines[following - 1]) and following - 1 > place:
            last -= 1
        while last > place + 1 and not lines[last - 1].strip():
            last -= 1
        found.append((place + 1, last))
    return found


def _speakers(lines: Sequence[str], first: int, last: int) -> list[tuple[int, int]]:
    """The lines of a cue that are one passage: those of each speaker, if dashes say that there are several."""
    begins = [place for place in range(first, last) if DASH.match(lines[place])]
    if len(begins) < 2 or begins[0] != first:
        begins = [first]
    return list(zip(begins, [*begins[1:], last], strict=True)) if first < last else []


def _passage(lines: Sequence[str], tags: Tags, place: str) -> Passage:
    writer = PassageWriter()
    text = "".join(lines)
    begin = _dash(text)
    for tag in TAG.finditer(text, begin):
        writer.write(text[begin : tag.start()])
        raw = tag[0]
        if raw.startswith("{"):
            tags.point(writer, raw)
        elif raw.startswith("</"):
            tags.close(writer, raw[2:-1].strip().lower(), raw)
        else:
            tags.open(writer, raw[1:-1].split()[0].lower(), raw, place)
        begin = tag.end()
    writer.write(text[begin:])
    tags.end(writer)
    return writer.passage()


def _dash(text: str) -> int:
    """The length of the dash before what somebody says."""
    dash = DASH.match(text)
    return 0 if dash is None else dash.end()


def _written(lines: Sequence[str], text: Placed, tags: Tags) -> str:
    end = "\r\n" if lines[0].endswith("\r\n") else "\n"
    width = max(WIDTH, *(len(TAG.sub("", line).strip()) for line in lines))
    written = lines[0][: _dash(lines[0])] + text.render(lambda piece, _: piece, tags.wrap)
    rest = lines[-1][len(lines[-1].rstrip("\r\n")) :]
    return end.join(balanced(written, width, TAG)) + rest
