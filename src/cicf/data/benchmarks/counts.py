"""How many images of each class a benchmark has, against how many it should have."""

from collections import Counter
from collections.abc import Iterable

from cicf.data.benchmarks.facts import Benchmark

MOST_NAMED = 3
"""How many classes a sentence names before it only counts them."""


def counted(pairs: Iterable[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Return the number of images by domain and class."""
    return Counter(pairs)


def differences(benchmark: Benchmark, found: Counter[tuple[str, str]]) -> list[str]:
    """Return, for each domain whose counts are not the official ones, what differs."""
    return [
        text
        for domain in benchmark.domains
        if (text := _difference(benchmark, domain, found)) is not None
    ]


def _difference(benchmark: Benchmark, domain: str, found: Counter[tuple[str, str]]) -> str | None:
    official = sum(benchmark.counts[domain])
    total = sum(found[domain, label] for label in benchmark.classes)
    if not total:
        return f"{domain} has none of its {official} images"
    off = [
        f"{label} {found[domain, label]} of {benchmark.official(domain, label)}"
        for label in benchmark.classes
        if found[domain, label] != benchmark.official(domain, label)
    ]
    if not off:
        return None
    more = f", and {len(off) - MOST_NAMED} more classes" if len(off) > MOST_NAMED else ""
    return f"{domain} has {total} of {official} images ({', '.join(off[:MOST_NAMED])}{more})"
