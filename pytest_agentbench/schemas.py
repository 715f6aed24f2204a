"""JSON Schema, for schemas and payloads that nobody vouches for.

Draft 2020-12 unless ``$schema`` says otherwise.  Nothing is ever fetched.  Patterns mean what
ECMA 262 says (``$`` is the end, ``\\d`` is 0 to 9), ``multipleOf`` is decided in decimal,
``format`` is an annotation and not checked.  Schemas that can take exponential time run in a child
process with a time limit.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from pytest_agentbench.text import one_line

__all__ = ["SchemaError", "check_schema", "problems", "problems_of"]

#: Seconds that a validation in a child process may take.
LIMIT_S = 5.0
#: More text than this is not validated in this process.
MAX_IN_PROCESS = 256 * 1024
#: Payloads up to this size are not to blame for a validation without end.
SMALL = 64 * 1024
_MAX_PROBLEMS = 5
#: Keywords whose cost is linear in schema and payload; with only these, no child is needed.
_CHEAP = frozenset(
    "$schema $id $comment title description default examples deprecated readOnly writeOnly type "
    "enum const required properties additionalProperties items minItems maxItems minProperties "
    "maxProperties minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum "
    "multipleOf format".split()
)
#: Keywords that apply one schema, or each of a list: linear as long as nothing is referred to.
_APPLICATORS = frozenset(
    "items additionalProperties contains not if then else allOf anyOf oneOf prefixItems".split()
)


class SchemaError(Exception):
    """The schema itself cannot be used; the message says where and why."""


def check_schema(schema: Any) -> None:
    """Raise :class:`SchemaError` unless *schema* is a usable JSON Schema."""
    _validator(json.dumps(schema, sort_keys=True))


def problems(schema: Any, payload: Any) -> list[str]:
    """Why *payload* is not valid under *schema*: at most five short lines, empty when it is.

    Raises
    ------
    SchemaError
        The schema is not one, refers to something that is not in it, or one of its patterns takes
        longer than five seconds.
    """
    return problems_of(schema, [json.dumps(payload)])[0]


def problems_of(schema: Any, payloads: Sequence[str], limit: float = LIMIT_S) -> list[list[str]]:
    """:func:`problems` for each of several payloads, given as JSON texts, in *limit* seconds.

    A payload that takes all the time is invalid for that reason, unless a pattern may be to blame;
    those that could not be looked at any more are so too.
    """
    text = json.dumps(schema, sort_keys=True)
    if _cheap(schema) and sum(map(len, payloads)) <= MAX_IN_PROCESS:
        return [_problems(text, json.loads(payload)) for payload in payloads]
    _validator(text)  # a broken schema is told before a process is started
    answers = _in_child(text, payloads, limit)
    if len(answers) < len(payloads):
        # in its full time, a small payload is kept waiting by a pattern only
        small = len(payloads[len(answers)]) <= SMALL
        if '"pattern' in text and small and limit >= LIMIT_S:
            raise SchemaError(f"validation took longer than {limit:g} s (a pattern that explodes)")
        answers.append([f"it is too large: checking it took longer than {limit:g} s"])
    answers += [["it was not checked: an earlier one took too long"]] * (
        len(payloads) - len(answers)
    )
    return answers


def _in_child(text: str, payloads: Sequence[str], limit: float) -> list[list[str]]:
    """Answers of a child process, as many as it gave in time."""
    command = [sys.executable, "-I", "-c", _CHILD, json.dumps(sys.path)]
    given = json.dumps([text, *payloads]).encode()
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=limit, check=False)
        out, said = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        out, said = late.stdout or b"", b""
        if not out.endswith(b"\n"):
            out = out[: out.rfind(b"\n") + 1]
        return [answer for kind, answer in map(json.loads, out.splitlines()) if kind == "problems"]
    answers = []
    try:
        for kind, answer in map(json.loads, out.splitlines()):
            if kind == "schema":
                raise SchemaError(answer)
            answers.append(answer)
    except ValueError:
        answers = []
    if len(answers) != len(payloads):
        why = one_line(said.decode("utf-8", "replace")[-300:])
        raise SchemaError(f"validation ended without an answer: {why}")
    return answers


_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from pytest_agentbench.schemas import _child
_child()
"""


def _child() -> None:
    text, *payloads = json.load(sys.stdin)
    for payload in payloads:
        try:
            answer: list[Any] = ["problems", _problems(text, json.loads(payload))]
        except SchemaError as error:
            answer = ["schema", str(error)]
        print(json.dumps(answer), flush=True)


def _cheap(schema: Any) -> bool:
    """Whether *schema* uses linear keywords only."""
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, Mapping) or not schema.keys() <= _CHEAP | _APPLICATORS:
        return False
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        return False
    inner: list[Any] = list(properties.values())
    for key in _APPLICATORS & schema.keys():
        value = schema[key]
        inner += value if isinstance(value, list) else [value]
    return all(map(_cheap, inner))


