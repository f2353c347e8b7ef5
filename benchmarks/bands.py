"""Make the usual course of a recipe from finished runs that differ in their seed alone; the TOML goes to stdout.

for seed in 1 2 3 4 5; do regard train demo seed=$seed --out runs/demo-$seed; done
python -m benchmarks.bands runs/demo-* > src/regard/recipes/bands/demo.toml
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.runs import mistakes_told
from regard.bands.measuring import band_of_runs


def main(arguments: list[str] | None = None) -> None:
    """Read the runs, write the band."""
    if arguments is None:
        print("  skipped: needs finished runs; python -m benchmarks.bands --help")
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a model folder")
    asked = parser.parse_args(arguments)
    with mistakes_told("bands"):
        print(band_of_runs(asked.runs).to_toml(), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
