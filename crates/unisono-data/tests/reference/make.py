"""Makes the small tokenizers of this folder and the values that Python's `tokenizers` and `transformers` give with them.

    python -m venv venv && venv/bin/pip install tokenizers==0.23.3 transformers==5.24.0 jinja2 && venv/bin/python make.py

Everything is trained here on a few lines; nothing is taken from another model's files.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
LINES = [
    "Hello world, the zebra's stripes are black and white.",
    "What is the capital of France? The capital of France is Paris.",
    "Привет, мир! Как дела, мир?",
    "héllo wörld — naïve café",
    "for i in range(10):\n    print(i)\n\n",
    "1234567890 12 345",
    "日本語 テスト",
] * 8
TEXTS = [
    "",
    " ",
    "Hello world",
    " Hello  world ",
    "Привет, мир",
    " мир",
    "zebra 🦓🦓 end",
    "a\n\n  b\tc\r\n",
    "日本語テスト 漢字",
    "e\u0301 é ﬁ",
    "What's 12345?<|end|>x",
    "\u0000\u007f\ufeff�",
]
SPECIAL = {"byte_level": ("<|begin|>", "<|end|>"), "byte_fallback": ("<s>", "</s>"), "metaspace": ("<s>", "</s>"), "word_piece": ("[CLS]", "[SEP]")}


def byte_level():
    """GPT-2's and Llama 3's kind: a post-processor that adds BOS."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(
        LINES, trainers.BpeTrainer(vocab_size=340, special_tokens=["<|begin|>", "<|end|>"], initial_alphabet=alphabet)
    )
    t.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    t.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", t.token_to_id("<|begin|>"))]
            ),
        ]
    )
    # As some files have them: neither may change what a text's tokens are.
    t.enable_truncation(8)
    t.enable_padding(length=16)
    return t


def byte_fallback():
    """Llama 2's and Mistral's kind: SentencePiece's BPE with a token a byte for what it does not know."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    t.train_from_iterator(
        [line for line in LINES if line.isascii() or "мир" in line],
        trainers.BpeTrainer(vocab_size=400, special_tokens=special, limit_alphabet=80),
    )
    # The bytes are ordinary tokens in such files; only the first three are added tokens.
    value = json.loads(t.to_str())
    value["added_tokens"] = value["added_tokens"][:3]
    value["pre_tokenizer"] = None
    value["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    t = Tokenizer.from_str(json.dumps(value))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def metaspace():
    """T5's and XLM-R's kind: a unigram model; adds an EOS."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>"))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    return t


def word_piece():
    """BERT's kind."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[CLS]", "[SEP]"]))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return t


def main():
    values = {}
    for make in (byte_level, byte_fallback, metaspace, word_piece):
        name = make.__name__
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        make().save(str(folder / "tokenizer.json"), pretty=False)
        bos, eos = SPECIAL[name]
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": {"content": eos}, "pad_token": eos}
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
        t = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), bos_token=bos, eos_token=eos, pad_token=eos)
        texts = []
        for text in TEXTS:
            ids = t(text, add_special_tokens=False)["input_ids"]
            texts.append(
                {
                    "text": text,
                    "ids": ids,
                    "with_special": t(text)["input_ids"],
                    "decoded": t.decode(ids, clean_up_tokenization_spaces=False),
                    "decoded_special": t.decode([t.bos_token_id] + ids + [t.eos_token_id], clean_up_tokenization_spaces=False),
                    "decoded_text": t.decode(
                        [t.bos_token_id] + ids + [t.eos_token_id], skip_special_tokens=True, clean_up_tokenization_spaces=False
                    ),
                }
            )
        size = max(t.get_vocab().values()) + 1
        values[name] = {"vocab_size": size, "bos": t.bos_token_id, "eos": t.eos_token_id, "texts": texts}
    (HERE / "tokenizers.json").write_text(json.dumps(values, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
