"""Takes the pictures of the documentation that need a job: `python -m tests.integration.ui.screenshots --to docs/images/ui`."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests import sparks
from tests.browser import Browser
from tests.integration.ui.sites import SITES, SITUATIONS, Site, is_shown

MOST_BYTES = 150_000
HIGHEST = 1200
MARGIN = 16
WARM_UP_S = {"running": 25, "idle": 32, "restarted": 8}
"""So long a job is left alone: that its charts have something to show, and that an idle one is idle."""
GRAPH = "[aria-label=Graph]"


@dataclass(frozen=True, slots=True)
class Shot:
    """A page of a sample job. `name` is that of the file."""

    name: str
    site: str
    page: str
    theme: str = "light"
    width: int = 1280
    until: str = "#app"
    """The last element in the picture."""


SHOTS = (
    Shot("running-overview", "running", "overview"),
    Shot("failed-exceptions-dark", "failed", "exceptions", "dark"),
    # The answers and the graph: what an operator sees first.
    *(Shot(f"{name}-overview", name, "overview", until=GRAPH) for name in SITUATIONS),
)


def take(browser: Browser, site: Site, shot: Shot, folder: Path) -> None:
    page = browser.open_page(site.ui_url, width=shot.width, height=844)
    with contextlib.closing(page):
        page.emulate_dark(shot.theme == "dark")
        page.goto(site.page_url(shot.page))
        page.wait_for(is_shown(shot.page))
        bottom = page.evaluate(
            f"Math.ceil(document.querySelector({json.dumps(shot.until)}).getBoundingClientRect().bottom)"
        )
        height = min(HIGHEST, bottom + MARGIN)
        path = folder / f"{shot.name}.png"
        while True:
            page.set_viewport(shot.width, height, mobile=shot.width < 720)
            time.sleep(1)
            page.screenshot(path)
            size = path.stat().st_size
            if size < MOST_BYTES:
                break
            height -= 100
    print(f"{path}  {shot.width} x {height}, {size / 1000:.0f} kB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="the folder for the pictures")
    parser.add_argument("--only", default="", help="a part of the names of the wanted pictures")
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    wanted = [shot for shot in SHOTS if asked.only in shot.name]
    with Browser() as browser:
        for name, opened in {**SITES, **SITUATIONS}.items():
            shots = [shot for shot in wanted if shot.site == name]
            if not shots:
                continue
            with tempfile.TemporaryDirectory() as folder, opened(sparks.session(), Path(folder)) as site:
                time.sleep(WARM_UP_S.get(name, 0))
                for shot in shots:
                    take(browser, site, shot, asked.to)
    sparks.end()


if __name__ == "__main__":
    main()
