/* hier's sums inside hosts: which ranks have a communicator of their own, who serves its reduce_scatters, and that
 * it and the whole communicator stop together and are freed together. Nothing is selected, merged or decided here. */
#include <stdlib.h>
#include <string.h>

#include "csrc/core/inside.h"
#include "csrc/core/operation.h"
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { MOST = 3 << 20, SMALL = 1008, RANKS = 4 };

static const int32_t turns[] = {1, 0, 1, 0}, pairs[] = {0, 0, 1, 1}, one_host[] = {3, 3, 3, 3},
                     alone[] = {0, 1, 0}, each[] = {0, 1, 2, 3};

struct world {
    struct push_ranks ranks;
    const int32_t *hosts;
    size_t count;
    uint64_t k;
    trib_sparse *of[RANKS];
    trib_status status[RANKS];
};

static bool open_world(struct world *world, int size, const int32_t *hosts, size_t count)
{
    trib_options options = TRIB_OPTIONS_INIT;
    *world = (struct world){.hosts = hosts, .count = count, .k = count / 10};
    options.peer_bytes =
        count == MOST ? 0 : PUSH_ROOM; /* what is made is tried, which takes a while */
    return push_open(&world->ranks, size, 2 * count * sizeof(float), &options);
}

static void create_rank(int rank, int size, void *argument)
{
    struct world *world = argument;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    (void)size;
    options.algorithm = "hier";
    options.flags = TRIB_SPARSE_USE_K | TRIB_SPARSE_IN_PLACE;
    options.k = world->k;
    options.hosts = world->hosts;
    world->status[rank] = trib_sparse_create(&world->of[rank], world->ranks.comms[rank],
                                             world->count, TRIB_F32, &options);
}

/* `more` communicators of NCCL's, a rank each. */
static bool create(struct world *world, int more)
{
    const int size = world->ranks.size, before = fake_communicators();
    bool good = true;
    check_ranks(size, create_rank, world);
    for (int rank = 0; rank < size; rank++)
        good = CHECK_STATUS(world->status[rank], TRIB_OK) && good;
    return CHECK_MSG(fake_communicators() - before == more, "%d more communicators, expected %d",
                     fake_communicators() - before, more) &&
           good;
}

static void set_rank(int rank, int size, void *argument)
{
    struct world *world = argument;
    (void)size;
    CHECK_OK(trib_sparse_set_k(world->of[rank], world->k));
}

static void destroy(const struct world *world)
{
    for (int rank = 0; rank < world->ranks.size; rank++)
        CHECK_OK(trib_sparse_destroy(world->of[rank]));
}

static void call_rank(int rank, int size, void *argument)
{
    const struct world *world = argument;
    const struct push_ranks *ranks = &world->ranks;
    (void)size;
    CHECK_OK(trib_sparse_allreduce(world->of[rank], ranks->data[rank],
                                   (float *)ranks->data[rank] + world->count,
                                   ranks->streams[rank]));
    CHECK_OK(trib_comm_wait(ranks->comms[rank], ranks->streams[rank], PUSH_PLENTY_MS));
}

/* One call of all ranks: their messages are NCCL's, so many a call. */
static void serves(struct world *world, long nccl, long pushes, long pulls)
{
    push_fill(&world->ranks, TRIB_F32, world->count);
    (void)large_counts(&world->ranks, -1, -1, -1, -1);
    check_ranks(world->ranks.size, call_rank, world);
    CHECK(large_counts(&world->ranks, nccl, pushes, pulls, 0));
}

/* The transport of a rank's host, which exists. */
static struct trib_abort *part_of(const struct world *world, int rank)
{
    struct tri_transport *transport = NULL;
    struct trib_comm *comm = world->ranks.comms[rank];
    uint8_t host_of[RANKS];
    for (int other = 0; other < world->ranks.size; other++)
        host_of[other] = world->hosts[other] != world->hosts[0];
    CHECK_OK(tri_inside_open(&transport, comm, TRI_SPARSE_CREATE, host_of));
    return CHECK(transport != NULL && transport != comm->transport)
               ? comm->backend->transport->abort_state(transport)
               : NULL;
}

/* --------------------------------------------------------------------------------------- calls */

