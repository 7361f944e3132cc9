"""A secret that is to be found nowhere, and the search for it.

Escaped for JSON, HTML, XML or a URL, letters and digits stay as they are, so that the middle of the
secret is found in each such form; the signs around it make escaping necessary.
"""

from __future__ import annotations

import base64
import re
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGES_MAX = 200  # a Spark UI has some 40, and links to itself with ever new parameters
PAGE_SECONDS_MAX = 60
_LINK = re.compile(rb"""(?:href|src)=["']([^"'#]+)""")
_OVERLAP = 4_096  # of pieces of a file: longer than any form of a canary


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A random secret."""

    value: str
    core: str

    @classmethod
    def hatch(cls) -> Canary:
        core = f"Canary{secrets.token_hex(16)}"
        return cls(value=f'p/+"& %<x>{core}=;?', core=core)

    def forms(self) -> set[bytes]:
        """What of it is found in bytes, however they were written."""
        forms = {self.core.encode(form) for form in ("utf-8", "utf-16-le", "utf-16-be")}
        forms |= {form.hex().encode() for form in forms}
        for lead in range(3):  # Base64 depends on where in the text it begins.
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                coded = encode(b"\0" * lead + self.core.encode())
                forms.add(coded[4:-4])  # without what its neighbours have a part in
        return forms

    def is_in(self, data: bytes) -> bool:
        lowered = data.lower()
        return any(form in data for form in self.forms()) or self.core.lower().encode() in lowered

    def files(self, *folders: Path) -> list[Path]:
        """The files in whose name or content it is; links are not followed."""
        return [path for path in every_file(*folders) if self._is_in_file(path)]

    def _is_in_file(self, path: Path) -> bool:
        if self.is_in(str(path).encode()):
            return True
        try:
            with path.open("rb") as file:
                before = b""
                while piece := file.read(1 << 20):
                    if self.is_in(before + piece):
                        return True
                    before = piece[-_OVERLAP:]
        except OSError:  # It was there for a moment, as Spark's files are.
            return False
        return False


def every_file(*folders: Path) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]


def crawl(base: str, places: Iterable[str]) -> dict[str, bytes]:
    """The pages of a site that can be reached by links from the places, errors' pages included."""
    waiting = [urllib.parse.urljoin(base, place) for place in places]
    pages: dict[str, bytes] = {}
    while waiting and len(pages) < PAGES_MAX:
        url = waiting.pop(0)
        if url in pages:
            continue
        try:
            with urllib.request.urlopen(url, timeout=PAGE_SECONDS_MAX) as answer:
                pages[url] = str(answer.headers).encode() + answer.read()
        except urllib.error.HTTPError as error:
            pages[url] = str(error.headers).encode() + error.read()
        found = (link.decode(errors="replace") for link in _LINK.findall(pages[url]))
        links = [urllib.parse.urljoin(url, link.replace("&amp;", "&")) for link in found]
        waiting += [link for link in links if link.startswith(base) and "/static/" not in link]
    return pages
