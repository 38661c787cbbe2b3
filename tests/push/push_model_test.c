/* The protocol of push under all orders of its steps: right as it is, and wrong if any of the things
 * that it rests on is taken away. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/check.h"
#include "tests/push/model.h"

enum { MOST = 3000000 };

/* Five calls of changing size and grid: every buffer is used again, each rank splits a call in its own
 * way. One chunk has two wide granules; five elements of f32 are a chunk and a granule. */
static const struct model wide = {
    .ranks = 2,
    .n = 5,
    .calls = {{2, {1, 1}}, {2, {2, 1}}, {3, {2, 2}}, {1, {1, 2}}, {2, {1, 1}}},
    .dtype = TRIB_I32,
    .most = MOST};
static const struct model narrow = {.ranks = 2,
                                    .n = 4,
                                    .calls = {{2, {1, 1}}, {1, {1, 2}}, {5, {2, 1}}, {2, {1, 1}}},
                                    .dtype = TRIB_F32,
                                    .most = MOST};
static const struct model three = {
    .ranks = 3,
    .n = 4,
    .calls = {{1, {1, 1, 1}}, {1, {1, 1, 1}}, {1, {1, 1, 1}}, {1, {1, 1, 1}}},
    .dtype = TRIB_F32,
    .most = MOST};

/* A granule of the root's second chunk is not used again before the call after the next. */
static const struct model kinds = {.ranks = 2,
                                   .n = 7,
                                   .calls = {{3, {2, 1}, TRI_PUSH_BROADCAST, 0},
                                             {1, {1, 1}, TRI_PUSH_BROADCAST, 0},
                                             {2, {1, 2}, TRI_PUSH_BROADCAST, 0},
                                             {3, {1, 2}, TRI_PUSH_ALLGATHER, 0},
                                             {3, {2, 1}, TRI_PUSH_REDUCE_SCATTER, 0},
                                             {1, {1, 1}, TRI_PUSH_BROADCAST, 1},
                                             {2, {1, 1}, TRI_PUSH_ALLTOALL, 0}},
                                   .dtype = TRIB_I32,
                                   .most = MOST};
/* Right, too, under all of its 2,964,262 states, which take 10 to 20 s. */
static const struct model broadcasts = {.ranks = 3,
                                        .n = 3,
                                        .calls = {{1, {1, 1, 1}, TRI_PUSH_BROADCAST, 0},
                                                  {1, {1, 1, 1}, TRI_PUSH_BROADCAST, 0},
                                                  {1, {1, 1, 1}, TRI_PUSH_BROADCAST, 0}},
                                        .dtype = TRIB_I32,
                                        .most = 300000};
static const struct model scatters = {.ranks = 3,
                                      .n = 3,
                                      .calls = {{1, {1, 1, 1}, TRI_PUSH_REDUCE_SCATTER, 0},
                                                {1, {1, 1, 1}, TRI_PUSH_REDUCE_SCATTER, 0},
                                                {1, {1, 1, 1}, TRI_PUSH_ALLREDUCE, 0}},
                                      .dtype = TRIB_F32,
                                      .most = MOST};

/* Two shot: shares of two chunks, of one, and none. */
static const struct model shares = {.ranks = 2,
                                    .n = 5,
                                    .calls = {{3, {1, 1}, TRI_PUSH_TWO_SHOT, 0},
                                              {1, {1, 2}, TRI_PUSH_TWO_SHOT, 0},
                                              {5, {2, 1}, TRI_PUSH_TWO_SHOT, 0},
                                              {2, {1, 1}, TRI_PUSH_ALLREDUCE, 0},
                                              {3, {1, 1}, TRI_PUSH_TWO_SHOT, 0}},
                                    .dtype = TRIB_I32,
                                    .most = MOST};
static const struct model three_shares = {.ranks = 3,
                                          .n = 3,
                                          .calls = {{3, {1, 1, 1}, TRI_PUSH_TWO_SHOT, 0},
                                                    {3, {1, 1, 1}, TRI_PUSH_TWO_SHOT, 0},
                                                    {3, {1, 1, 1}, TRI_PUSH_TWO_SHOT, 0}},
                                          .dtype = TRIB_I32,
                                          .most = MOST};

