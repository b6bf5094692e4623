"""The methods: the gradient of each against autograd, what they log, and their options."""

import copy
import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.support.methods import given_for, layout, pictures
from tests.support.nets import CLASSES, images
from tests.support.unrolled import distance, stepped_gradients
from torch import Tensor, nn
from torch.func import functional_call

from cicf import Strata, StratifiedSampler
from cicf.core.draw import Draw, Samples
from cicf.data.domains import DomainDataset
from cicf.data.loader import Draws
from cicf.data.sampling import Sampling, Sizes, make_samplers
from cicf.data.tasks import Tasks
from cicf.data.transforms import HALF, Transform
from cicf.method import Given, Method, MethodConfig
from cicf.methods import METHODS, Cicf, CicfConfig, Erm, ErmConfig, Maml, MamlConfig
from cicf.models.split import SplitModel

quick = settings(max_examples=8, deadline=None)
CUTS = [(), ("stem",)]
"""Before Z: nothing, or the first layer, as with Z_0."""
OF_THE_PAPER = ("erm", "maml", "cicf")
"""These take any draw; others hold to the same in tests of their own, and in test_contract."""
TERMS = {
    "loss",
    "loss_at_theta",
    "inner_loss",
    "step_ratio",
    "cosine",
    "curvature_norm",
    "alpha",
}


def defaults(name: str) -> MethodConfig:
    return METHODS[name].model_validate({})


def network(before: tuple[str, ...] = ()) -> SplitModel:
    """Return a network without kinks, with two layers after `stem`."""
    net = nn.Sequential()
    net.add_module("stem", nn.Conv2d(3, 4, 3, stride=2))
    net.add_module("tanh1", nn.Tanh())
    net.add_module("flat", nn.Flatten())
    net.add_module("body", nn.Linear(36, 6))
    net.add_module("tanh2", nn.Tanh())
    net.add_module("head", nn.Linear(6, CLASSES))
    return SplitModel(net, cut="stem" if before else "input", before=before)


def dataset(num_domains: int) -> DomainDataset:
    """Return 20 images of noise in each domain."""
    count = 20 * num_domains
    stream = torch.Generator().manual_seed(1)
    return DomainDataset(
        torch.randint(256, (count, 3, 8, 8), dtype=torch.uint8, generator=stream),
        torch.randint(CLASSES, (count,), generator=stream),
        torch.arange(num_domains).repeat_interleave(20),
        ("a", "b", "c"),
        ("art", "photo", "sketch")[:num_domains],
    )


def task_draw(tasks: Tasks, num_domains: int) -> Draw:
    """Return what MAML draws in a step: 8 inner and 5 outer images of each task."""
    data = dataset(num_domains)
    sizes = Sizes(8 * num_domains, 5 * num_domains, ())
    samplers = make_samplers(Sampling(tasks), data, sizes, strata=None, seed=0)
    return Draws(data, Transform(8, *HALF, augment="none"), samplers, seed=0)[3]


def samples(size: int, seed: int) -> Samples:
    x, y = images(size, seed)
    return Samples(x, y, torch.zeros_like(y), torch.arange(size))


def clustered_draw() -> Draw:
    """Return what CICF draws in a step: an inner batch from clusters, and an outer batch."""
    pool = samples(40, seed=1)
    strata = Strata(torch.arange(40) % 5, torch.arange(5) % CLASSES)
    places = StratifiedSampler(strata, size=12, seed=0).batch(3)
    return Draw(samples(6, seed=2), Samples(*(field[places] for field in pool)))


def blocks(draw: Draw) -> Iterator[tuple[Samples, Samples]]:
    """Yield the inner and the outer batch of each task."""
    assert draw.inner is not None
    for task in range(draw.tasks):
        yield tuple(
            Samples(*(field.reshape(draw.tasks, -1, *field.shape[1:])[task] for field in part))
            for part in (draw.inner, draw.outer)
        )


