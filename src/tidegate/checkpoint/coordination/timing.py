"""Decides when a checkpoint is taken, is announced to an epoch or waits for one, and when an empty epoch runs. Pure.

An epoch cannot be interrupted, so a checkpoint meets it in one of two ways:

- It is *announced* to an epoch before that begins. Its tasks store what they seal at once, and it completes at the end of the
  same epoch. This is the rule, and the shorter way.
- It is *triggered* on an epoch that has ended. Its uploads begin with the tasks of the next epoch, and their
  acknowledgements come at the end of that one, or through storage if epochs are long.

A checkpoint that completes in the second way keeps the next one from being announced, because none is announced while another
one is in progress; then that one is late, too, and so on. Most of what waits here breaks this chain.

All times are milliseconds of the monotonic clock. Every constant of these decisions is in this file, with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.clock import Instant, MonotonicMs

SHORT_PERIOD_MS = 100
"""An announced checkpoint is taken even if this much of the period is left: its tasks have begun to store it, and another
epoch would be over long after the period."""
SHARE_OF_PERIOD = 10
"""It is also taken if this part of the period is left, for the same reason where periods are long."""

LONG_EPOCH_MS = 5_000
"""An epoch that takes longer is long: its tasks' acknowledgements are found in storage before it ends, and an epoch that follows
it may be as long. So no checkpoint waits for the epoch after it, and an epoch waits for a checkpoint instead."""
STORED_ACKS_MS = 2_000
"""If epochs take longer, tasks store acknowledgements at once. Reading them costs less than to wait for the epoch's end."""
AWAITED_MS = 400
"""How long a checkpoint waits for an epoch to which it may be announced. If none comes, an empty one runs for its uploads; not
sooner than this, because an empty epoch may not delay a batch (SHORTEST_IDLE_S)."""

UPLOAD_WAIT_MS = 50
"""How long tasks may wait at the end of an epoch for uploads to end: little, because rows wait meanwhile."""
EMPTY_EPOCH_WAIT_MS = 500
"""The same in an empty epoch, which exists for these uploads and delays no row."""
EARLY_WAIT_MS, LONGEST_EARLY_WAIT_MS = 300, 1_000
"""How long tasks may wait for the upload of what they have just sealed: the first, or a quarter of an epoch up to the second.
A wait delays the epoch, but an upload that ends after it is acknowledged an epoch later."""
LONGEST_PAUSE_MS = 1_000
"""How long a long epoch may wait for the checkpoint in progress to complete."""

SHORTEST_IDLE_S, LONGEST_IDLE_S = 0.5, 2.0
"""How long no batch must have arrived before an empty epoch runs. One that begins just before a batch arrives delays it, and
every later one if the machine is busy."""

FIRST_LOOK_MS = 250
"""How soon after its beginning a checkpoint's stored acknowledgements are looked for. A request to storage costs money."""
SHARE_OF_AGE = 10
"""They are looked for again when the checkpoint's age has grown by this part, so that their number stays small."""

# Flink clamps min-pause to a year, too, so that sums of it with a clock's reading do not overflow there.
_MILLISECONDS_A_YEAR = 365 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Cadence:
    """What the user chose. `interval_ms` None: only on request."""

    interval_ms: int | None
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0

    def first_delay_ms(self, share: float) -> int:
        """Return the time before the first checkpoint of a run: min-pause, and a share of the rest of the interval. The caller
        draws the share, so that many jobs that start together do not write their checkpoints at the same moment."""
        longest_ms = max(self.interval_ms or 0, self.min_pause_ms)
        return round(self.min_pause_ms + share * (longest_ms - self.min_pause_ms))


@dataclass(frozen=True, slots=True)
class EmptyEpoch:
    """An epoch without rows is to run."""

    time_stands: bool
    """No timer fires in it."""


