#!/bin/sh
# The search on Digits-DG (rebuilt): MNIST-M held out, seed 0, four epochs, judged by source validation.
# digits-dg-rebuilt lies in data/, where `cicf data import` has put it.
trial() {
  name=$1 method=$2 && shift 2
  options=$(printf ' --set %s' "$@")
  # shellcheck disable=SC2086
  cicf bench digits-dg-rebuilt --root data --targets mnist_m --seeds 1 --jobs 2 --methods "$method" \
    --set epochs=4 --set evaluates_every=4 $options --out "search/$name"
}
trial cicf-lr0.2 cicf optim.lr=0.2 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.01
trial cicf-lr0.2-a0.5-ramp2-rinf cicf optim.lr=0.2 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.5 method.alpha_ramp=2 method.max_step_ratio=inf
trial cicf-lr0.3 cicf optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.01
trial cicf-lr0.3-a0.01 cicf optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.01 method.alpha_ramp=0 method.max_step_ratio=0.01
trial cicf-lr0.3-a0.02 cicf optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.02 method.alpha_ramp=0 method.max_step_ratio=0.01
trial cicf-lr0.3-a0.05 cicf optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.05 method.alpha_ramp=0 method.max_step_ratio=0.01
trial cicf-lr0.3-a0.2-ramp1-rinf cicf optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.2 method.alpha_ramp=1 method.max_step_ratio=inf
trial cicf-lr0.3-a0.3-ramp1-rinf cicf optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.3 method.alpha_ramp=1 method.max_step_ratio=inf
trial cicf-lr0.3-order1 cicf optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.01 method.order=1
trial cicf-lr0.3-ramp1 cicf optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=1 method.max_step_ratio=0.01
trial cicf-lr0.5 cicf optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.01
trial cicf-lr0.5-a0.5-ramp1-rinf cicf optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
trial cicf-lr0.5-a0.5-ramp1-rinf-wd2e-3 cicf optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 optim.clip=2.0 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
trial cicf-m128 cicf optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=128 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.01
trial cicf-m64 cicf optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.01
trial cicf-r0.005 cicf optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.005
trial cicf-r0.02 cicf optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.02
trial cicf-rinf cicf optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=inf
trial erm-lr0.05 erm optim.lr=0.05 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-lr0.1 erm optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-lr0.2 erm optim.lr=0.2 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-lr0.3 erm optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-lr0.3-clip5 erm optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=5.0
trial erm-lr0.3-free erm optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=inf  # diverges in step 11
trial erm-lr0.3-wd0 erm optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0 optim.clip=2.0
trial erm-lr0.3-wd2e-3 erm optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.002 optim.clip=2.0
trial erm-lr0.4 erm optim.lr=0.4 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-lr0.4-clip1 erm optim.lr=0.4 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=1.0
trial erm-lr0.5 erm optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-lr0.5-wd2e-3 erm optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 optim.clip=2.0
trial erm-lr0.5-wd4e-3 erm optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.004 optim.clip=2.0
trial erm-lr0.7 erm optim.lr=0.7 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-m0.9 erm optim.lr=0.02 optim.momentum=0.9 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-m0.9-lr0.03 erm optim.lr=0.03 optim.momentum=0.9 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-m0.9-lr0.05 erm optim.lr=0.05 optim.momentum=0.9 optim.weight_decay=0.0005 optim.clip=2.0
trial erm-m0.9-lr0.1 erm optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0005 optim.clip=2.0
trial maml-lr0.5-a0.5-ramp1-rinf maml optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
trial maml-r0.005 maml optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.005
trial maml-r0.01 maml optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.01
trial maml-rinf maml optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=inf
trial maml-lr0.3-a0.3-ramp1-rinf maml optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.3 method.alpha_ramp=1 method.max_step_ratio=inf
trial maml-lr0.3-a0.2-ramp1-rinf maml optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.2 method.alpha_ramp=1 method.max_step_ratio=inf
trial maml-lr0.3-a0.1-ramp1-rinf maml optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=1 method.max_step_ratio=inf
trial maml-lr0.3-a0.05 maml optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.05 method.alpha_ramp=0 method.max_step_ratio=0.01
trial maml-lr0.3-a0.02 maml optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.02 method.alpha_ramp=0 method.max_step_ratio=0.01
trial maml-lr0.3-a0.01 maml optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.01 method.alpha_ramp=0 method.max_step_ratio=0.01
trial maml-lr0.5-a0.2-ramp1-rinf maml optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.2 method.alpha_ramp=1 method.max_step_ratio=inf
trial maml-lr0.5-a0.1-ramp1-rinf maml optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=1 method.max_step_ratio=inf
trial maml-lr0.5-a0.05 maml optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.05 method.alpha_ramp=0 method.max_step_ratio=0.01
trial maml-lr0.5-a0.01 maml optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.01 method.alpha_ramp=0 method.max_step_ratio=0.01
trial maml-lr0.5-a0.01-wd2e-3 maml optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 optim.clip=2.0 inner.size=64 method.alpha=0.01 method.alpha_ramp=0 method.max_step_ratio=0.01
trial maml-lr0.5-a0.5-ramp1-rinf-wd2e-3 maml optim.lr=0.5 optim.momentum=0.0 optim.weight_decay=0.002 optim.clip=2.0 inner.size=64 method.alpha=0.5 method.alpha_ramp=1 method.max_step_ratio=inf
trial maml-lr0.3-order1 maml optim.lr=0.3 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.01 method.order=1
trial maml-lr0.2 maml optim.lr=0.2 optim.momentum=0.0 optim.weight_decay=0.0005 optim.clip=2.0 inner.size=64 method.alpha=0.1 method.alpha_ramp=0 method.max_step_ratio=0.01
