/* sign: a header says which state and call it is of. */
#include "kernels/cpu/sparse_cpu.h"

trib_status tri_cpu_sparse_sign(struct tri_header *header, uint32_t signature, trib_stream stream)
{
    (void)stream;
    header->signature = signature;
    header->calls++;
    return TRIB_OK;
}
