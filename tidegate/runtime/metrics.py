"""
Metrics: the numbers of a job's progress, for Prometheus to fetch.

Every number a job reports becomes a gauge ``tidegate_NAME{job="..."}``; counts are those since the output was begun, so
they survive a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from ordering.errors import SettingError


class Metrics:
    """
    The metrics of one job.

    Args:
        job: Its name, the value of the label ``job``.
        port: TCP port on loopback; 0 publishes nothing.

    Raises:
        SettingError: The port is taken.
    """

    def __init__(self, job: str, port: int) -> None:
        self._job, self._registry = job, CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        if port:
            try:
                start_http_server(port, addr="127.0.0.1", registry=self._registry)
            except OSError as error:
                what = f"port {port} for metrics cannot be opened: {error}"
                raise SettingError(what, code="TG-SETTING-PORT", where="metrics.port", fix="name a free one") from None

    def publish(self, numbers: Mapping[str, Any], job: str = "") -> None:
        """Take the newest numbers, of *job* where several share a process; what is no number is left out."""
        for name, value in numbers.items():
            if isinstance(value, (bool, int, float)):
                if name not in self._gauges:
                    self._gauges[name] = Gauge(f"tidegate_{name}", name.replace("_", " "), ["job"], registry=self._registry)
                self._gauges[name].labels(job or self._job).set(value)
