/* Calls of a communicator, as graphs capture them. */
#include "tests/nccl/captured_fixture.h"

static double scaled_of(const struct captured *self, size_t round, size_t i)
{
    double sum = 0;
    for (int rank = 0; rank < self->size; rank++)
        sum += (double)captured_weight(rank) * (double)captured_input(rank, round, i);
    return sum;
}

static double exchanged_of(const struct captured *self, size_t round, size_t i)
{
    const size_t block = N / (size_t)self->size;
    return (double)captured_input((int)(i / block), round, (size_t)self->rank * block + i % block);
}

/* Two sums of sums are multiplied by the number of ranks. */
static double sum_in_sum_of(const struct captured *self, size_t round, size_t i)
{
    return self->size * captured_sum(self, round, i);
}

trib_status captured_queue_sum(struct captured *self, const trib_tensor *tensors,
                               trib_stream stream)
{
    return trib_allreduce(self->comm, tensors[0].data, tensors[0].data, N, TRIB_F32, TRIB_SUM,
                          stream);
}

trib_status captured_queue_list(struct captured *self, const trib_tensor *tensors,
                                trib_stream stream)
{
    return trib_allreduce_list(self->comm, tensors, 2, TRIB_SUM, stream);
}

static trib_status queue_scaled(struct captured *self, const trib_tensor *tensors,
                                trib_stream stream)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = TRIB_CALL_FACTOR;
    options.device_factor = self->word;
    return trib_allreduce_list_with(self->comm, tensors, 2, TRIB_SUM, &options, stream);
}

static trib_status queue_factor(struct captured *self, const trib_tensor *tensors,
                                trib_stream stream)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = TRIB_CALL_FACTOR;
    options.device_factor = self->word;
    return trib_allreduce_with(self->comm, tensors[0].data, tensors[0].data, N, TRIB_F32, TRIB_SUM,
                               &options, stream);
}

static trib_status queue_broadcast(struct captured *self, const trib_tensor *tensors,
                                   trib_stream stream)
{
    return trib_broadcast_list(self->comm, tensors, 2, self->size - 1, stream);
}

static trib_status queue_average(struct captured *self, const trib_tensor *tensors,
                                 trib_stream stream)
{
    return trib_weighted_average(self->comm, tensors, 2, 0, self->word, NULL, stream);
}

static trib_status queue_exchange(struct captured *self, const trib_tensor *tensors,
                                  trib_stream stream)
{
    return trib_alltoall(self->comm, tensors[0].data, tensors[0].data, N / (size_t)self->size,
                         TRIB_F32, stream);
}

static trib_status queue_batch(struct captured *self, const trib_tensor *tensors,
                               trib_stream stream)
{
    CHECK_OK(trib_batch_begin(self->comm));
    CHECK_OK(trib_barrier(self->comm, stream));
    CHECK_OK(queue_exchange(self, tensors, stream));
    CHECK_OK(trib_barrier(self->comm, stream));
    return trib_batch_end(self->comm);
}

/* Lists one after the other in one graph: each has scratch of its own. */
static trib_status queue_lists(struct captured *self, const trib_tensor *tensors,
                               trib_stream stream)
{
    CHECK_OK(captured_queue_list(self, tensors, stream));
    CHECK_OK(trib_barrier(self->comm, stream));
    CHECK_OK(trib_allreduce_list(self->comm, tensors, 1, TRIB_SUM, stream));
    return trib_allreduce_list(self->comm, tensors + 1, 1, TRIB_SUM, stream);
}

static const struct kind kinds[] = {
    {"an allreduce", NULL, captured_queue_sum, captured_sum, 0, false},
    {"an allreduce with factors", NULL, queue_factor, scaled_of, 0, false},
    {"a list", NULL, captured_queue_list, captured_sum, 1, false},
    {"a list with factors", NULL, queue_scaled, scaled_of, 1, false},
    {"a list that is broadcast", NULL, queue_broadcast, captured_last, 1, false},
    {"a weighted average", NULL, queue_average, captured_weighted, 1, false},
    {"an alltoall in place", NULL, queue_exchange, exchanged_of, 0, false},
    {"a batch with barriers", NULL, queue_batch, exchanged_of, 0, false},
    {"lists and a barrier", NULL, queue_lists, sum_in_sum_of, 3, false},
};

void captured_calls(int size)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        captured_replays(size, &kinds[i]);
}
