/* clear_result: the result of a call that is not applied is 0. */
#include "kernels/cpu/sparse_cpu.h"

trib_status tri_cpu_sparse_clear_result(const struct tri_clearing *result, const uint32_t *decision,
                                        trib_stream stream)
{
    (void)stream;
    if (*decision != 0)
        return TRIB_OK;
    if (result->dense != NULL)
        memset(result->dense, 0, result->bytes);
    if (result->count != NULL)
        *result->count = 0;
    return TRIB_OK;
}
