"""Count words, with state that belongs to the operator "counter".

    python examples/word_count.py

The job reads three text files, one per epoch. It keeps the count of every word in the Python workers and prints each new
count.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tidegate as tg

LINES = ["to be or not to be", "that is the question", "to sleep to dream"]


class WordCounter(tg.KeyedProcessFunction):
    """Emit each word with its count so far."""

    counter = tg.ValueState(int, default=0)

    def process_element(self, row, ctx) -> Iterator[tuple[str, int]]:
        self.counter.update(self.counter.value() + 1)
        yield row.word, self.counter.value()


def build(spark, lines, sink=None) -> tg.Job:
    job = tg.Job("word-count", parallelism=2)
    words = job.source("lines", spark.readStream.option("maxFilesPerTrigger", 1).text(lines)).flat_map(
        lambda row: [(word,) for word in row.value.split()], schema="word string", name="split"
    )
    counts = words.key_by("word").process("counter", WordCounter(), schema="word string, n bigint")
    counts.sink("out", sink or tg.PrintSink())
    return job


def main() -> None:
    spark = tg.session("word-count")
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder)
        if len(sys.argv) == 1:
            for number, line in enumerate(LINES):
                (lines / f"{number}.txt").write_text(line)
        job = build(spark, str(lines))
        print(job.explain())
        job.run(trigger="available-now")
    spark.stop()


if __name__ == "__main__":
    main()
