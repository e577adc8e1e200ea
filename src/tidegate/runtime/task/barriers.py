"""Compares what a task was sent with what it read: a barrier from every sender, and exactly the rows they announced."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.core.ids import EpochId, Term
from tidegate.runtime.exchange.messages import Barrier, Fault, FaultKind, decode_barrier, digest


@dataclass(slots=True, kw_only=True)
class BarrierTracker:
    """Collects the barriers of one task's input."""

    epoch: EpochId
    level: int
    slot: int
    senders: int | None
    """The number of senders; None: only Spark knows it, and the driver compares digests; 0:
    plain SQL, which sends no barriers.
    """
    rows: int = 0
    acks: list[bytes] = field(default_factory=list)
    _barriers: dict[int, Barrier] = field(default_factory=dict)
    _wrong: str | None = None

    def control(self, raw: bytes) -> None:
        barrier = decode_barrier(raw)
        if (barrier.term, barrier.number) != (self.epoch.term, self.epoch.number):
            self._wrong = (
                f"a barrier of epoch {EpochId(Term(barrier.term), barrier.number)} arrived in epoch {self.epoch}"
            )
        elif barrier.target != self.slot or barrier.level != self.level - 1:
            meant, here = f"slot {barrier.target}", f"level {self.level}, slot {self.slot}"
            self._wrong = f"a barrier of level {barrier.level} for {meant} arrived at {here}"
        elif barrier.sender in self._barriers:
            self._wrong = f"two barriers arrived from task {barrier.sender} of level {barrier.level}"
        # Kept even if it is wrong, with its acknowledgements: the driver learns from them what the tasks above did.
        self._barriers[barrier.sender] = barrier
        self.acks.extend(barrier.acks)

    def digest(self) -> bytes:
        return digest((b.sender, b.attempt) for b in self._barriers.values())

    def fault(self) -> Fault | None:
        """Return what is wrong with the input, once all of it was read."""
        found = self.barrier_fault()
        if found is not None or self.senders == 0:
            return found
        # Spark may hand over a part of a shuffle without an error; the senders know how much there should be.
        announced = sum(b.rows for b in self._barriers.values())
        if announced != self.rows:
            return Fault(FaultKind.PROTOCOL, f"{self.rows} rows were read, but {announced} were sent")
        return None

    def barrier_fault(self) -> Fault | None:
        """Return what is wrong by the barriers alone, for an input whose rows were not all counted."""
        if self._wrong is not None:
            return Fault(FaultKind.PROTOCOL, self._wrong)
        if self.senders == 0:
            return None
        if self.senders is not None and set(self._barriers) != set(range(self.senders)):
            missing = sorted(set(range(self.senders)) - set(self._barriers))
            return Fault(FaultKind.PROTOCOL, f"no barrier arrived from tasks {missing} of level {self.level - 1}")
        if any(b.poisoned for b in self._barriers.values()):
            return Fault(FaultKind.POISONED, f"a task of level {self.level - 1} or above did no work")
        return None
