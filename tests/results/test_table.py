"""Tables of runs: what shares a row, what a cell holds, and what is said beside it."""

import subprocess
import sys
from decimal import Decimal

import pytest
from tests.support.records import PACS, complete, run, scored, whole

from cicf.core import ResultError
from cicf.results import Evaluation, Score
from cicf.results.published import REBUILT
from cicf.results.runs import FoundRun
from cicf.results.table import Cell, Row, Table
from cicf.results.tabulate import make_tables

ONE_SEED = {0: {"art_painting": 70.0, "cartoon": 72.0, "photo": 90.0, "sketch": 60.0}}
TWO_SEEDS = {**ONE_SEED, 1: {"art_painting": 74.0, "cartoon": 74.0, "photo": 92.0, "sketch": 62.0}}


def the_table(runs: list[FoundRun], **options: str) -> Table:
    (found,) = make_tables(runs, **options).tables
    return found


def the_row(runs: list[FoundRun], **options: str) -> Row:
    (found,) = the_table(runs, **options).rows
    return found


def the_average(runs: list[FoundRun]) -> Cell:
    average = the_row(runs).average
    assert average is not None
    return average


def labels(runs: list[FoundRun]) -> list[str]:
    return [row.label for row in the_table(runs).rows]


def footnotes(table: Table, start: str) -> list[str]:
    return [note for note in table.footnotes if note.startswith(start)]


def test_a_cell_holds_mean_and_sample_deviation_over_seeds() -> None:
    cell = the_row([run(p, seed=s) for s, p in enumerate((70.0, 72.0, 77.0))]).cells["sketch"]
    # Deviations from 73 are -3, -1 and 4: 26 / 2 is the sample variance.
    assert cell.mean == pytest.approx(73.0)
    assert cell.std == pytest.approx(13**0.5)
    assert cell.n == 3


def test_one_seed_has_no_deviation() -> None:
    assert the_row([run(70.0)]).cells["sketch"].std is None


def test_values_are_kept_by_seed() -> None:
    cell = the_row([run(70.5, seed=4), run(71.0, seed=2)]).cells["sketch"]
    assert cell.values == {2: 71.0, 4: 70.5}


def test_an_average_is_the_mean_of_the_means_of_all_domains() -> None:
    # 72 + 73 + 91 + 61 are the means.
    assert the_average(complete(TWO_SEEDS)).mean == pytest.approx(297 / 4)


def test_the_deviation_of_an_average_is_over_averages_of_seeds() -> None:
    # 73.0 and 75.5 are the averages of the seeds.
    assert the_average(complete(TWO_SEEDS)).std == pytest.approx(2.5 / 2**0.5)


@pytest.mark.parametrize("target", ["art_painting", "sketch"])
def test_the_deviation_of_an_average_leaves_out_seeds_without_all_domains(target: str) -> None:
    average = the_average([*complete(TWO_SEEDS), run(10.0, seed=2, target=target)])
    assert sorted(average.values) == [0, 1]
    assert average.std == pytest.approx(2.5 / 2**0.5)


def test_the_mean_of_an_average_counts_every_run() -> None:
    average = the_average([*complete(TWO_SEEDS), run(10.0, seed=2)])
    assert average.mean == pytest.approx((72 + 73 + 91 + (60 + 62 + 10) / 3) / 4)


def test_a_row_that_lacks_a_domain_has_no_average() -> None:
    runs = [*complete(ONE_SEED), run(70.0, method="cicf")]
    assert {row.label: row.average is None for row in the_table(runs).rows} == {
        "ERM": False,
        "ERM+CICF": True,
    }


def test_an_average_over_some_of_the_domains_says_so_and_names_the_others() -> None:
    table = the_table([run(70.0, target="photo"), run(60.0, target="sketch")])
    assert table.columns == ("photo", "sketch")
    (row,) = table.rows
    assert row.average is not None
    assert row.average.mean == pytest.approx(65.0)
    assert row.average.published is None
    assert table.average_name == "Avg. of 2"
    (note,) = footnotes(table, "average")
    assert "over photo, sketch alone" in note
    assert "art_painting, cartoon" in note


