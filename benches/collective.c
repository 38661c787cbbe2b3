/* The collectives that the sweep measures: one struct each, in the manner of nccl-tests. */
#include "benches/collective.h"

#include <math.h>
#include <string.h>

static size_t one(size_t count, int ranks)
{
    (void)ranks;
    return count;
}

static size_t all(size_t count, int ranks)
{
    return count * (size_t)ranks;
}

static size_t single(size_t count, int ranks)
{
    (void)count, (void)ranks;
    return 1;
}

static size_t at_start(size_t count, int rank)
{
    (void)count, (void)rank;
    return 0;
}

static size_t at_own_block(size_t count, int rank)
{
    return count * (size_t)rank;
}

static double bus_allreduce(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

static double bus_share(int ranks)
{
    return (double)(ranks - 1) / ranks;
}

static double bus_one(int ranks)
{
    (void)ranks;
    return 1;
}

int bench_after(int rank, int ranks)
{
    return (rank + 1) % ranks;
}

int bench_before(int rank, int ranks)
{
    return (rank + ranks - 1) % ranks;
}

/* Of a reduction: small, so that sums of 64 ranks are exact in bf16, products powers of two; and of
 * squares of ranks, so that no number of ranks has the same result in every element. */
double bench_input(const struct bench_call *call, int rank, size_t i)
{
    const size_t one_of_3 = (i * 7 + (size_t)rank * (size_t)rank) % 3;
    if (!call->collective->reduces)
        return (double)((i * 7 + (size_t)rank * 31) % 113);
    return call->op == TRIB_PROD || call->op == TRIB_AVG ? 1 + (one_of_3 == 0)
                                                         : 1 + (double)one_of_3;
}

/* Element `i` of the reduction of all sends. Products of 64 ranks wrap in small types, so they are
 * compared through bench_encode, which wraps too. */
static double reduced(const struct bench_call *call, int ranks, size_t i)
{
    double result = bench_input(call, 0, i);
    for (int rank = 1; rank < ranks; rank++) {
        const double x = bench_input(call, rank, i);
        switch (call->op) {
        case TRIB_PROD:
            result *= x;
            break;
        case TRIB_MIN:
            result = fmin(result, x);
            break;
        case TRIB_MAX:
            result = fmax(result, x);
            break;
        default:
            result += x;
            break;
        }
    }
    if (call->op != TRIB_AVG)
        return result;
    return call->dtype <= TRIB_F64 ? result / ranks : floor(result / ranks);
}

static bool expect_allreduce(double *out, const struct bench_call *call, int rank, int ranks,
                             size_t i)
{
    (void)rank;
    *out = reduced(call, ranks, i);
    return true;
}

static bool expect_broadcast(double *out, const struct bench_call *call, int rank, int ranks,
                             size_t i)
{
    (void)rank, (void)ranks;
    *out = bench_input(call, call->root, i);
    return true;
}

static bool expect_reduce(double *out, const struct bench_call *call, int rank, int ranks, size_t i)
{
    *out = reduced(call, ranks, i);
    return rank == call->root;
}

static bool expect_allgather(double *out, const struct bench_call *call, int rank, int ranks,
                             size_t i)
{
    (void)rank, (void)ranks;
    *out = bench_input(call, (int)(i / call->count), i % call->count);
    return true;
}

static bool expect_reduce_scatter(double *out, const struct bench_call *call, int rank, int ranks,
                                  size_t i)
{
    *out = reduced(call, ranks, i + call->count * (size_t)rank);
    return true;
}

static bool expect_alltoall(double *out, const struct bench_call *call, int rank, int ranks,
                            size_t i)
{
    (void)ranks;
    *out = bench_input(call, (int)(i / call->count), i % call->count + call->count * (size_t)rank);
    return true;
}

static bool expect_gather(double *out, const struct bench_call *call, int rank, int ranks, size_t i)
{
    return expect_allgather(out, call, rank, ranks, i) && rank == call->root;
}

static bool expect_scatter(double *out, const struct bench_call *call, int rank, int ranks,
                           size_t i)
{
    (void)ranks;
    *out = bench_input(call, call->root, i + call->count * (size_t)rank);
    return true;
}

static bool expect_sendrecv(double *out, const struct bench_call *call, int rank, int ranks,
                            size_t i)
{
    *out = bench_input(call, bench_before(rank, ranks), i);
    return true;
}

static bool expect_barrier(double *out, const struct bench_call *call, int rank, int ranks,
                           size_t i)
{
    (void)out, (void)call, (void)rank, (void)ranks, (void)i;
    return false;
}

static trib_call_options options_of(const struct bench_call *c)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = c->variant;
    return options;
}

static trib_status run_allreduce(trib_comm *comm, const struct bench_call *c, trib_stream stream)
{
    const trib_call_options options = options_of(c);
    return c->variant == TRIB_VARIANT_AUTO
               ? trib_allreduce(comm, c->send, c->recv, c->count, c->dtype, c->op, stream)
               : trib_allreduce_with(comm, c->send, c->recv, c->count, c->dtype, c->op, &options,
                                     stream);
}

static trib_status run_broadcast(trib_comm *comm, const struct bench_call *c, trib_stream stream)
{
    const trib_call_options options = options_of(c);
    return trib_broadcast_with(comm, c->send, c->recv, c->count, c->dtype, c->root, &options,
                               stream);
}

static trib_status run_reduce(trib_comm *comm, const struct bench_call *c, trib_stream stream)
{
    return trib_reduce(comm, c->send, c->recv, c->count, c->dtype, c->op, c->root, stream);
}

