/* pull of the cpu table with a thread for each rank, as GPUs run it: late by chance, or for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/kernels_cpu.h"
#include "tests/check.h"
#include "tests/team.h"

enum { MOST = 256, ROUNDS = 10 };

struct world {
    int size, calls;
    struct tri_pull_control control[TRI_PULL_RANKS];
    _Alignas(16) unsigned char scratch[TRI_PULL_RANKS][256];
    uint32_t abort_flag;
    uint64_t patience_ns;
};

static void open_world(struct world *w, int size)
{
    memset(w, 0, sizeof *w);
    memset(w->scratch, 0xa5, sizeof w->scratch);
    w->size = size;
    w->patience_ns = UINT64_C(60000000000); /* a lost barrier is a failed check, not a hang */
}

/* A rank's call; `unmapped` is a rank, or as many as there are. */
static void pull_of(struct world *w, int rank, const void *send, void *recv, size_t count,
                    int unmapped)
{
    const struct tri_pull_rank here = {send, recv, rank != unmapped, rank};
    struct tri_pull call = {.here = &here,
                            .n = 1,
                            .scratch_bytes = sizeof w->scratch[0],
                            .size = w->size,
                            .count = count,
                            .dtype = TRIB_I32,
                            .op = TRIB_SUM,
                            .way = count % 2 ? TRI_PULL_TWO_SHOT : TRI_PULL_ONE_SHOT,
                            .abort_flag = &w->abort_flag,
                            .patience_ns = w->patience_ns};
    for (int r = 0; r < w->size; r++) {
        call.control[r] = &w->control[r];
        call.scratch[r] = w->scratch[r];
    }
    CHECK_OK(tri_cpu_pull(&call, NULL));
}

static int32_t part_of(int rank, int call, size_t i)
{
    return (int32_t)((call * 7 + rank * 1000 + (int)i) % 100000);
}

/* Two shot in place, otherwise apart, in buffers that the next call fills anew. */
static bool make_call(struct world *w, int rank, int call)
{
    const size_t count = (size_t)(call * 31 % 120) + 1;
    int32_t data[2][MOST];
    int32_t *const recv = data[count % 2 ? 0 : 1];
    memset(data, 0xa5, sizeof data);
    for (size_t i = 0; i < count; i++)
        data[0][i] = part_of(rank, call, i);
    pull_of(w, rank, data[0], recv, count, call % 3 == 0 ? call % w->size : w->size);
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;
        for (int r = 0; r < w->size; r++)
            sum += part_of(r, call, i);
        if (recv[i] != sum)
            return CHECK_MSG(false, "rank %d, call %d: element %zu is wrong", rank, call, i);
    }
    return true;
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
    check_begin("pull of %d threads", size);
    open_world(&w, size);
    w.calls = calls;
    check_ranks(size, run_rank, &w);
    CHECK(w.abort_flag == 0);
    for (int r = 1; r < size; r++)
        CHECK(w.control[r].turn[0] == w.control[0].turn[0]);
    check_end();
}

/* The last rank sets the flag amid its calls, and makes none after that. Buffers are freed at once. */
static void abort_rank(int rank, int size, void *argument)
{
    struct world *w = argument;
    for (int call = 0; call < 20 && __atomic_load_n(&w->control[rank].over, __ATOMIC_ACQUIRE) == 0;
         call++) {
        int32_t *send = calloc(MOST, sizeof *send), *recv = calloc(MOST, sizeof *recv);
        if (rank == size - 1 && call == 10) {
            team_stagger(rank, call);
            __atomic_store_n(&w->abort_flag, TRI_PUSH_ABORTED, __ATOMIC_RELEASE);
            call = 20;
        } else {
            pull_of(w, rank, send, recv, MOST - (size_t)call % 2, size);
        }
        free(send);
        free(recv);
    }
}

static void aborted(void)
{
    static struct world w;
    check_begin("pull of 3 threads, aborted %d times", (int)ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        open_world(&w, 3);
        check_ranks(3, abort_rank, &w);
        CHECK(w.control[0].over == TRI_PUSH_ABORTED && w.control[1].over == TRI_PUSH_ABORTED);
    }
    check_end();
}

/* A rank whose peer never comes loses its patience. */
static void late(void)
{
    static struct world w;
    int32_t data[2][4] = {{1, 2, 3, 4}, {-1, -1, -1, -1}};
    check_begin("pull of a thread without its peer");
    open_world(&w, 2);
    w.patience_ns = 20000000;
    const double began = check_now_ms();
    pull_of(&w, 0, data[0], data[1], 4, 2);
    CHECK(check_now_ms() - began >= 20);
    CHECK(w.abort_flag == TRI_PUSH_LATE && w.control[0].over == TRI_PUSH_LATE);
    CHECK(data[1][0] == -1 && data[1][3] == -1);
    check_end();
}

int main(void)
{
    all_ranks(2, 300);
    all_ranks(3, 30); /* of which two processors have two at a time */
    aborted();
    late();
    return check_finish("pull_threads_test");
}
