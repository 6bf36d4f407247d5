"""The command line of the exporter, its workers on a simulated kernel.

python -m tests.prometheus.serve SUITE TREE ARGUMENT …
"""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.cli import main
from tests.kernel.launch import launcher

if __name__ == "__main__":
    suite, tree, *arguments = sys.argv[1:]
    sys.exit(main(arguments, launcher(suite, Path(tree))))
