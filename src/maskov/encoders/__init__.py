"""Our own forward pass of common encoders: no padding, and the last layer at the masked token only.

The decoder of a conditional masked LM is such an encoder with attention to a source.

- `layout`: how the tokens of many sequences lie in one row.
- `encoder`: the forward pass.
- `families`: where each Hugging Face family stores its weights.
- `torch_operations`, `fused`: the same operations in torch and as Triton kernels.
"""

from maskov.encoders.encoder import Encoder
from maskov.encoders.layout import Memory, Packed, Reading, TokenLayout, Uniform

__all__ = ["Encoder", "Memory", "Packed", "Reading", "TokenLayout", "Uniform"]
