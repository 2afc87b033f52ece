"""One process of PyTorch's DistributedDataParallel over gloo: a side of bench_data_parallel.

    ddp.py --model gpt --rows 4 --steps 3 --rate 1e-4 --momentum 0.9

With --optimizer adamw and --zero it is a side of bench_zero: ZeroRedundancyOptimizer keeps the states of
whole parameters on one process each.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which process it is; a WORLD_SIZE of 1 is the plain
loop without DistributedDataParallel. Speaks the protocol of bench/turns.h: prints its number of
parameters once it has been checked and is warm, then the seconds of each step for each line it reads.

Checked first: the loss falls, and after these steps all processes hold the same parameters.
"""
import argparse
import datetime
import os
import sys
import time

# Debian builds PyTorch without libuv, which its store asks for from 2.4 on.
os.environ.setdefault("USE_LIBUV", "0")

import torch
import torch.distributed as dist

import models


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--momentum", type=float, required=True)
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--zero", action="store_true")
    return parser.parse_args()


def check_same_on_all(net):
    """Compares the bits of all parameters with those of process 0."""
    for name, parameter in net.named_parameters():
        of_first = parameter.detach().clone()
        dist.broadcast(of_first, 0)
        if not torch.equal(of_first, parameter):
            raise SystemExit(f"ddp.py: {name} differs between the processes")


def make_optimizer(asked, parameters):
    if asked.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=asked.rate, momentum=asked.momentum)
    if not asked.zero:
        return torch.optim.AdamW(parameters, lr=asked.rate)
    from torch.distributed.optim import ZeroRedundancyOptimizer
    return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=asked.rate)


def state_bytes(optimizer):
    """What this process holds of the optimizer's states."""
    local = getattr(optimizer, "optim", optimizer)
    return sum(tensor.numel() * tensor.element_size() for state in local.state.values()
               for tensor in state.values() if torch.is_tensor(tensor) and tensor.dim() > 0)


def main():
    asked = arguments()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(rank)  # DistributedDataParallel hands out the parameters of process 0
    net, x, y = models.build(asked.model, asked.rows)
    parallel = net
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(minutes=2))
        parallel = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = make_optimizer(asked, parallel.parameters())

    def step():
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = models.loss_of(parallel(x), y)
        loss.backward()
        optimizer.step()
        return time.perf_counter() - begin, loss

    losses = [step()[1].item() for _ in range(5)]
    if not losses[-1] < losses[0]:
        raise SystemExit(f"ddp.py: the loss of {asked.model} does not fall: {losses}")
    if world > 1:
        check_same_on_all(net)
    print(sum(parameter.numel() for parameter in net.parameters()), state_bytes(optimizer), flush=True)
    for _ in sys.stdin:
        print(*[step()[0] for _ in range(asked.steps)], flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
