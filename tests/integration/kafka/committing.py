"""A driver that only commits: `python -m tests.integration.kafka.committing TASK`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from tidegate.connectors.sink import CommitterContext


def main() -> None:
    sink, schema, shelf, requests = pickle.loads(Path(sys.argv[1]).read_bytes())
    sink.create_committer(CommitterContext(schema, shelf.read)).commit(requests)


if __name__ == "__main__":
    main()
