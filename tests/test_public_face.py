"""What `import regard` offers is a list, and this guards it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import regard

FACE = [
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


def test_the_public_names_are_these() -> None:
    assert regard.__all__ == FACE


@pytest.mark.parametrize("name", [name for name in FACE if not name.startswith("__")])
def test_every_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(regard, name)
    assert inspect.getdoc(found)
    assert found.__name__ == name
    for member, value in inspect.getmembers(found, inspect.isfunction) if inspect.isclass(found) else ():
        if not member.startswith("_"):
            assert inspect.getdoc(value), f"{name}.{member}"


def test_a_star_import_gives_all_of_them() -> None:
    scope: dict[str, object] = {}
    exec("from regard import *", scope)  # the one way to test it
    assert set(FACE) <= scope.keys()


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'nothing'"):
        _ = regard.nothing


def test_the_errors_form_the_tree_of_their_docstring() -> None:
    codes = {regard.UsageError: 2, regard.DataError: 65, regard.MissingError: 66, regard.InternalError: 70}
    for kind, code in codes.items():
        assert issubclass(kind, regard.RegardError)
        assert kind.exit_code == code
        assert kind.__bases__ == (regard.RegardError,)


def test_importing_regard_is_light() -> None:
    script = "import regard, sys; print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
