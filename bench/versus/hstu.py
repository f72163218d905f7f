"""The contenders of HSTU attention. Each takes (case, inputs, threads), brings the inputs into the layout that suits it,
which is not timed, and returns call, which is, and result, which turns what call returned into the layout of the inputs.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cases import from_bf16, to_bf16


def offsets(lengths):
    return np.concatenate([[0], np.cumsum(lengths)])


# ---- pantile -------------------------------------------------------------------------------------

def pantile(case, inputs, threads):
    import pantile as library

    half = case.dtype == "bf16"
    x = {name: to_bf16(array) if half else array for name, array in inputs.items()}
    options = dict(seq_offsets_q=offsets(case.lengths_q), seq_offsets_k=offsets(case.lengths_k), alpha=case.alpha,
                   scaling_seqlen=case.n, context=library.Context(num_threads=threads))
    if case.targets:
        options["num_targets"] = case.targets
    if case.full:
        options |= dict(window_left=-1, window_right=-1)
    out = np.empty((*x["q"].shape[:2], case.dv), x["q"].dtype)  # the caller's, as with OpenBLAS and ONNX Runtime
    gradients = {"d" + name: np.empty_like(x[name]) for name in "qkv"} if case.backward else {}

    def call():
        results = dict(out=library.hstu_forward(x["q"], x["k"], x["v"], out=out, **options))
        if case.backward:
            results |= library.hstu_backward(x["dout"], x["q"], x["k"], x["v"], out=gradients, **options)
        return results

    def result(results):
        return {name: from_bf16(array) if half else array for name, array in results.items()}

    return call, result


# ---- NumPy ---------------------------------------------------------------------------------------

def openblas(case, inputs, threads, tile=256):
    """Tiles over OpenBLAS, one thread of it for each of ours; only tiles that the mask leaves."""
    heads = {name: np.ascontiguousarray(array.transpose(1, 0, 2)) for name, array in inputs.items()}
    at = dict(q=offsets(case.lengths_q), k=offsets(case.lengths_k))
    at |= dict(v=at["k"], out=at["q"], dout=at["q"], dq=at["q"], dk=at["k"], dv=at["k"])
    results = dict(out="v") | (dict(dq="q", dk="k", dv="v") if case.backward else {})
    results = {name: np.empty((case.heads, at[name][-1], heads[like].shape[2]), np.float32)
               for name, like in results.items()}
    plans = {b: tiles_of(case, b, tile, tile) for b in range(len(case.lengths_q))}

    def views(b, h):
        return {name: x[h, at[name][b]:at[name][b + 1]] for name, x in (heads | results).items()}

    def sigmoid(s, work):
        e = np.negative(s, out=work[:s.shape[0], :s.shape[1]])
        np.exp(e, out=e)
        e += 1
        return np.reciprocal(e, out=e)

    def forward(b_h):
        x, plan = views(*b_h), plans[b_h[0]]
        scores, work = np.empty((2, tile, tile), np.float32)
        for rows, tiles in plan:
            q_rows = x["q"][rows] * np.float32(case.alpha)
            total = np.zeros((len(q_rows), case.dv), np.float32)
            for keys, mask in tiles:
                s = np.matmul(q_rows, x["k"][keys].T, out=scores[:len(q_rows), :keys.stop - keys.start])
                s *= sigmoid(s, work)
                if mask is not None:
                    s *= mask
                total += s @ x["v"][keys]
            total *= np.float32(1 / case.n)
            x["out"][rows] = total

    def gradients(b_h):
        x, plan = views(*b_h), plans[b_h[0]]
        scores, work = np.empty((2, tile, tile), np.float32)
        x["dk"][:], x["dv"][:] = 0, 0
        for rows, tiles in plan:
            q_rows, dout = x["q"][rows] * np.float32(case.alpha), x["dout"][rows] * np.float32(1 / case.n)
            total = np.zeros_like(q_rows)
            for keys, mask in tiles:
                p = np.matmul(q_rows, x["k"][keys].T, out=scores[:len(q_rows), :keys.stop - keys.start])
                ds = sigmoid(p, work)
                p *= ds  # silu
                ds += p - p * ds  # its gradient
                if mask is not None:
                    p *= mask
                    ds *= mask
                ds *= dout @ x["v"][keys].T
                x["dv"][keys] += p.T @ dout
                x["dk"][keys] += ds.T @ q_rows
                total += ds @ x["k"][keys]
            total *= np.float32(case.alpha)
            x["dq"][rows] = total

    longest_first = sorted(((b, h) for b in range(len(case.lengths_q)) for h in range(case.heads)),
                           key=lambda b_h: -case.lengths_q[b_h[0]])
    pool = ThreadPoolExecutor(threads)

    def call():
        with np.errstate(over="ignore"):  # exp of a large score: the quotient is 0, as it should be
            list(pool.map(forward, longest_first))
            if case.backward:
                list(pool.map(gradients, longest_first))

    return call, lambda _: {name: x.transpose(1, 0, 2) for name, x in results.items()}


def tiles_of(case, b, n_rows, n_keys):
    """rows, [(keys, mask or None where all of it is valid), ...]: the tiles of a sequence that hold something valid."""
    sq, sk = case.lengths_q[b], case.lengths_k[b]
    plan = []
    for i in range(0, sq, n_rows):
        rows, tiles = slice(i, min(i + n_rows, sq)), []
        last = sk if case.full else min(sk, rows.stop + sk - sq)  # keys that any of the rows sees lie before
        for j in range(0, last, n_keys):
            keys = slice(j, min(j + n_keys, last))
            mask = case.valid(b, range(rows.start, rows.stop), range(keys.start, keys.stop))
            if mask.any():
                tiles.append((keys, None if mask.all() else mask.astype(np.float32)))
        plan.append((rows, tiles))
    return plan


# ---- PyTorch -------------------------------------------------------------------------------------

def tensors(case, inputs):
    import torch

    dtype = torch.bfloat16 if case.dtype == "bf16" else torch.float32
    return {name: torch.from_numpy(array).to(dtype) for name, array in inputs.items()}


def padded(case, inputs):
    """[B, H, longest, D], zeros behind the end of a sequence."""
    import torch

    lengths = dict(q=case.lengths_q, k=case.lengths_k, v=case.lengths_k, dout=case.lengths_q)
    result = {}
    for name, x in tensors(case, inputs).items():
        parts = torch.split(x, list(lengths[name]))
        result[name] = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).transpose(1, 2).contiguous()
    return result


def padded_mask(case, dtype):
    """[S, S], or [B, 1, S, S] where sequences with fewer queries than keys differ in length."""
    import torch

    sq, sk = max(case.lengths_q), max(case.lengths_k)
    shapes = list(zip(case.lengths_q, case.lengths_k))
    if case.lower_triangle:
        return torch.ones(sq, sk, dtype=dtype).tril_()
    masks = [torch.zeros(sq, sk, dtype=dtype) for _ in (shapes[:1] if len(set(shapes)) == 1 else shapes)]
    for b, mask in enumerate(masks):
        mask[:shapes[b][0], :shapes[b][1]] = torch.from_numpy(case.valid(b, range(shapes[b][0]), range(shapes[b][1])))
    return masks[0] if len(masks) == 1 else torch.stack(masks)[:, None]


def from_padded(case, results):
    """Tensors [B, H, S, D] by name, as jagged arrays."""
    lengths = dict(out=case.lengths_q, dq=case.lengths_q, dk=case.lengths_k, dv=case.lengths_k)
    return {name: np.concatenate([x[b, :, :n].transpose(0, 1).float().numpy() for b, n in enumerate(lengths[name])])
            for name, x in results.items()}


def step(case, forward, x):
    """Calls forward(q, k, v), and for a training step its gradients, too."""
    if not case.backward:
        return dict(out=forward(x["q"], x["k"], x["v"]))
    leaves = [x[name].detach().requires_grad_() for name in "qkv"]
    out = forward(*leaves)
    out.backward(x["dout"])
    return dict(out=out.detach(), **{"d" + name: leaf.grad for name, leaf in zip("qkv", leaves)})


def padded_contender(case, inputs, make):
    x = padded(case, inputs)
    forward = make(x["q"].dtype)
    return lambda: step(case, forward, x), lambda results: from_padded(case, results)


def article(case, dtype):
    """The article's naive form, step by step."""
    import torch
    from torch.nn.functional import silu

    mask, alpha, n = padded_mask(case, dtype), case.alpha, case.n

    def forward(q, k, v):
        s = torch.matmul(q, k.transpose(-1, -2))
        s = s * alpha
        s = silu(s)
        s = s * (mask / n)
        return torch.matmul(s, v)

    return forward


