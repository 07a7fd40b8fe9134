#!/usr/bin/env python3
"""A linear layer on libamk_gemm from PyTorch, without any binding: forward, both backward products, and batch invariance shown bit by bit.

    AMK_RESOURCES=… torch_linear.py path/to/libamk_gemm.so
"""
import ctypes
import sys

import torch

FWD, DA, DB = 0, 1, 2
KN, NK = 0, 1


class Args(ctypes.Structure):  # amk_gemm_args of amk_gemm.h
    _fields_ = (
        [("struct_bytes", ctypes.c_uint32), ("op", ctypes.c_int32), ("weights", ctypes.c_int32), ("out_type", ctypes.c_int32)]
        + [(name, ctypes.c_int64) for name in ("m", "n", "k", "left_stride", "right_stride", "out_stride")]
        + [(name, ctypes.c_void_p) for name in ("left", "right", "out")]
        + [("chunk", ctypes.c_int64), ("token_offset", ctypes.c_int64), ("total_in", ctypes.c_void_p), ("implementation", ctypes.c_char_p)]
    )


class Gemm:
    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        self.lib.amk_gemm_error.restype = ctypes.c_char_p
        self.lib.amk_gemm_error.argtypes = [ctypes.c_void_p]
        self.lib.amk_gemm_explain.restype = ctypes.c_char_p
        self.lib.amk_gemm_numeric_class.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        if self.lib.amk_gemm_open(torch.cuda.current_device(), None, None, ctypes.byref(self.handle)) != 0:
            raise RuntimeError(self.lib.amk_gemm_error(None).decode())

    def __call__(self, op, left, right, out, m, n, k, weights=NK, implementation=None, chunk=0, token_offset=0, total_in=None):
        args = Args(struct_bytes=ctypes.sizeof(Args), op=op, weights=weights, out_type=0 if out.dtype == torch.bfloat16 else 1, m=m, n=n, k=k,
                    left=left.data_ptr(), right=right.data_ptr(), out=out.data_ptr(), chunk=chunk, token_offset=token_offset,
                    total_in=None if total_in is None else total_in.data_ptr(), implementation=implementation)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if self.lib.amk_gemm_run(self.handle, ctypes.byref(args), stream) != 0:
            raise RuntimeError(self.lib.amk_gemm_error(self.handle).decode())
        self.last = args
        return out

    def explain(self):
        text = self.lib.amk_gemm_explain(self.handle, ctypes.byref(self.last))
        return text.decode() + ", class " + self.lib.amk_gemm_numeric_class(self.handle, ctypes.byref(self.last)).decode()


def same_bits(a, b):
    return torch.equal(a.view(torch.int16), b.view(torch.int16))


def main():
    gemm = Gemm(sys.argv[1])
    torch.manual_seed(0)
    n, k, tokens = 4096, 2048, 512
    weight = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
    grad = torch.randn(tokens, n, device="cuda", dtype=torch.bfloat16)

    def forward(rows):
        return gemm(FWD, rows, weight, torch.empty(rows.shape[0], n, device="cuda", dtype=torch.bfloat16), rows.shape[0], n, k)

    whole = forward(x)
    print("forward:", gemm.explain())
    reference = x.float() @ weight.float().T
    print("relative error against fp32:", ((whole.float() - reference).norm() / reference.norm()).item())
    for m in (1, 2, 7, 16, 33, 64, 129, 300):
        assert same_bits(forward(x[100:100 + m].contiguous()), whole[100:100 + m]), m
    print("rows 100… have the same bits in batches of 1, 2, 7, 16, 33, 64, 129, 300 and 512;",
          "torch.matmul:", all(same_bits(x[100:100 + m] @ weight.T, (x @ weight.T)[100:100 + m]) for m in (1, 16, 64, 300)))

    dx = gemm(DA, grad, weight, torch.empty_like(x), tokens, n, k)
    one = gemm(DA, grad[7:8].contiguous(), weight, torch.empty(1, k, device="cuda", dtype=torch.bfloat16), 1, n, k)
    assert same_bits(one, dx[7:8])
    dw = gemm(DB, grad, x, torch.empty_like(weight), tokens, n, k)
    total = torch.empty(n, k, device="cuda")
    gemm(DB, grad[:208], x[:208], total, 208, n, k)
    gemm(DB, grad[208:400], x[208:400], total, 192, n, k, token_offset=208, total_in=total)  # in place
    split = gemm(DB, grad[400:], x[400:], torch.empty_like(weight), tokens - 400, n, k, token_offset=400, total_in=total)
    assert same_bits(split, dw)
    print("dB of 208 + 192 + 112 tokens has the bits of one call:", gemm.explain())
    dw = gemm(DB, grad, x, torch.empty_like(weight), tokens, n, k, chunk=128)
    total = gemm(DB, grad[:256], x[:256], torch.empty(n, k, device="cuda"), 256, n, k, chunk=128)
    split = gemm(DB, grad[256:], x[256:], torch.empty_like(weight), 256, n, k, chunk=128, token_offset=256, total_in=total)
    assert same_bits(split, dw)
    print("dA rows are invariant; chunked dB does not depend on how tokens are split over calls:", gemm.explain())
    try:
        gemm(FWD, x, weight, whole, tokens, n, k, implementation=b"wgmm")
    except RuntimeError as error:
        print("a wrong name:", error)
    try:
        gemm(FWD, x.cpu(), weight, whole, tokens, n, k)
    except RuntimeError as error:
        print("a host pointer:", error)


if __name__ == "__main__":
    main()