def test_a_single_domain_has_no_average() -> None:
    table = the_table([run(70.0, target="sketch")])
    assert not table.has_average
    (note,) = footnotes(table, "average")
    assert note.startswith("average: none")


def test_an_average_over_all_domains_needs_no_number() -> None:
    assert the_table(complete(ONE_SEED)).average_name == "Avg."


def test_columns_follow_the_paper_where_it_has_the_table() -> None:
    names = ("sun", "caltech", "pascal", "labelme")
    runs = [
        run(70.0, target=each, data="vlcs", model="alexnet", domains=names, path=each)
        for each in names
    ]
    assert the_table(runs).columns == ("caltech", "labelme", "pascal", "sun")


def test_columns_of_other_data_are_in_alphabetical_order() -> None:
    names = ("wind", "b", "art")
    runs = [run(70.0, target=each, data="mine", domains=names) for each in names]
    assert the_table(runs).columns == ("art", "b", "wind")


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (run(70.0, seed=1, data="office-home"), "data"),
        (run(70.0, seed=1, fingerprint="f" * 16), "fingerprint"),
        (run(70.0, seed=1, part="official test part"), "protocol"),
        (run(70.0, seed=1, model="resnet50"), "model"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_runs_of_different_data_protocol_or_network_share_no_table(
    other: FoundRun, what: str
) -> None:
    tables = make_tables([run(70.0), other]).tables
    assert [len(table.rows) for table in tables] == [1, 1]
    assert len({getattr(table, what) for table in tables}) == 2


@pytest.mark.parametrize(
    ("method", "augment", "label"),
    [
        ("erm", "basic", "ERM"),
        ("maml", "basic", "ERM+MAML"),
        ("cicf", "basic", "ERM+CICF"),
        ("erm", "autoaugment", "ERM*"),
        ("maml", "autoaugment", "ERM*+MAML"),
        ("cicf", "autoaugment", "ERM*+CICF"),
        ("epi_fcr", "basic", "Epi-FCR"),
        ("rsc", "autoaugment", "RSC*"),
        ("pkg.mine:Own", "basic", "pkg.mine:Own"),
        ("ERMine", "autoaugment", "ERMine*"),
    ],
)
def test_rows_are_called_as_in_the_paper(method: str, augment: str, label: str) -> None:
    assert labels([run(70.0, method=method, augment=augment)]) == [label]


def test_rows_end_with_erm_and_what_builds_on_it_as_in_the_paper() -> None:
    names = (("cicf", "basic"), ("erm", "autoaugment"), ("maml", "basic"), ("rsc", "basic"))
    runs = [run(70.0, method=method, augment=augment) for method, augment in names]
    assert labels([*runs, run(70.0)]) == ["RSC", "ERM", "ERM+MAML", "ERM+CICF", "ERM*"]


def test_rows_of_one_label_say_in_what_they_differ() -> None:
    runs = [run(70.0, method="cicf", options={"method.alpha": alpha}) for alpha in (0.5, 0.1)]
    assert labels(runs) == ["ERM+CICF (method.alpha=0.1)", "ERM+CICF (method.alpha=0.5)"]


def test_a_label_shows_three_options_at_most() -> None:
    names = ("optim.lr", "optim.momentum", "epochs", "inner.size")
    runs = [run(70.0, options=dict.fromkeys(names, value)) for value in (1, 2)]
    assert labels(runs) == [
        f"ERM (optim.lr={value}, optim.momentum={value}, epochs={value})" for value in (1, 2)
    ]


def test_rows_that_three_options_do_not_tell_apart_are_numbered() -> None:
    runs = [
        run(70.0, options={"a": a, "b": a, "c": a, "d": d}, seed=seed)
        for seed, (a, d) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1)))
    ]
    assert labels(runs) == [
        "ERM (a=0, b=0, c=0) #1",
        "ERM (a=0, b=0, c=0) #2",
        "ERM (a=1, b=1, c=1) #1",
        "ERM (a=1, b=1, c=1) #2",
    ]


