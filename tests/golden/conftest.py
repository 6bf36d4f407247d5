"""`--regenerate-golden`, and the count of pages that could not be compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.golden.page import Case, Page, read

NO_PAGE = "no golden page"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make golden` gives it; the diff is to be reviewed."""
    parser.addoption(
        "--regenerate-golden",
        action="store_true",
        help="write the golden pages anew instead of comparing with them",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many pages were left out, and how they come into being."""
    left_out = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if NO_PAGE in str(report.longrepr)
    ]
    if left_out:
        terminalreporter.write_line(
            f"{len(left_out)} GOLDEN PAGES WERE NOT COMPARED: there are none for the installed "
            "versions of the libraries; `make golden` writes them",
            yellow=True,
            bold=True,
        )


@pytest.fixture
def regenerate(request: pytest.FixtureRequest) -> bool:
    """Whether the pages are written anew; the option is unknown to a run of all tests."""
    return bool(request.config.getoption("--regenerate-golden", default=False))


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Page]:
    """Reads the page of a case, once for all tests."""
    pages: dict[Case, Page] = {}

    def get(case: Case) -> Page:
        if case not in pages:
            pages[case] = read(case, tmp_path_factory.mktemp("node"))
        return pages[case]

    return get
