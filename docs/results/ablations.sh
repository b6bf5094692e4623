#!/bin/sh
# One option of CICF changed at a time, on two targets of Digits-DG (rebuilt): nine epochs, seeds 0 and 1, or seed 0 alone.
# digits-dg-rebuilt lies in data/, where `cicf data import` has put it. What has ended is not run again:
# CICF with all as it was is that of digits.sh, copied from digits/ to ablations/.
over() {
  option=$1 values=$2 seeds=$3 && shift 3
  options=$(printf ' --set %s' epochs=9 evaluates_every=9 inner.most=128 optim.clip=2.0 optim.momentum=0.0 \
    optim.weight_decay=0.002 optim.lr=0.5 method.alpha_ramp=1 method.max_step_ratio=inf "$@")
  # shellcheck disable=SC2086
  cicf ablate digits-dg-rebuilt --root data --targets svhn,syn --seeds "$seeds" --jobs 2 \
    --over "$option" --values "$values" $options --out ablations
}
over alpha 0.02,0.05,0.1,0.2,0.5 2 inner.size=64
over sampling random,clusters 2 inner.size=64 method.alpha=0.5
over order 1,2 2 inner.size=64 method.alpha=0.5
over alpha-schedule constant,cosine 2 inner.size=64 method.alpha=0.5
over clusters 1,2,3,5 2 inner.size=64 method.alpha=0.5
over cut input,Z_0,Z_1,Z_2,Z_3 2 inner.size=64 method.alpha=0.5
over curvature 0.25,1 2 inner.size=64 method.alpha=0.5
one() {
  options=$(printf ' --set %s' epochs=9 evaluates_every=9 inner.most=128 optim.clip=2.0 optim.momentum=0.0 \
    optim.weight_decay=0.002 optim.lr=0.5 method.alpha_ramp=1 method.max_step_ratio=inf method.alpha=0.5 "$@")
  # shellcheck disable=SC2086
  cicf bench digits-dg-rebuilt --root data --targets svhn,syn --seeds "${SEEDS:-1}" --jobs 2 --methods cicf $options --out ablations
}
# Clusters of the network's features, anew every three epochs.
one inner.size=64 clusters.source=network clusters.every=3
one inner.size=30
SEEDS=2 one inner.size=128
SEEDS=2 one inner.size=256 inner.most=256
one inner.size=16 method.sampling=random
one inner.size=256 inner.most=256 method.sampling=random
one inner.size=64 method.order=1 method.alpha=0.1
one inner.size=64 method.order=1 method.alpha=0.1 method.max_step_ratio=0.01