def test_a_row_with_one_option_changed_says_just_that() -> None:
    usual = {"a": 0, "b": 0, "c": 0, "d": 0, "e": 0}
    runs = [run(70.0, options=usual | change) for change in ({}, {"a": 1}, {"d": 2}, {"e": 3})]
    assert sorted(labels(runs)) == ["ERM", "ERM (a=1)", "ERM (d=2)", "ERM (e=3)"]
    assert labels(runs)[0] == "ERM"
    (note,) = footnotes(the_table(runs), "ERM, where a row does not say otherwise")
    assert note.endswith(": a=0, d=0, e=0")


def test_rows_of_a_method_follow_the_numbers_in_their_names() -> None:
    runs = [run(70.0, options={"epochs": epochs}) for epochs in (16, 9, 100)]
    assert labels(runs) == ["ERM (epochs=9)", "ERM (epochs=16)", "ERM (epochs=100)"]


def test_an_option_without_a_usual_value_is_said_by_every_row() -> None:
    runs = [run(70.0, options={"a": a, "b": 0}) for a in (0, 0.5)]
    runs.append(run(70.0, options={"a": 1, "b": 1}))
    assert labels(runs) == ["ERM (a=0)", "ERM (a=0.5)", "ERM (a=1, b=1)"]


def test_rows_with_nothing_unsaid_have_no_note_of_it() -> None:
    runs = [run(70.0, options={"a": a}) for a in (0, 1)]
    assert footnotes(the_table(runs), "ERM, where") == []


@pytest.mark.parametrize(
    "option", ["data.root", "machine.device", "machine.workers", "log_every", "keeps_epochs"]
)
def test_what_decides_no_outcome_makes_no_row(option: str) -> None:
    runs = [run(70.0, seed=seed, options={option: f"value {seed}"}) for seed in (0, 1)]
    assert the_row(runs).cells["sketch"].n == 2


def test_the_paper_is_beside_each_cell() -> None:
    cell = the_row([run(70.5)]).cells["sketch"]
    assert cell.published == Decimal("69.2")
    assert cell.difference == pytest.approx(1.3)


def test_the_paper_with_autoaugment_is_beside_autoaugment() -> None:
    cell = the_row([run(70.5, augment="autoaugment")]).cells["sketch"]
    assert cell.published == Decimal("76.5")


def test_an_average_is_compared_with_the_one_that_follows_from_the_papers_cells() -> None:
    names = ("mnist", "mnist_m", "svhn", "syn")
    runs = [
        run(77.0, method="maml", target=each, data="digits-dg", model="digits_cnn", domains=names)
        for each in names
    ]
    average = the_average(runs)
    assert (average.published, average.recomputed) == (Decimal("76.5"), Decimal("76.3"))
    assert average.difference == pytest.approx(0.7)


def test_an_average_without_cells_is_compared_as_printed() -> None:
    runs = [run(86.0, method="fish", target=each, model="resnet50") for each in PACS]
    row = the_row(runs)
    assert row.cells["photo"].published is None
    assert row.average is not None
    assert (row.average.published, row.average.recomputed) == (Decimal("85.5"), None)
    assert row.average.difference == pytest.approx(0.5)


def test_an_average_over_other_domains_has_no_paper_beside_it() -> None:
    domains = (*PACS, "clay")
    runs = [run(70.0, target=name, domains=domains) for name in domains]
    assert the_average(runs).published is None


def test_a_rebuild_carries_the_caveat() -> None:
    names = ("mnist", "syn")
    table = the_table(
        [run(70.0, data="digits-dg-rebuilt", model="digits_cnn", target="syn", domains=names)]
    )
    assert table.caveat == REBUILT
    assert REBUILT in table.footnotes


def test_the_papers_footnote_to_a_row_stands_below_it() -> None:
    (note,) = footnotes(the_table([run(70.0, method="mixstyle")]), "MixStyle‡")
    assert "official code" in note


def test_single_source_runs_have_no_paper_beside_them() -> None:
    cell = the_row([run(70.0, source="photo")]).cells["photo"]
    assert cell.published is None


