"""How much one server lets others ask of it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from regard.serve.problems import LimitError


@dataclass(frozen=True)
class Limits:
    """What a request may ask for, and how long it may take; whoever asks for more gets a 4xx."""

    body: int = 262_144
    """Bytes of a request."""
    file: int = 10_485_760
    """Bytes of a request that uploads a document."""
    document: int = 200_000
    """Characters of text in a document."""
    depth: int = 16
    """How deep lists and objects may stand inside each other."""
    fields: int = 10_000
    """Values in a request."""
    text: int = 5_000
    """Characters of a text."""
    texts: int = 128
    """Texts in one request."""
    look: int = 512
    """Tokens of a text whose attention, search or probabilities are shown: these grow with its square."""
    beam: int = 16
    nbest: int = 16
    tokens: int = 512
    """Tokens of a text that is written."""
    n: int = 8
    """Texts written after one prompt."""
    queue: int = 64
    """Requests that wait for one model; whoever comes then is asked to come again (429)."""
    rows: int = 64
    """Texts that a model works on at a time; 1 handles one request after the other."""
    requests: int = 256
    """Requests that are handled at the same time, by all models."""
    arriving: int = 256
    """Requests whose bodies are on their way; one more, and the slowest of them is left."""
    strangers: int = 16
    """The same of those that may hold a key in their bodies, and have none in their heads."""
    documents: int = 8
    """Large documents that are translated at the same time; whoever comes then is asked to come again."""
    sentences: int = 20_000
    """Sentences in a document, which cost time to cut and to put back."""
    marks: int = 200_000
    """Tags and lines of a document, which cost more time to read than its characters."""
    connections: int = 1_024
    deadline: float = 60.0
    """Seconds until an answer; a document has them for each `rows` of its texts, or each `text` characters."""
    patience: float = 15.0
    """Seconds that a client has to send a request, and to take each piece of an answer."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"`{field.name}` must be above 0, but is {getattr(self, field.name)}")

    def check_text(self, text: str, field: str = "text") -> None:
        """Raise LimitError for a text that is too long."""
        self.check(len(text), self.text, field, "characters")

    def check_texts(self, texts: int, field: str) -> None:
        """Raise LimitError for too many texts."""
        self.check(texts, self.texts, field, "texts")

    def check_search(self, beam: int, nbest: int) -> None:
        """Raise LimitError for too wide a search."""
        self.check(beam, self.beam, "beam", "beams")
        self.check(nbest, self.nbest, "nbest", "translations")

    def check_writing(self, tokens: int, n: int = 1, tokens_field: str = "max_tokens") -> None:
        """Raise LimitError for too many or too long texts to write."""
        self.check(tokens, self.tokens, tokens_field, "tokens")
        self.check(n, self.n, "n", "texts")

    def check(self, value: int, most: int, field: str, unit: str) -> None:
        """Raise LimitError if a value is above the most this server allows."""
        if value > most:
            raise LimitError(
                f"{field}: must be at most {most:,} {unit} on this server, but is {value:,}. Ask for less.", field
            )
