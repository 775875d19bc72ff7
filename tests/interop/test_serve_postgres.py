"""The service's tests and those of the history on PostgreSQL from Debian's package."""

from __future__ import annotations

import pytest
from tests.interop.postgresql import postgresql, run_tests

pytestmark = [pytest.mark.slow, pytest.mark.interop]
# All SQL is in store.py, schema.py and backup.py, and these tests execute each of its statements. One REST call and a
# user's tokens cover the layers above.
_TESTS = (
    "serve/test_ledger.py",
    "serve/test_audit.py",
    "serve/test_schema.py",
    "serve/test_backup.py",
    "serve/test_app.py::test_a_partition_is_created_read_and_deleted",
    "serve/test_app.py::test_a_hanging_fabric_delays_only_requests_that_need_it",
    "serve/test_access.py::test_a_users_own_tokens_follow_its_role_and_end_with_it",
)


def test_the_tests_of_the_service_pass_on_postgresql():
    with postgresql() as server:
        run_tests(server, *_TESTS)


def test_the_tests_of_the_history_pass_on_postgresql():
    """A writer that is killed is among them, and a database that stays small."""
    with postgresql() as server:
        run_tests(server, "twin/test_history.py")
