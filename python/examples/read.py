"""Assemble the newest committed version of a model, written from docs/wire.md alone.

    read.py --nats nats://127.0.0.1:4222 --model org/tiny --receiver probe

Takes a lease, reads the manifest, tables, layouts, endpoints and tile digests, checks every digest, prints what it found as one line of JSON,
and gives the lease back. Needs nats-py, msgpack, zstandard.
"""
import argparse, asyncio, base64, hashlib, json, os, re, socket

import msgpack, nats, zstandard

from columns import read_deltas, read_names, read_tuples

DTYPES = {1: "BOOL", 2: "U8", 3: "I8", 4: "I16", 5: "U16", 6: "I32", 7: "U32", 8: "I64", 9: "U64", 10: "F16", 11: "BF16", 12: "F32", 13: "F64",
          14: "F8_E4M3", 15: "F8_E5M2", 16: "F8_E4M3FNUZ", 17: "F8_E5M2FNUZ", 18: "F8_E8M0", 22: "C64"}
CHUNK = 512 << 10
TTL = 20


def unpack(payload, schema):
    if payload[:4] == b"\x28\xb5\x2f\xfd":
        payload = zstandard.ZstdDecompressor().decompress(payload, max_output_size=256 << 20)
    m = msgpack.unpackb(payload)
    if schema and m["schema"] != schema:
        raise SystemExit(f"schema is {m['schema']}, want {schema}: not for this reader")
    return m