def test_single_source_is_the_plain_mean_over_the_tested_domains() -> None:
    percents = {"art_painting": 10.0, "cartoon": 20.0, "sketch": 60.0}
    made = run(percents, source="photo")
    small = made.record.last.test.theta["sketch"].model_copy(update={"correct": 6, "total": 10})
    made.record.last.test.theta["sketch"] = small
    assert the_row([made]).cells["photo"].mean == pytest.approx(30.0)


def test_hold_out_with_a_test_part_counts_all_images_alike() -> None:
    made = whole({"art": 50.0, "photo": 100.0}, tests=True)
    small = made.record.last.test.theta["photo"].model_copy(update={"correct": 500, "total": 500})
    made.record.last.test.theta["photo"] = small
    table = the_table([made])
    assert table.columns == ("test",)
    assert table.rows[0].cells["test"].mean == pytest.approx(100 * 1000 / 1500)


def test_hold_out_without_a_test_shows_source_validation_and_says_why() -> None:
    table = the_table([whole({"art": 50.0, "photo": 80.0}, tests=False)])
    assert table.rows[0].cells["source validation"].mean == pytest.approx(65.0)
    assert "nothing was held out" in footnotes(table, "columns")[0]
    assert not table.has_average


@pytest.mark.parametrize(
    ("select", "percent", "words"),
    [
        ("last", 60.0, "last epoch (headline)"),
        ("best", 70.0, "best source validation"),
        ("oracle", 80.0, "ORACLE: epoch chosen on the target; not comparable"),
    ],
)
def test_the_selection_decides_the_epoch_and_is_named(
    select: str, percent: float, words: str
) -> None:
    epochs = tuple(scored(i + 1, {"sketch": p}) for i, p in enumerate((80.0, 70.0, 60.0)))
    table = the_table([run(0.0, last=epochs[2], best=epochs[1], epochs=epochs)], select=select)
    assert table.rows[0].cells["sketch"].mean == pytest.approx(percent)
    assert f"epoch: {words}" in table.footnotes
    assert ("ORACLE" in table.title) == (select == "oracle")


def test_the_oracle_names_runs_that_kept_no_epochs() -> None:
    epoch = scored(1, {"sketch": 50.0})
    kept = run(0.0, last=epoch, best=epoch, epochs=(epoch,))
    (sentence,) = make_tables([kept, run(70.0, seed=1)], select="oracle").skipped
    assert "erm-basic-sketch-1 kept no epochs" in sentence
    assert "--keep-epochs" in sentence


@pytest.mark.parametrize(
    ("parameters", "percent"), [("deployed", 80.0), ("theta_dagger", 80.0), ("theta", 60.0)]
)
def test_the_parameters_decide_the_number(parameters: str, percent: float) -> None:
    epoch = scored(1, {"sketch": 60.0}, dagger={"sketch": 80.0})
    made = run(0.0, method="cicf", last=epoch, best=epoch, deploy="theta_dagger")
    cell = the_row([made], parameters=parameters).cells["sketch"]
    assert cell.mean == pytest.approx(percent)


def test_the_oracle_chooses_by_the_parameters_that_are_shown() -> None:
    epochs = tuple(
        scored(1, {"sketch": theta}, dagger={"sketch": dagger})
        for theta, dagger in ((40.0, 80.0), (60.0, 70.0))
    )
    made = run(0.0, last=epochs[0], best=epochs[0], epochs=epochs, deploy="theta_dagger")
    cell = the_row([made], select="oracle", parameters="theta").cells["sketch"]
    assert cell.mean == pytest.approx(60.0)


def test_a_method_without_theta_dagger_is_named_where_it_is_asked_for() -> None:
    epoch = scored(1, {"sketch": 60.0}, dagger={"sketch": 80.0})
    cicf = run(0.0, method="cicf", last=epoch, best=epoch)
    (sentence,) = make_tables([cicf, run(70.0)], parameters="theta_dagger").skipped
    assert "erm-basic-sketch-0 is of a method without θ†" in sentence


def test_deployed_parameters_are_named_by_row() -> None:
    epoch = scored(1, {"sketch": 60.0}, dagger={"sketch": 80.0})
    cicf = run(0.0, method="cicf", last=epoch, best=epoch, deploy="theta_dagger")
    (note,) = footnotes(the_table([cicf, run(70.0)]), "parameters")
    assert "θ of ERM; θ† of ERM+CICF" in note


