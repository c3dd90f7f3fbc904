"""A real Prometheus with the project's own configuration, whose time runs faster, and what it answers.

Scrapes, ranges and waits of the rules are all shorter by one factor, so that a rule that waits for a minute fires in
three seconds and is the same rule. What it compares with stays.
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.chaos.harness.processes import Process, free_port
from promql import quicker, quicker_rules
from what_is_watched import PROMETHEUS

POLL_S = 0.1
Alert = tuple[str, str, str]  # name, pending or firing, instance
Series = list[tuple[dict[str, str], float]]  # their labels, and the newest value


def admin_port(cluster: LocalCluster, node: int) -> int:
    layout = json.loads((cluster.data / "cluster.json").read_text())
    return int(layout["admin_ports"][node - 1])


class Refused(Exception):
    """What Prometheus says is wrong with a question."""


class PrometheusServer:
    """INVARIANT  it ends with the block, by its process id, and its data with the folder that it was given."""

    def __init__(self, folder: Path, targets: Mapping[str, str], *, factor: float) -> None:
        """`targets`: what stands in prometheus.yml -> where that is here."""
        self.factor = factor
        self.port = free_port()
        self._configure(folder, targets)
        self.process = Process(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=warn",
            ],
            log=folder / "prometheus.log",
        )

    def _configure(self, folder: Path, targets: Mapping[str, str]) -> None:
        config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
        for name in ("scrape_interval", "evaluation_interval"):
            config["global"][name] = quicker(config["global"][name], self.factor)
        config["global"]["scrape_timeout"] = config["global"][
            "scrape_interval"
        ]  # as long as may be
        for file in config["rule_files"]:
            rules = quicker_rules(yaml.safe_load((PROMETHEUS / file).read_text()), self.factor)
            (folder / file).write_text(yaml.safe_dump(rules, sort_keys=False))
        places = {**targets, "localhost:9090": f"127.0.0.1:{self.port}"}
        for job in config["scrape_configs"]:
            for group in job["static_configs"]:
                group["targets"] = [places.pop(each) for each in group["targets"]]
        assert not places, f"prometheus.yml scrapes none of {sorted(places)}"
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config, sort_keys=False))

    def __enter__(self) -> Self:
        self.process.start()
        try:
            self.process.wait_port(self.port, 30)
            self.until("it is ready", self._is_ready, 30)
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.stop(10)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except urllib.error.URLError:
            return False

    def until(self, what: str, condition: Callable[[], bool], wait_s: float) -> float:
        """Seconds until it held; the end of the log and what alerts there are when it doesn't come."""
        started = time.monotonic()
        while not condition():
            if time.monotonic() - started > wait_s:
                alerts = self.alerts() if self._is_ready() else "?"
                raise TimeoutError(
                    f"waited {wait_s:g} s in vain: {what}; alerts: {alerts};\n{self.process.said()[-2000:]}"
                )
            time.sleep(POLL_S)
        return time.monotonic() - started

    # -- questions -------------------------------------------------------------------------------

    def ask(self, path: str, **parameters: str) -> Any:
        question = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{question}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            raise Refused(f"{parameters}: {refused.read().decode()}") from refused

    def values(self, expr: str) -> Series:
        """The labels and the value of each series, now."""
        data = self.ask("query", query=expr)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in data["result"]]

    def names(self) -> set[str]:
        return set(self.ask("label/__name__/values"))

    def targets_up(self) -> int:
        return sum(each["health"] == "up" for each in self.ask("targets")["activeTargets"])

    def alerts(self) -> list[Alert]:
        found = self.ask("alerts")["alerts"]
        return sorted(
            (a["labels"]["alertname"], a["state"], a["labels"].get("instance", "")) for a in found
        )

    def firing(self) -> set[str]:
        return {name for name, state, _ in self.alerts() if state == "firing"}

    def until_fires(self, alert: str, wait_s: float) -> float:
        return self.until(f"{alert} fires", lambda: alert in self.firing(), wait_s)

    def rules_at_fault(self) -> Sequence[str]:
        return [
            f"{rule['name']}: {rule['lastError']}"
            for group in self.ask("rules")["groups"]
            for rule in group["rules"]
            if rule["health"] == "err"
        ]
