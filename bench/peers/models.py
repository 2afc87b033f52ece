"""The networks of bench/programs.h in PyTorch: the same operators, the same number of parameters."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    """A transformer block; a causal one has its norms in front, the other one behind."""

    def __init__(self, hidden, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.widen = nn.Linear(hidden, 4 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)
        self.norm1 = nn.LayerNorm(hidden)
        self.norm2 = nn.LayerNorm(hidden)

    def attention(self, x):
        batch, length, hidden = x.shape
        size = hidden // self.heads
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, size).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.matmul(q, k.transpose(-2, -1)) * (1.0 / math.sqrt(size))
        if self.causal:
            ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(ahead, -math.inf)
        mixed = torch.matmul(F.softmax(scores, -1), v)
        return self.projection(mixed.transpose(1, 2).reshape(batch, length, hidden))

    def feed_forward(self, x):
        return self.narrow(F.gelu(self.widen(x)))

    def forward(self, x):
        if self.causal:
            x = x + self.attention(self.norm1(x))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))


class Entry(nn.Module):
    """Tokens and their places; BERT's has a norm."""

    def __init__(self, vocabulary, hidden, length, norm):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Parameter(torch.randn(length, hidden) * 0.02)
        self.norm = nn.LayerNorm(hidden) if norm else nn.Identity()

    def forward(self, ids):
        return self.norm(self.tokens(ids) + self.positions[: ids.shape[1]])


class Transformer(nn.Module):
    def __init__(self, entry, blocks, exit):
        super().__init__()
        self.entry, self.blocks, self.exit = entry, nn.ModuleList(blocks), exit

    def forward(self, ids):
        x = self.entry(ids)
        for block in self.blocks:
            x = block(x)
        return self.exit(x)

    def stages(self, cut):
        """The same modules as two stages of a pipeline, the second of which begins with block `cut`."""
        return nn.Sequential(self.entry, *self.blocks[:cut]), nn.Sequential(*self.blocks[cut:], self.exit)


class FirstToken(nn.Module):
    """Two classes from the first token."""

    def __init__(self, hidden):
        super().__init__()
        self.pool = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.pool(x[:, 0])))


def bert():
    blocks = [Block(768, 12, causal=False) for _ in range(12)]
    return Transformer(Entry(30522, 768, 128, norm=True), blocks, FirstToken(768))


def gpt(vocabulary, hidden, layers, heads, length):
    blocks = [Block(hidden, heads, causal=True) for _ in range(layers)]
    exit = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False))
    return Transformer(Entry(vocabulary, hidden, length, norm=False), blocks, exit)


def conv(inputs, outputs, kernel, stride=1):
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(conv(inputs, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 7, 2), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, 2 if stage > 0 and i == 0 else 1))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, 1000)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.blocks(F.max_pool2d(x, 3, 2, 1))
        return self.fc(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


def mlp(width, depth):
    layers = []
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def build(name, rows):
    """A network with its input and its classes."""
    if name == "mlp":
        return mlp(64, 65), torch.randn(rows, 64), torch.randint(10, (rows,))
    if name == "bert_base":
        return bert(), torch.randint(30522, (rows, 128)), torch.randint(2, (rows,))
    if name == "gpt":
        net = gpt(vocabulary=8192, hidden=384, layers=6, heads=6, length=256)
        return net, torch.randint(8192, (rows, 256)), torch.randint(8192, (rows, 256))
    if name == "gpt24":
        net = gpt(vocabulary=8192, hidden=512, layers=24, heads=8, length=128)
        return net, torch.randint(8192, (rows, 128)), torch.randint(8192, (rows, 128))
    if name == "tiny_gpt":
        net = gpt(vocabulary=64, hidden=32, layers=4, heads=2, length=16)
        return net, torch.randint(64, (rows, 16)), torch.randint(64, (rows, 16))
    if name == "resnet50":
        return ResNet50(), torch.randn(rows, 3, 64, 64), torch.randint(1000, (rows,))
    raise SystemExit(f"models.py: there is no model {name}")


def loss_of(output, target):
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))
