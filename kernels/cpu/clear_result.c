/* clear_result: the result of a call that is not applied is 0. */
#include "kernels/cpu/sparse_cpu.h"

trib_status tri_cpu_sparse_clear_result(void *dense, size_t bytes, uint32_t *count,
                                        const uint32_t *decision, trib_stream stream)
{
    (void)stream;
    if (*decision != 0)
        return TRIB_OK;
    if (dense != NULL)
        memset(dense, 0, bytes);
    if (count != NULL)
        *count = 0;
    return TRIB_OK;
}
