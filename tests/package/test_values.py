"""Frozen values: made, compared, shown, and never changed."""

import pickle

import pytest

from pscompy.config.values import Value


class Point(Value, hidden=("secret",)):
    x: int
    y: int = 7
    secret: str = ""
    act: object = len  # a function that is a field does not become a method

    @property
    def sum(self) -> int:
        return self.x + self.y


class Point3(Point):
    z: int = 0


class Nothing(Value):
    pass


def test_fields_come_by_place_by_name_and_by_default():
    point = Point(1, secret="s")
    assert (point.x, point.y, point.secret, point.sum) == (1, 7, "s", 8)
    assert point.act([1, 2]) == 2
    assert Point3(1, 2, "s", len, 3).z == 3


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1,), {"x": 2}), ((1,), {"w": 2}), ((1, 2, "", len, 5), {})],
    ids=["missing", "twice", "unknown", "too many"],
)
def test_wrong_fields_are_refused(args, kwargs):
    with pytest.raises(TypeError, match="Point has the fields x, y, secret, act"):
        Point(*args, **kwargs)


def test_equal_are_equal_fields_of_the_same_class():
    assert Point(1) == Point(1, 7)
    assert Point(1) != Point(2)
    assert Point(1) != Point3(1)
    assert Nothing() == Nothing()
    assert Nothing() != Point(1)
    assert len({Point(1), Point(1, 7), Point3(1)}) == 2
    assert Nothing()


def test_a_value_does_not_change_but_gives_another():
    point = Point(1)
    with pytest.raises(AttributeError, match="does not change"):
        point.x = 2
    with pytest.raises(AttributeError, match="does not change"):
        del point.x
    assert point.but(x=2) == Point(2)
    assert point == Point(1)


def test_what_is_hidden_is_not_shown():
    assert repr(Point(1, secret="hush")) == "Point(x=1, y=7, act=<built-in function len>)"


def test_it_pickles():
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)
