"""genui: the bundled suite, and the grading rules on small pages."""

from __future__ import annotations

import csv
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench import microapp
from pytest_agentbench.benchmark import Judging, Tools
from pytest_agentbench.benchmarks.genui import TOOL, GenUI, app_html
from pytest_agentbench.browser import BrowserEngine
from pytest_agentbench.datasets import Dataset, load
from pytest_agentbench.errors import RowError
from pytest_agentbench.judge import JudgeRequest, JudgeVerdict
from pytest_agentbench.model import Attempt, Grade, Task, TaskRef
from pytest_agentbench.panel import Panel
from pytest_agentbench.transcripts import (
    ToolCall,
    Transcript,
    assistant,
    text_part,
    tool_call,
    user,
)

GENUI = GenUI()
WRONG = json.loads(Path(__file__).with_name("genui_wrong.json").read_text(encoding="utf-8"))
PAGE_CHECKS = [
    "tool_trigger",
    "zero_js_errors",
    "must_contain_strings",
    "required_selectors",
    "min_interactive_elements",
    "interaction",
    "callback",
]


def parse(row: dict[str, Any]) -> Task:
    found = Dataset.build("test", [row]).rows[0]
    name = str(row.get("task_id", ""))
    return GENUI.task(TaskRef("genui", name, name, 0, found.sha256), found)


def rendered(html: str, text: str = "Here it is.") -> Transcript:
    call = tool_call(TOOL, {"html": html})
    return Transcript((user("q"), assistant(call), assistant(text_part(text))))


def nowhere() -> Path:
    raise AssertionError("genui needs no workspace")


def grade(task: Task, transcript: Transcript, engine: BrowserEngine, **changes: Any) -> Grade:
    judge = changes.pop("judge", None)
    tools = Tools(
        browser=lambda: engine,
        judge=None if judge is None else Panel(judge),
        timeout_scale=changes.pop("scale", 1.0),
        evidence=changes.pop("evidence", "none"),
    )
    found = GENUI.grade(Attempt(task, 1, transcript, nowhere), tools)
    return found.finish() if isinstance(found, Judging) else found


def failed(found: Grade) -> list[str]:
    return [check.name for check in found.checks if check.passed is False]


def message(found: Grade, name: str) -> str:
    return next(check.message for check in found.checks if check.name == name)


Judge = Callable[..., Grade]


@pytest.fixture
def graded(engine: BrowserEngine, make_row: Callable[..., dict[str, Any]]) -> Judge:
    """Grades a page against a row with one button to click and a callback, unless changed."""

    def judge(body: str, scale: float = 0.3, head: str = "", **changes: Any) -> Grade:
        assertions = changes.pop("assertions", {})
        row = make_row(
            "t",
            expected_tool_trigger=True,
            outcome_dom_assertions={"zero_js_errors": True, **assertions},
            outcome_interaction_steps=changes.pop(
                "steps", [{"action": "click", "selector": "button"}]
            ),
            expected_callback_schema=changes.pop("schema", {"type": "object", "required": ["a"]}),
        )
        html = f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>"
        return grade(parse(row), rendered(html), engine, scale=scale, **changes)

    return judge


SEND = '<button onclick="hermes.sendAction({a: 1})">Go</button>'


# -- the bundled suite ----------------------------------------------------------------------------


def test_the_bundled_suite_has_the_published_distribution() -> None:
    rows = list(GENUI.bundled())

    assert tuple(rows[0]) == GENUI.columns
    assert Counter(row["suite_type"] for row in rows) == {"capability": 10, "regression": 10}
    assert Counter(row["category"] for row in rows) == {
        "topic_study": 11,
        "human_in_the_loop": 2,
        "what_if_simulation": 1,
        "ops_monitoring": 1,
        "workflow_builder": 1,
        "negative_control": 4,
    }
    assert Counter(row["prompt_explicitness"] for row in rows) == {
        "explicit_ui": 7,
        "semi_guided": 6,
        "implicit_intent": 7,
    }
    assert len({row["task_id"] for row in rows}) == 20


def test_the_bundled_suite_is_not_the_published_one(
    shared_data: Path, bundled_rows: dict[str, dict[str, Any]]
) -> None:
    published = [
        json.loads(line) for line in (shared_data / "genui/genui.jsonl").open(encoding="utf-8")
    ]
    for column in ("task_id", "user_prompt", "reference_solution"):
        assert not {row[column] for row in published} & {
            row[column] for row in bundled_rows.values()
        }


@pytest.mark.parametrize("task_id", [row["task_id"] for row in GENUI.bundled()])
def test_every_bundled_reference_passes(
    task_id: str, bundled_rows: dict[str, dict[str, Any]], engine: BrowserEngine
) -> None:
    task = parse(bundled_rows[task_id])

    found = grade(task, GENUI.reference(task, nowhere), engine)

    assert [(c.name, c.message) for c in found.checks if c.passed is False] == []
    assert found.score == 1.0


def test_every_positive_task_has_two_wrong_answers() -> None:
    count = Counter(wrong["task_id"] for wrong in WRONG)

    for row in GENUI.bundled():
        if row["expected_tool_trigger"]:
            assert count[row["task_id"]] >= 2
    assert {name for wrong in WRONG for name in wrong["fails"]} >= {
        *PAGE_CHECKS,
        "must_contain_strings_in_text_response",
    }


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong['task_id']}-{wrong['name']}")
def test_every_wrong_answer_fails_for_its_reason(
    wrong: dict[str, Any], bundled_rows: dict[str, dict[str, Any]], engine: BrowserEngine
) -> None:
    row = bundled_rows[wrong["task_id"]]
    text = wrong.get("text") or row["reference_solution"]
    for old, new in wrong.get("edits", ()):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    transcript = (
        rendered(text, wrong.get("message", "Here it is."))
        if wrong["render"]
        else Transcript.from_answer("q", text)
    )

    found = grade(parse(row), transcript, engine)

    reasons = [
        check.name
        for check in found.checks
        if check.passed is False and not check.message.startswith("not reached")
    ]
    assert reasons == wrong["fails"], [c.message for c in found.checks if c.message]


# -- the published rows ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(shared_data: Path) -> dict[str, Task]:
    source = shared_data / "genui/train-00000-of-00001.parquet"
    return {
        row.cells["task_id"]: GENUI.task(
            TaskRef("genui", row.cells["task_id"], row.cells["task_id"], row.index, row.sha256), row
        )
        for row in load(str(source), bundled=list).rows
    }