def _problems(text: str, payload: Any) -> list[str]:
    try:
        found = list(_first(_validator(text).iter_errors(payload)))
    except SchemaError:
        raise
    except RecursionError:
        raise SchemaError("the schema refers to itself without end") from None
    except Exception as error:  # unresolvable references come as several private types
        raise SchemaError(one_line(f"{type(error).__name__}: {error}")) from error
    lines = []
    for problem in found:
        where = problem.json_path if problem.json_path != "$" else "the payload"
        lines.append(f"{one_line(where, 80)}: {_say(problem)}")
    return lines


def _first(errors: Iterator[Any]) -> Iterator[Any]:
    for _, error in zip(range(_MAX_PROBLEMS), errors, strict=False):
        yield error


def _say(error: Any) -> str:
    """A short message: never the instance itself, which may be megabytes."""
    found = _kind(error.instance)
    value = error.validator_value
    match error.validator:
        case "type":
            return (
                f"expected {value if isinstance(value, str) else ' or '.join(value)}, found {found}"
            )
        case "required":
            missing = [name for name in value if name not in error.instance]
            return f"{', '.join(map(repr, missing))} is missing"
        case "additionalProperties":
            return "it has members that the schema does not allow"
        case None:
            return "nothing is valid under the schema false"
    return one_line(f"{error.validator} {json.dumps(value)} does not hold for {found}", 160)


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return f"the string {one_line(json.dumps(value), 60)}"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return f"the number {value}"
    return f"an array of {len(value)}" if isinstance(value, list) else "an object"


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    import jsonschema
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    schema = json.loads(text)
    if not isinstance(schema, bool | dict):
        raise SchemaError(f"a schema is an object or a boolean, not {_kind(schema)}")
    uri = schema.get("$schema") if isinstance(schema, dict) else None
    # None is what validator_for gives back for a dialect that it does not know
    base: Any = jsonschema.Draft202012Validator
    if uri is not None:
        base = validator_for(schema, default=None) if isinstance(uri, str) else None  # type: ignore[arg-type]
    if base is None:
        raise SchemaError(f"unknown $schema {one_line(str(uri), 80)!r}")
    try:
        base.check_schema(schema)
        _check_patterns(schema)
        if '$ref"' in text or 'Ref"' in text:
            _check_references(schema, base.META_SCHEMA["$schema"])
    except jsonschema.SchemaError as error:
        raise SchemaError(f"{one_line(error.json_path, 80)}: {_say(error)}") from None
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    rules = {
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
    }
    known = {name: rule for name, rule in rules.items() if name in base.VALIDATORS}
    validator: Any = extend
    return validator(base, known)(schema, registry=Registry())


def _check_references(schema: Any, dialect: str) -> None:
    """Resolve every reference now: one that leads nowhere is the schema's fault."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    root = specification_with(dialect).create_resource(schema)
    registry = Registry().with_resource(root.id() or "", root).crawl()
    pending = [(registry.resolver_with_root(root), root)]
    while pending:
        resolver, resource = pending.pop()
        contents = resource.contents
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = contents.get(key) if isinstance(contents, dict) else None
            if not isinstance(target, str):
                continue
            try:
                resolver.lookup(target)
            except Unresolvable:
                raise SchemaError(
                    f"{key} {one_line(target, 120)!r} is not in the schema, and nothing is fetched"
                ) from None
        pending += [(resolver.in_subresource(inner), inner) for inner in resource.subresources()]


def _check_patterns(schema: Any) -> None:
    """Compile every pattern now, so that a bad one is the schema's fault and not the payload's."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            patterns = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
            inner = node.get("patternProperties")
            patterns += list(inner) if isinstance(inner, dict) else []
            for pattern in patterns:
                try:
                    _ecma(pattern)
                except re.error as error:
                    raise SchemaError(f"pattern {one_line(pattern, 80)!r}: {error}") from None
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


@lru_cache(maxsize=1024)
def _ecma(pattern: str) -> re.Pattern[str]:
    """*pattern* as ECMA 262 means it: ``$`` only at the very end, ASCII ``\\d`` and ``\\w``."""
    out, escaped, in_class = [], False, False
    for char in pattern:
        if escaped:
            out.append(
                {"d": "0-9", "w": "A-Za-z0-9_"}.get(char, "\\" + char)
                if in_class
                else {"d": "[0-9]", "w": "[A-Za-z0-9_]"}.get(char, "\\" + char)
            )
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            if char == "[" and not in_class:
                in_class = True
            elif char == "]" and in_class:
                in_class = False
            out.append(r"\Z" if char == "$" and not in_class else char)
    return re.compile("".join(out) + ("\\" if escaped else ""))


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _ecma(pattern).search(instance):
        yield ValidationError("pattern")


def _pattern_properties(
    validator: Any, properties: Mapping[str, Any], instance: Any, _: Any
) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, subschema in properties.items():
            for name, value in instance.items():
                if _ecma(pattern).search(name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _multiple_of(_: Any, step: float, instance: Any, __: Any) -> Iterator[Any]:
    """Decided on the shortest decimal texts: 0.35 is a multiple of 0.05."""
    from jsonschema import ValidationError

    if isinstance(instance, bool) or not isinstance(instance, int | float):
        return
    if isinstance(instance, float) and not math.isfinite(instance):  # 1e999 in a JSON text
        yield ValidationError("multipleOf")
        return
    if Fraction(repr(instance)) % Fraction(repr(step)) != 0:
        yield ValidationError("multipleOf")
