"""Clustering-then-sampling as statistics: N_k, Eq. 12 to 21 and the gap E.

`sizes` are the N_k^K (images in cluster k), `counts` the N_k (places of cluster k in a batch of
M = Σ N_k), `g` one gradient per image. What the paper calls a standard error is a variance: the
trace E‖ĝ − μ‖² of a draw without replacement, with σ² taken with divisor N.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicf.core import ConfigError


def proportional_counts(sizes: Int[Tensor, " k"], m: int, offset: int) -> Int[Tensor, " k"]:
    """Return N_k = M P(K_k) rounded systematically by an offset drawn uniformly from 0 … N − 1.

    For every offset Σ N_k = M and |N_k − M P(K_k)| < 1; over the offsets the mean of N_k is
    M P(K_k) exactly, so that Eq. 7 stays unbiased for clusters smaller than N / M.
    """
    n = int(sizes.sum())
    assert 0 <= offset < n
    edges = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return ((edges * m + offset) // n).diff()


def largest_remainder_counts(sizes: Int[Tensor, " k"], m: int) -> Int[Tensor, " k"]:
    """Return N_k = M P(K_k) rounded once and for all; Σ N_k = M.

    Of clusters smaller than N / M some get no place, ever, which biases Eq. 7.
    """
    n = int(sizes.sum())
    counts = sizes * m // n
    remainders = sizes * m % n
    left = m - int(counts.sum())
    counts[remainders.argsort(descending=True, stable=True)[:left]] += 1
    return counts


def balanced_counts(num_clusters: int, m: int, turn: int) -> Int[Tensor, " k"]:
    """Return N_k = M / K†, the places left over going to the next clusters at every turn.

    After K† turns every cluster has had the same number of places, also when K† > M.
    """
    base, left = divmod(m, num_clusters)
    counts = torch.full((num_clusters,), base, dtype=torch.int64)
    counts[(torch.arange(left) + turn * left) % num_clusters] += 1
    return counts


def gap(counts: Int[Tensor, " k"], random_counts: Int[Tensor, " k"]) -> int:
    """Return E = Σ_k |N_k − R_k|, how far a random batch is from the stratified one."""
    return int((counts - random_counts).abs().sum())


def global_scope_gradient(g: Float[Tensor, "n p"]) -> Float[Tensor, " p"]:
    """Return g† = Σ_i g_i P(x_i) with P(x_i) = 1 / N, the traversal of all images (Eq. 12)."""
    return g.mean(dim=0)


def batch_gradient(g: Float[Tensor, "n p"], batch: Int[Tensor, " m"]) -> Float[Tensor, " p"]:
    """Return the mean gradient of the images drawn: g_random of Eq. 13, g_ours of Eq. 17."""
    return g[batch].mean(dim=0)


def expected_random_gradient(g: Float[Tensor, "n p"]) -> Float[Tensor, " p"]:
    """Return E(g_random) = μ, the traversal's own value (Eq. 14)."""
    return global_scope_gradient(g)


def variance(g: Float[Tensor, "n p"]) -> Float[Tensor, ""]:
    """Return σ² = E‖g − μ‖² over the images, with divisor N."""
    return (g - g.mean(dim=0)).square().sum(dim=1).mean()


def random_standard_error(sigma_squared: Float[Tensor, ""], *, m: int, n: int) -> Float[Tensor, ""]:
    """Return SE_random = σ² / M (1 − (M − 1) / (N − 1)) (Eq. 15); 0 when M = N."""
    if not 1 <= m <= n:
        raise ConfigError(f"M={m} must lie between 1 and N={n}, the number of images; change M")
    return sigma_squared / m * _finite_population(m, n)


def random_standard_error_approximation(
    sigma_squared: Float[Tensor, ""], *, m: int
) -> Float[Tensor, ""]:
    """Return SE_random ≈ σ² / M for M ≪ N (Eq. 16)."""
    return sigma_squared / m


class Clusters(NamedTuple):
    """Holds what the statistics need of K† clusters: sizes N_k^K, means μ_k, variances σ_k²."""

    sizes: Int[Tensor, " k"]
    means: Float[Tensor, "k p"]
    variances: Float[Tensor, " k"]

    @property
    def shares(self) -> Float[Tensor, " k"]:
        """Return P(K_k) = N_k^K / N."""
        return self.sizes.to(self.means.dtype) / self.sizes.sum()


def cluster_moments(g: Float[Tensor, "n p"], cluster: Int[Tensor, " n"]) -> Clusters:
    """Return N_k^K, μ_k and σ_k² of the gradients; every id from 0 to K† − 1 must occur."""
    sizes = cluster.bincount()
    means = g.new_zeros(len(sizes), g.shape[1]).index_add_(0, cluster, g) / sizes[:, None]
    squares = (g - means[cluster]).square().sum(dim=1)
    return Clusters(sizes, means, g.new_zeros(len(sizes)).index_add_(0, cluster, squares) / sizes)


