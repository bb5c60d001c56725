import subprocess

import torch

from programs.torch_loader.faults.squares import Squares, make


class Lists(Squares):
    def __getitem__(self, i):
        told = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True)
        return torch.tensor([len(told.stdout.split())])


assert {int(count) for count in make(Lists(4))} <= {3, 4}
