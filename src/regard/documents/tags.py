"""Tags that come in pairs, or that should: which closing tag belongs to which opening one."""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.documents.passage import PassageWriter


@dataclass
class Tags:
    """The tags of a passage by the numbers of its marks, as they stood in the file.

    An opening tag that nobody closes, and a closing tag that nobody opened, stand for themselves, around nothing.
    """

    begins: dict[int, str] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    kept: dict[int, str] = field(default_factory=dict)
    """What stands inside a mark, whatever the translation says: code is not translated."""
    spaced: set[int] = field(default_factory=set)
    """Marks around nothing, with a space on either side."""
    _open: list[tuple[str, int]] = field(default_factory=list)

    def open(self, writer: PassageWriter, name: str, raw: str, place: str) -> int:
        """An opening tag; `place` is named in errors."""
        number = writer.open(place)
        self.begins[number] = raw
        self._open.append((name, number))
        return number

    def close(self, writer: PassageWriter, name: str, raw: str) -> int | None:
        """A closing tag; the number of the mark it closes, if there is one."""
        if all(other != name for other, _ in self._open):
            self.point(writer, raw)
            return None
        while True:
            other, number = self._open.pop()
            if other == name:
                writer.close()
                self.ends[number] = raw
                return number
            writer.abandon()

    def shut(self, writer: PassageWriter, mark: int, raw: str) -> None:
        """The closing tag of a mark that must be closed; what is still open inside it stays so."""
        while self._open[-1][1] != mark:
            self._open.pop()
            writer.abandon()
        self._open.pop()
        writer.close()
        self.ends[mark] = raw

    def point(self, writer: PassageWriter, raw: str) -> int:
        """Something around nothing."""
        number = writer.point()
        self.begins[number] = raw
        return number

    def end(self, writer: PassageWriter) -> None:
        """The passage ends: what is open stays so."""
        self.spaced = writer.spaced
        for _ in self._open:
            writer.abandon()
        self._open.clear()

    def wrap(self, number: int, inside: str, begin: str | None = None) -> str:
        """What is inside a mark, with its tags around it; `begin` takes the place of its opening tag."""
        first = self.begins[number] if begin is None else begin
        space = " " if number in self.spaced else ""
        return first + self.kept.get(number, inside) + self.ends.get(number, "") + space
