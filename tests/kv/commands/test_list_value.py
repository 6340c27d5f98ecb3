"""The list type of a key behaves as a Python list under the same changes."""

from __future__ import annotations

import random

import pytest

from verbena.kv.values.collections import List


def change(value: List, model: list[bytes], chance: random.Random) -> None:
    word = b"%d" % chance.randrange(20)
    some = [b"%d" % chance.randrange(20) for _ in range(chance.randrange(5))]
    place = chance.randrange(len(model)) if model else 0
    kind = chance.randrange(12)
    if kind == 0:
        value.append(word), model.append(word)
    elif kind == 1:
        value.appendleft(word), model.insert(0, word)
    elif kind == 2:
        value.extend(some), model.extend(some)
    elif kind == 3:
        value.extendleft(iter(some))
        model[:0] = some[::-1]
    elif kind == 4:
        value.insert(place, word), model.insert(place, word)
    elif kind == 5 and model:
        assert value.pop() == model.pop()
    elif kind == 6 and model:
        assert value.popleft() == model.pop(0)
    elif kind == 7 and model:
        value[place] = word
        model[place] = word
    elif kind == 8 and model:
        value[place - len(model)] = word
        model[place] = word
    elif kind == 9 and len(model) > 30:
        value.trim(place, place + 25)
        model[:] = model[place : place + 25]
    elif kind == 10:
        limit = chance.randrange(-2, 3)
        places = [at for at, each in enumerate(model) if each == word]
        gone = places[limit:] if limit < 0 else places[: limit or None]
        assert value.remove(word, limit) == len(gone)
        model[:] = [each for at, each in enumerate(model) if at not in gone]
    elif kind == 11 and chance.random() < 0.02:
        value.clear(), model.clear()


@pytest.mark.parametrize("seed", range(5))
def test_a_list_is_what_a_list_of_pythons_is(seed: int) -> None:
    chance, value = random.Random(seed), List()
    model: list[bytes] = []
    for _ in range(2000):
        change(value, model, chance)
        assert len(value) == len(model)
        first, last = chance.randrange(len(model) + 1), chance.randrange(len(model) + 1)
        assert value.section(first, last) == model[first:last]
    assert list(value) == model
    assert list(reversed(value)) == model[::-1]
    assert value == List(model)
    assert value != List([*model, b"more"])
    assert value != model
    assert value.memory_bytes == List(model).memory_bytes
    assert repr(List([b"a", b"b"])) == "List([b'a', b'b'])"
    value.extend(value)
    assert list(value) == model + model
    while len(value):
        value.free_some(7)
    assert value.memory_bytes == List().memory_bytes


def test_what_is_not_there_or_no_bytes_is_an_error() -> None:
    value = List([b"a"])
    for index in (1, -2):
        with pytest.raises(IndexError):
            value[index]
        with pytest.raises(IndexError):
            value[index] = b"b"
    assert value.index(b"a") == 0
    with pytest.raises(ValueError, match="no such element"):
        value.index(b"b")
    with pytest.raises(TypeError):
        value.append("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        value.extend([b"b", "text"])  # type: ignore[list-item]
    assert list(value) == [b"a"]
    for take in (List().pop, List().popleft):
        with pytest.raises(IndexError):
            take()


@pytest.mark.parametrize("seed", range(3))
def test_places_are_found_from_either_end(seed: int) -> None:
    chance = random.Random(seed)
    model = [b"%d" % chance.randrange(5) for _ in range(300)]
    value = List(model)
    for _ in range(300):
        word, most = b"%d" % chance.randrange(6), chance.choice([0, 1, 50, 299, 300, 5000])
        rank, count = chance.choice([1, 2, 40, 1 << 62, -1, -3, -(1 << 62)]), chance.choice([0, 1, 2, 500])
        places = range(300) if rank > 0 else range(299, -1, -1)
        looked_at = places[: most or None]
        expected = [at for at in looked_at if model[at] == word][abs(rank) - 1 :][: count or None]
        assert value.places(word, rank, count, most) == expected
