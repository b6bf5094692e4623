#!/bin/sh
# PACS at 64 pixels, sketch held out, four epochs from ImageNet weights, which lie in weights/; and pictures of two of its runs.
cicf bench pacs --root data --targets sketch --seeds 3 --jobs 2 --methods erm,cicf --preset cpu \
  --set model.weights=weights/resnet18_imagenet_fp16.safetensors --set epochs=4 --set method.max_step_ratio=inf --out pacs
cicf figure gradcam pacs/*erm-0-* pacs/*cicf-0-* --root data --per-domain 6 -o pacs-gradcam
cicf figure tsne pacs/*erm-0-* pacs/*cicf-0-* --root data -o pacs-tsne
