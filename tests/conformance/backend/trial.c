#include "tests/conformance/backend/trial.h"

#include <stdio.h>
#include <string.h>

#include "tests/conformance/reference.h"

const struct trial_traits trial_kinds[TRIAL_KINDS] = {
    [TRIAL_ALLREDUCE] = {"allreduce", true, false},
    [TRIAL_BROADCAST] = {"broadcast", false, true},
    [TRIAL_REDUCE] = {"reduce", true, true},
    [TRIAL_ALLGATHER] = {"allgather", false, false},
    [TRIAL_REDUCE_SCATTER] = {"reduce_scatter", true, false},
    [TRIAL_ALLTOALL] = {"alltoall", false, false},
    [TRIAL_GATHER] = {"gather", false, true},
    [TRIAL_SCATTER] = {"scatter", false, true},
};

/* Blocks of `count` elements that this rank sends and receives; 0: the pointer is not looked at. */
static size_t send_blocks(const struct trial *t)
{
    const size_t size = (size_t)t->suite->team.size;
    switch (t->kind) {
    case TRIAL_REDUCE_SCATTER:
    case TRIAL_ALLTOALL:
        return size;
    case TRIAL_BROADCAST:
        return t->rank == t->root ? 1 : 0;
    case TRIAL_SCATTER:
        return t->rank == t->root ? size : 0;
    default:
        return 1;
    }
}

static size_t recv_blocks(const struct trial *t)
{
    const size_t size = (size_t)t->suite->team.size;
    switch (t->kind) {
    case TRIAL_ALLGATHER:
    case TRIAL_ALLTOALL:
        return size;
    case TRIAL_REDUCE:
        return t->rank == t->root ? 1 : 0;
    case TRIAL_GATHER:
        return t->rank == t->root ? size : 0;
    default:
        return 1;
    }
}

static struct reference inputs_of(const struct trial *t)
{
    return (struct reference){
        .dtype = t->dtype, .op = t->op, .size = t->suite->team.size, .seed = t->seed};
}

/* What this rank should receive. */
static void expect(const struct trial *t, char *recv)
{
    const struct reference inputs = inputs_of(t);
    const int size = t->suite->team.size;
    const size_t block = t->count * trib_dtype_size(t->dtype);
    const size_t mine = (size_t)t->rank * t->count;
    switch (t->kind) {
    case TRIAL_ALLREDUCE:
    case TRIAL_REDUCE:
        reference_reduced(recv, &inputs, 0, t->count);
        return;
    case TRIAL_REDUCE_SCATTER:
        reference_reduced(recv, &inputs, mine, t->count);
        return;
    case TRIAL_BROADCAST:
        reference_input(recv, &inputs, t->root, 0, t->count);
        return;
    case TRIAL_SCATTER:
        reference_input(recv, &inputs, t->root, mine, t->count);
        return;
    case TRIAL_ALLGATHER:
    case TRIAL_GATHER:
        for (int i = 0; i < size; i++)
            reference_input(recv + (size_t)i * block, &inputs, i, 0, t->count);
        return;
    default: /* TRIAL_ALLTOALL */
        for (int i = 0; i < size; i++)
            reference_input(recv + (size_t)i * block, &inputs, i, mine, t->count);
        return;
    }
}

static const char *describe(const struct trial *t, char *text, size_t size)
{
    (void)snprintf(text, size, "%s by %s, %s %s count %zu root %d %s, rank %d",
                   trial_kinds[t->kind].name, trib_variant_name(t->variant),
                   trib_dtype_name(t->dtype), trib_op_name(t->op), t->count, t->root,
                   t->in_place ? "in place" : "out of place", t->rank);
    return text;
}

/* NCCL multiplies by a rounded 1 / size before it adds, which is exact for powers of two only. */
static bool is_inexact(const struct trial *t)
{
    const int size = t->suite->team.size;
    return !t->in_order && t->op == TRIB_AVG && t->dtype <= TRIB_F64 && (size & (size - 1)) != 0 &&
           strcmp(t->suite->team.backend, "nccl") == 0;
}

/* Write the expected result to the image; where no result is exact, a close one found is
 * expected. */
static void expect_close(const struct trial *t, const struct guarded *buffer, size_t offset)
{
    const size_t bytes = recv_blocks(t) * t->count * trib_dtype_size(t->dtype);
    void *image = guarded_image(buffer, offset);
    const void *found = guarded_found(buffer, offset);
    if (bytes == 0 || t->expected != TRIB_OK)
        return;
    expect(t, image);
    if (is_inexact(t) &&
        reference_close(found, image, t->dtype, recv_blocks(t) * t->count, t->suite->team.size))
        memcpy(image, found, bytes);
}

static void fill(const struct trial *t, const struct guarded *buffer, size_t offset)
{
    const struct reference inputs = inputs_of(t);
    reference_input(guarded_image(buffer, offset), &inputs, t->rank, 0, send_blocks(t) * t->count);
}

static bool run(const struct trial *t, const void *send, void *recv)
{
    char text[160];
    const trib_status found = t->call(t, send, recv);
    return check_that(found == t->expected, __FILE__, __LINE__, "%s: %s, expected %s: %s",
                      describe(t, text, sizeof text), trib_status_name(found),
                      trib_status_name(t->expected), trib_last_detail());
}

bool trial_out_of_place(const struct trial *t, struct guarded *send, struct guarded *recv)
{
    char text[160];
    const size_t block = t->count * trib_dtype_size(t->dtype);
    const size_t shift = t->count % 2 * trib_dtype_size(t->dtype);
    trib_stream stream = t->suite->team.streams[t->rank];
    guarded_reset(send, send_blocks(t) * block, shift);
    guarded_reset(recv, recv_blocks(t) * block, 0);
    fill(t, send, 0);
    const bool called = guarded_push(send, stream) && guarded_push(recv, stream) &&
                        run(t, send_blocks(t) * block == 0 ? NULL : guarded_data(send, 0),
                            recv_blocks(t) * block == 0 ? NULL : guarded_data(recv, 0));
    if (!called || !guarded_pull(send, stream) || !guarded_pull(recv, stream) ||
        !CHECK_OK(trib_stream_wait(t->suite->team.devices[t->rank], stream)))
        return false;
    expect_close(t, recv, 0);
    return backend_compare(t->suite, t->rank, send, recv, describe(t, text, sizeof text));
}

bool trial_in_place(const struct trial *t, struct guarded *both)
{
    char text[160];
    const size_t block = t->count * trib_dtype_size(t->dtype);
    const size_t sent = send_blocks(t), received = recv_blocks(t);
    const size_t own = (size_t)t->rank * block;
    const size_t send_at = received > sent && received > 1 ? own : 0;
    const size_t recv_at = sent > received && sent > 1 ? own : 0;
    trib_stream stream = t->suite->team.streams[t->rank];
    guarded_reset(both, (sent > received ? sent : received) * block,
                  t->count % 2 * trib_dtype_size(t->dtype));
    fill(t, both, send_at);
    char *data = guarded_data(both, 0);
    if (!guarded_push(both, stream) || !run(t, data + send_at, data + recv_at) ||
        !guarded_pull(both, stream) ||
        !CHECK_OK(trib_stream_wait(t->suite->team.devices[t->rank], stream)))
        return false;
    expect_close(t, both, recv_at);
    return backend_compare(t->suite, t->rank, both, NULL, describe(t, text, sizeof text));
}
