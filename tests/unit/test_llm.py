"""The client, the panel of votes, the cache, prices, the budget and the judge's agreement."""

from __future__ import annotations

import email.utils
import json
import math
import multiprocessing
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Raw, ScriptedLLM, calls

from pytest_agentbench.agreement import agreement, agreement_lines, verdict
from pytest_agentbench.budget import Budget
from pytest_agentbench.endpoints import (
    OPENAI,
    Endpoint,
    judge_endpoint,
    split_model,
    withheld,
)
from pytest_agentbench.errors import ConfigError, HarnessError
from pytest_agentbench.judge import JudgeRequest, JudgeVerdict
from pytest_agentbench.judgecache import JudgeCache, cache_key
from pytest_agentbench.llm import Client, ContextFull, LLMError
from pytest_agentbench.llmjudge import LLMJudge, Unclear, read_verdict
from pytest_agentbench.model import Check, TrialRecord, Usage
from pytest_agentbench.panel import Panel, judge_details, majority, median
from pytest_agentbench.prices import Price, read_prices
from pytest_agentbench.transcripts import Transcript

KEY = "sk-secret-4711"
ASK = [{"role": "user", "content": "hello"}]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "AGENTBENCH_JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


_OPEN: list[Client] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def client(server: ScriptedLLM, price: Price | None = None) -> Client:
    _OPEN.append(Client(Endpoint("gpt-x", server.url, KEY), price))
    return _OPEN[-1]


# -- the client -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "requests"),
    [
        (["fine"], 1),
        ([Raw("boom", status=500), "fine"], 2),
        ([Raw("", status=429, headers={"Retry-After": "0"}), "fine"], 2),
        ([Raw('{"choices"', cut=True), "fine"], 2),
        ([Raw("x", status=502), Raw("x", status=503), Raw("x", status=408), "fine"], 4),
        ([{"content": [{"type": "text", "text": "fi"}, {"type": "text", "text": "ne"}]}], 1),
        ([Raw('{"choices": [{"message": {"content": "fine"}}]}', content_type="text/plain")], 1),
    ],
)
def test_answers_are_got(script: list[Any], requests: int) -> None:
    with ScriptedLLM(script) as server:
        done = client(server).complete(ASK, timeout=20)
        assert len(server.requests) == requests
    assert done.text == "fine"
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert server.requests[0] == {"model": "gpt-x", "messages": ASK}


@pytest.mark.parametrize(
    ("script", "told", "requests"),
    [
        (Raw("<html>", content_type="text/html"), "is not JSON: '<html>'", 1),
        (Raw('{"choices": [{"mess'), "is not JSON", 1),
        (Raw("[1]"), "is no chat completion", 1),
        (Raw('{"choices": []}'), "is no chat completion", 1),
        (Raw('{"choices": [{"message": null}]}'), "is no chat completion", 1),
        (Raw(json.dumps({"error": {"message": f"key {KEY} is bad"}}), status=401), "401: key [key]", 1),
        (Raw("nothing here", status=404), "404: nothing here", 1),
        (Raw("", status=307, headers={"Location": "http://127.0.0.1:9/v1"}), "it answered 307", 1),
        (Raw("x" * 10_000_000, status=400), "it answered 400: xxx", 1),
        (Raw('{"error": {"message": "x", "code": "insufficient_quota"}}', status=429), "429", 1),
        (Raw("busy", status=429, headers={"Retry-After": "0"}), "429: busy", 4),
        (Raw("down", status=500, headers={"retry-after-ms": "1"}), "500: down", 4),
        (Raw("wait", status=503, headers={"Retry-After": "600"}), "asked to wait 600 s", 1),
    ],
)  # fmt: skip
def test_what_cannot_be_got(script: Raw, told: str, requests: int) -> None:
    with ScriptedLLM(script) as server:
        with pytest.raises(LLMError) as caught:
            client(server).complete(ASK, timeout=10)
        assert len(server.requests) == requests
    assert told in str(caught.value)
    assert KEY not in str(caught.value)
    assert server.url in str(caught.value)


def test_retry_after_is_honoured() -> None:
    with ScriptedLLM([Raw("", status=429, headers={"Retry-After": "1"}), "fine"]) as server:
        begin = time.monotonic()
        client(server).complete(ASK, timeout=20)
    assert time.monotonic() - begin >= 1
    date = email.utils.formatdate(time.time() + 900, usegmt=True)
    late = Raw("", status=429, headers={"Retry-After": date})
    with ScriptedLLM(late) as server, pytest.raises(LLMError, match="asked to wait 8"):
        client(server).complete(ASK, timeout=5)