def test_parameters_that_rows_of_one_name_share_are_told_once() -> None:
    epoch = scored(1, {"sketch": 60.0}, dagger={"sketch": 80.0})
    runs = [
        run(0.0, method="cicf", last=epoch, best=epoch, deploy=deploy, options={"a": a})
        for a, deploy in enumerate(("theta_dagger", "theta_dagger"))
    ]
    (note,) = footnotes(the_table([*runs, run(70.0)]), "parameters")
    assert note.endswith("θ of ERM; θ† of ERM+CICF")


def test_rows_of_one_name_with_other_parameters_are_told_apart() -> None:
    epoch = scored(1, {"sketch": 60.0}, dagger={"sketch": 80.0})
    runs = [
        run(0.0, method="cicf", last=epoch, best=epoch, deploy=deploy, options={"a": a})
        for a, deploy in enumerate(("theta_dagger", "theta"))
    ]
    (note,) = footnotes(the_table(runs), "parameters")
    assert note.endswith("θ of ERM+CICF (a=1); θ† of ERM+CICF (a=0)")


def test_a_run_that_repeats_another_is_named_and_the_first_is_used() -> None:
    made = make_tables([run(70.0, path="a"), run(80.0, path="b")])
    assert made.tables[0].rows[0].cells["sketch"].values == {0: 70.0}
    assert made.skipped == ("b has the options, the domain and the seed of a, which is shown",)


def test_the_best_mean_of_a_column_is_marked_and_ties_all_are() -> None:
    runs = [run(p, method=m) for m, p in (("erm", 70.0), ("maml", 71.3), ("cicf", 71.3))]
    marked = {row.label: row.cells["sketch"].is_best for row in the_table(runs).rows}
    assert marked == {"ERM": False, "ERM+MAML": True, "ERM+CICF": True}


def test_the_best_average_is_marked() -> None:
    better = {0: dict.fromkeys(PACS, 80.0)}
    rows = the_table([*complete(ONE_SEED), *complete(better, method="cicf")]).rows
    assert [row.average.is_best for row in rows] == [False, True]


def test_a_single_row_is_not_the_best_of_anything() -> None:
    assert not the_row([run(70.0)]).cells["sketch"].is_best


def test_footnotes_name_protocol_data_and_all_versions() -> None:
    runs = [run(70.0, seed=s, versions={"torch": v}) for s, v in enumerate(("2.7.0", "2.8.0"))]
    table = the_table(runs)
    assert f"protocol: {table.protocol}" in table.footnotes
    assert "data: pacs, fingerprint 0123456789abcdef" in table.footnotes
    assert "versions: torch 2.7.0 and 2.8.0" in table.footnotes


def test_footnotes_name_the_least_and_the_most_seeds_of_a_cell() -> None:
    runs = [*complete(ONE_SEED), run(70.0, seed=1), run(70.0, seed=2)]
    (note,) = footnotes(the_table(runs), "seeds")
    assert note.startswith("seeds: 1–3 a cell")


def test_footnotes_name_the_source_of_the_papers_values() -> None:
    assert footnotes(the_table([run(70.0)]), "paper") == [
        "paper: the paper's table of PACS with ResNet-18"
    ]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"seed": 0}, "data.name=None"),
        ({"seed": 0, "data": {"name": "pacs"}}, "model.name=None"),
        ({"seed": None}, "data.name=None"),
    ],
)
def test_a_run_with_a_foreign_config_is_named(config: dict[str, object], words: str) -> None:
    (sentence,) = make_tables([run(70.0), run(70.0, path="foreign", config=config)]).skipped
    assert sentence.startswith("foreign")
    assert words in sentence


def test_a_score_of_no_images_is_named() -> None:
    broken = run(70.0, seed=1, path="broken")
    score = broken.record.last.test.theta["sketch"]
    broken.record.last.test.theta["sketch"] = score.model_copy(update={"total": 0})
    (sentence,) = make_tables([run(70.0), broken]).skipped
    assert sentence == "broken has a score of no images; run it again"


