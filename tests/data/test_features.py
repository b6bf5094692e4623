"""What k-means looks at, and when."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.support.nets import AttentionNet, images, norm_net
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from cicf import Clustering, ConfigError, DataError, cluster_dataset
from cicf.data import dataset_features, pixel_features, pooled_features


def test_pixels_are_block_means() -> None:
    x = torch.randn(2, 3, 8, 8)
    found = pixel_features(x, resolution=4)
    torch.testing.assert_close(found, F.avg_pool2d(x, 2).flatten(1))
    assert pixel_features(x, resolution=16).shape == (2, 192)


def test_default_features_are_what_enters_the_last_linear_layer() -> None:
    model, x = norm_net(), images(5)[0]
    model.eval()
    torch.testing.assert_close(pooled_features(model, x), model[:-1](x).detach())


def test_maps_and_tokens_are_averaged_over_places() -> None:
    model, x = norm_net().eval(), images(5)[0]
    torch.testing.assert_close(
        pooled_features(model, x, layer="stem"), model.stem(x).mean(dim=(2, 3)).detach()
    )
    assert pooled_features(AttentionNet(), x, layer="embed").shape == (5, 16)


def test_model_is_left_in_its_mode_with_its_statistics() -> None:
    model = norm_net()
    model.norm2.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pooled_features(model, images(5)[0])
    assert [module.training for module in (model, model.norm1, model.norm2)] == [True, True, False]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not model.head._forward_pre_hooks


def test_data_set_is_read_in_its_own_order() -> None:
    x, y = images(600)
    features, labels = dataset_features(TensorDataset(x, y), resolution=2)
    assert torch.equal(labels, y)
    torch.testing.assert_close(features, pixel_features(x, resolution=2))


def test_every_image_is_read_once_and_eight_of_them_are_probed() -> None:
    reads: Counter[int] = Counter()

    def item(index: int) -> tuple[Tensor, int]:
        reads[index] += 1
        return torch.zeros(3, 8, 8), index % 2

    cluster_dataset(Items(item, length=600))
    assert sorted(reads) == list(range(600))
    assert Counter(reads.values()) == {1: 592, 3: 8}


def test_clusters_of_a_trained_network_follow_its_features() -> None:
    """The network sees the mean brightness only, so its clusters are those of brightness."""
    x = torch.randn(40, 3, 8, 8) + torch.tensor([0.0, 50.0]).repeat(20)[:, None, None, None]
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    strata = cluster_dataset(
        TensorDataset(x, torch.zeros(40, dtype=torch.int64)), model=model, clusters_per_class=2
    )
    assert strata.cluster.tolist() == [0, 1] * 20


class Items(Dataset[tuple[object, ...]]):
    """Gives what a function makes of an index."""

    def __init__(self, make: Callable[[int], tuple[object, ...]], length: int = 9) -> None:
        self.make, self.length = make, length

    def __getitem__(self, index: int) -> tuple[object, ...]:
        return self.make(index)

    def __len__(self) -> int:
        return self.length


def flipped(index: int) -> tuple[Tensor, int]:
    image = torch.arange(192.0).view(3, 8, 8)
    return (image.flip(2) if torch.rand(()) < 0.5 else image), index % 2


def test_augmented_images_are_refused() -> None:
    refused = 0
    for _ in range(50):
        try:
            cluster_dataset(Items(flipped))
        except DataError as error:
            refused += "without augmentation" in str(error)
    assert refused >= 48


IMAGE = torch.zeros(3, 8, 8)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (TensorDataset(torch.zeros(3, 3, 8, 8)), r"item 0 of the data set must be \(image tensor"),
        (Items(lambda i: (IMAGE, 0), length=0), "no images"),
        (Items(lambda i: (IMAGE[0], 0)), r"image 0 has shape \[8, 8\], but must be"),
        (Items(lambda i: (torch.zeros(3, 8, 8 + i), 0)), "resize all images to one shape"),
        (Items(lambda i: (IMAGE, "cat")), "the label of item 0 must be whole numbers"),
        (Items(lambda i: (IMAGE, 0.5)), "the label of item 0 must be whole numbers"),
        (Items(lambda i: (IMAGE, torch.tensor([1]))), "the label must be whole numbers"),
    ],
)
def test_items_that_are_not_image_and_label_are_refused(data: Items, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        cluster_dataset(data)


def test_images_may_be_bytes_and_models_of_any_precision() -> None:
    x, y = (torch.rand(30, 3, 8, 8) * 255).to(torch.uint8), torch.arange(30) % 2
    as_bytes = dataset_features(TensorDataset(x, y))[0]
    torch.testing.assert_close(as_bytes, dataset_features(TensorDataset(x / 255, y))[0])
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2)).double()
    assert dataset_features(TensorDataset(x, y), model=model)[0].shape == (30, 192)


def test_clustering_leaves_the_random_state_alone() -> None:
    model = norm_net()
    before = torch.get_rng_state()
    cluster_dataset(TensorDataset(*images(30)), model=model)
    cluster_dataset(TensorDataset(*images(30)))
    assert torch.equal(before, torch.get_rng_state())


def test_what_makes_no_features_is_refused() -> None:
    data = TensorDataset(*images(10))
    with pytest.raises(ConfigError, match="pass the model too"):
        cluster_dataset(data, layer="stem")
    with pytest.raises(ConfigError, match="resolution=0 must be"):
        cluster_dataset(data, resolution=0)
    rnn = nn.Sequential(nn.Flatten(2), nn.GRU(64, 4))
    with pytest.raises(ConfigError, match="layer='1' puts out a tuple"):
        cluster_dataset(data, model=rnn, layer="1")


def test_unknown_layer_is_named() -> None:
    with pytest.raises(ConfigError, match=r"layer='norm3' is no module.*did you mean 'norm"):
        pooled_features(norm_net(), images(2)[0], layer="norm3")
    with pytest.raises(ConfigError, match="no linear layer"):
        pooled_features(nn.Conv2d(3, 4, 3), images(2)[0])


def test_clusters_are_made_once_unless_asked_for() -> None:
    assert [e for e in range(9) if Clustering().is_due(e)] == [0]
    assert [e for e in range(9) if Clustering(source="network").is_due(e)] == [0]
    warmed = Clustering(source="network", warmup=2, every=3)
    assert [e for e in range(9) if warmed.is_due(e)] == [0, 2, 5, 8]


def test_pixels_stand_in_until_the_network_is_warm() -> None:
    data, model = TensorDataset(*images(60)), norm_net()
    plan = Clustering(source="network", warmup=2)
    cold, warm = plan.strata(data, model, 0), plan.strata(data, model, 2)
    assert torch.equal(cold.cluster, cluster_dataset(data).cluster)
    assert torch.equal(warm.cluster, cluster_dataset(data, model=model).cluster)
    assert not torch.equal(cold.cluster, warm.cluster)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"source": "text"}, "source='text' must be"),
        ({"warmup": 2}, "warmup=2 must be"),
        ({"every": 2}, "every=2 must be"),
        ({"source": "network", "every": 0}, "every=0 must be"),
    ],
)
def test_plans_that_make_no_sense_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Clustering(**options)
