"""Functions that are told what became of checkpoints, in the harness."""

from __future__ import annotations

from datetime import UTC, datetime
from pydoc import locate

import pytest

import tidegate as tg
from tidegate.core.errors import StateUnbound


class OtherSystem(list[str]):
    """There is one, also for functions that are sent by value, as those of tests are once another test has asked for it."""

    def __reduce__(self):
        return locate, (f"{__name__}.PUBLISHED",)


PUBLISHED = OtherSystem()


@pytest.fixture(autouse=True)
def nothing_published():
    PUBLISHED.clear()


class Letters(tg.MapFunction, tg.CheckpointedFunction, tg.CheckpointListener):
    """Publishes what it has seen once it is in a checkpoint, as the contract of the hooks demands."""

    waiting = tg.ListState(tuple[int, str], operator=True)

    def initialize_state(self, ctx):
        self.seen = []

    def map(self, row):
        self.seen.append(row.letter)
        return row

    def snapshot_state(self, ctx):
        self.waiting.add_all([(ctx.get_checkpoint_id(), letter) for letter in self.seen])

    def notify_checkpoint_complete(self, checkpoint_id):
        PUBLISHED.extend(letter for id, letter in self.waiting if id <= checkpoint_id)
        self.waiting.update([each for each in self.waiting if each[0] > checkpoint_id])


def test_a_function_commits_what_a_checkpoint_contains_and_forgets_it():
    with tg.testing.harness(Letters(), schema="letter string", parallelism=2) as h:
        h.process(("a",), ("b",))
        h.notify_checkpoint_complete()
        assert sorted(PUBLISHED) == ["a", "b"]
        assert h.operator_state("waiting") == [[], []]
        h.process(("c",), ("d",))
        h.notify_checkpoint_complete()
        assert sorted(PUBLISHED) == ["a", "b", "c", "d"]


def test_a_checkpoint_says_nothing_about_epochs_after_it():
    with tg.testing.harness(Letters(), schema="letter string") as h:
        h.process(("a",))
        h.snapshot()
        h.process(("b",))
        h.notify_checkpoint_complete(1)
        assert PUBLISHED == ["a"]
        assert h.operator_state("waiting") == [[(2, "b")]]


def test_an_aborted_checkpoint_discards_nothing():
    """The function has no hook for it: `CheckpointListener` has one that does nothing."""
    with tg.testing.harness(Letters(), schema="letter string") as h:
        h.process(("a",))
        h.notify_checkpoint_aborted()
        assert PUBLISHED == []
        h.notify_checkpoint_complete()
        assert PUBLISHED == ["a"]


class Told:
    """Without the base class, as `open` works without one."""

    def notify_checkpoint_complete(self, checkpoint_id):
        PUBLISHED.append(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id):
        PUBLISHED.append(f"aborted {checkpoint_id}")


class Count(tg.KeyedProcessFunction, Told):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.user, self.n.value()


class CountBatches(tg.KeyedBatchFunction, Told):
    def process_batch(self, batch, keys, ctx):
        return {"user": batch["user"]}


class Two(tg.KeyedCoProcessFunction, Told):
    def process_element1(self, row, ctx):
        yield row

    process_element2 = process_element1


class Rules(tg.KeyedBroadcastProcessFunction, Told):
    def process_element(self, row, ctx):
        yield row

    def process_broadcast_element(self, row, ctx):
        return None


class Windowed(tg.ProcessWindowFunction, Told):
    fired = tg.ValueState(int, default=0)

    def process(self, key, context, elements):
        self.fired.update(self.fired.value() + 1)
        yield key, self.fired.value()


class Joined(tg.ProcessJoinFunction, Told):
    def process_element(self, left, right, ctx):
        yield (left.user,)


def users(job, uid="rows"):
    return job.source(uid, tg.testing.frame("user string, at timestamp"), event_time="at")


def windowed(function):
    hours = tg.TumblingEventTimeWindows.of("1 h")
    return users(tg.Job("job")).key_by("user").window(hours).process("op", function, schema="user string, n int")


