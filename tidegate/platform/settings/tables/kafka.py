"""The table [kafka]: the brokers and how to reach them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from ordering.ticks import SECOND_US
from tidegate.basics.secret_masking import Secrets
from tidegate.platform.settings.kinds import Bootstrap, Duration, Properties, reveal_properties
from tidegate.platform.settings.tables.base import Contradiction, Table

_POSITIONS = "positions are kept in checkpoints, not in consumer groups"
# librdkafka properties that the law of the ordered topic fixes, each with the reason.
FIXED_CLIENT_PROPERTIES = {
    **dict.fromkeys(("bootstrap.servers", "metadata.broker.list"), "use kafka.bootstrap"),
    **dict.fromkeys(("acks", "request.required.acks"), "ordered topics need acks=all"),
    "enable.idempotence": "ordered topics need an idempotent writer",
    "enable.gapless.guarantee": "ordered topics need a gapless writer",
    **dict.fromkeys(("message.timeout.ms", "delivery.timeout.ms"), "a gapless writer must not give up on a record"),
    "transactional.id": "sequence numbers take the place of transactions",
    **dict.fromkeys(("group.id", "enable.auto.commit", "enable.auto.offset.store"), _POSITIONS),
    "auto.offset.reset": "a missing offset must be reported, never skipped",
    "isolation.level": "it is fixed by the time model",
}


def _refuse_fixed_properties(client: dict[str, SecretStr]) -> dict[str, SecretStr]:
    owned = [(key, f"{key} is not yours to set", FIXED_CLIENT_PROPERTIES[key]) for key in client if key in FIXED_CLIENT_PROPERTIES]
    if owned:
        raise Contradiction(owned)
    return client


class KafkaSettings(Table):
    """[kafka]: the brokers and how to reach them."""

    bootstrap: Bootstrap = Field(default="localhost:9092", description="Brokers asked first; the rest of the cluster is learned from them.")
    connect_timeout_us: Duration = Field(default=8 * SECOND_US, description="How long to wait for a broker before giving up with an error.")
    client: Annotated[Properties, AfterValidator(_refuse_fixed_properties)] = Field(
        default_factory=dict, description="Any librdkafka property, such as security.protocol; secrets as file:PATH or env:NAME."
    )
    native: Literal["auto", "off"] = Field(
        default="auto",
        description="auto: whole columns at a time, where the native part was compiled at installation; off: record by record, slower.",
    )

    def client_properties(self) -> Secrets:
        """Return librdkafka properties for any client, secrets included: bootstrap.servers and [kafka.client]."""
        return Secrets({"bootstrap.servers": self.bootstrap, **reveal_properties(self.client)})
