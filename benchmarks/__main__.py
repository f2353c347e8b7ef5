"""`python -m benchmarks` runs every benchmark of this folder; `python -m benchmarks.NAME` runs one."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path


def main() -> None:
    names = sorted(found.name for found in pkgutil.iter_modules([str(Path(__file__).parent)]))
    for name in names:
        if name == "__main__":
            continue
        module = importlib.import_module(f"benchmarks.{name}")
        if hasattr(module, "main"):
            print(f"== {name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
            module.main()


if __name__ == "__main__":
    main()
