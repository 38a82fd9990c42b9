"""The vectors of whole exports: a small session, and what can be done to its lines."""

import base64
import hashlib
import json

from tests.event import independent as reference
from tests.event.vector_inputs import KEY, SESSION, header_text, key

OPENED = {
    "format": 1,
    "host": {"name": "lovelace", "pid": 4711},
    "rules": 1,
    "settings": {"dialect": "scripted", "model": "demo", "provider": "scripted"},
    "workspace": "/home/ada/project",
}
STARTED = {
    "args": '{"command": "pytest -q"}',
    "attempt": 1,
    "call": "main/1",
    "recovery": "attachable",
    "tool": "shell",
}
EVENTS = [
    ("session.opened", "main", 0, OPENED),
    ("user.prompted", "main", 1, {"text": "Fix the tests.\nThe password is hunter2.\n"}),
    ("tool.started", "main", 2, STARTED),
    ("tool.finished", "main", 3, None),
    ("session.closed", "main", 0, {"outcome": "done"}),
]
CONTENT = b"1 failed\n" * 20
SECOND_LINE = {2: {('["text"]', 1)}}


def line(members):
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False) + "\n"


class Written:
    """A small export as lines, with the hash after each event."""

    def __init__(self, content=CONTENT, prompt=None, hide=None, hide_blob=False, hashes=True):
        blob_key = key("blob")
        root, length = reference.commit_blob(content, blob_key)[1].hex(), len(content)
        self.hashes, self.lines, previous = [], [], reference.genesis(SESSION)
        for seq, (kind, agent, cause, body) in enumerate(EVENTS, 1):
            if body is None:
                body = {
                    "attempt": 1,
                    "call": "main/1",
                    "exit_code": 1,
                    "output": {"blob": root, "length": length},
                    "status": "ok",
                }
                shown = (
                    {"hidden": True}
                    if hide_blob
                    else {"key": blob_key.hex(), "data": base64.b64encode(content).decode()}
                )
                self.lines.append(line({"blob": root, "length": length} | shown))
            if seq == 2 and prompt:
                body = {"text": prompt}
            header = header_text(
                {
                    "seq": seq,
                    "cause": cause,
                    "id": hashlib.sha256(b"%d" % seq).hexdigest()[:32],
                    "type": kind,
                    "agent": agent,
                    "time": f"2026-01-02T03:04:{seq:02}.000000Z",
                }
            )
            count, event_root = reference.commit(body, key(str(seq)))
            previous = reference.chain(previous, header.encode(), count, event_root)
            self.hashes.append(previous.hex())
            end = {"hash": previous.hex()} if hashes else {}
            if hide and seq in hide:
                self.lines.append(
                    line({"header": header, "leaves": reference.redact(body, key(str(seq)), hide[seq])} | end)
                )
            else:
                self.lines.append(
                    line({"header": header, "body": reference.write(body), "key": key(str(seq)).hex()} | end)
                )
        self.lines.insert(0, self.first(5))
        self.lines.append(self.last(5))

    def first(self, n):
        return line({"muse_export": 1, "session": SESSION, "head": n, "hash": self.hashes[n - 1]})

    def last(self, n):
        return line({"end": True, "events": n, "hash": self.hashes[n - 1]})

    def text(self):
        return "".join(self.lines)


def export_cases():
    """(name, text, known head or None)."""
    good, bare = Written(), Written(hashes=False)
    return [*intact(good, bare), *cut_off(good), *changed(good, bare), *rearranged(good)]


def intact(good, bare):
    text, head = good.text(), [5, good.hashes[4]]
    rebuilt = Written(prompt="Fix the tests, please.\n")
    shorter = [good.first(3), *good.lines[1:4], good.last(3)]
    return [
        ("whole", text, None),
        ("whole, known head", text, head),
        ("whole, known head of an earlier event", text, [3, good.hashes[2]]),
        ("whole, known head 0", text, [0, reference.genesis(SESSION).hex()]),
        ("no hash in the lines of events", bare.text(), head),
        ("no newline at the end", text[:-1], head),
        ("a blob of two chunks", Written(content=CONTENT * 400).text(), None),
        ("a line of a text redacted", Written(hide=SECOND_LINE).text(), head),
        ("a blob hidden", Written(hide_blob=True).text(), head),
        (
            "an empty session",
            line({"muse_export": 1, "session": SESSION, "head": 0, "hash": reference.genesis(SESSION).hex()})
            + line({"end": True, "events": 0, "hash": reference.genesis(SESSION).hex()}),
            None,
        ),
        ("rebuilt with another prompt, no known head", rebuilt.text(), None),
        ("rebuilt with another prompt, known head", rebuilt.text(), head),
        ("cut and closed again, no known head", "".join(shorter), None),
        ("cut and closed again, known head", "".join(shorter), head),
    ]


