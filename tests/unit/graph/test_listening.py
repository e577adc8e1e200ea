"""Which levels have functions that are told what became of checkpoints."""

from __future__ import annotations

import tidegate as tg
from tidegate.graph.levels import plan
from tidegate.graph.listening import listening_levels

ROWS = "word string, n int, at timestamp"


class Told:
    def notify_checkpoint_aborted(self, checkpoint_id):
        pass


class Mapped(tg.MapFunction):
    def map(self, row):
        return row


class ToldMapped(Mapped, tg.CheckpointListener):
    def notify_checkpoint_complete(self, checkpoint_id):
        pass


class Callable(Told):
    def __call__(self, row):
        return row


class Keyed(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield row


class ToldKeyed(Keyed, Told):
    pass


class Windowed(tg.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield (key,)


class ToldWindowed(Windowed, Told):
    pass


class Joined(tg.ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield (left.word,)


class ToldJoined(Joined, Told):
    pass


def levels(build):
    job = tg.Job("job")
    build(job.source("rows", tg.testing.frame(ROWS), event_time="at")).sink("out", tg.CollectSink())
    graph = job.graph()
    return listening_levels(graph, plan(graph))


def mapped(function):
    return lambda rows: rows.map(function, schema=ROWS)


def keyed(function, before=None):
    return lambda rows: (
        (rows if before is None else mapped(before)(rows)).key_by("word").process("op", function, schema=ROWS)
    )


def windowed(function):
    window = tg.TumblingEventTimeWindows.of("1 h")
    return lambda rows: rows.key_by("word").window(window).process("op", function, schema="word string")


def joined(function):
    def build(rows):
        words = rows.key_by("word")
        return words.interval_join("op", words, function=function, lower="-1 h", upper="1 h", schema="word string")

    return build


def test_only_levels_of_functions_with_a_hook_listen():
    assert levels(keyed(Keyed())) == set()
    assert levels(keyed(ToldKeyed())) == {1}
    assert levels(mapped(Mapped())) == set()
    assert levels(mapped(ToldMapped())) == {1}
    assert levels(keyed(Keyed(), before=ToldMapped())) == {0}
    assert levels(keyed(ToldKeyed(), before=ToldMapped())) == {0, 1}


def test_a_plain_callable_is_neither_opened_nor_notified():
    assert levels(mapped(Callable())) == set()


def test_operators_that_call_a_function_have_its_hooks_and_no_others():
    assert levels(windowed(Windowed())) == set()
    assert levels(windowed(ToldWindowed())) == {1}
    assert levels(joined(Joined())) == set()
    assert levels(joined(ToldJoined())) == {1}
