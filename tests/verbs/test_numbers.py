"""Access rights have the numbers of libibverbs. verbs_numbers_test.cc compares all enumerations of C++."""

from verbena import verbs


def test_access_rights_are_those_of_libibverbs():
    """IBV_ACCESS_LOCAL_WRITE and so on: single bits from 1 on."""
    rights = ("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
    assert [verbs.Access[right].value for right in rights] == [1, 2, 4, 8]
    assert verbs.Access.ALL.value == 15
