"""Sends rows to a topic at a steady rate, and notes when a reader of committed rows sees what a job made of them.

A process of its own, so that neither end waits for the driver's threads. The job counts rows by key: an output row `(key, n)`
shows that the first n rows of that key are visible. So no time has to travel through the job, and rows that a job combines
are measured, too.

    python -m benchmarks.latency_load ORDER.json RESULT.npz
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TICK_S = 0.005
_POLL_S = 0.02
_FIRST_OUTPUT_S = 180.0
_DRAIN_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """What to send, and for how long. The warm-up begins when the first output is seen."""

    servers: str
    source: str
    target: str
    partitions: int
    rows_per_s: int
    keys: int
    warm_up_s: float
    measured_s: float
    seed: int = 7


@dataclass(frozen=True, slots=True)
class Seen:
    """Rows in the order in which they were sent, with the times at which they were sent and seen. Seconds since 1970."""

    sent_s: NDArray[np.float64]
    seen_s: NDArray[np.float64]
    """Not a number: not seen."""
    duplicates: int
    """Output rows that were seen more than once."""

    def between(self, begin_s: float, end_s: float) -> Seen:
        """Only the rows that were sent in this time."""
        chosen = (self.sent_s >= begin_s) & (self.sent_s < end_s)
        return Seen(self.sent_s[chosen], self.seen_s[chosen], self.duplicates)

    @property
    def latency_s(self) -> NDArray[np.float64]:
        return self.seen_s - self.sent_s


def match(
    sent_keys: NDArray[np.int64], sent_s: NDArray[np.float64],
    keys: NDArray[np.int64], counts: NDArray[np.int64], times_s: NDArray[np.float64],
) -> Seen:  # fmt: skip
    """Find out when each row was seen: with the first output row of its key whose count includes it."""
    order = np.argsort(sent_keys, kind="stable")
    ordered = sent_keys[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.empty(0, np.int64)
    lengths = np.diff(np.r_[begins, len(ordered)])
    numbers = np.empty(len(ordered), np.int64)
    numbers[order] = np.arange(len(ordered)) - np.repeat(begins, lengths) + 1
    wanted = (sent_keys << 32) + numbers
    shown = (keys << 32) + counts
    ranked = np.lexsort((times_s, shown))
    shown, shown_s, shown_keys = shown[ranked], times_s[ranked], keys[ranked]
    place = np.searchsorted(shown, wanted)
    found = place < len(shown)
    place = np.minimum(place, max(0, len(shown) - 1))
    seen_s = np.full(len(wanted), np.nan)
    if len(shown):
        found &= shown_keys[place] == sent_keys
        seen_s[found] = shown_s[place[found]]
    return Seen(sent_s, seen_s, int(len(shown) - len(np.unique(shown))))


class Load:
    """Sends on the calling thread and reads on another one."""

    def __init__(self, order: LoadOrder) -> None:
        import confluent_kafka as ck

        self._order = order
        self._producer = ck.Producer(
            {"bootstrap.servers": order.servers, "linger.ms": 1, "queue.buffering.max.messages": 1_000_000}
        )
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": order.servers,
                "group.id": f"load-{order.target}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                # Otherwise a broker may hold back what has just been committed for half a second.
                "fetch.wait.max.ms": 10,
            }
        )
        places = [ck.TopicPartition(order.target, partition, 0) for partition in range(order.partitions)]
        self._consumer.assign(places)
        self._random = np.random.default_rng(order.seed)
        self._names = [f"user-{number}".encode() for number in range(order.keys)]
        self._sent_keys: list[NDArray[np.int64]] = []
        self._sent_at: list[tuple[float, int]] = []
        self._rows: list[tuple[int, int]] = []
        self._seen_at: list[tuple[float, int]] = []
        self._first = threading.Event()
        self._over = threading.Event()
        self._latest_s = 0.0
        self._failure: BaseException | None = None

    def run(self) -> dict[str, Any]:
        reading = threading.Thread(target=self._read, name="reader", daemon=True)
        reading.start()
        begin_s, end_s = self._send()
        drained = self._drain(end_s)
        self._over.set()
        reading.join()
        if self._failure is not None:
            raise self._failure
        keys, counts = np.array(self._rows, np.int64).reshape(-1, 2).T
        return {
            "sent_keys": np.concatenate(self._sent_keys),
            "sent_s": np.repeat([at for at, _ in self._sent_at], [count for _, count in self._sent_at]),
            "keys": keys,
            "counts": counts,
            "times_s": np.repeat([at for at, _ in self._seen_at], [count for _, count in self._seen_at]),
            "begin_s": begin_s,
            "end_s": end_s,
            "latest_s": self._latest_s,
            "drained": drained,
        }

    def _send(self) -> tuple[float, float]:
        """Send until the measured time is over. Return when it began and ended."""
        order = self._order
        started, sent, begin = time.time(), 0, None
        while True:
            now = time.time()
            if self._failure is not None:
                raise self._failure
            if begin is None:
                if self._first.is_set():
                    begin = now + order.warm_up_s
                elif now - started > _FIRST_OUTPUT_S:
                    raise TimeoutError(f"The job has sent nothing for {_FIRST_OUTPUT_S:g} s.")
            elif now >= begin + order.measured_s:
                self._producer.flush(30)
                return begin, begin + order.measured_s
            due = int((now - started) * order.rows_per_s) - sent
            if due > 0:
                self._send_some(due)
                sent += due
            if begin is not None and now >= begin:
                self._latest_s = max(self._latest_s, time.time() - now)
            time.sleep(_TICK_S)

    def _send_some(self, count: int) -> None:
        keys = self._random.integers(0, self._order.keys, count)
        produce, names, partitions, topic = (
            self._producer.produce, self._names, self._order.partitions, self._order.source,
        )  # fmt: skip
        self._sent_at.append((time.time(), count))
        for key in keys.tolist():
            produce(topic, b"", names[key], key % partitions)
        self._producer.poll(0)
        self._sent_keys.append(keys)

    def _read(self) -> None:
        try:
            while not self._over.is_set():
                messages = self._consumer.consume(20_000, _POLL_S)
                now = time.time()
                rows = [
                    (int(message.key()[5:]), int(message.value())) for message in messages if message.error() is None
                ]
                if rows:
                    self._rows += rows
                    self._seen_at.append((now, len(rows)))
                    self._first.set()
        except BaseException as error:
            self._failure = error
        finally:
            self._consumer.close()

    def _drain(self, end_s: float) -> bool:
        """Wait until every row has been seen. Return whether that was in time."""
        wanted = np.bincount(np.concatenate(self._sent_keys), minlength=self._order.keys)
        shown = np.zeros(self._order.keys, np.int64)
        at = 0
        while time.time() < end_s + _DRAIN_S and self._failure is None:
            until = len(self._rows)
            for key, count in self._rows[at:until]:
                shown[key] = max(shown[key], count)
            at = until
            if (shown >= wanted).all():
                return True
            time.sleep(0.2)
        return False


def main() -> int:
    order = LoadOrder(**json.loads(Path(sys.argv[1]).read_text()))
    found = Load(order).run()
    with Path(sys.argv[2]).open("wb") as file:
        np.savez(file, **found)
    return 0


def written(order: LoadOrder, folder: Path) -> Path:
    """Store an order for the process."""
    path = folder / "order.json"
    path.write_text(json.dumps(asdict(order)))
    return path


if __name__ == "__main__":
    sys.exit(main())
