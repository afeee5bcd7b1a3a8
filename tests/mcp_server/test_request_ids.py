"""The id of a request that could not be read."""

import pytest

from nacre.json_types import JsonValue
from nacre.mcp_server.stdio import request_id_at_edges, request_id_of


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a', b'b"}}', 7),
        (b' { "method" : "x" , "id" : "seven" , "params":{', b"}}", "seven"),
        (b'{"method":"tools/call","params":{"a', b'b"},"jsonrpc":"2.0","id":7}', 7),
        (b'{"method":"tools/call","params":{"a', b'b"}, "jsonrpc": "2.0", "id": 7 } \r', 7),
        (b'{"params":{"a', b'"},"jsonrpc":"2.0","method":"x","id":"a\\"b"}', 'a"b'),
        # An answer to a question of ours.
        (b'{"jsonrpc":"2.0","id":7,"result":{"a', b'b"}}', None),
        # The id of something inside.
        (b'{"method":"x","params":{"a', b'b","id":7}}', None),
        (b'{"method":"x","params":{"id":7,"a', b'b"}}', None),
        (b'{"method":"x","params":{"a', b'\\",\\"id\\":7}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"', b"}", None),
        (b'{"jsonrpc":"2.0","id":%s,"method":"x"' % (b"9" * 500), b"}", None),
        (b"", b"", None),
        (b"\xff" * 1024, b"[" * 1024, None),
    ],
)
def test_an_id_is_found_at_the_edges(start: bytes, end: bytes, found: JsonValue) -> None:
    assert request_id_at_edges(start, end) == found


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({"method": 5, "id": 7}, 7),
        ({"method": "x", "id": "a"}, "a"),
        ({"method": "x", "id": True}, None),
        ({"method": "x", "id": [1]}, None),
        ({"method": "x"}, None),
        ({"id": 7, "result": 5}, None),
        ([], None),
    ],
)
def test_only_a_request_has_an_id_to_answer(message: JsonValue, found: JsonValue) -> None:
    assert request_id_of(message) == found
