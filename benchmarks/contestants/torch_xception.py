"""A contestant: Xception in PyTorch, written for this comparison, channels last.

    python torch_xception.py eager|compile [--processes N] SETTING

The layers are those of Keras Applications; each start counts the weights. Runs in a Python that has PyTorch, pydantic,
PyYAML and psutil; neither TensorFlow nor this package need be installed there.
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # a Python of its own has no distxcept installed

import torch
from torch import nn

from distxcept.model.layout import Block, Convolution, Layout
from distxcept.prove.race.serve import Alone, Step, serve
from distxcept.prove.race.setting import Setting


class Same(nn.Module):
    """TensorFlow's padding SAME for a stride of two: what is odd is added at the end."""

    def __init__(self, layer: nn.Module, size: int, stride: int):
        super().__init__()
        self.layer, self.size, self.stride = layer, size, stride

    def forward(self, x):
        if self.stride > 1 and self.size > 1:
            side = x.shape[-1]
            whole = max((-(-side // self.stride) - 1) * self.stride + self.size - side, 0)
            before = whole // 2
            fill = float("-inf") if isinstance(self.layer, nn.MaxPool2d) else 0.0
            x = nn.functional.pad(x, (before, whole - before) * 2, value=fill)
        return self.layer(x)


def convolution(layer: Convolution) -> nn.Sequential:
    parts: list[nn.Module] = [nn.ReLU()] if layer.relu_before else []
    if layer.separable:
        parts += [
            nn.Conv2d(
                layer.inputs, layer.inputs, layer.size, padding="same", groups=layer.inputs, bias=False
            ),
            nn.Conv2d(layer.inputs, layer.outputs, 1, bias=False),
        ]
    else:
        parts.append(nn.Conv2d(layer.inputs, layer.outputs, layer.size, stride=layer.stride, bias=False))
    parts.append(nn.BatchNorm2d(layer.outputs, eps=1e-3, momentum=0.01))
    return nn.Sequential(*parts, *([nn.ReLU()] if layer.relu_after else []))


class XceptionBlock(nn.Module):
    def __init__(self, block: Block):
        super().__init__()
        self.body = nn.Sequential(*(convolution(layer) for layer in block.convolutions))
        self.pool = Same(nn.MaxPool2d(3, 2), 3, 2) if block.pool else nn.Identity()
        self.shortcut = convolution(block.shortcut) if block.shortcut else None
        self.add_input = block.add_input

    def forward(self, x):
        y = self.pool(self.body(x))
        if self.shortcut is not None:
            return y + self.shortcut(x)
        return y + x if self.add_input else y


def xception(setting: Setting) -> nn.Module:
    layout = Layout(classes=setting.classes, width=setting.width)
    model = nn.Sequential(
        *(XceptionBlock(block) for block in layout.blocks),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(layout.features, setting.classes),
    )
    trained = sum(parameter.elements for parameter in layout.parameters if not parameter.moving)
    if sum(weight.numel() for weight in model.parameters()) != trained:
        raise AssertionError("this is another network than Keras'")
    return model


class Processes:
    """Messages between the processes, for the turns."""

    def __init__(self):
        self.rank = torch.distributed.get_rank()

    def exchange(self, message: bytes) -> list[bytes]:
        found: list = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(found, message)
        return found


def build(setting: Setting, how: str) -> Step:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    cores = sorted(os.sched_getaffinity(0))
    if world > 1:
        torch.distributed.init_process_group("gloo")
        each = max(1, len(cores) // world)
        rank = torch.distributed.get_rank()
        os.sched_setaffinity(0, cores[rank * each : (rank + 1) * each] or cores)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    model = xception(setting).to(memory_format=torch.channels_last).train()
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    images = torch.rand(setting.batch, 3, setting.image_size, setting.image_size) * 2 - 1
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, setting.classes, (setting.batch,))
    forward = torch.compile(model) if how == "compile" else model

    def run(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            logits = forward(images)
            loss = loss_of(logits, labels)
            loss.backward()
            optimizer.step()
            right = (logits.argmax(1) == labels).sum()
        loss.item(), right.item()

    return Step(run, images=setting.batch * world, group=Processes() if world > 1 else Alone())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=("eager", "compile"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("setting")
    args = parser.parse_args()
    if args.processes > 1 and "WORLD_SIZE" not in os.environ:
        start_others(args.processes)
    serve(lambda: build(Setting.from_json(args.setting), args.how))


def start_others(processes: int) -> None:
    """This one is rank 0; the others are its children and end when it does."""
    import socket
    import subprocess

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    for rank in range(1, processes):
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, **common, "RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    os.environ.update({**common, "RANK": "0"})


if __name__ == "__main__":
    main()