@pytest.mark.parametrize(
    "script",
    [
        Raw(" " * 500, drip=0.05),
        Raw(" " * 500, drip=0.05, status=400),
        lambda request: time.sleep(6) or "late",
    ],
)
def test_one_limit_for_all(script: Any) -> None:
    with ScriptedLLM(script) as server:
        begin = time.monotonic()
        with pytest.raises(LLMError, match="did not answer in time"):
            client(server).complete(ASK, timeout=0.5)
        assert time.monotonic() - begin < 5


def test_nobody_listens() -> None:
    with pytest.raises(LLMError, match="cannot be reached"):
        Client(Endpoint("x", "http://127.0.0.1:9/v1", "")).complete(ASK, timeout=10)


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_agentbench.llm.MAX_BYTES", 1000)
    long = Raw("x" * 100_000)
    with ScriptedLLM(long) as server, pytest.raises(LLMError, match="longer than 1000 bytes"):
        client(server).complete(ASK, timeout=10)


@pytest.mark.parametrize(
    ("message", "given", "gone"),
    [
        ("Unsupported parameter: 'seed'", {"seed": 1}, "seed"),
        ("temperature does not support 0", {"temperature": 0.0}, "temperature"),
        ("response_format json_schema is not available", {"schema": {}}, "response_format"),
        ("Use max_completion_tokens, not max_tokens: max_tokens max_completion_tokens",
         {"max_tokens": 5}, "max_tokens"),
    ],
)  # fmt: skip
def test_what_a_server_does_not_know_is_left_out(message: str, given: Any, gone: str) -> None:
    error = Raw(json.dumps({"error": {"message": message}}), status=400)

    def answer(request: dict[str, Any]) -> Any:
        return error if gone in request else "fine"

    with ScriptedLLM(answer) as server:
        asking = client(server)
        assert asking.complete(ASK, timeout=10, **given).text == "fine"
        assert asking.complete(ASK, timeout=10, **given).text == "fine"
        assert [gone in request for request in server.requests] == [True, False, False]
        if gone == "max_tokens":
            assert server.requests[-1]["max_completion_tokens"] == 5


def test_a_server_without_eyes_gets_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    ask = [{"role": "user", "content": [{"type": "text", "text": "look"}, picture]}]

    def answer(request: dict[str, Any]) -> Any:
        blind = isinstance(request["messages"][0]["content"], list)
        return Raw("image input is not supported", status=500) if blind else "fine"

    with ScriptedLLM(answer) as server:
        assert client(server).complete(ask, timeout=10).text == "fine"
        assert server.requests[1]["messages"] == [{"role": "user", "content": "look"}]


def test_a_full_context_is_told_apart() -> None:
    error = Raw('{"error": {"code": "context_length_exceeded", "message": "too long"}}', status=400)
    with ScriptedLLM(error) as server, pytest.raises(ContextFull):
        client(server).complete(ASK, timeout=10)


def test_usage_and_cost() -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "total_tokens": 1100,
        "prompt_tokens_details": {"cached_tokens": 400},
        "cost": 0.5,
    }
    with ScriptedLLM("x", usage=usage) as server:
        priced = client(server, Price(1.0, 10.0, 0.5)).complete(ASK, timeout=10).usage
        told = client(server).complete(ASK, timeout=10).usage
    assert priced.cost_usd == pytest.approx((600 * 1 + 400 * 0.5 + 100 * 10) / 1e6)
    assert (priced.input_tokens, priced.output_tokens, priced.cache_read_tokens) == (1000, 100, 400)
    assert told.cost_usd == 0.5
    with ScriptedLLM("x", usage=None) as server:
        unknown = client(server, Price(1.0, 10.0, 0.5)).complete(ASK, timeout=10).usage
    assert (unknown.input_tokens, unknown.cost_usd, unknown.requests) == (None, None, 1)


def test_tool_calls_are_read() -> None:
    with ScriptedLLM(calls(("a", {"x": 1}), ("b", "{bad"))) as server:
        done = client(server).complete(ASK, timeout=10, tools=[{"type": "function"}])
    assert [(c.name, c.arguments) for c in done.calls] == [("a", '{"x": 1}'), ("b", "{bad")]
    assert done.finish == "tool_calls"
    odd = {
        "content": None,
        "tool_calls": [None, {"function": {"name": "c", "arguments": {"y": 2}}}],
    }
    with ScriptedLLM(odd) as server:
        done = client(server).complete(ASK, timeout=10)
    assert [(c.id, c.name, c.arguments) for c in done.calls] == [("call_2", "c", '{"y": 2}')]
    for wrong in (5, {"a": 1}, "text"):
        with ScriptedLLM({"content": "fine", "tool_calls": wrong}) as server:
            assert client(server).complete(ASK, timeout=10).calls == ()


