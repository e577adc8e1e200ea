"""`tidegate autoscale`: which parallelism the autoscaler recommends, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from tidegate.control.cli.jobs import at
from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import BadOption, Block, Line, Output, OutputTable
from tidegate.control.rest.client import Client

if TYPE_CHECKING:
    from tidegate.autoscaler.decision import ScalingDecision
    from tidegate.autoscaler.trace import ScalingTrace


@click.group("autoscale")
def command() -> None:
    """Explain which parallelism the autoscaler recommends, and why."""


@command.command("explain")
@click.argument("job", required=False)
@click.option(
    "--trace",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Replay a recorded trace instead of asking a running job.",
)
@click.option(
    "-D", "settings", multiple=True, metavar="KEY=VALUE", help="With --trace: an option that the job did not have."
)
@at
@with_output
def explain(out: Output, address: str, job: str | None, file: Path | None, settings: tuple[str, ...]) -> None:
    """Show what the autoscaler of JOB would do now, and why; or what it would have done during a recorded trace."""
    if (job is None) == (file is None):
        raise click.UsageError("Give a JOB, or --trace FILE.")
    if file is not None:
        _replay(out, _read(file, settings))
        return
    if settings:
        raise BadOption("-D works with --trace: a running job has its own options.")
    decision = Client(address).ask("GET", f"{_path(job)}")
    out.show(decision, *map(Line, decision["reasons"]))


@command.command("record")
@click.argument("job")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@at
@with_output
def record(out: Output, address: str, job: str, file: Path) -> None:
    """Store what the autoscaler of JOB has seen as a trace in FILE."""
    import msgspec

    from tidegate.autoscaler.trace import ScalingTrace

    trace = msgspec.convert(Client(address).ask("GET", f"{_path(job)}/trace"), ScalingTrace)
    file.write_bytes(trace.to_bytes())
    out.show({"file": str(file), "samples": len(trace.samples)}, Line(f"{len(trace.samples)} samples in {file}."))


def _path(job: str | None) -> str:
    return f"/jobs/{quote(job or '', safe='')}/autoscaler"


def _read(file: Path, settings: Sequence[str]) -> ScalingTrace:
    from tidegate.autoscaler.trace import ScalingTrace
    from tidegate.config.autoscaler import AutoscalerConfig
    from tidegate.config.reading import read_options

    try:
        trace = ScalingTrace.from_bytes(file.read_bytes())
    except ValueError as error:
        raise BadOption(f"{file} is not a trace of the autoscaler: {error}") from None
    if not settings:
        return trace
    pairs = [each.partition("=") for each in settings]
    options: dict[str, Any] = {key: value for key, _, value in pairs}
    # All options of the trace are replaced: one that is not given has its default, not the value of the recorded job.
    return trace.with_config(AutoscalerConfig.of(read_options(options)))


def _replay(out: Output, trace: ScalingTrace) -> None:
    import msgspec

    replayed = trace.replay()
    decisions = [
        {"decision": msgspec.to_builtins(decision), "reasons": list(reasons)} for decision, reasons in replayed
    ]
    if not replayed:
        out.show(
            {"job": trace.job, "decisions": decisions}, Line("The trace has no samples, so there is nothing to decide.")
        )
        return

    # Only where the decision changes: a trace of hours has one decision for each sample.
    start_ms = trace.samples[0].from_ms
    changes = [now for before, now in zip([None, *replayed], replayed) if before is None or _differ(before[0], now[0])]
    rows = [(_clock(each.at_ms - start_ms), str(each.kind), each.parallelism, each.recommended) for each, _ in changes]
    blocks: list[Block] = [OutputTable("", ("Time", "Decision", "Parallelism", "Recommended"), rows), Line("")]
    out.show({"job": trace.job, "decisions": decisions}, *blocks, *map(Line, replayed[-1][1]))


def _differ(before: ScalingDecision, now: ScalingDecision) -> bool:
    return (before.kind, before.parallelism, before.recommended) != (now.kind, now.parallelism, now.recommended)


def _clock(ms: int) -> str:
    """Hours, minutes and seconds since the start of the trace."""
    seconds = ms // 1000
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
