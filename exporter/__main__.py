"""The entry of the command: what must hold before anything else is loaded, then the command.

Loading the rest takes a good part of a second. In that time SIGHUP is held back until the daemon
can take it, SIGINT ends the process without a word, and the standard streams that whoever started
it has closed are opened on `/dev/null`, so that no file or socket gets their number.
"""

import sys

# Python puts the working directory first, in which a json.py may lie. This package
# has been found already.
if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]

import os
import signal
from types import FrameType

INTERRUPTED = 130


def main() -> int:
    """Run the command of this process; its exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    _open_streams()
    from exporter.cli import main as command

    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        # Python gives signals back their defaults while it ends; an interrupt is too late by then.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _leave(_: int, __: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def _open_streams() -> None:
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


if __name__ == "__main__":
    sys.exit(main())
