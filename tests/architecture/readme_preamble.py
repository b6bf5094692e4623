"""Stands for the loop that a reader of the README already has."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

torch.set_num_threads(1)
x, y = torch.randn(600, 3, 16, 16), torch.randint(4, (600,))
train_set = TensorDataset(x, y)
model = nn.Sequential()
model.add_module("stem", nn.Conv2d(3, 8, 3, stride=2))
model.add_module("relu", nn.ReLU())
model.add_module("flat", nn.Flatten())
model.add_module("head", nn.Linear(8 * 49, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
