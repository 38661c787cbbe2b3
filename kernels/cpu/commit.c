/* commit: may unpack write? */
#include <math.h>

#include "kernels/cpu/kernels_cpu.h"

/* This stream is the only writer; others read at any time. */
static void count(uint32_t *counter)
{
    __atomic_store_n(counter, *counter + 1, __ATOMIC_RELEASE);
}

trib_status tri_cpu_commit(uint32_t *decision, const uint32_t *abort_flag,
                           struct tri_list_counts *counts, const void *total,
                           trib_dtype total_dtype, float *total_out, trib_stream stream)
{
    (void)stream;
    /* Read once: decision and total_out must agree. */
    const int aborted = __atomic_load_n(abort_flag, __ATOMIC_ACQUIRE) != 0;
    int go = !aborted, none = 0;
    if (total != NULL) {
        const double sum =
            total_dtype == TRIB_F64 ? *(const double *)total : (double)*(const float *)total;
        go = go && isfinite(sum) && sum > 0;
        none = !aborted && sum == 0;
        if (total_out != NULL)
            *total_out = go || none ? (float)sum : NAN;
    }
    *decision = go ? 1 : 0;
    if (go)
        count(&counts->committed);
    else if (!aborted && !none)
        count(&counts->refused);
    return TRIB_OK;
}
