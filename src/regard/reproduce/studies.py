"""All studies that Regard knows, by name."""

from __future__ import annotations

from regard.reproduce.ladder import LADDER_EUROPARL, LADDER_MULTI30K
from regard.reproduce.study import Study
from regard.reproduce.table2 import TABLE2
from regard.reproduce.table3 import TABLE3

STUDIES: dict[str, Study] = {study.name: study for study in (TABLE2, TABLE3, LADDER_MULTI30K, LADDER_EUROPARL)}
