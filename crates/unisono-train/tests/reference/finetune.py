#!/usr/bin/env python3
"""Twenty steps of fine-tuning small models on masked answers, computed by PyTorch, for finetune_pytorch.rs.

    finetune.py > finetune.json      (transformers 5.24, torch 2.15, CPU, f32, eager attention)

Models and first weights are those of hf_logits.py. The batch is always the same: see `batch`. The loss is the mean over all answer tokens
of the step; AdamW decays matrices and tables, not gains and biases.
"""

import json

import torch
from hf_logits import FAMILIES, model_of

SEQUENCES, WIDTH, STEPS = 8, 48, 20
IGNORE = -100


def batch():
    """Inputs and targets: sequence s has 20 + 4 s tokens, of which the first 6 + s are the prompt."""
    inputs = torch.zeros(SEQUENCES, WIDTH, dtype=torch.long)
    targets = torch.full((SEQUENCES, WIDTH), IGNORE)
    for s in range(SEQUENCES):
        ids = [(5 * i * i + 3 * i * s + 13 * s + 1) % 97 for i in range(20 + 4 * s)]
        inputs[s, : len(ids) - 1] = torch.tensor(ids[:-1])
        for position in range(6 + s, len(ids)):
            targets[s, position - 1] = ids[position]
    return inputs, targets


def losses(name):
    model = model_of(name).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    decay = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.999), eps=1e-8
    )
    inputs, targets = batch()
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps({name: losses(name) for name in FAMILIES}, indent=1))
