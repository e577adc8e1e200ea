"""Folders are rooms: few files in each, and imports between the rooms of a package point one way."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.architecture.test_import_cycles import PACKAGES, Graph, cycles, described, import_graph
from tests.sparks import ROOT

SOURCE = ROOT / "src" / "tidegate"
MOST_FILES = 25
MOST_ROOMS = 10
MOST_LEVELS = 6
SCRIPT_IMPORT = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?\s*)["'](\.[^"']+)["']""")


def rooms_of(package: str, graph: Graph) -> dict[str, set[str]]:
    """Draw a package from its imports: its folders and own modules, and the rooms that each one imports from."""
    prefix = f"{package}."
    rooms: defaultdict[str, set[str]] = defaultdict(set)
    for module, imported in graph.items():
        if not module.startswith(prefix):
            continue
        room = module.removeprefix(prefix).split(".")[0]
        others = {other.removeprefix(prefix).split(".")[0] for other in imported if other.startswith(prefix)}
        rooms[room] |= others - {room}
    return dict(rooms)


def levels(rooms: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the level of each room: 0 if it imports from no other, otherwise one above the highest that it imports from."""
    found: dict[str, int] = {}
    while len(found) < len(rooms):
        standing = [room for room in rooms if room not in found and rooms[room] <= found.keys()]
        assert standing, f"these rooms import from each other: {sorted(rooms.keys() - found.keys())}"
        found |= {room: 1 + max((found[other] for other in rooms[room]), default=-1) for room in standing}
    return found


def test_no_folder_has_more_than_25_loose_files() -> None:
    """Not counting `__init__.py`, which only says what the folder is for."""
    folders = [SOURCE, *(path for path in SOURCE.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    counts = {
        str(folder.relative_to(SOURCE)): sum(path.is_file() and path.name != "__init__.py" for path in folder.iterdir())
        for folder in folders
    }

    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


@pytest.mark.parametrize("package", ["tidegate.runtime", "tidegate.control"])
def test_a_package_has_at_most_ten_rooms_on_six_levels_and_no_upward_arrow(package: str) -> None:
    rooms = rooms_of(package, import_graph(PACKAGES))
    found = levels(rooms)  # fails if an arrow points up: then two rooms import from each other

    assert len(rooms) <= MOST_ROOMS, sorted(rooms)
    assert max(found.values()) < MOST_LEVELS, found


def test_levels_follow_from_imports_and_a_circle_of_rooms_is_named() -> None:
    graph = {
        "inn.desk.book": {"inn.rooms.single", "inn.bell"},
        "inn.rooms.single": {"inn.bell", "inn.rooms.double"},
        "inn.rooms.double": set(),
        "inn.bell": {"elsewhere.tower"},
        "elsewhere.tower": {"inn.desk.book"},
    }

    assert levels(rooms_of("inn", graph)) == {"bell": 0, "rooms": 1, "desk": 2}
    with pytest.raises(AssertionError, match=r"\['bell', 'desk', 'rooms'\]"):
        levels(rooms_of("inn", graph | {"inn.bell": {"inn.desk.book"}}))


def script_graph(folder: Path) -> Graph:
    """The scripts that each script imports, also with `import(…)` in a function, by their path in the folder."""
    paths = {path.resolve(): str(path.relative_to(folder)) for path in folder.rglob("*.js")}
    return {
        name: {
            paths[target]
            for text in SCRIPT_IMPORT.findall(path.read_text())
            if (target := (path.parent / text).resolve()) in paths
        }
        for path, name in paths.items()
    }


def test_scripts_of_the_ui_import_each_other_in_one_direction_only() -> None:
    graph = script_graph(SOURCE / "control" / "ui")
    found = [described(graph, cycle) for cycle in cycles(graph)]

    assert not found, "\n" + "\n".join(found)
    assert graph["app.js"] >= {"router.js", "pages/jobs.js"}  # the graph is not empty by mistake


def test_every_form_of_a_script_import_counts(tmp_path: Path) -> None:
    (tmp_path / "rooms").mkdir()
    files = {
        "desk.js": 'import {\n  single,\n  double,\n} from "./rooms/single.js";\n',
        "rooms/single.js": 'export { bell } from "../bell.js";\n',
        "bell.js": 'import "./lamp.js";\n',
        "lamp.js": 'const open = () => import("./desk.js");\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    assert cycles(script_graph(tmp_path)) == [["bell.js", "desk.js", "lamp.js", "rooms/single.js"]]
