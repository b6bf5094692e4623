#!/bin/sh
# What may help CICF, on two targets of Digits-DG (rebuilt): nine epochs; seed 0, and two seeds where it says so.
# digits-dg-rebuilt lies in data/, where `cicf data import` has put it. What has ended is not run again.
way() {
  out=$1 && shift
  options=$(printf ' --set %s' "$@")
  # shellcheck disable=SC2086
  cicf bench digits-dg-rebuilt --root data --targets svhn,syn --seeds "${SEEDS:-1}" --jobs 2 --methods cicf \
    --set epochs=9 --set evaluates_every=9 --set inner.most=128 --set optim.clip=2.0 $options --out "ways/$out"
}
SEEDS=2 way alpha0.2 optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 inner.size=64 method.alpha=0.2 method.alpha_ramp=1 method.max_step_ratio=inf
way input optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf model.cut=input
way order1 optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf method.order=1
way anneal optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf method.alpha_schedule=cosine
way m128 optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 inner.size=128 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
way network optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf clusters.source=network clusters.every=3
way momentum optim.lr=0.05 optim.momentum=0.9 optim.weight_decay=0.002 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