/* On two hosts a rank sends its packet to one of the other host, and both of a host to each other what they have. */
static void of_two_hosts(void)
{
    struct world world;
    push_begin("two ranks of each of two hosts");
    if (open_world(&world, RANKS, turns, SMALL) && create(&world, RANKS)) {
        serves(&world, 4 * RANKS, 2, 0);
        serves(&world, 4 * RANKS, 2, 0);
        destroy(&world);
        CHECK(create(&world, 0)); /* the same once more */
        serves(&world, 4 * RANKS, 2, 0);
        destroy(&world);
        world.hosts = pairs;
        CHECK(create(&world, RANKS)); /* another map */
        serves(&world, 4 * RANKS, 2, 0);
        destroy(&world);
        world.hosts = each;
        CHECK(create(&world, 0)); /* nobody to add up with */
        destroy(&world);
    }
    push_close(&world.ranks);
    push_end();
}

struct shape {
    int size;
    const int32_t *hosts;
    size_t count;
};

/* One state, and one call: `more` communicators, and who serves it. */
static void once(const char *name, const struct shape *shape, int more, const long served[3])
{
    struct world world;
    push_begin(name);
    if (open_world(&world, shape->size, shape->hosts, shape->count) && create(&world, more)) {
        serves(&world, served[0], served[1], served[2]);
        destroy(&world);
    }
    push_close(&world.ranks);
    push_end();
}

static void larger(void)
{
    static const long served[] = {2 * (3 + 3), 0, 1};
    once("sums inside hosts that are pull's", &(struct shape){3, alone, MOST}, 2, served);
}

/* What equal shards leave goes by messages, to the last rank of each host. */
static void uneven(void)
{
    static const long both[] = {4 * RANKS + 4, 2, 0}, messages[] = {4 * RANKS + 4, 0, 0};
    once("sums inside hosts whose shards are not equal", &(struct shape){RANKS, pairs, SMALL + 3},
         RANKS, both);
    once("sums inside a host of fewer elements than shards have at least",
         &(struct shape){RANKS, pairs, 7}, RANKS, messages);
}

static void others(void)
{
    static const long two[] = {2 * (3 + 3), 1, 0}, /* packets of a host's ranks leave gaps */
        all[] = {2 * 3 * RANKS, 1, 0};
    once("a rank that is alone on its host", &(struct shape){3, alone, SMALL}, 2, two);
    once("all ranks on one host", &(struct shape){RANKS, one_host, SMALL}, 0, all);
}

/* With k = n dense serves the state, which adds up everywhere at once. */
static void later(void)
{
    struct world world;
    push_begin("sums inside hosts from another k on");
    if (open_world(&world, RANKS, turns, SMALL)) {
        world.k = SMALL;
        if (create(&world, 0)) {
            serves(&world, 2 * RANKS, 0, 0); /* of two collectives at once */
            world.k = SMALL / 2;
            check_ranks(RANKS, set_rank, &world);
            serves(&world, 4 * RANKS, 2, 0);
            destroy(&world);
        }
    }
    push_close(&world.ranks);
    push_end();
}

/* -------------------------------------------------------------------------------------- aborts */

static trib_comm_state state_of(trib_abort *handle)
{
    trib_comm_state state = -1;
    CHECK_OK(trib_abort_state(&state, NULL, 0, handle));
    return state;
}

static void abort_whole(void)
{
    struct world world;
    trib_abort *handle = NULL;
    push_begin("an abort ends what hosts have");
    if (open_world(&world, RANKS, turns, SMALL) && create(&world, RANKS)) {
        struct trib_abort *parts[] = {part_of(&world, 0), part_of(&world, 1)};
        CHECK(parts[0] != parts[1] && part_of(&world, 2) == parts[0]);
        CHECK_OK(trib_comm_abort_handle(&handle, world.ranks.comms[3]));
        CHECK(state_of(handle) == TRIB_COMM_LIVE);
        fake_hold(FAKE_RECLAIM, true);
        CHECK(tri_abort_register(parts[0])); /* a call */
        CHECK_OK(trib_abort_raise(handle, "a test"));
        CHECK(state_of(handle) == TRIB_COMM_ABORTING);
        tri_abort_unregister(parts[0]);
        for (int i = 0; i < 2; i++) {
            CHECK_STATUS(tri_abort_status(parts[i]), TRIB_ERR_ABORTED);
            CHECK_DETAIL("a test");
        }
        CHECK(state_of(handle) < TRIB_COMM_RECLAIMED);
        fake_hold(FAKE_RECLAIM, false);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(fake_communicators() == 0 && state_of(handle) == TRIB_COMM_RECLAIMED);
        CHECK_STATUS(trib_sparse_allreduce(world.of[0], world.ranks.data[0],
                                           (float *)world.ranks.data[0] + SMALL,
                                           world.ranks.streams[0]),
                     TRIB_ERR_ABORTED);
        destroy(&world);
    }
    push_close(&world.ranks);
    CHECK(state_of(handle) == TRIB_COMM_RECLAIMED);
    trib_abort_release(handle);
    push_end();
}

