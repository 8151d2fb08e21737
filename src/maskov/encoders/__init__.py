"""Our own forward pass of common encoders: no padding, and the last layer at the masked token only.

The decoder of a conditional masked LM is such an encoder with attention to a source.

- `blocks`: the parts of an encoder, and how the tokens of many sequences lie in one row.
- `encoder`: the forward pass.
- `families`: where each Hugging Face family stores its weights, and whether they agree.
- `torch_operations`, `fused`: the same operations in torch and as Triton kernels.
"""

from maskov.encoders.blocks import LMHead, Memory, Packed, Reading, TokenLayout, Uniform, cast
from maskov.encoders.encoder import Encoder

__all__ = ["Encoder", "LMHead", "Memory", "Packed", "Reading", "TokenLayout", "Uniform", "cast"]
