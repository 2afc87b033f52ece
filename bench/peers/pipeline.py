"""One process of a pipeline in PyTorch: a side of bench_pipeline.

    pipeline.py --side pipe --model gpt --cut 4 --rows 8 --micro-batches 4 --steps 2 --rate 1e-4 --momentum 0.9

pipe        torch.distributed.pipeline.sync.Pipe in one process, nothing computed twice (checkpoint="never")
hand_1f1b   two processes with a stage each, one forward and one backward in turn, over gloo: RANK, WORLD_SIZE,
            MASTER_ADDR and MASTER_PORT say which of them it is

Speaks the protocol of bench/turns.h: prints the model's number of parameters once it has been checked and is
warm, then the seconds of each step for each line it reads.

Checked first: after two steps its parameters are those of the plain loop, up to rounding.
"""
import argparse
import copy
import datetime
import os
import sys
import time
import warnings

# Debian builds PyTorch without libuv, which its store asks for from 2.4 on.
os.environ.setdefault("USE_LIBUV", "0")

import torch
import torch.distributed as dist

import models

CHECKED_RATE = 1e-2  # at a small one rounding hides what happens
TOLERANCE = 1e-3  # of the largest change of a parameter


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=("pipe", "hand_1f1b"), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--cut", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--momentum", type=float, required=True)
    return parser.parse_args()


class SyncPipe:
    """Pipe wants RPC. Devices with two names give two partitions; on the CPU they share a worker thread."""

    def __init__(self, stages, x, y, micro_batches):
        import torch.distributed.rpc as rpc
        from torch.distributed.pipeline.sync import Pipe
        from torch.distributed.pipeline.sync.pipe import WithDevice

        address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        options = rpc.TensorPipeRpcBackendOptions(init_method=address, _transports=["uv"], _channels=["basic"])
        rpc.init_rpc("pipe", rank=0, world_size=1, rpc_backend_options=options)
        placed = [WithDevice(stage, name) for stage, name in zip(stages, ("cpu", "cpu:0"))]
        self.pipe = Pipe(torch.nn.Sequential(*placed), chunks=micro_batches, checkpoint="never")
        if len(self.pipe.partitions) != 2:
            raise SystemExit(f"pipeline.py: Pipe has made {len(self.pipe.partitions)} partitions")
        self.x, self.y, self.own = x, y, torch.nn.ModuleList(stages)

    def gradients(self):
        models.loss_of(self.pipe(self.x).local_value(), self.y).backward()


class HandWritten:
    """1F1B: stage 0 is one forward ahead. All receives are posted first, so that gloo fills them meanwhile."""

    def __init__(self, stages, x, y, micro_batches):
        self.rank, self.count = int(os.environ["RANK"]), micro_batches
        dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=2))
        self.xs, self.ys, self.own = x.chunk(micro_batches), y.chunk(micro_batches), stages[self.rank]
        with torch.no_grad():
            self.like = stages[0](self.xs[0])
        ahead = 1 - self.rank
        self.order = [("forward", i) for i in range(ahead)]
        for i in range(ahead, micro_batches):
            self.order += [("forward", i), ("backward", i - ahead)]
        self.order += [("backward", i) for i in range(micro_batches - ahead, micro_batches)]

    def gradients(self):
        come = [torch.empty_like(self.like) for _ in range(self.count)]
        coming = [dist.irecv(come[i], 1 - self.rank, tag=i) for i in range(self.count)]
        going, kept = [], {}
        step = self.last_stage if self.rank else self.first_stage
        for kind, i in self.order:
            sent = step(kind, i, come, coming, kept)
            if sent is not None:
                going.append((dist.isend(sent, 1 - self.rank, tag=i), sent))
        for work, _ in going:
            work.wait()

    def first_stage(self, kind, i, come, coming, kept):
        if kind == "forward":
            kept[i] = self.own(self.xs[i])
            return kept[i].detach()
        coming[i].wait()
        kept.pop(i).backward(come[i])
        return None

    def last_stage(self, kind, i, come, coming, kept):
        if kind == "forward":
            coming[i].wait()
            entry = come[i].requires_grad_()
            kept[i] = entry, models.loss_of(self.own(entry), self.ys[i]) / self.count
            return None
        entry, loss = kept.pop(i)
        loss.backward()
        return entry.grad


def sgd(module, rate, momentum):
    return torch.optim.SGD(module.parameters(), lr=rate, momentum=momentum)


def check(side, plain, plain_own, x, y, micro_batches, momentum):
    """Two steps of the side and of the plain loop, from the same parameters."""
    start = [parameter.detach().clone() for parameter in side.own.parameters()]
    optimizer, plain_optimizer = sgd(side.own, CHECKED_RATE, momentum), sgd(plain, CHECKED_RATE, momentum)
    for _ in range(2):
        optimizer.zero_grad()
        side.gradients()
        optimizer.step()
        plain_optimizer.zero_grad()
        for part, target in zip(x.chunk(micro_batches), y.chunk(micro_batches)):
            (models.loss_of(plain(part), target) / micro_batches).backward()
        plain_optimizer.step()
    with torch.no_grad():
        for before, found, expected in zip(start, side.own.parameters(), plain_own.parameters()):
            change, apart = (expected - before).abs().max(), (found - expected).abs().max()
            rounding = 4 * 2.0**-23 * before.abs().max()
            if not (apart <= rounding or apart <= TOLERANCE * change):
                raise SystemExit(f"pipeline.py: a parameter is {apart / change} of its change away from the plain loop's")


def main():
    warnings.filterwarnings("ignore")  # that Pipe is on its way out
    asked = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net, x, y = models.build(asked.model, asked.rows)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    plain = copy.deepcopy(net)
    kind = SyncPipe if asked.side == "pipe" else HandWritten
    side = kind(net.stages(asked.cut), x, y, asked.micro_batches)
    plain_own = plain if asked.side == "pipe" else plain.stages(asked.cut)[side.rank]
    check(side, plain, plain_own, x, y, asked.micro_batches, asked.momentum)
    del net, plain, plain_own  # the other stage's parameters are the other process's
    optimizer = sgd(side.own, asked.rate, asked.momentum)

    def step():
        begin = time.perf_counter()
        optimizer.zero_grad()
        side.gradients()
        optimizer.step()
        return time.perf_counter() - begin

    for _ in range(3):
        step()
    print(parameters, flush=True)
    for _ in sys.stdin:
        print(*[step() for _ in range(asked.steps)], flush=True)
    os._exit(0)  # RPC's and gloo's threads need not be waited for


if __name__ == "__main__":
    main()