def maml_gradients(
    model: SplitModel, draw: Draw, *, alpha: float, order: int
) -> dict[str, Tensor | None]:
    """Return the gradient of mean_t L(θ − α ∇L_tr^t; D_te^t), unrolled (Eq. 11)."""
    parameters = dict(model.named_parameters())
    theta = {name: p for name, p in parameters.items() if not name.startswith(model.h)}
    losses = []
    for inner, outer in blocks(draw):
        inner_loss = F.cross_entropy(functional_call(model, parameters, (inner.x,)), inner.y)
        g = torch.autograd.grad(inner_loss, list(theta.values()), create_graph=order == 2)
        moved = {
            name: value - alpha * slope
            for (name, value), slope in zip(theta.items(), g, strict=True)
        }
        logits = functional_call(model, {**parameters, **moved}, (outer.x,))
        losses.append(F.cross_entropy(logits, outer.y))
    found = torch.autograd.grad(torch.stack(losses).mean(), list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


def gradients(method: Method, model: SplitModel, draw: Draw) -> dict[str, Tensor | None]:
    """Return what one backward of a method leaves in `.grad`, its random draws always the same."""
    model.zero_grad()
    torch.manual_seed(0)
    method.backward(draw)
    return {name: value.clone() for name, value in stepped_gradients(model).items()}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("before", CUTS)
@pytest.mark.parametrize("num_domains", [2, 3])
@pytest.mark.parametrize("tasks", ["within", "cross"])
def test_maml_is_the_mean_over_tasks_of_the_loss_after_a_virtual_step(
    tasks: Tasks, num_domains: int, before: tuple[str, ...], order: int
) -> None:
    model, draw = network(before), task_draw(tasks, num_domains)
    config = MamlConfig(tasks=tasks, alpha=0.3, order=order, max_step_ratio=math.inf)
    found = gradients(config.build(Given(model)), model, draw)
    assert draw.tasks == num_domains
    assert distance(found, maml_gradients(model, draw, alpha=0.3, order=order)) < 1e-10


@pytest.mark.usefixtures("float64")
def test_the_two_orders_of_maml_differ() -> None:
    model, draw = network(("stem",)), task_draw("within", 2)
    first, second = (
        gradients(
            MamlConfig(alpha=0.3, order=order, max_step_ratio=math.inf).build(Given(model)),
            model,
            draw,
        )
        for order in (1, 2)
    )
    assert distance(first, second) > 1e-3


@pytest.mark.usefixtures("float64")
def test_what_lies_before_the_cut_is_not_moved_by_the_virtual_step() -> None:
    model, draw = network(("stem",)), task_draw("within", 2)
    batches = [samples(7, seed=5)]
    method = MamlConfig(alpha=0.3, max_step_ratio=math.inf).build(Given(model))
    state = method.theta_dagger(batches)
    assert state is not None
    assert torch.equal(state["network.stem.weight"], model.network.stem.weight)
    assert not torch.equal(state["network.body.weight"], model.network.body.weight)
    assert gradients(method, model, draw)["network.stem.weight"].abs().max() > 0


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("before", CUTS)
def test_cicf_is_maml_with_other_samplers(before: tuple[str, ...], order: int) -> None:
    model, draw = network(before), clustered_draw()
    options = {"alpha": 0.3, "order": order, "max_step_ratio": 0.1}
    cicf = gradients(CicfConfig(**options).build(Given(model)), model, draw)
    maml = gradients(MamlConfig(**options).build(Given(model)), model, draw)
    assert all(torch.equal(cicf[name], maml[name]) for name in cicf)


def test_cicf_takes_the_tasks_of_maml_to_the_bit() -> None:
    model, draw = network(), task_draw("cross", 3)
    cicf = gradients(CicfConfig(alpha=0.3).build(Given(model)), model, draw)
    maml = gradients(MamlConfig(alpha=0.3).build(Given(model)), model, draw)
    assert all(torch.equal(cicf[name], maml[name]) for name in cicf)


@pytest.mark.usefixtures("float64")
def test_cicf_is_the_loss_of_the_outer_batch_after_a_virtual_step_of_the_inner_one() -> None:
    model, draw = network(("stem",)), clustered_draw()
    config = CicfConfig(alpha=0.3, max_step_ratio=math.inf)
    found = gradients(config.build(Given(model)), model, draw)
    assert distance(found, maml_gradients(model, draw, alpha=0.3, order=2)) < 1e-10


@pytest.mark.usefixtures("float64")
def test_cicf_in_chunks_has_the_same_gradient() -> None:
    model, draw = network(("stem",)), clustered_draw()
    whole, cut = (
        gradients(CicfConfig(alpha=0.3, chunk=chunk).build(Given(model)), model, draw)
        for chunk in (None, 5)
    )
    assert distance(cut, whole) < 1e-10


@pytest.mark.usefixtures("float64")
def test_erm_is_the_mean_cross_entropy() -> None:
    model, draw = network(), Draw(samples(6, seed=2), None)
    found = gradients(ErmConfig().build(Given(model)), model, draw)
    loss = F.cross_entropy(model(draw.outer.x), draw.outer.y)
    expected = torch.autograd.grad(loss, list(model.parameters()))
    names = [name for name, _ in model.named_parameters()]
    assert distance(found, dict(zip(names, expected, strict=True))) < 1e-12


@pytest.mark.parametrize("before", CUTS)
def test_cicf_with_alpha_zero_is_erm(before: tuple[str, ...]) -> None:
    model, draw = network(before), clustered_draw()
    cicf = gradients(CicfConfig(alpha=0.0).build(Given(model)), model, draw)
    erm = gradients(ErmConfig().build(Given(model)), model, draw)
    assert all(torch.equal(cicf[name], erm[name]) for name in erm)


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_gradients_add_up_as_those_of_a_loss_do(name: str) -> None:
    model, draw = network(), clustered_draw()
    method = defaults(name).build(Given(model))
    once = gradients(method, model, draw)
    torch.manual_seed(0)
    method.backward(draw)
    twice = stepped_gradients(model)
    assert all(torch.equal(twice[name], 2 * value) for name, value in once.items())


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_a_backward_leaves_the_parameters_alone(name: str) -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    defaults(name).build(Given(model)).backward(clustered_draw())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize(("name", "terms"), [("erm", {"loss"}), ("maml", TERMS), ("cicf", TERMS)])
def test_the_terms_of_a_step_are_finite_numbers_by_name(name: str, terms: set[str]) -> None:
    logged = defaults(name).build(Given(network())).backward(clustered_draw())
    assert logged.keys() == terms
    assert all(math.isfinite(float(value)) for value in logged.values())


@pytest.mark.parametrize("name", ["maml", "cicf"])
def test_the_loss_at_theta_is_not_measured_where_nobody_reads_it(name: str) -> None:
    model, draw = network(), clustered_draw()
    method = defaults(name).build(Given(model))
    read = gradients(method, model, draw)
    method.is_logged = False
    unread = gradients(method, model, draw)
    assert all(torch.equal(read[key], value) for key, value in unread.items())
    assert math.isnan(float(method.backward(draw)["loss_at_theta"]))


def test_the_loss_of_erm_is_that_of_the_outer_batch() -> None:
    model, draw = network(), clustered_draw()
    logged = ErmConfig().build(Given(model)).backward(draw)
    torch.testing.assert_close(logged["loss"], F.cross_entropy(model(draw.outer.x), draw.outer.y))


@pytest.mark.usefixtures("float64")
def test_the_losses_of_maml_are_means_over_tasks() -> None:
    model, draw = network(), task_draw("within", 3)
    logged = MamlConfig(alpha=0.3, max_step_ratio=math.inf).build(Given(model)).backward(draw)
    after, before, inner_losses = [], [], []
    for inner, outer in blocks(draw):
        moved = copy.deepcopy(model)
        inner_losses.append(F.cross_entropy(moved(inner.x), inner.y))
        before.append(F.cross_entropy(moved(outer.x), outer.y))
        moved.zero_grad()
        inner_losses[-1].backward()
        with torch.no_grad():
            for parameter in moved.parameters():
                parameter -= 0.3 * parameter.grad
        after.append(F.cross_entropy(moved(outer.x), outer.y))
    for name, values in (("loss", after), ("loss_at_theta", before), ("inner_loss", inner_losses)):
        torch.testing.assert_close(logged[name], torch.stack(values).mean().detach())


@quick
@given(alpha=st.floats(0, 1e3), ratio=st.floats(1e-3, 1), tasks=st.sampled_from([1, 2, 3]))
def test_the_logged_step_ratio_never_exceeds_the_bound(
    alpha: float, ratio: float, tasks: int
) -> None:
    torch.manual_seed(0)
    method = MamlConfig(alpha=alpha, max_step_ratio=ratio).build(Given(network(("stem",))))
    logged = method.backward(clustered_draw()._replace(tasks=tasks))
    assert float(logged["step_ratio"]) <= ratio * (1 + 1e-6)
    assert logged["alpha"] <= alpha * (1 + 1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("before", CUTS)
def test_alpha_is_lowered_to_what_the_ratio_allows(before: tuple[str, ...]) -> None:
    model, draw = network(before), clustered_draw()
    logged = CicfConfig(alpha=1e3, max_step_ratio=0.02).build(Given(model)).backward(draw)
    theta = [p for name, p in model.named_parameters() if not name.startswith(model.h)]
    loss = F.cross_entropy(model(draw.inner.x), draw.inner.y)
    g = torch.cat([slope.flatten() for slope in torch.autograd.grad(loss, theta)])
    size = torch.cat([parameter.detach().flatten() for parameter in theta]).norm()
    assert logged["alpha"] == pytest.approx(float(0.02 * size / g.norm()), rel=1e-12)


@pytest.mark.parametrize("ratio", [1e3, math.inf])
def test_alpha_within_the_bound_is_untouched(ratio: float) -> None:
    config = CicfConfig(alpha=0.3, max_step_ratio=ratio)
    assert config.build(Given(network())).backward(clustered_draw())["alpha"] == 0.3


@pytest.mark.usefixtures("float64")
def test_the_bounded_gradient_is_that_of_a_plain_step_of_the_lowered_alpha() -> None:
    model, draw = network(("stem",)), clustered_draw()
    alpha = CicfConfig(alpha=1e3).build(Given(model)).backward(draw)["alpha"]
    found = gradients(CicfConfig(alpha=1e3).build(Given(model)), model, draw)
    assert alpha < 1e3
    assert distance(found, maml_gradients(model, draw, alpha=alpha, order=2)) < 1e-10


@pytest.mark.parametrize(("name", "kind"), [("erm", Erm), ("maml", Maml), ("cicf", Cicf)])
def test_options_build_the_method_of_their_name(name: str, kind: type[Method]) -> None:
    config = defaults(name)
    assert config.name == name
    assert type(config.build(Given(network()))) is kind


@pytest.mark.parametrize(
    ("config", "sampling"),
    [
        (ErmConfig(), Sampling(None)),
        (MamlConfig(), Sampling("within")),
        (MamlConfig(tasks="cross"), Sampling("cross")),
        (CicfConfig(), Sampling("clusters", "proportional", "systematic")),
        (
            CicfConfig(sampling="class-weighted", scheme="balanced", rounding="fixed"),
            Sampling("class-weighted", "balanced", "fixed"),
        ),
    ],
)
def test_a_method_draws_what_its_options_say(config: MethodConfig, sampling: Sampling) -> None:
    assert config.build(Given(network())).sampling == sampling


@pytest.mark.parametrize("name", ["erm", "maml"])
def test_erm_and_maml_as_published_keep_theta(name: str) -> None:
    assert defaults(name).deploy == "theta"


def test_cicf_keeps_theta_dagger_where_its_loss_is_minimised() -> None:
    assert CicfConfig().deploy == "theta_dagger"


@pytest.mark.parametrize("name", METHODS)
def test_an_unknown_option_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        METHODS[name].model_validate({"alhpa": 0.1})


@pytest.mark.parametrize("kind", [MamlConfig, CicfConfig])
@pytest.mark.parametrize(
    "options",
    [
        {"alpha": -0.1},
        {"max_step_ratio": 0.0},
        {"order": 3},
        {"chunk": 0},
        {"curvature": 0.0},
        {"batch_norm": "none"},
        {"name": "erm"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_without_sense_are_refused(
    kind: type[MethodConfig], options: dict[str, object]
) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        kind.model_validate(options)


def test_erm_has_no_theta_dagger_to_keep() -> None:
    with pytest.raises(ValidationError, match="deploy"):
        ErmConfig.model_validate({"deploy": "theta_dagger"})


@pytest.mark.parametrize("name", METHODS)
def test_options_are_fixed_once_made(name: str) -> None:
    config = defaults(name)
    with pytest.raises(ValidationError, match="frozen"):
        config.deploy = "theta"


def test_options_survive_a_file_with_an_infinite_bound() -> None:
    config = CicfConfig(alpha=0.3, max_step_ratio=math.inf)
    assert CicfConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("name", METHODS)
def test_the_model_is_no_part_of_the_method(name: str) -> None:
    method = defaults(name).build(given_for(layout(), pictures(3)))
    assert not any(key.startswith(("_model", "network")) for key in method.state_dict())
    assert method.model not in list(method.modules())
    assert not set(method.parameters()) & set(method.model.parameters())
