"""Which broker the tests share: one in a container where that can be had, else the embedded one.

SPU_ASSIGNER_TEST_BROKER (`make test BROKER=…`) says which: `container`, `embedded`, or by default
`auto`: a container if an engine answers at once and has an image already. The tests are the same
ones, and the end of the run says where they ran.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

VARIABLE = "SPU_ASSIGNER_TEST_BROKER"
CHOICES = ("auto", "container", "embedded")


class SharedBroker(Protocol):
    """What either offers; a test that stops or kills a broker has an EmbeddedBroker of its own."""

    @property
    def bootstrap_servers(self) -> str: ...


class ChoiceError(AssignerError):
    """The environment asks for a broker that there is not."""


@contextmanager
def shared_broker(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[SharedBroker, str]]:
    """The running broker, and what it is.

    Raises:
        ChoiceError: SPU_ASSIGNER_TEST_BROKER is none of CHOICES.
        AssignerError: the broker that is asked for cannot be had; in `auto`, neither can.
    """
    choice = environ.get(VARIABLE) or "auto"
    if choice not in CHOICES:
        raise ChoiceError(f"{VARIABLE} is {choice!r}; expected {', '.join(CHOICES)}")
    reason = ""
    if choice != "embedded":
        from support.kafka.kafka_container import ContainerError, KafkaContainer, find_image

        try:
            image = find_image(environ)
            container = KafkaContainer(image).start()
        except ContainerError as error:
            if choice == "container":
                raise
            reason = f" ({error})"
        else:
            with container:
                yield container, f"a container of {image}"
            return
    with EmbeddedBroker() as broker:
        yield broker, f"the embedded one{reason}"