# -- endpoints ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "model", "url"),
    [
        ("gpt-x", "gpt-x", None),
        ("gpt-x@http://h:1/v1", "gpt-x", "http://h:1/v1"),
        ("claude@20260101", "claude@20260101", None),
        ("claude@20260101@https://h/v1", "claude@20260101", "https://h/v1"),
    ],
)
def test_model_and_url(text: str, model: str, url: str | None) -> None:
    assert split_model(text) == (model, url)


def test_where_keys_and_urls_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "shared-key")
    found = judge_endpoint("openai:gpt-x", None)
    assert found is not None
    assert (found.model, found.base_url, found.key) == ("gpt-x", OPENAI, "shared-key")
    assert "shared-key" not in repr(found)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://h/v1/")
    monkeypatch.setenv("AGENTBENCH_JUDGE_API_KEY", "own-key")
    own = judge_endpoint("openai:gpt-x", None)
    assert own is not None
    assert (own.base_url, own.key) == ("http://h/v1", "own-key")
    assert withheld(own, {"A": "own-key", "B": "x own-key x", "C": "shared-key"}) == {"A", "B"}
    assert withheld(None) == frozenset()
    named = judge_endpoint("openai:x@http://one/v1", "http://two/v1")
    assert named is not None
    assert named.base_url == "http://one/v1"
    assert judge_endpoint("py:a:b", None) is None


@pytest.mark.parametrize("url", ["h", "ftp://h", "http://", "http://h:x/v1", "http://h/v1?k=1"])
def test_odd_urls(url: str) -> None:
    with pytest.raises(ConfigError, match="expected a base URL"):
        Endpoint.make("judge", "x", url, "--x")


# -- verdicts, votes ------------------------------------------------------------------------------


def request(**changes: Any) -> JudgeRequest:
    given = {"rubric_id": "r", "criteria": "c", "prompt": "p", "transcript": Transcript()}
    return JudgeRequest(**{**given, **changes})


def test_a_verdict_is_read_strictly() -> None:
    assert read_verdict('{"reason": "so", "verdict": "FAIL"}') == JudgeVerdict(False, "so")
    for text in ("PASS", '{"verdict": "PASS"} {"verdict": "FAIL"}', '{"verdict": "PASS"', "null",
                 '```\n{"verdict": "PASS"}\n```\nFAIL', '{"verdict": null, "reason": "PASS"}',
                 '{"verdict": "PASS", "reason": 5}', "[" * 100_000):  # fmt: skip
        with pytest.raises(Unclear):
            read_verdict(text)


def test_votes_run_at_a_time_and_late_ones_are_left_behind() -> None:
    seen: list[int] = []
    release = threading.Event()

    def judge(asked: JudgeRequest) -> JudgeVerdict:
        seen.append(asked.vote)
        if asked.criteria == "hang":
            release.wait(20)
        return JudgeVerdict(asked.vote != 2, f"vote {asked.vote}")

    panel = Panel(judge, votes=3, concurrency=1, limit_s=0.3)
    try:
        hanging = panel.ask(request(criteria="hang"))
        fine = panel.ask(request())
        assert not fine.done
        with pytest.raises(HarnessError, match="3 of 3 votes came to nothing: the judge did not"):
            majority(hanging.votes())
        assert majority(fine.votes()) == JudgeVerdict(True, "vote 1 (2 of 3 votes)")
        assert fine.done
        assert sorted(seen) == [1, 1, 2, 2, 3, 3]
    finally:
        release.set()
        panel.close()


def test_what_is_cancelled_is_not_asked() -> None:
    asked: list[int] = []
    gate = threading.Event()

    def judge(given: JudgeRequest) -> JudgeVerdict:
        asked.append(given.trial)
        gate.wait(10)
        return JudgeVerdict(True)

    panel = Panel(judge, concurrency=1)
    first, second = panel.ask(request(trial=1)), panel.ask(request(trial=2))
    second.cancel()
    gate.set()
    assert majority(first.votes()).passed
    with pytest.raises(HarnessError, match="not asked"):
        majority(second.votes())
    assert asked == [1]


