/* allgatherv and alltoallv: collectives with a count and an offset a rank. */
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/batch.h"
#include "csrc/core/collective.h"
#include "csrc/core/compose.h"
#include "csrc/core/match.h"
#include "csrc/core/ranges.h"
#include "csrc/core/validate.h"

/* One side: block i is counts[i] elements at element offsets[i] of data. */
struct side {
    const char *name;
    const void *data;
    const size_t *counts, *offsets;
    bool written;
};

static trib_status check_present(const struct trib_comm *comm, int operation, const char *name,
                                 const size_t *array)
{
    if (array != NULL)
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                         "`%s` is NULL; expected an array of %d entries, one a rank", name,
                         comm->size);
}

/* Every block of a side is well formed, and its memory may be used. Appends the blocks that are not
 * empty to `ranges`, and adds their bytes to *bytes. */
static trib_status check_side(const struct trib_comm *comm, int operation, const struct side *side,
                              trib_dtype dtype, struct tri_range *ranges, size_t *n, size_t *bytes)
{
    const struct tri_argument argument = {side->name, TRI_NO_INDEX};
    const size_t element = trib_dtype_size(dtype);
    size_t known = 0;
    bool asked = false;
    for (int32_t i = 0; i < comm->size; i++) {
        const size_t count = side->counts[i], offset = side->offsets[i];
        if (count == 0)
            continue;
        size_t extent = 0;
        const size_t last = count > SIZE_MAX - offset ? SIZE_MAX : offset + count;
        trib_status status =
            tri_check_buffer(comm, operation, argument, side->data, last, 1, dtype, &extent);
        if (status == TRIB_OK && !asked)
            known = tri_known_bytes(comm, side->data);
        asked = true;
        if (status == TRIB_OK) /* by itself: what lies between two blocks is not touched */
            status = tri_check_block(comm, operation, argument, side->data, known, offset * element,
                                     count * element);
        if (status != TRIB_OK)
            return status;
        const uintptr_t begin = (uintptr_t)side->data + offset * element;
        ranges[(*n)++] =
            (struct tri_range){begin, begin + count * element, (size_t)i, side->written};
        *bytes += count * element;
    }
    return TRIB_OK;
}

static trib_status check_collisions(const struct trib_comm *comm, int operation,
                                    struct tri_range *ranges, size_t n)
{
    struct tri_range pair[2];
    if (!tri_ranges_collide(ranges, n, pair))
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                         "block %zu of `%s` overlaps block %zu of `%s`: give each a place of its "
                         "own (in place is defined for allgatherv alone, as send == recv + "
                         "offsets[rank])",
                         pair[0].index, pair[0].written ? "recv" : "send", pair[1].index,
                         pair[1].written ? "recv" : "send");
}

/* The arguments that both operations share. */
static trib_status check_common(struct trib_comm *comm, int operation, trib_dtype dtype,
                                trib_stream stream, struct tri_range **ranges)
{
    trib_status status = tri_comm_usable(comm, operation);
    if (status == TRIB_OK)
        status = tri_check_dtype(comm, operation, dtype);
    if (status == TRIB_OK)
        status = tri_check_stream(comm, operation, stream);
    if (status != TRIB_OK)
        return status;
    *ranges = tri_comm_scratch(comm, 2 * (size_t)comm->size * sizeof **ranges);
    return *ranges != NULL ? TRIB_OK
                           : tri_fail_call(comm, operation, TRIB_ERR_OUT_OF_MEMORY,
                                           "no memory to check the arguments");
}

static trib_status check_allgatherv(struct trib_comm *comm, const struct side *recv,
                                    const void *send, trib_dtype dtype, trib_stream stream,
                                    bool *in_place)
{
    const int operation = TRI_ALLGATHERV;
    struct tri_range *ranges = NULL;
    size_t n = 0, bytes = 0;
    trib_status status = check_common(comm, operation, dtype, stream, &ranges);
    if (status == TRIB_OK)
        status = check_present(comm, operation, "counts", recv->counts);
    if (status == TRIB_OK)
        status = check_present(comm, operation, "offsets", recv->offsets);
    if (status == TRIB_OK)
        status = check_side(comm, operation, recv, dtype, ranges, &n, &bytes);
    if (status != TRIB_OK)
        return status;

    const size_t count = recv->counts[comm->rank], element = trib_dtype_size(dtype);
    const char *own =
        count == 0 ? NULL : (const char *)recv->data + recv->offsets[comm->rank] * element;
    *in_place = count == 0 || own == send;
    if (!*in_place) {
        const struct tri_argument argument = {"send", TRI_NO_INDEX};
        status = tri_check_buffer(comm, operation, argument, send, count, 1, dtype, &bytes);
        if (status == TRIB_OK)
            status = tri_check_memory(comm, operation, argument, send, bytes);
        if (status != TRIB_OK)
            return status;
        ranges[n++] =
            (struct tri_range){(uintptr_t)send, (uintptr_t)send + bytes, (size_t)comm->rank, false};
    }
    return check_collisions(comm, operation, ranges, n);
}

