/* Packets that all ranks read: brought by a collective, or where they were made. */
#include "csrc/sparse/gather.h"

struct tri_gathering tri_arena_gathering(struct tri_arena *arena,
                                         const struct tri_sparse_params *params, size_t bytes,
                                         bool near, size_t more)
{
    const size_t size = (size_t)params->size;
    struct tri_gathering gathering = {.bytes = bytes};
    if (near) {
        gathering.own = tri_arena_take_near(arena, bytes + more);
        gathering.headers = tri_arena_take(arena, size * sizeof *gathering.headers);
        gathering.read = tri_arena_take(arena, sizeof *gathering.read);
        return gathering;
    }
    gathering.all = tri_arena_take(arena, size * bytes);
    gathering.own = gathering.all == NULL ? NULL : gathering.all + (size_t)params->rank * bytes;
    return gathering;
}

trib_status tri_gather(struct tri_run *run, const struct tri_gathering *gathering, size_t payload)
{
    if (gathering->all != NULL)
        return tri_link_allgather(run, gathering->own, gathering->all, gathering->bytes, payload);
    return tri_link_packet_headers(run, gathering->own, gathering->headers, gathering->bytes,
                                   payload);
}

char *tri_gathered(const struct tri_run *run, const struct tri_gathering *gathering, int32_t rank)
{
    if (gathering->all != NULL)
        return gathering->all + (size_t)rank * gathering->bytes;
    return tri_symmetric_of(run->near, gathering->own, rank);
}

trib_status tri_gather_decide(struct tri_run *run, const struct tri_gathering *gathering,
                              uint32_t capacity)
{
    const struct tri_header *packets[TRI_MAX_LISTS];
    if (gathering->all != NULL)
        return tri_run_decide(run, gathering->all, gathering->bytes, capacity);
    for (int32_t rank = 0; rank < run->params->size; rank++)
        packets[rank] = (const struct tri_header *)(const void *)tri_gathered(run, gathering, rank);
    return tri_run_decide_near(run, gathering->headers, packets, capacity);
}

trib_status tri_gather_end(struct tri_run *run, const struct tri_gathering *gathering)
{
    return gathering->all != NULL ? TRIB_OK
                                  : tri_link_allreduce(run, gathering->read, 1, TRIB_U32, false);
}
