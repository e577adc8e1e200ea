"""The rules of the protocol, and for each a change of the code that breaks it.

A mutation is text: (file, what stands there, what stands there instead). It fails loudly when the code has moved on.
"""

from __future__ import annotations

from dataclasses import dataclass

CHECKPOINT = "src/tidegate/checkpoint"
RUNTIME = "src/tidegate/runtime"


@dataclass(frozen=True)
class Mutation:
    id: str
    rule: str
    file: str
    old: str
    new: str
    rare: bool = False
    """Needs an interleaving that few seeds have: five times as many are tried."""
    test: str = ""
    """A test that steps through an interleaving which no number of seeds reaches. It takes the place of the simulation."""


MUTATIONS = (
    Mutation(
        "again-own",
        "A driver with a write of unknown outcome claims the job again only after its own entries",
        f"{CHECKPOINT}/job_log/claim.py",
        "        if before.nonce != last.nonce and before.nonce not in ours:\n",
        "        if False:\n",
        test="tests/unit/checkpoint/job_log/test_claim.py::test_claiming_again_after_a_lost_claim_is_refused",
    ),
    Mutation(
        "end-found",
        "The end of the log is compared with traces that were read before it",
        f"{CHECKPOINT}/job_log/log_end.py",
        "    end = yield from newest(layout, slot)\n",
        "",
        rare=True,
    ),
    Mutation(
        "nonce",
        "“Exists” to one's own write is told apart from another's by reading the body back",
        "src/tidegate/storage/arbitration.py",
        "return Won() if existing == data else Lost(existing)",
        "return Lost(existing)",
    ),
    Mutation(
        "unknown",
        "A driver that cannot read a slot stops",
        "src/tidegate/storage/arbitration.py",
        """        except StorageError as error:
            raise OutcomeUnknown.of(store, path, error) from error
""",
        """        except StorageError as error:
            return Won()
""",
    ),
    Mutation(
        "put-if-absent",
        "A slot of the log is written only if absent",
        f"{CHECKPOINT}/job_log/log.py",
        "result: Won | Lost = yield Create(path, entries.to_bytes(entry), entry.nonce)",
        """from tidegate.checkpoint.effects import Put
    there = yield Get(path)
    result = Won() if there is None else Lost(there)
    if there is None:
        yield Put(path, entries.to_bytes(entry))""",
    ),
    Mutation(
        "log-won",
        "A slot that a driver has created counts only if no later folder of the log has an entry",
        f"{CHECKPOINT}/job_log/log.py",
        """    if entry.folder == 0:
        return result  # entries of `log` are never deleted
""",
        """    return result
""",
        rare=True,
    ),
    Mutation(
        "log-end-again",
        "The end of the log counts only if the last folder is still the last one after the search",
        f"{CHECKPOINT}/job_log/log.py",
        "        if now[-1:] == last[-1:]:\n",
        "        if True:\n",
        test="tests/unit/checkpoint/job_log/test_log_folders.py::test_the_end_is_an_entry_that_was_the_last_one_during_the_search",
    ),
    Mutation(
        "log-trim",
        "The folder before that of the newest entry is not deleted",
        f"{CHECKPOINT}/job_log/log.py",
        "    for folder in older[:-1]:\n",
        "    for folder in older:\n",
    ),
    Mutation(
        "log-trim-own",
        "A driver deletes only folders of the log that are older than its own last entry",
        f"{CHECKPOINT}/job_log/log.py",
        " if folder < mine.folder]\n",
        "]\n",
    ),
    Mutation(
        "log-next-folder",
        "The entry before a slot decides which folder the slot is in",
        f"{CHECKPOINT}/job_log/entry.py",
        "        folder=before.next_folder,\n",
        "        folder=_folder_for(before.slot + 1, before.folder),\n",
    ),
    Mutation(
        "dense-log",
        "A driver that loses a slot to another claim stops; it does not try the next one",
        f"{CHECKPOINT}/completed/completed_store.py",
        """        result = yield from append(self.layout, entry)
        if not isinstance(result, Won):
            raise ClaimLost(self.term, result)
""",
        """        while isinstance(winner := (yield from append(self.layout, entry)), Entry):
            slot, folder = winner.slot + 1, winner.next_folder
            entry = replace(entry, slot=slot, folder=folder, next_folder=entries._folder_for(slot + 1, folder))
""",
    ),
    Mutation(
        "claim-again",
        "A claim that finds a checkpoint in its slot takes that one as its base",
        f"{CHECKPOINT}/job_log/claim.py",
        """        result = yield from append(layout, mine)
""",
        """        from dataclasses import replace
        CHECKPOINT = entries.EntryKind.CHECKPOINT
        while isinstance(result := (yield from append(layout, mine)), Entry) and result.kind is CHECKPOINT:
            slot, folder = result.slot + 1, result.next_folder
            mine = replace(mine, slot=slot, folder=folder, next_folder=entries._folder_for(slot + 1, folder))
""",
    ),
    Mutation(
        "metadata-first",
        "`_metadata` is durable before its entry is written",
        f"{CHECKPOINT}/completed/completed_store.py",
        """        path = yield from self._write_metadata(draft)
        reach("publish.1-metadata", id=draft.id, term=self.term)
""",
        """        path = self.layout.metadata(draft.id, self.term)
""",
    ),
    Mutation(
        "output-first",
        "Waiting output is durable before the metadata that refers to it",
        f"{CHECKPOINT}/completed/completed_store.py",
        "        yield from _write_objects(draft, self.term)\n",
        "",
    ),
    Mutation(
        "output-counted",
        "A checkpoint refers to an object only as long as it carries all that waits in there, wherever else it is",
        f"{CHECKPOINT}/files/output_objects.py",
        "    in_objects = {id(committable) for each in kept for committable in each.waiting}\n",
        "    in_objects = {id(committable) for each in objects for committable in each.waiting}\n",
    ),
    Mutation(
        "metadata-name",
        "A predecessor's unpublished `_metadata` is never taken for one's own",
        f"{CHECKPOINT}/completed/completed_store.py",
        """            if isinstance(result, Won):
                return path
        raise""",
        """            return path
        raise""",
    ),
    Mutation(
        "all-acks",
        "A checkpoint is published when every task's upload is acknowledged",
        f"{CHECKPOINT}/coordination/pending.py",
        "return len(self.acks) == len(self.tasks)",
        "return len(self.acks) >= len(self.tasks) - 1",
    ),
    Mutation(
        "late-acks",
        "An acknowledgement counts for its own checkpoint only",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "pending = self._pending.get(ack.checkpoint_id)\n"
        "        if pending is None:\n            return []\n        if not pending.acknowledge",
        "pending = self._pending.get(ack.checkpoint_id) or next(iter(self._pending.values()), None)\n"
        "        if pending is None:\n            return []\n        if not pending.acknowledge",
    ),
    Mutation(
        "reuse",
        "Only file handles of a completed checkpoint are reused",
        "chaos/simulation/model_tasks.py",
        "                new.append(path)\n            placed",
        "                new.append(path)\n                base.paths[file.name] = path\n            placed",
    ),
    Mutation(
        "discarded-branch",
        "A rewind aborts pending checkpoints: their epochs are discarded",
        f"{CHECKPOINT}/coordination/coordinator.py",
        """        for pending in list(self._pending.values()):
            actions += self._fail(pending, reason, now)
        self._finished = None
""",
        """        self._finished = None
""",
    ),
    Mutation(
        "rewind-output",
        "Output of discarded epochs is forgotten",
        f"{CHECKPOINT}/output/committables.py",
        "            sink.discard(term, epoch)",
        "            pass",
    ),
    Mutation(
        "term",
        "Every claim has a new term",
        f"{CHECKPOINT}/job_log/entry.py",
        "    return max(map(ordinal, terms), default=0) + 1\n",
        "    return max(map(ordinal, terms), default=0) or 1\n",
    ),
    Mutation(
        "fork-term",
        "A fork's terms begin above its origin's",
        f"{CHECKPOINT}/job_log/entry.py",
        "        terms += [base.term, base.epoch.term]\n",
        "        pass\n",
        rare=True,
    ),
    Mutation(
        "rollback-base",
        "A rollback begins only from what is retained",
        f"{CHECKPOINT}/job_log/start.py",
        "    if asked is StartRequest.GONE:\n        return GONE\n",
        "",
    ),
    Mutation(
        "entry-drops",
        "Files go only after the entry that drops their checkpoint",
        f"{CHECKPOINT}/completed/completed_store.py",
        """        before = self.entry
        yield from self._append(entries.checkpoint(before, self._sign(), ref, self._num_retained))
""",
        """        before = self.entry
        gone = (*before.retained, ref)[: -self._num_retained]
        if gone:
            from tidegate.checkpoint.effects import Delete
            yield Delete((gone[0].metadata,))
        yield from self._append(entries.checkpoint(before, self._sign(), ref, self._num_retained))
""",
    ),
    Mutation(
        "shared-count",
        "A file goes only when no retained checkpoint references it",
        f"{CHECKPOINT}/files/list_registry.py",
        "            if not self._counts[each.id]:\n",
        "            if self._counts[each.id] <= 1:\n",
    ),
    Mutation(
        "loser-deletes",
        "A driver that loses a slot deletes nothing",
        f"{CHECKPOINT}/completed/completed_store.py",
        "            raise ClaimLost(self.term, result)\n",
        """            from tidegate.checkpoint.effects import Delete
            lists = [(c.root, each.files) for c in self.contents.values() for each in c.lists]
            yield Delete(tuple(f"{r}/{n}" for r, f in lists if hasattr(f, "objects") for n in f.objects()) or ("x",))
            raise ClaimLost(self.term, result)
""",
    ),
    Mutation(
        "sweep-term",
        "A sweep touches no term above its own",
        f"{CHECKPOINT}/files/shared.py",
        "            return file.term is not None and file.term < self.term\n",
        "            return True\n",
        rare=True,
    ),
    Mutation(
        "sweep-pending",
        "A sweep leaves alone what may still complete",
        f"{CHECKPOINT}/files/shared.py",
        "            return file.number < self.pending_id\n        return self.epoch",
        "            return True\n        return self.epoch",
    ),
    Mutation(
        "sweep-staged",
        "A sweep leaves alone rows staged after the newest checkpoint",
        f"{CHECKPOINT}/files/shared.py",
        " and file.number <= self.epoch.number",
        "",
    ),
    Mutation(
        "sweep-ids",
        "Names of checkpoints above the last published id are not swept: another driver may be using them",
        f"{CHECKPOINT}/files/shared.py",
        "return file.number <= self.last_id and file.number < self.pending_id",
        "return True",
        rare=True,
    ),
    Mutation(
        "sweep-order",
        "A sweep notes what is referenced before it lists and reads pins",
        f"{CHECKPOINT}/completed/cleaner.py",
        "        needed |= held.names\n",
        "        needed = held.names | set(self._shared.counts())\n"
        "        for ref in store.entry.retained:\n            needed |= {ref.metadata, committed_record(ref.metadata)}\n",
        test="tests/unit/checkpoint/completed/test_cleaner.py::test_a_pin_placed_during_a_sweep_and_a_completion_is_found",
    ),
    Mutation(
        "pending-base",
        "Files that a pending checkpoint may reuse are held",
        f"{CHECKPOINT}/completed/cleaner.py",
        "        for base in in_flight.bases:\n",
        "        for base in ():\n",
    ),
    Mutation(
        "pins",
        "Clean-up reads pins",
        f"{CHECKPOINT}/completed/cleaner.py",
        "        for pin in (yield from read_pins(self._layout)):\n",
        "        for pin in ():\n",
    ),
    Mutation(
        "pin-check",
        "A pin holds only if the checkpoint is still retained after it was placed",
        f"{CHECKPOINT}/job_log/pins.py",
        "    if now is not None and ref in now.retained:\n",
        "    if True:\n",
    ),
    Mutation(
        "no-sweep",
        "Orphans are swept",
        f"{CHECKPOINT}/completed/cleaner.py",
        '        yield from self._delete(path for path in orphaned if path.endswith("/_metadata"))\n'
        '        yield from self._delete(path for path in orphaned if not path.endswith("/_metadata"))\n',
        "",
    ),
    Mutation(
        "commit-after",
        "Sinks commit only after the log entry",
        f"{CHECKPOINT}/completed/completed_store.py",
        '        reach("publish.1-metadata", id=draft.id, term=self.term)\n',
        '        reach("publish.1-metadata", id=draft.id, term=self.term)\n'
        "        from tidegate.checkpoint.output.release_plan import commit_batches\n"
        "        for early in commit_batches(self.ledger.carried_by(draft.epoch)):\n"
        "            yield from committables.commit(early)\n",
    ),
    Mutation(
        "carry",
        "A failed or timed-out checkpoint drops no committable",
        f"{CHECKPOINT}/output/committables.py",
        "return tuple(self.up_to(epoch))",
        "out = tuple(self.up_to(epoch))\n        self.confirm(marks(out))\n        return out",
    ),
    Mutation(
        "carry-epoch",
        "A checkpoint carries output up to its own epoch, not beyond",
        f"{CHECKPOINT}/output/committables.py",
        "return tuple(self.up_to(epoch))",
        "return self.waiting()",
    ),
    Mutation(
        "order",
        "Output is published in the order of epochs",
        f"{CHECKPOINT}/output/release_plan.py",
        "            CommitBatch(sink, due.of(sink))\n",
        "            CommitBatch(sink, due.of(sink)[::-1])\n",
    ),
    Mutation(
        "slot-order",
        "An epoch's output of all slots comes before any of the next epoch",
        f"{CHECKPOINT}/output/release_plan.py",
        "            CommitBatch(sink, due.of(sink))\n",
        "            CommitBatch(sink, tuple(sorted(due.of(sink), key=lambda c: (c.slot, c.epoch))))\n",
    ),
    Mutation(
        "stage-term",
        "Slots that are published independently stop together before each new term",
        f"{CHECKPOINT}/output/sink_output.py",
        "        end = min(last, EpochId(Term(term + 1), -1))\n",
        "        end = last\n",
    ),
    Mutation(
        "no-overtaking",
        "Nothing of a sink overtakes what its target did not take",
        "chaos/simulation/tasks.py",
        """            yield from commit(replace(batch, committables=(committable,)))
            taken.append(committable)
""",
        """            try:
                yield from commit(replace(batch, committables=(committable,)))
            except CommitFailed:
                continue
            taken.append(committable)
""",
    ),
    Mutation(
        "due",
        "Only output of completed checkpoints is published",
        f"{CHECKPOINT}/completed/completed_store.py",
        "        before_term = EpochId(self.term, -1)\n",
        "        before_term = EpochId(self.term, 1 << 40)\n",
    ),
    Mutation(
        "left-out",
        "A checkpoint leaves out only what a target has taken",
        f"{RUNTIME}/checkpoints/output.py",
        """        if error is None:
            now = self._history.clock.now()
            self.schedule.succeeded(batch.sink, now)
""",
        """        if True:
            now = self._history.clock.now()
            self.schedule.succeeded(batch.sink, now)
""",
    ),
    Mutation(
        "committed-record",
        "COMMITTED is recorded only when every target took all",
        f"{CHECKPOINT}/completed/completed_store.py",
        "            if not dropped and carried.is_in(self.ledger):\n                continue\n",
        "",
    ),
    Mutation(
        "stop-published",
        "A stop succeeds only when the output of its savepoint is published",
        f"{CHECKPOINT}/completed/completed_store.py",
        "        self.due_epoch = ref.epoch\n        self._unrecorded[ref.metadata] = ref, Carried(contents)\n",
        "        self._unrecorded[ref.metadata] = ref, Carried(contents)\n",
    ),
    Mutation(
        "savepoint-record",
        "That the output of a terminal savepoint is published is recorded",
        f"{CHECKPOINT}/completed/completed_store.py",
        "        self.due_epoch = ref.epoch\n        self._unrecorded[ref.metadata] = ref, Carried(contents)\n",
        "        self.due_epoch = ref.epoch\n",
    ),
    Mutation(
        "rows-wait",
        "Staged rows go only after COMMITTED",
        f"{CHECKPOINT}/completed/completed_store.py",
        "        files, lists = draft.contents.files | draft.contents.staged, ",
        "        files, lists = draft.contents.files, ",
    ),
    Mutation(
        "rows-next-entry",
        "Staged rows go only with an entry won after their COMMITTED record",
        f"{CHECKPOINT}/completed/completed_store.py",
        "                    self._recorded.add(ref.metadata)\n",
        "                    self._recorded.add(ref.metadata)\n                    self._drop(self.entry.retained)\n",
        test="tests/unit/checkpoint/completed/test_cleaner.py::test_an_ex_owner_does_not_take_rows_away_that_its_successor_carries_on",
    ),
    Mutation(
        "recommit",
        "Recovery commits what the base carries",
        f"{CHECKPOINT}/completed/completed_store.py",
        "            self.ledger.accept(c for c in contents.committables if not is_committed(c))\n",
        "",
    ),
    Mutation(
        "fresh-from-own",
        "A new lineage that starts from the job's newest snapshot still publishes the output of that snapshot",
        f"{CHECKPOINT}/job_log/entry.py",
        "if _same(left, base) and left.lineage == lineage:",
        "if _same(left, base):",
        rare=True,
    ),
    Mutation(
        "fork-output",
        "A fork does not take its origin's output with it",
        f"{CHECKPOINT}/completed/completed_store.py",
        "        if base is not None and base.lineage == self.entry.lineage:\n            taken_over",
        "        if base is not None:\n            taken_over",
    ),
    Mutation(
        "owed",
        "Output of what once completed becomes visible, even if a rollback turns away from it",
        f"{CHECKPOINT}/completed/completed_store.py",
        "taken_over = [ref for ref in self.entry.owed if ref not in self.unreadable]",
        "taken_over: list[CheckpointRef] = []",
    ),
    Mutation(
        "held-savepoint",
        "A savepoint exists only once the log has a checkpoint of its epoch or a later one",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "        if _must_be_held(pending, self._base):\n",
        "        if False:\n",
        rare=True,
    ),
    Mutation(
        "lineage",
        "A fork has its own lineage",
        f"{CHECKPOINT}/job_log/claim.py",
        "lineage = decision.lineage if isinstance(decision, Resume) else new_lineage()",
        "lineage = decision.lineage if isinstance(decision, Resume) else "
        "decision.base.lineage if decision.base else new_lineage()",
    ),
    Mutation(
        "terminal-entry",
        "The savepoint that ends a job is in the log before it commits anything",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        "            yield from self._store.append_terminal_savepoint(ref, contents)\n",
        """            from tidegate.checkpoint.output.release_plan import commit_batches
            from tidegate.runtime.checkpoints.term_effects import StartCommit

            for early in commit_batches(self._store.ledger.carried_by(pending.epoch)):
                yield StartCommit(early)
            yield from self._store.append_terminal_savepoint(ref, contents)
""",
        rare=True,
    ),
    Mutation(
        "stopping",
        "While the savepoint that ends the job is under way, no later checkpoint begins",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "while self._finished is not None and not _is_ending(self._pending):",
        "while self._finished is not None:",
        rare=True,
    ),
    Mutation(
        "heartbeat",
        "A start without force does not take a job whose heartbeat moves",
        f"{CHECKPOINT}/job_log/claim.py",
        "                alive = after != before or _moved(before.term, beat, later)\n",
        "                alive = False\n",
    ),
    Mutation(
        "after-end",
        "Nothing follows the end of a run",
        f"{CHECKPOINT}/completed/completed_store.py",
        "        if self.entry.outcome is not None:\n            raise RunEnded(self.entry)\n",
        "",
        test="tests/unit/checkpoint/completed/test_completed_store.py::test_an_end_without_retention_gives_the_checkpoints_up_before_it_deletes_them",
    ),
    Mutation(
        "timeout",
        "A checkpoint that does not complete expires",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "now.monotonic_ms >= pending.deadline_ms",
        "False",
    ),
    Mutation(
        "monotonic",
        "Cadence, pauses and timeouts go by monotonic time; the wall clock may be set at any moment",
        "chaos/simulation/driver.py",
        "return Instant(MonotonicMs(elapsed_ms), ",
        "return Instant(MonotonicMs(elapsed_ms + self.process.wall_offset_ms), ",
    ),
    Mutation(
        "savepoint-waits",
        "A savepoint under way holds back no checkpoint, unless it ends the job",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "return sum(not each.request.kind.is_savepoint for each in pending.values())",
        "return len(pending)",
    ),
    Mutation(
        "subsumed",
        "A completed checkpoint subsumes older pending ones",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "if older.id < checkpoint_id and not older.request.kind.is_savepoint:",
        "if False:",
        test="tests/unit/checkpoint/coordination/test_coordinator.py::test_a_newer_completed_checkpoint_subsumes_an_older_pending_one_without_blame",
    ),
    Mutation(
        "claimed-kept",
        "A claimed savepoint goes only when an entry has dropped it",
        f"{CHECKPOINT}/completed/cleaner.py",
        "listed = [ref for ref in store.entry.disposing if",
        "listed = [ref for ref in (*store.entry.disposing, *store.entry.retained) if not ref.owned and",
    ),
    Mutation(
        "claimed-pins",
        "A pin holds a claimed savepoint",
        f"{CHECKPOINT}/completed/cleaner.py",
        """            if ref.metadata in pinned:
                continue
""",
        "",
        test="tests/unit/checkpoint/job_log/test_takeover.py::test_a_pin_holds_a_claimed_savepoint",
    ),
    Mutation(
        "one-epoch",
        "An id is announced to one epoch only",
        f"{CHECKPOINT}/coordination/announcements.py",
        "if taken is None or taken.id <= self._taken or (empty",
        "if taken is None or (empty",
    ),
    Mutation(
        "withdrawn",
        "While the loop decides, no epoch takes what was announced before",
        f"{CHECKPOINT}/coordination/announcements.py",
        """            self._next = None
            self._decided = False
            return""",
        """            self._decided = False
            return""",
    ),
    Mutation(
        "announced-alone",
        "Nothing is announced while a checkpoint is in progress",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "if self._closed or self._drains or self._pending:",
        "if self._closed or self._drains:",
    ),
    Mutation(
        "void-id",
        "An id that was announced to an epoch is never used for another one",
        f"{CHECKPOINT}/coordination/announcements.py",
        "        return self.taken >= id\n",
        "        return False\n",
    ),
    Mutation(
        "void-wait",
        "A checkpoint does not wait for another epoch if the announcement to the last one became void",
        f"{CHECKPOINT}/coordination/timing.py",
        "self._passed_by = is_void or (",
        "self._passed_by = (",
        test="tests/unit/checkpoint/coordination/test_coordinator.py"
        "::test_a_checkpoint_is_taken_at_the_end_of_an_epoch_whose_announcement_became_void",
    ),
    Mutation(
        "sweep-announced",
        "A sweep leaves files of the announced checkpoint alone",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "lowest = min((*self._pending, *self._reserved), default=self._next_id)",
        "lowest = min((*self._pending, *self._reserved), default=self._next_id + 1)",
    ),
    Mutation(
        "ack-term",
        "Stored acknowledgements of another term are never read",
        f"{CHECKPOINT}/layout.py",
        'return f"{self.root}/acks/{term}"',
        'return f"{self.root}/acks/1"',
    ),
    Mutation(
        "accepted-version",
        "Parts name their version: of several attempts the accepted one counts",
        "src/tidegate/runtime/checkpoints/epoch_snapshot.py",
        "        return self.versions[task] == version\n",
        "        return True\n",
    ),
    Mutation(
        "epoch-end",
        "A periodic checkpoint does not begin in the middle of an epoch",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "self._begun is None and (ahead.runs or ",
        "self._begun is None and (",
    ),
    Mutation(
        "reserved-spared",
        "Clean-up spares files that are stored under a reserved id",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "lowest = min((*self._pending, *self._reserved), default=self._next_id)",
        "lowest = min(self._pending, default=self._next_id)",
    ),
    Mutation(
        "reserved-base",
        "Clean-up spares the checkpoint whose files a version in the background shares",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "for pending in self._pending.values()), *self._reserved.values())",
        "for pending in self._pending.values()),)",
        test="tests/unit/checkpoint/coordination/test_reserved_ids.py::test_clean_up_spares_a_reserved_id_and_its_base_until_it_is_released",
    ),
    Mutation(
        "reserved-until-used",
        "An id stays reserved until a completed checkpoint contains the version that is stored under it",
        f"{RUNTIME}/checkpoints/materializations.py",
        "if not turn.ready and turn.id not in offered]",
        "if turn.id not in offered]",
    ),
    Mutation(
        "reserved-while-offered",
        "An id stays reserved while a checkpoint in progress was offered the version that is stored under it",
        f"{RUNTIME}/checkpoints/materializations.py",
        "if not turn.ready and turn.id not in offered]",
        "if not turn.ready]",
        test="tests/unit/runtime/checkpoints/test_materializations.py::test_an_id_stays_reserved_while_a_checkpoint_in_progress_was_offered_it",
    ),
    Mutation(
        "rewind-announced",
        "An id that was announced to a discarded epoch is passed over by the rewind",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "        if _looked(self._seen).has_begun_with(self._next_id):\n            self._next_id += 1\n        actions +=",
        "        actions +=",
        test="tests/unit/runtime/checkpoints/test_prompt_checkpoints.py::test_an_announcement_ends_with_a_rewind",
    ),
    Mutation(
        "rewind-epoch",
        "No checkpoint waits for the end of an epoch that a rewind discards",
        f"{CHECKPOINT}/coordination/announcements.py",
        'will not end."""\n        with self._lock:\n            self._running = False\n',
        'will not end."""\n',
        test="tests/unit/runtime/checkpoints/test_prompt_checkpoints.py"
        "::test_no_checkpoint_waits_for_an_epoch_that_failed",
    ),
    Mutation(
        "rewind-uploads",
        "After a rewind no task is asked for the whole version of a discarded epoch",
        f"{RUNTIME}/checkpoints/uploads.py",
        "        self._uploads = {}\n        self.announcements.abandon_epoch()\n",
        "        self.announcements.abandon_epoch()\n",
        test="tests/unit/runtime/checkpoints/test_changelog_checkpoints.py"
        "::test_after_a_rewind_no_task_is_asked_for_the_whole_version_of_a_discarded_epoch",
    ),
    Mutation(
        "rewind-forgets",
        "A checkpoint that is announced after a rewind does not start from a version of before",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        "        self._materializer.forget()\n        yield from self._act(aborted)",
        "        yield from self._act(aborted)\n        self._materializer.forget()",
        test="tests/unit/runtime/checkpoints/test_changelog_checkpoints.py"
        "::test_nothing_is_announced_that_starts_from_a_version_of_discarded_epochs",
    ),
    Mutation(
        "release-first",
        "Output of a completed checkpoint is released before what follows from its completion",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        """        yield from self._output.release()
        yield from self._act(actions)
        yield from self._ownership.unpin_origin()
""",
        """        yield from self._act(actions)
        yield from self._output.release()
        yield from self._ownership.unpin_origin()
""",
        rare=True,
    ),
    Mutation(
        "clean-after-release",
        "Output of a completed checkpoint is released before clean-up",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        """        yield from self._output.release()
        yield from self._act(actions)
        yield from self._ownership.unpin_origin()
        yield from self.clean()
""",
        """        yield from self.clean()
        yield from self._output.release()
        yield from self._act(actions)
        yield from self._ownership.unpin_origin()
""",
    ),
    Mutation(
        "adopt-own",
        "After an unknown outcome, the driver adopts the entry that it tried to write",
        f"{RUNTIME}/checkpoints/owned_term.py",
        "self._signer.in_doubt, self._signer.sign_again",
        "set(), self._signer.sign_again",
    ),
    Mutation(
        "returns-to-newest",
        "A run returns to the newest checkpoint",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        "        self._ownership.snapshot = metadata\n        dropped",
        "        dropped",
    ),
    Mutation(
        "leftovers-expected",
        "Whatever is given up is a reason to sweep after the next checkpoint",
        f"{RUNTIME}/checkpoints/job_cleaning.py",
        "        self._sweeps = max(self._sweeps, checkpoints + self._cleaner.is_sweeping)\n",
        "        pass\n",
    ),
    Mutation(
        "acks-deleted",
        "Clean-up deletes the stored acknowledgements of checkpoints that have ended",
        f"{RUNTIME}/checkpoints/job_cleaning.py",
        "            yield Delete(acks)\n",
        "            pass\n",
    ),
    Mutation(
        "log-trimmed",
        "Clean-up deletes old folders of the log",
        f"{RUNTIME}/checkpoints/job_cleaning.py",
        "            self._cleaner.trim_log(),\n",
        "",
    ),
    Mutation(
        "rewind-ledger",
        "A rewind gives up the output of the epochs that it discards",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        "        self._store.ledger.rewind(self._store.term, reached)\n",
        "",
    ),
    Mutation(
        "recovered-first",
        "A term takes over what its log contains before it does anything",
        f"{RUNTIME}/checkpoints/owned_term.py",
        "        data = yield from self.store.recover()\n",
        """        from tidegate.checkpoint.effects import Get
        base = self.store.entry.base
        data = None if base is None else (yield Get(base.metadata))
""",
    ),
    Mutation(
        "terminal-due",
        "Whoever stops a job waits for all output that its savepoint carries",
        f"{RUNTIME}/checkpoints/output.py",
        "        self.await_committed(answer, self.newest_due())\n",
        "        self.await_committed(answer, EpochId(Term(0), 0))\n",
        rare=True,
    ),
    Mutation(
        "rewind-reached",
        "A rewind keeps the output of the epochs that the latest checkpoint contains",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        "reached = None if base is None or base.epoch.term != self._store.term else base.epoch",
        "reached = None",
    ),
    Mutation(
        "overlapping-base",
        "A checkpoint that overlaps with another one keeps the base that it began with",
        f"{RUNTIME}/checkpoints/checkpoint_work.py",
        "            base = each.base.get(task)\n",
        "            base = state.in_latest(task)\n",
        rare=True,
    ),
    Mutation(
        "older-ack",
        "Once a newer checkpoint has completed, an older one is over, and what tasks stored for it goes",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        "        self._uploads.forget(aborted.id)\n        self._cleaning",
        "        self._cleaning",
        rare=True,
    ),
    Mutation(
        "materialized-used",
        "A version that was stored in the background is given up when a checkpoint contains it",
        f"{RUNTIME}/checkpoints/materializer.py",
        "        self._turns.use(offered)\n",
        "",
    ),
    Mutation(
        "pin-until-own",
        "A fork holds what it began from until it has a checkpoint of its own",
        f"{RUNTIME}/checkpoints/owned_term.py",
        "            self._pin = yield from self.history.hold_again(base)\n",
        """            self._pin = yield from self.history.hold_again(base)
            yield from self.unpin_origin()
""",
        rare=True,
    ),
    Mutation(
        "pin-again",
        "A term that begins from another job's checkpoint places its pin again if another start took it away",
        f"{RUNTIME}/checkpoints/history.py",
        "        if (yield Get(pin.layout.pin(pin.name))) is None:\n",
        "        if False:\n",
        test="tests/unit/runtime/checkpoints/test_loop.py"
        "::test_a_pin_that_another_start_took_away_is_placed_again_after_the_claim",
    ),
    Mutation(
        "pin-given-up",
        "A fork that has a checkpoint of its own gives up the pin on its origin",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        "        yield from self._ownership.unpin_origin()\n        yield from self.clean()\n",
        "        yield from self.clean()\n",
        rare=True,
    ),
    Mutation(
        "output-with-epoch",
        "A checkpoint of an epoch carries the output of that epoch",
        f"{RUNTIME}/checkpoints/checkpointer.py",
        "            self._store.ledger.accept(report.committables)\n",
        "            self._store.ledger.accept(report.committables[:-1])\n",
    ),
    Mutation(
        "changes-order",
        "Changes are applied in the order of versions",
        f"{CHECKPOINT}/task/change_plan.py",
        "    return sorted(found, key=lambda file: (file.origin, file.name))",
        "    return sorted(found, key=lambda file: file.name)",
    ),
    Mutation(
        "changes-all",
        "A checkpoint has all changes since the version it starts from, also those that an earlier one has stored",
        f"{CHECKPOINT}/task/version_upload.py",
        "                stored.append(each)\n",
        "                continue\n",
    ),
    Mutation(
        "changes-named",
        "A task with changes says so in the name of its backend",
        f"{CHECKPOINT}/task/version_upload.py",
        'backend = manifest.backend + (WITH_CHANGELOG if changed else "")',
        "backend = manifest.backend",
    ),
    Mutation(
        "unknown-list",
        "A list with files of a version that was stored in the background shares files with lists that it does not name",
        f"{CHECKPOINT}/task/version_upload.py",
        "return listed.state, ListChange(UNKNOWN, new, ())",
        "return listed.state, ListChange(None, new, ())",
    ),
    Mutation(
        "rescale-saved",
        "A rescale ends an attempt at a checkpoint that contains its last epoch",
        f"{RUNTIME}/checkpoints/rescale.py",
        "        if not held.are_contained:\n",
        "        if False:\n",
    ),
    Mutation(
        "rescale-contained",
        "A rescale does without a checkpoint only if the latest one contains the last epoch that changed something",
        f"{RUNTIME}/checkpoints/rescale.py",
        "return self.base is not None and (self.moved is None or self.moved <= self.base.epoch)",
        "return self.base is not None",
    ),
    Mutation(
        "rescale-failed",
        "A job whose checkpoint for a rescale fails continues as it was",
        f"{RUNTIME}/checkpoints/rescale.py",
        "            if failure is not None:\n                return failure\n",
        "",
    ),
    Mutation(
        "rescale-ended",
        "The attempt that a rescale ends runs no further epoch",
        f"{RUNTIME}/checkpoints/rescale.py",
        "        yield EndAttempt()\n",
        "",
    ),
    Mutation(
        "rescale-term",
        "The slots of another parallelism have a term of their own",
        f"{RUNTIME}/checkpoints/rescale.py",
        "        if not (yield ClaimAgain(parallelism)):\n            return False\n",
        "",
    ),
    Mutation(
        "rescale-retired",
        "No epoch runs between the checkpoint of a rescale and the next term",
        f"{RUNTIME}/driver/rescaler.py",
        "                self._due = rescale\n                attempt.retire()\n",
        "                self._due = rescale\n",
        test="tests/unit/runtime/driver/test_rescaler.py::test_no_epoch_runs_between_the_checkpoint_and_the_next_attempt",
    ),
    Mutation(
        "rescale-back",
        "If the new tasks of a rescale cannot start, the job continues with its old parallelism",
        f"{RUNTIME}/checkpoints/rescale.py",
        "        return (yield from self._begin_term(self._old))\n",
        "        return (yield from self._begin_term(self._new))\n",
        test="tests/unit/runtime/driver/test_rescaler.py::test_if_the_new_tasks_cannot_start_the_job_continues_with_the_old_parallelism",
    ),
    Mutation(
        "rescale-trust",
        "A restore trusts only the version that the driver has accepted",
        f"{RUNTIME}/epochs/restore_work.py",
        " and accepted[state.task].version == state.version",
        "",
        test="tests/unit/runtime/epochs/test_runner.py"
        "::test_after_a_rescale_tasks_run_where_most_of_their_state_is_and_use_it_in_place",
    ),
    Mutation(
        "rescale-trust-once",
        "A restore after a failure trusts no version on local disk without its checksums",
        f"{RUNTIME}/epochs/runner.py",
        "        accepted = self._accepted\n        self._accepted = {}\n",
        "        accepted = self._accepted\n",
        test="tests/unit/runtime/epochs/test_runner.py"
        "::test_after_a_rescale_tasks_run_where_most_of_their_state_is_and_use_it_in_place",
    ),
    Mutation(
        "boot-trust-once",
        "Only the first restore of a run uses a version without checksums because it is of this boot",
        f"{RUNTIME}/epochs/runner.py",
        "starts=self._number == 0",
        "starts=True",
        test="tests/unit/runtime/epochs/test_runner.py"
        "::test_after_an_epoch_has_run_no_restore_trusts_a_version_without_checksums",
    ),
    Mutation(
        "boot-trust",
        "A version of an earlier boot, or of a disk that others may have used, is used only if its checksums match",
        f"{CHECKPOINT}/task/version_fetch.py",
        "        trusted = trusts_boot and manifest.token == token_of(directory) != NOTHING\n",
        "        trusted = trusts_boot\n",
        test="tests/contract/snapshots/test_upload_and_restore.py"
        "::test_at_a_start_a_version_of_this_boot_is_used_without_checksums",
    ),
    Mutation(
        "never-stored",
        "A file that was never stored is used only if it is what was written",
        f"{CHECKPOINT}/task/version_fetch.py",
        "                same = _is_same(here / file.name, expected or file)\n",
        "                same = expected is None or _is_same(here / file.name, expected)\n",
        test="tests/contract/snapshots/test_damage.py"
        "::test_a_damaged_table_that_was_never_stored_does_not_reach_another_parallelism",
    ),
    Mutation(
        "stored-as-written",
        "Nothing is stored that is not what was written",
        f"{CHECKPOINT}/task/version_upload.py",
        "record, written=file.checksum)",
        "record)",
        test="tests/contract/snapshots/test_damage.py::test_a_materialization_uploads_no_damaged_table",
    ),
    Mutation(
        "list-of-tables",
        "A list of tables that is not what was written is not opened",
        "src/tidegate/state/rocksdb/store.py",
        "        require_same(source, check_of(data), checksum)\n",
        "        pass\n",
        test="tests/contract/snapshots/test_damage.py::test_a_list_of_tables_that_lost_its_end_is_found_when_it_is_opened",
    ),
    Mutation(
        "damage-read",
        "Damage that a function reads discards the version",
        "src/tidegate/runtime/task/run_level.py",
        "task.state.damage(failed) or task.barriers.barrier_fault() or _user_fault(failed)",
        "task.barriers.barrier_fault() or _user_fault(failed)",
        test="tests/unit/runtime/task/test_task_state.py"
        "::test_damage_that_a_function_reads_discards_the_version_and_is_not_its_error",
    ),
    Mutation(
        "rescale-keep",
        "A task keeps versions on local disk that other tasks restore from",
        f"{RUNTIME}/epochs/restore_work.py",
        "            keep=tuple((needed[task],) if task in needed else () for task in tasks),\n",
        "",
        test="tests/unit/runtime/epochs/test_runner.py"
        "::test_after_a_rescale_tasks_run_where_most_of_their_state_is_and_use_it_in_place",
    ),
    Mutation(
        "drain-alone",
        "Only what the job ends with contains an epoch at the end of event time",
        f"{CHECKPOINT}/coordination/coordinator.py",
        "only_final=self._drains)",
        "only_final=False)",
        test="tests/unit/checkpoint/coordination/test_coordinator.py::test_only_what_the_job_ends_with_contains_an_epoch_at_the_end_of_event_time",
    ),
    Mutation(
        "scaling-off",
        "The autoscaler changes nothing unless it is allowed to",
        f"{RUNTIME}/driver/autoscaling.py",
        "self._rescale = rescale if self.config.scaling_enabled else None",
        "self._rescale = rescale",
        test="tests/unit/runtime/driver/test_autoscaling.py::test_it_recommends_and_does_not_act_by_default",
    ),
    Mutation(
        "scaling-alone",
        "The autoscaler asks for one rescale at a time",
        f"{RUNTIME}/driver/autoscaling.py",
        "self._rescale is not None and self._asked is None and",
        "self._rescale is not None and",
        test="tests/unit/runtime/driver/test_autoscaling.py::test_it_rescales_the_job_once_and_waits_for_the_outcome",
    ),
    Mutation(
        "scaling-waits",
        "After a rescale that failed, the autoscaler waits, and longer each time",
        f"{RUNTIME}/driver/autoscaling.py",
        "wait_ms = min(self.config.window_ms << min(self._failures, 20), _DAY_MS)",
        "wait_ms = 0",
        test="tests/unit/runtime/driver/test_autoscaling.py"
        "::test_a_rescale_that_fails_is_counted_and_tried_again_after_a_window_then_after_twice_as_long",
    ),
    Mutation(
        "scaling-judged",
        "A rescale that was not carried out is not judged by its effect",
        "src/tidegate/autoscaler/decider.py",
        "            self._history = [each for each in self._history if each is not self._pending]\n",
        "",
        test="tests/unit/runtime/driver/test_autoscaling.py::test_what_was_not_carried_out_is_not_judged_by_its_effect",
    ),
    Mutation(
        "scaling-by",
        "A rescale that the autoscaler asked for is recorded as its own",
        f"{RUNTIME}/driver/rescaler.py",
        "self.ask(parallelism, RescaleRequester.AUTOSCALER)",
        "self.ask(parallelism)",
        test="tests/unit/runtime/driver/test_rescaler.py::test_a_rescale_that_the_autoscaler_asked_for_is_recorded_as_its_own",
    ),
    Mutation(
        "random-terms",
        "A claim of a restored log has a term that the lost one never had",
        "src/tidegate/core/ids.py",
        "    return Term(ordinal << _RANDOM_BITS | random_bits & (1 << _RANDOM_BITS) - 1)\n",
        "    return Term(ordinal << _RANDOM_BITS)\n",
        rare=True,
    ),
    Mutation(
        "known-epochs",
        "A log knows the epochs of a term only as far as its checkpoints go",
        "src/tidegate/core/history.py",
        "c.last == UNBOUNDED or epoch.number <= c.last",
        "True",
        rare=True,
    ),
    Mutation(
        "own-marker",
        "A marker of another history covers no output of this one",
        "src/tidegate/core/history.py",
        "    return earlier and is_own(claims, marker.term) and is_own(claims, epoch.term)\n",
        "    return earlier\n",
        rare=True,
        test="tests/unit/core/test_history.py::test_the_claims_of_a_restored_log_are_not_hidden_by_a_later_claim_of_the_lost_one",
    ),
    Mutation(
        "accepted-claim",
        "A claim that was accepted is not one of this history",
        f"{CHECKPOINT}/job_log/entry.py",
        "        claims = history.learnt(claims, epoch, own=False)\n",
        "        claims = history.learnt(claims, epoch)\n",
        rare=True,
    ),
    Mutation(
        "same-claim-covers",
        "A marker covers output of its own claim by the numbers of epochs",
        "src/tidegate/core/history.py",
        "        return epoch.number <= marker.number\n",
        "        return epoch.number < marker.number\n",
    ),
    Mutation(
        "earlier-claim-covers",
        "A marker covers output of earlier claims of its history",
        "src/tidegate/core/history.py",
        "    return earlier and is_own(claims, marker.term) and is_own(claims, epoch.term)\n",
        "    return False\n",
    ),
    Mutation(
        "fork-of-a-copy-owes-nothing",
        "A new line of history in a copy leaves waiting output to the original",
        f"{CHECKPOINT}/job_log/claim.py",
        "            mine = entries.in_copy(mine)\n",
        "            pass\n",
        test="tests/unit/checkpoint/job_log/test_copied_log.py::test_a_fork_of_a_copy_leaves_the_output_that_waits_to_the_original",
    ),
    Mutation(
        "lost-savepoint",
        "A savepoint of a lost history is not taken for one of a log that has gone on",
        f"{CHECKPOINT}/job_log/start.py",
        "        if is_of_lost_history(newest, start):\n            return _LOST_HISTORY\n",
        "",
        test="tests/unit/checkpoint/job_log/test_restored_log.py::test_a_savepoint_of_a_lost_history_is_refused_once_the_log_has_gone_on",
    ),
    Mutation(
        "copy-returns",
        "A copy does not return to the line of history of its original",
        f"{CHECKPOINT}/job_log/start.py",
        "        if is_of_original(newest, start.source) and not start.accepts_move:\n            return _OF_ORIGINAL\n",
        "",
        test="tests/unit/checkpoint/job_log/test_copied_log.py::test_a_fork_of_a_copy_does_not_return_to_the_history_of_the_original",
    ),
    Mutation(
        "given-to-the-original",
        "A copy does not delete a savepoint that was given to its original",
        f"{CHECKPOINT}/job_log/entry.py",
        "retained=_without_given(mine.retained, mine.base), ",
        "",
        test="tests/unit/checkpoint/job_log/test_copied_log.py::test_a_fork_of_a_copy_leaves_claimed_savepoints_to_the_original",
    ),
    Mutation(
        "accepted-stays",
        "A claim that was accepted stays listed, however many follow",
        "src/tidegate/core/history.py",
        "    return tuple(c for c in longer if not c.own or not cut or",
        "    return tuple(c for c in longer if not cut or",
        test="tests/unit/core/test_history.py::test_an_accepted_claim_never_becomes_one_of_this_history",
    ),
    Mutation(
        "carried-epochs",
        "A log learns the epochs of output that a savepoint carries",
        f"{CHECKPOINT}/job_log/entry.py",
        "        for epoch in (base.epoch, *carried):\n",
        "        for epoch in (base.epoch,):\n",
        test="tests/unit/checkpoint/job_log/test_restored_log.py::test_an_older_log_learns_what_a_newer_savepoint_carries",
    ),
    Mutation(
        "leap",
        "The claim that accepts output of a lost history comes after it",
        f"{CHECKPOINT}/job_log/entry.py",
        "    terms = [epoch.term for epoch in accepted]\n",
        "    terms = list[Term]()\n",
        test="tests/unit/checkpoint/job_log/test_restored_log.py::test_a_claim_leaps_above_output_that_is_accepted",
    ),
    Mutation(
        "copied-directory",
        "A start from a copy of the directory is refused",
        f"{CHECKPOINT}/job_log/start.py",
        "    if (copy := refuse_copy(newest, start)) is not None:\n        return copy\n",
        "",
        test="tests/unit/checkpoint/job_log/test_copied_log.py::test_a_copy_is_refused_by_name_and_nothing_is_written",
    ),
    Mutation(
        "foreign-start",
        "A start is refused if a target has output that the log does not know",
        f"{CHECKPOINT}/job_log/foreign_output.py",
        "    return {uid: epochs for uid, epochs in unknown.items() if epochs}\n",
        "    return {}\n",
        test="tests/unit/runtime/checkpoints/test_foreign_output.py::test_a_target_with_output_of_a_lost_history_is_reported",
    ),
    Mutation(
        "foreign-commit",
        "A commit is refused if its target has output that the log does not know",
        "src/tidegate/connectors/files/committer.py",
        "        self._check_history(requests)\n",
        "",
        test="tests/contract/sinks/test_file_sink.py::TestJsonFiles::test_a_restored_job_publishes_nothing_beside_a_lost_history",
    ),
    Mutation(
        "asked-late",
        "A target that could not be asked at the start is asked before it gets any output",
        "src/tidegate/runtime/checkpoints/output.py",
        "        if batch.sink not in self._sinks.unasked:\n",
        "        if batch.sink in self._sinks.unasked:\n",
        test="tests/unit/runtime/checkpoints/test_output.py::test_a_target_that_could_not_be_asked_gets_nothing_next_to_output_of_another_history",
    ),
    Mutation(
        "asked-by-tasks",
        "A task asks such a target, too",
        "src/tidegate/runtime/task/background_commit.py",
        "            if self.order.compares and history is not None:\n",
        "            if False:\n",
        test="tests/unit/runtime/task/test_background_commit.py::test_a_task_commits_nothing_next_to_output_of_another_history_if_the_driver_could_not_ask",
    ),
)
