"""PyTorch on one device with one thread, eager or by torch.compile: a side of bench_step.

    single.py --model gpt --steps 3 --mode eager|compiled

eager is the loop that people write, with the fused optimizer where the version has one for CPU; compiled
has the network with its loss, forward and backward, and the optimizer's step by torch.compile. Speaks the
protocol of bench/turns.h: prints the seconds of the first step, in which torch.compile compiles, once it has
been checked and is warm, then the seconds of each step for each line it reads.

Checked first: the loss falls, and compiled steps give the losses of eager ones: three of them, of a ResNet the first
alone. There batch norm over eight rows lets rounding grow: eager steps on one and on two threads are 1 % apart in the second.
"""
import argparse
import sys
import time

import torch

import models

# The programs of bench_step: rows and optimizer.
ROWS = {"mlp": 32, "bert_base": 2, "gpt": 4, "resnet50": 8}


def build(name):
    torch.manual_seed(0)
    if name == "mlp":
        return models.mlp(32, 60), torch.randn(32, 32), torch.randint(10, (32,))
    return models.build(name, ROWS[name])


def optimizer_of(name, net):
    if name in ("bert_base", "gpt"):
        try:
            return torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
        except (RuntimeError, TypeError):  # before 2.4, on CPU
            return torch.optim.AdamW(net.parameters(), lr=1e-4)
    momentum = 0.9 if name == "resnet50" else 0
    return torch.optim.SGD(net.parameters(), lr=1e-3 if momentum else 0.01, momentum=momentum)


def stepper(name, compiled):
    net, x, y = build(name)
    optimizer = optimizer_of(name, net)

    def loss_of(x, y):
        return models.loss_of(net(x), y)

    update = optimizer.step
    if compiled:
        loss_of = torch.compile(loss_of)
        # What is fused already is one operator, of which there is nothing to compile.
        if not optimizer.defaults.get("fused"):
            update = torch.compile(optimizer.step)

    def step():
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        update()
        return loss

    return step


def timed(step):
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--mode", choices=("eager", "compiled"), required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)

    step = stepper(asked.model, asked.mode == "compiled")
    begin = time.perf_counter()
    losses = [step().item()]
    first = time.perf_counter() - begin
    losses += [step().item() for _ in range(9)]
    if not losses[-1] < losses[0]:
        raise SystemExit(f"single.py: the loss of {asked.model} does not fall: {losses}")
    if asked.mode == "compiled":
        eager = stepper(asked.model, False)
        alike = 1 if asked.model == "resnet50" else 3
        for number, loss in enumerate(losses[:alike]):
            expected = eager().item()
            if abs(loss - expected) > 1e-3 * abs(expected):
                raise SystemExit(f"single.py: step {number} of {asked.model} gives {loss}, not {expected}")
        del eager
    print(first, flush=True)
    for _ in sys.stdin:
        print(*[timed(step) for _ in range(asked.steps)], flush=True)


if __name__ == "__main__":
    main()
