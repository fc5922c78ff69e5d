"""Serve a policy with transformers, behind an OpenAI-compatible chat endpoint.

pip install torch
python examples/serve_transformers.py --policy=runs/grpo/policy --port=8000

It shows that a trained policy is a common Hugging Face directory. One request runs at a time; for
speed, use vLLM (docs/chat_endpoints.md).
"""

from __future__ import annotations

import argparse
import threading
from typing import Any

import torch
import transformers
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


class ChatModel:
    """Model and tokenizer of a Hugging Face directory."""

    def __init__(self, directory: str) -> None:
        # AutoTokenizer would replace the pre-tokenizer of webagent-tiny by that of Qwen2.
        self._tokenizer: Any = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(directory)
        self._lock = threading.Lock()

    def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the response to a chat completion request."""
        prompt = self._tokenizer.apply_chat_template(
            request["messages"],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
            # As in training.
            enable_thinking=False,  # for Qwen3
            date_string="26 Jul 2024",  # for Llama 3.2, whose template writes the date
        )
        temperature = float(request.get("temperature", 1.0))
        # generation_config.json of an instruction-tuned model may set a penalty.
        sampling: dict[str, Any] = {"do_sample": temperature > 0, "repetition_penalty": 1.0}
        if temperature > 0:
            top_p = float(request.get("top_p", 1.0))
            sampling |= {"temperature": temperature, "top_p": top_p, "top_k": 0}
        with self._lock, torch.no_grad():
            torch.manual_seed(int(request.get("seed") or 0) % 2**63)
            output = self._model.generate(
                **prompt, **sampling, max_new_tokens=int(request.get("max_tokens", 256))
            )
        prompt_tokens = prompt["input_ids"].shape[1]
        ids = output[0, prompt_tokens:].tolist()
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": len(ids)}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}}
        return {"object": "chat.completion", "choices": [choice], "usage": usage}


def main() -> None:
    """Load the policy and serve it until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", required=True, help="Hugging Face directory")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    model = ChatModel(options.policy)

    async def complete(request: Request) -> JSONResponse:
        return JSONResponse(await run_in_threadpool(model.complete, await request.json()))

    app = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
