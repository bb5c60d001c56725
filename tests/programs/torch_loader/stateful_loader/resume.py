import sys

import torch

from gristmill.torch import StatefulDataLoader

if __name__ == "__main__":
    loader = StatefulDataLoader(
        range(11), 2, shuffle=True, num_workers=int(sys.argv[2])
    )
    loader.load_state_dict(torch.load(sys.argv[1]))
    print([batch.tolist() for batch in loader])
