/* Bursts: calls back to back, and the time of all of them divided by their number.
 *
 * A burst begins on idle streams, on all ranks together. Eager, the threads queue its calls one by
 * one, as nccl-tests does: where a call is shorter on the device than on the host, the time is that
 * of the host. As a graph, it is one launch of what was captured before. */
#ifndef TRI_BENCHES_BURST_H
#define TRI_BENCHES_BURST_H

#include "benches/bench.h"

enum bench_way {
    BENCH_EACH,  /* no burst: an event after each call (bench_time) */
    BENCH_EAGER, /* a burst of queued calls */
    BENCH_GRAPH  /* a burst captured by a graph; only with `graphs` of struct bench, and a thread a
                    rank */
};

const char *bench_way_name(enum bench_way way);

/* Says so and exits if nothing captures the streams of this backend. */
void bench_need_graphs(const struct bench *bench);

/* At most so many sides are compared. */
enum { BENCH_SIDES = 3 };

struct bench_burst {
    enum bench_way way; /* BENCH_EAGER or BENCH_GRAPH */
    int calls;          /* of a burst */
    int warmup;         /* bursts that are not timed */
    int iterations;     /* bursts that are */
};

/* Times `n` bodies. They take turns, a burst each, and take turns in being first. results[i] has
 * microseconds a call, the maximum over the ranks: `device` over the bursts, `host` their mean. */
void bench_time_bursts(const struct bench *bench, const struct bench_burst *burst,
                       const bench_body *bodies, int n, void *argument,
                       struct bench_result *results);

#endif
