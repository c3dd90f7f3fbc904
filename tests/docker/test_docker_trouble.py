"""What goes wrong with containers: a sentence that says what to do, an exit code, and nothing lost."""

import time

from confluent_kafka import Producer
from containers import DATA, Lab, Node, get, until
from loads import read_committed
from test_docker_image import alone, produce

CANT_USE_FOLDER = 73
OTHERS_FOLDER = 78
KILLED = 137


def ends(node: Node, code: int, *parts: str) -> None:
    node.start()
    assert node.wait_ended() == code, node.said
    assert "Traceback" not in node.said
    for part in parts:
        assert part in node.said, node.said


def settings(name: str, node_id: int, of: int = 3) -> dict[str, str]:
    """A node of a cluster whose others may never come."""
    voters = ",".join(f"{each}@node-{each}:9192" for each in range(1, of + 1))
    return {
        "FENCEPOST_NODE_ID": str(node_id),
        "FENCEPOST_ADVERTISED_LISTENERS": f"PLAINTEXT://{name}:9092",
        "FENCEPOST_PEER_LISTENER": "0.0.0.0:9192",
        "FENCEPOST_CONTROLLER_QUORUM_VOTERS": voters,
        "FENCEPOST_PEER_SECRET": "of these tests",
    }


def test_a_volume_that_is_read_only_is_named(lab: Lab) -> None:
    node = lab.node("node-1", volume=lab.volume(), read_only_volume=True)
    ends(node, CANT_USE_FOLDER, DATA, "read-only")


def test_a_volume_of_somebody_else_is_named_with_who_has_to_own_it(lab: Lab) -> None:
    volume = lab.volume()
    lab.shell(volume, f"touch {DATA}/somebodys && chown -R 0:0 {DATA} && chmod 0755 {DATA}")
    ends(lab.node("node-1", volume=volume), CANT_USE_FOLDER, DATA, "10001")


def test_a_volume_that_is_full_is_named_and_the_node_serves_as_soon_as_there_is_room(
    lab: Lab,
) -> None:
    volume = lab.volume(type="tmpfs", device="tmpfs", o="size=16m,uid=10001,gid=10001,mode=0750")
    holder = lab.container(  # the volume lasts as long as somebody has it
        "holder", entrypoint=["sleep", "600"], init=True, volumes={volume: {"bind": DATA}}
    )
    holder.start()
    fill = f"dd if=/dev/zero of={DATA}/.ballast bs=64k 2>/dev/null; true"
    holder.exec_run(["sh", "-c", fill])
    node, port = alone(lab, volume)
    node.start()
    until("it says that the disk is full", lambda: "Free some space" in node.said, 60)
    assert DATA in node.said
    assert not node.is_ready
    holder.exec_run(["rm", f"{DATA}/.ballast"])
    node.wait_ready()
    produce(port, "there is room again")


def test_the_folder_of_another_node_is_refused(lab: Lab) -> None:
    volume = lab.volume()
    first, _ = alone(lab, volume)
    first.start()
    first.wait_ready()
    assert first.stop() == 0
    second = lab.node("node-2", {"FENCEPOST_NODE_ID": "2"}, volume=volume)
    ends(second, OTHERS_FOLDER, "node 1", "node.id=1")


def test_a_node_that_waits_for_the_others_is_not_ready_says_so_and_can_be_stopped(lab: Lab) -> None:
    node = lab.node("node-1", settings("node-1", 1), volume=lab.volume())
    node.start()
    until("live", lambda: get(node.admin_port, "/health/live")[0] == 200, 60)
    status, said = get(node.admin_port, "/health/ready")
    assert status == 503
    assert said["ready"] is False
    assert said["why"]
    began = time.monotonic()
    assert node.stop() == 0, node.said
    assert time.monotonic() - began < 30, "half of the time of grace"


def test_a_node_out_of_memory_is_killed_and_has_all_that_it_acknowledged(lab: Lab) -> None:
    node, port = alone(lab, mem_limit="128m", memswap_limit="128m")
    node.start()
    node.wait_ready()
    acknowledged: list[str] = []
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 5_000})

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged.append(message.value().decode())

    for number in range(2_000):
        producer.produce("orders", f"{number}", on_delivery=delivered)
    producer.flush(30)
    assert acknowledged
    # What lies in /tmp is memory of the container, and the node the largest of its processes.
    node.container.exec_run(["dd", "if=/dev/zero", "of=/tmp/ballast", "bs=1M"], detach=True)
    for number in range(2_000, 4_000):
        producer.produce("orders", f"{number}", on_delivery=delivered)
    producer.flush(10)
    assert node.wait_ended() == KILLED
    node.container.reload()
    assert node.container.attrs["State"]["OOMKilled"]
    node.start()
    node.wait_ready()
    (found,) = read_committed(f"127.0.0.1:{port}", "orders").values()
    assert len(found) == len(set(found)), "some are there twice"
    assert set(acknowledged) <= set(found)
