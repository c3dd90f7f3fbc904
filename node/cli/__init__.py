"""The commands of `fencepost`, one module each, imported only when named.

A module has `configure(parser)` and `run(arguments) -> exit code`.
"""

from typing import Final

# Command -> (module, one line of help), in the order in which help shows them.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "dev": ("fencepost.node.cli.dev", "start a node on this machine, with nothing to configure"),
    "serve": ("fencepost.node.cli.serve", "start a node from a configuration file"),
    "health": ("fencepost.node.cli.health", "ask a node whether it may be counted on"),
    "topic": ("fencepost.node.cli.topic", "list, describe, create and delete topics"),
    "produce": ("fencepost.node.cli.produce", "write lines as records"),
    "consume": ("fencepost.node.cli.consume", "print records"),
    "group": ("fencepost.node.cli.group", "see who reads what, and move positions"),
    "txn": ("fencepost.node.cli.txn", "see transactions, why readers wait, and end what hangs"),
    "node": ("fencepost.node.cli.node", "see the nodes, empty one, give a new one its share"),
    "partition": ("fencepost.node.cli.partition", "see what is offline and why, and recover it"),
    "config": ("fencepost.node.cli.config", "get, set and unset settings"),
    "trace": ("fencepost.node.cli.trace", "follow a request through the logs of several nodes"),
    "sim": ("fencepost.chaos.campaigns.commands", "break a simulated cluster, by seeds, and look"),
    "chaos": ("fencepost.chaos.runs.commands", "break real brokers under load, and look"),
    "completion": ("fencepost.node.cli.completion", "print what a shell needs to complete words"),
}