static trib_status run_allgather(trib_comm *comm, const struct bench_call *c, trib_stream stream)
{
    const trib_call_options options = options_of(c);
    return trib_allgather_with(comm, c->send, c->recv, c->count, c->dtype, &options, stream);
}

static trib_status run_reduce_scatter(trib_comm *comm, const struct bench_call *c,
                                      trib_stream stream)
{
    const trib_call_options options = options_of(c);
    return trib_reduce_scatter_with(comm, c->send, c->recv, c->count, c->dtype, c->op, &options,
                                    stream);
}

static trib_status run_alltoall(trib_comm *comm, const struct bench_call *c, trib_stream stream)
{
    const trib_call_options options = options_of(c);
    return trib_alltoall_with(comm, c->send, c->recv, c->count, c->dtype, &options, stream);
}

static trib_status run_gather(trib_comm *comm, const struct bench_call *c, trib_stream stream)
{
    return trib_gather(comm, c->send, c->recv, c->count, c->dtype, c->root, stream);
}

static trib_status run_scatter(trib_comm *comm, const struct bench_call *c, trib_stream stream)
{
    return trib_scatter(comm, c->send, c->recv, c->count, c->dtype, c->root, stream);
}

/* The end of a batch returns the failure of a call inside it. */
static trib_status run_sendrecv(trib_comm *comm, const struct bench_call *c, trib_stream stream)
{
    const int rank = trib_comm_rank(comm), ranks = trib_comm_size(comm);
    BENCH_OK(trib_batch_begin(comm));
    (void)trib_send(comm, c->send, c->count, c->dtype, bench_after(rank, ranks), stream);
    (void)trib_recv(comm, c->recv, c->count, c->dtype, bench_before(rank, ranks), stream);
    return trib_batch_end(comm);
}

static trib_status run_barrier(trib_comm *comm, const struct bench_call *c, trib_stream stream)
{
    (void)c;
    return trib_barrier(comm, stream);
}

struct pointers {
    const void *send[BENCH_MAX_RANKS];
    void *recv[BENCH_MAX_RANKS];
};

static struct pointers pointers_of(const struct bench_call *calls, int ranks)
{
    struct pointers pointers;
    for (int rank = 0; rank < ranks; rank++) {
        pointers.send[rank] = calls[rank].send;
        pointers.recv[rank] = calls[rank].recv;
    }
    return pointers;
}

static trib_status group_allreduce(trib_group *group, const struct bench_call *c,
                                   const trib_stream *streams)
{
    const struct pointers p = pointers_of(c, trib_group_size(group));
    return trib_group_allreduce(group, p.send, p.recv, c->count, c->dtype, c->op, streams);
}

static trib_status group_broadcast(trib_group *group, const struct bench_call *c,
                                   const trib_stream *streams)
{
    const struct pointers p = pointers_of(c, trib_group_size(group));
    return trib_group_broadcast(group, p.send, p.recv, c->count, c->dtype, c->root, streams);
}

#define COLLECTIVE(name_, kind_)                                                                   \
    .name = #name_, .kind = kind_, .run = run_##name_, .expected = expect_##name_

const struct bench_collective bench_collectives[] = {
    {COLLECTIVE(allreduce, BENCH_ALLREDUCE), .varies = true, .reduces = true, .send_elements = one,
     .recv_elements = one, .in_place_offset = at_start, .bus_factor = bus_allreduce,
     .run_group = group_allreduce},
    {COLLECTIVE(broadcast, BENCH_BROADCAST), .varies = true, .send_elements = one,
     .recv_elements = one, .in_place_offset = at_start, .bus_factor = bus_one,
     .run_group = group_broadcast},
    {COLLECTIVE(reduce, BENCH_REDUCE), .reduces = true, .send_elements = one, .recv_elements = one,
     .in_place_offset = at_start, .bus_factor = bus_one},
    {COLLECTIVE(allgather, BENCH_ALLGATHER), .varies = true, .send_elements = one,
     .recv_elements = all, .in_place_offset = at_own_block, .bus_factor = bus_share},
    {COLLECTIVE(reduce_scatter, BENCH_REDUCE_SCATTER), .varies = true, .reduces = true,
     .send_elements = all, .recv_elements = one, .in_place_offset = at_own_block,
     .bus_factor = bus_share},
    {COLLECTIVE(alltoall, BENCH_ALLTOALL), .varies = true, .send_elements = all,
     .recv_elements = all, .bus_factor = bus_share},
    {COLLECTIVE(gather, BENCH_GATHER), .send_elements = one, .recv_elements = all,
     .in_place_offset = at_own_block, .bus_factor = bus_share},
    {COLLECTIVE(scatter, BENCH_SCATTER), .send_elements = all, .recv_elements = one,
     .in_place_offset = at_own_block, .bus_factor = bus_share},
    {COLLECTIVE(sendrecv, BENCH_SENDRECV), .send_elements = one, .recv_elements = one,
     .bus_factor = bus_one},
    {COLLECTIVE(barrier, BENCH_BARRIER), .send_elements = single, .recv_elements = single,
     .bus_factor = bus_one},
    {.name = NULL},
};

const struct bench_collective *bench_collective_find(const char *name)
{
    for (const struct bench_collective *c = bench_collectives; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

struct bench_call bench_flat_call(void *data, size_t count)
{
    return (struct bench_call){.collective = bench_collective_find("allreduce"),
                               .send = data,
                               .recv = data,
                               .count = count,
                               .dtype = TRIB_F32,
                               .op = TRIB_AVG};
}