@pytest.mark.parametrize("trouble", [ConnectionError("down"), SystemExit(3), HarnessError("no")])
def test_a_judge_that_raises_is_a_trouble(trouble: BaseException) -> None:
    def judge(asked: JudgeRequest) -> JudgeVerdict:
        raise trouble

    votes = Panel(judge).ask(request()).votes()
    with pytest.raises(HarnessError, match="the judge failed on rubric 'r'"):
        majority(votes)


def test_a_reader_that_raises_is_a_trouble() -> None:
    def read(answer: Any) -> Any:
        raise KeyError("total")

    votes = Panel(lambda asked: "x").ask(request(wants="scores", read=read)).votes()
    with pytest.raises(HarnessError, match="cannot be read: KeyError"):
        median(votes, float)


@pytest.mark.parametrize(
    ("values", "middle"),
    [([0.3], 0.3), ([0.9, 0.1, 0.5], 0.5), ([None, 0.9, 0.1], 0.1), ([None, None, 0.9], None)],
)
def test_the_median(values: list[float | None], middle: float | None) -> None:
    def judge(asked: JudgeRequest) -> Any:
        value = values[asked.vote - 1]
        return "lost" if value is None else {"total": value}

    def read(answer: Any) -> float:
        if answer == "lost":
            raise HarnessError("lost")
        return float(answer["total"])

    pending = Panel(judge, votes=len(values)).ask(request(wants="scores", read=read))
    if middle is None:
        with pytest.raises(HarnessError, match="2 of 3 votes came to nothing"):
            median(pending.votes(), float)
    else:
        assert median(pending.votes(), float).value == middle
    assert judge_details([pending])["votes"] == {}


# -- the cache ------------------------------------------------------------------------------------


def llm_judge(server: ScriptedLLM, path: Path, **changes: Any) -> LLMJudge:
    return LLMJudge(client(server), cache=JudgeCache(path), **changes)


def test_everything_that_is_asked_is_in_the_key(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    changes: list[dict[str, Any]] = [
        {}, {"criteria": "other"}, {"rubric_id": "other"}, {"prompt": "other"}, {"trial": 2},
        {"vote": 2}, {"agent": "b"}, {"task_id": "t"}, {"benchmark": "b"}, {"screenshot": b"png"},
        {"page_source": "<p>", "page_text": "a"}, {"page_source": "<p>", "page_text": "b"},
        {"transcript": Transcript.from_answer("p", "other")},
        {"wants": "scores", "instructions": "x"}, {"wants": "scores", "instructions": "y"},
    ]  # fmt: skip
    with ScriptedLLM('{"verdict": "PASS"}') as server:
        judge = llm_judge(server, path)
        for number, change in enumerate(changes, 1):
            assert not judge(request(**change)).cached
            assert judge(request(**change)).cached
            assert len(server.requests) == number
        assert llm_judge(server, path)(request()).cached
        assert not llm_judge(server, path, seed=1)(request()).cached
        assert not llm_judge(server, path, single=False)(request()).cached
        # two pictures of one page differ by a blinking cursor
        assert judge(request(screenshot=b"another")).cached


def _put(path: Path, numbers: range) -> None:
    cache = JudgeCache(path)
    for number in numbers:
        cache.put(str(number), "m", f"answer {number}")


def test_processes_share_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    context = multiprocessing.get_context("spawn")
    parts = [range(60), range(30, 90)]
    workers = [context.Process(target=_put, args=(path, part)) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    cache = JudgeCache(path)
    assert [cache.get(str(n)) for n in range(90)] == [f"answer {n}" for n in range(90)]
    assert cache.get("90") is None
    assert cache_key({"a": 1, "b": 2}) == cache_key({"b": 2, "a": 1})


def test_a_cache_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 50)
    with pytest.raises(ConfigError, match="--bench-judge-cache: cannot use"):
        JudgeCache(tmp_path / "text")
    with pytest.raises(ConfigError, match="--bench-judge-cache: cannot use"):
        JudgeCache(tmp_path / "text" / "below")


def test_a_cache_that_breaks_later_costs_nothing_but_requests(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with ScriptedLLM('{"verdict": "PASS"}') as server:
        judge = llm_judge(server, path)
        path.write_text("broken")
        for _ in range(2):
            assert judge(request()).answer == JudgeVerdict(True)
        assert len(server.requests) == 2


# -- money ----------------------------------------------------------------------------------------


def test_prices_are_read(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('["a/b"]\ninput = 1\noutput = 2.5\ncached_input = 0.1\n')
    (tmp_path / "p.json").write_text('{"x": {"input": 1, "output": 2}}')
    assert read_prices(str(tmp_path / "p.toml")) == {"a/b": Price(1.0, 2.5, 0.1)}
    assert read_prices(str(tmp_path / "p.json")) == {"x": Price(1.0, 2.0, 1.0)}
    assert read_prices(None) == {}
    assert Price(1, 2, 0).of(Usage()) is None


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"x": 1}', '{"x": {"input": 1}}', '{"x": {"input": -1, "output": 1}}',
     '{"x": {"input": "1", "output": 1}}', '{"x": {"input": 1, "output": 1, "outptu": 2}}',
     '{"x": {"input": NaN, "output": 1}}', '{"x": {"input": true, "output": 1}}'],
)  # fmt: skip
def test_prices_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ConfigError, match="--bench-prices"):
        read_prices(str(tmp_path / "p.json"))


