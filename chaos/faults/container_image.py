"""The `docker` command, the image of a node as the checkout is now, and that of an older build."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..harness.processes import DidNotStart
from .older import NODE, make

IMAGE: Final = "fencepost-chaos:now"
# An older build runs beside what today's image has of other people's packages, as it does as a process.
OLDER_IMAGE: Final = "fencepost-chaos:older"
OLDER_FILE: Final = """\
FROM {image}
COPY fencepost /opt/older/fencepost
COPY {node} /opt/older/
ENTRYPOINT ["/usr/bin/tini", "--", "python", "/opt/older/{node}"]
CMD ["serve"]
"""
CHECKOUT: Final = Path(__file__).resolve().parents[2]
BUILD_S: Final = 900.0
FREEZE_TRIES: Final = 5  # the engine tries for a second each time
UNABLE_TO_FREEZE: Final = "unable to freeze"
# A machine that reaches its packages by a mirror says so to pip; the build must be told.
PIP_SETTINGS: Final = {
    "PIP_INDEX_URL": "global.index-url",
    "PIP_EXTRA_INDEX_URL": "global.extra-index-url",
    "PIP_TRUSTED_HOST": "global.trusted-host",
}


def docker(*words: str, timeout_s: float = 120.0, both: bool = False) -> str:
    """What it printed. OSError with what it complained of; `both` takes its stderr for an answer, too."""
    try:
        done = subprocess.run(
            ["docker", *words], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise TimeoutError(f"docker {words[0]} takes over {timeout_s:g} s") from late
    if done.returncode != 0:
        raise OSError(f"docker {' '.join(words[:3])} … failed: {done.stderr.strip()[-500:]}")
    return done.stdout + done.stderr if both else done.stdout


def freeze(name: str) -> None:
    """A process inside the disk's sync can't be frozen. The engine gives up, lets the others go on, and is asked again."""
    for left in reversed(range(FREEZE_TRIES)):
        try:
            docker("pause", name)
        except OSError as failed:
            if not left or UNABLE_TO_FREEZE not in str(failed):
                raise
        else:
            return


def build() -> str:
    """The image's name. DidNotStart when there is no engine, or it can't be built."""
    words = ["build", "--network", "host", "--tag", IMAGE]
    words += ["--file", str(CHECKOUT / "deploy" / "docker" / "Dockerfile")]
    for name, value in pip_settings().items():
        words += ["--build-arg", f"{name}={value}"]
    try:
        docker(*words, str(CHECKOUT), timeout_s=BUILD_S)
    except OSError as failed:
        raise DidNotStart(f"no image of a node: {failed}") from failed
    return IMAGE


def image_id(name: str) -> str:
    """Of an image that somebody names; it is fetched where it is not there. DidNotStart when it can't be had."""
    asked = ("image", "inspect", "--format", "{{.Id}}", name)
    try:
        with suppress(OSError):
            return docker(*asked).strip()
        docker("pull", name, timeout_s=BUILD_S)
        return docker(*asked).strip()
    except OSError as failed:
        raise DidNotStart(f"no image {name}: {failed}") from failed


def build_older(older: str, image: str, folder: Path) -> str:
    """Over `image`; its id, for another run may give the name to another. `folder` is not there yet."""
    make(older, folder)
    (folder / "Dockerfile").write_text(OLDER_FILE.format(image=image, node=NODE))
    try:
        return docker(
            "build", "--quiet", "--tag", OLDER_IMAGE, str(folder), timeout_s=BUILD_S
        ).strip()
    except OSError as failed:
        raise DidNotStart(f"no image of {older}: {failed}") from failed


def pip_settings() -> dict[str, str]:
    """Where this machine has its packages from, as arguments of the build."""
    found = {}
    for variable, setting in PIP_SETTINGS.items():
        value = os.environ.get(variable, "")
        if not value:
            asked = subprocess.run(
                [sys.executable, "-m", "pip", "config", "get", setting],
                check=False,
                capture_output=True,
                text=True,
            )
            value = asked.stdout.strip()
        if value:
            found[variable] = value
    return found
