"""Values and gradients of single operations by PyTorch, for tests/pytorch.rs.

    python make_reference.py > pytorch_operations.json

Needs torch and numpy on a CPU; made with torch 2.15. The inputs are f32 numbers, the computation is in f64, so the
difference that the test sees is unisono's own. Each case has inputs, a gradient `seed` of the result, the result, and the
inputs' gradients. Integer arguments stand in `ids`; 4294967295 masks a target or looks nothing up.
"""
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F

MASKED = 2**32 - 1
rng = np.random.default_rng(3)
cases = []


def f32(tensor):
    """Numbers that read back as the same f32."""
    values = tensor.detach().numpy().astype(np.float32).ravel()
    return [float(str(v)) for v in values]


def case(name, f, *inputs, ids=None, **numbers):
    tensors = [torch.tensor(np.float32(x).astype(np.float64), requires_grad=True) for x in inputs]
    arguments = [] if ids is None else [torch.tensor(np.array(ids, dtype=np.int64))]
    y = f(*tensors, *arguments)
    seed = torch.tensor(np.float32(rng.uniform(-1, 1, tuple(y.shape))).astype(np.float64))
    y.backward(seed)
    array = lambda t: dict(shape=list(t.shape), values=f32(t))
    cases.append(
        dict(
            name=name,
            inputs=[array(t) for t in tensors],
            ids=None if ids is None else dict(shape=list(np.shape(ids)), values=np.ravel(ids).tolist()),
            seed=array(seed),
            result=array(y),
            gradients=[array(t.grad) for t in tensors],
        )
    )


def any_(*shape):
    return rng.normal(size=shape)


def positive(*shape):
    return rng.uniform(0.2, 3, shape)


# Elementwise, with broadcasting.
for name, f in [("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("div", torch.div)]:
    case(name, f, any_(2, 3, 4), positive(4))
    case(name, f, any_(3, 1), positive(2, 3, 4))
case("neg", torch.neg, any_(7))
case("relu", F.relu, any_(3, 7))
case("gelu", F.gelu, 2 * any_(3, 7))
case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), 2 * any_(3, 7))
case("silu", F.silu, 2 * any_(3, 7))
case("exp", torch.exp, any_(3, 7))
case("ln", torch.log, positive(3, 7))
case("tanh", torch.tanh, any_(3, 7))
case("sigmoid", torch.sigmoid, 3 * any_(3, 7))
case("sqrt", torch.sqrt, positive(3, 7))
case("rsqrt", torch.rsqrt, positive(3, 7))
case("square", torch.square, any_(3, 7))
case("abs", torch.abs, any_(3, 7))

# Products. Weights are [in, out].
case("matmul", torch.matmul, any_(5, 6), any_(6, 4))
case("matmul", torch.matmul, any_(2, 5, 6), any_(6, 4))
case("matmul", torch.matmul, any_(2, 3, 5, 6), any_(2, 3, 6, 4))
case("linear", lambda x, w, b: x @ w + b, any_(2, 5, 6), any_(6, 4), any_(4))
case("linear_relu", lambda x, w, b: F.relu(x @ w + b), any_(2, 5, 6), any_(6, 4), any_(4))
case("linear_gelu", lambda x, w, b: F.gelu(x @ w + b), any_(2, 5, 6), any_(6, 4), any_(4))
case("linear_gelu_tanh", lambda x, w, b: F.gelu(x @ w + b, approximate="tanh"), any_(2, 5, 6), any_(6, 4), any_(4))
case("linear_silu", lambda x, w, b: F.silu(x @ w + b), any_(2, 5, 6), any_(6, 4), any_(4))

# Over the last dimension.
case("softmax", lambda x: F.softmax(x, -1), 3 * any_(4, 9))
case("log_softmax", lambda x: F.log_softmax(x, -1), 3 * any_(4, 9))
case("layer_norm", lambda x, g, b: F.layer_norm(x, (20,), g, b, 1e-5), any_(2, 3, 20) + 1, any_(20), any_(20))
case("rms_norm", lambda x, g: F.rms_norm(x, (20,), g, 1e-5), any_(2, 3, 20), any_(20))

# Sums and shapes.
case("sum", torch.sum, any_(3, 4))
case("mean", torch.mean, any_(3, 4))
case("sum_dim_0", lambda x: x.sum(0), any_(2, 3, 4))
case("mean_dim_1", lambda x: x.mean(1), any_(2, 3, 4))
case("sum_dim_2", lambda x: x.sum(2), any_(2, 3, 4))
case("permute", lambda x: x.permute(2, 0, 1), any_(2, 3, 4))
case("slice", lambda x: x[:, 1:3], any_(2, 4, 3))
case("concat", lambda a, b: torch.cat([a, b, a], 1), any_(2, 3, 2), any_(2, 1, 2))
case("embedding", lambda t, i: F.embedding(i, t), any_(6, 5), ids=[[5, 0, 0], [2, 5, 1]])


# Attention over a fused projection, features (group, [q…, k, v], d).
def attention(heads, groups, d, causal, mask=None):
    def f(x, *_):
        b, t, _ = x.shape
        per = heads // groups
        x = x.view(b, t, groups, per + 2, d)
        q = x[:, :, :, :per].reshape(b, t, heads, d).transpose(1, 2)
        k = x[:, :, :, per].transpose(1, 2).repeat_interleave(per, 1)
        v = x[:, :, :, per + 1].transpose(1, 2).repeat_interleave(per, 1)
        seen = torch.ones(t, t, dtype=torch.bool)
        if causal:
            seen = seen.tril()
        if mask is not None:
            seen = seen & mask
        return F.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2).reshape(b, t, heads * d)

    return f


case("attention_4_4_causal", attention(4, 4, 3, True), any_(2, 8, 36))
case("attention_4_2_causal", attention(4, 2, 3, True), any_(2, 8, 24))
case("attention_3_1_full", attention(3, 1, 4, False), any_(2, 8, 20))
MASK = (rng.uniform(size=(8, 8)) < 0.6) | np.eye(8, dtype=bool)
case("attention_4_2_masked", attention(4, 2, 3, True, torch.tensor(MASK)), any_(2, 8, 24), ids=MASK.astype(int))

# Losses.
TARGETS = np.array([[0, 4, -100], [2, 6, 1]])
STORED = np.where(TARGETS < 0, MASKED, TARGETS)
for reduction in ["mean", "sum", "none"]:
    def torch_loss(f, log):
        def loss(x, i):
            i = torch.where(i == MASKED, -100, i)
            x = F.log_softmax(x, -1) if log else x
            return f(x.reshape(-1, 7), i.reshape(-1), reduction=reduction).reshape(i.shape if reduction == "none" else ())

        return loss

    case(f"cross_entropy_{reduction}", torch_loss(F.cross_entropy, False), 2 * any_(2, 3, 7), ids=STORED)
    case(f"nll_{reduction}", torch_loss(F.nll_loss, True), 2 * any_(2, 3, 7), ids=STORED)
    case(f"mse_{reduction}", lambda a, b: F.mse_loss(a, b, reduction=reduction), any_(3, 4), any_(3, 4))

json.dump(dict(made_with=f"torch {torch.__version__}", cases=cases), sys.stdout, separators=(",", ":"))
print()
