/* pull of the cpu table with a thread for each rank, as GPUs run it: late by chance, or for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/kernels_cpu.h"
#include "tests/check.h"
#include "tests/team.h"

enum { MOST = 256, ROUNDS = 40 };

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

/* A call of all ranks; `unmapped` is one, or as many as there are. */
struct thread_call {
    enum tri_pull_kind kind;
    size_t count;
    int unmapped, root;
};

static void pull_of(struct world *w, int rank, const void *send, void *recv,
                    const struct thread_call *c)
{
    const struct tri_pull_rank here = {
        .send = send, .recv = recv, .mapped = rank != c->unmapped, .rank = rank};
    const bool copies = tri_pull_copies(c->kind);
    struct tri_pull call = {.here = &here,
                            .n = 1,
                            .scratch_bytes = sizeof w->scratch[0],
                            .size = w->size,
                            .kind = c->kind,
                            .root = c->root,
                            .count = c->count * (copies ? sizeof(int32_t) : 1),
                            .dtype = copies ? TRIB_U8 : TRIB_I32,
                            .op = TRIB_SUM,
                            .way = c->count % 2 ? TRI_PULL_TWO_SHOT : TRI_PULL_ONE_SHOT,
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

/* Element `i` of what the rank gets. */
static int32_t expected_of(const struct thread_call *c, int size, int rank, int call, size_t i)
{
    const size_t own = tri_pull_scatters(c->kind) ? (size_t)rank * c->count : 0;
    int32_t sum = 0;
    if (tri_pull_gathers(c->kind))
        return part_of((int)(i / c->count), call, own + i % c->count);
    if (c->kind == TRI_PULL_BROADCAST)
        return part_of(c->root, call, i);
    for (int r = 0; r < size; r++)
        sum += part_of(r, call, own + i);
    return sum;
}

/* Every kind. Two shot in place, otherwise apart, in buffers that the next call fills anew. */
static bool make_call(struct world *w, int rank, int call)
{
    const size_t count = (size_t)(call * 31 % 120) + 1, size = (size_t)w->size;
    const struct thread_call c = {.kind = (enum tri_pull_kind)(call / 2 % 5),
                                  .count = count,
                                  .unmapped = call % 3 == 0 ? call % w->size : w->size,
                                  .root = call % w->size};
    const size_t sent = tri_pull_scatters(c.kind) ? count * size : count;
    const size_t received = tri_pull_gathers(c.kind) ? count * size : count;
    int32_t data[2][3 * MOST];
    int32_t *const recv = data[c.kind == TRI_PULL_ALLREDUCE && count % 2 ? 0 : 1];
    memset(data, 0xa5, sizeof data);
    for (size_t i = 0; i < sent; i++)
        data[0][i] = part_of(rank, call, i);
    pull_of(w, rank, data[0], recv, &c);
    for (size_t i = 0; i < received; i++)
        if (recv[i] != expected_of(&c, w->size, rank, call, i))
            return CHECK_MSG(false, "rank %d, call %d, kind %d: element %zu is wrong", rank, call,
                             (int)c.kind, i);
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
            pull_of(w, rank, send, recv,
                    &(struct thread_call){call % 3 == 2 ? TRI_PULL_BROADCAST : TRI_PULL_ALLREDUCE,
                                          MOST - (size_t)call % 2, size, 0});
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
    pull_of(&w, 0, data[0], data[1], &(struct thread_call){TRI_PULL_ALLREDUCE, 4, 2, 0});
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
