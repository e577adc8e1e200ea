"""The documentation site: `python -m tests.site` builds it with both generators and checks what they wrote.

    python -m tests.site            build into artifacts/site (Zensical) and artifacts/site-mkdocs (Material), check both
    python -m tests.site --nav      write the lines of `nav` that list whole folders, and the list of decisions

Both builds are strict: a broken link, a missing anchor or a page that is not in `nav` fails them. Then the pages themselves are
read: every link leads to a file and an anchor that exist, and nothing is loaded from another host. A browser opens some of them
from the folder, and searches.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from time import monotonic
from urllib.parse import unquote, urlsplit

from tests.browser import Browser, BrowserError
from tests.scratch import ROOT

CONFIG = ROOT / "mkdocs.yml"
DOCS = ROOT / "docs"
DECISIONS = DOCS / "internals" / "decisions" / "README.md"
ZENSICAL = ROOT / "artifacts" / "site"
MATERIAL = ROOT / "artifacts" / "site-mkdocs"
GENERATORS = {
    ZENSICAL: ("zensical", "build", "--strict", "--clean"),
    MATERIAL: ("mkdocs", "build", "--strict", "--site-dir", str(MATERIAL)),  # With --quiet, warnings would not count.
}
_FOLDER = re.compile(r"^( *)# every page of (\S+)\n((?:\1- \S+\.md\n)*)", re.MULTILINE)
_PAGE = re.compile(r"^ *- (?:[^#\n]*: )?(\S+\.md)$", re.MULTILINE)
_LOCAL = ("file:", "data:", "blob:", "about:")
_LOADING = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "script": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
}
_LOADING_LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "modulepreload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "manifest",
}


def pages() -> list[str]:
    """All pages, by their path below docs."""
    return sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def pages_of_nav(config: str) -> list[str]:
    """The pages that the configuration lists in `nav`, in its order."""
    return _PAGE.findall(config[config.index("\nnav:\n") :])


def with_folders(config: str) -> str:
    """The configuration with the lines below `# every page of FOLDER` written anew."""

    def lines(found: re.Match[str]) -> str:
        indent, folder, _ = found.groups()
        below = [page for page in pages() if Path(page).parent == Path(folder)]
        # The README of a folder is the first page of its section.
        ordered = sorted(below, key=lambda page: (Path(page).name != "README.md", page))
        return "".join([f"{indent}# every page of {folder}\n", *(f"{indent}- {page}\n" for page in ordered)])

    return _FOLDER.sub(lines, config)


def with_decisions(text: str) -> str:
    """The page about decisions with a list of all of them."""
    notes = sorted(DECISIONS.parent.glob("0*.md"))
    listed = [f"- [{note.read_text().splitlines()[0].removeprefix('# ')}]({note.name})\n" for note in notes]
    return text[: text.index("- [0001")] + "".join(listed)


@dataclass(slots=True)
class _Links(HTMLParser):
    """What one page links to, what it loads, and which anchors it has."""

    hrefs: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super(_Links, self).__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.anchors |= {known[name] for name in ("id", "name") if known.get(name)}
        if tag == "a" and "href" in known:
            self.hrefs.append(known["href"])
        if tag == "link" and _LOADING_LINKS & set(known.get("rel", "").split()):
            self.loaded.append(known["href"])
        self.loaded += [known[name].split()[0] for name in _LOADING.get(tag, ()) if known.get(name)]


@cache
def _read(page: Path) -> _Links:
    links = _Links()
    links.feed(page.read_text())
    return links


def broken_links(site: Path) -> Iterator[str]:
    """Links and anchors of a built site that lead nowhere."""
    for page in sorted(site.rglob("*.html")):
        found = _read(page)
        for link in [*found.hrefs, *found.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{page.relative_to(site)}: {link} does not exist"
            elif parts.fragment and target.suffix == ".html":
                anchor = unquote(parts.fragment)
                if anchor not in _read(target).anchors and not anchor.startswith("__"):
                    yield f"{page.relative_to(site)}: {link} has no such anchor"


def foreign_resources(site: Path) -> Iterator[str]:
    """Whatever pages and stylesheets would load from another host. Links that a reader may follow are not meant."""
    for page in sorted(site.rglob("*.html")):
        for link in _read(page).loaded:
            if urlsplit(link).netloc:
                yield f"{page.relative_to(site)} loads {link}"
    for sheet in sorted(site.rglob("*.css")):
        for link in re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", sheet.read_text()):
            if urlsplit(link).netloc and urlsplit(link).scheme != "data":
                yield f"{sheet.relative_to(site)} loads {link}"


def build(site: Path) -> str:
    """Build with one generator. Returns what is wrong, as it says; nothing if all is well."""
    program, *arguments = GENERATORS[site]
    environment = {**os.environ, "NO_COLOR": "1", "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)  # Zensical always writes in colours.
    return said if done.returncode or "WARNING" in said else ""


SEARCH = {
    MATERIAL: (
        "(document.querySelector('label[for=__search]').click(), document.querySelector('.md-search__input').focus())",
        "document.querySelector('.md-search-result__item a')",
    ),
    ZENSICAL: (
        "document.querySelector('.md-search__button').click()",
        "[...document.body.children].find(each => each.shadowRoot)?.shadowRoot.querySelector('ol a')",
    ),
}
"""How a reader opens the search, and what is then found."""
LOOKED_AT = ("index.html", "guide/state.html", "reference/api/state.html", "internals/architecture.html")


def seen_by_a_browser(site: Path) -> Iterator[str]:
    """What is wrong with pages that a real browser opens from the folder: requests to other hosts, errors, a silent search."""
    with Browser() as browser:
        for name in LOOKED_AT:
            page = browser.open_page(f"file://{site}/{name}")
            yield from (f"{name} asks for {each.url}" for each in page.requests if not each.url.startswith(_LOCAL))
            yield from (f"{name}: {error}" for error in page.console_errors)
        opening, found = SEARCH[site]
        page.evaluate(opening)
        page.wait_for("document.activeElement !== document.body")
        page.command("Input.insertText", {"text": "savepoint"})
        page.press("s")
        try:
            page.wait_for(found, timeout_s=20)
        except BrowserError as error:
            yield f"the search finds nothing: {error}"
        yield from (f"the search asks for {each.url}" for each in page.requests if not each.url.startswith(_LOCAL))


def _check(site: Path) -> list[str]:
    begin = monotonic()
    said = build(site)
    if said:
        return [f"{GENERATORS[site][0]} build failed:\n{said[-4000:]}"]
    found = [
        f"{site.name}/{each}" for each in [*broken_links(site), *foreign_resources(site), *seen_by_a_browser(site)]
    ]
    count = len(list(site.rglob("*.html")))
    print(f"{GENERATORS[site][0]}: {count} pages in {monotonic() - begin:.0f} s, {len(found)} problems", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.site", description="Build and check the documentation site.")
    parser.add_argument("--nav", action="store_true", help="write the lines of nav that list whole folders")
    if parser.parse_args().nav:
        CONFIG.write_text(with_folders(CONFIG.read_text()))
        DECISIONS.write_text(with_decisions(DECISIONS.read_text()))
        return
    with ThreadPoolExecutor(len(GENERATORS)) as builders:
        problems = [problem for found in builders.map(_check, GENERATORS) for problem in found]
    if problems:
        print("\n".join(problems[:50]))
        sys.exit(1)


if __name__ == "__main__":
    main()
