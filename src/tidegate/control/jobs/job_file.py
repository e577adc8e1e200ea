"""Loading a job from the user's file. The file is imported, not run as a program: `if __name__ == "__main__"` is not taken."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tidegate.api.job import LOADED_FILE, Job
from tidegate.checkpoint.metadata import CheckpointMetadata, operators
from tidegate.config import Checkpointing
from tidegate.core.errors import ControlError, TidegateError
from tidegate.core.installed import LIBRARIES
from tidegate.core.nearest import nearest
from tidegate.graph import state_ids
from tidegate.graph.levels import plan
from tidegate.runtime.exchange.user_code import frames_of
from tidegate.savepoint.compatibility import JobNow

log = logging.getLogger("tidegate")


class NoJob(ControlError):
    """A file that was expected to declare a job does not."""

    code = "NO_JOB"


def module_of(path: str) -> ModuleType:
    """Return the module that `load_job` imported from a file."""
    return sys.modules[_name(Path(path))]


def checkpoint_of(path: str) -> Checkpointing | str | None:
    """Return what the loaded file says about checkpoints: `checkpoint = tg.Checkpointing(…)` at its top level.

    Raises `NoJob` for anything else of that name: a job that silently ran without checkpoints would lose its state.
    """
    module = module_of(path)
    checkpoint = getattr(module, "checkpoint", None)
    if checkpoint is not None and not isinstance(checkpoint, Checkpointing | str):
        raise NoJob(f"`checkpoint` in {path} is {type(checkpoint).__name__}; it must be tg.Checkpointing(…).")
    others = [name for name, value in vars(module).items() if isinstance(value, Checkpointing) and name != "checkpoint"]
    if checkpoint is None and others:
        log.warning("%s holds tg.Checkpointing as %s; only `checkpoint` is used", path, ", ".join(others))
    return checkpoint


def load_job(path: str, spark: Any = None, before_spark: Callable[[], None] = lambda: None) -> Job:
    """Return the job that a file declares: its only `Job`, or what `build()` or `build(spark)` returns.

    Only for a `build(spark)` is a Spark session made, unless one is given. `before_spark` is called when the file is imported,
    and before its `build`.
    """
    loading = LOADED_FILE.set(path)
    try:
        return _loaded(path, spark, before_spark)
    except TidegateError as error:
        # The same error, since its code says what it is; a job file is long, and its author looks for the line.
        if (lines := _own_lines(error)) and lines not in str(error):
            error.args = (f"{error}\n{lines}",)
        raise
    finally:
        LOADED_FILE.reset(loading)


def _loaded(path: str, spark: Any, before_spark: Callable[[], None]) -> Job:
    module = _imported(Path(path))
    before_spark()
    build = getattr(module, "build", None)
    if callable(build):
        job = build(*_arguments(build, path, spark))
        if not isinstance(job, Job):
            raise NoJob(f"build() in {path} returned {type(job).__name__}; it must return the Job.")
        return job
    jobs = [value for value in vars(module).values() if isinstance(value, Job)]
    if len(jobs) != 1:
        raise NoJob(
            f"{path} holds {len(jobs) or 'no'} jobs at its top level. Let it define a function `build(spark)` that returns the "
            "one to use."
        )
    return jobs[0]


def declared(
    job: Job,
    snapshot: CheckpointMetadata,
    uids: Mapping[str, str] | None = None,
    renames: Mapping[tuple[str, str], Mapping[str, str]] | None = None,
    drops: Collection[tuple[str, str]] = (),
) -> JobNow:
    """Describe what a job declares, in the terms of a snapshot. New states get numbers after those of `snapshot`, which has the
    names of the job: see `carried_over`."""
    graph = job.graph()
    ids = {(number.uid, number.name): number.id for number in snapshot.state_numbers}
    numbers = state_ids.assign(ids, operators.declared(graph))
    described = operators.describe(graph, plan(graph), job.parallelism or snapshot.parallelism, "", numbers)
    sources = tuple(source.uid for source in graph.sources)
    return JobNow(
        operators=described,
        sources=sources,
        max_parallelism=job.max_parallelism,
        uids=uids or {},
        renames=renames or {},
        drops=drops,
    )


def _name(path: Path) -> str:
    return f"tidegate_job_{path.stem}"


def _imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(_name(path), path)
    if spec is None or spec.loader is None:
        raise NoJob(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)

    # Before it runs: dataclasses and pickle look up the module of a class there.
    sys.modules[spec.name] = module

    # As `python job.py` would: the file may import its neighbours.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except TidegateError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}.{_meant(error)}"
        raise NoJob(f"{path} cannot be imported: {reason}\n{_own_lines(error)}") from error
    finally:
        sys.path.pop(0)
    return module


def _meant(error: BaseException) -> str:
    """Return the suggestion that Python adds when it prints such an error."""
    if not isinstance(error, AttributeError) or error.obj is None or error.name is None:
        return ""
    near = nearest(error.name, dir(error.obj))
    return f" Did you mean {near!r}?" if near else ""


def _own_lines(error: BaseException) -> str:
    """Return the lines of the user's files that led to an error."""
    if isinstance(error, SyntaxError) and error.filename:
        text = (error.text or "").strip()
        return f"  {Path(error.filename).name}:{error.lineno}\n      {text}"
    own = [each for each in frames_of(error) if not each.file.startswith((*LIBRARIES, "<"))]
    return "\n".join(f"  {each.place}\n{each.quoted()}" for each in own)


def _arguments(build: Any, path: str, spark: Any) -> list[Any]:
    required = [
        p
        for p in inspect.signature(build).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if not required:
        return []
    if len(required) > 1:
        names = ", ".join(p.name for p in required)
        raise NoJob(f"build({names}) in {path} takes more than a Spark session. Give the others defaults.")
    if spark is None:
        from tidegate.runtime.driver.session import session

        spark = session(Path(path).stem)
    return [spark]
