"""Count words that come over the network, in windows of 30 seconds.

    python examples/network_word_count.py                             words over a TCP connection that the program serves itself
    python examples/network_word_count.py --socket 127.0.0.1:9999     from `nc -lk 9999`
    python examples/network_word_count.py --kafka 127.0.0.1:9092      from the topic `words`

A line is a second and a word: `31 question`. A socket keeps no row that was read, so a job with checkpoints refuses it unless you
accept the loss (`at_most_once=True`); here it runs without checkpoints. Kafka keeps its rows, and each word counts exactly once.
"""

from __future__ import annotations

import argparse
import socket
import threading

import tidegate as tg

LINES = ["1 to", "2 be", "33 or", "29 to", "36 not", "34 to", "40 be", "90 question"]
"""Out of order by up to five seconds. The last word is so late that the windows before it are complete."""


def from_socket(spark, host: str, port: int):
    return spark.readStream.format("socket").option("host", host).option("port", port).load()


def from_kafka(spark, servers: str, topic: str = "words"):
    return tg.kafka_source(spark, servers, topic).selectExpr("cast(value AS string) AS value")


def build(lines, out=None) -> tg.Job:
    """`lines`: a stream with a column `value`."""
    job = tg.Job("network-word-count", parallelism=2)
    said = lines.selectExpr(
        "split(value, ' ')[1] AS word", "timestamp_seconds(double(split(value, ' ')[0])) AS ts", "1 AS n"
    )
    counts = (
        job.source("words", said, event_time="ts", out_of_orderness="5 s")
        .key_by("word")
        .window(tg.TumblingEventTimeWindows.of("30 s"))
        .reduce("counter", lambda a, b: (a.word, a.ts, a.n + b.n))
    )
    counts.map(lambda row: (row.word, row.n), schema="word string, n int").sink(
        "out", out or tg.PrintSink(prefix="window ")
    )
    return job


class Speaker:
    """A server that says the lines to whoever connects."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listening.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        # Spark connects once to look, and once to read.
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=self._speak, args=(connection,), daemon=True).start()

    def _speak(self, connection: socket.socket) -> None:
        connection.sendall("".join(f"{line}\n" for line in self._lines).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--socket", metavar="HOST:PORT", help="read lines from there, until Ctrl-C")
    parser.add_argument("--kafka", metavar="SERVERS", help="read the topic `words` of this broker, until Ctrl-C")
    options = parser.parse_args()
    spark = tg.session("network-word-count")
    if options.kafka:
        checkpoint = tg.Checkpointing(dir="checkpoints/network-word-count", interval="5 s")
        build(from_kafka(spark, options.kafka)).run(checkpoint=checkpoint)
    elif options.socket:
        host, _, port = options.socket.rpartition(":")
        build(from_socket(spark, host, int(port))).run()
    else:
        speaker = Speaker(LINES)
        found = threading.Event()

        def show(rows, epoch) -> None:
            for row in rows:
                print(f"window word={row.word!r} n={row.n}")
                if row.word == "not":  # a word of the last window that is complete
                    found.set()

        run = build(from_socket(spark, speaker.host, speaker.port), tg.CallbackSink(show)).start(spark)
        found.wait(60)
        run.cancel()
    spark.stop()


if __name__ == "__main__":
    main()