def cut_off(good):
    text, head = good.text(), [5, good.hashes[4]]
    cut = "".join(good.lines[:4])
    return [
        ("last line missing", "".join(good.lines[:-1]), None),
        ("cut after event 3", cut, None),
        ("cut after event 3, known head of event 3", cut, [3, good.hashes[2]]),
        ("cut after event 3, known head of event 5", cut, head),
        ("cut inside a line", text[: len(cut) + 100], None),
        ("cut after the blob", "".join(good.lines[:5]), None),
        ("empty file", "", None),
        ("empty file, known head", "", head),
    ]


def changed(good, bare):
    text = good.text()
    blob_line = good.lines[4]
    assert blob_line.startswith('{"blob"')
    return [
        ("a letter of event 2 changed", text.replace("hunter2", "hunter3"), None),
        ("a letter of event 2 changed, no hash in the lines", bare.text().replace("hunter2", "hunter3"), None),
        ("a header's time changed", text.replace("03:04:03", "03:05:03"), None),
        ("a key changed", text.replace(key("3").hex(), key("4").hex(), 1), None),
        (
            "a shown leaf of a redacted event changed",
            Written(hide=SECOND_LINE).text().replace("Fix the tests.", "Fix the rests."),
            None,
        ),
        ("a clear key hidden", Written(hide={4: {('["status"]', 0)}}).text(), None),
        ("the arguments of a tool hidden", Written(hide={3: {('["args"]', 0)}}).text(), None),
        ("a hidden leaf's hash changed", flipped_hidden(), None),
        ("a byte of the blob changed", text.replace(blob_line[220:224], "AAAA", 1), None),
        ("a blob with another length", text.replace('"length":180,"key"', '"length":181,"key"'), None),
    ]


def rearranged(good):
    text, blob_line = good.text(), good.lines[4]
    no_blob = [each for each in good.lines if '"blob":"' not in each[:9]]
    later = [*good.lines[:4], good.lines[5], blob_line, *good.lines[6:]]
    return [
        ("a blob missing", "".join(no_blob), None),
        ("a blob after its event", "".join(later), None),
        ("a blob twice", "".join([*good.lines[:5], blob_line, *good.lines[5:]]), None),
        ("a blob that nothing names", "".join([*good.lines[:-1], line(other_blob()), good.lines[-1]]), None),
        ("events 2 and 3 swapped", "".join([*good.lines[:2], good.lines[3], good.lines[2], *good.lines[4:]]), None),
        ("event 2 left out", "".join([*good.lines[:2], *good.lines[3:]]), None),
        ("event 2 twice", "".join([*good.lines[:3], *good.lines[2:]]), None),
        ("a body with white space", text.replace('{\\"outcome\\"', '{ \\"outcome\\"'), None),
        ("a duplicate key in a line", text.replace('"muse_export":1', '"muse_export":1,"muse_export":1'), None),
        ("an unknown key in a line", text.replace('{"end":true', '{"x":1,"end":true'), None),
        ("another version", text.replace('"muse_export":1', '"muse_export":2'), None),
        ("another session", text.replace(SESSION, "other"), None),
        ("another hash in the first line", text.replace(good.hashes[4], good.hashes[3], 1), None),
        (
            "another hash in the last line",
            "".join([*good.lines[:-1], good.lines[-1].replace(good.hashes[4], good.hashes[3])]),
            None,
        ),
        ("another count in the last line", text.replace('"events":5', '"events":6'), None),
        ("a line after the last", text + good.lines[-1], None),
        ("an empty line", text.replace("\n", "\n\n", 1), None),
        ("a line that is no JSON", "".join([*good.lines[:3], "x\n", *good.lines[3:]]), None),
        ("known head with another hash", text, [4, good.hashes[4]]),
    ]


def flipped_hidden():
    lines = Written(hide=SECOND_LINE).lines
    at = lines[2].index('{"hash":"') + 9
    lines[2] = lines[2][:at] + ("1" if lines[2][at] == "0" else "0") + lines[2][at + 1 :]
    return "".join(lines)


def other_blob():
    root = reference.commit_blob(b"x", KEY)[1].hex()
    return {"blob": root, "length": 1, "key": KEY.hex(), "data": "eA=="}