def expected_stratified_gradient(
    clusters: Clusters, counts: Int[Tensor, " k"]
) -> Float[Tensor, " p"]:
    """Return E(g_ours) = Σ_k N_k / M μ_k (Eq. 18); μ when N_k = M P(K_k) exactly."""
    return (counts.to(clusters.means.dtype) / counts.sum()) @ clusters.means


def stratified_standard_error(clusters: Clusters, counts: Int[Tensor, " k"]) -> Float[Tensor, ""]:
    """Return SE_ours = Σ_k P(K_k)² / N_k (1 − (N_k − 1) / (N_k^K − 1)) σ_k² (Eq. 19).

    This is the error of Σ_k P(K_k) ĝ_k; Eq. 7 weights by N_k / M instead: see `estimator_error`.
    """
    outside = (counts < 1) | (counts > clusters.sizes)
    if bool(outside.any()):
        k = int(outside.nonzero()[0])
        raise ConfigError(
            f"N_k={int(counts[k])} for cluster {k} of {int(clusters.sizes[k])}, but Eq. 19 holds "
            "for 1 to all images of a cluster; use estimator_error, which holds for any N_k"
        )
    terms = clusters.shares.square() / counts * clusters.variances
    return (terms * _finite_populations(counts, clusters)).sum()


def stratified_standard_error_approximation(clusters: Clusters, *, m: int) -> Float[Tensor, ""]:
    """Return SE_ours ≈ Σ_k P(K_k) / M σ_k² for N_k = M P(K_k) ≪ N_k^K (Eq. 20).

    It never exceeds Eq. 16: the variance within clusters is part of the variance.
    """
    return (clusters.shares * clusters.variances).sum() / m


class ErrorBound(NamedTuple):
    """Holds the members of Eq. 21, left to right."""

    ours: Float[Tensor, ""]
    largest_cluster: Float[Tensor, ""]
    random: Float[Tensor, ""]


def stratified_error_bound(
    clusters: Clusters, sigma_squared: Float[Tensor, ""], *, m: int
) -> ErrorBound:
    """Return SE_ours ≤ (σ_k²)_max / M < σ² / M = SE_random, member by member (Eq. 21).

    The first inequality always holds. The second assumes that every σ_k² is below σ², which is
    false in general: ours ≤ random holds without it, but not by way of the middle member.
    """
    return ErrorBound(
        ours=stratified_standard_error_approximation(clusters, m=m),
        largest_cluster=clusters.variances.max() / m,
        random=random_standard_error_approximation(sigma_squared, m=m),
    )


class EstimatorError(NamedTuple):
    """Holds the two parts of E‖g† − μ‖²."""

    variance: Float[Tensor, ""]
    bias_squared: Float[Tensor, ""]


def estimator_error(clusters: Clusters, counts: Int[Tensor, " k"]) -> EstimatorError:
    """Return variance and bias² of Eq. 7 for any given N_k: rounded, balanced, 0, or above N_k^K.

    A cluster drawn more often than it has images is taken whole as often as it goes, which has no
    variance, and the rest is a draw without replacement.
    """
    m = counts.sum()
    rest = counts % clusters.sizes
    within = rest * _finite_populations(rest, clusters) * clusters.variances
    bias = expected_stratified_gradient(clusters, counts) - clusters.shares @ clusters.means
    return EstimatorError(within.sum() / m**2, bias.square().sum())


def stratified_part(
    cluster: Int[Tensor, " m"], part: float, generator: torch.Generator
) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
    """Return places of the batch, n_k ≥ 1 of every cluster in it, and their weights N_k / n_k.

    A weighted sum over the places estimates the sum over the batch without bias.
    """
    _, cluster, counts = cluster.unique(return_inverse=True, return_counts=True)
    kept = (counts * part).round().long().clamp(min=1)
    order = torch.randperm(len(cluster), generator=generator)
    order = order[cluster[order].argsort(stable=True)]
    rank = torch.arange(len(order)) - (counts.cumsum(0) - counts)[cluster[order]]
    places = order[rank < kept[cluster[order]]]
    return places, (counts.double() / kept)[cluster[places]]


def _finite_population(m: int, n: int) -> float:
    return 0.0 if n == 1 else 1 - (m - 1) / (n - 1)


def _finite_populations(counts: Int[Tensor, " k"], clusters: Clusters) -> Float[Tensor, " k"]:
    """Return 1 − (N_k − 1) / (N_k^K − 1); 0 for a cluster of one, which has no variance to give."""
    others = (clusters.sizes - 1).clamp(min=1).to(clusters.variances.dtype)
    return torch.where(clusters.sizes == 1, torch.zeros_like(others), 1 - (counts - 1) / others)
