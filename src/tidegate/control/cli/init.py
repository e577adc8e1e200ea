"""`tidegate init NAME`: a project folder with a job that runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import Line, Output


@click.command("init")
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
@with_output
def command(out: Output, folder: Path) -> None:
    """Create the folder NAME with a job, its test, a README and a deployment file.

    The job counts made-up page views, so it runs as it is. NAME may be a path; its last part names the job.
    """
    from tidegate.control.cli.project import Project

    project = Project(folder)
    written = project.create()
    out.show(
        {"project": project.name, "files": [str(path) for path in written]},
        *(Line(f"  {path}") for path in written),
        Line(""),
        Line("Next:"),
        Line(f"  cd {shlex.quote(str(folder))}"),
        Line("  pytest                 # needs pytest: pip install pytest"),
        Line("  tidegate run job.py    # until Ctrl-C; prints the address of the web UI"),
        *_without_java(),
    )


def _without_java() -> list[Line]:
    from tidegate.core.java import JAVA_NEEDED, find_java

    return [] if find_java() else [Line(""), Line(f"Before `tidegate run`: {JAVA_NEEDED}", "yellow")]
