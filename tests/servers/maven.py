"""Jars from the public Maven repository, brought by the Ivy client that PySpark ships, once for each version. They are kept
below the user's cache directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def java_program() -> str:
    return f"{os.environ['JAVA_HOME']}/bin/java" if os.environ.get("JAVA_HOME") else "java"


_WITHOUT_POMS = """<ivysettings>
  <settings defaultResolver="public"/>
  <resolvers><ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def brought(name: str, wanted_xml: str, archive: bool = False) -> Path:
    """The folder of that name with the jars that an Ivy file asks for, filled at first use.

    With `archive`, it is the contents of one archive that the file asks for, without what that depends on.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate-tests"
    folder = cache / name
    if folder.is_dir():
        return folder
    import pyspark

    [ivy] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="download-", dir=cache) as temporary:
        wanted, filled = Path(temporary) / "ivy.xml", Path(temporary) / "libs"
        wanted.write_text(wanted_xml)
        asked = ["-types", "jar", "bundle"]
        if archive:
            # The parent of such a module need not be published.
            (Path(temporary) / "settings.xml").write_text(_WITHOUT_POMS)
            asked = ["-settings", f"{temporary}/settings.xml", "-types", "tar.gz"]
        told = subprocess.run(
            [
                java_program(), "-jar", str(ivy), "-ivy", str(wanted), "-cache", f"{temporary}/cache", *asked,
                "-retrieve", f"{filled}/[artifact]-[revision].[ext]",
            ],
            capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        if told.returncode != 0 or not filled.is_dir():
            raise RuntimeError(f"The jars of {name} could not be brought:\n{told.stdout[-4000:]}{told.stderr[-2000:]}")
        for packed in filled.glob("*.tar.gz"):
            shutil.unpack_archive(packed, filled, filter="data")
            packed.unlink()
        try:
            filled.rename(folder)
        except OSError:
            # Another run was faster.
            shutil.rmtree(filled, ignore_errors=True)
    return folder