class Reader:
    def __init__(self, nc, a):
        self.nc, self.a = nc, a
        self.token = re.sub(r"[^A-Za-z0-9_-]", "-", a.model)[:64]
        self.root, self.stream = f"refit.{self.token}.", f"REFIT_{self.token}"

    async def leader(self, stream=None, **query):
        r = await self.nc.request(f"$JS.API.STREAM.MSG.GET.{stream or self.stream}", json.dumps(query).encode(), timeout=5)
        r = json.loads(r.data)
        if "error" in r:
            return None
        m = r["message"]
        return m["subject"], m["seq"], base64.b64decode(m.get("hdrs", "")), base64.b64decode(m.get("data", ""))

    async def multi(self, subjects):
        """The last message of each subject, from any replica: {subject: (sequence, payload)}. May be short."""
        inbox, found = self.nc.new_inbox(), {}
        sub = await self.nc.subscribe(inbox)
        await self.nc.publish(f"$JS.API.DIRECT.GET.{self.stream}", json.dumps({"multi_last": subjects, "max_bytes": 24 << 20}).encode(), reply=inbox)
        while True:
            m = await sub.next_msg(timeout=5)
            if m.headers.get("Status"):
                break
            found[m.headers["Nats-Subject"]] = (int(m.headers["Nats-Sequence"]), m.data)
        await sub.unsubscribe()
        return found

    async def all_of(self, subjects):
        """Literal subjects, asked for again until every one is there."""
        found = {}
        for _ in range(400):
            missing = [s for s in subjects if s not in found]
            if not missing:
                return found
            found.update(await self.multi(missing[:1000]))
            await asyncio.sleep(0 if len(found) == len(subjects) else 0.02)
        raise SystemExit(f"{len(missing)} messages are missing, among them {missing[0]}")

    async def newest(self):
        run = await self.leader(last_by_subj=self.root + "r.*")
        run = unpack(run[3], "drydock.run.v1") if run else {"run": 0}
        order = await self.leader(last_by_subj=self.root + "o.*")
        standing = {}
        for subject, (seq, payload) in (await self.multi([self.root + "c.*.*"])).items():
            key = tuple(int(x) for x in subject.split(".")[-2:])
            if unpack(payload, None)["schema"] == "drydock.manifest.v1" and key[0] >= run["run"]:
                standing[key] = seq
        if order:
            o = unpack(order[3], "drydock.order.v1")
            after = [k for k, seq in standing.items() if seq > order[1]]
            if o["run"] >= run["run"]:
                return max(after) if after else ((o["run"], o["version"]) if (o["run"], o["version"]) in standing else None), run
        return max(standing, default=None), run

    async def lease(self, key):
        """Write the lease, then read the commit through the leader: the manifest, if it still stands."""
        bucket = f"refit_lease_{self.token}"
        self.place = f"$KV.{bucket}.{key[0]}.{key[1]}.{self.a.receiver}"
        there = await self.leader(f"KV_{bucket}", last_by_subj=self.place)
        body = msgpack.packb({"schema": "drydock.lease.v1", "run": key[0], "version": key[1], "receiver": self.a.receiver,
                              "holder": os.urandom(16), "host": socket.gethostname(), "ttl_ms": TTL * 1000})
        ack = json.loads((await self.nc.request(self.place, body, timeout=5, headers={
            "Nats-Expected-Last-Subject-Sequence": str(there[1] if there else 0), "Nats-TTL": f"{TTL}s"})).data)
        if "error" in ack:
            raise SystemExit(f"no lease: {ack['error']}")
        self.seq = ack["seq"]
        commit = await self.leader(last_by_subj=f"{self.root}c.{key[0]}.{key[1]}")
        if not commit or unpack(commit[3], None)["schema"] != "drydock.manifest.v1":
            await self.release()
            raise SystemExit("the version was withdrawn")
        return unpack(commit[3], "drydock.manifest.v1")

    async def release(self):
        await self.nc.request(self.place, b"", timeout=5, headers={
            "Nats-Expected-Last-Subject-Sequence": str(self.seq), "KV-Operation": "PURGE", "Nats-Rollup": "sub", "Nats-TTL": "10s"})

    async def blob(self, ref, chunk):
        payload = ref.get("inline")
        if payload is None:
            subjects = [chunk(i) for i in range(-(-ref["nbytes"] // CHUNK))]
            parts = await self.all_of(subjects)
            payload = b"".join(parts[s][1] for s in subjects)
        if len(payload) != ref["nbytes"] or hashlib.sha256(payload).digest() != ref["digest"]:
            raise SystemExit("a blob does not have its digest")
        return payload

    async def rank(self, key, rank, man, payload):
        if hashlib.sha256(payload).digest() != man["tables"][32 * rank:32 * rank + 32]:
            raise SystemExit(f"the table of rank {rank} contradicts the manifest")
        t = unpack(payload, "drydock.table.v1")
        in_run = lambda ref: lambda i: f"{self.root}b.{key[0]}.{ref['digest'].hex()}.{i}"
        layout = unpack(await self.blob(t["layout"], in_run(t["layout"])), "drydock.layout.v1")
        endpoint = unpack(await self.blob(t["endpoint"], in_run(t["endpoint"])), "drydock.endpoint.v1")
        digests = []
        if t.get("tiles"):
            raw = unpack(await self.blob(t["tiles"], lambda i: f"{self.root}v.{key[0]}.{key[1]}.d.{rank}.{i}"), "drydock.tiles.v1")["digests"]
            digests = [int.from_bytes(raw[i:i + 8], "little") for i in range(0, len(raw), 8)]
        src = msgpack.unpackb(layout["sources"])
        who, shapes, dtypes = read_names(src), read_tuples(src["shape"]), [DTYPES[c] for c in src["dtype"] or b""]
        shards = [{"source": who[s], "dtype": dtypes[s], "shape": shapes[s], "offset": o, "box": b}
                  for s, o, b in zip(read_deltas(layout["source"]), read_deltas(layout["offset"]), read_tuples(layout["box"]))]
        return {"rank": rank, "nbytes": t["nbytes"], "incarnation": endpoint["incarnation"], "host": endpoint["host"], "shards": shards, "tiles": digests}


async def main():
    p = argparse.ArgumentParser()
    for flag in ("nats", "model", "receiver"):
        p.add_argument("--" + flag, required=True)
    r = Reader(await nats.connect((a := p.parse_args()).nats, max_reconnect_attempts=-1, ping_interval=2), a)
    key, run = await r.newest()
    if key is None:
        raise SystemExit("no committed version")
    man = await r.lease(key)
    tables = [f"{r.root}v.{key[0]}.{key[1]}.t.{rank}" for rank in range(man["world"])]
    found = await r.all_of(tables)
    ranks = [await r.rank(key, i, man, found[s][1]) for i, s in enumerate(tables)]
    await r.release()
    print(json.dumps({"version": f"{key[0]}.{key[1]}", "job": run["job"], "world": man["world"], "ranks": ranks}))
    await r.nc.close()


if __name__ == "__main__":
    asyncio.run(main())
