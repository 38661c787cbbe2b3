/* push of the cpu table with a thread for each rank, as GPUs run it: late by chance, or for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/kernels_cpu.h"
#include "tests/check.h"
#include "tests/team.h"

enum {
    CAPACITY = 64,
    MOST = 512,
    SCRATCH = 2 * (TRI_PUSH_RANKS - 1) * CAPACITY * TRI_PUSH_CHUNK /* of the most ranks */
};

struct world {
    int size, calls;
    _Alignas(16) unsigned char scratch[TRI_PUSH_RANKS][SCRATCH];
    struct tri_push_control control[TRI_PUSH_RANKS];
    uint32_t abort_flag;
    uint64_t patience_ns;
};

static void open_world(struct world *w, int size)
{
    memset(w, 0, sizeof *w);
    memset(w->scratch, TRI_PUSH_EMPTY_BYTE, sizeof w->scratch);
    w->size = size;
    w->patience_ns = UINT64_C(60000000000); /* a lost granule is a failed check, not a hang */
}

static void push_call(struct world *w, int rank, const void *send, void *recv, struct tri_push call)
{
    const struct tri_push_rank here = {send, recv, &w->control[rank], rank};
    call.here = &here;
    call.n = 1;
    call.size = w->size;
    call.capacity = CAPACITY;
    call.abort_flag = &w->abort_flag;
    call.patience_ns = w->patience_ns;
    for (int r = 0; r < w->size; r++)
        call.scratch[r] = w->scratch[r];
    CHECK_OK(tri_cpu_push(&call, NULL));
}

static void push_of(struct world *w, int rank, const void *send, void *recv, size_t count,
                    trib_dtype dtype)
{
    push_call(w, rank, send, recv,
              (struct tri_push){.count = count, .dtype = dtype, .op = TRIB_SUM});
}

/* Exact in f32 and i32. */
static int32_t part_of(int rank, int call, size_t i)
{
    return (int32_t)((call * 7 + rank * 1000 + (int)i) % 100000);
}

/* An allgather, an alltoall, or a broadcast, which is a wait for a root that is late. */
static bool make_copy(struct world *w, int rank, int call, enum tri_push_kind kind)
{
    const size_t count = (size_t)(call * 31 % 120) + 1;
    const bool gathers = tri_push_gathers(kind), scatters = tri_push_scatters(kind);
    const size_t own = scatters ? (size_t)rank * count : 0;
    int32_t send[MOST], recv[MOST];
    for (size_t i = 0; i < count * (scatters ? (size_t)w->size : 1); i++)
        send[i] = part_of(rank, call, i);
    push_call(w, rank, send, recv,
              (struct tri_push){
                  .count = 4 * count, .dtype = TRIB_U8, .kind = kind, .root = call % w->size});
    for (size_t i = 0; i < count * (gathers ? (size_t)w->size : 1); i++)
        if (recv[i] != part_of(gathers ? (int)(i / count) : call % w->size, call, own + i % count))
            return CHECK_MSG(false, "rank %d, call %d: element %zu is wrong", rank, call, i);
    return true;
}

static bool make_scatter(struct world *w, int rank, int call)
{
    const size_t count = (size_t)(call * 31 % 120) + 1;
    int32_t send[MOST], recv[MOST];
    for (size_t i = 0; i < count * (size_t)w->size; i++)
        send[i] = part_of(rank, call, i);
    push_call(
        w, rank, send, recv,
        (struct tri_push){
            .count = count, .dtype = TRIB_I32, .op = TRIB_SUM, .kind = TRI_PUSH_REDUCE_SCATTER});
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;
        for (int r = 0; r < w->size; r++)
            sum += part_of(r, call, (size_t)rank * count + i);
        if (recv[i] != sum)
            return CHECK_MSG(false, "rank %d, call %d: element %zu is wrong", rank, call, i);
    }
    return true;
}

static bool make_sum(struct world *w, int rank, int call)
{
    const size_t count = (size_t)(call * 31 % 120) + 1;
    const bool floats = call % 3 != 0;
    union {
        float f32[MOST];
        int32_t i32[MOST];
    } data = {0};
    for (size_t i = 0; i < count; i++)
        if (floats)
            data.f32[i] = (float)part_of(rank, call, i);
        else
            data.i32[i] = part_of(rank, call, i);
    const trib_dtype dtype = floats ? TRIB_F32 : TRIB_I32;
    const bool shares = call % 2 != 0 && tri_push_can_share(count, dtype, w->size);
    push_call(w, rank, &data, &data,
              (struct tri_push){.count = count,
                                .dtype = dtype,
                                .op = TRIB_SUM,
                                .kind = shares ? TRI_PUSH_TWO_SHOT : TRI_PUSH_ALLREDUCE});
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;
        for (int r = 0; r < w->size; r++)
            sum += part_of(r, call, i);
        if (floats ? data.f32[i] != (float)sum : data.i32[i] != sum)
            return CHECK_MSG(false, "rank %d, call %d: element %zu is wrong", rank, call, i);
    }
    return true;
}

static bool make_call(struct world *w, int rank, int call)
{
    switch (call / 3 % 5) {
    case 0:
        return make_copy(w, rank, call, TRI_PUSH_BROADCAST);
    case 1:
        return make_copy(w, rank, call, TRI_PUSH_ALLGATHER);
    case 2:
        return make_scatter(w, rank, call);
    case 3:
        return make_copy(w, rank, call, TRI_PUSH_ALLTOALL);
    default:
        return make_sum(w, rank, call);
    }
}

static void run_rank(int rank, int size, void *argument)
{
    (void)size;
    for (int call = 0; call < ((struct world *)argument)->calls && make_call(argument, rank, call);
         call++)
        if (call % 16 == rank)
            team_stagger(rank, call);
}

static void all_ranks(int size, int calls)
{
    static struct world w;
    check_begin("push of %d threads", size);
    open_world(&w, size);
    w.calls = calls;
    check_ranks(size, run_rank, &w);
    CHECK(w.abort_flag == 0);
    for (int r = 0; r < size; r++)
        CHECK(w.control[r].turn == (uint32_t)calls * TRI_PUSH_EPOCH);
    check_end();
}

/* The last rank does not call, but aborts. */
static void abort_rank(int rank, int size, void *argument)
{
    struct world *w = argument;
    float data[MOST] = {0};
    if (rank < size - 1) {
        push_of(w, rank, data, data, 100, TRIB_F32);
        push_of(w, rank, data, data, 100, TRIB_F32);
        return;
    }
    check_sleep_ms(20);
    __atomic_store_n(&w->abort_flag, TRI_PUSH_ABORTED, __ATOMIC_RELEASE);
}

static void aborted(void)
{
    static struct world w;
    check_begin("push of 3 threads, aborted");
    open_world(&w, 3);
    check_ranks(3, abort_rank, &w);
    CHECK(w.control[0].over == TRI_PUSH_ABORTED && w.control[1].over == TRI_PUSH_ABORTED);
    check_end();
}

int main(void)
{
    all_ranks(2, 2000);
    all_ranks(3, 100); /* of which two processors have two at a time */
    aborted();
    return check_finish("push_threads_test");
}
