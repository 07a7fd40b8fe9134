// wgmma m64nNk16, bf16 × bf16 + fp32, for the one N of this compilation (DG_WGMMA_N, a multiple of 8 up to 256; DG_WGMMA_REGS = N/2).
// Inline PTX wants every accumulator register by name: DG_REGS_i and DG_OPERANDS_i chain them four at a time.
#pragma once

#include "types.cuh"

#define DG_TEXT_(x) #x
#define DG_TEXT(x) DG_TEXT_(x)
#define DG_JOIN_(a, b) a##b
#define DG_JOIN(a, b) DG_JOIN_(a, b)

// clang-format off
#define DG_REGS_4 "%0, %1, %2, %3"
#define DG_OPERANDS_4 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define DG_REGS_8 DG_REGS_4 ", %4, %5, %6, %7"
#define DG_OPERANDS_8 DG_OPERANDS_4, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define DG_REGS_12 DG_REGS_8 ", %8, %9, %10, %11"
#define DG_OPERANDS_12 DG_OPERANDS_8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define DG_REGS_16 DG_REGS_12 ", %12, %13, %14, %15"
#define DG_OPERANDS_16 DG_OPERANDS_12, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define DG_REGS_20 DG_REGS_16 ", %16, %17, %18, %19"
#define DG_OPERANDS_20 DG_OPERANDS_16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define DG_REGS_24 DG_REGS_20 ", %20, %21, %22, %23"
#define DG_OPERANDS_24 DG_OPERANDS_20, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define DG_REGS_28 DG_REGS_24 ", %24, %25, %26, %27"
#define DG_OPERANDS_28 DG_OPERANDS_24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define DG_REGS_32 DG_REGS_28 ", %28, %29, %30, %31"
#define DG_OPERANDS_32 DG_OPERANDS_28, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define DG_REGS_36 DG_REGS_32 ", %32, %33, %34, %35"
#define DG_OPERANDS_36 DG_OPERANDS_32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define DG_REGS_40 DG_REGS_36 ", %36, %37, %38, %39"
#define DG_OPERANDS_40 DG_OPERANDS_36, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define DG_REGS_44 DG_REGS_40 ", %40, %41, %42, %43"
#define DG_OPERANDS_44 DG_OPERANDS_40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define DG_REGS_48 DG_REGS_44 ", %44, %45, %46, %47"
#define DG_OPERANDS_48 DG_OPERANDS_44, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define DG_REGS_52 DG_REGS_48 ", %48, %49, %50, %51"
#define DG_OPERANDS_52 DG_OPERANDS_48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define DG_REGS_56 DG_REGS_52 ", %52, %53, %54, %55"
#define DG_OPERANDS_56 DG_OPERANDS_52, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define DG_REGS_60 DG_REGS_56 ", %56, %57, %58, %59"
#define DG_OPERANDS_60 DG_OPERANDS_56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define DG_REGS_64 DG_REGS_60 ", %60, %61, %62, %63"
#define DG_OPERANDS_64 DG_OPERANDS_60, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define DG_REGS_68 DG_REGS_64 ", %64, %65, %66, %67"
#define DG_OPERANDS_68 DG_OPERANDS_64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define DG_REGS_72 DG_REGS_68 ", %68, %69, %70, %71"
#define DG_OPERANDS_72 DG_OPERANDS_68, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define DG_REGS_76 DG_REGS_72 ", %72, %73, %74, %75"
#define DG_OPERANDS_76 DG_OPERANDS_72, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define DG_REGS_80 DG_REGS_76 ", %76, %77, %78, %79"
#define DG_OPERANDS_80 DG_OPERANDS_76, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define DG_REGS_84 DG_REGS_80 ", %80, %81, %82, %83"
#define DG_OPERANDS_84 DG_OPERANDS_80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define DG_REGS_88 DG_REGS_84 ", %84, %85, %86, %87"
#define DG_OPERANDS_88 DG_OPERANDS_84, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define DG_REGS_92 DG_REGS_88 ", %88, %89, %90, %91"
#define DG_OPERANDS_92 DG_OPERANDS_88, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define DG_REGS_96 DG_REGS_92 ", %92, %93, %94, %95"
#define DG_OPERANDS_96 DG_OPERANDS_92, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define DG_REGS_100 DG_REGS_96 ", %96, %97, %98, %99"
#define DG_OPERANDS_100 DG_OPERANDS_96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define DG_REGS_104 DG_REGS_100 ", %100, %101, %102, %103"
#define DG_OPERANDS_104 DG_OPERANDS_100, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define DG_REGS_108 DG_REGS_104 ", %104, %105, %106, %107"
#define DG_OPERANDS_108 DG_OPERANDS_104, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define DG_REGS_112 DG_REGS_108 ", %108, %109, %110, %111"
#define DG_OPERANDS_112 DG_OPERANDS_108, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define DG_REGS_116 DG_REGS_112 ", %112, %113, %114, %115"
#define DG_OPERANDS_116 DG_OPERANDS_112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define DG_REGS_120 DG_REGS_116 ", %116, %117, %118, %119"
#define DG_OPERANDS_120 DG_OPERANDS_116, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define DG_REGS_124 DG_REGS_120 ", %120, %121, %122, %123"
#define DG_OPERANDS_124 DG_OPERANDS_120, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define DG_REGS_128 DG_REGS_124 ", %124, %125, %126, %127"
#define DG_OPERANDS_128 DG_OPERANDS_124, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
// clang-format on

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Tells the compiler that the accumulators change while a wgmma is in flight.
template <int kCount>
__device__ __forceinline__ void wgmma_pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d (+)= a · b, one k16 step. accumulate = 0 starts a chain. kTransA/B = 1: that operand lies with M (or N) contiguous.
// kRegs = kN / 2 and the numbers that follow it, as operands are counted.
#define DG_DEFINE_WGMMA(name, kN, kRegs, kRegs1, kRegs2, kRegs3, kRegs4)                                                            \
  template <int kTransA, int kTransB>                                                                                               \
  __device__ __forceinline__ void name(float(&d)[kRegs], u64 a, u64 b, int accumulate) {                                            \
    asm volatile("{\n.reg .pred p;\n"                                                                                             \
                 "setp.ne.b32 p, %" DG_TEXT(kRegs2) ", 0;\n"                                                                      \
                 "wgmma.mma_async.sync.aligned.m64n" DG_TEXT(kN) "k16.f32.bf16.bf16 {" DG_JOIN(DG_REGS_, kRegs) "}, "             \
                 "%" DG_TEXT(kRegs) ", %" DG_TEXT(kRegs1) ", p, 1, 1, %" DG_TEXT(kRegs3) ", %" DG_TEXT(kRegs4) ";\n}\n"           \
                 : DG_JOIN(DG_OPERANDS_, kRegs)                                                                                   \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB)); \
  }
DG_DEFINE_WGMMA(wgmma_k16, DG_WGMMA_N, DG_WGMMA_REGS, DG_WGMMA_REGS_PLUS_1, DG_WGMMA_REGS_PLUS_2, DG_WGMMA_REGS_PLUS_3, DG_WGMMA_REGS_PLUS_4)
