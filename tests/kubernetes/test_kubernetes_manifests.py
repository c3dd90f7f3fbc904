"""The manifests of deploy/kubernetes: what Kubernetes' own schemas say, and what a node makes of them."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from fencepost.node.config import NodeConfig

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
# The first that has all that the manifests use (deploy/kubernetes/README.md), and the newest that the validator knows.
OLDEST, NEWEST = "1.28", kubernetes_validate.latest_version()
# A kind of the Prometheus Operator, which is no part of Kubernetes; and what kustomize alone reads.
WITHOUT_SCHEMA = {"ServiceMonitor", "Kustomization"}
RULES = re.MULTILINE | re.DOTALL
Manifest = dict[str, Any]


def manifests() -> list[Manifest]:
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        found += [each for each in yaml.safe_load_all(path.read_text()) if each]
    return found


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']}-{manifest.get('metadata', {}).get('name', '')}"


def the(kind: str, name: str = "fencepost") -> Manifest:
    (found,) = [each for each in manifests() if name_of(each) == f"{kind}-{name}"]
    return found


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("manifest", manifests(), ids=name_of)
def test_kubernetes_takes_every_manifest(manifest: Manifest, version: str) -> None:
    if manifest["kind"] not in WITHOUT_SCHEMA:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_seen() -> None:
    stateful_set = the("StatefulSet")
    stateful_set["spec"]["podManagmentPolicy"] = "Parallel"
    with pytest.raises(kubernetes_validate.ValidationError, match="podManagmentPolicy"):
        kubernetes_validate.validate(stateful_set, NEWEST, strict=True)


def test_nobody_waits_for_a_pod_by_its_name_right_behind_its_deletion() -> None:
    """Until the controller has made it anew there is none, and `kubectl wait` ends at once with NotFound: the next command
    would then be given while two copies are missing."""
    commands = re.findall(r"^kubectl [^#\n]*", (FOLDER / "README.md").read_text(), re.MULTILINE)
    deleted = [
        place for place, each in enumerate(commands) if each.startswith("kubectl delete pod ")
    ]
    assert deleted
    for place in deleted:
        assert commands[place + 1].startswith("kubectl rollout status statefulset/fencepost")


def test_all_that_is_applied_is_named_in_the_kustomization() -> None:
    (kustomization,) = [each for each in manifests() if each["kind"] == "Kustomization"]
    others = {"kustomization.yaml", "secret.example.yaml", "service-monitor.yaml"}
    assert set(kustomization["resources"]) | others == {path.name for path in FOLDER.glob("*.yaml")}


def test_the_image_is_that_of_a_version() -> None:
    """`latest` is another build after a pod was moved, and one that can't be taken back."""
    (kustomization,) = [each for each in manifests() if each["kind"] == "Kustomization"]
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"]
    (image,) = kustomization["images"]
    assert image["newTag"] == project["version"]
    assert container()["image"] == image["name"], "without a tag, so that nobody takes it for one"


def test_the_operator_is_given_the_rules_as_they_stand(tmp_path: Path) -> None:
    """By the README's own loop, with a stand-in for kubectl that keeps what it is given."""
    (loop,) = re.findall(r"^for rules in .*?^done$", (FOLDER / "README.md").read_text(), RULES)
    (tmp_path / "kubectl").write_text(
        f"#!/bin/sh\necho --- >>{tmp_path}/said\ncat >>{tmp_path}/said\n"
    )
    (tmp_path / "kubectl").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    checkout = FOLDER.parents[1]
    subprocess.run(["sh", "-c", loop], cwd=checkout, env={"PATH": path}, check=True, timeout=20)
    given = list(yaml.safe_load_all((tmp_path / "said").read_text()))
    assert [name_of(each) for each in given] == [
        "PrometheusRule-fencepost-recording",
        "PrometheusRule-fencepost-alerts",
    ]
    for each, file in zip(given, ("recording.yml", "alerts.yml"), strict=True):
        written = (checkout / "deploy" / "prometheus" / file).read_text()
        assert each["spec"] == yaml.safe_load(written)


