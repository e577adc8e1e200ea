"""Count words in event-time windows of 30 seconds.

    python examples/windowed_word_count.py

Each line of a JSON file has a word and the time at which it was said. Words arrive up to five seconds out of order. One word is
too late for its window and goes to a side output.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import tidegate as tg

BATCHES = [
    [("to", 1), ("be", 2), ("or", 33), ("to", 29)],
    [("not", 36), ("to", 34), ("be", 40)],
    [("question", 90)],
    [("to", 3), ("question", 91)],
]
"""Words and the second at which they were said. The last "to" belongs to a window that has already fired."""


def count(words):
    """Sum up `n` by word and window; rows that are too late go to the side output `late`."""
    return (
        words.key_by("word")
        .window(tg.TumblingEventTimeWindows.of("30 s"))
        .side_output_late_data("late")
        .reduce("counter", lambda a, b: (a.word, a.ts, a.n + b.n))
    )


def build(spark, folder, out=None, late=None) -> tg.Job:
    job = tg.Job("windowed-word-count", parallelism=2)
    said = spark.readStream.schema("word string, at double").option("maxFilesPerTrigger", 1).json(folder)
    words = job.source(
        "words",
        said.selectExpr("word", "timestamp_seconds(at) AS ts", "1 AS n"),
        event_time="ts",
        out_of_orderness="5 s",
    )
    counts = count(words)
    counts.map(lambda row: (row.word, row.n), schema="word string, n int").sink(
        "out", out or tg.PrintSink(prefix="window ")
    )
    counts.side_output("late").sink("late", late or tg.PrintSink(prefix="late   "))
    return job


def main() -> None:
    spark = tg.session("windowed-word-count")
    with tempfile.TemporaryDirectory() as folder:
        for number, batch in enumerate(BATCHES):
            lines = [json.dumps({"word": word, "at": at}) for word, at in batch]
            path = Path(folder) / f"{number}.json"
            path.write_text("\n".join(lines))
            os.utime(path, (number, number))  # Spark reads files in the order of their modification times
        job = build(spark, folder)
        print(job.explain())
        job.run(trigger="available-now")
    spark.stop()


if __name__ == "__main__":
    main()