def test_published_references_earn_what_was_measured(
    published: dict[str, Task], shared_data: Path, engine: BrowserEngine
) -> None:
    text = (shared_data / "genui/reference-verdicts.csv").read_text(encoding="utf-8")
    wanted = {
        row["task_id"]: (row["failed_checks"], row["found"])
        for row in csv.DictReader(text.splitlines())
    }

    got = {}
    for name, task in published.items():
        found = grade(task, GENUI.reference(task, nowhere), engine)
        names = ",".join(failed(found))
        got[name] = (names, str(found.details["interactive_elements"]) if names else "")

    assert got == wanted


def test_recorded_trials_agree_with_the_right_verdicts(
    published: dict[str, Task], shared_data: Path, engine: BrowserEngine
) -> None:
    wrong = []
    for line in (shared_data / "genui/expected.jsonl").open(encoding="utf-8"):
        case = json.loads(line)
        name, trial = case["task_id"], case["trial"]
        path = shared_data / f"genui/recorded/genui/{name}/{trial}/transcript.jsonl"
        transcript = Transcript.from_jsonl(path.read_text(encoding="utf-8"))

        found = grade(published[name], transcript, engine)

        verdicts = {check.name: check.passed for check in found.checks}
        for check, passed in case["checks"].items():
            if passed is not None and verdicts[check] != passed:
                wrong.append((name, trial, check, message(found, check), case["why"]))
        if case["passed"] is not None and (found.score == 1.0) != case["passed"]:
            wrong.append((name, trial, "passed", str(failed(found)), case["why"]))

    assert wrong == []


# -- which app, if any ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "html"),
    [
        ({"html": "prose <p>"}, "prose <p>"),
        ({"html": "", "content": "  <p>"}, "  <p>"),
        ({"content": "<p>", "title": "x"}, "<p>"),
        ({"content": "<p>", "other": "<b>"}, None),
        ({"content": "prose <p>"}, None),
        ({"html": 5}, None),
        ({}, None),
    ],
)
def test_which_argument_is_the_app(arguments: dict[str, Any], html: str | None) -> None:
    assert app_html(ToolCall(TOOL, arguments)) == html


def test_the_last_call_counts(
    engine: BrowserEngine, make_row: Callable[..., dict[str, Any]]
) -> None:
    task = parse(
        make_row("t", expected_tool_trigger=True, outcome_dom_assertions={"zero_js_errors": True})
    )
    bad, good = rendered("<script>broken(</script>"), rendered("<p>fine</p>")

    assert failed(grade(task, Transcript(bad.events + good.events), engine)) == []
    assert failed(grade(task, Transcript(good.events + bad.events), engine)) == ["zero_js_errors"]


def test_a_call_without_html(engine: BrowserEngine, bundled_rows: dict[str, Any]) -> None:
    call = assistant(tool_call(TOOL, {"x": 1}))

    found = grade(parse(bundled_rows["learn_reg_01"]), Transcript((call,)), engine)

    assert found.checks[0].passed is True
    assert message(found, "zero_js_errors") == "no html in the last call"
    assert message(found, "callback") == "not reached: no html in the last call"


def test_no_call_leaves_nothing_reached(
    engine: BrowserEngine, bundled_rows: dict[str, Any]
) -> None:
    found = grade(
        parse(bundled_rows["learn_reg_01"]), Transcript.from_answer("q", "<html>no call"), engine
    )

    assert failed(found) == [c.name for c in found.checks if c.tier != "judge"]
    assert "answered in text: '<html>no call'" in message(found, "tool_trigger")


# -- javascript errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "<script>missing()</script>",
        "<script>let x = ;</script>",
        "<script>window.onerror = () => true; missing()</script>",
        "<script>addEventListener('error', e => e.preventDefault()); missing()</script>",
        "<script>Promise.reject(new Error('r'))</script>",
        "<script>Promise.reject()</script>",
        "<script>console.error('x')</script>",
        "<script>console.error = () => {}; console.error('x')</script>",
        "<script>for (let i = 0; i < 1000; i++) console.log(i); console.error('x')</script>",
        "<script>setTimeout(() => { throw null })</script>",
        "<script>setTimeout(() => { throw new Error('late') }, 600)</script>",
        "<script>new Worker(URL.createObjectURL(new Blob(['boom()'])))</script>",
        "<script>new Worker(URL.createObjectURL(new Blob(['console.error(1)'])))</script>",
        "<iframe srcdoc='<script>missing()</script>'></iframe>",
        "<script>fetch('https://x.test/')</script>",
        "<script type=module>import x from 'https://cdn.test/m.js'</script>",
        "<script src='https://cdn.test/lib.js'></script><script>lib.start()</script>",
        "<script>document.open(); document.write('<p>'); document.close(); missing()</script>",
    ],
)
def test_what_is_an_error(graded: Judge, body: str) -> None:
    assert failed(graded(body, steps=[], schema=None)) == ["zero_js_errors"]


@pytest.mark.parametrize(
    "body",
    [
        "<script>console.warn(1); console.assert(false); console.trace(2)</script>",
        "<script src='https://cdn.test/lib.js'></script><img src='https://x.test/i.png'>",
        "<link rel=stylesheet href='https://cdn.test/x.css'>",
        "<script src='https://cdn.tailwindcss.com'></script><script>tailwind.config = {}</script>",
        "<script>fetch('https://x.test/').catch(() => 0)</script>",
        "<script>try { missing() } catch {}</script>",
        "<script>fetch('data:,x').then(r => r.text())</script>",
        "<script>dispatchEvent(new ErrorEvent('error', {message: 'made up'}))</script>",
        "<div id=d></div><script>new ResizeObserver(() => { d.style.width = Math.random() * 99 + "
        "'px'; d.style.height = Math.random() * 99 + 'px' }).observe(d)</script>",
    ],
)
def test_what_is_no_error(graded: Judge, body: str) -> None:
    assert failed(graded(body, steps=[], schema=None)) == []


def test_blocked_requests_are_listed(graded: Judge) -> None:
    found = graded("<img src='https://x.test/i.png'>", steps=[], schema=None)

    assert found.details["blocked_requests"] == ["image https://x.test/i.png"]


