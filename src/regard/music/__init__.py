"""Music: MIDI files, and music written as words that a language model can read."""
