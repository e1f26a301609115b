"""The column codings of docs/wire.md section 2, both ways."""
import os


def plain(values):
    out = bytearray()
    for v in values:
        while v > 0x7F:
            out.append(v & 0x7F | 0x80)
            v >>= 7
        out.append(v)
    return bytes(out)


def deltas(values):
    prev, zigzag = 0, []
    for v in values:
        zigzag.append((v - prev) << 1 if v >= prev else ((prev - v) << 1) - 1)
        prev = v
    return plain(zigzag)


def tuples(rows):
    order = list(dict.fromkeys(rows))
    index = {t: i for i, t in enumerate(order)}
    return {"index": deltas([index[r] for r in rows]), "lens": bytes(len(t) for t in order), "values": plain([v for t in order for v in t])}


def names(list_):
    prefix, suffix, text, prev = [], [], b"", b""
    for name in (n.encode() for n in list_):
        k = len(os.path.commonprefix([prev, name]))
        prefix.append(k), suffix.append(len(name) - k)
        text, prev = text + name[k:], name
    return {"prefix": plain(prefix), "suffix": plain(suffix), "text": text}


def read_plain(column):
    values, v, shift = [], 0, 0
    for c in column or b"":
        v |= (c & 0x7F) << shift
        shift += 7
        if c < 0x80:
            values.append(v)
            v, shift = 0, 0
    return values


def read_deltas(column):
    values, v = [], 0
    for z in read_plain(column):
        v += (z >> 1) ^ -(z & 1)
        values.append(v)
    return values


def read_tuples(t):
    values, dictionary = read_plain(t["values"]), []
    for n in t["lens"]:
        dictionary.append(values[:n])
        values = values[n:]
    return [dictionary[i] for i in read_deltas(t["index"])]


def read_names(s):
    out, prev, text = [], b"", s["text"] or b""
    for k, n in zip(read_plain(s["prefix"]), read_plain(s["suffix"])):
        prev, text = prev[:k] + text[:n], text[n:]
        out.append(prev.decode())
    return out
