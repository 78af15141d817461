"""Make the topic of the flights demo and produce the sample into it, once: the ``flights`` service of docker-compose.yml."""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from produce import flights, produce

PARTITIONS = 4


def main(bootstrap: str, sample: Path) -> None:
    """Produce every flight of *sample*, unless the topic was there before."""
    kafka = {"bootstrap.servers": bootstrap}
    admin = AdminClient(kafka)
    try:
        admin.create_topics([NewTopic("flights", PARTITIONS, 1)])["flights"].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        print("the topic is there: nothing to do")
        return
    chosen = flights(sample)
    produce(kafka, "flights", chosen, PARTITIONS)
    print(f"produced {len(chosen):,} flights")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
