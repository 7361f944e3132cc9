"""An S3 server on the loopback, for checkpoints: moto's, in a process of its own.

Not by moto's own command: that server answers `Expect: 100-continue` twice, and Amazon's client
takes the second answer for the response.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS_MAX = 120.0  # it imports for seconds
THREADS = 16
BUCKET = "checkpoints"
KEYS: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "a-key", "AWS_SECRET_ACCESS_KEY": "not-to-be-seen"}


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running one, with a bucket."""

    url: str
    requests: Path  # a line for each: its moment, method and path
    client: Any  # boto3's
    process: int  # its id

    @property
    def environ(self) -> dict[str, str]:
        """What a program is told to use it."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}

    def keys(self, checkpoint: str) -> dict[str, int]:
        """The objects of a checkpoint, named as its files, and their sizes."""
        prefix = f"{checkpoint.removeprefix(f's3a://{BUCKET}/')}/"
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return {
            each["Key"].removeprefix(prefix): each["Size"]
            for page in pages
            for each in page.get("Contents", ())
        }


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """The server, ended with the block."""
    import boto3
    from support.job.programs import running
    from support.kafka.ports import free_ports

    (port,) = free_ports(1)
    log, requests = folder / "s3.log", folder / "s3-requests.log"
    command = [sys.executable, __file__, str(port), str(requests)]
    with running(command, log) as process:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        url = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket=BUCKET)
        yield S3Server(url=url, requests=requests, client=client, process=process.pid)
        client.close()


def _serve(port: int, requests: Path) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from waitress import serve

    application = DomainDispatcherApplication(create_backend_app)
    with requests.open("a", encoding="utf-8", buffering=1) as log:

        def noted(environ: dict[str, Any], start: Any) -> Any:
            log.write(f"{time.time():.3f} {environ['REQUEST_METHOD']} {environ['PATH_INFO']}\n")
            return application(environ, start)

        serve(noted, host="127.0.0.1", port=port, threads=THREADS, _quiet=True)


if __name__ == "__main__":
    for name, value in KEYS.items():
        os.environ.setdefault(name, value)
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
