"""Pictures of the pages for the documents: `make screenshots`.

A broker, outputs as a job writes them, the command `ui` and a browser: what is pictured is real.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does

from support.job.small_job import small_job
from support.pages.browser import open_browser
from support.pages.ui_served import served
from support.pages.ui_story import play, story

ROOT = Path(__file__).parents[3]
PAGES = {  # file: (address, height)
    "ui-cluster": ("clusters/prod-eu", 1420),
    "ui-topic": ("clusters/prod-eu/topics/orders", 980),
}
WIDTH = 1280
SIZE_MAX = 250_000


def main() -> None:
    """Write them to `docs/`."""
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        create_topics({"bootstrap.servers": servers}, prefix="")
        settings = Settings.load(flags={"bootstrap_servers": servers}, environ={})
        environ = {"KAFKA_BOOTSTRAP_SERVERS": servers}
        with small_job(settings) as job, served(environ) as pages, open_browser() as browser:
            for batch in story():
                play(job, batch)
            for name, (address, height) in PAGES.items():
                file = ROOT / "docs" / f"{name}.png"
                with browser.new_page(viewport={"width": WIDTH, "height": height}) as page:
                    page.goto(pages.url)
                    page.get_by_role("link", name="edge-lab").wait_for()  # It comes last.
                    page.goto(pages.url + address)
                    page.get_by_text("last batch").wait_for()
                    page.screenshot(path=file)
                if file.stat().st_size > SIZE_MAX:
                    sys.exit(f"{file} has {file.stat().st_size} bytes; expected {SIZE_MAX} at most")
                print(file.relative_to(ROOT), file.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
