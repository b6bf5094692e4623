"""The paper's benchmarks: what is known of them, read from any layout, verified, imported."""

from cicf.data.benchmarks.facts import Benchmark, benchmark, benchmarks, is_benchmark
from cicf.data.benchmarks.layouts import load_benchmark, read_benchmark

__all__ = [
    "Benchmark",
    "benchmark",
    "benchmarks",
    "is_benchmark",
    "load_benchmark",
    "read_benchmark",
]
