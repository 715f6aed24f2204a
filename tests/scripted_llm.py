"""A server on loopback that speaks OpenAI's protocol and answers what a test tells it to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Raw", "ScriptedLLM", "calls", "verdict"]

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@dataclass(frozen=True)
class Raw:
    """A reply as it goes over the wire.  ``cut`` promises more bytes than are sent; ``drip`` sends
    a byte each so many seconds."""

    body: str | bytes = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    cut: bool = False
    drip: float = 0.0


def verdict(word: str, reason: str = "because") -> str:
    """The text of a judge's answer."""
    return json.dumps({"reason": reason, "verdict": word})


def calls(*functions: tuple[str, Any]) -> dict[str, Any]:
    """A message that calls tools; arguments may be any text."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for number, (name, given) in enumerate(functions, 1)
        ],
    }


class ScriptedLLM:
    """Answers requests with what *script* makes of them.

    *script* gets a request's JSON and gives a text, a message, or a :class:`Raw` reply.  A sequence
    is worked off, its last entry for all that follow.
    """

    def __init__(
        self,
        script: str | Raw | dict[str, Any] | Callable[[dict[str, Any]], Any] | Sequence[Any],
        *,
        usage: Mapping[str, Any] | None = USAGE,
        delay: float = 0.0,
    ) -> None:
        self._script, self._usage, self._delay = script, usage, delay
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or each answer waits for an acknowledgement

            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that go away are part of the tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> ScriptedLLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        with self._lock:
            number = len(self.requests)
            self.requests.append(body)
            self.headers.append({key.lower(): value for key, value in handler.headers.items()})
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self._delay)
        if isinstance(self._script, str | Raw | dict):
            reply: Any = self._script
        elif callable(self._script):
            reply = self._script(body)
        else:
            reply = self._script[min(number, len(self._script) - 1)]
        with self._lock:
            self.at_once -= 1
        try:
            self._send(handler, reply if isinstance(reply, Raw) else self._completion(reply))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def _completion(self, reply: Any) -> Raw:
        message = {"role": "assistant", "content": reply} if isinstance(reply, str) else dict(reply)
        finish = message.pop("finish_reason", "tool_calls" if "tool_calls" in message else "stop")
        data: dict[str, Any] = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if self._usage is not None:
            data["usage"] = dict(self._usage)
        return Raw(json.dumps(data))

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, reply: Raw) -> None:
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        handler.send_response(reply.status)
        handler.send_header("Content-Type", reply.content_type)
        handler.send_header("Content-Length", str(len(body) + (50 if reply.cut else 0)))
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if reply.drip:
            for byte in body:
                handler.wfile.write(bytes([byte]))
                handler.wfile.flush()
                time.sleep(reply.drip)
        else:
            handler.wfile.write(body)
        if reply.cut:
            handler.close_connection = True
