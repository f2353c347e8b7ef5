"""Files that are no MIDI, or not whole: each is refused with a sentence, and none takes the process down."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.music.checking import LARGEST, check_midi
from regard.music.notes import MOST_NOTES
from tests.music.scores import SCALE, midi, number, off, on, track


def test_a_whole_file_is_let_through() -> None:
    check_midi(SCALE, "scale.mid")
    check_midi(midi(track((0, on(60)), (10, off(60))), form=0), "one.mid")


def test_running_status_other_chunks_and_events_without_sound_are_let_through() -> None:
    events = [(0, on(60)), (10, bytes([62, 64])), (10, b"\xf0\x02\x01\xf7"), (0, b"\xff\x01\x03abc"), (5, on(60, 0))]
    check_midi(midi(b"XXXX" + (2).to_bytes(4) + b"ab" + track(*events), count=1), "odd.mid")


def test_a_track_may_end_without_saying_so() -> None:
    body = number(0) + on(60)
    check_midi(midi(b"MTrk" + len(body).to_bytes(4) + body), "open.mid")


HOSTILE = {
    "empty": (b"", "must be a MIDI file, which begins with MThd, but is empty"),
    "text": (b"Once upon a time", "but begins with Once. Is"),
    "bytes": (b"\x00\xffMT", "but begins with the bytes 00 ff 4d 54. Is"),
    "riff": (b"RIFF\x00\x00\x00\x00RMID", "but begins with RIFF. Is"),
    "short header": (b"MThd\x00\x00\x00\x06\x00", "must have 14 bytes, but the file ends after 9"),
    "header size": (SCALE[:7] + b"\x07" + SCALE[8:], "must say it has 6 bytes, but says 7"),
    "format": (midi(track(), form=2), "format must be 0 or 1, but is 2"),
    "no time": (midi(track(), division=0), "ticks a quarter note, from 1 to 32,767, but says 0x0000"),
    "film time": (midi(track(), division=0xE728), "but says 0xe728"),
    "no tracks": (midi(), "must have at least one track, but its header says 0"),
    "missing track": (midi(track(), count=2), "must have the 2 tracks its header says, but has 1"),
    "cut in a track": (SCALE[:-9], "track 1: must have the .* bytes it says, but the file ends after"),
    "cut in a chunk": (SCALE[:18], "track 1: must have the .* bytes"),
    "huge chunk": (midi(b"MTrk\xff\xff\xff\xff"), "must have the 4,294,967,295 bytes it says"),
    "cut event": (midi(b"MTrk\x00\x00\x00\x03\x00\x90\x3c"), "breaks off in the middle of one"),
    "long number": (midi(b"MTrk\x00\x00\x00\x09" + b"\xff" * 9), "at most 4 bytes, but has more"),
    "no status": (midi(track((0, b"\x3c\x40"))), "must begin with a status of 0x80 or more, but is 0x3c"),
    "system event": (midi(track((0, b"\xf8"))), "no event 0xf8 in a file"),
    "value": (midi(track((0, b"\x90\x3c\x90"))), "a value must be below 0x80, but is 0x90"),
    "tempo 0": (midi(track((0, b"\xff\x51\x03\x00\x00\x00"))), "tempo must be 3 bytes and more than 0"),
    "long text": (midi(track((0, b"\xff\x01\x7fabc"))), "must hold the 127 bytes an event says"),
    "endless": (midi(track(*[(2**28 - 1, on(60))] * 9)), "time must stay below"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_whole_is_refused_with_a_sentence(name: str) -> None:
    data, message = HOSTILE[name]
    with pytest.raises(DataError, match=rf"(?s)in\.mid.*({message})") as error:
        check_midi(data, "in.mid")
    assert str(error.value).endswith((".", "?"))


def test_a_million_notes_are_refused() -> None:
    data = midi(track(*[(1, on(60))] * 1_000_000))
    with pytest.raises(DataError, match=f"at most {MOST_NOTES:,} notes"):
        check_midi(data, "in.mid")


def test_a_file_of_gigabytes_is_refused_by_its_size() -> None:
    with pytest.raises(DataError, match=rf"at most {LARGEST:,} bytes, but has"):
        check_midi(bytes(LARGEST + 1), "in.mid")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_let_through(data: bytes) -> None:
    for whole in (data, SCALE[:14] + data, SCALE[:22] + data):
        with suppress(DataError):  # and nothing else
            check_midi(whole, "in.mid")


def test_damaged_files_are_read_or_refused_but_never_end_the_process() -> None:
    pytest.importorskip("symusic")
    from regard.music.midi import read_midi

    draw = random.Random(1)
    good = midi(track(*[(draw.randrange(40), on(draw.randrange(128), draw.randrange(128))) for _ in range(60)]))
    outcomes = set()
    for _ in range(1_500):
        data = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            read_midi(bytes(data), "in.mid")
            outcomes.add("read")
        except DataError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
