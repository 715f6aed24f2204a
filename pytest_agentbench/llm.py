"""A client of OpenAI-compatible servers, for the judge and for the built-in agent.

The ``openai`` package speaks the protocol.  What it would not do is done here: one limit for the
whole of a request, however slowly a server answers; retries (transport, 408, 409, 429 and 5xx, with
``Retry-After``) that keep within it, and none for an answer that is merely wrong; leaving out what
a server does not know; strict reading; and no key in any message.
"""

from __future__ import annotations

import email.utils
import importlib.util
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_agentbench.endpoints import Endpoint
from pytest_agentbench.errors import ConfigError, HarnessError
from pytest_agentbench.model import Usage
from pytest_agentbench.prices import Price
from pytest_agentbench.text import one_line
from pytest_agentbench.transcripts import is_amount

__all__ = ["Client", "Completion", "ContextFull", "FunctionCall", "LLMError"]

#: Attempts at one request.
ATTEMPTS = 4
#: Bytes of an answer that are read, and of a refusal that are looked at.
MAX_BYTES = 4 * 1024 * 1024
MAX_REFUSAL = 64 * 1024
_RETRIED = frozenset({408, 409, 429, *range(500, 600)})
#: What a server may not know, by the words in which it says so.
_UNKNOWN = {
    "response_format": re.compile(r"response_format|json_schema|structured output|grammar", re.I),
    "seed": re.compile(r"\bseed\b", re.I),
    "temperature": re.compile(r"temperature", re.I),
    "max_tokens": re.compile(r"max_tokens.*max_completion_tokens", re.I | re.S),
    "images": re.compile(r"image|multimodal|vision|mmproj", re.I),
}
_CONTEXT = re.compile(
    r"context[ _](length|window|size)|maximum context|too many tokens|prompt is too long", re.I
)


class LLMError(HarnessError):
    """The server was not reached, refused, or answered what cannot be read."""


class ContextFull(LLMError):
    """The conversation is longer than the model takes."""


