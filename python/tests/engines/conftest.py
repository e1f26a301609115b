"""Marks of the engine tests. `pytest -m vllm` runs those that need vLLM, which are skipped where it can't be imported."""

import importlib.util

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "vllm: needs vLLM")


def pytest_collection_modifyitems(items):
    if importlib.util.find_spec("vllm") is not None:
        return
    for item in items:
        if "vllm" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="vllm is not installed: make test-vllm"))