def _spend(path: Path, times: int) -> None:
    budget = Budget(100.0, path)
    for _ in range(times):
        budget.add(0.25)


def test_processes_share_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "below" / "spent"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_spend, args=(path, 40)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    budget = Budget(20.5, path)
    assert budget.spent == 20.0
    assert budget.reached is None
    budget.add(0.5)
    budget.add(None)
    assert budget.reached == "the budget is spent: $20.5 of $20.5 (--bench-max-cost)"
    assert Budget(None).reached is None
    assert Budget(0.0).reached is not None


# -- agreement ------------------------------------------------------------------------------------


def record(kind: str | None, passed: bool | None, task: str = "t") -> TrialRecord:
    check = Check("r", "judge", passed, None, "why")
    details: dict[str, Any] = {"judge": {"votes": {"r": {}}}}
    if kind is not None:
        details["calibration"] = kind
    return TrialRecord("genui", task, 1, "a", "pass", checks=(check,), details=details)


def test_agreement_and_kappa() -> None:
    records = [
        *[record("right", True)] * 20,
        *[record("right", False, "missed")] * 5,
        *[record("wrong", False)] * 15,
        *[record("wrong", True)] * 10,
        record("right", None),
        record(None, False),
    ]
    found = agreement(records)
    assert found is not None
    assert (found.total, found.missing, found.accuracy) == (50, 1, 0.7)
    assert found.kappa == pytest.approx(0.4)  # the textbook's example
    assert len(found.disagreements) == 15
    lines = list(agreement_lines(found, 0.69))
    assert lines[0] == "judge: agreement 0.700 (35 of 50 verdicts), Cohen's kappa 0.400"
    assert (
        lines[1] == "  20 of 25 references pass, 15 of 25 wrong answers fail, 1 without a verdict"
    )
    assert lines[-1] == "  agreement of at least 0.69: inconclusive"
    assert max(map(len, lines)) <= 80


def test_agreement_of_one_kind_has_no_kappa() -> None:
    found = agreement([record("right", True)])
    assert found is not None
    assert math.isnan(found.kappa)
    assert found.to_json()["cohens_kappa"] is None
    assert "Cohen's kappa –" in next(agreement_lines(found, None))


@pytest.mark.parametrize(
    ("passed", "least", "word"),
    [
        ([True, True], 1.0, "pass"),
        ([True, False], 0.6, "fail"),
        ([True, None], 0.6, "inconclusive"),
        ([True, True, None], 0.6, "pass"),
        ([False, False, None], 0.6, "fail"),
        ([None], 0.1, "inconclusive"),
        ([], 0.1, "inconclusive"),
    ],
)
def test_the_gate_on_agreement(passed: list[bool | None], least: float, word: str) -> None:
    assert verdict(agreement([record("right", value) for value in passed]), least) == word


def test_rubrics_that_nobody_was_asked_about_do_not_count() -> None:
    unasked = record("wrong", False).replace(details={"calibration": "wrong"})
    assert agreement([unasked]) is None


def test_trials_that_came_to_nothing_are_missing() -> None:
    error = record("right", True).replace(verdict="error", details={"calibration": "right"})
    unpaid = {"calibration": "wrong", "budget_spent": True}
    skipped = record("wrong", None).replace(verdict="skip", details=unpaid)
    absent = record("wrong", None).replace(verdict="skip", details={"calibration": "wrong"})
    found = agreement([record("right", True), error, skipped, absent])
    assert found is not None
    assert (found.total, found.missing) == (1, 2)
    assert verdict(found, 0.9) == "inconclusive"


def test_lines_without_a_verdict() -> None:
    found = agreement([record("right", None)])
    assert found is not None
    lines: Iterator[str] = agreement_lines(found, None)
    assert next(lines) == "judge: no verdict on 1 known answer"
