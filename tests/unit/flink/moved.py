"""The functions of `written_for_pyflink.txt` with changed import lines, and nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

WRITTEN = Path(__file__).with_name("written_for_pyflink.txt")
IMPORT = re.compile(r"^from pyflink[a-z_.]* import", re.MULTILINE)


def moved() -> ModuleType:
    text, changed = IMPORT.subn("from tidegate.flink import", WRITTEN.read_text())
    assert changed == len(re.findall("pyflink", WRITTEN.read_text())), "pyflink occurs elsewhere than in import lines"
    module = sys.modules[f"{__name__}_functions"] = ModuleType(f"{__name__}_functions")
    exec(compile(text, WRITTEN.name, "exec"), module.__dict__)
    return module
