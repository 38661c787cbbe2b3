/* Calls that CUDA graphs capture have a lane of their own, and an order inside the capture. */
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/fixture.h"

enum { RANKS = 2 };

static cudaGraph_t capture(const struct push_ranks *ranks, int rank, int calls)
{
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture(ranks->streams[rank], cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
    for (int call = 0; call < calls; call++)
        CHECK_OK(push_sum(ranks, rank, PUSH_N, TRIB_F32));
    CHECK(cudaStreamEndCapture(ranks->streams[rank], &graph) == cudaSuccess);
    return graph;
}

static void replays(void)
{
    struct push_ranks ranks;
    push_begin("replays");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        cudaGraph_t graphs[RANKS];
        for (int rank = 0; rank < RANKS; rank++)
            graphs[rank] = capture(&ranks, rank, 2);
        CHECK(push_counts(&ranks, 0, 0));
        for (int round = 0; round < 3; round++) {
            push_fill(&ranks, TRIB_F32, PUSH_N);
            for (int rank = 0; rank < RANKS; rank++)
                fake_replay(graphs[rank], rank, ranks.streams[rank]);
            for (int rank = 0; rank < RANKS; rank++) {
                CHECK_OK(trib_stream_wait(ranks.devices[rank], ranks.streams[rank]));
                CHECK(push_holds(&ranks, rank, TRIB_F32, PUSH_N, RANKS));
            }
            CHECK(push_counts(&ranks, 0, 2));
            CHECK(push_works(&ranks) && push_counts(&ranks, 0, 1));
        }
        for (int rank = 0; rank < RANKS; rank++)
            (void)cudaGraphDestroy(graphs[rank]);
        push_close(&ranks);
    }
    push_end();
}

/* A replay runs beside a call that no graph captured, and that waits for a peer. */
static void beside(void)
{
    struct push_ranks ranks;
    push_begin("a replay beside a call");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        cudaGraph_t graphs[RANKS];
        trib_stream others[RANKS];
        for (int rank = 0; rank < RANKS; rank++) {
            graphs[rank] = capture(&ranks, rank, 1);
            CHECK_OK(trib_stream_create(&others[rank], ranks.devices[rank]));
        }
        CHECK_OK(push_sum(&ranks, 0, PUSH_N, TRIB_F32));
        for (int rank = 0; rank < RANKS; rank++)
            fake_replay(graphs[rank], rank, others[rank]);
        CHECK(push_counts(&ranks, 0, 1));
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_OK(trib_stream_wait(ranks.devices[rank], others[rank]));
        CHECK(!push_is_done(&ranks, 0));
        CHECK_OK(push_sum(&ranks, 1, PUSH_N, TRIB_F32));
        CHECK(push_counts(&ranks, 0, 1) && push_is_done(&ranks, 0));
        for (int rank = 0; rank < RANKS; rank++) {
            (void)cudaGraphDestroy(graphs[rank]);
            CHECK_OK(trib_stream_destroy(ranks.devices[rank], others[rank]));
        }
        push_close(&ranks);
    }
    push_end();
}

/* Two streams of one capture: the second joins it by the wait, and the first waits for that. A call that
 * is not captured waits for none of them, nor does the next capture. */
static void order(void)
{
    struct push_ranks ranks;
    push_begin("two streams of one capture");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        trib_stream first = ranks.streams[0], second = NULL, apart = NULL;
        cudaGraph_t graph = NULL;
        CHECK_OK(trib_stream_create(&second, ranks.devices[0]));
        CHECK_OK(trib_stream_create(&apart, ranks.devices[0]));
        CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        push_sum_on(&ranks, 0, first);
        long before = fake_event_waits();
        push_sum_on(&ranks, 0, apart);
        CHECK(fake_event_waits() == before);
        CHECK(fake_capturing(first) != NULL);
        fake_capture_join(second, fake_capturing(first));
        push_sum_on(&ranks, 0, second);
        CHECK(fake_after(second) == first);
        push_sum_on(&ranks, 0, first);
        CHECK(fake_after(first) == second);
        CHECK(cudaStreamEndCapture(first, &graph) == cudaSuccess);
        (void)cudaGraphDestroy(graph);
        before = fake_event_waits();
        (void)cudaGraphDestroy(capture(&ranks, 0, 1));
        CHECK_MSG(fake_event_waits() == before, "a capture waits for another one");
        push_sum_on(&ranks, 1, ranks.streams[1]); /* for the call apart */
        for (int rank = 0; rank < RANKS; rank++)  /* as many calls of both */
            for (int call = rank; call < 4 && rank == 1; call++)
                (void)cudaGraphDestroy(capture(&ranks, 1, 1));
        (void)cudaGraphDestroy(capture(&ranks, 1, 1));
        CHECK_OK(trib_stream_destroy(ranks.devices[0], second));
        CHECK_OK(trib_stream_destroy(ranks.devices[0], apart));
        push_close(&ranks);
    }
    push_end();
}

/* Calls in the captures of four graphs, in turn: in each capture a call waits for the one before, on another
 * stream. */
