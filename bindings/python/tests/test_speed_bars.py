"""The verdict of tests/bench/python.py: which figures hold the bars, and which do not. Nothing is measured here."""
import importlib.util
import os

import pytest

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tests", "bench", "python.py")
HELD = {"recall": (.949, .949), "of_c": .95, "us": 10.0}


@pytest.fixture
def missed():
    spec = importlib.util.spec_from_file_location("bench_python", BENCH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda recall, of_c, us: module.missed({
        "recall_c": recall[0], "recall_python": recall[1], "batch_queries_s_of_c": {"time": of_c, "processor": .5},
        "single_us_more_in_python": {"time": {"median": us, "of_fastest_rounds": 99.}, "processor": {"median": 99.}}})


def test_bars_that_are_held(missed):
    assert missed(**HELD) == []
    assert missed((1., 1.), 1.2, -3.) == []


@pytest.mark.parametrize("figure, value, said", [
    ("recall", (.949, .948), "recall 0.948"), ("of_c", .949, "batch: 0.949"), ("us", 10.1, "one by one: 10.1")])
def test_a_bar_that_is_missed(missed, figure, value, said):
    found = missed(**{**HELD, figure: value})
    assert len(found) == 1 and found[0].startswith(said), found
