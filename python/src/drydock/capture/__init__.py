"""Captures: what an engine's own loaders copy where, recorded without a GPU and without weights.

    schema      the file format drydock.capture.v1, as data
    writes      which of a parameter's writes are left at the end, and whether they cover it; pure arithmetic
    recorder    watches a loader at work on tensors that need no memory, and follows each source through its views
    checkpoint  what a model folder's checkpoint holds: names, types and shapes
    installed   which versions are installed, without importing them
    simulated   builds vLLM's model for one rank of a group that isn't there
    replay      does what a capture says, with real tensors: compares two captures, makes an arena
    cli         drydock-capture

Law: a copy that is in a capture moves bytes and nothing else (a cast aside). Wherever a loader computes, the parameter is
excluded by name, with what it does; it is never recorded as a copy of something else.
"""