static void in_turn(void)
{
    enum { GRAPHS = 4 };
    struct push_ranks ranks;
    push_begin("four captures at once");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        trib_stream first[GRAPHS], second[GRAPHS];
        for (int i = 0; i < GRAPHS; i++) {
            CHECK_OK(trib_stream_create(&first[i], ranks.devices[0]));
            CHECK_OK(trib_stream_create(&second[i], ranks.devices[0]));
            CHECK(cudaStreamBeginCapture(first[i], cudaStreamCaptureModeThreadLocal) ==
                  cudaSuccess);
            fake_capture_join(second[i], fake_capturing(first[i]));
        }
        for (int i = 0; i < GRAPHS; i++)
            push_sum_on(&ranks, 0, first[i]);
        for (int i = 0; i < GRAPHS; i++) {
            push_sum_on(&ranks, 0, second[i]);
            CHECK_MSG(fake_after(second[i]) == first[i], "capture %d", i);
        }
        for (int i = 0; i < GRAPHS; i++) {
            push_sum_on(&ranks, 0, first[i]);
            CHECK_MSG(fake_after(first[i]) == second[i], "capture %d", i);
        }
        for (int i = 0; i < GRAPHS; i++) {
            cudaGraph_t graph = NULL;
            CHECK(cudaStreamEndCapture(first[i], &graph) == cudaSuccess);
            (void)cudaGraphDestroy(graph);
            CHECK_OK(trib_stream_destroy(ranks.devices[0], first[i]));
            CHECK_OK(trib_stream_destroy(ranks.devices[0], second[i]));
        }
        (void)cudaGraphDestroy(capture(&ranks, 1, 3 * GRAPHS)); /* as many calls of both */
        push_close(&ranks);
    }
    push_end();
}

/* What a graph repeats stays until it is destroyed. */
static void outlived(void)
{
    struct push_ranks ranks;
    push_begin("a graph that outlives the communicator");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        cudaGraph_t graphs[RANKS];
        for (int rank = 0; rank < RANKS; rank++)
            graphs[rank] = capture(&ranks, rank, 1);
        CHECK_OK(trib_comm_destroy(ranks.comms[0]));
        CHECK_STATUS(trib_comm_close(ranks.comms[1], PUSH_LATE_MS), TRIB_ERR_TIMEOUT);
        CHECK_OK(trib_comm_destroy(ranks.comms[1]));
        check_sleep_ms(20);
        CHECK(fake_mappings() > 0);
        for (int rank = 0; rank < RANKS; rank++)
            fake_replay(graphs[rank], rank, ranks.streams[rank]);
        for (int rank = 0; rank < RANKS; rank++)
            (void)cudaGraphDestroy(graphs[rank]);
        push_drop(&ranks);
    }
    push_end();
}

/* Of the two calls of a batch the first is captured, and the second fails: both communicators end, and
 * the memory of the first stays as long as the graph. */
static void in_part(void)
{
    struct push_ranks ranks, others;
    push_begin("a batch that is captured in part");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL) && push_open(&others, RANKS, PUSH_N * 4, NULL)) {
        trib_comm *const comms[2] = {ranks.comms[0], others.comms[0]};
        const int each = fake_mappings() / 2;
        cudaGraph_t graph = NULL;
        CHECK(cudaStreamBeginCapture(ranks.streams[0], cudaStreamCaptureModeThreadLocal) ==
              cudaSuccess);
        for (int i = 0; i < 2; i++) {
            CHECK_OK(trib_batch_begin(comms[i]));
            CHECK_OK(trib_allreduce(comms[i], ranks.data[0], ranks.data[0], PUSH_N / 2, TRIB_F32,
                                    TRIB_SUM, ranks.streams[0]));
        }
        fake_fail_push(1);
        CHECK_STATUS(trib_batch_end_all(comms, 2), TRIB_ERR_CUDA);
        CHECK(cudaStreamEndCapture(ranks.streams[0], &graph) == cudaSuccess);
        push_destroy(&ranks);
        push_destroy(&others);
        check_sleep_ms(50);
        CHECK(fake_mappings() >= each);
        fake_replay(graph, 0, ranks.streams[0]);
        (void)cudaGraphDestroy(graph);
        push_drop(&ranks);
        push_drop(&others);
    }
    push_end();
}

/* CUDA does not let the graph be counted: nobody knows when it is gone, so the memory stays. */
static void uncounted(const char *name, void (*fail)(bool fails))
{
    struct push_ranks ranks;
    push_begin(name);
    const int before = fake_mappings();
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        const int kept = fake_mappings() - before;
        cudaGraph_t graph = NULL;
        fail(true);
        graph = capture(&ranks, 0, 1);
        fail(false);
        (void)cudaGraphDestroy(capture(&ranks, 1, 1));
        push_close(&ranks);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK_MSG(fake_mappings() == before + kept, "the memory of a graph is freed");
        (void)cudaGraphDestroy(graph);
        push_keep(kept, RANKS);
    }
    push_end();
}

void push_graphs_kept(void)
{
    uncounted("a graph that retains nothing", fake_fail_user_objects);
    uncounted("a graph that CUDA does not name", fake_fail_capture_info);
}

void push_graphs(void)
{
    replays();
    beside();
    order();
    in_turn();
    outlived();
    in_part();
}
