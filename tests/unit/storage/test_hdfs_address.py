"""Where the NameNodes are, from what users and Hadoop's files say."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.storage import RoutedStorage, StorageMisconfigured, StorageUnavailable, open_storage
from tidegate.storage.hdfs.address import HdfsAddress
from tidegate.storage.hdfs.listing import start_of_listing
from tidegate.storage.open import complete_options
from tidegate.testing.storage import MemoryStorage

HA = {
    "fs.defaultFS": "hdfs://bank",
    "dfs.nameservices": "bank",
    "dfs.ha.namenodes.bank": "nn1, nn2",
    "dfs.namenode.http-address.bank.nn1": "one.example:50070",
    "dfs.namenode.rpc-address.bank.nn2": "two.example:8020",
}


@pytest.fixture(autouse=True)
def without_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_USER_NAME"):
        monkeypatch.delenv(name, raising=False)


def hadoop(monkeypatch: pytest.MonkeyPatch, folder: Path, settings: dict[str, str]) -> None:
    text = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
    (folder / "hdfs-site.xml").write_text(f"<configuration>{text}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))


@pytest.mark.feature("E5")
@pytest.mark.parametrize(
    ("url", "options", "found"),
    [
        ("hdfs://nn.example:8020/a/b", {}, "http://nn.example:9870"),
        ("hdfs://nn.example/a/b/", {}, "http://nn.example:9870"),
        ("hdfs://nn.example:8020/a/b", {"web_address": "web.example:50070"}, "http://web.example:50070"),
        ("hdfs://bank/a/b", {"web_address": "one:9870, https://two:9871"}, "http://one:9870 https://two:9871"),
        ("webhdfs://nn.example:50070/a/b", {}, "http://nn.example:50070"),
        ("webhdfs://nn.example/a/b", {}, "http://nn.example:9870"),
        ("swebhdfs://nn.example/a/b", {}, "https://nn.example:9871"),
        ("hdfs://[::1]:8020/a/b", {}, "http://[::1]:9870"),
    ],
)
def test_a_url_leads_to_name_nodes(url: str, options: dict[str, str], found: str) -> None:
    address = HdfsAddress.of(url, options)
    assert " ".join(address.name_nodes) == found
    assert (address.url, address.root, address.file("x/y"), address.file("")) == (
        url.rstrip("/"),
        "/a/b",
        "/a/b/x/y",
        "/a/b",
    )


@pytest.mark.feature("E5")
@pytest.mark.parametrize("url", ["hdfs://bank/a", "hdfs:///a", "webhdfs://bank/a"])
def test_a_name_service_is_found_in_the_files_of_hadoop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    hadoop(monkeypatch, tmp_path, HA)
    assert HdfsAddress.of(url, {}).name_nodes == ("http://one.example:50070", "http://two.example:9870")
    assert HdfsAddress.of("hdfs://elsewhere:8020/a", {}).name_nodes == ("http://elsewhere:9870",)


def test_a_cluster_with_one_name_node_says_in_its_files_where_its_web_address_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = {
        "fs.defaultFS": "hdfs://nn:8020",
        "dfs.namenode.http-address": "0.0.0.0:${port}",
        "port": "50070",
        "dfs.namenode.https-address": "web:50470",
    }
    hadoop(monkeypatch, tmp_path, settings)
    assert HdfsAddress.of("hdfs://nn:8020/a", {}).name_nodes == ("http://nn:50070",)
    hadoop(monkeypatch, tmp_path, settings | {"dfs.http.policy": "HTTPS_ONLY"})
    assert HdfsAddress.of("hdfs://nn:8020/a", {}).name_nodes == ("https://web:50470",)


@pytest.mark.feature("E5")
def test_what_the_driver_found_in_its_environment_travels_to_tasks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hadoop(monkeypatch, tmp_path, HA)
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    options = complete_options("hdfs://bank/a", {"delegation_token": "t"})
    found = HdfsAddress.of("hdfs://bank/a", {"delegation_token": "t"})
    storage = pickle.dumps(open_storage("hdfs://bank/a"))
    monkeypatch.delenv("HADOOP_CONF_DIR")
    monkeypatch.setenv("HADOOP_USER_NAME", "an-executor")
    assert HdfsAddress.of("hdfs://bank/a", options) == found
    assert found.user == "ann"
    assert pickle.loads(storage).url == "hdfs://bank/a"
    assert complete_options("s3://bucket/x", {"region": "eu"}) == {"region": "eu"}


def test_options_of_one_file_system_are_not_used_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    home = "hdfs://bank/checkpoints"
    asked: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(
        "tidegate.storage.routed.open_storage",
        lambda url, confined, **options: asked.append((url, options)) or MemoryStorage(),
    )
    storage = RoutedStorage(open_storage(home, web_address="one:9870"), {"web_address": "one:9870"})
    for path in ("hdfs://bank/savepoints/x", "hdfs://shop/savepoints/x", "s3://bucket/x"):
        storage.put(path, b"1")
    assert asked == [
        ("hdfs://bank/savepoints", {"web_address": "one:9870"}),
        ("hdfs://shop/savepoints", {}),
        ("s3://bucket", {}),
    ]


def test_a_token_replaces_the_user_name_and_is_read_again_from_its_file(tmp_path: Path) -> None:
    assert HdfsAddress.of("hdfs://nn/a", {"user": "ann"}).credentials() == {"user.name": "ann"}
    secret = HdfsAddress.of("hdfs://nn/a", {"delegation_token": "s3cret"})
    assert secret.credentials() == {"delegation": "s3cret"}
    assert "s3cret" not in repr(secret)
    file = tmp_path / "token"
    renewed = HdfsAddress.of("hdfs://nn/a", {"delegation_token_file": str(file)})
    for token in ("first", "second"):
        file.write_text(token + "\n")
        assert renewed.credentials() == {"delegation": token}
    file.write_text("\n")
    with pytest.raises(StorageUnavailable, match="is empty"):
        renewed.credentials()
    file.unlink()
    with pytest.raises(StorageMisconfigured, match="on every executor"):
        renewed.credentials()


@pytest.mark.feature("D26")
@pytest.mark.parametrize(
    ("url", "options", "advice"),
    [
        ("hdfs:///a", {}, "set HADOOP_CONF_DIR"),
        ("hdfs:/a", {}, "Write hdfs:///a"),
        ("hdfs://ann@nn/a", {}, "hdfs.user"),
        ("hdfs://nn/a?x=1", {}, "hdfs://host:port/directory"),
        ("hdfs://nn/a", {"endpoint": "x"}, "Check the options"),
        ("hdfs://nn/a", {"timeout_ms": "soon"}, "number of milliseconds"),
        ("hdfs://nn/a", {"web_address": "http://nn:9870/webhdfs/v1"}, "Write host:port"),
        ("webhdfs://nn:port/a", {}, "Write host:port"),
    ],
)
def test_an_address_that_cannot_be_used_says_what_to_do(url: str, options: dict[str, str], advice: str) -> None:
    with pytest.raises(StorageMisconfigured, match=advice):
        open_storage(url, **options)


def test_files_of_hadoop_that_cannot_be_used_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hadoop(monkeypatch, tmp_path, {"dfs.ha.namenodes.bank": "nn1"})
    with pytest.raises(StorageMisconfigured, match=r"dfs\.namenode\.http-address\.bank\.nn1"):
        open_storage("hdfs://bank/a")
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(StorageMisconfigured, match=r"core-site\.xml cannot be read"):
        open_storage("hdfs://bank/a")


names = st.lists(st.text("ab-/.", min_size=1, max_size=5), min_size=1, max_size=8)


@given(names, st.text("ab-.", min_size=1, max_size=4))
def test_a_listing_starts_before_everything_that_comes_after_a_name(paths: list[str], after: str) -> None:
    start = start_of_listing("", after)
    for path in paths:
        entry = path.split("/")[0]
        if path > after and entry:
            assert entry > start, (path, after)
    assert start_of_listing("log", "log/00000012") == "0000001"
    assert start_of_listing("", "log/00000012") == start_of_listing("log", None) == ""
