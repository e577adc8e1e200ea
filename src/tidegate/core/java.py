"""The Java that Spark would start, and what to say if there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

NEEDED_VERSION = 17

JAVA_NEEDED = (
    f"Spark needs Java {NEEDED_VERSION} or later. Install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17; any system: a JDK from adoptium.net), or set JAVA_HOME to the "
    "folder of one that is installed."
)


def find_java() -> str | None:
    """Return the program that Spark runs: that of JAVA_HOME, or else `java` on the path. None if there is no such file."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")


def java_problem() -> str | None:
    """Return what is wrong with the Java on this machine, as a sentence. None if it suits, or if its version is unknown."""
    home = os.environ.get("JAVA_HOME")
    java = find_java()
    if java is None:
        return f"JAVA_HOME is {home!r}, and has no bin/java." if home else "There is no `java` on the PATH."
    try:
        # `java -version` prints to standard error.
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} cannot be run: {error}."
    # Java 8 and older call themselves 1.8.
    match = re.search(r'version "(?:1\.)?(\d+)', printed)
    if match is None or int(match[1]) >= NEEDED_VERSION:
        return None
    return f"{java} is Java {match[1]}."
