"""axe-core, which finds what makes a page hard to use for people with disabilities. Brought at first use, as jars are."""

from __future__ import annotations

import json
import zipfile
from functools import cache
from typing import Any

from tests.browser import Page
from tests.servers.maven import brought

VERSION = "4.6.3"
_IVY = f"""<ivy-module version="2.0">
  <info organisation="tidegate" module="axe-for-tests"/>
  <dependencies>
    <dependency org="org.webjars.npm" name="axe-core" rev="{VERSION}" conf="default" transitive="false"/>
  </dependencies>
</ivy-module>
"""
_GRAVE = ("serious", "critical")


@cache
def _script() -> str:
    [jar] = brought(f"axe-core-{VERSION}", _IVY).iterdir()
    with zipfile.ZipFile(jar) as archive:
        [name] = [each for each in archive.namelist() if each.endswith("/axe.min.js")]
        return archive.read(name).decode()


def grave_problems(page: Page) -> list[str]:
    """Serious and critical problems of a page as it is now, each with the elements that have it."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(f"{_script()}; true")
    found: list[dict[str, Any]] = json.loads(page.evaluate("axe.run().then(found => JSON.stringify(found.violations))"))
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in _GRAVE
    ]
