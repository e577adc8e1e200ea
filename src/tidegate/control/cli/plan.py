"""`tidegate plan`: what a job of given rates, keys and state needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import NO, BadOption, Block, Facts, Line, Output, OutputTable
from tidegate.core.durations import duration_ms, size_bytes


def _number(text: str) -> float:
    return float(text.replace("_", "").replace(",", ""))


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click
    """A number with or without a unit."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._read = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        # A default is a number already.
        if not isinstance(value, str):
            return float(value)
        try:
            number = self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 0 < number < float("inf"):
            self.fail(f"{value} is not above 0", param, ctx)
        return number


NUMBER = Quantity("number", _number)
DURATION = Quantity("duration", lambda text: duration_ms(text) / 1000)
SIZE = Quantity("size", size_bytes)


@click.command("plan")
@click.option("--rows", type=NUMBER, help="Rows per second that the job reads, such as 1e6.")
@click.option("--keys", type=NUMBER, help="Different keys in state.")
@click.option("--state-per-key", type=SIZE, help="Bytes of state of one key, all its states together.")
@click.option("--row-size", type=SIZE, default="200", show_default=True, help="Bytes of one row.")
@click.option(
    "--distribution",
    type=click.Choice(["uniform", "80-20"]),
    default="uniform",
    show_default=True,
    help="How rows are spread over keys; 80-20: 80 % of the rows have 20 % of the keys.",
)
@click.option("--changed-keys", type=NUMBER, help="Different keys that change per second, instead of a distribution.")
@click.option(
    "--function",
    type=click.Choice(["row", "batch", "aggregate"]),
    default="row",
    show_default=True,
    help="A function for each row, for batches, or a built-in aggregate.",
)
@click.option("--levels", type=click.IntRange(1), default=1, show_default=True, help="Keyed levels with state.")
@click.option("--epoch", type=DURATION, default="10 s", show_default=True, help="How long an epoch takes to collect.")
@click.option("--interval", type=DURATION, default="1 min", show_default=True, help="Checkpoint interval.")
@click.option("--timeout", type=DURATION, default="10 min", show_default=True, help="Checkpoint timeout.")
@click.option("--changelog", is_flag=True, help="With state.changelog.enabled.")
@click.option("--materialize", type=DURATION, default="10 min", show_default=True, help="Time between whole versions.")
@click.option("--retained", type=click.IntRange(1), default=1, show_default=True, help="Retained checkpoints.")
@click.option("--cores", type=click.IntRange(1), default=8, show_default=True, help="Cores of an executor.")
@click.option(
    "--uplink",
    type=SIZE,
    default="125000000",
    help="Bytes per second between an executor and storage.  [default: 1 Gbit/s]",
)
@click.option(
    "--sinks",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Sinks whose rows wait in the job's storage: Kafka, PostgreSQL, write-ahead functions.",
)
@click.option("--output-rows", type=NUMBER, help="Rows per second for each of them.  [default: as many as are read]")
@click.option("--parallelism", type=click.IntRange(1), help="Instead of the computed one.")
@click.option("--directory", is_flag=True, help="Storage is a directory: requests cost nothing.")
@click.option(
    "--constant", "given", multiple=True, metavar="NAME=VALUE", help="Replace a constant by your own measurement."
)
@click.option(
    "--constants",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same, from a TOML file.",
)
@click.option("--show-constants", is_flag=True, help="List the constants with their sources, and end.")
@with_output
def command(out: Output, given: tuple[str, ...], file: Path | None, show_constants: bool, **asked: Any) -> int:
    """Compute what a job needs: cores, memory, disk, uploads, requests and their cost, recovery time and latency.

    A model with constants that were measured on two cores. It warns where it extrapolates; exit code 1: it cannot work.
    """
    from tidegate.control.capacity.constants import Constants, read_constants
    from tidegate.control.capacity.model import FunctionKind, KeyDistribution, Workload, capacity

    try:
        constants = Constants(read_constants(given, None if file is None else file.read_text()))
    except (OSError, ValueError) as error:
        raise BadOption(str(error)) from None
    if show_constants:
        listed = [asdict(each) for each in constants.all]
        rows = [(each.name, f"{each.value:g}", each.unit, each.source) for each in constants.all]
        out.show({"constants": listed}, OutputTable("", ("Constant", "Value", "Unit", "Source"), rows))
        return 0

    # Required here and not by click, since --show-constants works without them.
    if missing := [f"--{name.replace('_', '-')}" for name in ("rows", "keys", "state_per_key") if asked[name] is None]:
        raise click.UsageError(f"Missing {', '.join(missing)}.")
    work = Workload(
        rows_per_s=asked["rows"],
        keys=asked["keys"],
        state_bytes_per_key=asked["state_per_key"],
        row_bytes=asked["row_size"],
        distribution=KeyDistribution(asked["distribution"]),
        changed_keys_per_s=asked["changed_keys"],
        function=FunctionKind(asked["function"]),
        levels=asked["levels"],
        epoch_s=asked["epoch"],
        interval_s=asked["interval"],
        changelog=asked["changelog"],
        materialize_s=asked["materialize"],
        retained=asked["retained"],
        cores_per_executor=asked["cores"],
        uplink_bytes_per_s=asked["uplink"],
        timeout_s=asked["timeout"],
        parallelism=asked["parallelism"],
        priced=not asked["directory"],
        staged_sinks=asked["sinks"],
        output_rows_per_s=asked["output_rows"],
    )
    result = capacity(work, constants)
    document = {
        "workload": asdict(work),
        "capacity": asdict(result),
        "constants": {each.name: each.value for each in constants.all},
    }
    out.show(document, *_blocks(result, work.priced))
    return NO if result.impossible else 0


