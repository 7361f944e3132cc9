"""What MkDocs does not do by itself: pages and pictures from outside docs/, and links to them.

The pages are written for a reader of the repository, so their links name files of the repository.
In the built site, README is the first page, and the other documents of the root have a place under
`project/`. A link to any other file of the repository becomes plain text, because the repository
has no public address; a link to a file that does not exist is a warning, and so an error of
`make docs`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[3]
# By the place in the repository, the place in the site.
PAGES: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
    "CHANGELOG.md": "project/changelog.md",
    "LICENSE": "project/LICENSE.txt",
    "asyncapi.yaml": "project/asyncapi.yaml",
}
PICTURES: Final = "tests/bench/curves"
MERMAID: Final = ROOT / "build/mermaid/mermaidx/assets/mermaid.js"

_SOURCE_OF: Final = {place: source for source, place in PAGES.items()}
_FENCED: Final = re.compile(r"(^```.*?^```[^\n]*$)", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(
    r"(?P<mark>!?)\[(?P<text>(?:[^\[\]]|!?\[[^\]]*\]\([^)]*\))*)\]\((?P<to>[^)\s]+)\)"
)
_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*:|#|/")

log = get_plugin_logger("site_hooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what stands outside docs/."""
    added = {place: ROOT / source for source, place in PAGES.items()}
    added |= {f"curves/{each.name}": each for each in sorted((ROOT / PICTURES).glob("*.png"))}
    added["javascripts/mermaid.js"] = MERMAID
    for place, source in added.items():
        files.append(File.generated(config, place, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links to files of the repository into links of the site."""
    return outside_fences(markdown, lambda part: with_site_links(part, page.file.src_uri))


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """The text with everything changed that is not in a fenced block."""
    parts = _FENCED.split(markdown)
    parts[::2] = [change(part) for part in parts[::2]]
    return "".join(parts)


def with_site_links(markdown: str, place: str) -> str:
    """The text of the page at this place of the site, its links leading to places of the site."""
    source = posixpath.dirname(_SOURCE_OF.get(place, f"docs/{place}"))

    def changed(match: re.Match[str]) -> str:
        text, to = match["text"], match["to"]
        if "](" in text:
            text = with_site_links(text, place)
        if _ELSEWHERE.match(to):
            return f"{match['mark']}[{text}]({to})"
        path, sign, anchor = to.partition("#")
        path = posixpath.normpath(posixpath.join(source, path))
        target = site_place(path)
        if target is None and (ROOT / path).exists():
            return text
        if target is None:
            log.warning("%s: there is no file %s", place, path)
            return text
        relative = posixpath.relpath(target, posixpath.dirname(place) or ".")
        return f"{match['mark']}[{text}]({relative}{sign}{anchor})"

    return _LINK.sub(changed, markdown)


def site_place(path: str) -> str | None:
    """Where a file of the repository is in the site; None: it is not part of it."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith(f"{PICTURES}/"):
        return f"curves/{posixpath.basename(path)}"
    return None
