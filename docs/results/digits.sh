#!/bin/sh
# The runs on Digits-DG (rebuilt) with the options that source validation chose: nine epochs, 1,539 steps.
# digits-dg-rebuilt lies in data/, where `cicf data import` has put it. What has ended is not run again.
runs() {
  out=$1 method=$2 && shift 2
  options=$(printf ' --set %s' "$@")
  # shellcheck disable=SC2086
  cicf bench digits-dg-rebuilt --root data --seeds "${SEEDS:-3}" --jobs 2 --methods "$method" \
    --set "epochs=${EPOCHS:-9}" --set "evaluates_every=${EPOCHS:-9}" --set optim.momentum=0.0 --set optim.clip=2.0 --set inner.most=128 \
    $options --out "$out"
}
runs digits erm optim.lr=0.5 optim.weight_decay=0.002
runs digits cicf optim.lr=0.5 optim.weight_decay=0.002 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
runs digits maml optim.lr=0.5 optim.weight_decay=0.002 inner.size=64 method.alpha=0.2 method.alpha_ramp=1 method.max_step_ratio=inf method.deploy=theta_dagger
# CICF with the paper's M = 256, four times the images of a virtual step.
runs m256 cicf optim.lr=0.5 optim.weight_decay=0.002 inner.size=256 inner.most=256 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
# ERM for the time that CICF takes, and CICF for as many steps.
EPOCHS=16 runs longer erm optim.lr=0.5 optim.weight_decay=0.002
EPOCHS=16 runs longer cicf optim.lr=0.5 optim.weight_decay=0.002 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
# ERM for the time that CICF with M = 256 takes; on SVHN and SYN so far.
SEEDS=1 EPOCHS=43 runs longest erm optim.lr=0.5 optim.weight_decay=0.002
# At order 1, with the bound without which it does not train.
runs order1 cicf optim.lr=0.5 optim.weight_decay=0.002 inner.size=64 method.order=1 method.alpha=0.1 method.alpha_ramp=1 method.max_step_ratio=0.01
# What else was in the second stage of the search; ERM and MAML with one seed.
runs ways/wd5e-4 cicf optim.lr=0.5 optim.weight_decay=0.0005 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
SEEDS=1 runs ways/erm-lr0.4 erm optim.lr=0.4 optim.weight_decay=0.0005
SEEDS=1 runs ways/maml-wd5e-4 maml optim.lr=0.5 optim.weight_decay=0.0005 inner.size=64 method.alpha=0.2 method.alpha_ramp=1 method.max_step_ratio=inf method.deploy=theta_dagger
# The same with AutoAugment.
runs star erm data.augment=autoaugment optim.lr=0.5 optim.weight_decay=0.002
runs star cicf data.augment=autoaugment optim.lr=0.5 optim.weight_decay=0.002 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
runs star maml data.augment=autoaugment optim.lr=0.5 optim.weight_decay=0.002 inner.size=64 method.alpha=0.2 method.alpha_ramp=1 method.max_step_ratio=inf method.deploy=theta_dagger
# At the paper's β; one target and one seed so far.
runs beta0.1 erm optim.lr=0.1 optim.weight_decay=0.0005
runs beta0.1 cicf optim.lr=0.1 optim.weight_decay=0.0005 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