/* Rank 1 of the host is rank 3 of all. */
static void abort_part(void)
{
    static const int32_t lost = 1;
    struct world world;
    push_begin("what ends for the ranks of a host ends for all");
    if (open_world(&world, RANKS, turns, SMALL) && create(&world, RANKS)) {
        int32_t n = 0, named[2] = {-1, -1};
        struct trib_abort *other = part_of(&world, 0);
        CHECK(
            tri_abort_raise_lost(part_of(&world, 1), TRIB_ERR_CLOSED, "rank 1 is gone", &lost, 1));
        CHECK_STATUS(tri_abort_status(other), TRIB_ERR_CLOSED);
        CHECK_STATUS(trib_comm_status(world.ranks.comms[0]), TRIB_ERR_CLOSED);
        CHECK_DETAIL("among ranks 1, 3 of one host: rank 1 is gone");
        CHECK_OK(trib_comm_lost(&n, world.ranks.comms[0], named, 2));
        CHECK_MSG(n == 1 && named[0] == 3, "%d lost, the first one %d", (int)n, (int)named[0]);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(fake_communicators() == 0);
        destroy(&world);
    }
    push_close(&world.ranks);
    push_end();
}

/* Rank 3, which is on rank 1's host, makes no call: rank 1's stream waits in the sum of that host. */
static void most_call(int rank, int size, void *argument)
{
    const struct world *world = argument;
    const struct push_ranks *ranks = &world->ranks;
    if (rank < size - 1)
        CHECK_OK(trib_sparse_allreduce(world->of[rank], ranks->data[rank],
                                       (float *)ranks->data[rank] + world->count,
                                       ranks->streams[rank]));
}

static void missing(bool leaves)
{
    const trib_status why = leaves ? TRIB_ERR_CLOSED : TRIB_ERR_ABORTED;
    struct world world;
    trib_abort *handle = NULL;
    push_begin(leaves ? "a rank of a host leaves before a call"
                      : "an abort ends a sum inside a host");
    if (open_world(&world, RANKS, turns, SMALL) && create(&world, RANKS)) {
        check_ranks(RANKS, most_call, &world);
        CHECK_STATUS(trib_comm_wait(world.ranks.comms[1], world.ranks.streams[1], PUSH_LATE_MS),
                     TRIB_ERR_TIMEOUT);
        CHECK_OK(trib_comm_abort_handle(&handle, world.ranks.comms[1]));
        if (leaves)
            CHECK_STATUS(trib_comm_close(world.ranks.comms[3], PUSH_PLENTY_MS), TRIB_ERR_CLOSED);
        else
            CHECK_OK(trib_abort_raise(handle, "a test"));
        CHECK_STATUS(trib_comm_wait(world.ranks.comms[1], world.ranks.streams[1], PUSH_PLENTY_MS),
                     why);
        CHECK_STATUS(tri_abort_status(part_of(&world, 1)), why);
        CHECK_OK(trib_stream_wait(world.ranks.devices[1], world.ranks.streams[1]));
        destroy(&world);
    }
    push_close(&world.ranks);
    trib_abort_release(handle);
    push_end();
}

/* Until the last rank closes, what hosts have is there, and no close waits. */
static void closes(void)
{
    struct world world;
    trib_abort *handle = NULL;
    push_begin("the last close frees what hosts have");
    if (open_world(&world, RANKS, pairs, SMALL) && create(&world, RANKS)) {
        serves(&world, 4 * RANKS, 2, 0);
        CHECK_OK(trib_comm_abort_handle(&handle, world.ranks.comms[0]));
        destroy(&world);
        world.hosts = turns; /* another map */
        CHECK(create(&world, RANKS));
        destroy(&world);
        fake_hold(FAKE_EVENT, true); /* nothing that push served has ended */
        for (int rank = 0; rank < RANKS; rank++) {
            CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
            CHECK(state_of(handle) == TRIB_COMM_LIVE && fake_communicators() == 3 * RANKS);
            if (rank == RANKS - 1)
                fake_hold(FAKE_EVENT, false);
            CHECK_OK(trib_comm_close(world.ranks.comms[rank], PUSH_PLENTY_MS));
        }
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(fake_communicators() == 0 && state_of(handle) == TRIB_COMM_RECLAIMED);
    }
    push_close(&world.ranks);
    trib_abort_release(handle);
    push_end();
}

void push_hosts(void)
{
    of_two_hosts();
    larger();
    uneven();
    others();
    later();
    abort_whole();
    abort_part();
    missing(false);
    missing(true);
    closes();
}
