"""Counts in the text format of Prometheus."""

from __future__ import annotations

from regard.serve.metrics import Histogram, Metrics


def test_a_histogram_cumulates() -> None:
    found = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 9):
        found.add(value)
    assert found.lines("seconds", ()) == [
        'seconds_bucket{le="1"} 2',
        'seconds_bucket{le="2"} 3',
        'seconds_bucket{le="+Inf"} 4',
        "seconds_sum{} 12",
        "seconds_count{} 4",
    ]


def test_labels_are_escaped_and_every_metric_says_what_it_is() -> None:
    metrics = Metrics()
    metrics.waiting = {'a"b\\c\nd': lambda: 3}
    metrics.answered("/api/translate", 200, 0.2)
    metrics.worked("m", 5)
    metrics.wrote("m", 7)
    metrics.left("m")
    lines = metrics.text().splitlines()
    assert 'regard_waiting{model="a\\"b\\\\c\\nd"} 3' in lines
    assert 'regard_requests_total{route="/api/translate",status="200"} 1' in lines
    assert 'regard_batch_rows_bucket{model="m",le="8"} 1' in lines
    assert 'regard_tokens_total{model="m"} 7' in lines
    assert 'regard_abandoned_total{model="m"} 1' in lines
    named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    for line in lines:
        if not line.startswith("#"):
            name = line.partition("{")[0]
            assert name in named or name.rpartition("_")[0] in named