def test_runs_of_which_none_can_be_shown_are_refused() -> None:
    with pytest.raises(ResultError, match="none of 1 runs goes into a table; the first: erm"):
        make_tables([run(70.0)], select="oracle")


def test_no_runs_are_refused() -> None:
    with pytest.raises(ResultError, match="there is no finished run"):
        make_tables([])


def test_tables_are_made_without_torch_and_numpy() -> None:
    script = (
        "import sys, cicf.results.tabulate;"
        "print(sorted({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_oracle_of_a_single_source_is_best_by_the_number_that_is_shown() -> None:
    domains = ("a", "b", "c")
    # Pooled, the second epoch is better; by the plain mean over domains the first is.
    epochs = (scored(1, {"b": 60.0, "c": 90.0}), scored(2, {"b": 74.0, "c": 70.0}))
    made = run({"b": 74.0, "c": 70.0}, source="a", domains=domains, last=epochs[1], epochs=epochs)
    assert the_row([made], select="oracle").cells["a"].mean == pytest.approx(75.0)
    assert made.record.accuracy() == pytest.approx(72.0)


def test_paper_beside_another_part_of_the_target_carries_a_caveat() -> None:
    vlcs = ("caltech", "labelme", "pascal", "sun")
    other, same = (
        the_table([run(60.0, data="vlcs", model="alexnet", target="sun", domains=vlcs, part=part)])
        for part in ("all images", "official test part")
    )
    said = "the paper's values are for the official test part of the target, ours for all images"
    assert (other.caveat, same.caveat) == (said, None)
    assert said in other.footnotes


def test_notes_and_threads_of_the_runs_are_repeated() -> None:
    setup = run(70.0).record.setup.model_copy(update={"threads": 2, "notes": ("few images",)})
    table = the_table([run(70.0, setup=setup), run(71.0, seed=1)])
    assert "note of 1 of 2 runs: few images" in table.footnotes
    assert footnotes(table, "threads: ") == ["threads: 2; their number changes last bits"]


def test_source_validation_can_be_shown_instead_of_the_target() -> None:
    held = scored(3, {"sketch": 60.0}, validation={"photo": 90.0, "cartoon": 70.0})
    found = run(60.0)
    # Of cartoon there are a quarter as many images, of which 35 are missed.
    few = {**held.validation.theta, "cartoon": Score(correct=215, total=250)}
    held = held.model_copy(update={"validation": Evaluation(theta=few, theta_dagger=None)})
    record = found.record.model_copy(update={"last": held})
    table = the_table([found.model_copy(update={"record": record})], on="validation")
    assert table.title == "pacs, resnet18: accuracy on source validation in %"
    # All validation images together, as epochs are chosen: 900 + 215 of 1250; not (90 + 86) / 2.
    assert table.rows[0].cells["sketch"].mean == pytest.approx(89.2)
    assert footnotes(table, "columns") == [
        "columns: the domain that was held out; numbers are for the validation images of the "
        "sources"
    ]
    assert not footnotes(table, "paper")
    assert table.rows[0].cells["sketch"].published is None


def test_what_was_added_to_a_method_is_in_its_label() -> None:
    swad = {"average.name": "swad"}
    base = {"method.base": {"name": "mixstyle"}}
    runs = [run(70.0), run(71.0, options=swad), run(72.0, method="cicf", options=base)]
    runs.append(run(73.0, method="cicf", options={**base, **swad}))
    assert labels(runs) == [
        "ERM",
        "ERM + SWAD",
        "ERM+CICF + mixstyle",
        "ERM+CICF + mixstyle + SWAD",
    ]


def test_a_method_with_something_added_is_not_compared_with_the_paper() -> None:
    swad = {"average.name": "swad"}
    row = the_row([run(70.0, target=target, options=swad) for target in PACS])
    assert [cell.published for cell in row.cells.values()] == [None] * 4
    assert row.average is not None
    assert row.average.published is None
    assert the_row(complete(ONE_SEED)).cells["sketch"].published is not None
