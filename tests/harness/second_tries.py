"""A second try for tests that wait for other programs: a plugin of pytest, which CI uses.

Of 16,000 tests many wait for clients, JVMs and brokers on a machine with two busy cores, and now and then one of them
fails that passes at once when it runs again. `scripts/test` gives each failed test one second try
(pytest-rerunfailures), and shows at the end how it failed first. A run with more than MOST second tries fails, even if
all tests passed in the end. Tests that check that nothing is lost have no second try: those in tests/faults, and
histories whose records, replicas or tree are wrong (tests.cluster.histories.Violation).
"""

from __future__ import annotations

from pathlib import Path

import pytest

MOST = 3
_NO_SECOND_TRY = Path(__file__).parents[1] / "faults"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_NO_SECOND_TRY):
            item.add_marker(pytest.mark.flaky(reruns=0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show each failure that was followed by a second try, whatever the result of that was."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"second try: {report.nodeid} failed first with")
        terminalreporter.write_line(report.longreprtext)
        for title, text in report.sections:
            terminalreporter.section(title, "-")
            terminalreporter.write(text)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    tries = [] if reporter is None else reporter.stats.get("rerun", [])
    if len(tries) > MOST:
        reporter.write_line(f"\n{len(tries)} tests needed a second try; a run with more than {MOST} fails", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
