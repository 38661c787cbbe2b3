/* TRIB_MATCH: if one rank's call differs in any way, every rank gets the error, nothing is queued,
 * and the communicators stay usable. */
#include "tests/team.h"

enum { RANKS = 4, COUNT = 8 };

/* One rank's buffers. */
struct place {
    float send[RANKS * COUNT], recv[RANKS * COUNT];
};

static const trib_call_options with_factor = {
    (uint32_t)sizeof(trib_call_options), TRIB_CALL_FACTOR, 2.0, NULL, 0, 0};
static struct team team;
static struct place places[RANKS];

static trib_status gatherv(int rank, bool odd)
{
    static const size_t counts[RANKS] = {1, 2, 3, 0}, offsets[RANKS] = {0, 1, 3, 6};
    static const size_t odd_counts[RANKS] = {1, 1, 3, 0};
    return trib_allgatherv(team.comms[rank], places[rank].send, places[rank].recv,
                           odd ? odd_counts : counts, offsets, TRIB_F32, team.streams[rank]);
}

static trib_status batch(int rank, bool odd)
{
    trib_comm *comm = team.comms[rank];
    CHECK_OK(trib_batch_begin(comm));
    const trib_status first = trib_allreduce(comm, places[rank].send, places[rank].recv,
                                             odd ? 4 : 8, TRIB_F32, TRIB_SUM, team.streams[rank]);
    CHECK_OK(first);
    return trib_batch_end(comm);
}

static trib_status list_call(int which, int rank, bool odd)
{
    trib_comm *comm = team.comms[rank];
    trib_stream stream = team.streams[rank];
    float *data = places[rank].send;
    trib_tensor tensors[2] = {{data, 4, TRIB_F32, 0}, {data + 4, odd ? 3 : 4, TRIB_F32, 0}};
    switch (which) {
    case 9:
        return trib_allreduce_list(comm, tensors, 2, TRIB_SUM, stream);
    case 10:
        return odd ? trib_weighted_average(comm, tensors, 2, 1, NULL, NULL, stream)
                   : trib_broadcast_list(comm, tensors, 2, 0, stream);
    default:
        return trib_allreduce_list_with(comm, tensors, 1, TRIB_SUM, odd ? NULL : &with_factor,
                                        stream);
    }
}

/* The call number `which`, which `odd` makes differently from the others. */
static trib_status call(int which, int rank, bool odd)
{
    trib_comm *comm = team.comms[rank];
    trib_stream stream = team.streams[rank];
    float *send = places[rank].send, *recv = places[rank].recv;
    switch (which) {
    case 0:
        return trib_allreduce(comm, send, recv, odd ? 7 : 8, TRIB_F32, TRIB_SUM, stream);
    case 1:
        return trib_allreduce(comm, send, recv, 8, odd ? TRIB_I32 : TRIB_F32, TRIB_SUM, stream);
    case 2:
        return trib_allreduce(comm, send, recv, 8, TRIB_F32, odd ? TRIB_MAX : TRIB_SUM, stream);
    case 3:
        return trib_broadcast(comm, send, recv, 8, TRIB_F32, odd ? 1 : 0, stream);
    case 4:
        return odd ? trib_allgather(comm, send, recv, 2, TRIB_F32, stream)
                   : trib_barrier(comm, stream);
    case 5:
        return trib_allreduce(comm, send, recv, odd ? 0 : 8, TRIB_F32, TRIB_SUM, stream);
    case 6:
        return trib_allreduce_with(comm, send, recv, 8, TRIB_F32, TRIB_SUM,
                                   odd ? &with_factor : NULL, stream);
    case 7:
        return gatherv(rank, odd);
    case 8:
        return batch(rank, odd);
    default:
        return list_call(which, rank, odd);
    }
}

enum { CALLS = 12 };

static void body(int rank, int size, void *argument)
{
    static const char *const words[CALLS] = {"count 7",
                                             "i32",
                                             "max",
                                             "root 1",
                                             "allgather",
                                             "count 0",
                                             "trib_allreduce_with",
                                             "digest",
                                             "batch_end",
                                             "tensors",
                                             "weighted_average",
                                             "trib_allreduce_list_with"};
    (void)argument;
    for (int i = 0; i < COUNT; i++)
        places[rank].send[i] = (float)(rank + i);
    for (int which = 0; which < CALLS; which++)
        for (int odd = 0; odd < size; odd++) {
            trib_counters before = TRIB_COUNTERS_INIT, after = TRIB_COUNTERS_INIT;
            CHECK_OK(trib_comm_counters(&before, team.comms[rank]));
            CHECK_STATUS(call(which, rank, rank == odd), TRIB_ERR_MISMATCH);
            CHECK_DETAIL(words[which]);
            CHECK_OK(trib_comm_counters(&after, team.comms[rank]));
            CHECK(after.calls == before.calls && after.lists_queued == before.lists_queued);
        }
    trib_comm *comm = team.comms[rank];
    float *send = places[rank].send, *recv = places[rank].recv;
    /* A call of no elements is over once it agrees: a mistake after it ends nothing. */
    CHECK_OK(trib_allreduce(comm, send, recv, 0, TRIB_F32, TRIB_SUM, team.streams[rank]));
    CHECK_STATUS(trib_allreduce(comm, send, NULL, 1, TRIB_F32, TRIB_SUM, team.streams[rank]),
                 TRIB_ERR_INVALID_BUFFER);
    /* Still usable; sends and receives are not compared. */
    if (rank == 0)
        CHECK_OK(trib_send(comm, send, 1, TRIB_F32, 1, team.streams[rank]));
    if (rank == 1)
        CHECK_OK(trib_recv(comm, recv, 1, TRIB_F32, 0, team.streams[rank]));
    CHECK_OK(trib_allreduce(comm, send, recv, COUNT, TRIB_F32, TRIB_SUM, team.streams[rank]));
    CHECK(team_wait(&team, rank, 10000));
    CHECK_OK(trib_comm_status(comm));
    for (int i = 0; i < COUNT; i++)
        CHECK(recv[i] == (float)(size * i + size * (size - 1) / 2));
}

