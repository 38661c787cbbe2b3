/* The ranks of a communicator while it is made. */
#include "csrc/core/making.h"

#include "csrc/base/clock.h"
#include "csrc/core/small_allgather.h"

enum { LONGEST_MS = 10000 };

trib_status tri_making_begin(struct tri_making *out, struct trib_comm *comm, int operation,
                             uint64_t deadline_ns)
{
    *out = (struct tri_making){.comm = comm, .operation = operation, .deadline_ns = deadline_ns};
    const trib_status status = comm->backend->device->stream_create(comm->device, &out->stream);
    if (status != TRIB_OK)
        tri_making_fail(out, status);
    return status;
}

void tri_making_end(struct tri_making *making)
{
    if (making->stream != NULL)
        (void)making->comm->backend->device->stream_destroy(making->comm->device, making->stream);
}

void tri_making_fail(const struct tri_making *making, trib_status status)
{
    (void)tri_abort_raise(making->comm->state, status, tri_detail());
}

trib_status tri_making_allgather(const struct tri_making *making, const void *own, size_t bytes,
                                 void *all)
{
    struct trib_comm *comm = making->comm;
    const uint32_t whole_ms = comm->timeout_ms, call_ms = comm->call_timeout_ms;
    comm->timeout_ms = tri_left_ms(making->deadline_ns);
    comm->call_timeout_ms = TRIB_NO_TIMEOUT;
    const trib_status status =
        tri_small_allgather(comm, making->operation, own, bytes, all, making->stream);
    comm->timeout_ms = whole_ms;
    comm->call_timeout_ms = call_ms;
    return status;
}

uint64_t tri_making_patience(const struct tri_making *making)
{
    const uint32_t half_ms = tri_left_ms(making->deadline_ns) / 2;
    return tri_deadline_ns(half_ms < LONGEST_MS ? half_ms : LONGEST_MS);
}
