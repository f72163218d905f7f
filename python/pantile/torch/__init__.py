"""pantile for PyTorch (2.10 or newer): operators on CPU tensors, on torch's own threads; HSTU and jagged ones
with gradients, sparse and full attention for inference.

They work in torch.compile and torch.export. What the library refuses is a RuntimeError with its sentence.
"""

from ._hstu import hstu_attention, hstu_backward, hstu_kv_append, hstu_time_thresholds
from ._jagged import (jagged_broadcast_add, jagged_complete_cumsum, jagged_concat, jagged_position_time,
                      jagged_replace_last, jagged_resize, jagged_split, jagged_sum, jagged_to_padded,
                      padded_to_jagged)
from ._nsa import (attention_forward, nsa_append, nsa_attend, nsa_combine, nsa_compress, nsa_compressed_attention,
                   nsa_compressed_length, nsa_decode, nsa_forward, nsa_select)
from .cache import HSTUCache
from .modules import VARIANTS, HSTULayer, HSTUStack

__all__ = ["VARIANTS", "HSTUCache", "HSTULayer", "HSTUStack", "attention_forward", "hstu_attention",
           "hstu_backward", "hstu_kv_append", "hstu_time_thresholds", "jagged_broadcast_add",
           "jagged_complete_cumsum", "jagged_concat", "jagged_position_time", "jagged_replace_last",
           "jagged_resize", "jagged_split", "jagged_sum", "jagged_to_padded", "nsa_append", "nsa_attend",
           "nsa_combine", "nsa_compress", "nsa_compressed_attention", "nsa_compressed_length", "nsa_decode",
           "nsa_forward", "nsa_select", "padded_to_jagged"]
