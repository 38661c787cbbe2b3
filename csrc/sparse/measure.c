/* How fast the ranks reach each other: auto's figures, measured once by all ranks together.
 *
 * An exchange is an allreduce, as dense makes it, of zeros or whatever the memory held. Of each
 * size there are ROUNDS rounds: one exchange that lines the ranks up (the very first connects
 * them), then CALLS between two events of the stream. A rank takes the shortest round, so what
 * disturbs one round does not count; all ranks take the slowest rank's time. They do so after each
 * size: so all know whether the next, larger one is worth its time.
 *
 * The smallest size gives the latency. Of the two largest the difference gives the bandwidth, so
 * the latency is not in it. */
#include "csrc/sparse/measure.h"

#include "csrc/core/deadline.h"
#include "csrc/core/issue.h"
#include "csrc/core/small_allgather.h"

enum {
    ROUNDS = 3,
    CALLS = 4,
    LIMIT_NS = 1000000 /* if an exchange takes longer, the link is slow, and known well enough */
};

const size_t tri_measure_sizes[TRI_MEASURE_SIZES] = {1 << 10, 1 << 18, 1 << 22, 1 << 24};

trib_status tri_measure_begin(struct tri_measurement *measurement, struct trib_comm *comm,
                              int operation)
{
    struct tri_workspace *memory = &measurement->memory;
    measurement->comm = comm;
    measurement->operation = operation;
    TRI_TRY(tri_workspace_open(memory, comm->owner, TRI_NO_STATE, sizeof(struct tri_list_counts)));
    TRI_TRY(tri_workspace_add(memory, tri_measure_sizes[TRI_MEASURE_SIZES - 1]));
    return comm->backend->device->event_create(comm->device, &measurement->start);
}

void tri_measure_end(struct tri_measurement *measurement)
{
    struct trib_comm *comm = measurement->comm;
    const struct tri_detail_copy why = tri_detail_copy();
    if (measurement->start != NULL)
        (void)comm->backend->device->event_destroy(comm->device, measurement->start);
    if (measurement->memory.ops != NULL)
        tri_workspace_close(&measurement->memory);
    (void)tri_fail(TRIB_OK, "%s", why.text);
}

static trib_status exchange(const struct tri_measurement *measurement, size_t bytes,
                            trib_stream stream)
{
    struct trib_comm *comm = measurement->comm;
    void *data = measurement->memory.blocks->data;
    const struct tri_call call = {.kind = TRI_ALLREDUCE,
                                  .transport = comm->transport,
                                  .send = data,
                                  .recv = data,
                                  .count = bytes / sizeof(uint32_t),
                                  .dtype = TRIB_U32,
                                  .op = TRIB_SUM,
                                  .stream = stream};
    struct tri_recorded record = tri_recorded_of(measurement->operation, &call);
    record.count = 0; /* whatever the operation is about, it is not these bytes */
    record.dtype = 0;
    comm->backend_calls++;
    return tri_issue(comm, &record, &call, 1);
}

static trib_status queue_round(const struct tri_measurement *measurement, size_t bytes,
                               trib_stream stream)
{
    const struct trib_comm *comm = measurement->comm;
    TRI_TRY(exchange(measurement, bytes, stream));
    TRI_TRY(comm->backend->device->event_record(comm->device, measurement->start, stream));
    for (int i = 0; i < CALLS; i++)
        TRI_TRY(exchange(measurement, bytes, stream));
    return TRIB_OK;
}

/* `*ns`: what one exchange of this round took. */
static trib_status round_of(struct tri_measurement *measurement, size_t bytes, uint64_t *ns,
                            trib_stream stream)
{
    struct trib_comm *comm = measurement->comm;
    struct tri_workspace *memory = &measurement->memory;
    float ms = 0;
    trib_status status = queue_round(measurement, bytes, stream);
    const trib_status end = tri_workspace_mark(memory, comm->state, stream);
    if (status == TRIB_OK)
        status = end;
    if (status == TRIB_OK)
        status = tri_deadline_wait(comm, measurement->operation, memory);
    if (status == TRIB_OK)
        status = comm->backend->device->event_elapsed(comm->device, measurement->start,
                                                      memory->event, &ms);
    *ns = (uint64_t)(1e6 * (double)ms / CALLS);
    return status;
}

/* The slowest rank's time. */
static trib_status agree(const struct tri_measurement *measurement, uint64_t *ns,
                         trib_stream stream)
{
    struct trib_comm *comm = measurement->comm;
    uint64_t all[TRI_MAX_LISTS];
    TRI_TRY(tri_small_allgather(comm, measurement->operation, ns, sizeof *ns, all, stream));
    for (int32_t rank = 0; rank < comm->size; rank++)
        *ns = all[rank] > *ns ? all[rank] : *ns;
    return TRIB_OK;
}

static trib_status measure_size(struct tri_measurement *measurement, size_t bytes, uint64_t *ns,
                                trib_stream stream)
{
    *ns = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t found = 0;
        TRI_TRY(round_of(measurement, bytes, &found, stream));
        *ns = found < *ns ? found : *ns;
    }
    return agree(measurement, ns, stream);
}

struct tri_measured tri_measure_figures(const uint64_t *ns, size_t n, int32_t size, int32_t hosts)
{
    const double bytes = (double)tri_measure_sizes[n - 1];
    const double more = bytes - (double)tri_measure_sizes[n - 2];
    const double took = ns[n - 1] == 0 ? 1 : (double)ns[n - 1]; /* a clock may be coarse */
    /* At most half of that can have been latency; noise could make it all, or more. */
    const double least = took / 2 * more / bytes;
    const double longer = took - (double)ns[n - 2];
    /* What a sum moves: through a rank's link, as a ring; or where NCCL first adds up inside each
     * host, through a host's network. */
    const double parts = hosts > 1 ? hosts : size;
    return (struct tri_measured){
        .latency = 1e-9 * (double)ns[0],
        .bandwidth = 1e9 * more * 2 * (parts - 1) / parts / (longer > least ? longer : least),
    };
}

static trib_status measure(struct tri_measurement *measurement, trib_stream stream)
{
    struct trib_comm *comm = measurement->comm;
    uint64_t ns[TRI_MEASURE_SIZES];
    size_t n = 0;
    do {
        TRI_TRY(measure_size(measurement, tri_measure_sizes[n], &ns[n], stream));
        n++;
    } while (n < 2 || (n < TRI_MEASURE_SIZES && ns[n - 1] <= LIMIT_NS));
    comm->measured = tri_measure_figures(ns, n, comm->size, comm->hosts);
    return TRIB_OK;
}

trib_status tri_measure_run(struct tri_measurement *measurement, trib_stream stream)
{
    struct trib_comm *comm = measurement->comm;
    const trib_status status = measure(measurement, stream);
    if (status != TRIB_OK && tri_abort_raise(comm->state, status, tri_detail()))
        return status;
    return tri_comm_usable(comm, measurement->operation);
}
