/* Calls that move blocks from one place of a tensor to another, as graphs capture them: what they send
 * stays as it was, and so does what lies beyond the blocks that they receive. */
#include "tests/nccl/captured_fixture.h"

enum { HALF = N / 2 };

static float *at(const trib_tensor *tensors, size_t i)
{
    return (float *)tensors[0].data + i;
}

static int last(const struct captured *self)
{
    return self->size - 1;
}

static double of(int rank, size_t round, size_t i)
{
    return (double)captured_input(rank, round, i);
}

/* As many elements as a place has for this rank's block and one of each rank. */
static size_t block(const struct captured *self)
{
    return N / ((size_t)self->size + 1);
}

/* ------------------------------------------------------- from the first half to the second one */

static trib_status queue_broadcast(struct captured *self, const trib_tensor *tensors,
                                   trib_stream stream)
{
    return trib_broadcast(self->comm, at(tensors, 0), at(tensors, HALF), HALF, TRIB_F32, last(self),
                          stream);
}

static double broadcast_of(const struct captured *self, size_t round, size_t i)
{
    return i < HALF ? of(self->rank, round, i) : of(last(self), round, i - HALF);
}

static trib_status queue_reduce(struct captured *self, const trib_tensor *tensors,
                                trib_stream stream)
{
    return trib_reduce(self->comm, at(tensors, 0), at(tensors, HALF), HALF, TRIB_F32, TRIB_SUM,
                       last(self), stream);
}

static double reduce_of(const struct captured *self, size_t round, size_t i)
{
    const bool written = i >= HALF && self->rank == last(self);
    return written ? captured_sum(self, round, i - HALF) : of(self->rank, round, i);
}

static trib_status queue_alltoall(struct captured *self, const trib_tensor *tensors,
                                  trib_stream stream)
{
    return trib_alltoall(self->comm, at(tensors, 0), at(tensors, HALF), HALF / (size_t)self->size,
                         TRIB_F32, stream);
}

static double alltoall_of(const struct captured *self, size_t round, size_t i)
{
    const size_t each = HALF / (size_t)self->size;
    if (i < HALF)
        return of(self->rank, round, i);
    return of((int)((i - HALF) / each), round, (size_t)self->rank * each + (i - HALF) % each);
}

static trib_status queue_ring(struct captured *self, const trib_tensor *tensors, trib_stream stream)
{
    const int next = (self->rank + 1) % self->size,
              previous = (self->rank + self->size - 1) % self->size;
    CHECK_OK(trib_batch_begin(self->comm));
    CHECK_OK(trib_recv(self->comm, at(tensors, HALF), HALF, TRIB_F32, previous, stream));
    CHECK_OK(trib_send(self->comm, at(tensors, 0), HALF, TRIB_F32, next, stream));
    return trib_batch_end(self->comm);
}

static double ring_of(const struct captured *self, size_t round, size_t i)
{
    const int previous = (self->rank + self->size - 1) % self->size;
    return i < HALF ? of(self->rank, round, i) : of(previous, round, i - HALF);
}

/* -------------------------------------------------------- one block, and one block of each rank */

static trib_status queue_allgather(struct captured *self, const trib_tensor *tensors,
                                   trib_stream stream)
{
    return trib_allgather(self->comm, at(tensors, 0), at(tensors, block(self)), block(self),
                          TRIB_F32, stream);
}

static double allgather_of(const struct captured *self, size_t round, size_t i)
{
    const size_t each = block(self), from = i / each - 1;
    return i < each || from >= (size_t)self->size ? of(self->rank, round, i)
                                                  : of((int)from, round, i % each);
}

static trib_status queue_gather(struct captured *self, const trib_tensor *tensors,
                                trib_stream stream)
{
    return trib_gather(self->comm, at(tensors, 0), at(tensors, block(self)), block(self), TRIB_F32,
                       last(self), stream);
}

static double gather_of(const struct captured *self, size_t round, size_t i)
{
    return self->rank == last(self) ? allgather_of(self, round, i) : of(self->rank, round, i);
}

static trib_status queue_reduce_scatter(struct captured *self, const trib_tensor *tensors,
                                        trib_stream stream)
{
    return trib_reduce_scatter(self->comm, at(tensors, 0),
                               at(tensors, (size_t)self->size * block(self)), block(self), TRIB_F32,
                               TRIB_SUM, stream);
}

/* Where element `i` of the last block comes from; N: it lies elsewhere. */
static size_t scattered(const struct captured *self, size_t i)
{
    const size_t each = block(self), begin = (size_t)self->size * each;
    return i < begin || i >= begin + each ? N : (size_t)self->rank * each + i - begin;
}

static double reduce_scatter_of(const struct captured *self, size_t round, size_t i)
{
    const size_t from = scattered(self, i);
    return from == N ? of(self->rank, round, i) : captured_sum(self, round, from);
}