# -- text, selectors, elements --------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "<p style='display:none'>two words</p>",
        "<p>two\n   words</p>",
        "<p>two&nbsp;words</p>",
        "<p>two <b>wor</b>ds</p>",
        "<input value='two words'>",
        "<input placeholder='two words'>",
        "<img alt='two words'>",
        "<i title='two words'></i>",
        "<i aria-label='two words'></i>",
        "<script>const x = 'two words'</script>",
        "<div id=h></div><script>h.attachShadow({mode: 'open'}).innerHTML = 'two words'</script>",
        "<textarea id=t></textarea><script>t.value = 'two words'</script>",
    ],
)
def test_text_that_counts(graded: Judge, body: str) -> None:
    wanted = {"must_contain_strings": ["two words"]}

    assert failed(graded(body, steps=[], schema=None, assertions=wanted)) == []


@pytest.mark.parametrize(
    "body",
    [
        "<!-- two words -->",
        "<style>i { content: 'two words' }</style>",
        "<i data-x='two words'></i>",
        "<p>Two words</p>",
        "<template>two words</template>",
        "<iframe srcdoc='two words'></iframe>",
        "<div id=h></div><script>h.attachShadow({mode: 'closed'}).innerHTML = 'two ' + 'words'"
        "</script>",
    ],
)
def test_text_that_does_not_count(graded: Judge, body: str) -> None:
    wanted = {"must_contain_strings": ["two words"]}

    found = graded(body, steps=[], schema=None, assertions=wanted)

    assert failed(found) == ["must_contain_strings"]
    assert message(found, "must_contain_strings") == "not found: 'two words'"


def test_text_after_a_click_counts(graded: Judge) -> None:
    body = SEND + "<p id=p></p><script>onclick = () => { p.textContent = 'after' }</script>"

    assert failed(graded(body, assertions={"must_contain_strings": ["after"]})) == []


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("<button></button><input><select></select><textarea></textarea><a href=x></a>", 5),
        ("<input type=hidden><a></a><div></div><div tabindex=-1></div>", 0),
        ("<button disabled style='display:none'></button>", 1),
        ("<details><summary>x</summary></details>", 1),
        ("<div onclick='1'></div><div id=d></div><script>d.onpointerup = () => 1</script>", 2),
        ("<p id=p></p><script>p.addEventListener('keydown', () => 1)</script>", 1),
        ("<p id=p></p><script>p.addEventListener('animationend', () => 1)</script>", 0),
        ("<script>document.body.onclick = document.onclick = onclick = () => 1</script>", 0),
        ("<i role=switch></i><i role=menuitemradio></i><i role=note></i>", 2),
        ("<p contenteditable></p><p contenteditable=false></p><p draggable=true></p>", 2),
        ("<div id=h></div><script>h.attachShadow({mode:'open'}).innerHTML='<button>'</script>", 1),
        ("<iframe srcdoc='<button>'></iframe>", 0),
        ("<script>window.getEventListeners = () => ({click: [1]})</script><p></p><p></p>", 0),
    ],
)
def test_interactive_elements(graded: Judge, body: str, count: int) -> None:
    found = graded(body, steps=[], schema=None, assertions={"min_interactive_elements": 99})

    assert found.details["interactive_elements"] == count
    assert message(found, "min_interactive_elements") == f"expected at least 99, found {count}"


# -- interaction ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "<button style='display:none'>hidden first</button>" + SEND,
        "<button disabled>disabled first</button>" + SEND,
        "<div style='height: 3000px'></div>" + SEND,
        "<div id=r></div><script>setTimeout(() => { r.innerHTML = `" + SEND + "` }, 500)</script>",
        "<div id=h></div><script>h.attachShadow({mode: 'open'}).innerHTML = `"
        + SEND
        + "`</script>",
        "<button>1</button><button>2</button><button>3</button>" + SEND,
        "<button onclick='if (confirm(1)) hermes.sendAction({a: 1})'>ask</button>",
        "<button onclick='setTimeout(() => hermes.sendAction({a: 1}), 500)'>later</button>",
        "<button onclick='(async () => { await hermes.sendAction({a: 1}) })()'>await</button>",
        "<script>const {sendAction} = hermes</script><button onclick='sendAction({a: 1})'>x</button>",
        "<script>window.hermes = window.hermes || {}; hermes = 5</script>" + SEND,
        "<script>const hermes = {}</script><button onclick='window.hermes.sendAction({a: 1})'>x",
        "<script>JSON.stringify = Array.prototype.push = Object.keys = null</script>" + SEND,
        "<script>document.querySelectorAll = Element.prototype.matches = null</script>" + SEND,
        "<div id=d></div><script>let n = 0; const draw = () => { d.innerHTML = [1, 2, 3].map(i => "
        "`<button onclick='n++; draw()'>${i}</button>`).join('') + "
        "`<button onclick='hermes.sendAction({a: n})'>Send</button>` }; draw()</script>",
        "<button onclick='location.hash = 1; history.pushState(0, 0, 2); location.hash = 3; "
        "hermes.sendAction({a: 1})'>in the page</button>",
        "<button onclick='for (let i = 0; i < 5; i++) window.open(); hermes.sendAction({a: 1})'>x",
    ],
)
def test_a_person_would_get_through(graded: Judge, body: str) -> None:
    found = graded(body, scale=1.0)

    assert [c.message for c in found.checks if c.passed is False] == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<p>nothing</p>", "matches no element"),
        ("<button disabled>x</button>", "is disabled"),
        ("<fieldset disabled><button>x</button></fieldset>", "is disabled"),
        ("<button style='visibility:hidden'>x</button>", "is not visible"),
        ("<button style='opacity:0'>x</button>", "is not visible"),
        ("<button style='position:fixed;left:-999px'>x</button>", "is out of the page"),
        (SEND + "<div style='position:fixed;inset:0'></div>", "is covered by another element"),
        ("<iframe srcdoc='<button>x</button>'></iframe>", "matches no element"),
    ],
)
def test_a_person_would_not(graded: Judge, body: str, reason: str) -> None:
    found = graded(body, scale=0.1)

    assert failed(found) == ["interaction", "callback"]
    assert message(found, "interaction") == f"step 1 (click button): {reason}"


