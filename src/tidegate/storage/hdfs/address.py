"""Where the NameNodes of a file system answer HTTP, from its URL, the options and Hadoop's own configuration files."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from tidegate.storage.errors import StorageMisconfigured, StorageUnavailable

# Defaults of Hadoop 3 for the web address of a NameNode.
_PORTS = {"http": 9870, "https": 9871}
_OPTIONS = {"web_address", "user", "delegation_token", "delegation_token_file", "timeout_ms", "connect_timeout_ms"}
_VARIABLE = re.compile(r"\$\{([^}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsAddress:
    """One directory of one file system, complete: a process with another environment reaches the same one."""

    url: str
    """As the user wrote it, without a slash at the end."""
    root: str
    """The directory, beginning with a slash, without one at the end. Empty for the top of the file system."""
    name_nodes: tuple[str, ...]
    """Their addresses for HTTP, as `http://host:port`. One of them is active."""
    user: str
    delegation_token: str | None = field(default=None, repr=False)
    delegation_token_file: str | None = None
    timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000

    @staticmethod
    def of(url: str, options: Mapping[str, Any]) -> HdfsAddress:
        """Read a URL and options. Raises `StorageMisconfigured`. Sends nothing."""
        text = url.rstrip("/")
        _check_options(text, options)
        parts = urlsplit(url)
        if parts.query or parts.fragment or parts.username:
            raise StorageMisconfigured(
                text,
                "",
                f"{text!r} has a part that an address of a directory does not have. Write "
                "hdfs://host:port/directory, and pass the name of the user as hdfs.user.",
            )
        return HdfsAddress(
            url=text,
            root=parts.path.rstrip("/"),
            name_nodes=_name_nodes(text, options.get("web_address")),
            user=str(options.get("user") or os.environ.get("HADOOP_USER_NAME") or _own_name(text)),
            delegation_token=options.get("delegation_token"),
            delegation_token_file=options.get("delegation_token_file"),
            timeout_ms=int(options.get("timeout_ms", 60_000)),
            connect_timeout_ms=int(options.get("connect_timeout_ms", 10_000)),
        )

    def file(self, path: str) -> str:
        """Return the path in the file system of an object below the root. An empty path is the root."""
        return f"{self.root}/{path}" if path else self.root or "/"

    def options(self) -> dict[str, Any]:
        """The options that lead there from anywhere."""
        found = {
            "web_address": ",".join(self.name_nodes),
            "user": self.user,
            "delegation_token": self.delegation_token,
            "delegation_token_file": self.delegation_token_file,
            "timeout_ms": self.timeout_ms,
            "connect_timeout_ms": self.connect_timeout_ms,
        }
        return {key: value for key, value in found.items() if value is not None}

    def credentials(self) -> dict[str, str]:
        """What a request says about who sends it. A token file is read each time, since tokens expire and are replaced."""
        token = self.delegation_token
        if self.delegation_token_file is not None:
            try:
                token = Path(self.delegation_token_file).read_text().strip()
            except OSError as error:
                raise StorageMisconfigured(
                    self.url,
                    "",
                    f"The delegation token for {self.url} cannot be read: {error}. Write it to that file "
                    "on the driver and on every executor.",
                ) from error
            if not token:
                # Replaced by somebody who truncates it first. Without a token the cluster would see another user, and deny.
                raise StorageUnavailable(
                    self.url, "", f"The delegation token file {self.delegation_token_file} is empty."
                )
        return {"delegation": token} if token else {"user.name": self.user}


def _own_name(url: str) -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        # A container may run under a number that has no name.
        raise StorageMisconfigured(url, "", f"The user of {url} is unknown: {error}. Set hdfs.user.") from error


def _check_options(url: str, options: Mapping[str, Any]) -> None:
    if unknown := sorted(set(options) - _OPTIONS):
        raise StorageMisconfigured(
            url, "", f"HDFS has no options {unknown}. Check the options; it knows {sorted(_OPTIONS)}."
        )
    for name in ("timeout_ms", "connect_timeout_ms"):
        if not re.fullmatch(r"[1-9]\d*", str(options.get(name, 1))):
            raise StorageMisconfigured(url, "", f"{name} is {options[name]!r}. Give a number of milliseconds.")


def _name_nodes(url: str, web_address: str | None) -> tuple[str, ...]:
    scheme, authority = urlsplit(url).scheme.lower(), urlsplit(url).netloc
    protocol = "https" if scheme == "swebhdfs" else "http"
    if web_address:
        return tuple(_checked(url, protocol, each.strip()) for each in web_address.split(",") if each.strip())
    # Only if the user gives no web address: an explicit one needs no Hadoop configuration on this machine.
    site = _site()
    if not authority:
        authority = urlsplit(site.get("fs.defaultFS", "")).netloc
    if not authority:
        raise StorageMisconfigured(
            url,
            "",
            f"{url!r} names no host, and no core-site.xml with fs.defaultFS was found. Write "
            "hdfs://host:port/directory, or set HADOOP_CONF_DIR.",
        )
    if scheme == "hdfs" and site.get("dfs.http.policy", "").upper() == "HTTPS_ONLY":
        protocol = "https"
    if ids := site.get(f"dfs.ha.namenodes.{authority}"):
        return tuple(_of_service(url, protocol, site, f"{authority}.{each.strip()}") for each in ids.split(","))
    host = urlsplit(f"//{authority}").hostname or ""
    # The port in webhdfs:// is that of HTTP already. In hdfs:// it is that of RPC, which WebHDFS does not use.
    if scheme != "hdfs":
        return (_checked(url, protocol, authority),)
    own = site.get(f"dfs.namenode.{protocol}-address", "")
    # The setting has no name of a service, so it is that of the default file system.
    if own and urlsplit(site.get("fs.defaultFS", "")).netloc == authority:
        bound, _, port = own.rpartition(":")
        return (_checked(url, protocol, own if bound not in ("", "0.0.0.0") else f"{host}:{port}"),)
    return (_checked(url, protocol, _bracketed(host)),)


def _of_service(url: str, protocol: str, site: Mapping[str, str], node: str) -> str:
    """The address of one NameNode of a name service, such as `nameservice1.nn2`."""
    own = site.get(f"dfs.namenode.{protocol}-address.{node}")
    rpc = site.get(f"dfs.namenode.rpc-address.{node}", "")
    if not own and not rpc:
        raise StorageMisconfigured(
            url,
            "",
            f"Hadoop's configuration has no dfs.namenode.{protocol}-address.{node} for {url}. Add it to "
            "hdfs-site.xml, or list the addresses in hdfs.web-address.",
        )
    return _checked(url, protocol, own or _bracketed(urlsplit(f"//{rpc}").hostname or ""))


def _checked(url: str, protocol: str, address: str) -> str:
    parts = urlsplit(address if "://" in address else f"{protocol}://{address}")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        port = 0
    if not port or not parts.hostname or parts.path.rstrip("/") or parts.username:
        raise StorageMisconfigured(
            url, "", f"{address!r} is not the HTTP address of a NameNode. Write host:port, as in namenode:9870."
        )
    return f"{parts.scheme}://{_bracketed(parts.hostname)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _site() -> dict[str, str]:
    """Hadoop's settings from the files in HADOOP_CONF_DIR."""
    found: dict[str, str] = {}
    folder = os.environ.get("HADOOP_CONF_DIR")
    for name in ("core-site.xml", "hdfs-site.xml") if folder else ():
        file = Path(str(folder)) / name
        if not file.is_file():
            continue
        try:
            for each in ElementTree.parse(file).getroot().iter("property"):
                found[(each.findtext("name") or "").strip()] = (each.findtext("value") or "").strip()
        except (OSError, ElementTree.ParseError) as error:
            raise StorageMisconfigured(
                "hdfs",
                "",
                f"Hadoop's configuration {file} cannot be read: {error}. Correct it, or unset "
                "HADOOP_CONF_DIR and pass hdfs.web-address.",
            ) from error
    return {
        name: _VARIABLE.sub(lambda variable: found.get(variable[1], variable[0]), text) for name, text in found.items()
    }
