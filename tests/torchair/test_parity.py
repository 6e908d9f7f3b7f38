"""The calls of tests/parity in torchair's graphs, compared with those of a C program. Needs torchair (make test-torchair)."""
import stand_in  # skips where torchair is not installed


def test_every_call_gives_what_c_gives(parity_in):
    parity_in("torchair")
