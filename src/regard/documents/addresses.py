"""Words that are no words of a language: addresses of pages and people, names of files and where they are."""

from __future__ import annotations

import re

LONGEST = 4_096  # characters of an address
ENDING = r"(?:[a-z][a-z0-9]{0,4}|[A-Z][A-Z0-9]{1,4})"  # .pdf, .MP3; not .Smith, which somebody forgot a space before
FILE = rf"[\w()+@~-]+(?:\.[\w()+@~-]+)*\.{ENDING}(?<!\b\w\.\w)"  # main.c, but not e.g
PART = r"[^\s/\\]+"
ADDRESS = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://\S+"  # https://example.org/page
    r"|(?:mailto:)?[^\s@]+@[^\s@]+\.[^\s@.]+"  # info@example.org
    r"|(?:[\w-]+\.)+(?:[a-z]{2,}|[A-Z]{2,})(?::\d+)?(?:[/?#]\S*)?"  # www.example.org:80/page
    rf"|{FILE}|(?:{PART}[/\\])+{FILE}"  # notes.txt, docs/notes.txt
    rf"|(?:~|\.{{1,2}})[/\\]\S+|/{PART}/\S*|[A-Za-z]:[/\\]\S*|\\\\{PART}\\\S*"  # ~/notes, /usr/bin, C:\notes
)
AROUND = "\"'“”„‘’«»‹›<>()[]{}.,;:!?…|"


def has_words(text: str) -> bool:
    """Whether there is something to translate: words with letters that are no addresses."""
    return any(any(map(str.isalpha, word)) and not is_address(word) for word in text.split())


def is_address(text: str) -> bool:
    """Whether a text is only an address of a page or a person, a domain, or the name or path of a file."""
    inside = text.strip(AROUND)
    return len(text) <= LONGEST and any(ADDRESS.fullmatch(each) for each in (text, inside))