class _Refused(Exception):
    """The server answered with a status that is no success."""

    def __init__(self, status: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__(status)
        self.status, self.headers, self.body = status, headers, body


class _Transient(Exception):
    """Worth another attempt, after *pause* seconds if the server says so."""

    def __init__(self, told: str, pause: float | None = None) -> None:
        super().__init__(told)
        self.pause = pause


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function that the model calls; ``arguments`` is text, JSON if the model did it right."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer.  ``finish`` is ``stop``, ``length``, ``tool_calls`` or ``content_filter``."""

    text: str
    calls: tuple[FunctionCall, ...]
    usage: Usage
    finish: str = "stop"
    refusal: str = ""


class Client:
    """Talks to one model.  May be used from several threads.

    Raises
    ------
    ConfigError
        The packages of the extra ``judge`` are not installed.
    """

    def __init__(self, endpoint: Endpoint, price: Price | None = None, where: str = "") -> None:
        for name in ("openai", "tenacity"):
            if not _installed(name):
                raise ConfigError(
                    f"{where or '--bench-judge'}: openai:MODEL needs the package {name!r}: "
                    "pip install 'pytest-agentbench[judge]'"
                )
        self.endpoint = endpoint
        self._price = price
        self._now = threading.local()  # the deadline of this thread's request
        self._left_out: set[str] = set()
        self._lock = threading.Lock()
        self._client: Any = None
        self._create: Any = None

    def warm_up(self) -> None:
        """Get ready in the background: the first import of openai takes most of a second."""
        threading.Thread(target=self._ready, name="agentbench-openai", daemon=True).start()

    def _ready(self) -> None:
        """Import what is needed, once and in one thread, and make the connections' pool."""
        with self._lock:
            if self._create is not None:
                return
            openai, _ = _packages()
            http = openai.DefaultHttpxClient(
                follow_redirects=False,  # the key is for this server alone
                trust_env=self.endpoint.base_url.startswith("https:"),  # a proxy could read it
                event_hooks={"response": [self._refused]},
            )
            self._client = openai.OpenAI(
                api_key=self.endpoint.key or "none",
                base_url=self.endpoint.base_url,
                max_retries=0,
                http_client=http,
            )
            # looking this up imports more
            self._create = self._client.chat.completions.with_streaming_response.create

    def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        timeout: float,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> Completion:
        """One answer to *messages*, within *timeout* seconds in all.

        *schema* is a JSON Schema that the answer is to follow, where the server can see to it.

        Raises
        ------
        LLMError
            There is none; :class:`ContextFull` if the conversation is too long.
        """
        self._ready()
        _, tenacity = _packages()
        deadline = time.monotonic() + timeout
        asked: dict[str, Any] = {"messages": list(messages)}
        if tools:
            asked["tools"] = list(tools)
        if schema is not None:
            asked["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": dict(schema)},
            }
        optional = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        asked |= {name: value for name, value in optional.items() if value is not None}
        pause = tenacity.wait_random_exponential(multiplier=0.5, max=8)

        def wait(state: Any) -> float:
            error = state.outcome.exception()
            own = getattr(error, "pause", None)
            return float(pause(state)) if own is None else float(own)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Transient),
            stop=tenacity.stop_after_attempt(ATTEMPTS) | tenacity.stop_before_delay(timeout),
            wait=wait,
            reraise=True,
        )
        try:
            data: Any = retrying(lambda: self._adapted(asked, deadline))
        except _Transient as error:
            raise LLMError(self._told(str(error))) from None
        return self._read(data)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client is not None:
                self._client.close()

    # -- asking ---------------------------------------------------------------------------------

    def _adapted(self, asked: Mapping[str, Any], deadline: float) -> Any:
        """Ask; once more without what the server says that it does not know."""
        while True:
            sent = self._sent(asked)
            try:
                return self._once(sent, deadline)
            except _Refused as error:
                said = f"{error.status}: {one_line(_words(error.body), 300)}"
                unknown = self._not_known(sent, said) if error.status != 429 else None
                if unknown is not None:
                    with self._lock:
                        self._left_out.add(unknown)
                    continue
                if error.status in (400, 413, 422) and _CONTEXT.search(said):
                    raise ContextFull(self._told(f"it answered {said}")) from None
                spent = "insufficient_quota" in said
                if error.status in _RETRIED and not spent:
                    pause = _retry_after(error.headers)
                    if pause is not None and time.monotonic() + pause >= deadline:
                        said += f" (and asked to wait {pause:g} s)"
                    raise _Transient(f"it answered {said}", pause) from None
                raise LLMError(self._told(f"it answered {said}")) from None

    def _sent(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            left_out = set(self._left_out)
        sent = {name: value for name, value in asked.items() if name not in left_out}
        if "max_tokens" in left_out and "max_tokens" in asked:
            sent["max_completion_tokens"] = asked["max_tokens"]
        if "images" in left_out:
            sent["messages"] = [_without_images(message) for message in asked["messages"]]
        return sent

    def _not_known(self, sent: Mapping[str, Any], said: str) -> str | None:
        for name, words in _UNKNOWN.items():
            there = _has_images(sent["messages"]) if name == "images" else name in sent
            if there and words.search(said):
                return name
        return None

    def _once(self, sent: Mapping[str, Any], deadline: float) -> Any:
        left = deadline - time.monotonic()
        if left <= 0:
            raise LLMError(self._told("it did not answer in time"))
        openai, _ = _packages()
        limits = openai.Timeout(left, connect=min(left, 15.0))
        self._now.deadline = deadline
        try:
            with self._create(model=self.endpoint.model, timeout=limits, **sent) as response:
                body = self._body(response)
                if len(body) > MAX_BYTES:
                    raise LLMError(self._told(f"its answer is longer than {MAX_BYTES} bytes"))
        except (_Refused, LLMError):
            raise
        except Exception as error:
            cause = error.__cause__ if isinstance(error, openai.APIError) else error
            if isinstance(cause, _Refused | LLMError):
                raise cause from None
            # the HTTP library is httpx, or from openai 3.0 on httpx2
            if not type(cause or error).__module__.startswith(("httpx", "httpcore", "openai")):
                raise
            raise self._broken(cause or error, deadline) from None
        try:
            return json.loads(bytes(body))
        except (ValueError, RecursionError):
            shown = one_line(bytes(body[:400]).decode("utf-8", "replace"), 120)
            raise LLMError(self._told(f"its answer is not JSON: {shown!r}")) from None

    def _body(self, response: Any) -> bytes:
        """The bytes of *response*, unpacked: as far as they are wanted, and while there is time."""
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                break
            if time.monotonic() > self._now.deadline:
                raise LLMError(self._told("it did not answer in time"))
        return bytes(body)

    def _refused(self, response: Any) -> None:
        """Take any status but success out of the hands of openai, which would read without end."""
        if not 200 <= response.status_code < 300:
            text = self._body(response)[:MAX_REFUSAL].decode("utf-8", "replace")
            raise _Refused(response.status_code, dict(response.headers), text)

    def _broken(self, error: BaseException, deadline: float) -> Exception:
        """What a connection that failed, or broke, comes to."""
        if time.monotonic() >= deadline - 0.05:
            return LLMError(self._told("it did not answer in time"))
        return _Transient(f"it cannot be reached: {_brief(error)}")

    # -- reading --------------------------------------------------------------------------------

    def _read(self, data: Any) -> Completion:
        choices = data.get("choices") if isinstance(data, Mapping) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
            shown = one_line(json.dumps(data, default=str)[:400], 160)
            raise LLMError(self._told(f"its answer is no chat completion: {shown}"))
        calls = []
        asked = message.get("tool_calls")
        for number, call in enumerate(asked if isinstance(asked, list) else (), 1):
            function = call.get("function") if isinstance(call, Mapping) else None
            if not isinstance(function, Mapping):
                continue
            arguments = function.get("arguments", "")
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments)
            identifier = str(call.get("id") or f"call_{number}")
            calls.append(FunctionCall(identifier, str(function.get("name") or ""), arguments))
        return Completion(
            text=_text(message.get("content")),
            calls=tuple(calls),
            usage=self._usage(data.get("usage")),
            finish=str(choice.get("finish_reason") or "stop"),
            refusal=_text(message.get("refusal")),
        )

    def _usage(self, given: Any) -> Usage:
        given = given if isinstance(given, Mapping) else {}

        def tokens(table: Any, name: str) -> int | None:
            value = table.get(name) if isinstance(table, Mapping) else None
            return int(value) if is_amount(value) else None

        usage = Usage(
            input_tokens=tokens(given, "prompt_tokens"),
            output_tokens=tokens(given, "completion_tokens"),
            cache_read_tokens=tokens(given.get("prompt_tokens_details"), "cached_tokens"),
            total_tokens=tokens(given, "total_tokens"),
            requests=1,
        )
        cost = self._price.of(usage) if self._price is not None else given.get("cost")
        return replace(usage, cost_usd=float(cost)) if is_amount(cost) else usage

    def _told(self, text: str) -> str:
        told = f"{self.endpoint}: {text}"
        key = self.endpoint.key
        return told.replace(key, "[key]") if len(key) >= 4 else told


