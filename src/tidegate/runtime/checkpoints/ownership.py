"""One driver's ownership of a job: its term (`owned_term`) on real storage, with a heartbeat that has a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.job_log.entry import Entry
from tidegate.checkpoint.job_log.log import ClaimLost
from tidegate.checkpoint.job_log.start import Start
from tidegate.core.log_setup import in_this_context
from tidegate.runtime.checkpoints.history import ForkPin, JobHistory, Signer
from tidegate.runtime.checkpoints.owned_term import OwnedTerm
from tidegate.storage import StorageError

log = logging.getLogger("tidegate")

BEAT_MS = 2_000
"""The interval of the heartbeat."""


class HeartbeatThread:
    """A thread that writes the heartbeat of the job's owner every two seconds, and detects when it has lost the job."""

    def __init__(self, beat: Callable[[int], None], on_failure: Callable[[BaseException], None]) -> None:
        """`beat` receives the number of the beat; an error it raises, other than `StorageError`, ends the thread."""
        self._beat = beat
        self._on_failure = on_failure
        self._stopped = threading.Event()
        threading.Thread(target=in_this_context(self._run), name="tidegate-heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(BEAT_MS / 1000):
            number += 1
            try:
                self._beat(number)
            except StorageError as error:
                # Storage that is down for a while costs nothing but the sign of life: a rival must win a slot of the log to take
                # the job.
                log.warning("the heartbeat of the job could not be written: %s", error)
            except Exception as error:
                self._on_failure(error)
                return


class Ownership(OwnedTerm):
    """A term that is claimed and recovered. The heartbeat starts immediately, since taking over may take a while."""

    def __init__(self, history: JobHistory, entry: Entry, signer: Signer) -> None:
        super().__init__(history, entry, signer)
        self._watchers: list[Callable[[BaseException], None]] = []
        self._heartbeat = HeartbeatThread(self._beat, self.fail)
        try:
            history.perform(self.recover())
        except BaseException:
            # The caller never gets this object, and a heartbeat that continued would refuse every later start.
            self._heartbeat.stop()
            raise

    @classmethod
    def claim(cls, history: JobHistory, start: Start, force: bool = False, pin: ForkPin | None = None) -> Ownership:
        """Claim the job and take over what its log contains. Raises `StartRefused` without having changed anything."""
        signer = Signer(history.clock)
        try:
            entry = history.perform(history.claim(start, signer, force, pin))
        except (KeyboardInterrupt, SystemExit):
            # Steps hear of errors only. An interrupt, which usually hits while a claim waits for the owner to show life, does not
            # return to them, and they would leave the pin.
            if pin is not None and pin.placed_now:
                history.perform(history.unpin(pin))
            raise
        return cls(history, entry, signer)

    def followed_by(self, claim: Steps[Entry]) -> Ownership:
        """Own the job under the term that these steps claim."""
        entry = self.history.perform(claim)
        return Ownership(self.history, entry, Signer(self.history.clock))

    def is_held(self) -> bool:
        """Whether no other driver has claimed the job, according to its log now."""
        try:
            # Number 0 is not the thread's next one. That does not matter: a watcher looks whether the number changes, not whether
            # it grows.
            self._beat(0)
        except Exception:
            return False
        return self.failure.error is None

    def claim_lost(self) -> ClaimLost | None:
        """Return the error of a driver that another one has replaced, according to the log now. None as well if storage does not
        answer: then nothing is known."""
        try:
            self._beat(0)
        except ClaimLost as error:
            return error
        except Exception as error:
            log.info("whether another driver has claimed the job could not be read: %s", error)
        known = self.failure.error
        return known if isinstance(known, ClaimLost) else None

    def _beat(self, number: int) -> None:
        self.history.perform(self.show_life(number))

    def fail(self, error: BaseException) -> None:
        """End the term: the job is claimed again, or lost."""
        if not self._heartbeat.is_stopped:
            log.error("the job can write no further checkpoint: %s", error)
        self.failure.set(error)
        for on_failure in self._watchers:
            on_failure(error)

    def watch(self, on_failure: Callable[[BaseException], None]) -> None:
        """Call `on_failure` when the term fails, or now if it has."""
        self._watchers.append(on_failure)
        if self.failure.error is not None:
            on_failure(self.failure.error)

    def stop(self) -> None:
        """Stop without a log entry, as a crash would."""
        self._heartbeat.stop()
