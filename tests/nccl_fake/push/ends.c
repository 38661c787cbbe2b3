/* The end of a communicator whose calls push serves, by an abort. */
#include <string.h>

#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/fixture.h"

enum { RANKS = 3 };

static void abort_ranks(const struct push_ranks *ranks)
{
    trib_abort *handle = NULL;
    CHECK_OK(trib_comm_abort_handle(&handle, ranks->comms[0]));
    CHECK_OK(trib_abort_raise(handle, "a test"));
    trib_abort_release(handle);
}

/* The stream ends soon. */
static void check_done(const struct push_ranks *ranks, int rank)
{
    const double until = check_now_ms() + PUSH_PLENTY_MS;
    while (!push_is_done(ranks, rank) && check_now_ms() < until)
        check_sleep_ms(1);
    CHECK_MSG(push_is_done(ranks, rank), "the stream of rank %d goes on", rank);
}

/* Ranks wait for one that does not come; another communicator of the same devices goes on. */
static void waiting(void)
{
    struct push_ranks ranks, others;
    push_begin("an abort while a push waits for a peer");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL) && push_open(&others, RANKS, PUSH_N * 4, NULL)) {
        for (int rank = 0; rank < RANKS - 1; rank++)
            CHECK_OK(push_sum(&ranks, rank, PUSH_N, TRIB_F32));
        CHECK(push_works(&others) && !push_is_done(&ranks, 0));
        abort_ranks(&ranks);
        for (int rank = 0; rank < RANKS; rank++)
            check_done(&ranks, rank);
        CHECK_STATUS(trib_comm_wait(ranks.comms[0], ranks.streams[0], 0), TRIB_ERR_ABORTED);
        CHECK_STATUS(push_sum(&ranks, RANKS - 1, PUSH_N, TRIB_F32), TRIB_ERR_ABORTED);
        CHECK(push_works(&others) && push_counts(&others, 0, 2));
        push_close(&ranks);
        CHECK(push_works(&others));
        push_close(&others);
    }
    push_end();
}

/* It is freed although another one waits. */
static void bystander(int mappings)
{
    struct push_ranks ranks;
    if (!push_open(&ranks, RANKS, PUSH_N * 4, NULL))
        return;
    CHECK(push_works(&ranks) && fake_mappings() > mappings);
    push_close(&ranks);
    for (int ms = 0; ms < PUSH_PLENTY_MS && fake_mappings() > mappings; ms++)
        check_sleep_ms(1);
    CHECK_MSG(fake_mappings() == mappings, "the memory of another communicator is not freed");
}

/* The streams are held when the abort comes: the memory stays until they have gone on. */
static void held(void)
{
    struct push_ranks ranks;
    struct fake_held held;
    push_begin("an abort of calls that have not begun");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        fake_hold_stream(&held, ranks.streams[0]);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_OK(push_sum(&ranks, rank, PUSH_N, TRIB_F32));
        abort_ranks(&ranks);
        push_destroy(&ranks);
        CHECK_STATUS(trib_quiesce(PUSH_LATE_MS), TRIB_ERR_TIMEOUT);
        const int kept = fake_mappings();
        CHECK(kept > 0);
        bystander(kept);
        fake_release_stream(&held);
        push_drop(&ranks);
    }
    push_end();
}

/* A call that does not begin ends its communicator: its peers may have begun. */
static void no_launch(void)
{
    struct push_ranks ranks;
    push_begin("a launch that fails");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        CHECK(push_works(&ranks));
        CHECK_OK(push_sum(&ranks, 1, PUSH_N, TRIB_F32));
        fake_fail_push(0);
        CHECK_STATUS(push_sum(&ranks, 0, PUSH_N, TRIB_F32), TRIB_ERR_CUDA);
        CHECK_STATUS(trib_comm_status(ranks.comms[1]), TRIB_ERR_CUDA);
        CHECK_STATUS(push_sum(&ranks, 2, PUSH_N, TRIB_F32), TRIB_ERR_CUDA);
        check_done(&ranks, 1);
        push_close(&ranks);
    }
    push_end();
}

/* A sum of rank 0 in both, as one call of the backend, which fails. */
static void sum_in_both(const struct push_ranks *ranks, const struct push_ranks *others)
{
    trib_comm *const comms[2] = {ranks->comms[0], others->comms[0]};
    CHECK_OK(trib_batch_begin(comms[0]));
    CHECK_OK(trib_batch_begin(comms[1]));
    CHECK_OK(push_sum(ranks, 0, PUSH_N, TRIB_F32));
    CHECK_OK(push_sum(others, 0, PUSH_N, TRIB_F32));
    CHECK_STATUS(trib_batch_end_all(comms, 2), TRIB_ERR_CUDA);
    CHECK_STATUS(trib_comm_status(ranks->comms[1]), TRIB_ERR_CUDA);
    CHECK_STATUS(trib_comm_status(others->comms[1]), TRIB_ERR_CUDA);
}

/* The second launch of a batch fails: the first one's kernel, which has not begun, keeps its memory. */
static void launched_in_part(void)
{
    struct push_ranks ranks, others;
    struct fake_held held;
    push_begin("a batch that is launched in part");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL) && push_open(&others, RANKS, PUSH_N * 4, NULL)) {
        const int both = fake_mappings();
        CHECK(push_works(&ranks) && push_works(&others));
        fake_hold_stream(&held, ranks.streams[0]);
        fake_fail_push(1);
        sum_in_both(&ranks, &others);
        push_destroy(&ranks);
        push_destroy(&others);
        CHECK_STATUS(trib_quiesce(PUSH_LATE_MS), TRIB_ERR_TIMEOUT);
        CHECK(fake_mappings() >= both / 2); /* the second one's may be freed behind it */
        fake_release_stream(&held);
        push_drop(&ranks);
        push_drop(&others);
    }
    push_end();
}

