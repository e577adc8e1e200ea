"""`python -m chaos simulate`: the protocol under a simulated clock, one seed after the other."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from chaos.simulation.faults import Violation
from chaos.simulation.run import simulate
from chaos.simulation.world import Tally

SUMMARY = (
    "Run the checkpoint protocol under a simulated clock with crashes, rivals, lies of storage, rollbacks and forks."
)

EXPECTED_STEPS = (
    "claim.1-read", "claim.2-decided", "claim.3-won", "claim.4-shown", "recover.1-read", "recover.2-learnt",
    "recover.3-owed", "publish.0-output", "publish.1-metadata", "publish.2-entry", "release.1-commit",
    "release.2-committed", "clean.1-marked",
    "clean.2-metadata", "clean.3-files", "sweep.1-listed", "sweep.2-deleted", "stop.1-entry", "end.1-entry", "dispose.1-read",
    "dispose.2-files", "dispose.3-metadata", "materialize.1-reserved", "materialize.2-asked", "materialize.3-stored",
    "materialize.4-offered", "materialize.5-completed", "materialize.6-released", "rescale.1-asked", "rescale.2-saved",
    "rescale.3-ended", "rescale.4-claimed", "rescale.5-restored", "claim-again.1-read",
    "claim-again.2-won", "append.1-created", "trim.1-listed", "trim.2-deleted",
)  # fmt: skip
"""Every numbered step at which a driver of the simulation can die."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default: 200)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default: 1)")
    parser.add_argument("--seed", type=int, help="run this one only, and print its trace if it fails")
    parser.add_argument("--tasks", type=int, help="tasks of every job, instead of what the seed says")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")


def run(options: argparse.Namespace) -> int:
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    total, tried, started = Tally(), 0, time.perf_counter()
    failure: dict[str, object] | None = None
    for seed in seeds:
        tried += 1
        try:
            total.add(simulate(seed, options.tasks))
        except Violation as violation:
            trace = "\n".join(getattr(violation, "__notes__", ()))
            print(trace if options.seed is not None else "\n".join(trace.splitlines()[-60:]))
            print(f"\nVIOLATION in seed {seed}: {violation}\nAll of it: python -m chaos simulate --seed {seed}")
            failure = {"seed": seed, "violation": str(violation)}
            break
    seconds = time.perf_counter() - started
    _report(total, tried, seconds)
    if options.json is not None:
        result = {
            "seeds": tried, "seconds": round(seconds, 3), "failure": failure, "events": total.events,
            "crashes": total.crashes, "pauses": total.pauses,
        }  # fmt: skip
        options.json.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")
    return 0 if failure is None else 1


def _report(total: Tally, tried: int, seconds: float) -> None:
    print(f"{tried} seeds in {seconds:.1f} s ({tried / max(seconds, 1e-9):.0f} seeds/s)")
    for name, counter in (("tried", total.events), ("crashed at", total.crashes), ("slept at", total.pauses)):
        print(f"\n{name}:")
        for what, times in sorted(counter.items()):
            print(f"  {times:8}  {what}")
    missed = [step for step in EXPECTED_STEPS if not total.crashes[step]]
    if missed:
        print(f"\nno crash happened at: {', '.join(missed)}")
