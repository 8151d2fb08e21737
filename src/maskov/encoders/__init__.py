"""Our own forward of the usual encoders: no padding, and the last layer at the masked token only.

- `layout`: how the tokens of many sequences lie in one row.
- `encoder`: the forward itself.
- `families`: where each Hugging Face family keeps its weights.
- `torch_operations`, `fused`: the same few operations in plain torch and as Triton kernels.
"""

from maskov.encoders.encoder import Encoder
from maskov.encoders.layout import Packed, TokenLayout, Uniform

__all__ = ["Encoder", "Packed", "TokenLayout", "Uniform"]