def test_a_hidden_checkbox_is_clicked_by_its_label(graded: Judge) -> None:
    body = (
        "<label><input type=checkbox style='display:none' "
        "onchange='hermes.sendAction({a: 1})'>pick me</label>"
    )

    found = graded(body, steps=[{"action": "click", "selector": "input"}])

    assert failed(found) == []


def test_later_steps_run_after_a_failed_one(graded: Judge) -> None:
    steps = [
        {"action": "set_range", "selector": "input", "value": "5"},
        {"action": "click", "selector": "button"},
    ]

    assert failed(graded(SEND, scale=0.1, steps=steps)) == ["interaction"]


@pytest.mark.parametrize(
    ("asked", "reached"),
    [("5", "1"), ("0.33", "0.35"), (0.2, "0.2"), ("-3", "0")],
)
def test_set_range_as_a_person_could(graded: Judge, asked: Any, reached: str) -> None:
    body = (
        "<input type=range min=0 max=1 step=0.05 oninput='o.value = value' onchange='c = value'>"
        "<output id=o></output><script>let c</script>"
        "<button onclick='hermes.sendAction({a: o.value + c})'>x</button>"
    )
    steps = [
        {"action": "set_range", "selector": "input", "value": asked},
        {"action": "click", "selector": "button"},
    ]
    schema = {"properties": {"a": {"const": reached + reached}}, "required": ["a"]}

    found = graded(body, steps=steps, schema=schema)

    assert failed(found) == []
    assert found.details["steps"][0]["reached"] == reached


def test_set_range_works_under_a_framework_that_watches_value(graded: Judge) -> None:
    body = """<input type=range min=0 max=10 value=3><script>
    const e = document.querySelector('input');
    const native = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value');
    let last = e.value, seen = 0;
    Object.defineProperty(e, 'value', {configurable: true, get() { return native.get.call(this) },
      set(x) { last = x; native.set.call(this, x) }});
    e.addEventListener('input', () => { if (e.value !== last) { last = e.value; seen++ } })
    </script><button onclick='hermes.sendAction({a: seen})'>x</button>"""
    steps = [
        {"action": "set_range", "selector": "input", "value": "7"},
        {"action": "click", "selector": "button"},
    ]

    found = graded(body, steps=steps, schema={"properties": {"a": {"const": 1}}, "required": ["a"]})

    assert failed(found) == []


@pytest.mark.parametrize(
    ("body", "step"),
    [
        ("<input onchange='s(value)'>", {"action": "fill", "value": "x"}),
        ("<textarea onchange='s(value)'>old</textarea>", {"action": "fill", "value": "x"}),
        ("<input value=old onchange='s(value + 1)'>", {"action": "fill", "value": ""}),
        ("<p contenteditable oninput='s(textContent)'>old</p>", {"action": "fill", "value": "x"}),
        ("<input type=date onchange='s(value)'>", {"action": "fill", "value": "2024-05-06"}),
        (
            "<select onchange='s(value)'><option>a<option value=v>Label</select>",
            {"action": "select_option", "value": "Label"},
        ),
        ("<input type=checkbox onchange='s(checked)'>", {"action": "check"}),
        ("<input type=checkbox checked onchange='s(!checked)'>", {"action": "uncheck"}),
        ("<input onkeydown='s(key.key)'>", {"action": "press", "value": "Enter"}),
        ("<p onmouseover='s(1)'>x</p>", {"action": "hover"}),
    ],
)
def test_other_actions(graded: Judge, body: str, step: dict[str, str]) -> None:
    script = "<script>const s = (v) => hermes.sendAction({a: v}); </script>"
    body = body.replace("s(key.key)", "s(event.key)").replace("<", "<", 1)
    element = body[1:].partition(" ")[0]

    found = graded(script + body, steps=[{**step, "selector": element}])

    assert [c.message for c in found.checks if c.passed is False] == []


def test_wait_for_is_no_interaction(graded: Judge) -> None:
    body = (
        "<div id=d></div><script>setTimeout(() => { hermes.sendAction({a: 1}); "
        "d.innerHTML = '<b>x</b>' }, 200)</script>"
    )

    found = graded(body, steps=[{"action": "wait_for", "selector": "b"}])

    assert failed(found) == ["callback"]


# -- payloads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("JSON.stringify({a: 1})", "is a JSON string"),
        ("'save', {a: 1}", "only the first of 2 arguments"),
        ("{b: 1}", "'a' is missing"),
        ("", "without a payload"),
        ("undefined", "it is undefined"),
        ("() => 1", "it is a function"),
        ("{a: 10n}", "BigInt"),
        ("(() => { const o = {a: 1}; o.o = o; return o })()", "circular"),
        ("{get a() { throw new Error('getter') }}", "getter"),
    ],
)
def test_payloads_that_do_not_count(graded: Judge, payload: str, reason: str) -> None:
    found = graded(f'<button onclick="hermes.sendAction({payload})">x</button>')

    assert failed(found) == ["callback"]
    assert reason in message(found, "callback")


@pytest.mark.parametrize(
    ("payload", "schema"),
    [
        ("{a: NaN}", {"properties": {"a": {"type": "null"}}}),
        ("{a: new Date(0)}", {"properties": {"a": {"type": "string"}}}),
        ("{a: 'x'.repeat(2e6)}", {"properties": {"a": {"minLength": 2_000_000}}}),
        ("{a: 1, b: 'x'.repeat(3e7)}", {"required": ["a", "b"]}),
        ("{a: '\\ud800', b: 'a\\u0000b'}", {"required": ["a", "b"]}),
    ],
)
def test_payloads_that_do(graded: Judge, payload: str, schema: dict[str, Any]) -> None:
    found = graded(f'<button onclick="hermes.sendAction({payload})">x</button>', schema=schema)

    assert failed(found) == []


def test_payloads_of_the_load_phase_do_not_count(graded: Judge) -> None:
    found = graded("<script>hermes.sendAction({a: 1})</script><button>x</button>")

    assert failed(found) == ["callback"]
    assert "1 came while loading" in message(found, "callback")


def test_a_flood_while_loading_does_not_drown_the_answer(graded: Judge) -> None:
    flood = "<script>for (let i = 0; i < 20000; i++) hermes.sendAction({b: i})</script>"

    assert failed(graded(flood + SEND)) == []


def test_only_the_top_frame_has_hermes(graded: Judge) -> None:
    body = (
        "<iframe srcdoc='<script>window.hermes && hermes.sendAction({a: 1})</script>'></iframe>"
        "<button>x</button>"
    )

    assert failed(graded(body)) == ["callback"]