trib_status tri_allgatherv(struct trib_comm *comm, const void *send, void *recv,
                           const size_t *counts, const size_t *offsets, trib_dtype dtype,
                           trib_stream stream)
{
    const struct side side = {"recv", recv, counts, offsets, true};
    const struct tri_call call = {.dtype = dtype, .stream = stream};
    bool in_place = false;
    trib_status status = check_allgatherv(comm, &side, send, dtype, stream, &in_place);
    if (status != TRIB_OK)
        return tri_batch_fail(comm, status);

    const size_t size = (size_t)comm->size;
    const uint64_t digest =
        tri_digest(tri_digest(0, counts, size * sizeof *counts), offsets, size * sizeof *offsets);
    status = tri_batch_begin_call(comm, TRI_ALLGATHERV, &call, digest);
    if (status != TRIB_OK)
        return tri_batch_fail(comm, status);

    /* What goes to every rank is the same block: all its counts are this rank's, its offsets 0. */
    size_t *sends = tri_comm_scratch(comm, 2 * size * sizeof *sends);
    if (sends == NULL)
        return tri_batch_fail(comm, tri_fail_call(comm, TRI_ALLGATHERV, TRIB_ERR_OUT_OF_MEMORY,
                                                  "no memory to queue the call"));
    memset(sends + size, 0, size * sizeof *sends);
    for (size_t i = 0; i < size; i++)
        sends[i] = counts[comm->rank];
    const struct tri_blocks from = {.counts = sends, .offsets = sends + size};
    const struct tri_blocks to = {.counts = counts, .offsets = offsets};
    status = tri_compose_exchange(comm, send, &from, recv, &to, dtype, stream, !in_place);
    return tri_batch_submit(comm, status, counts[comm->rank] * trib_dtype_size(dtype));
}

static trib_status check_alltoallv(struct trib_comm *comm, const struct side *send,
                                   const struct side *recv, trib_dtype dtype, trib_stream stream,
                                   size_t *send_bytes)
{
    const int operation = TRI_ALLTOALLV;
    struct tri_range *ranges = NULL;
    size_t n = 0, recv_bytes = 0;
    trib_status status = check_common(comm, operation, dtype, stream, &ranges);
    if (status == TRIB_OK)
        status = check_present(comm, operation, "send_counts", send->counts);
    if (status == TRIB_OK)
        status = check_present(comm, operation, "send_offsets", send->offsets);
    if (status == TRIB_OK)
        status = check_present(comm, operation, "recv_counts", recv->counts);
    if (status == TRIB_OK)
        status = check_present(comm, operation, "recv_offsets", recv->offsets);
    if (status == TRIB_OK && send->counts[comm->rank] != recv->counts[comm->rank])
        status = tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                               "send_counts[%d] is %zu and recv_counts[%d] is %zu: what this rank "
                               "sends itself is what it receives",
                               comm->rank, send->counts[comm->rank], comm->rank,
                               recv->counts[comm->rank]);
    if (status == TRIB_OK)
        status = check_side(comm, operation, send, dtype, ranges, &n, send_bytes);
    if (status == TRIB_OK)
        status = check_side(comm, operation, recv, dtype, ranges, &n, &recv_bytes);
    return status == TRIB_OK ? check_collisions(comm, operation, ranges, n) : status;
}

trib_status tri_alltoallv(struct trib_comm *comm, const void *send, const size_t *send_counts,
                          const size_t *send_offsets, void *recv, const size_t *recv_counts,
                          const size_t *recv_offsets, trib_dtype dtype, trib_stream stream)
{
    const struct side from = {"send", send, send_counts, send_offsets, false};
    const struct side to = {"recv", recv, recv_counts, recv_offsets, true};
    const struct tri_call call = {.dtype = dtype, .stream = stream};
    size_t bytes = 0;
    trib_status status = check_alltoallv(comm, &from, &to, dtype, stream, &bytes);
    if (status == TRIB_OK) /* the counts differ from rank to rank, so they have no digest */
        status = tri_batch_begin_call(comm, TRI_ALLTOALLV, &call, 0);
    if (status != TRIB_OK)
        return tri_batch_fail(comm, status);
    const struct tri_blocks sends = {.counts = send_counts, .offsets = send_offsets};
    const struct tri_blocks recvs = {.counts = recv_counts, .offsets = recv_offsets};
    status = tri_compose_exchange(comm, send, &sends, recv, &recvs, dtype, stream, true);
    return tri_batch_submit(comm, status, bytes);
}
