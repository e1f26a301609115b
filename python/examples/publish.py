"""Publish one rank's part of one version, written from docs/wire.md alone.

    publish.py --nats nats://127.0.0.1:4222 --model org/tiny --job train-1 --rank 0 --world 2 --version 1 \
               --source model.embed.weight:F32:6,4 --source model.norm.weight:F32:4

The sources' bytes are a pattern (byte i of a source is i * 7 + version, modulo 256); each rank serves rows of dimension 0 to readers
of this host. It prints one line of JSON when the version is committed, holds it until standard input ends, then retires it and waits
until no reader is left. Needs nats-py, msgpack, zstandard, xxhash.
"""
import argparse, asyncio, base64, hashlib, json, math, os, re, sys, time

import msgpack, nats, xxhash, zstandard

from columns import deltas, names, plain, tuples
from memory import Memory, host_id

DTYPES = {"BOOL": (1, 1), "U8": (2, 1), "I64": (8, 8), "F16": (10, 2), "BF16": (11, 2), "F32": (12, 4)}  # code, bytes
CHUNK, INLINE = 512 << 10, 64 << 10


def pack(schema, **fields):
    return msgpack.packb({"schema": schema, **fields}, use_bin_type=True)


def squeeze(payload):
    small = zstandard.ZstdCompressor(write_content_size=True).compress(payload)
    return small if len(small) < len(payload) else payload


def blob(payload, inline=True):
    return {"digest": hashlib.sha256(payload).digest(), "nbytes": len(payload), **({"inline": payload} if inline and len(payload) <= INLINE else {})}


