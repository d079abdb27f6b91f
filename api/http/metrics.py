"""Prometheus metrics of the API: requests, open streams, sessions by status. Each app has its own registry."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    def __init__(self) -> None:
        # not the library's global one, in which a second app of the same process would meet its own names
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "errand_api_requests", "Requests answered", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "errand_api_request_seconds",
            "Seconds until the response begins",
            ["method", "route"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=self._registry,
        )
        self.streams = Gauge("errand_api_open_streams", "Event streams open now", registry=self._registry)
        self.listening = Gauge(
            "errand_api_listening", "1 while the process listens for database notifications", registry=self._registry
        )
        self._sessions = Gauge("errand_sessions", "Sessions by status", ["status"], registry=self._registry)

    def count_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def page(self, sessions: dict[str, int], listening: bool) -> bytes:
        self.listening.set(listening)
        for status, count in sessions.items():
            self._sessions.labels(status).set(count)
        return generate_latest(self._registry)
