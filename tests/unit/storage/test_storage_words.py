"""Names, handles, waits and URLs: the parts of storage that need no store."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.storage import (
    FileHandle,
    LocalStorage,
    OutcomeUnknown,
    Patience,
    StorageDenied,
    StorageError,
    StorageMisconfigured,
    StorageUnavailable,
    decode_segment,
    encode_segment,
    open_storage,
    probe,
)
from tidegate.storage.port import check_path
from tidegate.testing.storage import MemoryStorage


@pytest.mark.feature("D24")
@given(st.text(min_size=1, max_size=15).filter(lambda text: text.isprintable()))
def test_any_name_can_be_encoded_as_a_segment_and_decoded(name: str) -> None:
    segment = encode_segment(name)
    assert check_path("s", segment) == segment
    assert decode_segment(segment) == name


def test_plain_names_stay_readable() -> None:
    assert encode_segment("orders-v2_eu.1") == "orders-v2_eu.1"
    assert encode_segment("../my orders") == "=2E.=2Fmy=20orders"


@pytest.mark.feature("E3")
@given(size=st.integers(0, 5000), part=st.integers(1, 700))
def test_the_parts_of_a_handle_cover_the_file(size: int, part: int) -> None:
    handle = FileHandle("a/b", size, "sha256:0", part)
    sizes = [count for _, count in handle.parts()]
    assert sum(sizes) == size
    assert all(count == part for count in sizes[:-1])
    assert list(handle.objects()) == sorted(set(handle.objects()))


@pytest.mark.feature("H1")
def test_patience_waits_longer_each_time_and_ends() -> None:
    waits: list[float] = []
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise StorageUnavailable("s", "x", "down")

    with pytest.raises(StorageUnavailable):
        Patience(5, first_ms=100, ceiling_ms=500, sleep=waits.append, chance=lambda: 1.0).persist(fail)
    assert waits == [0.1, 0.2, 0.4, 0.5]
    assert len(tries) == 5


@pytest.mark.feature("H1")
def test_patience_does_not_repeat_a_refusal() -> None:
    def refuse() -> None:
        raise StorageDenied("s", "x", "no")

    def never(seconds: float) -> None:
        raise AssertionError("waited")

    with pytest.raises(StorageDenied):
        Patience(sleep=never).persist(refuse)


@pytest.mark.parametrize("url", ["{dir}", "file://{dir}", "file://localhost{dir}"])
def test_a_directory_opens_by_path_and_by_url(tmp_path: Path, url: str) -> None:
    storage = open_storage(url.format(dir=tmp_path))
    assert isinstance(storage, LocalStorage)
    assert storage.url == tmp_path.as_uri()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("D26")
@pytest.mark.parametrize(
    ("url", "options", "advice"),
    [
        ("hdfs://nn/ckpt", {"region": "r"}, "Check the options"),
        ("memory://x", {}, "MemoryStorage"),
        ("ftp://x/y", {}, "s3://"),
        ("file://host/x", {}, "file:///"),
        ("/tmp/x", {"region": "r"}, "Remove them"),
        ("s3://bucket/x", {"no_such_option": "1"}, "Check the URL and the options"),
    ],
)
def test_what_cannot_be_opened_says_what_to_do(url: str, options: dict[str, str], advice: str) -> None:
    with pytest.raises(StorageMisconfigured, match=advice):
        open_storage(url, **options)


@pytest.mark.feature("D33")
def test_a_store_that_ignores_conditions_fails_the_probe() -> None:
    class Careless(MemoryStorage):
        def create(self, path, data, nonce):  # type: ignore[no-untyped-def]
            self.delete([path])
            return super().create(path, data, nonce)

    store = Careless()
    with pytest.raises(StorageMisconfigured, match="second put-if-absent replaced the first"):
        probe(store)
    assert store.list() == []


def test_errors_are_pickled_completely() -> None:
    error = pickle.loads(pickle.dumps(OutcomeUnknown.of("s3://b", "log/1", "timeout")))
    assert (type(error), error.store, error.path, error.retryable) == (OutcomeUnknown, "s3://b", "log/1", False)
    assert isinstance(error, StorageError)
    assert "restart: recovery" in str(error)


def test_the_client_of_object_stores_is_loaded_only_when_one_is_opened() -> None:
    program = "import sys, tidegate.storage; print('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
