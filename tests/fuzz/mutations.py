"""Mutations of files: of their bytes, and of what their formats mean, so that they get past the first check."""

import gzip
import io
import json
import random
import sqlite3
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path

from onnx import ModelProto

NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    127,
    128,
    255,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
VALUES = [
    *NUMBERS,
    *(0.5, 1e300, float("nan"), float("inf"), -0.0, 10**400),
    *("", "x", "\ud800", "a\nb", "\x1b[2J", "/dev/zero", "../x", "a" * 5000, "\0", "é"),
    *(None, True, False, [], {}, [[]], {"a": None}, [1] * 1000),
]


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """One to four changes of bytes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1 and data:
            data[place % len(data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            del data[place : place + rng.choice((1, 4, 16, 100))]
        elif kind == 4:
            data[place:place] = data[place : place + rng.choice((1, 8, 64, 1000))]
        elif kind == 5:
            data[place:place] = rng.randbytes(rng.choice((1, 4, 16)))
        else:
            size, order = rng.choice((2, 4, 8)), rng.choice(("little", "big"))
            number = rng.choice(NUMBERS) % 2 ** (8 * size)
            data[place : place + size] = number.to_bytes(size, order)
    return bytes(data)


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    """A changed, missing or repeated value, anywhere in the tree."""
    if rng.random() < 0.2:
        return mutate_bytes(content, rng)
    tree = json.loads(content)
    places = list(_places(tree))
    parent, key = rng.choice(places)
    kind = rng.randrange(5)
    if kind == 0:
        del parent[key]
    elif kind == 1:
        deep = "[" * rng.choice((50, 20_000))
        parent[key] = "DEEP"
        return json.dumps(tree).replace('"DEEP"', deep).encode()
    elif kind == 2:
        other, name = rng.choice(places)
        parent[key] = other.get(name) if isinstance(other, dict) else other[name] if name < len(other) else None
    else:
        parent[key] = rng.choice(VALUES)
    try:
        return json.dumps(tree).encode()
    except (ValueError, RecursionError):  # a value that holds itself
        return content[: len(content) // 2]


def _places(tree):
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def mutate_onnx(content: bytes, rng: random.Random) -> bytes:
    """A changed, missing or repeated field of a message, anywhere in the model."""
    if rng.random() < 0.2:
        return mutate_bytes(content, rng)
    model = ModelProto.FromString(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        message = rng.choice(list(_messages(model)))
        field = rng.choice(message.DESCRIPTOR.fields)
        try:
            _mutate_field(message, field, rng)
        except (TypeError, ValueError):
            message.ClearField(field.name)
    return model.SerializeToString()


def _messages(message):
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _messages(part)


def _mutate_field(message, field, rng):
    value = getattr(message, field.name)
    repeated = not hasattr(value, "ListFields") and hasattr(value, "append")
    if repeated and field.message_type is not None:
        kind = rng.randrange(4)
        if kind == 0 and len(value):
            del value[rng.randrange(len(value))]
        elif kind == 1 and len(value):
            value.add().CopyFrom(rng.choice(list(value)))
        elif kind == 2:
            value.add()
        else:
            message.ClearField(field.name)
    elif repeated:
        if len(value) and rng.random() < 0.6:
            value[rng.randrange(len(value))] = _scalar(value[0], rng)
        elif len(value):
            value.append(rng.choice(list(value)))
        else:
            value.append(_scalar({"int64_data": 0}.get(field.name, 0 if field.cpp_type < 7 else ""), rng))
    elif field.message_type is not None:
        value.SetInParent() if rng.random() < 0.5 else message.ClearField(field.name)
    elif rng.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(value, rng))


def _scalar(value, rng):
    if isinstance(value, bytes):
        return mutate_bytes(value, rng)
    if isinstance(value, str):
        names = (
            "",
            "x",
            "logits",
            "W",
            "f",
            "Relu",
            "Loop",
            "If",
            "Conv",
            "MatMul",
            "Cast",
            "ai.onnx",
            "com.microsoft",
            "é",
        )
        return rng.choice((*names, value + "x", value[:-1]))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e30, float("inf"), float("nan")))
    return rng.choice((*NUMBERS, rng.randrange(30))) if rng.random() < 0.7 else rng.randrange(20)


def mutate_sqlite(content: bytes, rng: random.Random) -> bytes:
    """Changed values, columns, triggers and settings of a database; or of its bytes."""
    if rng.random() < 0.5:
        return mutate_bytes(content, rng)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        path.write_bytes(content)
        base = sqlite3.connect(path, isolation_level=None)
        try:
            tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            table = rng.choice(tables)
            columns = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
            column, kind = rng.choice(columns), rng.randrange(8)
            if kind < 4:
                old = base.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
                value = rng.choice(VALUES)
                if old and isinstance(old[0], str) and old[0].startswith(("{", "[")):
                    value = mutate_json(old[0].encode(), rng).decode("utf-8", "replace")
                elif isinstance(value, list | dict) or (isinstance(value, int) and abs(value) >= 2**63):
                    value = json.dumps(value)[:1000]
                elif isinstance(value, str):
                    value = (
                        value.encode("utf-8", "surrogatepass") if rng.random() < 0.3 else value.replace("\ud800", "?")
                    )
                base.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT max(rowid) FROM {table})", [value])
            elif kind == 4:
                base.execute(f"DELETE FROM {table} WHERE rowid = (SELECT min(rowid) FROM {table})")
            elif kind == 5:
                base.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            elif kind == 6:
                base.execute(f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END")
            else:
                base.execute(f"PRAGMA user_version = {rng.choice((0, 1, 2, 99))}")
        except (sqlite3.Error, ValueError, OverflowError, IndexError):
            pass  # a column that cannot be dropped, a value that its constraint refuses, or an empty list
        finally:
            base.close()
        return path.read_bytes()


def mutate_zip(content: bytes, rng: random.Random) -> bytes:
    """A changed member, with the checksum that belongs to it."""
    if rng.random() < 0.3:
        return mutate_bytes(content, rng)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as changed:
        members = archive.infolist()
        chosen = rng.choice(members)
        for member in members:
            name, data = member.filename, archive.read(member)
            if member is chosen:
                name = rng.choice((name, name, name, f"../{name}", f"/{name}", "x" + name, "\u202e" + name))
                data = mutate_bytes(data, rng)
            changed.writestr(zipfile.ZipInfo(name), data, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
    return made.getvalue()


def mutate_gzip(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return mutate_bytes(content, rng)
    return gzip.compress(mutate_bytes(gzip.decompress(content), rng), 1)


def mutate_png(content: bytes, rng: random.Random) -> bytes:
    """A changed chunk, with the checksum that belongs to it."""
    if rng.random() < 0.3:
        return mutate_bytes(content, rng)
    chunks, place = [], 8
    while place + 12 <= len(content):
        (size,) = struct.unpack(">I", content[place : place + 4])
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    number = rng.randrange(len(chunks))
    kind, data = chunks[number]
    if kind == b"IDAT" and rng.random() < 0.5:
        data = zlib.compress(mutate_bytes(zlib.decompress(data), rng))
    else:
        data = mutate_bytes(data, rng)
    chunks[number] = kind, data
    if rng.random() < 0.2:
        chunks.insert(number, rng.choice(chunks))
    made = content[:8]
    for kind, data in chunks:
        made += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return made


def mutate_text(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    if rng.random() < 0.4:
        return mutate_bytes(content, rng)
    odd = (
        b"",
        b'"',
        b"\xff\xfe",
        b"\0",
        b"../../etc/passwd,1",
        b",".join([b"a"] * 50),
        b"0.png,99999999999999999999999",
    )
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(odd))
    return b"\n".join(lines)
