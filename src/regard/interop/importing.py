"""Somebody else's model as a model folder of ours, with the proof that both say the same where both can be asked."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard import folder
from regard.folder import Loaded
from regard.interop import hub
from regard.interop.export import Exported, write_new
from regard.interop.proof import prove
from regard.interop.reading import read, recognise
from regard.interop.sides import ModelSide, Side, TransformersSide, inputs_for
from regard.models.transformer import TransformerSettings
from regard.version import VERSION


def import_model(source: str, out: Path, texts: Sequence[str] | None = None, count: int = 50) -> Exported:
    """Make a model folder `out` of the model in the folder `source`, or `hf:OWNER/NAME`; compare on `count` texts."""
    place = hub.fetch(source) if hub.is_hub_name(source) else Path(source)
    loaded = read(place)
    if hub.is_hub_name(source):
        name = source.rpartition("/")[2]
        loaded = replace(loaded, recipe=replace(loaded.recipe, name=name))
    write_new(out, lambda beside: write(loaded, beside, source))
    theirs, note = _other_side(place, loaded)
    if theirs is None:
        return Exported(out, None, [note])
    ours = ModelSide("regard", loaded.model, out)
    inputs = inputs_for(loaded, texts, count)
    return Exported(out, prove(ours, theirs, inputs, notes=inputs.notes), inputs.notes)


def write(loaded: Loaded, place: Path, source: str) -> None:
    """Fill a folder with an imported model."""
    folder.write_beginning(place, loaded.recipe, loaded.tokenizer)
    (place / folder.METRICS).touch()
    weights = {name: weight.detach().clone().contiguous() for name, weight in loaded.model.state_dict().items()}
    folder.write_end(place, weights, _card(loaded, source))


def _card(loaded: Loaded, source: str) -> str:
    recipe = loaded.recipe
    parameters = sum(weight.numel() for weight in loaded.model.parameters())
    does = "translates" if loaded.model.reads_source else "continues text"
    task = "translation" if loaded.model.reads_source else "text-generation"
    front = ["library_name: regard", f"pipeline_tag: {task}", "license: unknown", "tags:", "- regard"]
    return (
        "\n".join(["---", *front, f"- {recipe.model.kind}", "---\n\n"])
        + f"# {recipe.name}\n\nA {recipe.model.kind} of {parameters:,} parameters that {does}, over a vocabulary of "
        f"{loaded.tokenizer.size:,} tokens. Imported from `{source}` with Regard {VERSION}, and not trained here.\n\n"
        "What it was trained on, what it scores and under which licence it is given away stands where it comes from. "
        "Look there before you use it or give it away.\n"
    )


def _other_side(place: Path, loaded: Loaded) -> tuple[Side | None, str]:
    kind = recognise(place)
    if kind != "huggingface":
        return None, f"nothing was compared: there is no second implementation of {kind} models here to ask"
    if importlib.util.find_spec("transformers") is None:
        return None, "transformers is not installed, so nothing was compared: pip install transformers"
    return TransformersSide(place, isinstance(loaded.recipe.model, TransformerSettings)), ""
