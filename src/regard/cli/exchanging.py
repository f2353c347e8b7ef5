"""`regard import` and `regard export`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.common import AsJson, ModelFolder, must_have_a_reader

if TYPE_CHECKING:
    from regard.interop.export import Exported

Texts = Annotated[
    Path | None,
    typer.Option(
        help="A file of texts to compare on, one a line.", show_default="the model's corpus, or random tokens"
    ),
]


def import_(
    source: Annotated[str, typer.Argument(metavar="FOLDER", help="Somebody else's model: a folder, or hf:OWNER/NAME.")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The model folder to write; new or empty.")],
    texts: Texts = None,
    count: Annotated[int, typer.Option(min=1, help="How many texts to compare both sides on.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Make a model folder of a model from Hugging Face, OpenAI, fairseq, OpenNMT-py or torch, and compare the two."""
    from regard.interop.importing import import_model

    must_have_a_reader()
    _quiet()
    _tell(import_model(source, out, _lines(texts), count), as_json)


def export(
    model: ModelFolder,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write; new or empty.")],
    to: Annotated[
        str, typer.Option(help="Who is to read it: huggingface, ctranslate2, onnx or regard.", show_default=False)
    ],
    numbers: Annotated[
        str,
        typer.Option(
            help="Numbers to write: float32; for ctranslate2 also int16, int8; for onnx int8; for regard float16, int8."
        ),
    ] = "float32",
    texts: Texts = None,
    count: Annotated[int, typer.Option(min=1, help="How many texts to compare both sides on.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Write a model in another toolkit's files, or smaller in our own, and compare the two: scores, texts, sizes and
    speed."""
    import torch

    from regard.engines.loading import engine_of
    from regard.errors import UsageError
    from regard.folder import load_folder
    from regard.interop.export import check
    from regard.interop.export import export as write

    must_have_a_reader()
    _quiet()
    if (engine := engine_of(model)) != "torch":
        raise UsageError(
            f"{model}: must be a model of Regard's own, but was exported for {engine}. Export the model that it was "
            "made of."
        )
    # As it was trained, and not in the layout that is fastest to run.
    loaded = load_folder(model, torch.device("cpu"))
    target, chosen = check(loaded, to, numbers)
    _tell(write(loaded, out, target, chosen, _lines(texts), count, model), as_json)


def _lines(file: Path | None) -> list[str] | None:
    from regard.data.corpus import read_lines

    return None if file is None else list(read_lines(file))


def _quiet() -> None:
    """transformers draws progress of its own, and warns of what is meant so."""
    import importlib.util
    from typing import Any

    if importlib.util.find_spec("transformers") is not None:
        import transformers

        talk: Any = transformers.utils.logging
        talk.set_verbosity_error()
        talk.disable_progress_bar()


def _tell(found: Exported, as_json: bool) -> None:
    from regard.interop.proof import must_pass

    if as_json:
        proof = None if found.proof is None else found.proof.to_json()
        print(json.dumps({"folder": str(found.folder), "proof": proof, "notes": list(found.notes)}, ensure_ascii=False))
    elif found.proof is not None:
        print(found.proof.to_text())
    else:
        for note in found.notes:
            print(note)
    if found.proof is not None:
        must_pass(found.proof, found.folder)
    print(f"The model is in {found.folder}.", file=sys.stderr)
