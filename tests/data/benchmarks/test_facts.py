"""The facts of the benchmarks, against numbers copied from the published tables."""

import pytest
from tests.support.benchmarks import PACS, VLCS, VLCS_TEST, office_home_counts

from cicf import DataError
from cicf.data.benchmarks.facts import Benchmark, benchmark, benchmarks, is_benchmark

TOTALS = {
    "pacs": {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929},
    "vlcs": {"caltech": 1415, "labelme": 2656, "pascal": 3376, "sun": 3282},
    "office-home": {"art": 2427, "clipart": 4365, "product": 4439, "real_world": 4357},
    "digits-dg": {"mnist": 6000, "mnist_m": 6000, "svhn": 6000, "syn": 6000},
    "digits-dg-rebuilt": {"mnist": 6000, "mnist_m": 6000, "svhn": 6000, "syn": 6000},
}
ALL_IMAGES = {
    "pacs": 9991,
    "vlcs": 10729,
    "office-home": 15588,
    "digits-dg": 24000,
    "digits-dg-rebuilt": 24000,
}
EVERY = sorted(TOTALS)


def test_the_papers_four_and_the_stand_in_are_known() -> None:
    assert set(benchmarks()) == set(TOTALS)


@pytest.mark.parametrize("name", EVERY)
def test_domains_come_in_the_papers_order_with_their_totals(name: str) -> None:
    found = {domain: sum(counts) for domain, counts in benchmark(name).counts.items()}
    assert list(found.items()) == list(TOTALS[name].items())
    assert list(benchmark(name).domains) == list(TOTALS[name])


@pytest.mark.parametrize("name", EVERY)
def test_totals_are_those_of_the_data_set(name: str) -> None:
    assert benchmark(name).total == ALL_IMAGES[name]


@pytest.mark.parametrize("name", EVERY)
def test_every_domain_counts_every_class(name: str) -> None:
    known = benchmark(name)
    assert {len(counts) for counts in known.counts.values()} == {len(known.classes)}


@pytest.mark.parametrize("name", EVERY)
def test_classes_are_in_alphabetical_order(name: str) -> None:
    assert list(benchmark(name).classes) == sorted(benchmark(name).classes)


def test_classes_of_pacs_have_the_published_counts() -> None:
    assert benchmark("pacs").counts == PACS


def test_classes_of_vlcs_have_the_published_counts() -> None:
    assert list(benchmark("vlcs").counts.values()) == list(VLCS.values())


def test_classes_of_office_home_have_the_published_counts() -> None:
    known = benchmark("office-home")
    for found, published in zip(known.counts.values(), office_home_counts().values(), strict=True):
        assert dict(zip(known.classes, found, strict=True)) == published


@pytest.mark.parametrize(
    ("domain", "label", "count"),
    [("art", "Drill", 15), ("clipart", "ToothBrush", 39), ("real_world", "Marker", 23)],
)
def test_smallest_classes_of_office_home_are_the_published_ones(
    domain: str, label: str, count: int
) -> None:
    known = benchmark("office-home")
    assert known.official(domain, label) == count == min(known.counts[domain])


def test_official_parts_of_pacs_make_up_each_domain() -> None:
    parts = benchmark("pacs").parts
    assert parts["art_painting"] == {"train": 1840, "validation": 208}
    assert {name: sum(found.values()) for name, found in parts.items()} == TOTALS["pacs"]


@pytest.mark.parametrize("name", ["digits-dg", "digits-dg-rebuilt"])
def test_digits_are_split_four_to_one(name: str) -> None:
    known = benchmark(name)
    assert list(known.parts.values()) == [{"train": 4800, "validation": 1200}] * 4
    assert known.validation == 0.2


def test_test_part_of_vlcs_is_what_its_classes_sum_to() -> None:
    found = [parts["test"] for parts in benchmark("vlcs").parts.values()]
    assert found == [sum(counts) for counts in VLCS_TEST.values()]


@pytest.mark.parametrize(
    ("name", "spelled", "domain"),
    [
        ("pacs", "art", "art_painting"),
        ("pacs", "S", "sketch"),
        ("office-home", "Real World", "real_world"),
        ("office-home", "Real_World", "real_world"),
        ("office-home", "RealWorld", "real_world"),
        ("office-home", "Rw", "real_world"),
        ("vlcs", "Caltech101", "caltech"),
        ("vlcs", "LABELME", "labelme"),
        ("vlcs", "VOC2007", "pascal"),
        ("vlcs", "V", "pascal"),
        ("vlcs", "SUN09", "sun"),
        ("digits-dg", "MNIST-M", "mnist_m"),
        ("digits-dg", "mnistm", "mnist_m"),
    ],
)
def test_domains_are_found_by_the_names_in_use(name: str, spelled: str, domain: str) -> None:
    assert benchmark(name).domain(spelled) == domain


@pytest.mark.parametrize("name", EVERY)
def test_no_name_of_a_domain_is_another_domains_or_a_part(name: str) -> None:
    known = benchmark(name)
    spelled = [each for own, others in known.domains.items() for each in (own, *others)]
    assert [known.domain(each) for each in spelled] == [
        own for own, others in known.domains.items() for _ in (own, *others)
    ]
    assert not {"train", "val", "test", "full"} & set(spelled)


def test_classes_are_found_however_they_are_spelled() -> None:
    known = benchmark("office-home")
    assert known.label("alarm clock") == known.label("Alarm-Clock") == "Alarm_Clock"
    assert known.label("Lamp") is None


def test_numbers_name_classes_only_where_folders_have_them() -> None:
    assert benchmark("vlcs").label("3") == "dog"
    assert benchmark("vlcs").label("5") is None
    assert benchmark("pacs").label("0") is None


def test_benchmarks_are_found_however_they_are_spelled() -> None:
    assert benchmark("Office_Home") is benchmark("officehome") is benchmark("office-home")
    assert benchmark("digits_dg").name == "digits-dg"


def test_a_path_is_no_benchmark() -> None:
    assert is_benchmark("PACS")
    assert not is_benchmark("data/pacs")


def test_misspelt_benchmark_is_guessed() -> None:
    with pytest.raises(
        DataError, match=r"'office-hom' is no benchmark; did you mean 'office-home'"
    ):
        benchmark("office-hom")


def test_stand_in_has_a_title_of_its_own() -> None:
    titles = [known.title for known in benchmarks().values()]
    assert titles.count("Digits-DG") == titles.count("Digits-DG (rebuilt)") == 1


@pytest.mark.parametrize("known", benchmarks().values(), ids=lambda known: known.name)
def test_every_benchmark_says_where_it_is_and_under_which_licence(known: Benchmark) -> None:
    assert known.obtained
    assert "stated" in known.licence
