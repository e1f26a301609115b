"""The parts of drydock-capture that need no engine."""

import json
import struct

import pytest

from drydock.capture import checkpoint, cli, schema
from drydock.capture.schema import Source


def shard(path, tensors):
    """A safetensors file with a header alone worth looking at."""
    at, header = 0, {}
    for name, (dtype, shape, nbytes) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def test_sources_of_one_file_and_of_shards(tmp_path):
    shard(tmp_path / "model.safetensors", {"b": ("BF16", [2], 4), "a": ("F32", [], 4)})
    assert checkpoint.sources(tmp_path) == [Source("a", "F32", []), Source("b", "BF16", [2])]
    shard(tmp_path / "one.safetensors", {"x": ("U8", [3], 3)})
    shard(tmp_path / "two.safetensors", {"y": ("U8", [1], 1)})
    index = {"weight_map": {"x": "one.safetensors", "y": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [s.name for s in checkpoint.sources(tmp_path)] == ["x", "y"]  # what the index does not name is not the model's
    shard(tmp_path / "two.safetensors", {"x": ("U8", [1], 1)})
    with pytest.raises(ValueError, match="x is in another file too"):
        checkpoint.sources(tmp_path)


def test_cache_names_tell_everything_apart():
    sources = [Source("a", "BF16", [2, 3])]
    base = ("vllm 1", b"{}", sources, 2, False)
    names = {cli.cache_name(*base)}
    for i, other in enumerate(("vllm 2", b"{ }", [Source("a", "BF16", [3, 2])], 4, True)):
        names.add(cli.cache_name(*base[:i], other, *base[i + 1 :]))
    assert len(names) == 6
    assert cli.cache_name(*base) in names and cli.cache_name(*base).endswith(".json.gz")


def test_a_file_is_replaced_whole(tmp_path):
    cli.write(tmp_path / "deep" / "f", b"one")
    cli.write(tmp_path / "deep" / "f", b"two")
    assert [p.read_bytes() for p in (tmp_path / "deep").iterdir()] == [b"two"]


WRONG = [["vllm"], ["tgi", "--model", "."], ["vllm", "--model", "/nowhere"], ["vllm", "--model", ".", "--tp", "0"]]


@pytest.mark.parametrize("args", WRONG)
def test_wrong_command_lines(args, capsys):
    with pytest.raises(SystemExit) as e:
        cli.main(args)
    assert e.value.code == 2 and "drydock-capture" in capsys.readouterr().err


def test_report_says_what_is_excluded(tmp_path, capsys):
    c = schema.Capture("e", "f", "m", {}, [Source("s", "F32", [1])], [schema.Case("A", 1, 0, False)])
    assert cli.report(c, tmp_path) == 0
    c.cases[0].params.append(schema.Param("p", "F32", [1], "loader computes: exp"))
    c.cases[0].elsewhere.append(0)
    assert cli.report(c, tmp_path) == 3
    err = capsys.readouterr().err
    assert "excluded p: loader computes: exp" in err and "s goes to a buffer" in err


def test_a_capture_of_the_checkpoint_itself(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    shard(tmp_path / "model.safetensors", {"b": ("BF16", [2], 4), "a": ("F32", [], 4)})
    assert cli.main(["checkpoint", "--model", str(tmp_path), "--out", str(tmp_path / "c.json.gz")]) == 0
    c = schema.decode((tmp_path / "c.json.gz").read_bytes())
    assert [(p.name, p.dtype, p.shape) for p in c.case(1, 0).params] == [("a", "F32", []), ("b", "BF16", [2])]
    assert c.case(1, 0).copies == [schema.Copy(0, [], 0, 0, [], []), schema.Copy(1, [], 1, 0, [2], [1])]
    with pytest.raises(SystemExit):
        cli.main(["checkpoint", "--model", str(tmp_path), "--tp", "2", "--out", "x"])
