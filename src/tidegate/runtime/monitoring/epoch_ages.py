"""When epochs ended, as far as something still depends on them: output that waits, work that no checkpoint contains."""

from __future__ import annotations

from tidegate.core.clock import Clock, Instant
from tidegate.core.ids import EpochId

_REMEMBERED = 10_000


class EpochAges:
    """One thread writes, any thread reads. An epoch that is not known, of an earlier run, is as old as this run, at least."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now()
        self._ended: dict[EpochId, Instant] = {}

    def ended(self, epoch: EpochId) -> None:
        if len(self._ended) < _REMEMBERED:  # The oldest ones matter.
            self._ended = {**self._ended, epoch: self._clock.now()}

    def forget(self, covered: EpochId | None, waiting_since: EpochId | None) -> None:
        """Forget the epochs that a checkpoint contains and whose output is committed."""
        if covered is not None:
            # What a checkpoint contains is still needed for the age of output that waits.
            kept = covered if waiting_since is None else min(covered, _before(waiting_since))
            self._ended = {epoch: at for epoch, at in self._ended.items() if epoch > kept}

    def age_ms(self, epoch: EpochId) -> int:
        return self._clock.now().since(self._ended.get(epoch, self._started))

    def oldest_ms(self, after: EpochId | None = None) -> int:
        """Return the age of the oldest epoch after `after`; 0 if there is none."""
        found = [at for epoch, at in self._ended.items() if after is None or epoch > after]
        # The first is the oldest: epochs are added in the order in which they end.
        return self._clock.now().since(found[0]) if found else 0

    def oldest_at_ms(self, after: EpochId | None = None) -> int | None:
        """Return when the oldest epoch after `after` ended, in milliseconds since 1970. None: there is none."""
        found = [at for epoch, at in self._ended.items() if after is None or epoch > after]
        return found[0].wall_ms if found else None

    def rewind(self, reached: EpochId | None) -> None:
        """Forget the epochs after `reached`: the job has returned to the checkpoint of that epoch. None: to its beginning."""
        self._ended = {epoch: at for epoch, at in self._ended.items() if reached is not None and epoch <= reached}


def _before(epoch: EpochId) -> EpochId:
    return EpochId(epoch.term, epoch.number - 1)
