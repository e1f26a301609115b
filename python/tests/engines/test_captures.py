"""drydock-capture beside captures that an independent recorder made of the same vLLM (../shared/captures).

Each family's configuration is taken from its file, the model is built anew on the meta device for each rank, and what is
recorded is compared element by element: which element of which source every element of every parameter is.
"""

import json
import os
import pathlib

import pytest

pytestmark = pytest.mark.vllm

SHARED = pathlib.Path(__file__).parents[4] / "shared" / "captures"
FAMILIES = sorted(p.name.removesuffix(".json.gz") for p in SHARED.glob("*.json.gz"))

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def folder_of(reference, path):
    """The model folder that the file was made of: a configuration, and nothing else."""
    config = {
        **reference.config, "model_type": reference.model_type, "architectures": [reference.cases[0].arch], "dtype": "bfloat16",
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.skipif(not FAMILIES, reason="../shared/captures is not there")
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, tmp_path):
    from drydock.capture import replay, schema, simulated

    want = schema.decode((SHARED / f"{family}.json.gz").read_bytes())
    shapes = [(c.tp, c.rank, c.ep) for c in want.cases]
    got = simulated.capture(folder_of(want, tmp_path), want.sources, shapes, family)
    assert [c.arch for c in got.cases] == [c.arch for c in want.cases]
    for a, b in zip(want.cases, got.cases, strict=False):
        assert replay.difference(a, b, want.sources) == [], (a.tp, a.rank, a.ep)


def test_the_program(tmp_path, capsys):
    """From a folder with a configuration alone, through the cache, to a file and an exit status."""
    from drydock.capture import cli, replay, schema

    if not FAMILIES:
        pytest.skip("../shared/captures is not there")
    want = schema.decode((SHARED / "qwen3-moe.json.gz").read_bytes())
    (tmp_path / "m").mkdir()
    folder = folder_of(want, tmp_path / "m")
    args = ["vllm", "--model", str(folder), "--tp", "2", "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out.json.gz")]
    assert cli.main(args) == 0
    said = json.loads(capsys.readouterr().out)
    got = schema.decode((tmp_path / "out.json.gz").read_bytes())
    assert [(s.name, s.dtype, s.shape) for s in got.sources] == [(s.name, s.dtype, s.shape) for s in want.sources]
    assert said["ranks"] == 2 and "vllm" in said["engine"]
    for rank in range(2):
        assert replay.difference(want.case(2, rank), got.case(2, rank), want.sources) == []
    (cached,) = (tmp_path / "cache").iterdir()
    cached.write_bytes(schema.encode(schema.Capture("from the cache", "f", "m", {}, [], [])))
    assert cli.main(args) == 0
    assert schema.decode((tmp_path / "out.json.gz").read_bytes()).engine == "from the cache"
    assert cli.main([*args, "--fresh"]) == 0
    assert cli.main([*args, "--ep"]) == 0 and len(list((tmp_path / "cache").iterdir())) == 2

    falcon = schema.decode((SHARED / "falcon-mq.json.gz").read_bytes())
    (tmp_path / "f").mkdir()
    assert cli.main(["vllm", "--model", str(folder_of(falcon, tmp_path / "f")), "--cache", str(tmp_path / "cache")]) == 3
    assert "query_key_value.weight: loader computes: cat" in capsys.readouterr().err
