#!/usr/bin/env python3
"""Logits of small models with adapters, computed by PEFT, for lora.rs.

    peft_logits.py > peft_logits.json     makes the values (peft 0.21.2 and what hf_logits.py names, which makes the models)
    peft_logits.py check BASE ADAPTER     loads an adapter that unisono wrote, and says what PEFT makes of it
    peft_logits.py same A B               the largest difference of logits of two directories, each a model or BASE:ADAPTER

Adapters' values come from the formula of hf_logits.py, by their names in the file. The configuration is stored as PEFT writes it.
"""

import json
import os
import sys
import tempfile

from hf_logits import FAMILIES, IDS, POSITIONS, logits, values
import numpy
import peft
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

CASES = {
    "list": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])),
    "pattern": (
        "qwen2",
        dict(
            r=3,
            lora_alpha=5,
            use_rslora=True,
            target_modules=r".*layers\.1\.(self_attn\.(q|k|o)_proj|mlp\.up_proj)",
        ),
    ),
    "beside": (
        "llama_linear_biases",
        dict(
            r=2,
            lora_alpha=3,
            target_modules=["q_proj", "o_proj", "gate_proj"],
            layers_to_transform=[1],
            modules_to_save=["model.norm", "lm_head"],
            bias="all",
        ),
    ),
}


def base(family):
    model = AutoModelForCausalLM.from_config(FAMILIES[family], attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(values(key, list(parameter.shape))))
    return model


def make():
    cases = []
    for name, (family, settings) in CASES.items():
        model = peft.get_peft_model(base(family), peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
        state = peft.get_peft_model_state_dict(model)
        filled = {key: torch.from_numpy(values(key, list(value.shape))) for key, value in state.items()}
        peft.set_peft_model_state_dict(model, filled)
        with tempfile.TemporaryDirectory() as directory:
            model.save_pretrained(directory)
            with open(os.path.join(directory, "adapter_config.json")) as file:
                config = json.load(file)
            with safe_open(os.path.join(directory, "adapter_model.safetensors"), "pt") as file:
                shapes = {key: list(file.get_tensor(key).shape) for key in file.keys()}
                assert all((file.get_tensor(key) == filled[key]).all() for key in file.keys())
        # A set there, so in any order.
        if isinstance(config["target_modules"], list):
            config["target_modules"].sort()
        out = logits(model)
        rows = [[float(f"{x:.6g}") for x in row] for row in out]
        cases.append(dict(name=name, family=family, config=config, shapes=shapes, logits=rows))
        print(name, "logits within", numpy.abs(out).max(), "std", out.std(), file=sys.stderr)
    result = dict(made_with=f"peft {peft.__version__}", ids=IDS, positions=POSITIONS, cases=cases)
    json.dump(result, sys.stdout, separators=(",", ":"))
    print()


def load(name):
    directory, _, adapter = name.partition(":")
    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32)
    return (peft.PeftModel.from_pretrained(model, adapter) if adapter else model).eval()


def check(directory, adapter):
    model = load(f"{directory}:{adapter}")
    model.print_trainable_parameters()
    lora = [name for name, _ in model.named_parameters() if "lora_" in name]
    print(len(lora), "tensors of adapters, largest logit", numpy.abs(logits(model)).max())
    with safe_open(os.path.join(adapter, "adapter_model.safetensors"), "pt") as file:
        state = peft.get_peft_model_state_dict(model)
        assert sorted(state) == sorted(file.keys()), set(state) ^ set(file.keys())
        assert all((state[key] == file.get_tensor(key)).all() for key in file.keys())
    print("every tensor of the file is in the model, and no other")


def same(a, b):
    print("largest difference", numpy.abs(logits(load(a)) - logits(load(b))).max())


if __name__ == "__main__":
    {"check": check, "same": same}.get(sys.argv[1] if sys.argv[1:] else "", lambda: make())(*sys.argv[2:])
