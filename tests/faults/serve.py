"""The command line over a simulated kernel.

Started as `python -m tests.faults.serve SUITE TREE ARGUMENTS…`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.cli import main
from tests.kernel.launch import launcher

if __name__ == "__main__":
    suite, tree, *arguments = sys.argv[1:]
    sys.exit(main(arguments, launcher=launcher(suite, Path(tree))))