static trib_status queue_scatter(struct captured *self, const trib_tensor *tensors,
                                 trib_stream stream)
{
    return trib_scatter(self->comm, at(tensors, 0), at(tensors, (size_t)self->size * block(self)),
                        block(self), TRIB_F32, last(self), stream);
}

static double scatter_of(const struct captured *self, size_t round, size_t i)
{
    const size_t from = scattered(self, i);
    return from == N ? of(self->rank, round, i) : of(last(self), round, from);
}

/* ------------------------------------------------------------------------ a count for each rank */

enum { PLACE = 200 }; /* of a block in either half: two ranks' fit, with gaps */

/* The last rank's block comes first. */
static size_t place_of(const struct captured *self, int rank)
{
    return (size_t)(last(self) - rank) * PLACE + 3;
}

static size_t count_of(int from, int to)
{
    return (size_t)(50 + 40 * from + 7 * to);
}

static trib_status queue_allgatherv(struct captured *self, const trib_tensor *tensors,
                                    trib_stream stream)
{
    size_t counts[TEAM_MAX], offsets[TEAM_MAX];
    for (int rank = 0; rank < self->size; rank++) {
        counts[rank] = count_of(rank, 0);
        offsets[rank] = place_of(self, rank);
    }
    return trib_allgatherv(self->comm, at(tensors, 0), at(tensors, HALF), counts, offsets, TRIB_F32,
                           stream);
}

static double allgatherv_of(const struct captured *self, size_t round, size_t i)
{
    for (int from = 0; from < self->size; from++) {
        const size_t begin = HALF + place_of(self, from);
        if (i >= begin && i < begin + count_of(from, 0))
            return of(from, round, i - begin);
    }
    return of(self->rank, round, i);
}

static trib_status queue_alltoallv(struct captured *self, const trib_tensor *tensors,
                                   trib_stream stream)
{
    size_t sent[TEAM_MAX], received[TEAM_MAX], from[TEAM_MAX], to[TEAM_MAX];
    for (int rank = 0; rank < self->size; rank++) {
        sent[rank] = count_of(self->rank, rank);
        received[rank] = count_of(rank, self->rank);
        from[rank] = (size_t)rank * PLACE + 1;
        to[rank] = place_of(self, rank);
    }
    return trib_alltoallv(self->comm, at(tensors, 0), sent, from, at(tensors, HALF), received, to,
                          TRIB_F32, stream);
}

static double alltoallv_of(const struct captured *self, size_t round, size_t i)
{
    for (int from = 0; from < self->size; from++) {
        const size_t begin = HALF + place_of(self, from);
        if (i >= begin && i < begin + count_of(from, self->rank))
            return of(from, round, (size_t)self->rank * PLACE + 1 + i - begin);
    }
    return of(self->rank, round, i);
}

/* ---------------------------------------------------------------------------- two communicators */

static void make_second(struct captured *self)
{
    CHECK_OK(trib_comm_split(&self->second, self->comm, 0, self->rank));
}

/* One of them broadcasts the first half, and the other one adds up the second. */
static trib_status queue_both(struct captured *self, const trib_tensor *tensors, trib_stream stream)
{
    trib_comm *const comms[2] = {self->comm, self->second};
    CHECK_OK(trib_batch_begin(self->comm));
    CHECK_OK(trib_batch_begin(self->second));
    CHECK_OK(trib_allreduce(self->second, at(tensors, HALF), at(tensors, HALF), HALF, TRIB_F32,
                            TRIB_SUM, stream));
    CHECK_OK(trib_broadcast(self->comm, at(tensors, 0), at(tensors, 0), HALF, TRIB_F32, last(self),
                            stream));
    return trib_batch_end_all(comms, 2);
}

static double both_of(const struct captured *self, size_t round, size_t i)
{
    return i < HALF ? of(last(self), round, i) : captured_sum(self, round, i);
}

static const struct kind kinds[] = {
    {"a broadcast", NULL, queue_broadcast, broadcast_of, 0, false},
    {"a reduce", NULL, queue_reduce, reduce_of, 0, false},
    {"an alltoall", NULL, queue_alltoall, alltoall_of, 0, false},
    {"a ring of sends and receives", NULL, queue_ring, ring_of, 0, false},
    {"an allgather", NULL, queue_allgather, allgather_of, 0, false},
    {"a gather", NULL, queue_gather, gather_of, 0, false},
    {"a reduce_scatter", NULL, queue_reduce_scatter, reduce_scatter_of, 0, false},
    {"a scatter", NULL, queue_scatter, scatter_of, 0, false},
    {"an allgatherv", NULL, queue_allgatherv, allgatherv_of, 0, false},
    {"an alltoallv", NULL, queue_alltoallv, alltoallv_of, 0, false},
    {"batches of two communicators", make_second, queue_both, both_of, 0, true},
};

void captured_moves(int size)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        captured_replays(size, &kinds[i]);
}
