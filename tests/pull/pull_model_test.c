/* The protocol of pull under all orders of its steps: right as it is, and wrong if any of the things that
 * it rests on is taken away. */
#include <stdio.h>

#include "tests/check.h"
#include "tests/pull/model.h"

enum { MOST = 4000000 };

/* One shot and two shot, in place and not, of two units and of one, by two workers and by one. */
static const struct model two = {.ranks = 2,
                                 .n = 4,
                                 .calls = {{5, TRI_PULL_ONE_SHOT, 1, 0, 0, TRI_PULL_ALLREDUCE},
                                           {9, TRI_PULL_TWO_SHOT, 2, 1, 0, TRI_PULL_ALLREDUCE},
                                           {12, TRI_PULL_TWO_SHOT, 1, 3, 0, TRI_PULL_ALLREDUCE},
                                           {5, TRI_PULL_ONE_SHOT, 2, 0, 0, TRI_PULL_ALLREDUCE}},
                                 .most = MOST};
/* Three pieces, which go through two halves; then workers have other parts of scratch. */
static const struct model staged = {.ranks = 2,
                                    .n = 3,
                                    .calls = {{12, TRI_PULL_TWO_SHOT, 1, 1, 1, TRI_PULL_ALLREDUCE},
                                              {12, TRI_PULL_TWO_SHOT, 2, 0, 3, TRI_PULL_ALLREDUCE},
                                              {4, TRI_PULL_ONE_SHOT, 1, 0, 2, TRI_PULL_ALLREDUCE}},
                                    .most = MOST};
static const struct model aborted = {.ranks = 2,
                                     .n = 3,
                                     .calls = {{5, TRI_PULL_TWO_SHOT, 2, 2, 0, TRI_PULL_ALLREDUCE},
                                               {3, TRI_PULL_ONE_SHOT, 1, 0, 0, TRI_PULL_ALLREDUCE},
                                               {5, TRI_PULL_TWO_SHOT, 1, 0, 1, TRI_PULL_ALLREDUCE}},
                                     .aborts = true,
                                     .most = MOST};
/* Two rounds, behind each of which a peer writes. */
static const struct model rounds_aborted = {
    .ranks = 2,
    .n = 2,
    .calls = {{12, TRI_PULL_TWO_SHOT, 1, 1, 0, TRI_PULL_ALLREDUCE},
              {12, TRI_PULL_TWO_SHOT, 1, 2, 1, TRI_PULL_ALLREDUCE}},
    .aborts = true,
    .most = MOST};
/* The other kinds, in place and not. */
static const struct model others = {
    .ranks = 2,
    .n = 4,
    .calls = {{5, TRI_PULL_ONE_SHOT, 1, 1, 0, TRI_PULL_REDUCE_SCATTER},
              {6, TRI_PULL_ONE_SHOT, 2, 2, 0, TRI_PULL_ALLGATHER},
              {9, TRI_PULL_ONE_SHOT, 1, 3, 0, TRI_PULL_BROADCAST},
              {5, TRI_PULL_ONE_SHOT, 2, 0, 0, TRI_PULL_ALLTOALL}},
    .most = MOST};
/* Pieces of which a rank's result has all, some and none. */
static const struct model others_staged = {
    .ranks = 2,
    .n = 4,
    .calls = {{6, TRI_PULL_ONE_SHOT, 1, 1, 1, TRI_PULL_REDUCE_SCATTER},
              {6, TRI_PULL_ONE_SHOT, 1, 2, 2, TRI_PULL_ALLGATHER},
              {9, TRI_PULL_ONE_SHOT, 2, 2, 3, TRI_PULL_BROADCAST},
              {6, TRI_PULL_ONE_SHOT, 1, 0, 2, TRI_PULL_ALLTOALL}},
    .most = MOST};
static const struct model others_aborted = {
    .ranks = 2,
    .n = 3,
    .calls = {{3, TRI_PULL_ONE_SHOT, 1, 1, 0, TRI_PULL_REDUCE_SCATTER},
              {4, TRI_PULL_ONE_SHOT, 1, 2, 1, TRI_PULL_ALLGATHER},
              {5, TRI_PULL_ONE_SHOT, 2, 1, 0, TRI_PULL_BROADCAST}},
    .aborts = true,
    .most = MOST};