class Timing:
    """What the decisions about time of one term depend on: the cadence, what epochs and uploads took, when a checkpoint was taken
    last. The thread of the checkpoint loop tells it; the thread that runs epochs asks `pause_ms` and `stores_acks`."""

    def __init__(self, cadence: Cadence) -> None:
        self.cadence = cadence
        self.upload_ms: int | None = None
        """How long the slowest upload of the latest checkpoint took."""
        self._pause_ms = min(cadence.min_pause_ms, _MILLISECONDS_A_YEAR)
        self._period_ms: int | None = None
        if cadence.interval_ms is not None:
            # Min-pause holds back every checkpoint, so a shorter interval would only queue requests.
            self._period_ms = max(cadence.interval_ms, self._pause_ms)
        self._due_ms: MonotonicMs | None = None
        self._completed_ms: MonotonicMs | None = None
        # Apart from each other: empty epochs run between slow ones and say nothing about them.
        self._with_rows_ms = 0
        self._empty_ms = 0
        self._awaited_until_ms: MonotonicMs | None = None
        """Until when an epoch is expected to begin after the last one; None: none is waited for."""
        self._is_awaited = False
        self._passed_by = False
        """Whether the last epoch began without the announcement of the checkpoint that waited for it, or with one that became
        void."""
        self._was_late = False
        """Whether the last checkpoint completed after another epoch had ended."""

    # -- the period --------------------------------------------------------------------------------------------------

    @property
    def due_ms(self) -> MonotonicMs | None:
        """When the next periodic checkpoint is due; None: none is."""
        return self._due_ms

    @property
    def pause_ends_ms(self) -> MonotonicMs | None:
        """When min-pause after the last completion is over; None: none has completed."""
        if self._completed_ms is None:
            return None
        return MonotonicMs(self._completed_ms + self._pause_ms)

    def begin(self, now: Instant, first_delay_ms: int) -> None:
        if self._period_ms is not None:
            self._due_ms = now.plus(first_delay_ms)

    def begin_again(self, now: Instant) -> None:
        """The job has gone back to a checkpoint: as after a start, but soon, since the epochs that follow are repeated ones."""
        self.begin(now, self._pause_ms)

    def end(self) -> None:
        self._due_ms = None

    def next_period(self, now: Instant) -> bool:
        """Return whether a checkpoint is due. If so, the next period begins."""
        if self._period_ms is None or self._due_ms is None or now.monotonic_ms < self._due_ms:
            return False
        # From now, not from when it was due: a job that was held up does not take several checkpoints in a row.
        self._due_ms = now.plus(self._period_ms)
        return True

    def take_early(self, now: Instant) -> None:
        """An epoch has ended whose tasks have begun to store a checkpoint: if it is almost due, it is due now."""
        if self._period_ms is None or self._due_ms is None:
            return
        early_ms = max(self._period_ms // SHARE_OF_PERIOD, min(self._period_ms, SHORT_PERIOD_MS))
        if self._due_ms <= now.plus(early_ms):
            self._due_ms = now.monotonic_ms

    # -- what has happened -------------------------------------------------------------------------------------------

    def epoch_took(self, duration_ms: int, *, with_rows: bool) -> None:
        if with_rows:
            self._with_rows_ms = duration_ms
        else:
            self._empty_ms = duration_ms

    def epoch_ended(self, now: Instant, took_ms: int | None, *, announced: bool, is_void: bool = False) -> None:
        """An epoch has ended, which took this long; None: uploads need not wait for another one. `announced`: a checkpoint had
        been announced to it. `is_void`: the id of that one has been passed over meanwhile."""
        self._passed_by = is_void or (self._is_awaited and not announced)
        self._is_awaited = False
        short = took_ms is not None and took_ms <= LONG_EPOCH_MS
        self._awaited_until_ms = now.plus(AWAITED_MS) if short else None

    def completed(self, now: Instant, *, late: bool) -> None:
        """A checkpoint has completed; `late`: another epoch had ended meanwhile."""
        self._completed_ms = now.monotonic_ms
        self._was_late = late

    # -- checkpoints and epochs --------------------------------------------------------------------------------------

    def epoch_ms(self, *, with_rows: bool) -> int:
        """How long the next epoch will probably take: as long as the last one of its kind."""
        return self._with_rows_ms if with_rows else self._empty_ms

    def announces_at(self, expected_ms: int, *, is_requested: bool) -> MonotonicMs | None:
        """Return from when on an epoch that takes this long ends when a checkpoint is due. None: none becomes due.
        `is_requested`: one is due already, and only min-pause holds it back."""
        if self._due_ms is None:
            return None
        # 0: at any time. What remains is min-pause.
        begins = 0 if is_requested else self._due_ms - expected_ms
        return MonotonicMs(max(begins, self.pause_ends_ms or 0))

    def waits_for_epoch_until(self, now: Instant) -> MonotonicMs | None:
        """Return until when a periodic checkpoint waits for the next epoch, to be announced to it; None: it is triggered on the
        last one, now. It waits only after a late one, since the epoch that it waits for may be long; and not for a second epoch
        if the first began too early, or its announcement became void."""
        until_ms = self._awaited_until_ms
        if not self._was_late or self._passed_by or until_ms is None or now.monotonic_ms >= until_ms:
            return None
        self._is_awaited = True
        return until_ms

    @property
    def early_wait_ms(self) -> int:
        """How long tasks wait for the upload of a checkpoint that is announced to their epoch. They do not wait for one that will
        probably take longer: the wait would be in vain."""
        longest_ms = max(EARLY_WAIT_MS, min(self._with_rows_ms // 4, LONGEST_EARLY_WAIT_MS))
        is_quick = self.upload_ms is not None and _ends_within(longest_ms, self.upload_ms)
        return longest_ms if is_quick else UPLOAD_WAIT_MS

    @property
    def stores_acks(self) -> bool:
        """Whether tasks store their acknowledgements without trying to send them."""
        return self._with_rows_ms > STORED_ACKS_MS

    def pause_ms(self, epoch_ms: int) -> int:
        """Return how long an epoch that will take this long may wait for the checkpoint in progress, so that the next one can be
        announced to it. A short epoch does not wait: the checkpoint after it does (`waits_for_epoch_until`)."""
        upload_ms = self.upload_ms  # read once: another thread sets it
        too_slow = upload_ms is not None and not _ends_within(LONGEST_PAUSE_MS, upload_ms)
        return 0 if epoch_ms < LONG_EPOCH_MS or too_slow else LONGEST_PAUSE_MS


def _ends_within(limit_ms: int, last_ms: int) -> bool:
    """Whether the next upload will probably end in that time, even if it takes twice as long as the last one."""
    return 2 * last_ms <= limit_ms


def upload_wait_ms(*, is_empty: bool, early_wait_ms: int | None) -> int:
    """Return how long tasks of an epoch wait for uploads at its end. `early_wait_ms`: how long for those of a checkpoint that was
    announced to it; None: none was."""
    if is_empty:
        return EMPTY_EPOCH_WAIT_MS
    return UPLOAD_WAIT_MS if early_wait_ms is None else early_wait_ms


def empty_epoch(waiting: bool, timers_due: bool, held: bool) -> EmptyEpoch | None:
    """Decide whether to run an empty epoch. `waiting`: uploads or orders to commit wait for an epoch. `held`: too much output
    waits for a sink.

    While `held`, timers wait: their output would wait, too, and without a bound. Uploads and orders do not.
    """
    if held:
        return EmptyEpoch(time_stands=True) if waiting else None
    return EmptyEpoch(time_stands=False) if waiting or timers_due else None


def idle_s(streaming_ms: int | None) -> float:
    """Return how long no batch must have arrived before uploads get an empty epoch, given what Structured Streaming takes between
    two epochs."""
    expected_s = 0.0 if streaming_ms is None else 1.5 * streaming_ms / 1000
    return min(max(SHORTEST_IDLE_S, expected_s), LONGEST_IDLE_S)


def next_look_ms(since_ms: MonotonicMs, now_ms: MonotonicMs) -> MonotonicMs:
    """Return when to look for stored acknowledgements of a checkpoint that began at `since_ms`, after a look now."""
    return MonotonicMs(now_ms + max(FIRST_LOOK_MS, (now_ms - since_ms) // SHARE_OF_AGE))