_IMPORT = threading.Lock()


def _packages() -> tuple[Any, Any]:
    """The packages openai and tenacity; never imported by two threads at a time."""
    with _IMPORT:
        import openai
        import tenacity

        return openai, tenacity


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:
        return False


def _words(text: str) -> str:
    """What a server says is wrong: the message of its body if it has one, else the body."""
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text[:1000]
    found: Any = body
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        found = inner.get("message", inner) if isinstance(inner, Mapping) else inner
        code = body.get("code") or (inner.get("code") if isinstance(inner, Mapping) else None)
        found = f"{found} ({code})" if code else found
    return found if isinstance(found, str) else json.dumps(found, default=str)


def _brief(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}", 160)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait (RFC 9110, 10.2.3), if it does."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError):
                continue
        if seconds == seconds:  # no NaN
            return max(0.0, seconds)
    return None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(text for text in texts if isinstance(text, str))
    return ""


def _has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(_is_image(part) for message in messages for part in _parts(message))


def _without_images(message: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = [part for part in _parts(message) if not _is_image(part)]
    if not parts:
        return message
    if all(part.get("type") == "text" for part in parts):  # servers without eyes want plain text
        return {**message, "content": "\n\n".join(part["text"] for part in parts)}
    return {**message, "content": parts}


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _is_image(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "image_url"