def environment(ordinal: int) -> dict[str, str]:
    """What the container of a pod is given: values from elsewhere, then `$(NAME)` from what stands before."""
    pod = f"fencepost-{ordinal}"
    fields = {
        "metadata.name": pod,
        "metadata.namespace": "shop",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
    }
    found: dict[str, str] = {}
    for each in container()["env"]:
        if "value" in each:
            found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda n: found[n[1]], each["value"])
        elif "fieldRef" in each["valueFrom"]:
            found[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            ((kind, source),) = each["valueFrom"].items()
            store = {
                "configMapKeyRef": ("ConfigMap", "data"),
                "secretKeyRef": ("Secret", "stringData"),
            }
            of, where = store[kind]
            found[each["name"]] = the(of, source["name"])[where][source["key"]]
    return the("ConfigMap")["data"] | found


def container() -> Manifest:
    (only,) = the("StatefulSet")["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("ordinal", [1, 2, 3])
def test_a_pod_becomes_the_node_of_its_ordinal(ordinal: int) -> None:
    config = NodeConfig.load(flags=(), environment=environment(ordinal), file=None)
    assert config.node_id == ordinal
    assert config.peers.voters[config.node_id] == (f"fencepost-{ordinal}.fencepost-nodes", 9192)
    assert config.peers.advertised == config.peers.voters[config.node_id]
    inside, outside = config.advertised
    assert (inside.host, inside.port) == (f"fencepost-{ordinal}.fencepost-nodes.shop.svc", 9092)
    assert (outside.host, outside.port) == ("kubernetes.example.com", 31090 + ordinal)


def test_a_pod_has_the_token_of_the_admin_doors_if_the_secret_has_one() -> None:
    """Else `fencepost txn release` inside of the pod is refused, and half messages wait for ever."""
    config = NodeConfig.load(flags=(), environment=environment(1), file=None)
    assert config.string("admin.token") == the("Secret")["stringData"]["admin.token"]
    (source,) = [e["valueFrom"] for e in container()["env"] if e["name"].endswith("ADMIN_TOKEN")]
    assert source["secretKeyRef"]["optional"] is True


@pytest.mark.parametrize("ordinal", [1, 2, 3])
def test_the_port_that_clients_outside_are_told_leads_to_that_pod(ordinal: int) -> None:
    service = the("Service", f"fencepost-{ordinal}-outside")["spec"]
    (port,) = service["ports"]
    config = NodeConfig.load(flags=(), environment=environment(ordinal), file=None)
    assert port["nodePort"] == config.advertised[1].port
    assert service["selector"]["statefulset.kubernetes.io/pod-name"] == f"fencepost-{ordinal}"


def test_every_port_that_a_service_or_probe_names_is_one_that_the_node_listens_on() -> None:
    config = NodeConfig.load(flags=(), environment=environment(1), file=None)
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    listening = {each.name.lower(): each.port for each in config.listeners}
    assert config.peers.listener is not None
    assert ports == listening | {"peers": config.peers.listener[1], "admin": 9644}
    for service in (each for each in manifests() if each["kind"] == "Service"):
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= set(ports)
    for probe in ("livenessProbe", "readinessProbe"):
        assert container()[probe]["httpGet"]["port"] == "admin"


def test_nobody_asks_whether_a_node_lives_that_still_reads_its_logs() -> None:
    """The admin door is open before that, and the loop stands still for as long as one log takes: a pod that was asked then
    would be killed after a minute, and begin with the same log again. The clients' door is opened behind it."""
    probe = container()["startupProbe"]
    assert probe["tcpSocket"] == {"port": "inside"}
    # It waits for the others before it reads, and to restart it for that would help nobody.
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 24 * 3600


def test_what_selects_the_pods_selects_those_of_the_stateful_set() -> None:
    """A label that was changed in one place only would leave a Service empty, or a budget that guards nothing."""
    labels = the("StatefulSet")["spec"]["template"]["metadata"]["labels"].items()
    assert the("StatefulSet")["spec"]["selector"]["matchLabels"].items() <= labels
    assert the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels
    assert the("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels
    assert the("Service")["spec"]["selector"].items() <= labels
    assert the("Service", "fencepost-nodes")["spec"]["selector"].items() <= labels