def eager(case, inputs, threads):
    return padded_contender(case, inputs, lambda dtype: article(case, dtype))


def compiled(case, inputs, threads):
    import torch

    return padded_contender(case, inputs, lambda dtype: torch.compile(article(case, dtype), fullgraph=True,
                                                                      dynamic=False))


def in_place(q, k, v, mask, alpha):
    """As a careful user writes it: the scale in q, the mask divided once, no second matrix."""
    import torch

    s = torch.matmul(q * alpha, k.transpose(-1, -2))
    torch.nn.functional.silu(s, inplace=True)
    return torch.matmul(s.mul_(mask), v)


def eager_in_place(case, inputs, threads):
    def make(dtype):
        mask = padded_mask(case, dtype) / case.n
        return lambda q, k, v: in_place(q, k, v, mask, case.alpha)

    return padded_contender(case, inputs, make)


def sdpa(case, inputs, threads):
    """Softmax attention of the same shape: what fused attention costs in torch."""
    from torch.nn.functional import scaled_dot_product_attention as attention
    import torch

    def make(dtype):
        if case.lower_triangle:
            return lambda q, k, v: attention(q, k, v, is_causal=True)
        mask = padded_mask(case, torch.bool)
        return lambda q, k, v: attention(q, k, v, attn_mask=mask)

    return padded_contender(case, inputs, make)


