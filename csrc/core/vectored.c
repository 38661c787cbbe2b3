/* allgatherv and alltoallv: collectives with a count and an offset per rank. */
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
                         "`%s` is NULL; expected an array of %d entries, one per rank", name,
                         comm->size);
}

/* Checks every block of a side. Appends the blocks that are not empty to `ranges`, and adds their
 * bytes to *bytes. */
static trib_status check_side(const struct trib_comm *comm, int operation, const struct side *side,
                              trib_dtype dtype, struct tri_range *ranges, size_t *n, size_t *bytes)
{
    struct tri_buffer buffer = {
        .argument = {side->name, TRI_NO_INDEX}, .data = side->data, .blocks = 1, .dtype = dtype};
    const size_t element = trib_dtype_size(dtype);
    size_t known = 0;
    bool asked = false;
    for (int32_t i = 0; i < comm->size; i++) {
        const size_t count = side->counts[i], offset = side->offsets[i];
        if (count == 0)
            continue;
        size_t extent = 0;
        buffer.count = count > SIZE_MAX - offset ? SIZE_MAX : offset + count;
        TRI_TRY(tri_check_extent(comm, operation, &buffer, &extent));
        if (!asked)
            known = tri_known_bytes(comm, side->data);
        asked = true;
        /* Each block by itself: the call does not touch the gaps between them. */
        TRI_TRY(tri_check_block(comm, operation, buffer.argument, side->data, known,
                                offset * element, count * element));
        const uintptr_t begin = (uintptr_t)side->data + offset * element;
        ranges[(*n)++] = (struct tri_range){.begin = begin,
                                            .end = begin + count * element,
                                            .index = (size_t)i,
                                            .written = side->written};
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
    TRI_TRY(tri_comm_usable(comm, operation));
    TRI_TRY(tri_check_dtype(comm, operation, dtype));
    TRI_TRY(tri_check_stream(comm, operation, stream));
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
    TRI_TRY(check_common(comm, operation, dtype, stream, &ranges));
    TRI_TRY(check_present(comm, operation, "counts", recv->counts));
    TRI_TRY(check_present(comm, operation, "offsets", recv->offsets));
    TRI_TRY(check_side(comm, operation, recv, dtype, ranges, &n, &bytes));

    const size_t count = recv->counts[comm->rank], element = trib_dtype_size(dtype);
    const char *own =
        count == 0 ? NULL : (const char *)recv->data + recv->offsets[comm->rank] * element;
    *in_place = count == 0 || own == send;
    if (!*in_place) {
        const struct tri_buffer buffer = {.argument = {"send", TRI_NO_INDEX},
                                          .data = send,
                                          .blocks = 1,
                                          .count = count,
                                          .dtype = dtype};
        TRI_TRY(tri_check_buffer(comm, operation, &buffer, &bytes));
        ranges[n++] = (struct tri_range){
            .begin = (uintptr_t)send, .end = (uintptr_t)send + bytes, .index = (size_t)comm->rank};
    }
    return check_collisions(comm, operation, ranges, n);
}

/* Every rank gets the same block: all counts are `count`, all offsets 0. False if memory is
 * short. */
static bool repeat_block(struct trib_comm *comm, struct tri_blocks *out, size_t count)
{
    const size_t size = (size_t)comm->size;
    size_t *counts = tri_comm_scratch(comm, 2 * size * sizeof *counts);
    if (counts == NULL)
        return false;
    memset(counts + size, 0, size * sizeof *counts);
    for (size_t i = 0; i < size; i++)
        counts[i] = count;
    *out = (struct tri_blocks){.counts = counts, .offsets = counts + size};
    return true;
}

static trib_status begin_allgatherv(struct trib_comm *comm, struct tri_alltoallv *args)
{
    const size_t *counts = args->recvs.counts, *offsets = args->recvs.offsets;
    const struct side side = {
        .name = "recv", .data = args->recv, .counts = counts, .offsets = offsets, .written = true};
    const struct tri_call call = {.dtype = args->dtype, .stream = args->stream};
    const size_t bytes = (size_t)comm->size * sizeof *counts;
    bool in_place = false;
    TRI_TRY(check_allgatherv(comm, &side, args->send, args->dtype, args->stream, &in_place));
    const uint64_t digest = tri_digest(tri_digest(0, counts, bytes), offsets, bytes);
    TRI_TRY(tri_batch_begin_call(comm, TRI_ALLGATHERV, &call, digest));
    args->self = !in_place;
    if (!repeat_block(comm, &args->sends, counts[comm->rank]))
        return tri_fail_call(comm, TRI_ALLGATHERV, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory to queue the call");
    return TRIB_OK;
}

trib_status tri_allgatherv(struct trib_comm *comm, const void *send, void *recv,
                           const size_t *counts, const size_t *offsets, trib_dtype dtype,
                           trib_stream stream)
{
    struct tri_alltoallv args = {.send = send,
                                 .recv = recv,
                                 .recvs = {.counts = counts, .offsets = offsets},
                                 .dtype = dtype,
                                 .stream = stream};
    trib_status status = begin_allgatherv(comm, &args);
    if (status != TRIB_OK)
        return tri_batch_fail(comm, status);
    status = tri_compose_alltoallv(comm, &args);
    return tri_batch_submit(comm, status, counts[comm->rank] * trib_dtype_size(dtype));
}

static trib_status check_arrays(const struct trib_comm *comm, const struct tri_alltoallv *args)
{
    const int operation = TRI_ALLTOALLV;
    const size_t *sends = args->sends.counts, *recvs = args->recvs.counts;
    TRI_TRY(check_present(comm, operation, "send_counts", sends));
    TRI_TRY(check_present(comm, operation, "send_offsets", args->sends.offsets));
    TRI_TRY(check_present(comm, operation, "recv_counts", recvs));
    TRI_TRY(check_present(comm, operation, "recv_offsets", args->recvs.offsets));
    if (sends[comm->rank] == recvs[comm->rank])
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                         "send_counts[%d] is %zu and recv_counts[%d] is %zu: this rank receives "
                         "from itself what it sends itself",
                         comm->rank, sends[comm->rank], comm->rank, recvs[comm->rank]);
}

static trib_status check_alltoallv(struct trib_comm *comm, const struct tri_alltoallv *args,
                                   size_t *send_bytes)
{
    const int operation = TRI_ALLTOALLV;
    const struct side send = {.name = "send",
                              .data = args->send,
                              .counts = args->sends.counts,
                              .offsets = args->sends.offsets};
    const struct side recv = {.name = "recv",
                              .data = args->recv,
                              .counts = args->recvs.counts,
                              .offsets = args->recvs.offsets,
                              .written = true};
    struct tri_range *ranges = NULL;
    size_t n = 0, recv_bytes = 0;
    TRI_TRY(check_common(comm, operation, args->dtype, args->stream, &ranges));
    TRI_TRY(check_arrays(comm, args));
    TRI_TRY(check_side(comm, operation, &send, args->dtype, ranges, &n, send_bytes));
    TRI_TRY(check_side(comm, operation, &recv, args->dtype, ranges, &n, &recv_bytes));
    return check_collisions(comm, operation, ranges, n);
}

trib_status tri_alltoallv(struct trib_comm *comm, const struct tri_alltoallv *args)
{
    const struct tri_call call = {.dtype = args->dtype, .stream = args->stream};
    size_t bytes = 0;
    trib_status status = check_alltoallv(comm, args, &bytes);
    if (status == TRIB_OK) /* the counts differ from rank to rank, so they have no digest */
        status = tri_batch_begin_call(comm, TRI_ALLTOALLV, &call, 0);
    if (status != TRIB_OK)
        return tri_batch_fail(comm, status);
    status = tri_compose_alltoallv(comm, args);
    return tri_batch_submit(comm, status, bytes);
}
