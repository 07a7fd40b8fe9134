#!/usr/bin/env python3
"""A whole Llama decode step in PyTorch, bf16, batch 1: torch.compile, static KV cache, one CUDA graph a token. The peer of bench/run versus_torch.

Usage: peer.py CONFIG_JSON [--first 192] [--last 320] [--mode default]. CONFIG_JSON: a file of config/models (or a checkpoint's config.json).
Weights are random: they change no time. Prints one JSON object; exit 77 where PyTorch or a GPU is missing.
"""
import argparse
import json
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: PyTorch is not installed", file=sys.stderr)
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU", file=sys.stderr)
    sys.exit(77)

parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("--first", type=int, default=192)
parser.add_argument("--last", type=int, default=320)
parser.add_argument("--max-seq", type=int, default=512)
parser.add_argument("--mode", default="default", help="of torch.compile; 'none' runs eagerly inside the graph")
args = parser.parse_args()

with open(args.config) as file:
    config = json.load(file)
    config = config.get("config", config)
hidden, inter, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
heads, kv_heads, vocab = config["num_attention_heads"], config["num_key_value_heads"], config["vocab_size"]
head_dim = config.get("head_dim") or hidden // heads
tied = config.get("tie_word_embeddings", False)
eps = config.get("rms_norm_eps", 1e-5)
device, dtype = torch.device("cuda"), torch.bfloat16
torch.manual_seed(1)


def weight(*shape):
    return torch.randn(*shape, device=device, dtype=dtype) * 0.02


embedding = weight(vocab, hidden)
head = embedding if tied else weight(vocab, hidden)
blocks = [dict(n1=weight(hidden) + 1, qkv=weight((heads + 2 * kv_heads) * head_dim, hidden), o=weight(hidden, heads * head_dim), n2=weight(hidden) + 1,
               gate_up=weight(2 * inter, hidden), down=weight(hidden, inter)) for _ in range(layers)]
final_norm = weight(hidden) + 1
cache = [[torch.zeros(1, kv_heads, args.max_seq, head_dim, device=device, dtype=dtype) for _ in range(2)] for _ in range(layers)]
angle = torch.outer(torch.arange(args.max_seq, device=device, dtype=torch.float32),
                    10000.0 ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim))
cos, sin = torch.cat([angle, angle], 1).cos().to(dtype), torch.cat([angle, angle], 1).sin().to(dtype)
columns = torch.arange(args.max_seq, device=device)


def norm(x, w):
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)).to(dtype) * w


def rotate(x, c, s):
    a, b = x.chunk(2, -1)
    return x * c + torch.cat([-b, a], -1) * s


def step(token, position):
    x = embedding[token]
    c, s = cos[position], sin[position]
    mask = (columns <= position)[None, None, None, :]
    for block, (keys, values) in zip(blocks, cache):
        q, k, v = F.linear(norm(x, block["n1"]), block["qkv"]).split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], -1)
        q = rotate(q.view(1, heads, 1, head_dim), c, s)
        keys.index_copy_(2, position, rotate(k.view(1, kv_heads, 1, head_dim), c, s))
        values.index_copy_(2, position, v.view(1, kv_heads, 1, head_dim))
        a = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=heads != kv_heads)
        x = x + F.linear(a.reshape(1, heads * head_dim), block["o"])
        gate, up = F.linear(norm(x, block["n2"]), block["gate_up"]).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, block["down"])
    return F.linear(norm(x, final_norm), head).argmax(-1)


run = step if args.mode == "none" else torch.compile(step, fullgraph=True, dynamic=False, mode=args.mode)
token = torch.zeros(1, device=device, dtype=torch.long)
position = torch.zeros(1, device=device, dtype=torch.long)
with torch.no_grad():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            token.copy_(run(token, position))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token.copy_(run(token, position))
        position.add_(1)
    times = []
    for _ in range(9):
        position.fill_(args.first)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(args.first, args.last):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000 / (args.last - args.first))
times = sorted(times[2:])
print(json.dumps({"bench": "decode", "metric": "torch_compile_cuda_graph", "model": args.config, "mode": args.mode, "us_per_token": times[len(times) // 2],
                  "best_us": times[0], "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}))
