"""What the broker itself costs: a plain consumer that sends each record on in a transaction.

`python echo.py BOOTSTRAP SOURCE TARGET`: reads SOURCE from its beginning, writes TARGET, offsets in
the same transaction; ends with SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading

from confluent_kafka import Consumer, Producer

BATCH_RECORDS_MAX = 10_000
TIMEOUT_S = 30


def main(bootstrap: str, source: str, target: str) -> None:
    """Echo until the request to end."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"echo-{source}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"echo-{source}",
            "linger.ms": 0,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    while not ended.is_set():
        first = consumer.poll(0.2)
        if first is None:
            continue
        records = [first, *consumer.consume(BATCH_RECORDS_MAX, timeout=0)]
        producer.begin_transaction()
        for record in records:
            producer.produce(target, key=record.key(), value=record.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
        )
        producer.commit_transaction(TIMEOUT_S)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:4])
