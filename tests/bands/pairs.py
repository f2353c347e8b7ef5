"""A recipe that learns in a second: two words at a time, of which the source says all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.recipe import Recipe, build_recipe
from regard.settings.tree import text_of
from tests.tiny import ENGLISH, GERMAN, write_lines

NUMBERS = [(one, other) for one in range(13) for other in range(13)]
SOURCE, TARGET = ([f"{words[one]} {words[other]}" for one, other in NUMBERS] for words in (ENGLISH, GERMAN))


def recipe_of(place: Path, target: Sequence[str] = TARGET, overrides: Sequence[str] = ()) -> Recipe:
    """Two words at a time, of which the source says all."""
    place.mkdir(exist_ok=True)
    source, other = (
        text_of(str(write_lines(place / name, side))) for name, side in (("words.en", SOURCE), ("words.de", target))
    )
    settings = [
        "name=pairs",
        f'data={{kind="files", source={source}, target={other}, valid_source={source}, valid_target={other}}}',
        "tokenizer.vocabulary=120",
        "model={encoder_layers=1, decoder_layers=1, d_model=64, d_ff=128, heads=2, dropout=0.0, norm='pre'}",
        "batch.tokens=512",
        "training={steps=60, validate_every=30, save_every=30, keep=2, average=1, label_smoothing=0.0}",
        "training.optimiser={warmup=20, factor=0.3, clip=1.0}",
        "log.tensorboard=false",
    ]
    return build_recipe({}, [*settings, *overrides], "pairs")
