"""What every store promises."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tiers.profiles import examples
from tidegate.storage import (
    CorruptFile,
    InvalidPath,
    Lost,
    ObjectMissing,
    Storage,
    StoredObject,
    Won,
    encode_segment,
    new_nonce,
    probe,
)


def body(text: str = "") -> tuple[bytes, str]:
    nonce = new_nonce()
    return f"{text}{nonce}".encode(), nonce


@pytest.mark.feature("E5")
def test_what_was_put_is_got(storage: Storage) -> None:
    for name, data in {"a/empty": b"", "a/b/one": b"\x00", "a/b/two": bytes(range(256)) * 5000}.items():
        storage.put(name, data)
        assert storage.get(name) == data
        assert storage.size(name) == len(data)


def test_a_put_replaces_as_a_whole(storage: Storage) -> None:
    storage.put("owner", b"first, and longer")
    storage.put("owner", b"second")
    assert storage.get("owner") == b"second"
    assert storage.list() == [StoredObject("owner", 6)]


def test_readers_of_a_name_written_again_see_one_body_or_the_other(storage: Storage) -> None:
    bodies = [bytes([letter]) * 100_000 for letter in b"ab"]
    storage.put("owner", bodies[0])
    seen: list[bytes] = []
    reader = threading.Thread(target=lambda: seen.extend(storage.get("owner") for _ in range(20)))
    reader.start()
    for turn in range(20):
        storage.put("owner", bodies[turn % 2])
    reader.join()
    assert len(seen) == 20
    assert set(seen) <= set(bodies)


def test_a_missing_object_raises_object_missing(storage: Storage) -> None:
    storage.put("folder/name", b"x")
    for missing in ("nothing", "folder", "folder/name/below", "folder/nam"):
        for ask in (storage.get, storage.size, lambda path: storage.get_range(path, 0, 1)):
            with pytest.raises(ObjectMissing, match=missing) as caught:
                ask(missing)
            assert caught.value.path == missing
            assert not caught.value.retryable


def test_a_range_is_exact_or_an_error(storage: Storage) -> None:
    storage.put("x", b"0123456789")
    assert storage.get_range("x", 0, 10) == b"0123456789"
    assert storage.get_range("x", 3, 4) == b"3456"
    assert storage.get_range("x", 10, 0) == b""
    for start, length in ((8, 3), (10, 1), (50, 5)):
        with pytest.raises(CorruptFile):
            storage.get_range("x", start, length)


@pytest.mark.feature("E5")
def test_the_first_create_wins_and_the_second_learns_by_whom_it_lost(storage: Storage) -> None:
    mine, my_nonce = body("mine ")
    other, other_nonce = body("other ")
    assert storage.create("log/1", mine, my_nonce) == Won()
    assert storage.create("log/1", other, other_nonce) == Lost(mine)
    assert storage.get("log/1") == mine


def test_a_create_may_be_repeated_by_its_winner(storage: Storage) -> None:
    mine, nonce = body()
    assert [storage.create("log/1", mine, nonce) for _ in range(3)] == [Won()] * 3


def test_a_create_loses_to_a_put(storage: Storage) -> None:
    storage.put("x", b"was here")
    mine, nonce = body()
    assert storage.create("x", mine, nonce) == Lost(b"was here")


def test_a_body_without_its_nonce_is_refused(storage: Storage) -> None:
    with pytest.raises(InvalidPath, match="nonce"):
        storage.create("log/1", b"anyone could have written this", new_nonce())
    assert storage.list() == []


def test_a_listing_is_deep_sorted_and_of_whole_folders(storage: Storage) -> None:
    names = ["log/2", "log/10", "log/1", "logs/1", "log-1/x", "log.x", "deep/a/b/c/d", "deep/a/b-c"]
    for name in names:
        storage.put(name, name.encode())
    assert [each.path for each in storage.list()] == sorted(names)
    assert storage.list("log") == [StoredObject("log/1", 5), StoredObject("log/10", 6), StoredObject("log/2", 5)]
    assert [each.path for each in storage.list("deep/a")] == ["deep/a/b-c", "deep/a/b/c/d"]
    assert storage.list("lo") == storage.list("nothing") == storage.list("log.x") == []


def test_a_listing_continues_after_a_name(storage: Storage) -> None:
    for number in range(12):
        storage.put(f"log/{number:08d}", b"x")
    assert [each.path for each in storage.list("log", after="log/00000008")] == [f"log/{n:08d}" for n in (9, 10, 11)]
    assert storage.list("log", after="log/00000011") == []
    assert len(storage.list("log", after="log/")) == 12


def test_a_listing_of_more_than_one_page_is_complete(storage: Storage) -> None:
    names = [f"many/{number:04d}" for number in range(1100)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: storage.put(name, b""), names))
    assert [each.path for each in storage.list("many")] == names
    storage.delete(names)
    assert storage.list() == []


def test_folders_are_those_right_below_a_folder(storage: Storage) -> None:
    for name in ("job/owner", "job/log/1", "job/log/2", "job/chk-1/_metadata", "job/shared/1/a/b", "jobs/x", "x"):
        storage.put(name, b"x")
    assert storage.folders("job") == ["chk-1", "log", "shared"]
    assert storage.folders() == ["job", "jobs"]
    assert storage.folders("job/shared") == ["1"]
    assert (
        storage.folders("job/log") == storage.folders("nothing") == storage.folders("jo") == storage.folders("x") == []
    )


def test_deleting_many_minds_nothing_that_is_missing(storage: Storage) -> None:
    for name in ("a/1", "a/2", "a/b/3", "kept"):
        storage.put(name, b"x")
    storage.delete(["a/1", "never/was", "a/b/3", "a/2", "a/2/below"])
    storage.delete([])
    assert [each.path for each in storage.list()] == ["kept"]
    storage.put("a/b/3", b"again")
    assert storage.get("a/b/3") == b"again"


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "../a", "a/..", ".hidden", "a/.tmp-1", "a b", "ä", "a%2Fb", "a\n"]
)
def test_names_that_some_store_would_change_are_refused(storage: Storage, name: str) -> None:
    for act in (lambda: storage.put(name, b""), lambda: storage.get(name), lambda: storage.delete([name])):
        with pytest.raises(InvalidPath, match="encode_segment"):
            act()


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=12))
def test_any_text_of_a_user_can_be_a_folder(storage: Storage, text: str) -> None:
    name = f"{encode_segment(text)}/x"
    storage.put(name, text.encode(errors="surrogatepass"))
    assert storage.get(name) == text.encode(errors="surrogatepass")
    assert [each.path for each in storage.list(encode_segment(text))] == [name]
    storage.delete([name])


def test_a_sweep_takes_nothing_that_was_written(storage: Storage) -> None:
    storage.put("a/b", b"x")
    assert storage.sweep() == storage.sweep("a") == 0
    assert storage.get("a/b") == b"x"


@pytest.mark.feature("D33")
def test_a_good_store_passes_the_probe_and_keeps_no_object_of_it(storage: Storage) -> None:
    probe(storage)
    assert storage.list() == []


def test_a_store_travels_to_tasks_by_pickle_without_showing_secrets(storage: Storage) -> None:
    if type(storage).__module__ == "tidegate.testing.storage":
        pytest.skip("memory stays in its process")
    storage.put("x", b"1")
    assert pickle.loads(pickle.dumps(storage)).get("x") == b"1"
    assert "secret" not in repr(storage) + storage.url
