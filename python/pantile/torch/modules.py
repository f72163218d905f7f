"""The HSTU layer around the attention, stacks of it, and its cache for serving. docs/python.md has examples."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ._hstu import hstu_attention, hstu_backward, hstu_time_thresholds
from .cache import HSTUCache, Step

# What the layers of public models do, as options of HSTULayer.
VARIANTS: dict[str, dict[str, Any]] = {
    "meta": {},
    "nvidia": dict(eps=1e-5, activation="uvqk", combine="y"),
    "research": dict(norm_affine=False, uvqk_bias=False, activation="uvqk", alpha=1.0, combine="y", out_bias=True),
}


class HSTULayer(nn.Module):
    """One HSTU layer on x [T, E] with seq_offsets [B+1], or on x [B, S, E].

        [u | v | q | k] = norm(x) W + b, silu on u;   a = hstu_attention(q, k, v);   y = u * norm(a)
        result = x + [u, a, y] W_out

    embedding_dim      E
    num_heads          H
    attention_dim      Dqk of a head; linear_dim: Dv of a head, default Dqk
    scaling_seqlen     N, by which attention is divided: the length that the model is trained for
    alpha              multiplies q.k; default 1/sqrt(Dqk)
    eps, norm_affine   of both norms
    uvqk_bias          whether there is b
    per_head           columns of W: [u v q k] of each head instead of [u | v | q | k]
    activation         silu on "u", on "uvqk", or on "none"
    norm_out           "layer": over all heads; "group": mean, variance, weight and bias of each head
    combine            "uay": [u, a, y]; "uny": [u, norm(a), y]; "y"
    out_bias, residual whether W_out has a bias, whether x is added
    dropout            on what W_out takes
    max_position       N of a position table: sequences of at most so many tokens
    time_buckets       M of a time table, time_bucket = (fn, unit, divisor) of hstu_time_thresholds
    time_query         "next" or "own"
    bias_per_head      a table for each head instead of one for all
    bias_scale         multiplies the tables' entries; default 1, whatever alpha is
    recompute          the backward pass computes u, v, q, k again instead of keeping them

    VARIANTS has the options of public models: HSTULayer(..., **VARIANTS["research"]).
    """

    def __init__(self, embedding_dim: int, num_heads: int, attention_dim: int, linear_dim: int | None = None, *,
                 scaling_seqlen: int, alpha: float | None = None, eps: float = 1e-6, norm_affine: bool = True,
                 uvqk_bias: bool = True, per_head: bool = False, activation: str = "u", norm_out: str = "layer",
                 combine: str = "uay", out_bias: bool = False, residual: bool = True, dropout: float = 0.0,
                 max_position: int | None = None, time_buckets: int | None = None,
                 time_bucket: tuple[str, float, float] = ("log", 1.0, 0.301), time_query: str = "next",
                 bias_per_head: bool = False, bias_scale: float = 1.0, recompute: bool = True):
        super().__init__()
        for name, value, words in (("activation", activation, ("u", "uvqk", "none")),
                                   ("norm_out", norm_out, ("layer", "group")),
                                   ("combine", combine, ("uay", "uny", "y"))):
            if value not in words:
                raise ValueError(f"{name}: {value!r}, expected one of {', '.join(words)}")
        self.num_heads, self.attention_dim, self.linear_dim = num_heads, attention_dim, linear_dim or attention_dim
        self.scaling_seqlen = scaling_seqlen
        self.alpha = 1.0 / math.sqrt(attention_dim) if alpha is None else alpha
        self.eps, self.per_head, self.activation, self.combine = eps, per_head, activation, combine
        self.residual, self.dropout, self.recompute = residual, dropout, recompute
        self.time_query, self.bias_scale = time_query, bias_scale

        self.norm_in = nn.LayerNorm(embedding_dim, eps, elementwise_affine=norm_affine)
        self.uvqk = nn.Linear(embedding_dim, 2 * num_heads * (self.linear_dim + attention_dim), bias=uvqk_bias)
        width = num_heads * self.linear_dim
        self.norm_per_head = norm_out == "group"
        affine_shape = (num_heads, 1) if self.norm_per_head else (width,)
        self.norm_out_weight = nn.Parameter(torch.ones(affine_shape)) if norm_affine else None
        self.norm_out_bias = nn.Parameter(torch.zeros(affine_shape)) if norm_affine else None
        self.out = nn.Linear(width * (1 if combine == "y" else 3), embedding_dim, bias=out_bias)

        heads = (num_heads,) if bias_per_head else ()
        self.pos_table = self.time_table = None
        if max_position is not None:
            self.pos_table = nn.Parameter(torch.empty(*heads, 2 * max_position - 1))
        if time_buckets is not None:
            self.time_table = nn.Parameter(torch.empty(*heads, time_buckets + 1))
            self.register_buffer("time_thresholds", hstu_time_thresholds(*time_bucket, time_buckets), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.uvqk.weight, std=0.02)
        nn.init.xavier_uniform_(self.out.weight)
        for table in (self.pos_table, self.time_table):
            if table is not None:
                nn.init.normal_(table, std=0.02)

    # ---- Pieces ----------------------------------------------------------------------------------

    def _slices(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """u, v, q, k of the buffer, [..., H, D] each, without a copy."""
        h, dv, dqk = self.num_heads, self.linear_dim, self.attention_dim
        if self.per_head:
            return list(buffer.unflatten(-1, (h, -1)).split([dv, dv, dqk, dqk], -1))
        return [part.unflatten(-1, (h, -1)) for part in buffer.split([h * dv, h * dv, h * dqk, h * dqk], -1)]

    def _project(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """u [..., H, Dv], and the buffer of which v, q, k are slices."""
        buffer = self.uvqk(self.norm_in(x))
        if self.activation == "uvqk":
            buffer = F.silu(buffer)
        u = self._slices(buffer)[0]
        return F.silu(u) if self.activation == "u" else u, buffer

    def _combine(self, u: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        """What W_out takes, of u and the attention a, [..., H, Dv]."""
        u, flat = u.flatten(-2), a.flatten(-2)
        if self.norm_per_head:
            normed = F.layer_norm(a, a.shape[-1:], eps=self.eps)
            if self.norm_out_weight is not None and self.norm_out_bias is not None:
                normed = normed * self.norm_out_weight + self.norm_out_bias
            normed = normed.flatten(-2)
        else:
            normed = F.layer_norm(flat, flat.shape[-1:], self.norm_out_weight, self.norm_out_bias, self.eps)
        z = u * normed
        if self.combine != "y":
            z = torch.cat([u, flat if self.combine == "uay" else normed, z], -1)
        return F.dropout(z, self.dropout, self.training)

    def _finish(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x + self.out(z) if self.residual else self.out(z)

    def _options(self, timestamps: torch.Tensor | None, options: dict[str, Any]) -> dict[str, Any]:
        """Options of the attention: those of the call and the layer's own."""
        own: dict[str, Any] = dict(scaling_seqlen=self.scaling_seqlen, alpha=self.alpha)
        if self.pos_table is not None:
            own.update(pos_table=self.pos_table, bias_scale=self.bias_scale)
        if self.time_table is not None:
            own.update(time_table=self.time_table, time_thresholds=self.time_thresholds, timestamps=timestamps,
                       time_query=self.time_query, bias_scale=self.bias_scale)
        return {**own, **options}

    # ---- Calls -----------------------------------------------------------------------------------

    def forward(self, x: torch.Tensor, seq_offsets: torch.Tensor | None = None, *,
                timestamps: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        """x [T, E] with seq_offsets, or [B, S, E]. timestamps int64 [T] ([B, S]) for a time table. options are
        those of hstu_attention: num_targets, num_contexts, window_left ..."""
        options = self._options(timestamps, options)
        if self.recompute and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            parameters = list(self.parameters())
            given = options.keys() - {"pos_table", "time_table"}
            if not any(isinstance(options[name], torch.Tensor) and options[name].requires_grad for name in given):
                return _Recomputed.apply(self, seq_offsets, options, x, *parameters)
        u, buffer = self._project(x)
        _, v, q, k = self._slices(buffer)
        return self._finish(x, self._combine(u, hstu_attention(q, k, v, seq_offsets, **options)))

    @torch.no_grad()
    def extend(self, x: torch.Tensor, cache: HSTUCache, layer: int, step: Step, **options: Any) -> torch.Tensor:
        """The layer on the rows of one step of a cache, of which it is layer number `layer`."""
        if self.time_table is not None and self.time_query == "next":
            raise ValueError('time_query: "next", but with a cache the next time is not known; "own" works')
        u, buffer = self._project(x)
        _, v, q, k = self._slices(buffer)
        options = self._options(step.timestamps, options)
        return self._finish(x, self._combine(u, cache.attend(layer, step, q, k, v, **options)))


class _Recomputed(torch.autograd.Function):
    """A layer that keeps its input and the attention's result, and computes the rest again."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, layer: HSTULayer, seq_offsets: torch.Tensor | None, options: dict[str, Any],
                x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        u, buffer = layer._project(x)
        _, v, q, k = layer._slices(buffer)
        a = hstu_attention(q, k, v, seq_offsets, **options)
        ctx.layer, ctx.seq_offsets, ctx.options = layer, seq_offsets, options
        ctx.random = torch.get_rng_state() if layer.dropout > 0 and layer.training else None
        ctx.save_for_backward(x, a, *parameters)
        return layer._finish(x, layer._combine(u, a))

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: torch.Tensor) -> tuple:
        layer: HSTULayer = ctx.layer
        x, a, *parameters = ctx.saved_tensors
        norms = [p for p in (layer.norm_out_weight, layer.norm_out_bias) if p is not None and p.requires_grad]
        before = [p for p in (*layer.norm_in.parameters(), *layer.uvqk.parameters()) if p.requires_grad]
        with torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=ctx.random is not None):
            if ctx.random is not None:
                torch.set_rng_state(ctx.random)
            x = x.detach().requires_grad_()
            u, buffer = layer._project(x)
            u_leaf, a_leaf = u.detach().requires_grad_(), a.detach().requires_grad_()
            z = layer._combine(u_leaf, a_leaf)
        out = layer.out
        d_rows, z_rows = dout.flatten(0, -2), z.detach().flatten(0, -2)
        grads = {out.weight: d_rows.t() @ z_rows if out.weight.requires_grad else None}
        if out.bias is not None:
            grads[out.bias] = d_rows.sum(0)
        du, da, *grads_norms = torch.autograd.grad(z, (u_leaf, a_leaf, *norms), dout @ out.weight)

        # Gradients of v, q, k go where they lie in the buffer.
        dbuffer = torch.empty_like(buffer)
        d_u, d_v, d_q, d_k = layer._slices(dbuffer)
        d_u.zero_()
        _, v, q, k = layer._slices(buffer.detach())
        tables = {f"d{name}": getattr(layer, name) for name in ("pos_table", "time_table")
                  if getattr(layer, name) is not None and getattr(layer, name).requires_grad}
        _, _, _, *grads_tables = hstu_backward(da, q, k, v, ctx.seq_offsets, want=list(tables),
                                               out=(d_q, d_k, d_v), **ctx.options)
        dx, *grads_before = torch.autograd.grad((u, buffer), (x, *before), (du, dbuffer))
        if layer.residual:
            dx.add_(dout)
        grads.update(zip([*norms, *before, *tables.values()], [*grads_norms, *grads_before, *grads_tables]))
        return (None, None, None, dx, *(grads.get(p) for p in layer.parameters()))


class HSTUStack(nn.Module):
    """num_layers HSTULayers, one after the other; arguments as of HSTULayer.

    With a cache the tokens of a sequence are computed once: prefill() or append() them, then score()
    candidates. All three give the rows that forward() gives for the whole sequence; no gradients.
    """

    def __init__(self, num_layers: int, *args: Any, **kwargs: Any):
        super().__init__()
        self.layers = nn.ModuleList(HSTULayer(*args, **kwargs) for _ in range(num_layers))

    def forward(self, x: torch.Tensor, seq_offsets: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        """x [T, E] with seq_offsets [B+1], or [B, S, E]; options of HSTULayer.forward."""
        for layer in self.layers:
            x = layer(x, seq_offsets, **options)
        return x

    def new_cache(self, n_sequences: int, page_size: int = 64) -> HSTUCache:
        """An empty cache for so many sequences."""
        first: Any = self.layers[0]
        if first.attention_dim != first.linear_dim:
            raise ValueError(f"linear_dim: {first.linear_dim}, but a cache needs that of attention_dim, "
                             f"{first.attention_dim}")
        return HSTUCache(len(self.layers), n_sequences, first.num_heads, first.attention_dim, page_size=page_size,
                         dtype=first.uvqk.weight.dtype)

    def _extend(self, x: torch.Tensor, seq_offsets: torch.Tensor, cache: HSTUCache, sequences: Any,
                timestamps: torch.Tensor | None, num_targets: torch.Tensor | int,
                options: dict[str, Any]) -> torch.Tensor:
        if "num_contexts" in options:
            raise ValueError("num_contexts: context rows see later history, which a cache cannot give them")
        step = cache.step(seq_offsets, num_targets, sequences, timestamps)
        layer: Any
        for number, layer in enumerate(self.layers):
            x = layer.extend(x, cache, number, step, **options)
        cache.commit(step)
        return x

    def prefill(self, x: torch.Tensor, seq_offsets: torch.Tensor, cache: HSTUCache, *, sequences: Any = None,
                timestamps: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        """Forgets the sequences (numbers in the cache, default all), then as append."""
        cache.clear(sequences)
        return self._extend(x, seq_offsets, cache, sequences, timestamps, 0, options)

    def append(self, x: torch.Tensor, seq_offsets: torch.Tensor, cache: HSTUCache, *, sequences: Any = None,
               timestamps: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        """Rows of the next tokens, x [T, E]; their keys and values are kept."""
        return self._extend(x, seq_offsets, cache, sequences, timestamps, 0, options)

    def score(self, x: torch.Tensor, seq_offsets: torch.Tensor, cache: HSTUCache, *, sequences: Any = None,
              timestamps: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        """Rows of candidates, x [T, E], each a target that sees the cached history; nothing is kept."""
        return self._extend(x, seq_offsets, cache, sequences, timestamps, seq_offsets.diff(), options)
