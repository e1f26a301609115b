"""The states of an update: what is refused, and that nothing but an apply changes what serves."""

import pytest
from test_arenafile import blob, entry

from drydock.engines import session
from drydock.engines.arenafile import ArenaError
from drydock.engines.session import Announcement, Session

WANT = {"w": ("U8", (4,))}


@pytest.fixture
def make(tmp_path):
    """Writes the arena of a version and announces it."""

    def arena(version, run=7, rank=1, **changes):
        path = tmp_path / f"v{version}.safetensors"
        label = {"model": "org/m", "run": run, "version": version, "rank": rank, "layout": "d"}
        path.write_bytes(blob({"w": entry("U8", [4], 0, 4)}, 4, {f"drydock.{k}": str(v) for k, v in label.items()}))
        said = {"model": "org/m", "run": run, "version": version, "rank": 1, "layout": "d", "owner": "me", **changes}
        return Announcement(files=[str(path)], **said)

    return arena


@pytest.fixture
def s(tmp_path):
    made = Session()
    made.claim(str(tmp_path), "me", False)
    return made


def apply(s, a):
    s.start()
    s.stage(a, 1, WANT)
    s.applied(s.staged)


def test_a_version_is_staged_then_serves(s, make):
    s.start()
    assert s.state == session.OPEN
    s.stage(make(1), 1, WANT)
    assert (s.state, s.serving, s.in_hand) == (session.STAGED, None, "7.1")
    s.applied(s.staged)
    assert (s.status()["serving"], s.state, s.in_hand) == ("7.1", session.APPLIED, "7.1")
    s.done()
    assert s.in_hand == ""


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"owner": "you"}, "updated by 'me'"),
        ({"rank": 0}, "announcement is for rank 0"),
        ({"model": "other"}, "label says model 'org/m'"),
        ({"layout": "e"}, "label says layout 'd'"),
        ({"run": 0}, "no version"),
        ({"version": 2}, "label says version 1"),
    ],
)
def test_wrong_announcements(s, make, changes, says):
    a = make(1)
    for k, v in changes.items():
        setattr(a, k, v)
    s.start()
    with pytest.raises(ArenaError, match=says):
        s.stage(a, 1, WANT)
    assert s.staged is None and s.serving is None


def test_a_swapped_file(s, make):
    s.start()
    with pytest.raises(ArenaError, match="label says rank 0"):
        s.stage(make(1, rank=0), 1, WANT)


@pytest.mark.parametrize("want", [{}, {"w": ("U8", (2, 2))}, {"w": ("I8", (4,))}, {**WANT, "more": ("U8", ())}])
def test_wrong_tensors(s, make, want):
    s.start()
    with pytest.raises(ArenaError, match="the engine needs"):
        s.stage(make(1), 1, want)


def test_files(s, make, tmp_path):
    s.start()
    for files in ([], [str(tmp_path / "v1.safetensors")] * 2):
        a = make(1)
        a.files = files
        with pytest.raises(ArenaError, match="expected its one arena"):
            s.stage(a, 1, WANT)
    a = make(1)
    s.root = str(tmp_path / "elsewhere")
    with pytest.raises(ArenaError, match="outside"):
        s.stage(a, 1, WANT)


def test_an_older_version_needs_to_be_said(s, make):
    apply(s, make(5))
    for older in (make(4), make(9, run=6)):
        s.start()
        with pytest.raises(ArenaError, match=r"older than 7\.5, which serves"):
            s.stage(older, 1, WANT)
        older.back = True
        s.stage(older, 1, WANT)


def test_owners(s):
    with pytest.raises(ArenaError, match="updated by me"):
        s.claim("/r", "you", False)
    s.claim("/r", "me", False)
    s.claim("/r", "you", True)
    assert s.owner == "you"
    s.release()
    s.claim("/r", "me", False)
    with pytest.raises(ArenaError, match="both are needed"):
        Session().claim("", "me", False)


def test_before_init(make):
    with pytest.raises(ArenaError, match="before init"):
        Session().stage(make(1), 1, WANT)


def test_abort_and_refusal_leave_what_serves(s, make):
    apply(s, make(1))
    s.start()
    s.stage(make(2), 1, WANT)
    s.abort()
    assert (s.state, s.staged, s.serving.label) == (session.ABORTED, None, "7.1")
    s.start()
    s.refuse(ArenaError("why"))
    assert (s.state, s.error, s.serving.label) == (session.REFUSED, "why", "7.1")


def test_going_back(s, make):
    one, two = make(1), make(2)
    apply(s, one)
    apply(s, two)
    apply(s, make(2))  # the same again: what is before stays
    assert s.previous is one
    s.went_back()
    assert (s.serving, s.state) == (one, session.UNDONE)


def test_broken_stays_broken_until_a_version_is_applied(s, make):
    apply(s, make(1))
    s.broke(RuntimeError("no memory"))
    assert (s.state, s.serving, s.previous.label, s.error) == (session.BROKEN, None, "7.1", "RuntimeError: no memory")
    s.broke(RuntimeError("again"))
    assert s.previous.label == "7.1"
    s.start()
    s.refuse(ArenaError("bad file"))
    s.abort()
    assert s.state == session.BROKEN
    s.stage(make(0), 1, WANT)  # any version mends it, an older one too
    assert s.state == session.BROKEN and s.status()["staged"] == "7.0"
    s.applied(s.staged)
    assert (s.state, s.serving.label) == (session.APPLIED, "7.0")


def test_errors_are_bounded(s):
    s.refuse(ValueError("x" * 10_000))
    assert len(s.status()["error"]) == session.MAX_ERROR
