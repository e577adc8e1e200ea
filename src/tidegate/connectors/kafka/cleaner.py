"""Ends the transactions that a lineage has left open. Until then, readers of committed rows wait at their first row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidegate.connectors.kafka.transactions import end_transactions, open_transactions
from tidegate.connectors.sink import LeftOutput
from tidegate.core.ids import Lineage, Uid


class KafkaCleaner:
    """Rows that were never sent are in the job's storage. Markers stay: Kafka removes them when they are old."""

    def __init__(self, bootstrap_servers: str, config: Mapping[str, str], topics: Sequence[str]) -> None:
        self._servers = bootstrap_servers
        self._config = config
        self._topics = topics

    def find(self, lineage: Lineage, sink: Uid) -> Iterator[LeftOutput]:
        for id, group in open_transactions(self._servers, self._config, self._topics, lineage, sink).items():
            yield LeftOutput(kind="open transaction", name=f"{id}, with the offset of group {group}", handle=id)

    def end(self, left: Sequence[LeftOutput]) -> None:
        end_transactions(self._servers, self._config, [each.handle for each in left])
