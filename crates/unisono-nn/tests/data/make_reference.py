"""A tiny GPT and the optimizers by PyTorch, for tests/pytorch.rs.

    python make_reference.py > pytorch_models.json

Needs torch and numpy on a CPU; made with torch 2.15. The GPT is GPT-2 as Hugging Face's GPT2LMHeadModel computes it, with its
names and layouts (linear weights are [in, out], c_attn's columns are all queries, all keys, all values). Logits, loss and
gradients are computed in f64 from f32 weights, training and the optimizers' steps in f32.
"""
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F

MASKED = 2**32 - 1
V, T, L, H, C, HIDDEN, BATCH = 13, 8, 2, 2, 8, 32, 4
rng = np.random.default_rng(7)


def f32(tensor):
    """Numbers that read back as the same f32."""
    return [float(str(v)) for v in tensor.detach().numpy().astype(np.float32).ravel()]


def array(tensor):
    return dict(shape=list(tensor.shape), values=f32(tensor))


def weights(tied):
    """Initial values by name, in the order of unisono's table. Larger than usual, so that everything matters."""
    normal = lambda *shape: rng.normal(0, 0.3, shape).astype(np.float32)
    w = {"wte.weight": normal(V, C), "wpe.weight": normal(T, C)}
    for i in range(L):
        h = f"h.{i}."
        w[h + "ln_1.weight"], w[h + "ln_1.bias"] = 1 + normal(C), normal(C)
        w[h + "attn.c_attn.weight"], w[h + "attn.c_attn.bias"] = normal(C, 3 * C), normal(3 * C)
        w[h + "attn.c_proj.weight"], w[h + "attn.c_proj.bias"] = normal(C, C), normal(C)
        w[h + "ln_2.weight"], w[h + "ln_2.bias"] = 1 + normal(C), normal(C)
        w[h + "mlp.c_fc.weight"], w[h + "mlp.c_fc.bias"] = normal(C, HIDDEN), normal(HIDDEN)
        w[h + "mlp.c_proj.weight"], w[h + "mlp.c_proj.bias"] = normal(HIDDEN, C), normal(C)
    w["ln_f.weight"], w["ln_f.bias"] = 1 + normal(C), normal(C)
    if not tied:
        w["lm_head.weight"] = normal(V, C)
    return w


def logits(w, ids):
    norm = lambda x, name: F.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"], 1e-5)
    linear = lambda x, name: x @ w[name + ".weight"] + w[name + ".bias"]
    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for i in range(L):
        h = f"h.{i}."
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(C, 2)
        heads = lambda t: t.view(*t.shape[:2], H, C // H).transpose(1, 2)
        y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
        x = x + linear(y.transpose(1, 2).reshape(x.shape), h + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    return norm(x, "ln_f") @ w.get("lm_head.weight", w["wte.weight"]).T


def mean_loss(w, ids, targets):
    return F.cross_entropy(logits(w, ids).reshape(-1, V), targets.reshape(-1), ignore_index=MASKED)


def batch():
    ids = rng.integers(0, V, (BATCH, T))
    targets = np.where(rng.uniform(size=(BATCH, T)) < 0.2, MASKED, rng.integers(0, V, (BATCH, T)))
    return ids, targets


def integers(a):
    return dict(shape=list(a.shape), values=a.ravel().tolist())


def gpt(tied):
    initial = weights(tied)
    w = {name: torch.tensor(v.astype(np.float64), requires_grad=True) for name, v in initial.items()}
    ids, targets = batch()
    out = logits(w, torch.tensor(ids))
    loss = mean_loss(w, torch.tensor(ids), torch.tensor(targets))
    loss.backward()
    result = dict(
        tied=tied,
        weights={n: array(torch.tensor(v)) for n, v in initial.items()},
        ids=integers(ids),
        targets=integers(targets),
        logits=array(out),
        loss=loss.item(),
        gradients={n: array(t.grad) for n, t in w.items()},
    )
    # 20 steps of AdamW in f32 from the same weights, matrices and tables decayed, clipped at 1.
    w = {name: torch.tensor(v, requires_grad=True) for name, v in initial.items()}
    groups = [
        dict(params=[t for t in w.values() if t.dim() > 1], weight_decay=0.1),
        dict(params=[t for t in w.values() if t.dim() == 1], weight_decay=0.0),
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    steps = []
    fixed = [batch() for _ in range(4)]
    for step in range(20):
        ids, targets = fixed[step % 4]
        optimizer.zero_grad()
        loss = mean_loss(w, torch.tensor(ids), torch.tensor(targets))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        steps.append(dict(loss=loss.item(), norm=norm.item()))
    result["batches"] = [dict(ids=integers(i), targets=integers(t)) for i, t in fixed]
    result["steps"] = steps
    return result


def optimizer(name, make):
    """Ten steps of a matrix that decays and a bias that does not, with given gradients."""
    start = [rng.normal(size=s).astype(np.float32) for s in [(3, 4), (4,)]]
    gradients = [[rng.normal(size=s).astype(np.float32) for s in [(3, 4), (4,)]] for _ in range(10)]
    w, b = (torch.tensor(v, requires_grad=True) for v in start)
    opt = make([w], [b])
    for g in gradients:
        w.grad, b.grad = (torch.tensor(v) for v in g)
        opt.step()
    pair = lambda vs: [array(torch.as_tensor(v)) for v in vs]
    return dict(name=name, start=pair(start), gradients=[pair(g) for g in gradients], end=pair([w, b]))


def sgd(momentum, dampening, decay, nesterov):
    make = lambda w, b: torch.optim.SGD(
        [dict(params=w, weight_decay=decay), dict(params=b, weight_decay=0.0)],
        lr=0.05,
        momentum=momentum,
        dampening=dampening,
        nesterov=nesterov,
    )
    settings = dict(momentum=momentum, dampening=dampening, weight_decay=decay, nesterov=nesterov)
    return dict(optimizer("sgd", make), lr=0.05, settings=settings)


def adamw(beta1, beta2, eps, decay):
    make = lambda w, b: torch.optim.AdamW(
        [dict(params=w, weight_decay=decay), dict(params=b, weight_decay=0.0)], lr=0.01, betas=(beta1, beta2), eps=eps
    )
    settings = dict(beta1=beta1, beta2=beta2, epsilon=eps, weight_decay=decay)
    return dict(optimizer("adamw", make), lr=0.01, settings=settings)


torch.set_num_threads(1)
json.dump(
    dict(
        made_with=f"torch {torch.__version__}",
        gpt=[gpt(True), gpt(False)],
        optimizers=[
            sgd(0.0, 0.0, 0.0, False),
            sgd(0.0, 0.0, 0.1, False),
            sgd(0.9, 0.0, 0.0, False),
            sgd(0.9, 0.3, 0.1, False),
            sgd(0.9, 0.0, 0.1, True),
            adamw(0.9, 0.999, 1e-8, 0.0),
            adamw(0.9, 0.95, 1e-8, 0.1),
            adamw(0.5, 0.6, 1e-2, 0.3),
        ],
    ),
    sys.stdout,
    separators=(",", ":"),
)
print()
