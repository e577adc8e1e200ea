"""`tidegate state`: the entries in a checkpoint or savepoint, without Spark and without the job's code."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import click

from tidegate.control.cli.main import speaks
from tidegate.control.cli.output import NO, Line, Output, OutputTable


@click.group("state")
def command() -> None:
    """Inspect the state of a checkpoint or savepoint."""


@command.command("show")
@click.argument("path")
@click.argument("uid", required=False)
@click.argument("state", required=False)
@click.option("--limit", default=20, show_default=True, help="How many entries to show.")
@speaks
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
        entries = list(islice(reader.entries(uid, state), limit + 1))
    shown, more = [_entry(entry) for entry in entries[:limit]], len(entries) > limit
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
@click.option("--window", nargs=2, type=int, metavar="START END", help="The window, in milliseconds since 1970.")
@speaks
def get(
    out: Output,
    path: str,
    uid: str,
    state: str,
    key: tuple[str, ...],
    map_key: str | None,
    window: tuple[int, int] | None,
) -> int:
    """Show what STATE of UID holds for KEY: one value for each key column. Exit code 1 if there is nothing.

    Fetches the files of one task only.
    """
    from tidegate.control.texts import jsonable, key_from, value_from
    from tidegate.savepoint.reader import SnapshotReader
    from tidegate.savepoint.snapshot import StoredSnapshot
    from tidegate.state.keys import TimeWindow

    snapshot = StoredSnapshot.open(path)
    layout = snapshot.layout(uid, state)
    wanted = key_from(key, layout.key_types)
    more: dict[str, Any] = {}
    if map_key is not None:
        if layout.map_key is None:
            raise click.UsageError(f"{uid}/{state} is not a map, so it has no --map-key.")
        more["map_key"] = value_from(map_key, layout.map_key)
    with SnapshotReader(snapshot) as reader:
        found = reader.get(uid, state, wanted, TimeWindow(*window) if window else None, **more)
    there = found is not None and found != [] and found != {}
    value = jsonable(found)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    document = {"operator": uid, "state": state, "key": jsonable(wanted), "found": there, "value": value}
    out.show(document, Line(text if there else "Nothing is stored under this key."))
    return 0 if there else NO


@command.command("export")
@click.argument("path")
@click.argument("uid")
@click.argument("state")
@click.option("--to", "target", required=True, type=click.Path(dir_okay=False), help="A .parquet, .jsonl or .csv file.")
@speaks
def export(out: Output, path: str, uid: str, state: str, target: str) -> None:
    """Write all entries of STATE of UID into one local file."""
    from tidegate.control.export import export_state
    from tidegate.savepoint.snapshot import StoredSnapshot

    snapshot = StoredSnapshot.open(path)
    total = sum(task.size_bytes for task in snapshot.tasks_of(uid))
    with out.progress(f"Exporting {uid}/{state}", total) as done:
        count = export_state(snapshot, uid, state, target, done)
    out.show({"entries": count, "path": target}, Line(f"Exported {count} entries. Path: {target}"))


_COLUMNS = {
    "key_group": "Key group", "key": "Key", "namespace": "Namespace", "map_key": "Map key", "position": "Position",
    "value": "Value", "stamp": "Renewed",
}  # fmt: skip


def _entry(entry: Any) -> dict[str, Any]:
    from tidegate.control.texts import jsonable

    return {name: jsonable(getattr(entry, name)) for name in _COLUMNS}
