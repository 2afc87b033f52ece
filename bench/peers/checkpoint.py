"""PyTorch on one device with one thread, plainly or with torch.utils.checkpoint a block: a side of bench_checkpoint.

    checkpoint.py --model gpt --rows 8 --steps 1 --mode plain|checkpoint

Speaks the protocol of bench/turns.h: prints the bytes that the process holds at most in forward and backward of a step, by
the system (VmHWM less its libraries and what it held before the model was made), then the seconds of each step for each line
it reads. What the optimizer takes for itself in its step, after backward, is not counted: checkpoints are not about it. Where
the system does not tell the peak of a part of a process's life it is that of all steps.

Checked first: the loss falls, and the first one is that of the plain loop.
"""
import argparse
import ctypes
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

import models


class Checkpointed(torch.nn.Module):
    """What the block keeps for backward is its input; the rest is made again."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def bytes_of_process(name):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(name + ":"):
                return 1024 * int(line.split()[1])
    raise SystemExit(f"checkpoint.py: /proc/self/status has no {name}")


def optimizer_of(name, net):
    if name == "tiny_gpt":
        return torch.optim.SGD(net.parameters(), lr=0.01)
    if name == "resnet50":
        return torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    try:
        return torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    except (RuntimeError, TypeError):  # before 2.4, on CPU
        return torch.optim.AdamW(net.parameters(), lr=1e-4)


def stepper(name, rows, checkpoints):
    torch.manual_seed(0)
    net, x, y = models.build(name, rows)
    if checkpoints:
        for i in range(len(net.blocks)):
            net.blocks[i] = Checkpointed(net.blocks[i])
    optimizer = optimizer_of(name, net)

    def step(after_backward=lambda: None):
        optimizer.zero_grad(set_to_none=True)
        loss = models.loss_of(net(x), y)
        loss.backward()
        after_backward()
        optimizer.step()
        return loss.detach()

    return step


def held_in_backward(step, before):
    """What the process holds at most until backward has ended."""
    held = []
    ctypes.CDLL(None).malloc_trim(0)  # what earlier steps have given back
    try:
        with open("/proc/self/clear_refs", "w") as begin_anew:
            begin_anew.write("5")
    except OSError:
        pass
    step(lambda: held.append(bytes_of_process("VmHWM") - bytes_of_process("RssFile") - before))
    return held[0]


def timed(step):
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--mode", choices=("plain", "checkpoint"), required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.ones(512, 512)
    torch.conv2d(torch.mm(x, x).view(8, 32, 32, 32), torch.ones(32, 32, 3, 3))  # libraries keep buffers from here on
    checkpoints = asked.mode == "checkpoint"
    before = bytes_of_process("RssAnon")
    step = stepper(asked.model, asked.rows, checkpoints)
    losses = [step().item() for _ in range(3)]
    held = held_in_backward(step, before)
    if not losses[-1] < losses[0]:
        raise SystemExit(f"checkpoint.py: the loss of {asked.model} does not fall: {losses}")
    if checkpoints:
        expected = stepper(asked.model, asked.rows, False)().item()
        if abs(losses[0] - expected) > 1e-5 * abs(expected):
            raise SystemExit(f"checkpoint.py: the first loss of {asked.model} is {losses[0]}, not {expected}")
    print(held, flush=True)
    for _ in sys.stdin:
        print(*[timed(step) for _ in range(asked.steps)], flush=True)


if __name__ == "__main__":
    main()
