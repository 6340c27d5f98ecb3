"""Enumerations of Python and C++ agree. verbs_numbers_test.cc compares C++ with libibverbs."""

from verbena import _native, errors, verbs


def test_completion_statuses_are_those_of_the_native_core():
    """verbena.errors.WcStatus has the names and numbers of _native.WcStatus."""
    native = {status.name: status.value for status in _native.WcStatus}
    assert {status.name: status.value for status in errors.WcStatus} == native


def test_access_rights_are_those_of_libibverbs():
    """IBV_ACCESS_LOCAL_WRITE and so on: single bits from 1 on."""
    rights = ("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
    assert [verbs.Access[right].value for right in rights] == [1, 2, 4, 8]
    assert verbs.Access.ALL.value == 15
