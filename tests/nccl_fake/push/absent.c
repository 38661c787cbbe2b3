/* Where there is no push: NCCL serves all calls, the log says why, and nothing is left. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdlib.h>

#include "csrc/nccl/device.h"
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/fixture.h"

enum { RANKS = 3 };

/* A communicator is made, and NCCL serves it, for a reason with `words`. */
static void check_absent(const trib_options *options, const char *words)
{
    struct push_ranks ranks;
    const int before = push_refusals(NULL);
    const int mappings = fake_mappings(), blocks = fake_blocks();
    if (!push_open(&ranks, RANKS, PUSH_N * 4, options))
        return;
    fake_fail_mapping(-1);
    fake_fail_push(-1);
    fake_allow_events(-1);
    fake_push_as(FAKE_PUSH_WORKS);
    CHECK_MSG(push_refusals(words) == before + 1, "the log has not said: %s", words);
    CHECK(fake_mappings() == mappings);
    CHECK_MSG(fake_blocks() == blocks + RANKS, "%d blocks are left",
              fake_blocks() - blocks - RANKS);
    push_fill(&ranks, TRIB_F32, PUSH_N);
    fake_move_data(true);
    push_each(&ranks, push_call_rank);
    fake_move_data(false);
    CHECK(push_summed(&ranks, TRIB_F32, PUSH_N) && push_counts(&ranks, RANKS, 0));
    push_close(&ranks);
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
}

static void unreachable(void)
{
    push_begin("devices that do not reach each other");
    fake_reach(false, false);
    check_absent(NULL, "cannot access each other's memory");
    push_end();
}

/* Each of a rank's four calls fails once, for each rank. */
static void no_memory(void)
{
    push_begin("memory that cannot be had");
    for (int call = 0; call < 4 * RANKS; call++) {
        fake_fail_mapping(call);
        check_absent(NULL, "had no memory for that");
    }
    push_end();
}

static void no_room(void)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = FAKE_GRANULARITY - 1;
    push_begin("too few bytes");
    check_absent(&options, "`peer_bytes` is too small");
    push_end();
}

static void not_wanted(void)
{
    trib_options options = TRIB_OPTIONS_INIT;
    push_begin("what the user does not want");
    options.peer_bytes = TRIB_NO_PEERS;
    check_absent(&options, "`peer_bytes` is TRIB_NO_PEERS");
    CHECK(setenv("NCCL_P2P_DISABLE", "1", 1) == 0);
    check_absent(NULL, "NCCL_P2P_DISABLE is set");
    CHECK(setenv("NCCL_P2P_DISABLE", "0", 1) == 0);
    struct push_ranks ranks;
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        CHECK(push_works(&ranks) && push_counts(&ranks, 0, 1));
        push_close(&ranks);
    }
    CHECK(unsetenv("NCCL_P2P_DISABLE") == 0);
    push_end();
}

static void old_driver(void)
{
    push_begin("a driver without such memory");
    const struct tri_nccl_driver driver = tri_nccl_driver;
    for (int function = 0; function < 8; function++) {
        tri_nccl_driver.mem_granularity = function == 0 ? NULL : driver.mem_granularity;
        tri_nccl_driver.mem_create = function == 1 ? NULL : driver.mem_create;
        tri_nccl_driver.mem_release = function == 2 ? NULL : driver.mem_release;
        tri_nccl_driver.mem_reserve = function == 3 ? NULL : driver.mem_reserve;
        tri_nccl_driver.mem_unreserve = function == 4 ? NULL : driver.mem_unreserve;
        tri_nccl_driver.mem_map = function == 5 ? NULL : driver.mem_map;
        tri_nccl_driver.mem_unmap = function == 6 ? NULL : driver.mem_unmap;
        tri_nccl_driver.mem_set_access = function == 7 ? NULL : driver.mem_set_access;
        check_absent(NULL, "no memory of that kind");
    }
    tri_nccl_driver = driver;
    push_end();
}

static void trials(void)
{
    push_begin("trials that fail");
    fake_push_as(FAKE_PUSH_LOSES);
    check_absent(NULL, "does not arrive");
    fake_push_as(FAKE_PUSH_GARBLES);
    check_absent(NULL, "does not arrive");
    for (int call = 0; call < 2 * RANKS; call++) { /* two lanes of each rank */
        fake_fail_push(call);
        check_absent(NULL, "an error of the fake");
    }
    push_end();
}

/* What one rank sends to another, any of the two, in both lanes of the trial or in the last one. */
static void lost_parts(void)
{
    push_begin("trials in which one rank does not reach another");
    for (int from = 0; from < RANKS; from++)
        for (int to = 0; to < RANKS; to++)
            for (int whole = 0; from != to && whole < 2; whole++) {
                fake_lose_part(from, to, whole);
                check_absent(NULL, "does not arrive");
            }
    push_end();
}

static void no_events(void)
{
    push_begin("no events");
    for (int n = 0; n < 2 * RANKS; n++) {
        fake_allow_events(n);
        check_absent(NULL, "CUDA made no events");
    }
    push_end();
}

/* ------------------------------------------------------------------------- what one rank asks for */

struct asking {
    trib_id id;
    uint64_t peer_bytes; /* of rank 1 */
    struct push_ranks ranks;
};

static void asking_rank(int rank, int size, void *argument)
{
    struct asking *asking = argument;
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = rank == 1 ? asking->peer_bytes : 0;
    CHECK_OK(trib_comm_create(&asking->ranks.comms[rank], &asking->id, rank, size, rank, &options));
}

/* A communicator by id, a thread each; `n` floats are pushed, and more are not. */
static void ask(uint64_t peer_bytes, size_t n)
{
    struct asking asking = {.peer_bytes = peer_bytes};
    if (!push_open(&asking.ranks, RANKS, (n + PUSH_N) * 4, NULL))
        return;
    push_destroy(&asking.ranks);
    CHECK_OK(trib_id_create(&asking.id, "nccl"));
    check_ranks(RANKS, asking_rank, &asking);
    (void)push_counts(&asking.ranks, -1, -1);
    push_fill(&asking.ranks, TRIB_F32, n);
    for (int rank = 0; rank < RANKS && n > 0; rank++)
        CHECK_OK(push_sum(&asking.ranks, rank, n, TRIB_F32));
    CHECK(push_summed(&asking.ranks, TRIB_F32, n) && push_counts(&asking.ranks, 0, n > 0));
    if (n == 0) {
        push_each(&asking.ranks, push_call_rank);
        CHECK(push_counts(&asking.ranks, RANKS, 0));
    }
    push_close(&asking.ranks);
}

static void one_rank(void)
{
    push_begin("what one rank asks for");
    ask(TRIB_NO_PEERS, 0);
    CHECK(push_refusals("TRIB_NO_PEERS") == 1);
    push_end();
    push_begin("less than what all others ask for");
    ask(2 * FAKE_GRANULARITY, 2 * FAKE_GRANULARITY / 64 / RANKS * 4);
    ask(FAKE_GRANULARITY - 1, 0);
    CHECK(push_refusals("too small") == 1);
    push_end();
}

/* Whoever debugs reads how much memory it is. */
static void told(void)
{
    struct push_ranks ranks;
    push_begin("memory in the log");
    CHECK_OK(trib_debug_set(1));
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL))
        push_close(&ranks);
    CHECK_OK(trib_debug_set(0));
    CHECK(push_allocations() == 1);
    push_end();
}

void push_absent(void)
{
    told();
    unreachable();
    no_memory();
    no_room();
    not_wanted();
    old_driver();
    trials();
    lost_parts();
    no_events();
    one_rank();
}