/* So does one whose end nobody could mark; and the memory that it may use, once its stream goes on, is
 * never freed. */
static void no_mark(void)
{
    struct push_ranks ranks;
    struct fake_held held;
    push_begin("an event that cannot be recorded");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        const int kept = fake_mappings();
        CHECK(push_works(&ranks));
        fake_hold_stream(&held, ranks.streams[0]);
        fake_fail_record(true);
        CHECK_STATUS(push_sum(&ranks, 0, PUSH_N, TRIB_F32), TRIB_ERR_CUDA);
        fake_fail_record(false);
        CHECK_STATUS(trib_comm_status(ranks.comms[1]), TRIB_ERR_CUDA);
        push_destroy(&ranks);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(fake_mappings() == kept);
        fake_release_stream(&held);
        push_drop(&ranks);
        push_keep(kept, RANKS); /* a mapping, and memory that only its own device uses */
    }
    push_end();
}

/* Of two in a batch, each that was launched. */
static void no_marks(void)
{
    struct push_ranks ranks, others;
    struct fake_held held;
    push_begin("events of a batch that cannot be recorded");
    const int before = fake_mappings();
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL) && push_open(&others, RANKS, PUSH_N * 4, NULL)) {
        const int kept = fake_mappings() - before;
        CHECK(push_works(&ranks) && push_works(&others));
        fake_hold_stream(&held, others.streams[0]);
        fake_fail_record(true);
        sum_in_both(&ranks, &others);
        fake_fail_record(false);
        push_destroy(&ranks);
        push_destroy(&others);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(fake_mappings() == before + kept);
        fake_release_stream(&held);
        push_drop(&ranks);
        push_drop(&others);
        push_keep(kept, 2 * RANKS);
    }
    push_end();
}

/* The watchdog's deadline, and who is missing. */
static void late(void)
{
    struct push_ranks ranks;
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = PUSH_LATE_MS;
    push_begin("a call that is late");
    if (push_open(&ranks, RANKS, PUSH_N * 4, &options)) {
        for (int rank = 0; rank < RANKS - 1; rank++)
            CHECK_OK(push_sum(&ranks, rank, PUSH_N, TRIB_F32));
        CHECK_STATUS(trib_comm_wait(ranks.comms[0], ranks.streams[0], PUSH_PLENTY_MS),
                     TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("rank 2");
        check_done(&ranks, 0);
        check_done(&ranks, 1);
        push_close(&ranks);
    }
    push_end();
}

/* ------------------------------------------------------------------------------------- creation */

struct creation {
    trib_id id;
    trib_status statuses[RANKS];
};

static void create_rank(int rank, int size, void *argument)
{
    struct creation *creation = argument;
    trib_options options = TRIB_OPTIONS_INIT;
    trib_comm *comm = NULL;
    options.timeout_ms = PUSH_LATE_MS;
    creation->statuses[rank] = trib_comm_create(&comm, &creation->id, rank, size, rank, &options);
    CHECK(comm == NULL);
}

/* The last rank makes the memory, and the others wait for it, when the deadline ends all that. */
static void created_late(void)
{
    struct creation creation;
    push_begin("an abort while ranks wait for the memory");
    CHECK_OK(trib_id_create(&creation.id, "nccl"));
    fake_hold(FAKE_MAPPING, true);
    check_ranks(RANKS, create_rank, &creation);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_MSG(creation.statuses[rank] == TRIB_ERR_TIMEOUT, "rank %d: %s", rank,
                  trib_status_name(creation.statuses[rank]));
    CHECK_MSG(fake_waiting(FAKE_MAPPING) == 1, "nobody makes the memory");
    CHECK_STATUS(trib_quiesce(0), TRIB_ERR_TIMEOUT);
    fake_hold(FAKE_MAPPING, false);
    push_end();
}

static void failing_rank(int rank, int size, void *argument)
{
    struct creation *creation = argument;
    trib_comm *comm = NULL;
    creation->statuses[rank] = trib_comm_create(&comm, &creation->id, rank, size, rank, NULL);
    CHECK(comm == NULL);
}

/* NCCL has connected all ranks, but one of them gets no stream: those that wait for it hear that. */
static void created_in_part(void)
{
    struct creation creation;
    push_begin("a rank that fails while others wait for it");
    CHECK_OK(trib_id_create(&creation.id, "nccl"));
    fake_fail_streams(RANKS - 1);
    check_ranks(RANKS, failing_rank, &creation);
    fake_fail_streams(-1);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_MSG(creation.statuses[rank] != TRIB_OK && creation.statuses[rank] != TRIB_ERR_TIMEOUT,
                  "rank %d: %s", rank, trib_status_name(creation.statuses[rank]));
    push_end();
}

void push_ends(void)
{
    waiting();
    held();
    no_launch();
    launched_in_part();
    late();
    created_late();
    created_in_part();
}

/* The last of all cases: its memory stays. */
void push_kept(void)
{
    no_mark();
    no_marks();
}