def flex(case, inputs, threads):
    """flex_attention, compiled: softmax attention with a block mask; users of unequal length as documents of one row."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    equal = len(set(zip(case.lengths_q, case.lengths_k))) == 1
    if equal:
        x = padded(case, inputs)
    else:
        x = {name: t.transpose(0, 1)[None].contiguous() for name, t in tensors(case, inputs).items()}
    users = range(1 if equal else len(case.lengths_q))
    user_q, user_k, position, index, history = [], [], [], [], []
    for b in users:
        sq, sk = case.lengths_q[b], case.lengths_k[b]
        user_q += [torch.full((sq,), b)]
        user_k += [torch.full((sk,), b)]
        position += [torch.arange(sq) + sk - sq]
        index += [torch.arange(sk)]
        history += [torch.full((sk,), sk - case.targets)]
    user_q, user_k, position, index, history = map(torch.cat, (user_q, user_k, position, index, history))

    def valid(_, __, i, j):
        if case.full:
            return user_q[i] == user_k[j]
        seen = (index[j] <= position[i]) & ((index[j] < history[j]) | (index[j] == position[i]))
        return seen & (user_q[i] == user_k[j])

    mask = create_block_mask(valid, None, None, len(user_q), len(user_k), device="cpu")
    attention = torch.compile(flex_attention, dynamic=False)

    def call():
        return attention(x["q"], x["k"], x["v"], block_mask=mask)

    def result(out):
        if equal:
            return from_padded(case, dict(out=out))
        return dict(out=out[0].transpose(0, 1).float().numpy())

    return call, result


def loop_contender(case, inputs, one):
    """one(b, q, k, v) for each user, on views [H, rows, D] of the jagged rows."""
    import torch

    x = tensors(case, inputs)
    rows_of, keys_of = offsets(case.lengths_q), offsets(case.lengths_k)

    def forward(q, k, v):
        parts = [one(b, q[rows_of[b]:rows_of[b + 1]].transpose(0, 1), k[keys_of[b]:keys_of[b + 1]].transpose(0, 1),
                     v[keys_of[b]:keys_of[b + 1]].transpose(0, 1)).transpose(0, 1) for b in range(len(case.lengths_q))]
        return torch.cat(parts)

    return (lambda: step(case, forward, x),
            lambda results: {name: t.float().numpy() for name, t in results.items()})


def user_masks(case, dtype):
    """mask(b), made once for each pair of lengths, before anything is timed; divided by n, but where it is bool."""
    import torch

    masks = {}
    for b, lengths in enumerate(zip(case.lengths_q, case.lengths_k)):
        if lengths not in masks:
            mask = torch.from_numpy(case.valid(b, range(lengths[0]), range(lengths[1])))
            masks[lengths] = mask if dtype == torch.bool else mask.to(dtype) / case.n
    return lambda b: masks[case.lengths_q[b], case.lengths_k[b]]


def loop_eager(case, inputs, threads):
    import torch
    from torch.nn.functional import silu

    dtype = torch.bfloat16 if case.dtype == "bf16" else torch.float32
    mask = user_masks(case, dtype)

    def one(b, q, k, v):
        if case.backward:  # autograd needs what in_place overwrites
            return torch.matmul(silu(torch.matmul(q * case.alpha, k.transpose(-1, -2))) * mask(b), v)
        return in_place(q, k, v, mask(b), case.alpha)

    return loop_contender(case, inputs, one)


def loop_sdpa(case, inputs, threads):
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attention

    plain = case.lower_triangle
    mask = None if plain else user_masks(case, torch.bool)

    def one(b, q, k, v):
        if plain:
            return attention(q[None], k[None], v[None], is_causal=True)[0]
        return attention(q[None], k[None], v[None], attn_mask=mask(b))[0]

    return loop_contender(case, inputs, one)


def loop_tiled(case, inputs, threads, n_rows=256, n_keys=1024, work=None):
    """The best that we know to write with torch calls: one head at a time, tiles that stay in cache, in place, and only
    tiles that the mask leaves; gradients by hand, since autograd would keep every tile. work: the type to compute in."""
    import torch

    silu = torch.nn.functional.silu
    given = tensors(case, inputs)
    work = work or given["q"].dtype
    x = dict(given)
    at_q, at_k = offsets(case.lengths_q), offsets(case.lengths_k)
    plans = {}
    for b, lengths in enumerate(zip(case.lengths_q, case.lengths_k)):
        if lengths not in plans:
            plans[lengths] = [(rows, [(keys, None if mask is None else torch.from_numpy(mask).to(work))
                                      for keys, mask in tiles]) for rows, tiles in tiles_of(case, b, n_rows, n_keys)]

    def heads():
        """Of every user: its tiles, and where the rows of q and of k lie, with the head."""
        for b, lengths in enumerate(zip(case.lengths_q, case.lengths_k)):
            for h in range(case.heads):
                yield plans[lengths], (slice(at_q[b], at_q[b + 1]), h), (slice(at_k[b], at_k[b + 1]), h)

    def forward(out):
        for plan, rows_h, keys_h in heads():
            q, k, v, o = x["q"][rows_h] * case.alpha, x["k"][keys_h], x["v"][keys_h], out[rows_h]
            for rows, tiles in plan:
                total = None
                for keys, mask in tiles:
                    s = silu(torch.matmul(q[rows], k[keys].T), inplace=True)
                    if mask is not None:
                        s.mul_(mask)
                    part = torch.matmul(s, v[keys])
                    total = part if total is None else total.add_(part)
                if total is not None:
                    o[rows] = total.mul_(1 / case.n)

    def gradients(dq, dk, dv):
        for plan, rows_h, keys_h in heads():
            q, k, v = x["q"][rows_h] * case.alpha, x["k"][keys_h], x["v"][keys_h]
            dout = x["dout"][rows_h] * (1 / case.n)
            dk_h, dv_h = (t.new_zeros(t.shape, dtype=torch.float32) for t in (k, v))  # sums over tiles
            for rows, tiles in plan:
                dq_rows = 0
                for keys, mask in tiles:
                    s = torch.matmul(q[rows], k[keys].T)
                    ds = torch.sigmoid(s)
                    p = s.mul_(ds)  # silu
                    ds.add_(torch.addcmul(p, p, ds, value=-1))  # its gradient
                    if mask is not None:
                        p.mul_(mask)
                        ds.mul_(mask)
                    ds.mul_(torch.matmul(dout[rows], v[keys].T))
                    dv_h[keys] += torch.matmul(p.T, dout[rows])
                    dk_h[keys] += torch.matmul(ds.T, q[rows])
                    dq_rows = dq_rows + torch.matmul(ds, k[keys])
                dq[rows_h][rows] = dq_rows * case.alpha
            dk[keys_h], dv[keys_h] = dk_h, dv_h

    def call():
        x.update((name, t.to(work)) for name, t in given.items())
        results = dict(out=given["q"].new_zeros(*given["q"].shape[:2], case.dv))
        with torch.no_grad():
            forward(results["out"])
            if case.backward:
                results |= {"d" + name: torch.empty_like(given[name]) for name in "qkv"}
                gradients(*(results["d" + name] for name in "qkv"))
        return results

    return call, lambda results: {name: t.float().numpy() for name, t in results.items()}


def loop_tiled_f32(case, inputs, threads):
    """Of bf16, computed in fp32: where torch has no fast bf16 products that is what a careful user does."""
    import torch

    return loop_tiled(case, inputs, threads, work=torch.float32)


# ---- Others --------------------------------------------------------------------------------------

def onnxruntime(case, inputs, threads):
    """MatMul, QuickGelu with alpha 1 (silu), the mask, MatMul, as one graph."""
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    x = {name: t.numpy() for name, t in padded(case, inputs).items()}
    mask = (padded_mask(case, None) / case.n).numpy()
    nodes = [helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), helper.make_node("Mul", ["q", "alpha"], ["qa"]),
             helper.make_node("MatMul", ["qa", "kt"], ["s"]),
             helper.make_node("QuickGelu", ["s"], ["g"], domain="com.microsoft", alpha=1.0),
             helper.make_node("Mul", ["g", "mask"], ["p"]), helper.make_node("MatMul", ["p", "v"], ["out"])]
    described = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in x.items()]
    shape = (*x["q"].shape[:3], case.dv)
    graph = helper.make_graph(nodes, "hstu", described, [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(np.float32(case.alpha), "alpha"), numpy_helper.from_array(mask, "mask")])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17),
                                                                  helper.make_opsetid("com.microsoft", 1)])
    onnx.checker.check_model(model, full_check=False)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def result(outputs):
        import torch

        return from_padded(case, dict(out=torch.from_numpy(outputs[0])))

    return lambda: session.run(None, x), result


def generative_recommenders(case, inputs, threads, folder):
    """pytorch_hstu_mha of a checkout of generative-recommenders; needs fbgemm-gpu-cpu."""
    import importlib.util
    from pathlib import Path

    import fbgemm_gpu  # noqa: F401 registers torch.ops.fbgemm
    import torch

    path = Path(folder) / "generative_recommenders/ops/pytorch/pt_hstu_attention.py"
    spec = importlib.util.spec_from_file_location("pt_hstu_attention", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, at = tensors(case, inputs), torch.from_numpy(offsets(case.lengths_q))
    more = dict(num_targets=torch.full((len(case.lengths_q),), case.targets)) if case.targets else {}

    def forward(q, k, v):
        return module.pytorch_hstu_mha(case.n, case.alpha, q, k, v, at, **more)

    return (lambda: step(case, forward, x),
            lambda results: {name: t.float().numpy() for name, t in results.items()})
