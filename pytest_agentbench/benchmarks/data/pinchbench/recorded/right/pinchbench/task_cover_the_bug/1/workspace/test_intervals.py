from intervals import merge


def test_touching_intervals_are_merged():
    assert merge([(1, 2), (2, 3)]) == [(1, 3)]


def test_overlapping_intervals_are_merged():
    assert merge([(1, 4), (2, 3), (3, 6)]) == [(1, 6)]


def test_apart_intervals_stay_apart():
    assert merge([(5, 6), (1, 2)]) == [(1, 2), (5, 6)]
