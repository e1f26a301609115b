"""Headers of arena files: what is read, and what is refused by name."""

import json
import os
import struct

import pytest

from drydock.engines import arenafile
from drydock.engines.arenafile import ArenaError

META = {
    "drydock.model": "org/m", "drydock.run": "7", "drydock.version": "42", "drydock.rank": "1", "drydock.layout": "d",
    "drydock.alias": '{"lm_head.weight":"embed.weight"}',
}  # fmt: skip


def blob(entries, nbytes, metadata=META, pad=0):
    """A file of these entries and so many bytes after the header."""
    text = json.dumps({"__metadata__": metadata, **entries}).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + bytes(nbytes)


def entry(dtype, shape, start, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


GOOD = {"a": entry("BF16", [2, 3], 0, 12), "b": entry("F32", [], 12, 16), "c": entry("U8", [0, 4], 16, 16)}


def written(tmp_path, content):
    path = tmp_path / "rank-1.safetensors"
    path.write_bytes(content)
    return str(path)


def test_reads_label_and_tensors(tmp_path):
    f = arenafile.read(written(tmp_path, blob(GOOD, 16, pad=100)))
    assert f.tensors == {"a": ("BF16", (2, 3)), "b": ("F32", ()), "c": ("U8", (0, 4))}
    assert (f.rank, f.key, f.layout) == (1, (7, 42), "d")
    assert f.alias == {"lm_head.weight": "embed.weight"}


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "too short"),
        (b"1234567", "too short"),
        (bytes(4096), "not sealed"),
        (struct.pack("<Q", 1 << 40) + bytes(64), "truncated"),
        (struct.pack("<Q", 4) + b"[1]x", "no JSON"),
        (struct.pack("<Q", 2) + b"[]", "expected an object"),
        (blob(GOOD, 15), "truncated"),
        (blob(GOOD, 17), "truncated"),
        (blob({"a": entry("BF16", [2], 0, 4), "b": entry("BF16", [2], 2, 6)}, 6), "tensor b begins at byte 2"),
        (blob({"a": entry("BF16", [2], 0, 4), "b": entry("BF16", [2], 6, 10)}, 10), "tensor b begins at byte 6"),
        (blob({"a": entry("BF16", [3], 0, 4)}, 4), "4 bytes for BF16[3]"),
        (blob({"a": entry("BF17", [2], 0, 4)}, 4), "BF17"),
        (blob({"a": entry("BF16", [-2], 0, 4)}, 4), "size -2"),
        (blob({"a": {"dtype": "BF16"}}, 4), "shape"),
        (blob({"a": 5}, 4), "tensor a"),
    ],
)
def test_refuses(tmp_path, content, says):
    with pytest.raises(ArenaError, match=says.replace("[", r"\[")):
        arenafile.read(written(tmp_path, content))


def test_refuses_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ArenaError, match="No such file"):
        arenafile.read(str(tmp_path / "none"))


def test_a_checkpoint_is_no_arena(tmp_path):
    f = arenafile.read(written(tmp_path, blob(GOOD, 16, {"format": "pt"})))
    with pytest.raises(ArenaError, match="no receiver"):
        _ = f.rank


def test_only_files_below_the_root(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    inside = root / "a"
    inside.write_bytes(b"")
    outside = tmp_path / "root-b"
    outside.write_bytes(b"")
    os.symlink(outside, root / "link")
    assert arenafile.resolve(str(inside), str(root)) == str(inside.resolve())
    for path in (outside, root / "link", root / ".." / "root-b", root, "/"):
        with pytest.raises(ArenaError, match="outside"):
            arenafile.resolve(str(path), str(root))


def test_differences_name_what_differs():
    want = {"a": ("BF16", (2, 3)), "b": ("F32", (4,))}
    assert arenafile.differences(want, dict(want)) == ""
    text = arenafile.differences({"a": ("F32", (2, 3)), "c": ("U8", ())}, want)
    assert text == (
        "a: the file has F32[2, 3], the engine needs BF16[2, 3]; b: the file has none, the engine needs F32[4]; "
        "c: the file has U8[], the engine needs none"
    )
    assert arenafile.differences({}, {str(i): ("U8", ()) for i in range(9)}).endswith("; and 5 more")