def _blocks(result: Any, priced: bool) -> list[Block]:
    requests = result.requests
    size = [
        ("Cores busy with rows", f"{result.cores:,.1f}"),
        ("Executors", f"{result.executors:,}"),
        ("Parallelism (slots)", f"{result.parallelism:,}"),
        ("Key groups (max_parallelism)", f"{result.max_parallelism:,}"),
        ("Input", f"{_bytes(result.input_bytes_per_s)}/s"),
        ("State", f"{_bytes(result.state_bytes)}, {_bytes(result.state_bytes_per_slot)} in a slot"),
        ("Memory of an executor", _bytes(result.memory_per_executor)),
        ("Local disk of an executor", _bytes(result.disk_per_executor)),
        ("Memory of the driver", _bytes(result.driver_memory)),
    ]
    checkpoints = [
        ("Changed in an interval", _bytes(result.changed_bytes)),
        ("Uploaded by a checkpoint", _bytes(result.upload_bytes)),
        ("Uploaded next to a changelog", f"{_bytes(result.background_bytes_per_s)}/s"),
        (
            "Uploaded in all",
            f"{_bytes(result.upload_bytes_per_s)}/s, {_bytes(result.upload_bytes_per_s_per_executor)}/s by an executor",
        ),
        (
            "Staged output",
            f"{_bytes(result.staged_bytes_per_s)}/s, {result.staged_objects:,.0f} objects; {result.inline_share:.0%} needs none",
        ),
        ("Duration", f"{_seconds(result.checkpoint_s)}; the first one {_seconds(result.first_checkpoint_s)}"),
        ("Metadata", _bytes(result.metadata_bytes)),
        ("Processor time of the driver", _seconds(result.driver_cpu_s)),
        (
            "Requests",
            f"{requests.writes:,} writes, {requests.lists:,} lists, {requests.reads:,} reads, {requests.deletes:,} deletes",
        ),
        ("Requests per month", f"{result.requests_per_month:,.0f}{_cost(result.request_cost_per_month, priced)}"),
        ("Stored", f"{_bytes(result.stored_bytes)}{_cost(result.storage_cost_per_month, priced)}"),
    ]
    recovery = [
        ("After losing an executor", _seconds(result.restore_host_s)),
        ("After losing everything", f"{_seconds(result.restore_all_s)}, and {_seconds(result.catch_up_s)} to catch up"),
        ("Exactly-once output", f"after {_seconds(result.latency_s)}, at most {_seconds(result.longest_latency_s)}"),
    ]
    blocks: list[Block] = [
        Facts("Size", size),
        Facts("Checkpoints", checkpoints),
        Facts("Recovery and latency", recovery),
    ]

    # Last, where a terminal still shows them after a long answer.
    blocks += [Line("\nBeyond what was measured:")] if result.warnings else []
    blocks += [Line(f"- {text}") for text in result.warnings]
    blocks += [Line("\nThis cannot work:", "bold red")] if result.impossible else []
    return blocks + [Line(f"- {text}") for text in result.impossible]


def _cost(dollars: float, priced: bool) -> str:
    return f" (about ${dollars:,.2f} a month)" if priced else ""


def _bytes(count: float) -> str:
    for step, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= step:
            return f"{count / step:,.3g} {unit}" if count < 1000 * step else f"{count / step:,.0f} {unit}"
    return f"{count:,.0f} B"


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7_200 else f"{seconds / 3_600:,.1f} h"
