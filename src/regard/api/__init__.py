"""Text in, text out: what Python users call, and what the command line is made of.

`Model` is put together from what a model can do, a file each; `base` holds what these share.
"""

from regard.api.inspecting import inspect
from regard.api.loading import load, train
from regard.api.model import Model
from regard.api.seeing import Picture
from regard.generation import Generation
from regard.labelling import Choice, TaggedText
from regard.translation.result import Translation
from regard.translation.translator import Options
from regard.translation.wishes import Wishes

__all__ = [
    "Choice", "Generation", "Model", "Options", "Picture", "TaggedText", "Translation", "Wishes",
    "inspect", "load", "train",
]  # fmt: skip
