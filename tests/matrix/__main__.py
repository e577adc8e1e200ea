"""`python -m tests.matrix …`

run [WORD …] [--steps NAME,…]   the suite in every cell whose name contains a word, in all without one; resumes
record                          take the results into `tests/matrix/record.jsonl` and the page of the support matrix
turn                            a short suite in one cell other than the default, another one with every commit
list                            all cells, and which of them this machine can run
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.matrix import suite
from tests.matrix.cells import CELLS, Cell, chosen, in_turn
from tests.matrix.environment import FOLDER, Missing, environment_of, find_java, find_python
from tests.matrix.record import commit_of_tree, impossible, keep, known_to_work, record, recorded, result_of
from tests.tiers.change import turn_of_head


def main(words: list[str]) -> int:
    match words:
        case ["run", *more]:
            names = more.pop(more.index("--steps") + 1).split(",") if "--steps" in more else None
            steps = [step for step in suite.SUITE if names is None or step.name in names]
            return run(chosen([word for word in more if word != "--steps"]), steps)
        case ["record"]:
            for result in record():
                print(f"{result.outcome:<10} {result.cell}")
            return 0
        case ["turn"]:
            return turn()
        case ["list"]:
            for cell in CELLS:
                print(f"{cell}{'' if _can_run(cell) else '  (no such Python or Java here)'}")
            return 0
    print(__doc__, file=sys.stderr)
    return 2


def run(cells: Sequence[Cell], steps: Sequence[suite.Step]) -> int:
    """Run these steps in these cells. Returns 0 if all that could run passed."""
    commit = commit_of_tree()
    failed = 0
    for cell in cells:
        print(f"-- {cell}", flush=True)
        try:
            environment = environment_of(cell)
        except Missing as missing:
            print(f"   {missing}", flush=True)
            keep(impossible(cell, commit, str(missing)))
            continue
        suite.make_archive(cell, environment)
        found = suite.run_steps(cell, environment, commit, steps)
        result = result_of(cell, commit, environment.versions(), found)
        keep(result)
        failed += result.outcome == suite.FAILED
    return 1 if failed else 0


def turn() -> int:
    """What CI runs. Only cells count whose interpreter and JVM the machine has, and which are known to work: in any other one, a
    failure would say nothing about the commit."""
    cells = [cell for cell in known_to_work(recorded()) if _can_run(cell)]
    if not cells:
        print("no other cell is known to work here")
        return 0
    cell = in_turn(turn_of_head(), cells)
    outcome = suite.run_step(suite.QUICK, cell, environment_of(cell), FOLDER / "turn")
    return 1 if outcome.outcome == suite.FAILED else 0


def _can_run(cell: Cell) -> bool:
    return find_python(cell.python) is not None and find_java(cell.java) is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
