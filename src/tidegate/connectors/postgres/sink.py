"""A table of a PostgreSQL database.

By default, rows wait in the job's storage as text for COPY, and are copied when their checkpoint is complete, in one
transaction with the marker. With `two_phase`, each task copies them into the table in its own transaction, prepared and
invisible, which is only committed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tidegate.connectors.dataset_names import DatasetName
from tidegate.connectors.sink import (
    Committer,
    CommitterContext,
    OutputCleaner,
    PublishesIn,
    SinkWriter,
    WriterContext,
)
from tidegate.core.errors import GraphError
from tidegate.core.guarantee import Guarantee


@dataclass(frozen=True)
class PostgresSink:
    """Rows into `table` (`"totals"` or `"shop.totals"`), with columns matched by name.

    `conninfo` is libpq's: `"host=db dbname=shop user=tide"`, a `postgresql://` address, or empty to use the environment.
    `mode="upsert"` with `key=["user"]` keeps the latest row of each key. `two_phase=True` is for append-only tables, on a
    server that allows prepared transactions.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    publishes_in: ClassVar[PublishesIn] = "task"
    commits_small_in_driver: ClassVar[bool] = True

    conninfo: str = field(repr=False)
    table: str
    mode: str = "append"
    key: Sequence[str] = ()
    two_phase: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            raise GraphError(f"key is a list of columns: write key=[{self.key!r}].")
        object.__setattr__(self, "key", tuple(self.key))
        if self.mode not in ("append", "upsert"):
            raise GraphError(f"The mode of a PostgreSQL sink is 'append' or 'upsert', not {self.mode!r}.")
        if (self.mode == "upsert") != bool(self.key):
            raise GraphError(
                "mode='upsert' and key=[…] belong together: the key determines which row is replaced."
                if self.mode == "upsert"
                else "A key requires mode='upsert'; appended rows do not replace others."
            )
        if self.two_phase and self.mode == "upsert":
            raise GraphError(
                "two_phase keeps locks until a checkpoint completes, so an upsert of the same key in the next epoch "
                "would wait for it. Omit two_phase: the default is also exactly-once."
            )

    @property
    def dataset(self) -> DatasetName:
        """What lineage services call it. Contains host and database, never credentials."""
        from psycopg.conninfo import conninfo_to_dict

        found = conninfo_to_dict(self.conninfo)
        host, port, database = (
            found.get("host", "localhost"),
            found.get("port", "5432"),
            found.get("dbname", "postgres"),
        )
        return f"postgres://{host}:{port}", f"{database}.{self.table if '.' in self.table else f'public.{self.table}'}"

    def create_writer(self, context: WriterContext) -> SinkWriter:
        from tidegate.connectors.postgres.writer import CopyWriter, PreparingWriter  # Imported late, for a fast start.

        if self.two_phase:
            return PreparingWriter(self.conninfo, self.table, context)
        return CopyWriter(context, self.key)

    def create_committer(self, context: CommitterContext) -> Committer:
        """Raise TableRefused if the table cannot take the rows of the stream."""
        from tidegate.connectors.postgres.committer import PostgresCommitter  # Imported late, for a fast start.

        for name in self.key:
            # Raises for a key column that the stream does not have.
            context.schema.index(name)
        committer = PostgresCommitter(
            self.conninfo,
            self.table,
            context,
            key=self.key,
            two_phase=self.two_phase,
            description=self.describe(),
        )
        committer.check()
        return committer

    def create_cleaner(self) -> OutputCleaner:
        from tidegate.connectors.postgres.cleaner import PostgresCleaner  # Imported late, for a fast start.

        return PostgresCleaner(self.conninfo)

    def describe(self) -> str:
        how = f"upserts by {', '.join(self.key)}" if self.key else "appends"
        return f"{how} to the PostgreSQL table {self.table}" + (", in two phases" if self.two_phase else "")