# -- the life of a page ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "where", "reason"),
    [
        ("<script>while (true);</script>", "zero_js_errors", "never finished loading"),
        ("<script>location.reload()</script>", "zero_js_errors", "reloads itself"),
        ("<button onclick='while (true);'>x</button>", "interaction", "hangs"),
        ("<button onclick='while (true) alert(1)'>x</button>", "interaction", "50 dialogs"),
        (
            "<button onclick='for (let i = 0; i < 99; i++) window.open()'>x</button>",
            "interaction",
            "popups",
        ),
        ("<button onclick='location = \"https://x.test/\"'>x", "interaction", "https://x.test/"),
        ("<button onclick='location = \"about:blank\"'>x", "interaction", "about:blank"),
        ("<button onclick='location = \"file:///etc/passwd\"'>x", "interaction", "file:///etc"),
        ("<form><button>submits</button></form>", "interaction", "navigated away"),
    ],
)
def test_a_page_that_cannot_be_used_fails_with_the_reason(
    graded: Judge, body: str, where: str, reason: str
) -> None:
    found = graded(body)

    assert reason in message(found, where)
    assert failed(found)[0] == where
    assert failed(graded(SEND)) == []


def test_leaving_after_a_valid_payload_is_only_recorded(graded: Judge) -> None:
    found = graded(
        "<button onclick='hermes.sendAction({a: 1}); location = \"about:blank\"'>x</button>"
    )

    assert failed(found) == []
    assert found.details["navigated_to"] == ["about:blank"]


def test_six_popups_fail_the_interaction(graded: Judge) -> None:
    body = (
        "<button onclick='for (let i = 0; i < 6; i++) window.open(); hermes.sendAction({a: 1})'>x"
    )

    found = graded(body)

    assert message(found, "interaction") == "expected at most 5 popups, found 6"


def test_a_renderer_that_dies_costs_its_trial_only(engine: BrowserEngine, graded: Judge) -> None:
    body = "<script>setTimeout(() => { const a = []; while (true) a.push(new Array(1e6).fill(1)) }, 50)"

    # with all of its time: until the memory is full, the page only hangs
    found = graded(body + "</script>", scale=1.0, steps=[{"action": "click", "selector": "button"}])

    assert "crashed" in " ".join(c.message for c in found.checks)
    assert failed(graded(SEND)) == []


def test_memory_outside_the_heap_is_limited_too(graded: Judge) -> None:
    body = """<script>
    const kept = [];
    setInterval(() => kept.push(new Uint8Array(256 * 1024 * 1024).fill(1)), 50);
    </script>"""

    found = graded(body, scale=1.0, steps=[{"action": "wait_for", "selector": ".never"}] * 3)

    assert "the page took more than 1.5 GB of memory" in " ".join(c.message for c in found.checks)
    assert failed(graded(SEND)) == []


