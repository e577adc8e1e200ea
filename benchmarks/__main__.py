"""Runs one benchmark: `python -m benchmarks NAME --json FILE [--quick]`.

A benchmark is a module with `run(json_path, quick) -> dict`. Progress goes to stderr; a table ends the output; the file
gets every figure, the machine, and the ratios with what is wanted of them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks import harness

NAMES = {
    "async": "benchmarks.async_calls",
    "bounded": "benchmarks.bounded",
    "checkpoint": "benchmarks.checkpoint",
    "coordinator": "benchmarks.coordinator",
    "kafka": "benchmarks.kafka",
    "keyed-count": "benchmarks.keyed_count",
    "latency": "benchmarks.latency",
    "local-recovery": "benchmarks.local_recovery",
    "memory": "benchmarks.memory",
    "release": "benchmarks.release",
    "rescale": "benchmarks.rescale",
    "restore": "benchmarks.restore",
    "savepoint": "benchmarks.savepoint",
    "skew": "benchmarks.skew",
    "slow-epochs": "benchmarks.slow_epochs",
    "start": "benchmarks.start",
    "state-growth": "benchmarks.state_growth",
    "timers": "benchmarks.timers",
    "transform-with-state": "benchmarks.transform_with_state",
    "wide": "benchmarks.wide",
    "two-levels": "benchmarks.two_levels",
    "windows": "benchmarks.windows",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=sorted(NAMES))
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="where the figures go")
    parser.add_argument("--quick", action="store_true", help="small and short: shows that it runs, not how fast")
    parser.add_argument("--repetitions", type=int, help="instead of the benchmark's own number")
    parser.add_argument("--only", help="comma-separated contestants; their ratios to absent ones are left out")
    parser.add_argument("--megabytes", type=int, help="of state, where a benchmark has a choice")
    parser.add_argument("--seconds", type=int, help="how long to measure, where a benchmark has a choice")
    arguments = parser.parse_args()
    choices = {
        "repetitions": arguments.repetitions,
        "megabytes": arguments.megabytes,
        "seconds": arguments.seconds,
        "only": arguments.only.split(",") if arguments.only else None,
    }
    module = importlib.import_module(NAMES[arguments.name])
    given = {name: choice for name, choice in choices.items() if choice is not None}
    provenance = harness.Provenance(sys.argv[1:], ({"quick": True} if arguments.quick else {}) | given)
    result = module.run(arguments.json, arguments.quick, **given)
    report = {
        "benchmark": arguments.name,
        "quick": arguments.quick,
        **provenance.as_json(),
        "machine": harness.machine(),
        **result,
    }
    harness.write(arguments.json, report)
    print(harness.table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
