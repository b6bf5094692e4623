#!/bin/sh
# Digits with a known confounder, which follows the label in a share of the training images; tested where it is drawn at random.
runs() {
  strength=$1 out=$2 methods=$3 && shift 3
  options=$(printf ' --set %s' "data.strength=$strength" "$@")
  # shellcheck disable=SC2086
  cicf bench confounded --targets independent --seeds 3 --jobs 2 --methods "$methods" $options --out "confounded/$out"
}
for strength in 0.5 0.7 0.9 0.95; do
  runs $strength $strength erm,maml,cicf method.max_step_ratio=inf method.alpha_ramp=2
done
# For three times as long, which is the time that CICF takes above; and with the β and α of Digits-DG.
runs 0.9 longer erm epochs=60
runs 0.9 longer cicf method.max_step_ratio=inf method.alpha_ramp=2 epochs=60
runs 0.9 lr0.5 erm,cicf method.max_step_ratio=inf method.alpha_ramp=2 optim.lr=0.5 method.alpha=0.5
for seed in 0 1 2; do
  cicf figure gradcam confounded/0.9/*erm-$seed-* confounded/0.9/*cicf-$seed-* -o confounded-gradcam-$seed
done
