"""Models by name from a hub: `hf:OWNER/NAME`, through the package huggingface_hub where it is installed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from regard.errors import MissingError, UsageError

SCHEME = "hf:"
NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# What is read of a model folder. Weights in other toolkits' formats are large, and stay there.
FILES = [
    "config.json", "generation_config.json", "*.safetensors", "model.safetensors.index.json", "tokenizer.json",
    "tokenizer_config.json", "vocab.json", "merges.txt", "source.spm", "target.spm", "target_vocab.json",
    "target/tokenizer.json",
]  # fmt: skip
PATIENCE = 20.0  # seconds until a hub that does not answer is not there
PICKLED = ["pytorch_model*.bin", "pytorch_model.bin.index.json"]


def is_hub_name(name: str) -> bool:
    """Whether a model is named on a hub instead of in a folder."""
    return name.startswith(SCHEME)


def fetch(name: str) -> Path:
    """The folder of a model that was fetched from the hub, now or before."""
    model = name.removeprefix(SCHEME)
    if not NAME.fullmatch(model):
        raise UsageError(f"{name}: must be {SCHEME}OWNER/NAME, but is not. Write it as the hub does.")
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError as error:
        raise UsageError(
            f"{name}: is fetched by the package huggingface_hub, which is not installed. Install it: "
            "pip install 'regard[import]'"
        ) from error
    # Asked for here, because the package looks at it once, when it is imported.
    endpoint = os.environ.get("HF_ENDPOINT")
    try:
        found = HfApi(endpoint=endpoint).model_info(model, timeout=PATIENCE)
        there = [file.rfilename for file in found.siblings or []]
        # Pickled weights only where there are no others: they are read without being run, but need twice the memory.
        wanted = FILES if any(file.endswith(".safetensors") for file in there) else [*FILES, *PICKLED]
        return Path(snapshot_download(model, endpoint=endpoint, allow_patterns=wanted))
    except Exception as error:
        return _kept(name, model, error)


def _kept(name: str, model: str, error: Exception) -> Path:
    """What was fetched before; without it, there is no way on."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except Exception:
        # A network fails in a hundred ways, and each package has its own exceptions for them.
        reason = str(error).strip().partition("\n")[0][:200]
        raise MissingError(
            f"{name}: must be reachable, but is not ({type(error).__name__}: {reason}). Check the name and the "
            "network; or fetch the folder on another machine, copy it here, and import it: regard import FOLDER DIR"
        ) from error
