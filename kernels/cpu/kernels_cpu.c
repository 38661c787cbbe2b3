/* The cpu table. */
#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cpu/sparse_cpu.h"

const struct tri_kernels tri_kernels_cpu = {
    .name = "cpu",
    .pack = tri_cpu_pack,
    .commit = tri_cpu_commit,
    .forget = tri_cpu_forget,
    .unpack = tri_cpu_unpack,
    .reduce = tri_cpu_reduce,
    .scale = tri_cpu_scale,
    .push = tri_cpu_push,
    .pull = tri_cpu_pull,
    .sparse = &tri_sparse_kernels_cpu,
};
