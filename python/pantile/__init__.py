"""pantile: fused long-sequence attention for CPUs.

The functions here take NumPy arrays; pantile.torch has the same for PyTorch, with gradients.
"""

from ._library import Context, Error, info
from ._numpy import (hstu_backward, hstu_forward, hstu_kv_append, hstu_time_thresholds, jagged_broadcast_add,
                     jagged_complete_cumsum, jagged_concat, jagged_position_time, jagged_replace_last,
                     jagged_resize, jagged_split, jagged_sum, jagged_to_padded, padded_to_jagged)
from ._numpy_nsa import (attention_forward, nsa_append, nsa_attend, nsa_combine, nsa_compress,
                         nsa_compressed_attention, nsa_compressed_length, nsa_decode, nsa_forward, nsa_select)
from ._options import HstuOptions, NsaOptions

__version__ = info()["version"]
__all__ = ["Context", "Error", "HstuOptions", "NsaOptions", "attention_forward", "hstu_backward",
           "hstu_forward", "hstu_kv_append", "hstu_time_thresholds", "info", "jagged_broadcast_add",
           "jagged_complete_cumsum", "jagged_concat", "jagged_position_time", "jagged_replace_last",
           "jagged_resize", "jagged_split", "jagged_sum", "jagged_to_padded", "nsa_append", "nsa_attend",
           "nsa_combine", "nsa_compress", "nsa_compressed_attention", "nsa_compressed_length", "nsa_decode",
           "nsa_forward", "nsa_select", "padded_to_jagged"]