/* Too many states to see all of them. */
static const struct model three_wide = {.ranks = 3,
                                        .n = 6,
                                        .calls = {{2, {1, 2, 1}},
                                                  {3, {2, 1, 1}},
                                                  {1, {1, 1, 2}},
                                                  {2, {1, 2, 1}},
                                                  {2, {2, 1, 1}},
                                                  {1, {1, 1, 1}}},
                                        .dtype = TRIB_I32,
                                        .most = 200000,
                                        .depth = 300};

/* Where two shot is allowed no two ranks are without a share. */
static void shares_of_all_counts(void)
{
    check_begin("push model: shares of two shot");
    for (int size = 2; size <= TRI_PUSH_RANKS; size++)
        for (size_t count = 1; count < 1000; count++) {
            const struct tri_push job = {.size = size, .count = count, .dtype = TRIB_U8};
            const size_t chunks = tri_push_chunks(count, TRIB_U8), each = tri_push_each(&job);
            CHECK(each * (size_t)size >= chunks);
            CHECK_MSG(!tri_push_can_share(count, TRIB_U8, size) ||
                          each * (size_t)(size - 2) < chunks,
                      "%zu chunks of %d ranks", chunks, size);
        }
    CHECK(tri_push_can_share(8 * 22, TRIB_U8, 8) && !tri_push_can_share(8 * 21, TRIB_U8, 8));
    check_end();
}

static void right(const char *name, struct model model, bool whole)
{
    check_begin("push model: %s", name);
    const struct model_report report = model_explore(&model);
    printf("push model: %s: %zu states, at most %zu steps deep, %s\n", name, report.states,
           report.deepest, report.whole ? "all" : "cut short");
    CHECK_MSG(report.wrong == NULL, "%s", report.wrong);
    CHECK_MSG(report.whole == whole, "the search %s", whole ? "was cut short" : "had an end");
    CHECK(report.states > 1000);
    check_end();
}

/* The search finds something wrong. */
static void found(const char *name, struct model model, enum model_bug bug)
{
    check_begin("push model: %s", name);
    model.bug = bug;
    const struct model_report report = model_explore(&model);
    printf("push model: %s: after %zu states: %s\n", name, report.states,
           report.wrong != NULL ? report.wrong : "nothing");
    CHECK_MSG(report.wrong != NULL, "the model does not see it");
    check_end();
}

int main(void)
{
    struct model nans = narrow;
    nans.nans = true;
    nans.calls[2] = nans.calls[1];
    right("2 ranks, wide granules", wide, true);
    right("2 ranks, float granules", narrow, true);
    right("2 ranks, every element all ones", nans, true);
    right("3 ranks", three, true);
    right("3 ranks, larger calls", three_wide, false);
    right("2 ranks, all kinds", kinds, true);
    right("3 ranks, broadcasts", broadcasts, false);
    right("3 ranks, reduce_scatters", scatters, true);
    shares_of_all_counts();
    right("2 ranks, two shot", shares, true);
    right("3 ranks, two shot", three_shares, true);

    found("the epoch begins before all workers have read it", wide, MODEL_EARLY_EPOCH);
    found("one buffer", wide, MODEL_ONE_BUFFER);
    found("one buffer, 3 ranks", three, MODEL_ONE_BUFFER);
    found("who has nothing to send is silent", kinds, MODEL_SILENT);
    found("who has nothing to send is silent, 3 ranks", broadcasts, MODEL_SILENT);
    found("one buffer, all kinds", kinds, MODEL_ONE_BUFFER);
    found("one buffer, two shot", shares, MODEL_ONE_BUFFER);
    found("EMPTY is not put back, two shot", shares, MODEL_NOT_RESTORED);
    found("EMPTY is not put back", wide, MODEL_NOT_RESTORED);
    found("EMPTY is put back after the call", wide, MODEL_LATE_RESTORE);
    found("all ones are sent as they are", nans, MODEL_NOT_CANONICAL);
    found("a chunk is judged by its first granule", wide, MODEL_HALF_A_CHUNK);
    return check_finish("push_model_test");
}