def two(job):
    return users(job, "left").key_by("user"), users(job, "right").key_by("user")


def connected():
    left, right = two(tg.Job("job"))
    return left.connect(right).process("op", Two(), schema="user string, at timestamp")


def joined():
    left, right = two(tg.Job("job"))
    return left.interval_join("op", right, function=Joined(), lower="-1 h", upper="1 h", schema="user string")


HARNESSES = {
    "process": lambda: tg.testing.harness(Count(), key="user", schema="user string"),
    "batches": lambda: tg.testing.harness(
        CountBatches(), key="user", schema="user string", output_schema="user string"
    ),
    "broadcast": lambda: tg.testing.harness(Rules(), key="user", schema="user string", broadcast_schema="name string"),
    "two inputs": lambda: tg.testing.harness(connected()),
    "window": lambda: tg.testing.harness(windowed(Windowed())),
    "interval join": lambda: tg.testing.harness(joined()),
}


@pytest.mark.feature("J27")
@pytest.mark.parametrize("kind", HARNESSES)
def test_every_kind_of_function_is_notified_of_checkpoints(kind):
    with HARNESSES[kind]() as h:
        h.notify_checkpoint_complete()
        h.notify_checkpoint_aborted()
        h.notify_checkpoint_complete()
    assert PUBLISHED == ["complete 1", "aborted 2", "complete 3"]


class CountsInHook(Count):
    def notify_checkpoint_complete(self, checkpoint_id):
        self.n.update(0)


class FiresInHook(Windowed):
    def notify_checkpoint_complete(self, checkpoint_id):
        self.fired.update(0)


class FiresInOpen(Windowed):
    def open(self, ctx):
        self.fired.update(0)


def test_there_is_no_keyed_state_in_a_hook():
    with tg.testing.harness(CountsInHook(), key="user", schema="user string") as h:
        h.process(("ann",))
        with pytest.raises(StateUnbound, match=r"used where there is no key.*nor when a checkpoint is notified"):
            h.notify_checkpoint_complete()


def test_a_window_function_has_no_keyed_state_in_hooks():
    with tg.testing.harness(windowed(FiresInHook())) as h:
        h.process(("ann", datetime(2024, 1, 1, tzinfo=UTC)))
        with pytest.raises(StateUnbound, match="used where there is no key"):
            h.notify_checkpoint_complete()
    with pytest.raises(StateUnbound, match="used where there is no key"):
        tg.testing.harness(windowed(FiresInOpen()))


def test_keyed_state_is_available_after_the_hook():
    with tg.testing.harness(Count(), key="user", schema="user string") as h:
        h.process(("ann",))
        h.notify_checkpoint_complete()
        h.process(("ann",))
        assert h.output() == [("ann", 1), ("ann", 2)]
    with tg.testing.harness(windowed(Windowed())) as h:
        h.process(("ann", datetime(2024, 1, 1, tzinfo=UTC)))
        h.notify_checkpoint_complete()
        h.advance_watermark(datetime(2024, 1, 2, tzinfo=UTC))
        assert h.output() == [("ann", 1)]


class Refuses(Count):
    def notify_checkpoint_complete(self, checkpoint_id):
        raise RuntimeError("the other system is down")


def test_an_error_in_a_hook_is_raised():
    with (
        tg.testing.harness(Refuses(), key="user", schema="user string") as h,
        pytest.raises(RuntimeError, match="the other system is down"),
    ):
        h.notify_checkpoint_complete()


class WithoutId(Count):
    def notify_checkpoint_complete(self):
        pass


def test_a_hook_that_does_not_take_the_id_is_refused_when_the_job_is_declared():
    rows = tg.Job("job").source("rows", tg.testing.frame("user string")).key_by("user")
    with pytest.raises(tg.TidegateError, match=r"def notify_checkpoint_complete\(self, checkpoint_id\)"):
        rows.process("op", WithoutId(), schema="user string, n int")
