"""Regard: train, run and see attention models.

    import regard
    model = regard.load("my-model")
    model.translate(["one hundred one"])

Nothing heavy is imported until a name is used, so that `regard --help` answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from regard.version import VERSION

if TYPE_CHECKING:
    from regard.api import Model as Model
    from regard.api import load as load
    from regard.api import train as train
    from regard.errors import DataError as DataError
    from regard.errors import InternalError as InternalError
    from regard.errors import MissingError as MissingError
    from regard.errors import RegardError as RegardError
    from regard.errors import UsageError as UsageError

__version__ = VERSION

_HOME = {
    "Model": "regard.api",
    "load": "regard.api",
    "train": "regard.api",
    "DataError": "regard.errors",
    "InternalError": "regard.errors",
    "MissingError": "regard.errors",
    "RegardError": "regard.errors",
    "UsageError": "regard.errors",
}

__all__ = [
    "DataError",
    "InternalError",
    "MissingError",
    "Model",
    "RegardError",
    "UsageError",
    "__version__",
    "load",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
