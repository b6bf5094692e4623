"""The network of Digits-DG."""

from torch import Tensor, nn

WIDTH = 64


class DigitsCnn(nn.Module):
    """Four blocks of 3x3 convolution, ReLU and 2x2 pooling, then a linear head; 32x32 images.

    Convolutions start from Kaiming's normal (fan-in) and zero biases, the head as torch has it.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.block1, self.block2, self.block3, self.block4 = (
            nn.Sequential(nn.Conv2d(channels, WIDTH, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
            for channels in (3, WIDTH, WIDTH, WIDTH)
        )
        self.flatten = nn.Flatten()
        self.head = nn.Linear(WIDTH * 2 * 2, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        z = self.block4(self.block3(self.block2(self.block1(x))))
        logits: Tensor = self.head(self.flatten(z))
        return logits
