"""The claims that a job's log contains: they decide whether output in a target is of the job's own history.

A checkpoint directory can return to an older state: it is restored from a backup, or copied while the original continues. What
was written after the backup is then in the targets, but not in the log. Its terms have other random bits than those of the log,
or its epochs are beyond those that the log has of their term.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.core.ids import EpochId, Lineage, Term, ordinal

MOST_CLAIMS = 64
"""How many claims of its own history a log entry lists. Of older ones it is assumed that the log contains them: a restored log
lacks the newest."""
UNBOUNDED = -1


class ClaimedTerm(NamedTuple):
    """One claim, and how far the log knows its epochs."""

    term: Term
    last: int
    """The number of the last epoch that a checkpoint in the log contains; output of later ones is not committed.
    `UNBOUNDED` in mode AT_LEAST_ONCE, whose output precedes its checkpoint."""
    own: bool = True
    """False: a claim of another history, whose output in a target the user has accepted. What else that history committed is not
    known."""

    def reaching(self, number: int) -> ClaimedTerm:
        return self if self.last == UNBOUNDED else self._replace(last=max(self.last, number))


Claims = tuple[ClaimedTerm, ...]
"""In the order of terms. The last one is the claim of the current owner."""


@dataclass(frozen=True, slots=True)
class History:
    """One line of history, as its owner knows it."""

    lineage: Lineage
    claims: Claims
    owner: Term | None = None
    """The claim of the caller. Only the owner writes under its term, so all output of that is known."""

    def knows(self, lineage: Lineage, epoch: EpochId) -> bool:
        """Return whether output of this epoch can be of this history.

        Only the current lineage is checked. Output of a lineage that the job has abandoned is offered to the target once more:
        see decision 0028.
        """
        # Whatever carries the own term was written by this owner: the log may not have heard of its last epochs yet.
        return lineage != self.lineage or epoch.term == self.owner or knows(self.claims, epoch)

    def covers(self, marker: EpochId, epoch: EpochId) -> bool:
        """Return whether a marker says that output of this epoch was committed."""
        return covers(self.claims, marker, epoch)

    def hides(self, marker: EpochId, epoch: EpochId) -> bool:
        """Return whether a target that compares numbers would wrongly take output of this epoch for committed."""
        return hides(self.claims, marker, epoch)

    def is_own(self, term: Term) -> bool:
        """Return whether a claim is one of this history."""
        return is_own(self.claims, term)


def knows(claims: Claims, epoch: EpochId) -> bool:
    """Return whether the claims contain this epoch, or only list later ones."""
    listed = [c for c in claims if c.term == epoch.term]
    if listed:
        return any(c.last == UNBOUNDED or epoch.number <= c.last for c in listed)
    return _is_before(claims, epoch.term)


def is_own(claims: Claims, term: Term) -> bool:
    """Return whether the claim is of this history. Claims before all that are listed are assumed to be."""
    listed = [c.own for c in claims if c.term == term]
    return any(listed) if listed else _is_before(claims, term)


def _is_before(claims: Claims, term: Term) -> bool:
    """Return whether a claim that is not listed may have been dropped from the list. Only claims of this history ever are."""
    return all(ordinal(term) < ordinal(c.term) for c in claims if c.own)


def covers(claims: Claims, marker: EpochId, epoch: EpochId) -> bool:
    """Return whether a marker in a target says that output of `epoch` was committed: in one claim by their numbers, else if both
    claims are of this history. A marker of another history was moved by a run that may never have had this output."""
    if epoch.term == marker.term:
        return epoch.number <= marker.number
    earlier = ordinal(epoch.term) < ordinal(marker.term)
    return earlier and is_own(claims, marker.term) and is_own(claims, epoch.term)


def hides(claims: Claims, marker: EpochId, epoch: EpochId) -> bool:
    """Return whether a target that compares numbers would take this output for committed, and nothing shows that it was."""
    # A marker that packs an epoch into one number has no room for the random bits of its term. A user's committer may compare
    # whole terms instead.
    by_number = (ordinal(epoch.term), epoch.number) <= (ordinal(marker.term), marker.number)
    return (by_number or epoch <= marker) and not covers(claims, marker, epoch)


def reached(claims: Claims, epoch: EpochId) -> Claims:
    """Return the claims after the log got a checkpoint of this epoch."""
    return tuple(c.reaching(epoch.number) if c.term == epoch.term else c for c in claims)


def learnt(claims: Claims, epoch: EpochId, own: bool = True) -> Claims:
    """Return the claims after the log took over this epoch from elsewhere: from a savepoint, or from a target if not `own`."""
    if knows(claims, epoch):
        return claims
    # The term is listed, but its last epoch is older: it reaches further now.
    if any(c.term == epoch.term for c in claims):
        return reached(claims, epoch)
    # By their numbers: a term of an earlier version is a small number, whatever it counts.
    longer = (*claims, ClaimedTerm(epoch.term, epoch.number, own))
    return tuple(sorted(longer, key=lambda c: (ordinal(c.term), c.term)))


def claimed(claims: Claims, term: Term, unbounded: bool = False) -> Claims:
    """Return the claims after a new one, which is greater than all."""
    longer = (*claims, ClaimedTerm(term, UNBOUNDED if unbounded else 0))
    cut = [c for c in longer if c.own][:-MOST_CLAIMS]
    # Claims of other histories stay: without them, their markers would be taken for those of an old claim of this one. There are
    # as many as the user has accepted.
    return tuple(c for c in longer if not c.own or not cut or ordinal(c.term) > ordinal(cut[-1].term))


def last_of_terms(epochs: Iterable[EpochId]) -> tuple[EpochId, ...]:
    """Return the last epoch of each term, in order."""
    last: dict[Term, EpochId] = {}
    for epoch in sorted(epochs):
        last[epoch.term] = epoch
    return tuple(last.values())
