"""What a script consists of: its options, and events, each with its time and its line."""

import re
from dataclasses import dataclass


@dataclass
class Event:
    """One thing that happens, or is expected to."""

    line: int
    # In ns; relative to what happened before, or to the beginning.
    is_relative: bool
    time_ns: int
    # The end of the range in which it may happen, or of a call that waits.
    end_ns: int | None
    # `<`, `>`, `call`, `shell`, `python`.
    kind: str
    text: str
    waits: bool = False


NUMBER = r"\d*\.?\d+"
TIME = re.compile(
    rf"(?:(?P<plus>\+)\s*)?(?P<time>{NUMBER})"
    rf"(?:\s*(?P<range>~|\.\.\.)\s*\+?(?P<end>{NUMBER}))?(?:\s+|(?=`))|(?P<any>\*)\s+"
)
BRANCH = re.compile(r"^#ifdef (\w+)$\n(.*?)^#endif$\n", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"^--(\w+)(?:=(\S+))?\s*$", re.MULTILINE)


def blank(match):
    """A comment, without it, and with its lines."""
    return "\n" * match[0].count("\n")


def version(text):
    """`--ip_version`, if the script is for one only."""
    return dict(OPTION.findall(text)).get("ip_version")


def branch(system):
    """Of `#ifdef` and `#endif`, what is between them if it is for that system."""

    def choose(match):
        return f"\n{match[2]}\n" if match[1] == system else blank(match)

    return choose


def read(text, defines, system):
    """The options of a script for that system, and its events."""
    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.DOTALL)
    text = BRANCH.sub(branch(system), text)
    text = re.sub(r"(?m)(^|\s)(//|#).*$", "", text)
    for name, value in defines.items():
        text = re.sub(rf"\b{name}\b", value, text)
    options = dict(OPTION.findall(text))
    text = OPTION.sub("", text)
    events, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        event, at = read_event(text, at)
        events.append(event)
    return options, events


def read_event(text, at):
    line = text.count("\n", 0, at) + 1
    is_relative, time_ns, end_ns, waits = True, 0, None, False
    if text[at] not in "`%":
        match = TIME.match(text, at)
        if not match:
            raise ValueError(f"line {line}: no time")
        at = match.end()
        if match["any"]:
            end_ns = 1 << 62
        else:
            is_relative, time_ns = bool(match["plus"]), nanoseconds(match["time"])
            end_ns = nanoseconds(match["end"]) if match["end"] else None
        waits = match["range"] == "..."
    kind, body, at = read_body(text, at, line)
    return Event(line, is_relative, time_ns, end_ns, kind, body, waits), at


def nanoseconds(seconds):
    return round(float(seconds) * 1e9)


def read_body(text, at, line):
    for kind, begin, end in (("shell", "`", "`"), ("python", "%{", "}%")):
        if text.startswith(begin, at):
            close = text.find(end, at + len(begin))
            if close < 0:
                raise ValueError(f"line {line}: no end")
            return kind, text[at + len(begin) : close], close + len(end)
    close = text.find("\n", at)
    close = len(text) if close < 0 else close
    body = text[at:close].strip()
    if body[:1] in ("<", ">"):
        return body[0], body[1:], close
    # A call may take several lines, until its brackets are closed and its result is said.
    while close < len(text) and (body.count("(") > body.count(")") or "=" not in body):
        more = text.find("\n", close + 1)
        more = len(text) if more < 0 else more
        body, close = f"{body} {text[close:more].strip()}", more
    return "call", body, close
