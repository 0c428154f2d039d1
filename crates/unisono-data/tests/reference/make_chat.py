"""Renders the chat templates in `chat/` with Python's `transformers` (see make.py for the environment).

The templates are those that models of these families come with, or (`odds`) made up to use what templates lean on now and then.
"""

import json
from pathlib import Path

from transformers.utils import chat_template_utils

HERE = Path(__file__).parent


def say(*contents, system=None):
    messages = [{"role": "system", "content": system}] if system is not None else []
    return messages + [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


CONVERSATIONS = [
    say("Hello"),
    say("Hello", "Hi there!"),
    say("  What is 1+1? \n", " 2\n", "And 2+2?", "4", system="Be brief."),
    say("Привет 🦓", "мир"),
    say("", ""),
    [{"role": "assistant", "content": "I begin"}, {"role": "user", "content": "ok"}],
    say("think", "<think>\nhm\n</think>\n\nDone", "again", "<think>\nh2\n</think>\nWell"),
    say("one two", "stop", "never"),
]


class Day:
    """The day that unisono gives templates when nothing is said: 26 July 2024."""

    def strftime_now(self, text):
        from datetime import datetime, timezone

        return datetime(2024, 7, 26, tzinfo=timezone.utc).strftime(text)


def main():
    values = {}
    for file in sorted((HERE / "chat").glob("*.jinja")):
        source = file.read_text()
        template = chat_template_utils._compile_jinja_template(source)
        rows = []
        for messages in CONVERSATIONS:
            for prompt in (False, True):
                row = {"messages": messages, "add_generation_prompt": prompt}
                try:
                    row["text"] = template.render(
                        messages=messages,
                        tools=None,
                        documents=None,
                        add_generation_prompt=prompt,
                        bos_token="<s>",
                        eos_token="</s>",
                        strftime_now=Day().strftime_now,
                    )
                except Exception as error:
                    row["error"] = str(error)
                rows.append(row)
        values[file.stem] = rows
    (HERE / "chat.json").write_text(json.dumps(values, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
