"""`tidegate state`: the entries in a checkpoint or savepoint, without Spark and without the job's code."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import NO, Line, Output, OutputTable

if TYPE_CHECKING:
    from tidegate.savepoint.reader import SnapshotReader


@click.group("state")
def command() -> None:
    """Inspect the state of a checkpoint or savepoint."""


@command.command("show")
@click.argument("path")
@click.argument("uid", required=False)
@click.argument("state", required=False)
@click.option("--limit", default=20, show_default=True, help="How many entries to show.")
@with_output
def show(out: Output, path: str, uid: str | None, state: str | None, limit: int) -> None:
    """List the states in PATH; with UID and STATE, show their first entries."""
    from tidegate.control.cli.describe import state_table, states
    from tidegate.savepoint.reader import SnapshotReader
    from tidegate.savepoint.snapshot import StoredSnapshot

    snapshot = StoredSnapshot.open(path)
    if uid is None:
        out.show({"states": states(snapshot.metadata)}, state_table(snapshot.metadata))
        return
    if state is None:
        names = [info.name for info in snapshot.operator(uid).states]
        if len(names) != 1:
            raise click.UsageError(f"{uid!r} has several states; name one of {', '.join(names)}.")
        [state] = names
    with SnapshotReader(snapshot) as reader:
        # One more than is shown, to know whether there are more.
        entries = list(islice(reader.entries(uid, state), limit + 1))
    shown = [_entry(entry) for entry in entries[:limit]]
    more = len(entries) > limit

    # A plain value has neither a namespace nor a map key: columns without content are left out.
    columns = [name for name in _COLUMNS if name in ("key", "value") or any(e[name] is not None for e in shown)]
    out.show(
        {"operator": uid, "state": state, "entries": shown, "more": more},
        OutputTable(f"{uid}/{state}", [_COLUMNS[c] for c in columns], [[entry[c] for c in columns] for entry in shown]),
        *([Line("… and more; --limit shows them, `state export` writes all.", "dim")] if more else []),
    )


@command.command("get")
@click.argument("path")
@click.argument("uid")
@click.argument("state")
@click.argument("key", nargs=-1, required=True)
@click.option("--map-key", help="One entry of a map.")
@click.option(
    "--window",
    nargs=2,
    metavar="START END",
    help="The window: two times such as 2026-05-01T12:00, or milliseconds since 1970.",
)
@with_output
def get(
    out: Output,
    path: str,
    uid: str,
    state: str,
    key: tuple[str, ...],
    map_key: str | None,
    window: tuple[str, str] | None,
) -> int:
    """Show what STATE of UID holds for KEY: one value for each key column. Exit code 1 if there is nothing.

    Fetches the files of one task only.
    """
    from tidegate.control.jobs.texts import jsonable, key_from, value_from
    from tidegate.savepoint.reader import SnapshotReader
    from tidegate.savepoint.snapshot import StoredSnapshot
    from tidegate.state.keys.entry_keys import TimeWindow

    snapshot = StoredSnapshot.open(path)
    layout = snapshot.layout(uid, state)
    typed_key = key_from(key, layout.key_types)
    more: dict[str, Any] = {}
    if map_key is not None:
        if layout.map_key is None:
            raise click.UsageError(f"{uid}/{state} is not a map, so it has no --map-key.")
        more["map_key"] = value_from(map_key, layout.map_key)
    with SnapshotReader(snapshot) as reader:
        namespace = TimeWindow(_ms(window[0]), _ms(window[1])) if window else None
        stored = reader.get(uid, state, typed_key, namespace, **more)
        # Lists and maps that were never written read as empty ones.
        is_stored = stored is not None and stored != [] and stored != {}
        # State of windows has no value outside of one. "Nothing" would be wrong then: the key has a value for each window.
        if not is_stored and window is None and (windows := _windows_of(reader, uid, state, typed_key)):
            raise click.UsageError(_needs_window(uid, state, key, windows))
    value = jsonable(stored)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    document = {"operator": uid, "state": state, "key": jsonable(typed_key), "found": is_stored, "value": value}
    out.show(document, Line(text if is_stored else "Nothing is stored under this key."))
    return 0 if is_stored else NO


@command.command("export")
@click.argument("path")
@click.argument("uid")
@click.argument("state")
@click.option("--to", "target", required=True, type=click.Path(dir_okay=False), help="A .parquet, .jsonl or .csv file.")
@with_output
def export(out: Output, path: str, uid: str, state: str, target: str) -> None:
    """Write all entries of STATE of UID into one local file."""
    from tidegate.control.jobs.export import export_state
    from tidegate.savepoint.snapshot import StoredSnapshot

    snapshot = StoredSnapshot.open(path)
    total = sum(task.size_bytes for task in snapshot.tasks_of(uid))
    with out.progress(f"Exporting {uid}/{state}", total) as done:
        count = export_state(snapshot, uid, state, target, done)
    out.show({"entries": count, "path": target}, Line(f"Exported {count} entries. Path: {target}"))


def _ms(text: str) -> int:
    """Return a time as milliseconds since 1970. Without an offset it is UTC, as `state show` prints it."""
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--window: {text!r} is no time. Write 2026-05-01T12:00 or milliseconds since 1970."
        ) from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _windows_of(reader: SnapshotReader, uid: str, state: str, key: Any) -> list[tuple[int, int]]:
    from tidegate.state.keys.entry_keys import TimeWindow

    namespaces = (entry.namespace for entry in reader.entries(uid, state) if entry.key == key)
    return sorted({(each.start_ms, each.end_ms) for each in namespaces if isinstance(each, TimeWindow)})


def _needs_window(uid: str, state: str, key: tuple[str, ...], windows: list[tuple[int, int]]) -> str:
    def shown(ms: int) -> str:
        return datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None).isoformat(timespec="auto")

    listed = [f"  --window {shown(start)} {shown(end)}" for start, end in windows[:_MOST_WINDOWS]]
    more = [f"  … and {len(windows) - _MOST_WINDOWS} more"] if len(windows) > _MOST_WINDOWS else []
    key_text = " ".join(key)
    return "\n".join([f"{uid}/{state} has a value for each window. Name one; {key_text!r} has:", *listed, *more])


_MOST_WINDOWS = 10
_COLUMNS = {
    "key_group": "Key group",
    "key": "Key",
    "namespace": "Namespace",
    "map_key": "Map key",
    "position": "Position",
    "value": "Value",
    "stamp": "Renewed",
}


def _entry(entry: Any) -> dict[str, Any]:
    from tidegate.control.jobs.texts import jsonable

    return {name: jsonable(getattr(entry, name)) for name in _COLUMNS}
