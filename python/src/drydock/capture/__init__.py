"""Captures: what an engine's own loaders copy where."""
