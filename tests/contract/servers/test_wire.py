"""A wire does to a conversation what it says it does."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.servers.wire import Wire


@pytest.fixture
def server():
    """Answers every message with itself, and remembers what it heard."""
    heard: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(100):
                heard.append(data)
                connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()[1], heard
    listening.close()


@pytest.fixture
def wire(server):
    wire = Wire().lead_to("127.0.0.1", server[0])
    yield wire
    wire.stop()


def connect(wire: Wire) -> socket.socket:
    return socket.create_connection(("127.0.0.1", wire.port), timeout=20)


def test_bytes_arrive_in_both_directions(wire):
    with connect(wire) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_a_cut_breaks_conversations_and_refuses_new_ones_until_it_is_mended(wire):
    with connect(wire) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        with wire.cut():
            assert _ended(client)
            with connect(wire) as other:
                assert _ended(other)
    with connect(wire) as client:
        client.sendall(b"again")
        assert client.recv(100) == b"again"


def test_a_deaf_wire_delivers_requests_and_loses_answers(wire, server):
    with connect(wire) as client:
        with wire.deaf():
            client.sendall(b"hello")
            while wire.lost_bytes < 5:
                threading.Event().wait(0.01)
            assert server[1] == [b"hello"]
        assert _ended(client)


def _ended(client: socket.socket) -> bool:
    try:
        return client.recv(100) == b""
    except ConnectionError:
        return True