/* Rank 0 sends four numbers, rank 1 takes three of them: found on the stream. No TRIB_MATCH. */
static void torn(int rank, int size, void *argument)
{
    trib_comm *comm = team.comms[rank], *child = NULL;
    trib_stream stream = team.streams[rank];
    float *send = places[rank].send, *recv = places[rank].recv;
    (void)size;
    /* The stream may find it before the call is over: then the call says that it was overtaken. */
    const trib_status queued = rank == 0 ? trib_send(comm, send, 4, TRIB_F32, 1, stream)
                                         : trib_recv(comm, recv, 3, TRIB_F32, 0, stream);
    CHECK_MSG(queued == TRIB_OK || queued == TRIB_ERR_ABORTED, "rank %d: %s", rank,
              trib_last_detail());
    CHECK(team_wait(&team, rank, 10000));
    team_barrier(argument, 2);
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_MISMATCH);
    CHECK_DETAIL("rank 0 sends 4 f32");
    /* The calls that come after are no mistakes. */
    CHECK_STATUS(trib_allreduce(comm, send, recv, 4, TRIB_F32, TRIB_SUM, stream), TRIB_ERR_ABORTED);
    CHECK_DETAIL("trib_allreduce");
    CHECK_DETAIL("rank 0 sends 4 f32");
    CHECK_STATUS(trib_barrier(comm, stream), TRIB_ERR_ABORTED);
    CHECK_STATUS(trib_batch_begin(comm), TRIB_ERR_ABORTED);
    CHECK_DETAIL("trib_batch_begin");
    CHECK_STATUS(trib_batch_end(comm), TRIB_ERR_ABORTED);
    CHECK_DETAIL("trib_batch_end");
    CHECK_STATUS(trib_comm_split(&child, comm, 0, 0), TRIB_ERR_ABORTED);
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_MISMATCH);
}

/* Rank 0 waits in a split while its stream finds a mistake that was made before: the split is
 * none. */
static void split_torn(int rank, int size, void *argument)
{
    static _Atomic bool released;
    trib_comm *comm = team.comms[rank], *child = NULL;
    trib_stream stream = team.streams[rank];
    float *send = places[rank].send, *recv = places[rank].recv;
    if (rank == 0) {
        CHECK_OK(trib_stream_submit(team.devices[rank], team_hold, &released, stream));
        CHECK_OK(trib_send(comm, send, 4, TRIB_F32, 1, stream));
        team_barrier(argument, size);
        CHECK_STATUS(trib_comm_split(&child, comm, 0, 0), TRIB_ERR_ABORTED);
        CHECK_DETAIL("rank 0 sends 4 f32");
    } else {
        CHECK_OK(trib_recv(comm, recv, 3, TRIB_F32, 0, stream));
        team_barrier(argument, size);
        check_sleep_ms(
            50); /* the other rank probably waits by now; if not, it gets the same error */
        atomic_store(&released, true);
    }
    CHECK(team_wait(&team, rank, 10000));
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_MISMATCH);
}

/* Rank 0 has a factor, rank 1 none. */
static void uneven(int rank, int size, void *argument)
{
    trib_comm *comm = team.comms[rank];
    float *send = places[rank].send, *recv = places[rank].recv;
    (void)size;
    const trib_status queued =
        trib_allreduce_with(comm, send, recv, 4, TRIB_F32, TRIB_SUM,
                            rank == 0 ? &with_factor : NULL, team.streams[rank]);
    CHECK_MSG(queued == TRIB_OK || queued == TRIB_ERR_ABORTED, "rank %d: %s", rank,
              trib_last_detail());
    CHECK(team_wait(&team, rank, 10000));
    team_barrier(argument, 2);
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_MISMATCH);
    CHECK_DETAIL("rank 0 made allreduce of 4 f32 (sum, with a factor), rank 1 made allreduce of 4 "
                 "f32 (sum)");
}

int main(void)
{
    _Atomic int arrived = 0, uneven_arrived = 0, splits = 0;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_MATCH;
    check_begin("host, %d ranks: a call that differs is an error on every rank", RANKS);
    if (CHECK(team_create(&team, "host", RANKS, &options)))
        check_ranks(RANKS, body, NULL);
    team_destroy(&team);
    check_end();
    check_begin("host: only the status returns the mistake that ended a communicator");
    if (CHECK(team_create(&team, "host", 2, NULL)))
        check_ranks(2, torn, &arrived);
    team_destroy(&team);
    check_end();
    check_begin("host: a mistake of before is found while a rank waits in a split");
    if (CHECK(team_create(&team, "host", 2, NULL)))
        check_ranks(2, split_torn, &splits);
    team_destroy(&team);
    check_end();
    check_begin("host: a factor on one rank alone");
    if (CHECK(team_create(&team, "host", 2, NULL)))
        check_ranks(2, uneven, &uneven_arrived);
    team_destroy(&team);
    check_end();
    return check_finish("match_test");
}
