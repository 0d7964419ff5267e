"""What moving takes: bytes over a link, after its latency."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sestina.config.sim import LinkConfig
from sestina.core.units import Seconds

Way: TypeAlias = Literal["dram", "ssd", "network"]
"""Where an instance has a request's keys and values from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCost:
    """Of one instance; each of its GPUs moves its own share at the same time."""

    token_bytes: float
    """Of a token's keys and values on one GPU."""
    links: dict[Way, LinkConfig | None]

    def kv_s(self, way: Way, tokens: int) -> Seconds | None:
        """Return the time of moving so many tokens' keys and values; None when there is no such way."""
        link = self.links[way]
        return None if link is None else transfer_s(link, tokens * self.token_bytes)


def transfer_s(link: LinkConfig, num_bytes: float) -> Seconds:
    """Return the time of one transfer."""
    return link.latency_s + num_bytes / link.bytes_s