class Publisher:
    def __init__(self, nc, a):
        self.nc, self.a = nc, a
        self.token = re.sub(r"[^A-Za-z0-9_-]", "-", a.model)[:64]
        self.root, self.stream = f"refit.{self.token}.", f"REFIT_{self.token}"

    async def ask(self, subject, body=b"", headers=None):
        """One request, asked again until there is an answer: repeating changes nothing."""
        for _ in range(60):
            try:
                return json.loads((await self.nc.request(subject, body, timeout=1, headers=headers)).data)
            except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
                await asyncio.sleep(0.2)
        raise SystemExit(f"no answer on {subject}: is JetStream on, and the model initialised?")

    async def read(self, stream=None, **query):
        """One message through the leader: (subject, sequence, headers, payload), or None."""
        r = await self.ask(f"$JS.API.STREAM.MSG.GET.{stream or self.stream}", json.dumps(query).encode())
        if "error" in r:
            return None
        m, un = r["message"], lambda key: base64.b64decode(m.get(key, ""))
        return m["subject"], m["seq"], un("hdrs"), un("data")

    async def walk(self, subject, stream=None):
        found = []
        while m := await self.read(stream, seq=found[-1][1] + 1 if found else 1, next_by_subj=subject):
            found.append(m)
        return found

    async def put(self, subject, body, fence=None, ttl=None):
        """Write once. True: it is there. False: something else is."""
        headers = {"Nats-Expected-Last-Subject-Sequence": "0"}
        if fence:
            headers["Nats-Expected-Last-Subject-Sequence-Subject"] = fence
        if ttl:
            headers["Nats-TTL"] = ttl
        while True:
            r = await self.ask(subject, body, headers)
            code = r.get("error", {}).get("err_code")
            if code is None:
                return True
            if code == 10071 and fence:
                raise SystemExit("fenced: a newer run exists")
            if code in (10071, 10077):
                there = await self.read(last_by_subj=subject)
                if there:
                    return there[3] == body
            elif code != 10164:
                raise SystemExit(f"{subject}: {r['error']}")
            await asyncio.sleep(0.05)

    async def take_run(self):
        a = self.a
        while True:
            runs = [msgpack.unpackb(m[3]) for m in await self.walk(self.root + "r.*")]
            newest = max((r["run"] for r in runs), default=0)
            mine = max((r["run"] for r in runs if r["job"] == a.job), default=0)
            if mine and mine < newest:
                raise SystemExit(f"fenced: run {newest} was taken after this job's run {mine}")
            if mine:
                return mine
            if a.rank == 0:
                record = pack("drydock.run.v1", run=newest + 1, job=a.job, nonce=os.urandom(16), world=a.world, taken_ms=int(time.time() * 1000))
                await self.put(f"{self.root}r.{newest + 1}", record, ttl="never")
            else:
                await asyncio.sleep(0.1)

    def layout(self):
        """The layout, the shards' bytes back to back, and a digest for each tile (one a shard)."""
        a, memory, digests = self.a, b"", []
        source, offset, boxes = [], [], []
        for i, (_, dtype, shape) in enumerate(a.sources):
            rows = -(-shape[0] // a.world)
            lo, hi = min(shape[0], a.rank * rows), min(shape[0], (a.rank + 1) * rows)
            row = DTYPES[dtype][1] * math.prod(shape[1:])
            if lo == hi or row == 0:
                continue
            shard = bytes((i * 7 + a.version) % 256 for i in range(lo * row, hi * row))
            source.append(i), offset.append(len(memory)), boxes.append(sum(((0, d) for d in shape[1:]), (lo, hi - lo)))
            digests.append(xxhash.xxh3_64_intdigest(shard))
            memory += shard
        shapes = tuples([tuple(s[2]) for s in a.sources])
        sources = msgpack.packb({
            "nsources": len(a.sources), **names([s[0] for s in a.sources]), "dtype": bytes(DTYPES[s[1]][0] for s in a.sources),
            "shape": shapes, "grid": plain([max(1, v) for t in dict.fromkeys(tuple(s[2]) for s in a.sources) for v in t]),
        })
        return squeeze(pack(
            "drydock.layout.v1", rank=a.rank, regions=deltas([len(memory)]), nregions=1, sources=sources, nshards=len(source),
            source=deltas(source), region=deltas([0] * len(source)), offset=deltas(offset), box=tuples(boxes),
        )), memory, digests

    def endpoint(self, contents):
        incarnation = os.urandom(16).hex()
        self.memory = m = Memory(contents, incarnation)
        return pack("drydock.endpoint.v1", rank=self.a.rank, host=host_id(), incarnation=incarnation, nregions=1, bases=m.base.to_bytes(8, "little"),
                    nbytes=deltas([m.nbytes]), devices=[""], access=[{"transport": "local", "agent": incarnation, "metadata": m.access()}])

    async def publish(self, run):
        a, key = self.a, f"{run}.{self.a.version}"
        layout, memory, digests = self.layout()
        tiles = pack("drydock.tiles.v1", ntiles=len(digests), digests=b"".join(d.to_bytes(8, "little") for d in digests))
        refs = {"layout": blob(layout, inline=False), "endpoint": blob(self.endpoint(memory)), "tiles": blob(tiles)}
        for i in range(0, len(layout), CHUNK):
            await self.put(f"{self.root}b.{run}.{refs['layout']['digest'].hex()}.{i // CHUNK}", layout[i:i + CHUNK], ttl="never")
        for i in range(0, len(tiles) if "inline" not in refs["tiles"] else 0, CHUNK):
            await self.put(f"{self.root}v.{key}.d.{a.rank}.{i // CHUNK}", tiles[i:i + CHUNK])
        table = squeeze(pack("drydock.table.v1", model=a.model, run=run, version=a.version, rank=a.rank, world=a.world, nbytes=len(memory), **refs))
        if not await self.put(f"{self.root}v.{key}.t.{a.rank}", table):
            raise SystemExit(f"another table of rank {a.rank} is there: abandon version {key}")

    async def commit(self, run):
        a, key, tables = self.a, f"{run}.{self.a.version}", {}
        while len(tables) < a.world:
            for rank in set(range(a.world)) - set(tables):
                if m := await self.read(last_by_subj=f"{self.root}v.{key}.t.{rank}"):
                    body = m[3]
                    raw = zstandard.ZstdDecompressor().decompress(body) if body[:4] == b"\x28\xb5\x2f\xfd" else body
                    tables[rank] = (hashlib.sha256(body).digest(), msgpack.unpackb(raw))
            await asyncio.sleep(0 if len(tables) == a.world else 0.05)
        ranks = [tables[r] for r in range(a.world)]
        if any(t["world"] != a.world or t["model"] != a.model for _, t in ranks):
            raise SystemExit("tables disagree about the world or the model")
        column = lambda field: b"".join(t[field]["digest"] if t.get(field) else bytes(32) for _, t in ranks)
        manifest = pack("drydock.manifest.v1", model=a.model, run=run, version=a.version, world=a.world, tables=b"".join(d for d, _ in ranks),
                        layouts=column("layout"), endpoints=column("endpoint"), tiles=column("tiles"), nbytes=plain([t["nbytes"] for _, t in ranks]))
        if not await self.put(f"{self.root}c.{key}", manifest, fence=f"{self.root}r.{run + 1}"):
            raise SystemExit(f"version {key} was ended, or committed with other tables")

    async def retire(self, run):
        a, key = self.a, f"{run}.{self.a.version}"
        commit, purge = f"{self.root}c.{key}", f"$JS.API.STREAM.PURGE.{self.stream}"
        while True:
            m = await self.read(last_by_subj=commit)
            if m and msgpack.unpackb(m[3])["schema"] == "drydock.ended.v1":
                break
            if m:
                await self.ask(purge, json.dumps({"filter": commit, "seq": m[1] + 1}).encode())
            await self.put(commit, pack("drydock.ended.v1", model=a.model, run=run, version=a.version, state="retired", reason="python example", by="", at_ms=int(time.time() * 1000)), ttl="120s")
        bucket = f"refit_lease_{self.token}"
        while any(b"Nats-Marker-Reason" not in m[2] and b"KV-Operation" not in m[2] for m in await self.walk(f"$KV.{bucket}.{key}.*", f"KV_{bucket}")):
            await asyncio.sleep(0.25)
        self.memory.withdraw()
        for subject in (f"{self.root}v.{key}.d.{a.rank}.>", f"{self.root}v.{key}.t.{a.rank}"):
            await self.ask(purge, json.dumps({"filter": subject}).encode())


async def main():
    p = argparse.ArgumentParser()
    for flag in ("nats", "model", "job", "rank", "world", "version"):
        p.add_argument("--" + flag, type=str if flag in ("nats", "model", "job") else int, required=True)
    p.add_argument("--source", action="append", required=True, help="name:dtype:dim,dim,…")
    a = p.parse_args()
    a.sources = [(n, d, [int(x) for x in s.split(",")]) for n, d, s in (s.rsplit(":", 2) for s in a.source)]
    pub = Publisher(await nats.connect(a.nats, max_reconnect_attempts=-1, ping_interval=2), a)
    run = await pub.take_run()
    await pub.publish(run)
    await pub.commit(run)
    print(json.dumps({"committed": f"{run}.{a.version}"}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await pub.retire(run)
    print(json.dumps({"drained": f"{run}.{a.version}"}), flush=True)
    await pub.nc.close()


if __name__ == "__main__":
    asyncio.run(main())