static const struct model three = {.ranks = 3,
                                   .n = 1,
                                   .calls = {{5, TRI_PULL_TWO_SHOT, 1, 5, 0, TRI_PULL_ALLREDUCE}},
                                   .most = MOST};
/* Too many states to see all of them. */
static const struct model long_three = {
    .ranks = 3,
    .n = 4,
    .calls = {{9, TRI_PULL_TWO_SHOT, 2, 5, 0, TRI_PULL_ALLREDUCE},
              {12, TRI_PULL_ONE_SHOT, 2, 0, 2, TRI_PULL_ALLREDUCE},
              {6, TRI_PULL_ONE_SHOT, 1, 0, 0, TRI_PULL_ALLREDUCE},
              {12, TRI_PULL_TWO_SHOT, 2, 7, 0, TRI_PULL_ALLREDUCE}},
    .most = 1,
    .walks = 2000};
static const struct model others_three = {
    .ranks = 3,
    .n = 4,
    .calls = {{4, TRI_PULL_ONE_SHOT, 2, 5, 0, TRI_PULL_REDUCE_SCATTER},
              {4, TRI_PULL_ONE_SHOT, 2, 2, 2, TRI_PULL_ALLGATHER},
              {12, TRI_PULL_ONE_SHOT, 2, 4, 0, TRI_PULL_BROADCAST},
              {4, TRI_PULL_ONE_SHOT, 1, 0, 4, TRI_PULL_ALLTOALL}},
    .most = 1,
    .walks = 2000};

static void right(const char *name, struct model model)
{
    check_begin("pull model: %s", name);
    const struct model_report report = model_explore(&model);
    printf("pull model: %s: %zu states, at most %zu steps deep, %s\n", name, report.states,
           report.deepest,
           model.walks != 0 ? "by chance"
           : report.whole   ? "all"
                            : "cut short");
    CHECK_MSG(report.wrong == NULL, "%s", report.wrong);
    CHECK_MSG(report.whole, "the search was cut short");
    CHECK(report.states > 1000);
    check_end();
}

/* The search finds something wrong. */
static void found(const char *name, struct model model, enum model_bug bug)
{
    check_begin("pull model: %s", name);
    model.bug = bug;
    const struct model_report report = model_explore(&model);
    printf("pull model: %s: after %zu states: %s\n", name, report.states,
           report.wrong != NULL ? report.wrong : "nothing");
    CHECK_MSG(report.wrong != NULL, "the model does not see it");
    check_end();
}

int main(void)
{
    struct model misused = two, three_aborted = three, long_aborted = long_three;
    struct model others_three_aborted = others_three;
    misused.calls[0].in_place = 1;
    three_aborted.aborts = long_aborted.aborts = others_three_aborted.aborts = true;
    right("2 ranks, one shot and two shot", two);
    right("2 ranks, staged", staged);
    right("2 ranks, aborted", aborted);
    right("2 ranks, other kinds", others);
    right("2 ranks, other kinds, staged", others_staged);
    right("2 ranks, other kinds, aborted", others_aborted);
    right("2 ranks, rounds, aborted", rounds_aborted);
    right("3 ranks", three);
    right("3 ranks, aborted", three_aborted);
    right("3 ranks, larger calls", long_three);
    right("3 ranks, larger calls, aborted", long_aborted);
    right("3 ranks, other kinds", others_three);
    right("3 ranks, other kinds, aborted", others_three_aborted);

    found("releases that are none", two, MODEL_RELAXED);
    found("releases that are none, staged", staged, MODEL_RELAXED);
    found("no first barrier", two, MODEL_NO_FIRST);
    found("no last barrier", two, MODEL_NO_LAST);
    found("no first barrier, other kinds", others, MODEL_NO_FIRST);
    found("no last barrier, other kinds", others, MODEL_NO_LAST);
    found("no barrier between pieces", staged, MODEL_NO_PIECE);
    found("one half of scratch", staged, MODEL_ONE_HALF);
    found("no barrier between pieces, other kinds", others_staged, MODEL_NO_PIECE);
    found("one shot in place", misused, MODEL_RIGHT);
    found("who gives up waits for nobody", aborted, MODEL_ALONE);
    found("who gives up waits for nobody, 3 ranks", three_aborted, MODEL_ALONE);
    found("a twin that has left is not noticed", aborted, MODEL_DEAF);
    found("no last barrier, 3 ranks", long_three, MODEL_NO_LAST);
    return check_finish("pull_model_test");
}