def test_a_crash_that_does_not_come_again_is_the_browsers(
    graded: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = microapp._Run.play
    crashes = iter((True, False, True, True))

    async def unlucky(self: microapp._Run) -> None:
        if next(crashes):
            self.report.fault = microapp.CRASHED
        else:
            await play(self)

    monkeypatch.setattr(microapp._Run, "play", unlucky)

    once, twice = graded(SEND), graded(SEND)

    assert failed(once) == []
    assert once.details["crashes"] == 1
    assert failed(twice) != []
    assert twice.details["crashes"] == 2


def test_a_browser_that_dies_is_started_again(engine: BrowserEngine, graded: Judge) -> None:
    assert failed(graded(SEND)) == []

    engine.kill()

    assert failed(graded(SEND)) == []


LEAVE = """<script>
localStorage.x = sessionStorage.x = 1; document.cookie = 'x=1; max-age=9999'; window.name = 'x';
indexedDB.open('x'); caches.open('x'); history.pushState(0, 0, '/x');
new SharedWorker(URL.createObjectURL(new Blob(['1'])), 'x');
new BroadcastChannel('x').onmessage = (e) => e.target.postMessage('here');
setInterval(() => new BroadcastChannel('x').postMessage('still here'), 10);
</script>"""
FIND = """<script>
const seen = [];
new BroadcastChannel('x').onmessage = (e) => seen.push(e.data);
const look = async () => {
  if (localStorage.length || sessionStorage.length || document.cookie) seen.push('storage');
  if (window.name || history.length > 2 || window.opener) seen.push('window');
  if ((await indexedDB.databases()).length || (await caches.keys()).length) seen.push('database');
  const workers = navigator.serviceWorker ? await navigator.serviceWorker.getRegistrations() : [];
  if (workers.length) seen.push('service worker');
  hermes.sendAction({a: seen});
};
</script><button onclick="setTimeout(look, 200)">look</button>"""


def test_nothing_of_a_page_reaches_the_next_one(graded: Judge) -> None:
    graded(LEAVE + SEND, scale=1.0)

    schema = {"required": ["a"], "properties": {"a": {"maxItems": 0}}}

    assert failed(graded(FIND, schema=schema, scale=1.0)) == []


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A loopback port, TCP and UDP, and what arrived there."""
    seen: list[bytes] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        port = server.getsockname()[1]
        udp.bind(("127.0.0.1", port))

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.settimeout(1)
                try:
                    seen.append(connection.recv(100))
                except OSError:
                    seen.append(b"connected")
                connection.close()

        def receive() -> None:
            while True:
                try:
                    data = udp.recv(100)
                except OSError:
                    return
                if data == b"stop":
                    return
                seen.append(data)

        threads = [threading.Thread(target=target, daemon=True) for target in (accept, receive)]
        for thread in threads:
            thread.start()
        yield port, seen
        server.shutdown(socket.SHUT_RDWR)
        udp.sendto(b"stop", ("127.0.0.1", port))
        for thread in threads:
            thread.join(5)


def test_a_page_reaches_no_network(graded: Judge, listener: tuple[int, list[bytes]]) -> None:
    port, seen = listener
    body = f"""<img src="http://127.0.0.1:{port}/img"><iframe src="http://127.0.0.1:{port}/f"></iframe>
    <link rel=preconnect href="http://127.0.0.1:{port}"><a id=p href="#" ping="http://127.0.0.1:{port}/p">p</a>
    <script>
    const base = "127.0.0.1:{port}";
    const quiet = (f) => {{ try {{ const p = f(); if (p && p.catch) p.catch(() => 0) }} catch {{}} }};
    quiet(() => fetch("http://" + base + "/fetch", {{mode: "no-cors"}}));
    quiet(() => navigator.sendBeacon("http://" + base + "/beacon", "x"));
    quiet(() => {{ new WebSocket("ws://" + base + "/ws").onerror = () => 0 }});
    quiet(() => {{ new EventSource("http://" + base + "/es").onerror = () => 0 }});
    quiet(() => {{ new Worker(URL.createObjectURL(new Blob([
      `fetch("http://${{base}}/wf").catch(() => 0); new WebSocket("ws://${{base}}/ww")`]))) }});
    quiet(() => {{ new SharedWorker(URL.createObjectURL(new Blob([
      `fetch("http://${{base}}/sw").catch(() => 0); new WebSocket("ws://${{base}}/sww")`]))) }});
    quiet(() => window.open("http://" + base + "/popup"));
    quiet(async () => {{
      const c = new RTCPeerConnection({{iceServers: [{{urls: "stun:" + base}}]}});
      c.createDataChannel("x"); await c.setLocalDescription(await c.createOffer());
    }});
    document.getElementById("p").click();
    </script>"""

    found = graded(body + SEND, scale=1.0)

    assert seen == []
    assert found.details["blocked_requests"]


def test_the_handed_hostile_pages(graded: Judge, shared_data: Path, engine: BrowserEngine) -> None:
    """Each ends within its limit, as a fail or a pass and never an error; the next one is right."""
    wanted_to_fail = {
        "btn_disabled", "btn_in_iframe", "btn_offscreen", "btn_overlapped", "btn_shadow_closed",
        "btn_zero", "dialog_loop", "hang_click", "hang_load", "hang_microtask", "hang_never_loads",
        "meta_refresh", "popup_loop", "reload_loop", "send_bigint", "send_circular", "send_none",
        "send_string", "send_two", "send_tojson", "hermes_delete", "err_syntax", "err_timeout",
        "huge_dom", "send_getter", "console_flood",
    }  # fmt: skip
    wanted_to_pass = {
        "ok", "async_500", "beforeunload", "btn_enabled_later", "btn_far", "btn_hidden_first",
        "btn_moving", "cdn_css", "cdn_script", "doc_write_late", "download", "filechooser",
        "hang_raf", "hermes_assign", "hermes_const", "hermes_var", "module", "nav_blank",
        "nav_chrome", "nav_data", "nav_external", "nav_file", "nav_js", "send_50mb", "send_await",
        "send_load", "send_lone_surrogate", "send_many", "send_odd", "storage", "range_two",
    }  # fmt: skip
    wrong = []
    for path in sorted((shared_data / "hostile/html").glob("*.html")):
        schema = {"type": "object", "minProperties": 1}
        task = parse(
            {
                **next(iter(GENUI.bundled())),
                "outcome_dom_assertions": {"zero_js_errors": True},
                "outcome_interaction_steps": [{"action": "click", "selector": "button"}],
                "expected_callback_schema": schema,
            }
        )
        html = path.read_text(encoding="utf-8").replace("__H__", "127.0.0.1:9")
        found = grade(task, rendered(html), engine, scale=0.15)
        passed = found.score == 1.0
        if (path.stem in wanted_to_fail and passed) or (path.stem in wanted_to_pass and not passed):
            wrong.append((path.stem, [c.message for c in found.checks if c.passed is False]))

    assert wrong == []
    assert failed(graded(SEND)) == []


# -- what a person in front of it would call right -----------------------------------------------

SENDS = "hermes.sendAction({a: 1})"
LATE = {
    "abort-signal": "AbortSignal.timeout(500).onabort = send",
    "crypto": "crypto.subtle.generateKey({name: 'RSA-OAEP', modulusLength: 2048, hash: 'SHA-256',"
    " publicExponent: new Uint8Array([1, 0, 1])}, true, ['encrypt', 'decrypt']).then(send)",
    "file-reader": "const r = new FileReader(); r.onload = send; r.readAsArrayBuffer(new Blob(['x']))",
    "canvas-blob": "document.createElement('canvas').toBlob(send)",
    "observer": "new IntersectionObserver(send).observe(document.body)",
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE.keys())
def test_a_payload_that_takes_its_time(graded: Judge, late: str) -> None:
    body = f'<script>const send = () => {SENDS}</script><button onclick="{late}">x</button>'

    assert failed(graded(body, scale=1.0)) == []


PACED = {
    "debounced-text": (
        "<input id=i><button id=b>x</button><script>let t, v; i.oninput = () => { clearTimeout(t);"
        f"t = setTimeout(() => v = i.value, 150) }}; b.onclick = () => {{ if (v) {SENDS} }}</script>",
        [{"action": "fill", "selector": "#i", "value": "hello"}],
    ),
    "debounced-range": (
        "<input id=i type=range><button id=b>x</button><script>let t, v; i.oninput = () => {"
        "clearTimeout(t); t = setTimeout(() => v = i.value, 100) };"
        f"b.onclick = () => {{ if (v === '80') {SENDS} }}</script>",
        [{"action": "set_range", "selector": "#i", "value": "80"}],
    ),
    "locked-while-turning": (
        "<button id=i>turn</button><button id=b>x</button><script>let locked = false;"
        "i.onclick = () => { locked = true; setTimeout(() => locked = false, 400) };"
        f"b.onclick = () => {{ if (!locked) {SENDS} }}</script>",
        [{"action": "click", "selector": "#i"}],
    ),
}


@pytest.mark.parametrize("paced", PACED.values(), ids=PACED.keys())
def test_steps_follow_each_other_at_a_persons_pace(graded: Judge, paced: tuple[str, Any]) -> None:
    body, steps = paced

    assert failed(graded(body, steps=[*steps, {"action": "click", "selector": "#b"}])) == []


FLIP = """<style>.c{width:200px;height:100px;position:relative;transform-style:preserve-3d;
transition:transform .6s}.c.f{transform:rotateY(180deg)}.c>*{position:absolute;inset:0;
backface-visibility:hidden}.k{transform:rotateY(180deg)}</style><div style='perspective:600px'>
<div class=c id=c><div id=a onclick="c.classList.add('f')">front</div><div class=k>
<button id=b onclick="hermes.sendAction({a: 1})">ok</button></div></div></div>"""


def test_a_card_that_flips(graded: Judge) -> None:
    steps = [{"action": "click", "selector": name} for name in ("#a", "#b")]

    for _ in range(6):
        assert failed(graded(FLIP, scale=1.0, steps=steps)) == []


@pytest.mark.parametrize(
    "name",
    ["matches", "getAttribute", "childNodes", "parentNode", "hasAttribute", "shadowRoot", "value",
     "labels", "host", "innerText", "getBoundingClientRect", "tabIndex"],
)  # fmt: skip
def test_the_names_of_form_fields_do_not_matter(graded: Judge, name: str) -> None:
    body = f"<form><input name={name}><button type=button onclick='{SENDS}'>x</button></form>"

    assert failed(graded(body, assertions={"min_interactive_elements": 2})) == []


@pytest.mark.parametrize(
    "name", ["body", "querySelectorAll", "elementFromPoint", "createTreeWalker"]
)
def test_the_names_of_images_do_not_matter(graded: Judge, name: str) -> None:
    body = f"<img name={name}><button onclick='{SENDS}'>x</button>"

    assert failed(graded(body, assertions={"must_contain_strings": ["x"]})) == []


def test_a_lone_surrogate_in_the_html(graded: Judge) -> None:
    assert failed(graded(SEND + "<p>\ud83d</p>")) == []


def test_a_bar_at_the_bottom_covers_one_place_only(graded: Judge) -> None:
    bar = "<footer style='position: fixed; bottom: 0; left: 0; right: 0; height: 400px'></footer>"
    space = "<div style='height: 1500px'></div>"

    assert failed(graded(space + SEND + space + bar)) == []


def test_many_payloads_before_the_valid_one(graded: Judge) -> None:
    body = "for (let i = 0; i < 600; i++) hermes.sendAction({b: 1}); hermes.sendAction({a: 1})"

    assert failed(graded(f"<button onclick='{body}'>x</button>")) == []


@pytest.mark.parametrize("depth", [100, 2_000, 20_000])
def test_a_deep_payload_is_cut_and_not_lost(graded: Judge, depth: int) -> None:
    body = (
        f"<script>const o = {{}}; let p = o; for (let i = 0; i < {depth}; i++) p = p.c = {{}};</script>"
        "<button onclick='hermes.sendAction({a: 1, o})'>x</button>"
    )
    nested = {"$ref": "#/$defs/n", "$defs": {"n": {"additionalProperties": {"$ref": "#/$defs/n"}}}}

    assert failed(graded(body)) == []
    assert failed(graded(body, schema={**nested, "required": ["a"]})) == []


@pytest.mark.parametrize(
    ("sent", "schema"),
    [
        ("for (let i = 0; i < 500; i++) hermes.sendAction({a: 'no' + i})",
         {"properties": {"a": {"pattern": "^done$", "type": "string"}}}),
        ("for (let i = 0; i < 3; i++) hermes.sendAction({i, x: Array(2e6).fill(0)})",
         {"properties": {"x": {"items": {"type": "integer", "minimum": 0}}}, "required": ["a"]}),
        ("hermes.sendAction({x: Array.from({length: 9000}, (_, i) => ({i}))})",
         {"properties": {"x": {"uniqueItems": True}}, "required": ["a"]}),
        ("hermes.sendAction({a: JSON.rawJSON('1e999')})", {"properties": {"a": {"multipleOf": 0.05}}}),
    ],
    ids=["many", "large", "unique", "infinite"],
)  # fmt: skip
def test_payloads_cannot_turn_a_fail_into_an_error(
    graded: Judge, sent: str, schema: dict[str, Any]
) -> None:
    found = graded(f'<button onclick="{sent}">x</button>', schema={"type": "object", **schema})

    assert failed(found) == ["callback"]


HIDDEN = {
    "instanceof": "Object.defineProperty(ErrorEvent, Symbol.hasInstance, {value: () => false});"
    "onerror = () => true; setTimeout(() => { throw new Error('boom') }, 10)",
    "document-open": "addEventListener('load', () => setTimeout(() => { document.open();"
    f"document.write('<button onclick=\"{SENDS}\">x</button>'); document.close();"
    "window.onerror = () => true; setTimeout(() => { throw new Error('boom') }, 10) }, 10))",
    "resize": "throw new Error('ResizeObserver loop is mine')",
}


@pytest.mark.parametrize("script", HIDDEN.values(), ids=HIDDEN.keys())
def test_errors_that_hide_are_found(graded: Judge, script: str) -> None:
    assert "zero_js_errors" in failed(graded(f"{SEND}<script>{script}</script>"))


def test_the_end_of_the_browser_is_not_the_pages_fault(
    engine: BrowserEngine, graded: Judge
) -> None:
    body = f"<button onclick='setTimeout(() => {SENDS}, 1500)'>x</button>"
    assert failed(graded(SEND)) == []

    for delay in (0.3, 1.0):
        threading.Timer(delay, engine.kill).start()
        assert failed(graded(body, scale=1.0)) == []


def test_a_flood_of_messages_is_stopped(graded: Judge) -> None:
    flood = "<script>setInterval(() => { for (let i = 0; i < 2000; i++) console.group('y') }, 0)</script>"

    graded(SEND + flood)

    assert failed(graded(SEND)) == []


# -- broken rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("user_prompt", None, "expected text, found null"),
        ("user_prompt", " ", "expected text, found nothing"),
        ("suite_type", 5, "expected text, found 5"),
        ("expected_tool_trigger", "maybe", "expected true or false, found the text 'maybe'"),
        ("outcome_dom_assertions", "{broken", "is not JSON"),
        ("outcome_dom_assertions", "[]", "expected a JSON object, found an array"),
        ("outcome_dom_assertions", '{"zero_js_error": true}', "Did you mean 'zero_js_errors'"),
        ("outcome_dom_assertions", '{"zero_js_errors": 1}', "not true or false"),
        ("outcome_dom_assertions", '{"must_contain_strings": "x"}', "not a list of texts"),
        ("outcome_dom_assertions", '{"min_interactive_elements": true}', "not a whole number"),
        ("outcome_dom_assertions", '{"required_selectors": ["text=Go"]}', "not a CSS selector"),
        ("outcome_dom_assertions", '{"a": NaN}', "NaN is not a JSON value"),
        ("outcome_dom_assertions", '{"a": 1, "a": 2}', "stands twice"),
        ("outcome_interaction_steps", "{}", "expected a JSON array"),
        ("outcome_interaction_steps", "[1]", "step 1 is not an object"),
        ("outcome_interaction_steps", '[{"action": "clik"}]', "Did you mean 'click'"),
        ("outcome_interaction_steps", '[{"action": "click"}]', "has no selector"),
        ("outcome_interaction_steps", '[{"action": "fill", "selector": "a"}]', "has no value"),
        (
            "outcome_interaction_steps",
            '[{"action": "set_range", "selector": "a", "value": "abc"}]',
            "is not a number",
        ),
        ("outcome_interaction_steps", '[{"action": "click", "selector": "//a"}]', "not a CSS"),
        ("expected_callback_schema", '{"type": "objekt"}', "not a usable JSON Schema"),
        ("expected_callback_schema", '"x"', "expected a JSON object or true or false"),
        ("model_grader_rubrics", '[{"id": "x"}]', "has no criteria"),
        ("model_grader_rubrics", "[" * 100_000, "nested too deeply"),
        ("mock_tool_context", '[{"args": {}}]', "names no tool"),
    ],
)
def test_a_broken_cell_is_named(
    make_row: Callable[..., dict[str, Any]], column: str, value: Any, reason: str
) -> None:
    with pytest.raises(RowError) as caught:
        parse(make_row("some_task", **{column: value}))

    text = str(caught.value)
    assert text.startswith(f"genui: row 1 (some_task), column '{column}': ")
    assert reason in text


@pytest.mark.parametrize("selector", ["button:fancy(", "::", "a >", "div:has-text(x)"])
def test_a_selector_that_only_the_browser_can_refuse(
    make_row: Callable[..., dict[str, Any]], engine: BrowserEngine, selector: str
) -> None:
    changes = {
        "expected_tool_trigger": True,
        "outcome_dom_assertions": {"required_selectors": [selector]},
    }

    with pytest.raises(RowError, match="selector"):
        grade(parse(make_row("t", **changes)), rendered("<p>"), engine)


@pytest.mark.parametrize(
    "selector",
    [
        "button",
        "input[type='range']",
        "#a .b > c ~ d + e, f:not(.g)",
        "svg, canvas",
        "li:nth-child(2)",
        'a[href^="x"]:hover',
        "tr:has(> td)",
        '[data-x="{}"]',
    ],
)
def test_selectors_that_are_fine(make_row: Callable[..., dict[str, Any]], selector: str) -> None:
    parse(make_row("t", outcome_dom_assertions={"required_selectors": [selector]}))


def test_flags_may_be_text(make_row: Callable[..., dict[str, Any]]) -> None:
    assert parse(make_row("t", expected_tool_trigger="True")).spec.expected_trigger is True


def test_no_schema_is_no_check(make_row: Callable[..., dict[str, Any]]) -> None:
    for value in (None, "", "null"):
        assert parse(make_row("t", expected_callback_schema=value)).spec.schema is None


# -- what an agent may see ------------------------------------------------------------------------


def test_the_agents_task_holds_no_secret_of_the_grader() -> None:
    for row in GENUI.bundled():
        task = parse(dict(row))
        seen = json.dumps(GENUI.agent_task(task, 1, 0).to_json())
        secrets = [row["reference_solution"][:60]]
        secrets += [criteria for _, criteria in task.spec.rubrics]
        secrets += [step.selector for step in task.spec.steps if len(step.selector) > 8]
        secrets += ["must_contain", "required_selectors", "expected_", "rubric", "criteria"]

        assert [secret for secret in secrets if json.dumps(secret)[1:-1] in seen] == []


# -- the judge ------------------------------------------------------------------------------------


def test_rubrics_without_a_judge_are_unscored(
    engine: BrowserEngine, bundled_rows: dict[str, Any]
) -> None:
    task = parse(bundled_rows["plain_reg_01"])

    found = grade(task, GENUI.reference(task, nowhere), engine)

    assert [c.passed for c in found.checks if c.tier == "judge"] == [None]
    assert found.score == 1.0


def test_a_judge_decides_rubrics_and_sees_the_page(
    engine: BrowserEngine, bundled_rows: dict[str, Any]
) -> None:
    asked: list[JudgeRequest] = []

    def judge(request: JudgeRequest) -> JudgeVerdict:
        asked.append(request)
        return JudgeVerdict(False, "not convinced")

    task = parse(bundled_rows["learn_reg_01"])
    found = grade(task, GENUI.reference(task, nowhere), engine, judge=judge)

    rubric = task.spec.rubrics[0][0]
    assert failed(found) == [rubric]
    assert message(found, rubric) == "not convinced"
    assert asked[0].screenshot is not None
    assert asked[0].screenshot.startswith(b"\x89PNG")
    assert asked[0].page_text
    assert asked[0].page_source == bundled_rows["learn_reg_01"]["reference_solution"]


@pytest.mark.parametrize("answer", ["PASS", None, True, JudgeVerdict("yes")])  # type: ignore[arg-type]
def test_an_unclear_judge_is_the_harness_trouble(
    engine: BrowserEngine, bundled_rows: dict[str, Any], answer: Any
) -> None:
    task = parse(bundled_rows["plain_reg_01"])

    found = grade(task, GENUI.reference(task, nowhere), engine, judge=lambda request: answer)

    assert found.score is None
    assert "no JudgeVerdict" in (found.error or "")
    assert [c.passed for c in found.checks if c.tier == "judge"] == [None]


# -- evidence -------------------------------------------------------------------------------------


def test_evidence_of_a_failed_trial(graded: Judge) -> None:
    found = graded("<p>late</p><script>console.log('seen')</script>", scale=0.1, evidence="failed")

    assert found.files["screenshot.png"].startswith(b"\x89PNG")
    assert b"<p>late</p>" in found.files["page.html"]
    story = json.loads(found.files["page.json"])
    assert story["console"] == ["log: seen"]
    assert story["steps"][0]["reason"] == "matches no element"


def test_no_screenshot_of_a_passed_trial(graded: Judge) -> None:
    assert "screenshot.png" not in graded(SEND, evidence="failed").files
