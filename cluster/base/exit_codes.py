"""What the exit code of a node says, so that whoever starts it again knows whether that helps (sysexits.h)."""

from typing import Final

from .errors import Outcome, Trouble

EXIT_OK: Final = 0
EXIT_REFUSED: Final = 1  # something else in the way; the sentence says what
EXIT_USAGE: Final = 2  # settings or command line (as Python's argparse has it)
EXIT_BROKEN: Final = 70  # EX_SOFTWARE: an invariant is broken
EXIT_FOLDER: Final = 73  # EX_CANTCREAT: the folder can't be used as it is
EXIT_MACHINE: Final = 74  # EX_IOERR: a disk, a mount or a limit of the machine failed it
EXIT_LATER: Final = 75  # EX_TEMPFAIL: something holds what is needed; the same start may work later
EXIT_IDENTITY: Final = 78  # EX_CONFIG: this is another node's id, folder, address or cluster


class CannotRun(Trouble):
    """This process can't be this node; its exit code says what kind of thing has to change."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence, Outcome.REFUSED)
        self.exit_code = exit_code


def exit_code_of(reason: BaseException, otherwise: int) -> int:
    return reason.exit_code if isinstance(reason, CannotRun) else otherwise
